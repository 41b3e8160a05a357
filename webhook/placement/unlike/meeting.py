"""Unlike pods that nearly fill their nodes are found a place: what some of the nodes take, the others leave.

Each quarter of the nodes is filled node after node, some hundred of the ways to do so side by side; four ways
that together hold all pods are a place (Horowitz and Sahni, 1974, "Computing Partitions with Applications to
the Knapsack Problem"; of quarters Schroeppel and Shamir, 1981, "A T = O(2^(n/2)), S = O(2^(n/4)) Algorithm
for Certain NP-Complete Problems"). Of very many ways those are kept that are likely completed by the other
nodes (see tilting): there the sums of four lie so close together that some are what is looked for.

It only finds: that there is no place it cannot know. What it finds are sets that fit each node, in all the
pods that are asked for.
"""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np

from webhook.placement import capacity
from webhook.placement.budget import Budget, OutOfSteps
from webhook.placement.prices import PART, added
from webhook.placement.question import Counts, pods_of
from webhook.placement.unlike.carded import CardedSets
from webhook.placement.unlike.filling import Filling, NodeKind
from webhook.placement.unlike.quarters import Filler, Quarter
from webhook.placement.unlike.takes import Array, Takes, affordable, takes
from webhook.placement.unlike.tilting import tilt

NODES: Final = 128
"""Beyond so many, quarters hardly meet."""

CLASSES: Final = 20
"""Likewise."""

TRIES: Final = (100, 400, 1600, 1600)
"""Ways to fill a quarter that are kept. One is tried after the other, each with other quarters: four times as
many ways are 256 times as many places, at some four to eight times the cost.
"""

LATE: Final = TRIES[1:]
"""The same once cards are searched for."""

PAIRS: Final = 40_000
"""Of the ways of two quarters that are looked up together, about."""

PART_OF_TAKES: Final = 2
"""Of the steps there are, one in so many may be for the sets that the nodes take."""

BITS: Final = 18
"""Of a key in a table of those that are looked for."""

MIXED: Final = np.uint64(0x9E3779B97F4A7C15)
"""Times a key, it has its bits in front from all over the key."""

FACTOR: Final = 7919
"""Powers of this tell ways apart modulo something, hardly ever two."""

LARGEST: Final = 2**60
"""Amounts in all that machine words hold."""


