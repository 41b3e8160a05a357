"""The domain with the most capacity for a gang that cannot be placed, and how messages name it.

Messages name the pods of a class by their role if no other class has it, else by one of the pods.
"""

import re
from collections import defaultdict
from functools import partial
from typing import Final

from webhook.placement import heterogeneous
from webhook.placement.budget import Budget
from webhook.placement.model import Gang, Member, Nearest, PodClass
from webhook.placement.question import Counts, Question
from webhook.placement.snapshot import Snapshot
from webhook.placement.spread import slots_under_cap
from webhook.placement.vertex import Vertex, domains_at

_SliceCapacity = tuple[int, tuple[int, ...]]
"""Free slots for workers in complete slices, and the number of slices of each layer that fit."""


def layers(question: Question, snapshot: Snapshot, root: Vertex) -> str:
    """A clause on the slices of each layer that fit, "" without slices."""
    if not question.slices:
        return ""
    names = snapshot.topology.names(key[0] for key in snapshot.blocks)
    domains = domains_at(root, question.required)
    counts = max((_slices_in(domain, question.slices)[1] for domain in domains), default=())
    sizes = ", ".join(f"{size} per {names[level]}" for level, size in question.slices)
    parts = [
        f"{min(there, question.counts[0] // size)} of {question.counts[0] // size} {names[level]} slices"
        for (level, size), there in zip(question.slices, counts, strict=False)
    ]
    return f" in slices of {sizes}" + (f"; capacity for {', '.join(parts)}" if any(counts) else "")


def slots_in_slices(vertex: Vertex, slices: tuple[tuple[int, int], ...]) -> int:
    """Free slots of a domain for workers in complete slices."""
    return _slices_in(vertex, slices)[0]


def _slices_in(vertex: Vertex, slices: tuple[tuple[int, int], ...]) -> _SliceCapacity:
    """The slice capacity of a domain."""
    in_slices = partial(_in_slices, slices)
    none = (0,) * len(slices)
    if vertex.state is not None:
        return in_slices(vertex.top, vertex.bottom, (vertex.free_slots, none))
    if vertex.leaves is not None:
        top, lowest = vertex.leaves.top, vertex.leaves.costs.depth - 1
        inside = [in_slices(top, lowest, (free_slots, none)) for free_slots in vertex.leaves.slot_counts]
    else:
        inside = [_slices_in(part, slices) for part in vertex.parts]
    capacity = tuple(map(sum, zip(*(capacity for _, capacity in inside), strict=True))) or none
    return in_slices(vertex.top, vertex.bottom, (sum(free_slots for free_slots, _ in inside), capacity))


def _in_slices(
    slices: tuple[tuple[int, int], ...], top: int, bottom: int, capacity: _SliceCapacity
) -> _SliceCapacity:
    """The slice capacity of a domain of these levels, from the capacity inside it.

    Only complete slices of its own levels count.
    """
    free_slots, counts = capacity[0], list(capacity[1])
    for layer in reversed(range(len(slices))):
        level, size = slices[layer]
        if top <= level <= bottom:
            counts[layer] = free_slots // size
            free_slots = counts[layer] * size
    return free_slots, tuple(counts)


PART: Final = 8
"""The search for the nearest domain gets one part in so many of the steps."""

MOST_NAMED: Final = 3
"""The most classes for which a message gives the capacity of each."""


def nearest_domain(
    gang: Gang, question: Question, snapshot: Snapshot, root: Vertex, budget: Budget
) -> Nearest | None:
    """The domain of the required level with the most capacity for members together, or the whole cluster.

    None if no domain has capacity, or if the search takes too long.
    """
    found = _largest_domain(question, root, len(snapshot.nodes), budget)
    if found is None:
        return None
    vertex, counts = found
    fits = f"has capacity for {_pods_per_class(gang, question, counts)}"
    if question.required is None:
        return Nearest("", (), sum(counts), f"the cluster {fits}")
    level = snapshot.topology.names(vertex.key[:1])[question.required]
    domain = vertex.key[1 : question.required + 2]
    return Nearest(level, domain, sum(counts), f"{level} {'/'.join(domain)} {fits}")


