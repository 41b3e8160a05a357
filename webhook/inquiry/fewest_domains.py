"""A lower bound on the domains of a gang: the fewest on empty nodes that its pods may use. Pure.

Existing pods and reservations are ignored; labels, taints and the nodes' allocatable resources count.
"""

from collections.abc import Mapping
from dataclasses import replace
from itertools import accumulate
from operator import add
from typing import Final

from webhook.placement import NodeInfo, PodClass, Rules, Snapshot, Term
from webhook.placement.capacity import reason_against_node
from webhook.placement.eligibility import is_synthetic
from webhook.placement.snapshot import NodeState, key_of, node_state
from webhook.text import counted

MOST_CLASSES: Final = 8
"""At most this many classes of one gang are considered; with more, the bound is lower."""

_Classes = tuple[PodClass, ...]
_Column = tuple[int, ...]


class EmptyCluster:
    """A cluster as if no pods were there, for several gangs."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._known: dict[_Classes, list[list[_Column]]] = {}

    def fewest_domains(self, pods: Mapping[PodClass, int]) -> list[int]:
        """The fewest domains of each level, coarsest first, and of nodes; [] if all nodes are too few.

        pods: how many of each class.
        """
        counts = _counts_without_place(pods)
        classes = tuple(counts)[:MOST_CLASSES]
        if not classes:
            return []
        common = _common_resources(classes)
        needs = _needs(classes, common, counts)
        if classes not in self._known:
            self._known[classes] = _summed(self._snapshot, classes, common)
        found = [
            [_fewest([domain[column] for domain in level], need) for column, need in enumerate(needs)]
            for level in self._known[classes]
        ]
        return [] if any(0 in counts for counts in found) else list(map(max, found))

    def too_large(self, pods: Mapping[PodClass, int], level: str | None) -> str:
        """Why the nodes, or each domain of a level, cannot take so many pods; "" if they can.

        level: the name of a level of which one domain must have all of them; None for no such level.
        """
        domains, names = self.fewest_domains(pods), self._snapshot.topology.level_names
        count = sum(pods.values())
        if not domains:
            asked = counted(count, "pod")
            return f"the nodes that it may use have no capacity for {asked}, even when they are empty"
        if level in names and domains[names.index(level)] > 1:
            return f"no {level} has capacity for {counted(count, 'pod')}, even when it is empty"
        return ""


def _counts_without_place(pods: Mapping[PodClass, int]) -> Mapping[PodClass, int]:
    counts: dict[PodClass, int] = {}
    for pod_class, count in pods.items():
        free = _without_place(pod_class)
        counts[free] = counts.get(free, 0) + count
    return counts


def _needs(classes: _Classes, common: tuple[str, ...], counts: Mapping[PodClass, int]) -> list[int]:
    """The pods of each class, then the amount of each common resource."""
    amounts = [sum(counts[each] * _asked(each, name) for each in classes) for name in common]
    return [counts[each] for each in classes] + amounts


def _fewest(sums: list[int], need: int) -> int:
    """Of how many of the largest sums the need is met, 0 if not of all."""
    for count, total in enumerate(accumulate(sorted(sums, reverse=True)), 1):
        if total >= need:
            return count
    return 0


def _summed(snapshot: Snapshot, classes: _Classes, common: tuple[str, ...]) -> list[list[_Column]]:
    """Of each level the domains, with slots by class and amounts by common resource."""
    levels = len(snapshot.topology.level_names)
    domains: list[dict[tuple[str, ...], list[int]]] = [{} for _ in range(levels + 1)]
    for state in snapshot.nodes.values():
        slots = [_slots(each, state) for each in classes]
        if not any(slots):
            continue
        column = slots + [state.node.allocatable.get(name, 0) for name in common]
        for name, known in zip(_domains_of(state, levels), domains, strict=True):
            own = known.get(name)
            known[name] = column if own is None else list(map(add, own, column))
    return [list(map(tuple, known.values())) for known in domains]


def _domains_of(state: NodeState, levels: int) -> list[tuple[str, ...]]:
    """The domain of each level in which a node is, and the node."""
    key = key_of(state, levels)
    return [*(key[: level + 2] for level in range(levels)), key]


def can_run(pod_class: PodClass, node: NodeInfo) -> bool:
    """Whether such pods may run on a node whatever is free there."""
    return not reason_against_node(pod_class, node_state(node, None, ()))


def _slots(pod_class: PodClass, state: NodeState) -> int:
    """How many pods of the class an empty node takes."""
    if reason_against_node(pod_class, state):
        return 0
    has = state.node.allocatable
    return min((has.get(name, 0) // amount for name, amount in pod_class.requests if amount > 0), default=0)


def _asked(pod_class: PodClass, name: str) -> int:
    return dict(pod_class.requests).get(name, 0)


def _common_resources(classes: _Classes) -> tuple[str, ...]:
    """Resources that more than one class asks for: their pods share the nodes."""
    if len(classes) < 2:
        return ()
    names = [name for each in classes for name, amount in each.requests if amount > 0]
    return tuple(sorted({name for name in names if names.count(name) > 1 and not is_synthetic(name)}))


def _without_place(pod_class: PodClass) -> PodClass:
    """The class without the locations of its pods and without the pods that it may not be beside."""
    rules = pod_class.rules
    free = replace(rules, exclusions=(), affinity=_without_fields(rules))
    requests = tuple(pair for pair in pod_class.requests if not is_synthetic(pair[0]))
    return PodClass(requests, free, problem=pod_class.problem)


def _without_fields(rules: Rules) -> tuple[Term, ...] | None:
    """Required node affinity without node names, which pin released pods."""
    if rules.affinity is None or not any(term.fields for term in rules.affinity):
        return rules.affinity
    terms = tuple(Term(term.expressions) for term in rules.affinity if term.expressions)
    return terms or None
