"""How many of the pods that have a node are in each domain of a label, as rules on other pods count. Pure."""

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
    """Counted when first asked for: a value, of which others are made with more pods."""

    def __init__(self, assigned: AssignedPods, domains: LabelDomains) -> None:
        self._assigned = assigned
        self._domains = domains
        self._known: dict[object, tuple[Counter[str], int]] = {}

    def with_pods(self, assigned: AssignedPods) -> "DomainCounts":
        """The same of these pods, which are those of this one and some that come after them."""
        made = DomainCounts(assigned, self._domains)
        made._known = dict(self._known)
        return made

    def near(self, key: str, terms: tuple[AntiAffinityTerm, ...]) -> Mapping[str, int]:
        """How many pods that all terms find are in each domain, for those that hold any."""
        known = key, tuple(term.name for term in terms)
        return self._count(known, key, terms[0], lambda each: _found_by_all(each[0], terms[1:]))

    def spread(self, rule: SpreadRule, nodes: frozenset[str]) -> Mapping[str, int]:
        """How many pods a rule counts in each domain of these nodes, for those that hold any.

        nodes: the same object each time, which its owner keeps.
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
        """How many pods a rule counts in each domain, whichever nodes count."""
        return self.spread(rule, _EVERYWHERE)

    def on_nodes(self, rule: SpreadRule) -> Mapping[str, int]:
        """How many pods a rule counts on each node."""
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