def _largest_domain(
    question: Question, root: Vertex, nodes: int, budget: Budget
) -> tuple[Vertex, Counts] | None:
    if len(question.counts) > 1:
        part = budget.part(max(budget.left, question.options.bound) // PART)
        return heterogeneous.nearest(question, root, nodes, part)
    slot_counts = ((_slots_alone(question, each), each) for each in domains_at(root, question.required))
    free_slots, vertex = max(slot_counts, key=lambda pair: pair[0], default=(0, None))
    return None if vertex is None else (vertex, (min(free_slots, question.counts[0]),))


def _slots_alone(question: Question, vertex: Vertex) -> int:
    """Free slots of a domain for identical pods, in complete slices and under the spread's cap."""
    if question.spread is not None:
        return slots_under_cap(question, vertex)
    return slots_in_slices(vertex, question.slices) if question.slices else vertex.free_slots


def _pods_per_class(gang: Gang, question: Question, counts: Counts) -> str:
    """How many pods of each class fit if there are few classes, else how many pods fit in all."""
    if not 1 < len(counts) <= MOST_NAMED or not sum(counts):
        return f"{sum(counts)} of {len(gang.members)}"
    names = ClassNames(gang, question)
    slot_counts = enumerate(zip(counts, question.counts, strict=True))
    *before, last = [
        f"{free_slots} of {names.pods(number, count)}" for number, (free_slots, count) in slot_counts
    ]
    return f"{', '.join(before)} and {last}"


def level_word(level: str, snapshot: Snapshot) -> str:
    """The word for a level in messages: the one that the nodes' label family uses."""
    names = snapshot.topology.level_names
    if level not in names:
        return level
    return snapshot.topology.names(key[0] for key in snapshot.blocks)[names.index(level)]


_WHO: Final = re.compile(r".*[a-z](?:er|or)", re.IGNORECASE)
"""Roles that are nouns for one pod (worker, server, executor), and so have a plural."""

MOST_ROLES: Final = 3
"""The most roles of one class that a message names."""


class ClassNames:
    """The names of a gang's classes. Beside slices, leaders always are a class of their own."""

    def __init__(self, gang: Gang, question: Question) -> None:
        numbers: dict[PodClass, list[int]] = defaultdict(list)
        for number, pod_class in enumerate(question.classes):
            numbers[pod_class].append(number)
        known: dict[int, list[int]] = {}  # by identity: classes hash slowly
        self._question = question
        self._first: dict[int, Member] = {}
        self._roles: dict[int, dict[str, None]] = defaultdict(dict)
        for member in gang.members:
            if (own := known.get(id(member.pod_class))) is None:
                own = known[id(member.pod_class)] = numbers[member.pod_class]
            for number in self._of_member(member, own):
                self._first.setdefault(number, member)
                self._roles[number][member.role] = None
        classes: dict[str, set[int]] = defaultdict(set)
        for number, roles in self._roles.items():
            for role in roles:
                classes[role].add(number)
        self._shared = {"", *(role for role, of in classes.items() if len(of) > 1)}

    def _of_member(self, member: Member, numbers: list[int]) -> list[int]:
        """Of the classes with the member's requests, those to which it can belong."""
        if not self._question.unbound_slices or len(numbers) == 1:
            return numbers
        leads = member.rank is not None and member.rank < 0
        return [number for number in numbers if self._is_of_leaders(number) == leads]

    def _is_of_leaders(self, number: int) -> bool:
        """Of classes with equal requests: whether no slice and no placed pod of a slice binds the class."""
        question = self._question
        return (
            question.unbound_slices[number] >= len(question.slices) and question.confinement(number) is None
        )

    def pods(self, number: int, count: int) -> str:
        """A number of pods of a class: "96 workers", "1 pod of decode", "2 pods like p-0"."""
        return f"{count} {self.noun(number, count)}"

    def noun(self, number: int, count: int) -> str:
        """The same without the number."""
        roles = list(self._roles[number])
        pods = "pod" if count == 1 else "pods"
        if len(roles) > MOST_ROLES or self._shared.intersection(roles):
            return f"{pods} like {self._first[number].shown}"
        if len(roles) > 1:
            return f"{pods} of {', '.join(roles[:-1])} and {roles[-1]}"
        role = roles[0]
        one = role.removesuffix("s")
        if not _WHO.fullmatch(one):
            return f"{pods} of {role}"
        return one if count == 1 else f"{one}s"
