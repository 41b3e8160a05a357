"""First-fit-decreasing over single domains: the simple placer that topogate must never be worse than.

It is written from the documented objective and shares no code with the core but the types of questions and
answers. From the finest level up, the gang is tried in single domains: its pods, the largest first, each go
to the first node with capacity, the largest part of the domain first. Of the domains of the first level at
which one holds the gang, the best answer by the objective is taken. If no block holds it, the whole cluster
is one domain. It knows the rules that realistic_gangs draws: selectors, taints, excluded nodes, a required
level, anchors, slices of the workers, and cards without links.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import cache, cached_property, partial
from itertools import islice
from typing import Final

from hack.comparing.free_nodes import FreeNode, capacity, may_run
from webhook.placement import Assignment, Gang, Member, Objective, Placed, PodClass, Snapshot
from webhook.placement.model import Slots
from webhook.placement.snapshot import NodeState

Path = tuple[str, ...]
"""A domain: its label family and its labels' values, the coarsest first; of a node its name too."""

Value = tuple[tuple[int, ...], tuple[int, ...]]
"""What compares: domains of each level, coarsest first; then the leftover of each level, finest first."""

_CANDIDATES: Final = 200
"""Domains of one level in which the gang is tried at most, the tightest first."""


class FirstFit:
    """One gang, and what each node and domain has for it."""

    def __init__(self, gang: Gang, snapshot: Snapshot) -> None:
        self.gang, self.snapshot = gang, snapshot
        level_of = snapshot.topology.level
        self.levels = len(snapshot.topology.level_names)
        self.required = None if gang.required_level is None else level_of(gang.required_level)
        self.slice_sizes = {level_of(each.level): each.size for each in gang.slices}
        self.members: dict[PodClass, list[Member]] = defaultdict(list)
        for member in sorted(gang.members, key=lambda each: each.rank or 0):
            self.members[member.pod_class].append(member)
        self.reference = max(self.members, key=lambda each: len(self.members[each]))
        anchors = [self.path(snapshot.nodes[a.node]) for a in gang.anchors if a.node in snapshot.nodes]
        self.anchored = {path[: level + 2] for path in anchors for level in range(self.levels + 1)}
        self.states = [state for state in snapshot.nodes.values() if self._is_usable(state, anchors)]
        self.slots = self._summed(lambda state: self._slots(self.reference, state))

    def path(self, state: NodeState) -> Path:
        """The node's place; a node without topology labels is a domain of its own at each level."""
        alone = ("", state.name, *[""] * (self.levels - 1))
        return (*(state.path or alone), state.name)

    def _is_usable(self, state: NodeState, anchors: Sequence[Path]) -> bool:
        """Whether what the gang asks for leaves the node to it: its required level, and excluded nodes."""
        if state.name in self.gang.excluded_nodes:
            return False
        if self.required is None:
            return True
        if state.path is None and self.required < self.levels:
            return False
        inside = {path[: self.required + 2] for path in anchors}
        return not inside or inside == {self.path(state)[: self.required + 2]}

    def _slots(self, pod: PodClass, state: NodeState) -> int:
        count = _by_amounts(pod, state)
        return len(FreeNode(state).take(pod, count)) if pod.wants_cards else count

    def _summed(self, amount: Callable[[NodeState], int]) -> Counter[Path]:
        """The sum of an amount of nodes over each domain of each level, and each node."""
        sums: Counter[Path] = Counter()
        for state in self.states:
            path, own = self.path(state), amount(state)
            for level in range(-1, self.levels + 1):
                sums[path[: level + 2] if level >= 0 else ()] += own
        return sums

    @cached_property
    def _scarcest(self) -> str:
        """The resource of which the gang asks for the largest share of what is free."""
        asked: Counter[str] = Counter()
        for pod, members in self.members.items():
            asked.update({resource: amount * len(members) for resource, amount in pod.requests})
        free: Counter[str] = Counter()
        for state in self.states:
            free.update({resource: max(0, state.free.get(resource, 0)) for resource in asked})
        return max(asked, key=lambda each: (asked[each] / max(1, free[each]), each), default="")

    @cached_property
    def _capacities(self) -> Counter[Path]:
        """What each domain has free of the scarcest resource, on nodes that any pod of the gang may use."""

        def amount(state: NodeState) -> int:
            if not any(may_run(pod, state) and capacity(pod, state.free) for pod in self.members):
                return 0
            return max(0, state.free.get(self._scarcest, 0))

        return self._summed(amount)

    @cached_property
    def _of_class(self) -> dict[PodClass, Counter[Path]]:
        """How many pods of each class alone each domain has capacity for, by amounts."""
        return {pod: self._summed(partial(_by_amounts, pod)) for pod in self.members}

    @cached_property
    def _largest_first(self) -> list[PodClass]:
        """The classes by the largest share that one pod takes of what the largest node has."""
        largest: Counter[str] = Counter()
        for state in self.states:
            for resource, amount in state.node.allocatable.items():
                largest[resource] = max(largest[resource], amount)

        def size(pod: PodClass) -> float:
            return max((amount / max(1, largest[resource]) for resource, amount in pod.requests), default=0.0)

        order = sorted(self.members, key=size, reverse=True)
        if self.slice_sizes:  # the workers, in slices, take what the others leave
            order.sort(key=lambda pod: pod == self.reference)
        return order

    def place(self) -> Assignment | None:
        """The gang's places, or None where it finds none."""
        for level in range(self.levels, (0 if self.required is None else self.required) - 1, -1):
            found = [answer for states in self._pools(level) if (answer := self._filled(states)) is not None]
            if found:
                return min(found, key=self.value)
        return self._filled(self.states) if self.required is None else None

    def value(self, answer: Assignment) -> Value:
        """What compares of any answer, worked out from the nodes that it uses."""
        paths = [self.path(self.snapshot.nodes[name]) for name in {each.node for each in answer.placed}]
        used = [{path[: level + 2] for path in paths} - self.anchored for level in range(self.levels + 1)]
        domains = tuple(map(len, used))
        return domains, tuple(sum(self.slots[domain] for domain in each) for each in reversed(used))

    def _pools(self, level: int) -> Iterator[list[NodeState]]:
        """The nodes of the gang's own domains of a level, then with those of one more; the tightest first."""
        parts: dict[Path, list[NodeState]] = defaultdict(list)
        for state in self.states:
            parts[self.path(state)[: level + 2]].append(state)
        own = [domain for domain in parts if domain in self.anchored]
        here = [state for domain in own for state in parts[domain]]
        if here and self._may_hold(own):
            yield here
        others = [each for each in parts if each not in self.anchored and self._may_hold([*own, each])]
        for domain in islice(sorted(others, key=lambda each: (self.slots[each], each)), _CANDIDATES):
            yield [*here, *parts[domain]]

    def _may_hold(self, domains: Sequence[Path]) -> bool:
        return all(
            sum(slots[domain] for domain in domains) >= len(self.members[pod])
            for pod, slots in self._of_class.items()
        )

    def _order(self, state: NodeState) -> tuple[tuple[bool, int, tuple[object, ...]], ...]:
        """Domain by domain: the gang's own ones first, then those with most of the scarcest resource."""
        path = self.path(state)
        parts = [path[: level + 2] for level in range(self.levels + 1)]
        return tuple((part not in self.anchored, -self._capacities[part], _natural(part)) for part in parts)

    def _filled(self, states: Sequence[NodeState]) -> Assignment | None:
        """The gang on these nodes, None where not all pods get a place."""
        nodes = [FreeNode(state) for state in sorted(states, key=self._order)]
        placed: list[Placed] = []
        for pod in self._largest_first:
            in_slices = bool(self.slice_sizes) and pod == self.reference
            limits = self._in_slices(nodes, pod) if in_slices else [len(self.members[pod])] * len(nodes)
            waiting = list(self.members[pod])
            for node, limit in zip(nodes, limits, strict=True):
                if not waiting:
                    break
                if may_run(pod, node.state):
                    taken = node.take(pod, min(limit, len(waiting)))
                    placed += map(_placed, waiting[: len(taken)], [node.state.name] * len(taken), taken)
                    waiting = waiting[len(taken) :]
            if waiting:
                return None
        placed.sort(key=lambda each: each.member)
        answer = Assignment(tuple(placed), Objective((), 0, (), 0), False, "")
        domains, leftover = self.value(answer)
        return Assignment(answer.placed, Objective(domains, 0, leftover, 0), False, "")

    def _in_slices(self, nodes: Sequence[FreeNode], pod: PodClass) -> list[int]:
        """How many workers each node takes so that each domain of a slice's level takes whole slices."""
        free = {node.state.name: capacity(pod, node.free) * may_run(pod, node.state) for node in nodes}
        taken: dict[str, int] = defaultdict(int)

        def whole(part: Sequence[FreeNode], level: int) -> int:
            """What the nodes of one domain hold, in whole slices."""
            if level == self.levels:
                total = free[part[0].state.name]
            else:
                total = sum(whole(below, level + 1) for below in self._parts(part, level + 1))
            return total - total % self.slice_sizes.get(level, 1)

        def share(part: Sequence[FreeNode], level: int, wanted: int) -> None:
            if level == self.levels:
                taken[part[0].state.name] = wanted
                return
            for below in self._parts(part, level + 1):
                if wanted:
                    lower = min(wanted, whole(below, level + 1))
                    share(below, level + 1, lower)
                    wanted -= lower

        share(nodes, -1, len(self.members[pod]))
        return [taken[node.state.name] for node in nodes]

    def _parts(self, nodes: Sequence[FreeNode], level: int) -> list[list[FreeNode]]:
        """Nodes by their domains of a level, in their order."""
        parts: dict[Path, list[FreeNode]] = {}
        for node in nodes:
            parts.setdefault(self.path(node.state)[: level + 2], []).append(node)
        return list(parts.values())


@cache
def _natural(path: Path) -> tuple[object, ...]:
    """A domain's place among domains that are equal else: b2 before b10."""
    return tuple(
        [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", label)] for label in path
    )


def _by_amounts(pod: PodClass, state: NodeState) -> int:
    return capacity(pod, state.free) if may_run(pod, state) else 0


def _placed(member: Member, node: str, slots: Slots) -> Placed:
    return Placed(member.name, node, slots)
