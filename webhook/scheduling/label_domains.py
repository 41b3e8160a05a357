"""Nodes by label value: the topology domains of rules on other pods. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Mapping

from webhook.kube import objects

Nodes = Mapping[str, objects.Node]


class LabelDomains:
    """The domains of all labels of some nodes, computed per label on first use."""

    def __init__(self, nodes: Nodes) -> None:
        self.labels = {name: node.metadata.labels for name, node in nodes.items()}
        self._are_of: Nodes = nodes
        """The latest nodes for which these domains are valid."""
        self._by_value: dict[str, dict[str, list[str]]] = {}
        self._of_nodes: dict[str, dict[str, str | None]] = {}
        self._are_single: dict[str, bool] = {}
        self._with_labels: dict[frozenset[str], frozenset[str]] = {}

    def are_of(self, nodes: Nodes) -> bool:
        """Whether the domains are valid for these nodes too, since no labels differ."""
        if nodes is self._are_of:
            return True
        labels = self.labels
        is_same = len(labels) == len(nodes) and all(
            (known := labels.get(name)) is not None
            and (known is node.metadata.labels or known == node.metadata.labels)
            for name, node in nodes.items()
        )
        if is_same:
            self._are_of = nodes
        return is_same

    def value(self, node: str, key: str) -> str | None:
        """The domain of a node. For the key "" each node is a domain."""
        return self.labels[node].get(key) if key else node

    def by_value(self, key: str) -> Mapping[str, list[str]]:
        """The nodes of each domain."""
        if key not in self._by_value:
            found: dict[str, list[str]] = defaultdict(list)
            for name, labels in self.labels.items():
                if (value := labels.get(key)) is not None:
                    found[value].append(name)
            self._by_value[key] = dict(found)
        return self._by_value[key]

    def of_nodes(self, key: str) -> Mapping[str, str | None]:
        """The domain of each node, for questions about many nodes."""
        if key not in self._of_nodes:
            self._of_nodes[key] = {name: labels.get(key) for name, labels in self.labels.items()}
        return self._of_nodes[key]

    def are_single(self, key: str) -> bool:
        """Whether no domain has several nodes."""
        if key not in self._are_single:
            self._are_single[key] = all(len(names) == 1 for names in self.by_value(key).values())
        return self._are_single[key]

    def values(self, nodes: frozenset[str], key: str) -> Iterable[str]:
        """The domains with any of these nodes."""
        found = self.by_value(key)
        if len(nodes) == len(self.labels):
            return found.keys()
        return [value for value, names in found.items() if not nodes.isdisjoint(names)]

    def nodes_with(self, key: str, values: Iterable[str]) -> Iterable[str]:
        """The nodes of these domains."""
        nodes = self.by_value(key)
        return (name for value in values for name in nodes.get(value, ()))

    def with_labels(self, keys: frozenset[str]) -> frozenset[str]:
        """The nodes that have all these labels."""
        known = self._with_labels.get(keys)
        if known is None:
            known = frozenset(self.labels)
            for key in keys:
                by_value = self.by_value(key)
                if sum(map(len, by_value.values())) < len(self.labels):
                    known &= {name for names in by_value.values() for name in names}
            self._with_labels[keys] = known
        return known