class Meeting:
    """The pods of one question and the nodes that they nearly fill."""

    def __init__(self, filling: Filling, tries: Sequence[int], budget: Budget) -> None:
        """tries: see TRIES. budget: of the steps that may be taken."""
        self.budget = budget
        self.tries = tries
        self.names = [name for _, name in filling.nodes]
        self.kinds = [kind for kind, _ in filling.nodes]
        self.needs = np.array(filling.needs, dtype=np.int64)
        self.counts = np.array(filling.counts, dtype=np.int64)
        self.classes = filling.classes
        self.carded = CardedSets(filling.classes) if filling.carded else None
        self.free = np.array([kind.free for kind in self.kinds], dtype=np.int64)
        self.spare = self.free.sum(axis=0) - self.counts @ self.needs
        # Each way has a number of its own, as long as they fit a machine word, and hardly two have the same
        # beyond: then four ways that do not hold all pods are passed over.
        base = int(self.counts.max()) + 1
        powers = [pow(base, number, 2**64) for number in range(len(self.counts))]
        self.weights = np.array(powers, dtype=np.uint64)

    def solve(self, wide: bool) -> dict[str, Counts] | None:
        """Node name -> pods of each class; None if none was found. Raises OutOfSteps.

        wide: whether to look among more sets of each node, and to search for cards for them.
        """
        known: dict[int, Takes] = {}
        every = {kind.number for kind in self.kinds}
        rows = affordable(self.budget.left // PART_OF_TAKES // len(every), len(self.counts), wide)
        for kind in self.kinds:
            if kind.number not in known:
                known[kind.number] = self._takes(kind, rows, wide)
        while all(len(sets.pods) for sets in known.values()):
            sets = [known[kind.number] for kind in self.kinds]
            chosen = self._quartered(sets)
            if chosen is None:
                return None
            refused = [
                node for node, number in chosen.items() if not self._holds(node, sets[node].pods[number])
            ]
            if not refused:
                return self._placed(chosen, sets)
            for node in refused:
                known[self.kinds[node].number] = _without(sets[node], chosen[node])
        return None

    def _quartered(self, sets: Sequence[Takes]) -> dict[int, int] | None:
        """The set that each node takes, by number; None if no way was found."""
        tilted = tilt(sets, self.counts, self.budget)
        if tilted is None:
            return None
        filler = Filler(sets, tilted, (self.counts, self.spare), self.weights, self.budget)
        order: list[int] = np.argsort([len(each.pods) for each in sets], kind="stable").tolist()
        for turn, ways in enumerate(self.tries):
            quarters = []
            for nodes in _dealt(order, turn):
                filled = filler.filled(nodes, ways)
                if filled is None:
                    break
                quarters.append(filled)
            else:
                met = self._met(quarters)
                if met is not None:
                    traced = (quarter.traced(way) for quarter, way in zip(quarters, met, strict=True))
                    return {node: number for each in traced for node, number in each.items()}
                if all(quarter.every for quarter in quarters):
                    return None
                filler.lean(quarters)
        return None

    def _holds(self, node: int, pods: Array) -> bool:
        """Whether a node holds a set by the question that its cards are chosen by in the end."""
        if self.carded is None:
            return True
        asked = pods_of(self.classes, pods.tolist())
        self.budget.spend(PART + len(asked))
        return bool(capacity.fits_together(asked, self.kinds[node].node, self.budget))

    def _takes(self, kind: NodeKind, rows: int, wide: bool) -> Takes:
        """The sets that a node of a kind may take."""
        given = (self.needs, self.counts, self.spare, len(self.kinds))
        found = takes(kind.free, kind.rooms, *given, rows, wide, self.budget)
        if self.carded is None:
            return found
        steps = self.budget.left // (2 * len(self.kinds)) if wide else 0
        return self.carded.fitting(found, kind.node, steps, self.budget)

    def _placed(self, chosen: Mapping[int, int], sets: Sequence[Takes]) -> dict[str, Counts]:
        """Node name -> pods of each class."""
        taken = {node: tuple(sets[node].pods[number].tolist()) for node, number in sorted(chosen.items())}
        return {self.names[node]: counts for node, counts in taken.items() if any(counts)}

    def _met(self, quarters: Sequence[Quarter]) -> list[int] | None:
        """A way of each quarter that hold all pods together.

        Two ways of the first half are looked up beside two of the other, but not all at once: those that hold
        so many pods modulo something with those that hold the rest.
        """
        sizes = [len(quarter.held) for quarter in quarters]
        modulus = max(1, max(sizes[0] * sizes[1], sizes[2] * sizes[3]) // PAIRS)
        factors = np.array([pow(FACTOR, n + 1, 2**31) for n in range(len(self.counts))], dtype=np.int64)
        total = int(self.counts @ factors) % modulus
        rests = [quarter.held @ factors % modulus for quarter in quarters]
        self.budget.spend(4 * PART + added(8 * sum(sizes) * len(self.counts), True))
        first, second = (_Pairs(quarters[at : at + 2], rests[at : at + 2], modulus) for at in (0, 2))
        whole = self.counts.astype(np.uint64) @ self.weights
        for rest in range(modulus):
            *ways, keys = first.of(rest)
            *others, wanted = second.of((total - rest) % modulus)
            self.budget.spend(8 * PART + added(32 * (len(keys) + len(wanted)), True))
            for one, other in _equal(keys, whole - wanted):
                four = [int(each[one]) for each in ways] + [int(each[other]) for each in others]
                held = [quarter.held[way] for quarter, way in zip(quarters, four, strict=True)]
                if (sum(held) == self.counts).all():
                    return four
        return None


class _Pairs:
    """Ways of one quarter beside those of another."""

    def __init__(self, quarters: Sequence[Quarter], rests: Sequence[Array], modulus: int) -> None:
        """rests: of each way what tells it apart, modulo the same."""
        self.keys, self.rests, self.modulus = [quarter.key for quarter in quarters], rests, modulus
        self.order = np.argsort(rests[1], kind="stable")
        self.ends = np.cumsum(np.bincount(rests[1], minlength=modulus))

    def of(self, rest: int) -> tuple[Array, Array, Array]:
        """The pairs with such a rest together: the way of each quarter, and their key."""
        wanted = (rest - self.rests[0]) % self.modulus
        end = self.ends[wanted]
        many = end - np.where(wanted, self.ends[wanted - 1], 0)
        first = np.repeat(np.arange(len(many)), many)
        second = self.order[np.arange(len(first)) + np.repeat(end - np.cumsum(many), many)]
        return first, second, self.keys[0][first] + self.keys[1][second]


def _without(sets: Takes, number: int) -> Takes:
    """All of the sets but one."""
    return Takes(np.delete(sets.pods, number, axis=0), np.delete(sets.left, number, axis=0))


def _equal(keys: Array, others: Array) -> Iterator[tuple[int, int]]:
    """Where equal ones of both stand. Most are known to have no equal by a few of their bits."""
    here, there = keys * MIXED >> (64 - BITS), others * MIXED >> (64 - BITS)
    some = _marked(here, there)
    few = _marked(there[some], here)
    if len(few):
        order = some[np.argsort(others[some], kind="stable")]
        ordered, wanted = others[order], keys[few]
        at = np.minimum(ordered.searchsorted(wanted), len(ordered) - 1)
        for hit in np.flatnonzero(ordered[at] == wanted).tolist():
            yield int(few[hit]), int(order[at[hit]])


def _marked(marks: Array, bits: Array) -> Array:
    """Which of the bits are among the marks."""
    table = np.zeros(2**BITS, dtype=np.bool_)
    table[marks] = True
    return np.flatnonzero(table[bits])


def _dealt(order: Sequence[int], turn: int) -> list[list[int]]:
    """The nodes in four quarters, from each four in a row one to each; others in each of four turns."""
    quarters: list[list[int]] = [[], [], [], []]
    for number, node in enumerate(order):
        quarters[(number + turn * (number // 4)) % 4].append(node)
    return quarters


def serves(filling: Filling) -> bool:
    """Whether the pods may fit by what they ask for in all, and are few enough kinds on few enough nodes."""
    if len(filling.counts) > CLASSES or not 2 < len(filling.nodes) <= NODES:
        return False
    free = filling.after[0]
    asked = [
        sum(count * need[number] for need, count in zip(filling.needs, filling.counts, strict=True))
        for number in range(len(free))
    ]
    return max(free, default=0) < LARGEST and all(a <= f for a, f in zip(asked, free, strict=True))


def solve(filling: Filling, budget: Budget) -> dict[str, Counts] | None:
    """Node name -> pods of each class; None if none was found in the steps there are.

    Where cards matter the sets that are found soon come first, in a part of the steps: nearly always they are
    enough.
    """
    with contextlib.suppress(OutOfSteps):
        if not filling.carded:
            return Meeting(filling, TRIES, budget).solve(wide=False)
        with contextlib.suppress(OutOfSteps):
            found = Meeting(filling, TRIES, budget.part(budget.left // 8 * 7)).solve(wide=False)
            if found is not None:
                return found
        return Meeting(filling, LATE, budget).solve(wide=True)
    return None
