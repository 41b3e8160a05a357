"""The pods that have a node, found by their labels, and counted by the domains of node labels. Pure.

All is worked out when it is first asked for, and kept for those that ask the same: the pods of a gang, and
the gangs of one template. Pods that are planned later in a pass are added, and what was counted follows.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Final

from webhook.kube import objects
from webhook.placement.eligibility import Rules, Taint, reason_against
from webhook.placement.model import PodClass, PodCounts, Preferences
from webhook.scheduling.antiaffinity import AntiAffinityTerm, NamespaceLabels, terms_of
from webhook.scheduling.carriers import Carriers, carriers_of
from webhook.scheduling.convert import node_rules
from webhook.scheduling.podrules import Near, PodRules, SpreadRule, apart_keys, rules_of

Standing = tuple[objects.Pod, str]
"""A pod and its node."""

_RulesByLabels = tuple[objects.Pod, tuple[str, ...], dict[tuple[str | None, ...], PodRules]]
"""A pod, the keys of its labels on which its rules depend, and these rules by the labels."""


class Neighbourhood:
    """Pods that have a node, and the labels of nodes. namespaces: None where their labels are not known."""

    def __init__(
        self,
        nodes: Mapping[str, objects.Node],
        standing: Iterable[Standing],
        namespaces: NamespaceLabels | None = None,
        waiting: Iterable[objects.Pod] = (),
    ) -> None:
        """waiting: pods that will be asked about, by which work on anti-affinity is reckoned."""
        self.labels = {name: node.metadata.labels for name, node in nodes.items()}
        self._nodes = nodes
        self._namespaces = namespaces
        self._standing = [(pod, node) for pod, node in standing if node in nodes]
        self._waiting = list(waiting)
        self._indexed = 0
        self._by_namespace: dict[str, list[Standing]] = {}
        self._by_label: dict[str, tuple[dict[tuple[str, str], list[Standing]], int]] = {}
        self._found: dict[str, tuple[list[Standing], int]] = {}
        self._counts: dict[object, tuple[Counter[str], int]] = {}
        self._rules: dict[object, _RulesByLabels] = {}
        self._parts_kept: list[objects.Pod] = []
        self._deciding: dict[int, tuple[str, ...]] = {}
        self._crowds: dict[int, tuple[tuple[PodCounts, ...], tuple[PodCounts, ...]]] = {}
        self._kept_off: dict[object, tuple[objects.Pod, tuple[tuple[str, frozenset[str]], ...]]] = {}
        self._eligible: dict[object, frozenset[str]] = {}
        self._by_value: dict[str, dict[str, list[str]]] = {}

    def without(self, uids: frozenset[str]) -> "Neighbourhood":
        """The same without these pods."""
        left = [each for each in self._standing if each[0].metadata.uid not in uids]
        return Neighbourhood(self._nodes, left, self._namespaces, self._waiting)

    def add(self, pod: objects.Pod, node: str) -> None:
        """A pod has been given its node."""
        if node not in self.labels:
            return
        self._standing.append((pod, node))
        self._kept_off.clear()
        self._deciding.clear()
        self._crowds.clear()
        if "_carriers" in self.__dict__:
            for key in apart_keys(pod):
                value = self.labels[node].get(key)
                for term in terms_of(pod, key, self._namespaces) if value is not None else ():
                    self._carriers.setdefault(key, Carriers()).add(term, str(value))

    # --- what is read of one pod ------------------------------------------------------------------

    def rules_of(self, pod: objects.Pod) -> PodRules:
        """The pod's rules; the same object for pods that have the same."""
        spec = pod.spec
        if spec.affinity is None and not spec.topology_spread_constraints:
            return NO_RULES
        known = self._rules.get(
            key := (pod.metadata.namespace, id(spec.affinity), id(spec.topology_spread_constraints))
        )
        if known is None:  # the pod is kept, so that its parts are not collected and their ids used again
            keyed = [name for each in spec.topology_spread_constraints for name in each.match_label_keys]
            known = self._rules[key] = pod, tuple(keyed), {}
        values = tuple([pod.metadata.labels.get(name) for name in known[1]]) if known[1] else ()
        rules = known[2].get(values)
        if rules is None:
            rules = known[2][values] = rules_of(pod, self._namespaces)
        return rules

    def signature(self, pod: objects.Pod, rules: PodRules, label_keys: Iterable[str]) -> tuple[object, ...]:
        """Equal for pods that are alike to rules which depend on these keys of pod labels, in one order."""
        labels, spec = pod.metadata.labels, pod.spec
        own = tuple([labels.get(key) for key in label_keys])
        nodes = (id(spec.node_selector), id(spec.affinity), id(spec.tolerations)) if rules.spread else ()
        return pod.metadata.namespace, own, id(rules), nodes

    def pod_class(self, pod: objects.Pod, pod_class: PodClass) -> PodClass:
        """The pod's class without the nodes where no pod of its gang could help it in."""
        rules = self.rules_of(pod)
        if not pod_class.problem and (rules.soft_spread or rules.liked):
            pod_class = replace(pod_class, preferred=self._preferred(rules, pod_class.preferred))
        if pod_class.problem or (not rules and not self._carriers):
            return pod_class
        if rules.fault:
            return PodClass((), pod_class.rules, problem=rules.fault)
        kept_off = self._kept_off_of(pod, rules)
        return (
            replace(pod_class, rules=replace(pod_class.rules, kept_off=kept_off)) if kept_off else pod_class
        )

    def _preferred(self, rules: PodRules, wishes: Preferences) -> Preferences:
        """The same wishes with those about pods that stand."""
        known = self._crowds.get(id(rules))  # rules are kept, see rules_of
        if known is None:
            spread = tuple(
                PodCounts(each.key, _sorted(self.spread(each, _Everywhere)), each.max_skew)
                for each in rules.soft_spread
            )
            near = tuple(
                PodCounts(near.key, _sorted(self.near(near.key, (near.pods,)), weight))
                for weight, near in rules.liked
            )
            known = self._crowds[id(rules)] = spread, near
        return replace(wishes, spread=known[0], near=known[1])

    def _kept_off_of(self, pod: objects.Pod, rules: PodRules) -> tuple[tuple[str, frozenset[str]], ...]:
        keys = self._deciding.get(id(rules))
        if keys is None:
            keys = self._deciding[id(rules)] = tuple(sorted(rules.label_keys | self._carried_keys))
        key = self.signature(pod, rules, keys)
        known = self._kept_off.get(key)
        if known is None:
            found = {name: frozenset(nodes) for name, nodes in self._closed_to(pod, rules).items() if nodes}
            known = self._kept_off[key] = pod, tuple(sorted(found.items()))
        return known[1]

    def _closed_to(self, pod: objects.Pod, rules: PodRules) -> dict[str, set[str]]:
        """Nodes that the pod may not use whatever becomes of its gang, by the rule."""
        found: dict[str, set[str]] = {}
        for key, carriers in self._carriers.items():
            values = carriers.closed_to(pod.metadata.namespace, pod.metadata.labels)
            found.setdefault(f"pod anti-affinity over {key}", set()).update(self.nodes_with(key, values))
        for near in rules.apart:
            values = set(self.near(near.key, (near.pods,)))
            found.setdefault(f"pod anti-affinity over {near.key}", set()).update(
                self.nodes_with(near.key, values)
            )
        for what, key in (
            *(("pod affinity", near.key) for near in rules.affinity),
            *(("topology spread", rule.key) for rule in rules.spread),
        ):
            lacking = self.labels.keys() - self._with_labels(frozenset((key,)))
            found.setdefault(f"{what} over {key}", set()).update(lacking)
        return found

    # --- domains of node labels -------------------------------------------------------------------

    def value(self, node: str, key: str) -> str | None:
        """The domain of a node; "" as the key means that each node is one."""
        return self.labels[node].get(key) if key else node

    def by_value(self, key: str) -> Mapping[str, list[str]]:
        """The nodes of each domain."""
        if key not in self._by_value:
            found: dict[str, list[str]] = defaultdict(list)
            for name, labels in self.labels.items():
                if key in labels:
                    found[labels[key]].append(name)
            self._by_value[key] = dict(found)
        return self._by_value[key]

    def values(self, nodes: frozenset[str], key: str) -> Iterable[str]:
        """The domains that have any of these nodes."""
        found = self.by_value(key)
        if len(nodes) == len(self.labels):
            return found.keys()
        return [value for value, names in found.items() if not nodes.isdisjoint(names)]

    def nodes_with(self, key: str, values: Iterable[str]) -> Iterable[str]:
        """The nodes of these domains."""
        nodes = self.by_value(key)
        return (name for value in values for name in nodes.get(value, ()))

    def eligible(self, pod: objects.Pod, rules: PodRules, rule: SpreadRule) -> frozenset[str]:
        """The nodes that count for a pod's rule: they have the labels of all its rules, and policies hold."""
        over = frozenset(each.key for each in rules.spread)
        affinity = id(pod.spec.affinity), id(pod.spec.node_selector)
        key = (
            over,
            affinity if rule.honours_affinity else None,
            id(pod.spec.tolerations) if rule.honours_taints else None,
        )
        if key not in self._eligible:
            wanted = node_rules(pod.spec)
            if not rule.honours_affinity:
                wanted = Rules(tolerations=wanted.tolerations)
            with_labels = self._with_labels(over)
            is_picky = wanted.has_wishes or rule.honours_taints
            found = set() if is_picky else with_labels
            for name in with_labels if is_picky else ():
                taints: tuple[Taint, ...] = ()
                if rule.honours_taints:
                    own = self._nodes[name].spec.taints
                    taints = tuple(Taint(each.key, each.value, each.effect) for each in own)
                asked = bool(taints) or wanted.has_wishes
                if not asked or not reason_against(
                    wanted, name, self.labels[name], taints, unschedulable=False, ready=True
                ):
                    found.add(name)
            self._parts_kept.append(pod)  # see rules_of
            self._eligible[key] = frozenset(found)
        return self._eligible[key]

    def _with_labels(self, keys: frozenset[str]) -> set[str]:
        """The nodes that have all these labels."""
        found = set(self.labels)
        for key in keys:
            by_value = self.by_value(key)
            if sum(map(len, by_value.values())) < len(self.labels):
                found &= {name for names in by_value.values() for name in names}
        return found

    # --- counts -----------------------------------------------------------------------------------

    def near(self, key: str, terms: tuple[AntiAffinityTerm, ...]) -> Mapping[str, int]:
        """How many pods that all terms find are in each domain, for those that hold any."""
        known = key, tuple(term.name for term in terms)
        return self._count(known, key, terms[0], lambda each: _found_by_all(each[0], terms[1:]))

    def spread(self, rule: SpreadRule, nodes: frozenset[str]) -> Mapping[str, int]:
        """How many pods a rule counts in each domain of these nodes, for those that hold any."""
        if rule.requirements is None:
            return {}
        term = AntiAffinityTerm(
            f"spread {rule.namespace} {rule.requirements}", frozenset((rule.namespace,)), rule.requirements
        )

        def counts(each: Standing) -> bool:
            return each[1] in nodes and not each[0].metadata.deletion_timestamp

        return self._count((rule.key, term.name, id(nodes)), rule.key, term, counts)

    def on_nodes(self, rule: SpreadRule) -> Mapping[str, int]:
        """How many pods a rule counts on each node."""
        return self.spread(replace(rule, key=""), _Everywhere)

    def _count(
        self, known: object, key: str, term: AntiAffinityTerm, counts: Callable[[Standing], bool]
    ) -> Mapping[str, int]:
        found = self.found(term)
        counter, done = self._counts.get(known, (Counter(), 0))
        for each in found[done:]:
            value = self.value(each[1], key)
            if value is not None and counts(each):
                counter[value] += 1
        self._counts[known] = counter, len(found)
        return counter

    def found(self, term: AntiAffinityTerm) -> list[Standing]:
        """The pods that a term finds; those that were added come last."""
        self._index_pods()
        found, done = self._found.get(term.name, ([], 0))
        fresh = self._standing[done:] if done else self._candidates(term)
        found += [each for each in fresh if term.repels(each[0].metadata.namespace, each[0].metadata.labels)]
        self._found[term.name] = found, len(self._standing)
        return found

    def _candidates(self, term: AntiAffinityTerm) -> list[Standing]:
        namespaces = self._by_namespace if term.namespaces is None else term.namespaces
        named = [each for each in term.requirements if each.operator == "In"]
        found: list[Standing] = []
        for namespace in namespaces:
            best = self._by_namespace.get(namespace, [])
            labels = self._labelled(namespace) if best and named else {}
            for each in named:
                pods = [pod for value in each.values for pod in labels.get((each.key, value), ())]
                best = min(best, pods, key=len)
            found += best
        return found

    def _labelled(self, namespace: str) -> Mapping[tuple[str, str], list[Standing]]:
        """The pods of a namespace by their labels."""
        labels, done = self._by_label.get(namespace, ({}, 0))
        pods = self._by_namespace[namespace]
        for each in pods[done:]:
            for pair in each[0].metadata.labels.items():
                labels.setdefault(pair, []).append(each)
        self._by_label[namespace] = labels, len(pods)
        return labels

    def _index_pods(self) -> None:
        for each in self._standing[self._indexed :]:
            self._by_namespace.setdefault(each[0].metadata.namespace, []).append(each)
        self._indexed = len(self._standing)

    @cached_property
    def _carriers(self) -> dict[str, Carriers]:
        """Anti-affinity that pods carry which have a node, by the label that it is over."""
        return carriers_of(self._standing, self.labels, self._namespaces, self._waiting)

    @property
    def _carried_keys(self) -> frozenset[str]:
        """The keys of pod labels on which the anti-affinity of pods depends that have a node."""
        return frozenset(
            each.key
            for carriers in self._carriers.values()
            for term in carriers.terms.values()
            for each in term.requirements
        )


NO_RULES: Final = PodRules()


class _AllNodes(frozenset[str]):
    """Every node."""

    def __contains__(self, _: object) -> bool:
        return True


_Everywhere: Final = _AllNodes()


def _sorted(counts: Mapping[str, int], weight: int = 1) -> tuple[tuple[str, int], ...]:
    return tuple(sorted((value, weight * count) for value, count in counts.items()))


def _found_by_all(pod: objects.Pod, terms: Iterable[AntiAffinityTerm]) -> bool:
    return all(term.repels(pod.metadata.namespace, pod.metadata.labels) for term in terms)


def near_terms(rules: Iterable[Near]) -> tuple[AntiAffinityTerm, ...]:
    """The terms of several rules."""
    return tuple(each.pods for each in rules)
