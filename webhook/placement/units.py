"""Pods that go together or not at all, and which sets of such units may make room in a domain. Pure.

What may be left out is told by a bound: the room in a domain once a set has gone is at most what each of its
nodes has when all are gone, and what each other node has now.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set, Sized
from dataclasses import dataclass
from typing import Final

from webhook.placement.capacity import rooms
from webhook.placement.model import Gang, PodClass
from webhook.placement.snapshot import Snapshot

BRANCHES: Final = 200_000
"""Steps of the search for sets."""


@dataclass(frozen=True, slots=True)
class Unit:
    """Pods that may go, and that are broken if more than `spare` of them do: then all of them go.

    name: decides between equals. priority: the highest of them. pods: their uids (Usage.uid).
    """

    name: str
    priority: int
    pods: frozenset[str]
    spare: int = 0


class UnitGround:
    """The cluster with all that may go. leaving: uids that go in any case. branches: steps that are left."""

    def __init__(self, gang: Gang, snapshot: Snapshot, units: Iterable[Unit], leaving: Set[str]) -> None:
        self.gang, self.snapshot, self.leaving = gang, snapshot, leaving
        self.units = sorted(units, key=lambda unit: (len(unit.pods), unit.name))
        self.branches = BRANCHES
        wanted = pods_of(self.units) | leaving
        self.node_of = {
            use.uid: name
            for name, state in snapshot.nodes.items()
            for use in state.usages
            if use.uid in wanted
        }
        self.where = {unit: self.nodes_of(unit.pods) for unit in self.units}

    def without(self, gone: Set[str]) -> Snapshot:
        """The cluster once these pods, and those that leave, have gone."""
        gone = gone | self.leaving
        nodes = {self.node_of[uid] for uid in gone if uid in self.node_of}
        return self.snapshot.without(nodes, lambda use: use.uid in gone)

    def nodes_of(self, pods: Iterable[str]) -> set[str]:
        """Where these pods are."""
        return {self.node_of[uid] for uid in pods if uid in self.node_of}


def pods_of(units: Iterable[Unit]) -> frozenset[str]:
    """The uids of all their pods."""
    return frozenset().union(*(unit.pods for unit in units))


class EmptiedDomain:
    """Nodes of which some set of units may be emptied. fewest: units that have to go at least."""

    def __init__(
        self,
        key: tuple[str, ...],
        names: Sequence[str],
        emptied: Snapshot,
        units: Sequence[Unit],
        ground: UnitGround,
    ) -> None:
        """names: of its nodes. emptied: the cluster once all of these units have gone."""
        self.key = key
        self.spared: frozenset[str] = frozenset()
        self.gains: dict[Unit, int] = {}
        kinds = Counter(member.pod_class for member in ground.gang.members)
        self._wanted = tuple(kinds.values())
        most = _all_rooms(kinds, emptied, names)
        if any(sum(room) < wanted for room, wanted in zip(most, self._wanted, strict=True)):
            self.fewest = len(units) + 1
            return
        self.spared = _spared(
            units, {name: sum(room[n] for room in most) for n, name in enumerate(names)}, ground
        )
        least = _all_rooms(kinds, ground.without(self.spared), names)
        more = {
            name: tuple(m[n] - o[n] for m, o in zip(most, least, strict=True)) for n, name in enumerate(names)
        }
        self._base = tuple(map(sum, least))
        gained = {
            unit: _sums((more[node] for node in ground.where[unit] & more.keys()), kinds) for unit in units
        }
        self.gains = {unit: gain for unit, own in gained.items() if (gain := sum(own))}
        self._units = [unit for unit in units if unit in self.gains]
        self._by_kind = [[gained[unit][kind] for unit in self._units] for kind in range(len(kinds))]
        self.fewest = max((self._least(kind) for kind in range(len(kinds))), default=0)

    def _least(self, kind: int) -> int:
        """How many units have to go at least for the pods of one kind; more than there are if none helps."""
        missing, count = self._wanted[kind] - self._base[kind], 0
        for gain in sorted(self._by_kind[kind], reverse=True):
            if missing <= 0:
                return count
            missing, count = missing - gain, count + 1
        return count if missing <= 0 else 10**9

    def sets(self, count: int, ground: UnitGround, most_pods: int | None) -> Iterator[Sequence[Unit]]:
        """The sets of so many units that may suffice, those of few pods first; of less than most_pods."""
        units, last = self._units, len(self._units)
        best = [_best_of_rest(gains) for gains in self._by_kind]

        def extend(
            first: int, chosen: list[Unit], pods: int, gained: tuple[int, ...]
        ) -> Iterator[Sequence[Unit]]:
            left = count - len(chosen)
            if not left:
                if all(b + g >= w for b, g, w in zip(self._base, gained, self._wanted, strict=True)):
                    yield list(chosen)
                return
            for number in range(first, last - left + 1):
                if not ground.branches:
                    return
                ground.branches -= 1
                if most_pods is not None and pods + left * len(units[number].pods) >= most_pods:
                    return  # the others have as many pods or more
                reach = zip(self._base, gained, best, self._wanted, strict=True)
                if any(b + g + left * rest[number] < w for b, g, rest, w in reach):
                    return
                unit = units[number]
                more = tuple(g + own[number] for g, own in zip(gained, self._by_kind, strict=True))
                yield from extend(number + 1, [*chosen, unit], pods + len(unit.pods), more)

        yield from extend(0, [], 0, (0,) * len(self._wanted))


def _all_rooms(kinds: Mapping[PodClass, int], snapshot: Snapshot, names: Sequence[str]) -> list[list[int]]:
    """How many pods of each kind each node takes, of each as many as there are at most."""
    states = [snapshot.nodes[name] for name in names]
    found = [(rooms(kind, states), count) for kind, count in kinds.items()]
    return [
        [count if n in each.undecided else min(count, room) for n, room in enumerate(each.counts)]
        for each, count in found
    ]


def _sums(rows: Iterable[tuple[int, ...]], columns: Sized) -> tuple[int, ...]:
    table = list(rows)
    return tuple(sum(row[number] for row in table) for number in range(len(columns)))


def _spared(units: Iterable[Unit], gains: Mapping[str, int], ground: UnitGround) -> frozenset[str]:
    """Of each unit the pods that it can spare on these nodes: those where the most room comes of it."""
    found: set[str] = set()
    for unit in units:
        if unit.spare:
            here = [uid for uid in unit.pods if ground.node_of.get(uid, "") in gains]
            here.sort(key=lambda uid: (-gains[ground.node_of[uid]], ground.node_of[uid], uid))
            found.update(here[: unit.spare])
    return frozenset(found)


def _best_of_rest(gains: Sequence[int]) -> list[int]:
    """For each number the largest of the gains from there on."""
    found, most = [0] * len(gains), 0
    for number in range(len(gains) - 1, -1, -1):
        most = found[number] = max(most, gains[number])
    return found
