"""Workers, in slices or not, and odd pods onto given nodes: whether all fit, and where each goes.

What nodes cost does not matter here. So of each domain it is enough to know how many workers it holds at most
beside each state of odd pods, in whole slices: a knapsack of maxima, from the nodes up.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Protocol

from webhook.placement.mixed.odd import Odd
from webhook.placement.question import Counts, Question
from webhook.placement.snapshot import NodeState, key_of

Profile = tuple[int, ...]
"""How many workers there is room for beside each state of odd pods; -1 where these do not fit."""


def shared(
    question: Question, odd: Odd, nodes: Sequence[tuple[NodeState, Profile]]
) -> dict[str, Counts] | None:
    """All pods on these nodes, or None. Raises OutOfSteps.

    nodes: in topology order; of equals the first ones are filled first.
    """
    keyed = [(key_of(state, question.levels), _Node(state, most)) for state, most in nodes]
    rows: dict[tuple[Profile, ...], list[list[int]]] = {}

    def domain(members: Sequence[tuple[tuple[str, ...], _Node]], number: int, size: int) -> _SliceDomain:
        parts: list[_Part] = [node for _, node in members]
        if number < len(question.slices):
            level, finer = question.slices[number]
            groups = groupby(members, key=lambda each: each[0][: level + 2])
            parts = [domain(list(group), number + 1, finer) for _, group in groups]
        return _SliceDomain(parts, size, odd, rows)

    whole, everybody = domain(keyed, 0, 1), len(odd.states) - 1
    if whole.most[everybody] < question.counts[0]:
        return None
    found: dict[str, tuple[int, int]] = {}
    whole.give(everybody, question.counts[0], found)
    return {name: (pods, *odd.states[state]) for name, (pods, state) in found.items()}


class _Part(Protocol):
    """A node, or a domain that holds slices."""

    most: Profile

    def give(self, state: int, workers: int, found: dict[str, tuple[int, int]]) -> None:
        """Note where so many workers and odd pods of a state go: node name -> workers and state."""


@dataclass(slots=True)
class _Node:
    state: NodeState
    most: Profile

    def give(self, state: int, workers: int, found: dict[str, tuple[int, int]]) -> None:
        if workers or state:
            found[self.state.name] = workers, state


class _SliceDomain:
    """Nodes or domains that hold slices, in which workers stand by `size`."""

    def __init__(
        self, parts: Sequence[_Part], size: int, odd: Odd, known: dict[tuple[Profile, ...], list[list[int]]]
    ) -> None:
        """known: rows of domains whose parts are the same."""
        self.parts = parts
        self.odd = odd
        seen: dict[Profile, int] = {}
        self.carriers: list[int] = []
        """Numbers of the parts that may take odd pods: of equals no more than there are odd pods."""
        for number, part in enumerate(parts):
            seen[part.most] = seen.get(part.most, 0) + 1
            if seen[part.most] <= odd.most:
                self.carriers.append(number)
        key = tuple(parts[number].most for number in self.carriers)
        if key not in known:
            known[key] = _rows(key, odd)
        self.rows = known[key]
        beside = sum(part.most[0] for part in parts) - sum(most[0] for most in key)
        self.most = tuple(-1 if held < 0 else (held + beside) // size * size for held in self.rows[-1])

    def give(self, state: int, workers: int, found: dict[str, tuple[int, int]]) -> None:
        """See _Part."""
        carried = [0] * len(self.parts)
        for position in range(len(self.carriers) - 1, -1, -1):
            number = self.carriers[position]
            row, most = self.rows[position], self.parts[number].most
            held = self.rows[position + 1][state]
            carried[number], state = next(
                (more, before)
                for more, before in self.odd.into[state]
                if row[before] >= 0 and most[more] >= 0 and row[before] + most[more] == held
            )
        for part, state_of_part in zip(self.parts, carried, strict=True):
            given = min(workers, part.most[state_of_part])
            part.give(state_of_part, given, found)
            workers -= given


def _rows(parts: Sequence[Profile], odd: Odd) -> list[list[int]]:
    """The most workers beside each state of odd pods on the first 0, 1, 2, ... parts."""
    rows = [[0, *[-1] * (len(odd.states) - 1)]]
    for most in parts:
        odd.budget.spend(1 + sum(map(len, odd.sums)) // 4)
        before, row = rows[-1], [-1] * len(odd.states)
        for more, room in enumerate(most):
            if room >= 0:
                for one, other in odd.sums[more]:
                    if before[one] >= 0 and before[one] + room > row[other]:
                        row[other] = before[one] + room
        rows.append(row)
    return rows
