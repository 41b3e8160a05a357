"""Pod counts by domain of a label, for rules on other pods. They count pods that have a node. Pure."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Final

from webhook.kube import objects
from webhook.scheduling.antiaffinity import AntiAffinityTerm
from webhook.scheduling.assigned_pods import AssignedPod, AssignedPods
from webhook.scheduling.label_domains import LabelDomains
from webhook.scheduling.podrules import SpreadRule


class DomainCounts:
    """Lazy counts: an immutable value, from which values with more pods are made."""

    def __init__(self, assigned: AssignedPods, domains: LabelDomains) -> None:
        self._assigned = assigned
        self._domains = domains
        self._known: dict[object, tuple[Counter[str], int]] = {}

    def with_pods(self, assigned: AssignedPods) -> "DomainCounts":
        """The counts of these pods, which are the old pods with others appended."""
        made = DomainCounts(assigned, self._domains)
        made._known = dict(self._known)
        return made

    def near(self, key: str, terms: tuple[AntiAffinityTerm, ...]) -> Mapping[str, int]:
        """The number of pods that match all terms, by domain; domains without any are omitted."""
        known = key, tuple(term.name for term in terms)
        return self._count(known, key, terms[0], lambda each: _found_by_all(each[0], terms[1:]))

    def spread(self, rule: SpreadRule, nodes: frozenset[str]) -> Mapping[str, int]:
        """The number of pods that a rule counts, by domain of these nodes; domains without any are omitted.

        nodes: the same object in each call; the caller keeps it alive.
        """
        if rule.requirements is None:
            return {}
        term = AntiAffinityTerm(
            f"spread {rule.namespace} {rule.requirements}", frozenset((rule.namespace,)), rule.requirements
        )

        def counts(each: AssignedPod) -> bool:
            return each[1] in nodes and not each[0].metadata.deletion_timestamp

        return self._count((rule.key, term.name, id(nodes)), rule.key, term, counts)

    def everywhere(self, rule: SpreadRule) -> Mapping[str, int]:
        """The number of pods that a rule counts, by domain, on all nodes."""
        return self.spread(rule, _EVERYWHERE)

    def on_nodes(self, rule: SpreadRule) -> Mapping[str, int]:
        """The number of pods that a rule counts, by node."""
        return self.everywhere(replace(rule, key=""))

    def _count(
        self, known: object, key: str, term: AntiAffinityTerm, counts: Callable[[AssignedPod], bool]
    ) -> Mapping[str, int]:
        found, known = self._assigned.found(term), (known, self._assigned.order)
        counter, done = self._known.get(known, (Counter(), 0))
        if done < len(found):
            counter = counter.copy()
        for each in found[done:]:
            value = self._domains.value(each[1], key)
            if value is not None and counts(each):
                counter[value] += 1
        self._known[known] = counter, len(found)
        return counter


class _AllNodes(frozenset[str]):
    """Every node."""

    def __contains__(self, _: object) -> bool:
        return True


_EVERYWHERE: Final = _AllNodes()


def _found_by_all(pod: objects.Pod, terms: Iterable[AntiAffinityTerm]) -> bool:
    return all(term.repels(pod.metadata.namespace, pod.metadata.labels) for term in terms)
