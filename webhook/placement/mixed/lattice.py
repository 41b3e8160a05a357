"""The vector operations for workers with odd pods: what items in a row hold together, at which cost.

Theory. As in alike.layers, with one more coordinate. After the first i items a state (e, j) says that the
odd pods of state e are placed, exactly, and that the nodes used have room for j workers beside them; j ends
at the number wanted, which stands for all beyond it. Let P_i(e, j) be the least count cost (domains and nodes
used) of placing e and room for at least j. Any optimal solution passes, after i items, some exact state at a
count cost of P_i(e, j): a cheaper way to the same e with as much room could replace its beginning (exchange
argument). So from the end backwards only steps with P_(i-1)(e - f, j - x) + c_i(f, x) = P_i(e, j) are part of
optimal solutions, and on them a forward pass finds the least value (leftover and headroom penalty). Values
compare by the leftover of the items' own level first, so steps that are not least in that go before the items
are asked for their values.

With E states of odd pods and K workers the counts take O(E^2 K) vector elements for each amount offered; for
a single leader E is 2, without odd pods 1.
"""

from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any

import numpy as np

from webhook.placement.alike.shifted import into_shifted, steps_of
from webhook.placement.budget import Budget
from webhook.placement.mixed.odd import Stepwise
from webhook.placement.mixed.offers import Array, Offer, State, StateSteps, never
from webhook.placement.mixed.paid import PaidItems
from webhook.placement.prices import PART, added, followed, searched

CHUNK = 1 << 17
"""Elements that are compared at once."""

TIGHT = 3
"""Rounds of questions to items in which only ways that may be least are asked about; then all are."""

SORTED = 8
"""Steps of items that are told apart in one step of the budget: they are sorted for it."""


_Found = tuple[Array, Array, Array, Array]
"""States before and after, state of odd pods and room that the item holds."""


class Lattice:
    """Items in a row, and room for `wanted` workers."""

    def __init__(
        self, offers: Sequence[Offer], odd: Stepwise, wanted: int, narrow: bool, budget: Budget
    ) -> None:
        """narrow: whether count costs fit a machine word. Raises OutOfSteps."""
        self.offers = offers
        self.odd = odd
        self.wanted = wanted
        self.width = wanted + 1
        self.narrow = narrow
        self.budget = budget
        self.unreachable: int = never(narrow)
        """As a count cost."""
        dtype: Any = np.int64 if narrow else object
        first = np.full((len(odd.states), self.width), self.unreachable, dtype=dtype)
        first[0, 0] = 0
        self.rows = [first]
        self.pairs = {each: np.array(odd.sums[each]).T for offer in offers for each in offer.held}
        """For each state that an item may hold those before, and those after."""
        self.parts = {each: (_rows(before), _rows(after)) for each, (before, after) in self.pairs.items()}
        """The same, as slices where they follow each other."""
        reach = 0
        for offer in offers:
            reach = min(wanted, reach + max((int(rooms[-1]) for rooms, _ in offer.held.values()), default=0))
            self.rows.append(self._merged(self.rows[-1], offer, reach))
        self.origins = {each: self._origins(each) for each in self.pairs}
        """For each state that an item may hold: of each state after it the one before, -1 for none."""
        self.steps: list[StateSteps] = []
        self.best: list[Array] = []
        self.known: list[dict[State, int]] = []
        self.solved: frozenset[State] = frozenset()
        self.found: dict[State, int | None] = {}
        self.paid: PaidItems | None = None

    @property
    def counts(self) -> Array:
        """Least count cost of each state of odd pods, with room for at least 0, 1, 2, ... workers."""
        return self.rows[-1]

    def _merged(self, row: Array, offer: Offer, reach: int) -> Array:
        """The row once the item may hold something too: each amount shifts it. reach: room for so many then
        at most.
        """
        merged = row.copy()
        end = reach + 1
        self.budget.spend(3 * PART)
        for odd, (rooms, counts) in offer.held.items():
            before, after = self.parts[odd]
            ends = [*np.flatnonzero(counts[1:] != counts[:-1]).tolist(), len(counts) - 1]
            start, found = row[before], merged[after]
            self.budget.spend(PART + steps_of(len(start), end, len(ends), self.narrow))
            held = np.minimum(rooms[ends], reach).tolist()  # what is wanted stands for all beyond
            into_shifted(found[:, :end], start[:, :end], held, counts[ends], self.unreachable)
            if not isinstance(after, slice):
                merged[after] = found
        inside = merged[:, :end]
        merged[:, :end] = np.minimum.accumulate(inside[:, ::-1], axis=1)[:, ::-1]  # room for more is enough
        return np.minimum(merged, self.unreachable)

    def _origins(self, odd: int) -> Array:
        before, after = self.pairs[odd]
        found = np.full(len(self.odd.states), -1)
        found[after] = before
        return found

    # --- values -----------------------------------------------------------------------------------

    def least(self, targets: Sequence[State], narrow: bool) -> list[int | None]:
        """What `solve` finds, or has found before."""
        missing = [target for target in targets if target not in self.found]
        if missing:
            self.found.update(zip(missing, self.solve(missing, narrow), strict=True))
        return [self.found[target] for target in targets]

    def solve(self, targets: Sequence[State], narrow: bool) -> list[int | None]:
        """The least value of just these states at their least count cost, None for never.

        narrow: whether values fit a machine word. Raises OutOfSteps.
        """
        self.dtype: Any = np.int64 if narrow else object
        self.is_narrow = narrow
        self.never = never(narrow)
        self.solved = frozenset(targets)
        if not any(int(self.rows[-1][target]) for target in targets):  # all is paid for
            empty = np.full(self.rows[0].shape, self.never, dtype=self.dtype)
            self.paid = PaidItems(self.offers, self.pairs, empty, self.never, self.budget)
            return [self.paid.value(target) for target in targets]
        self.paid = None
        wanted = np.zeros(self.rows[0].shape, dtype=np.bool_)
        for odd, room in targets:
            wanted[odd, room] = self.rows[-1][odd, room] < self.unreachable
        self.known = [{(0, 0): 0} for _ in self.offers]
        possible = self._optimal(wanted)
        for tries in count():
            self.steps = self._tight(possible, wanted) if tries < TIGHT else list(possible)
            if self._ask():
                break
            for number, known in enumerate(self.known):
                each = possible[number]
                alive = [known.get(state, 0) < self.never for state in each.states]
                possible[number] = each.only(each.each(alive, np.bool_))
        values = [self._values(each, known) for each, known in zip(self.steps, self.known, strict=True)]
        self.best = self._forward(self.steps, values)
        found = [int(self.best[-1][odd * self.width + room]) for odd, room in targets]
        return [None if value >= self.never else value for value in found]

    def _optimal(self, wanted: Array) -> list[StateSteps]:
        """For each item the steps of least count cost that lead to a wanted state."""
        steps: list[StateSteps] = []
        for number in range(len(self.offers), 0, -1):
            found = self._steps_into(wanted, number)
            steps.append(found)
            wanted = np.zeros(wanted.shape, dtype=np.bool_)
            wanted.ravel()[found.before] = True
        steps.reverse()
        return steps

    def _steps_into(self, wanted: Array, number: int) -> StateSteps:
        before, after = self.rows[number - 1], self.rows[number]
        same = np.flatnonzero(wanted & (before == after))
        found = [(same, same, np.zeros_like(same), np.zeros_like(same))]
        targets = np.flatnonzero(wanted)
        ends = targets // self.width
        for odd, (rooms, _) in self.offers[number - 1].held.items():
            every = targets[self.origins[odd][ends] >= 0]
            chunk = max(1, CHUNK // len(rooms))
            for first in range(0, len(every), chunk):
                part = every[first : first + chunk]
                self.budget.spend(2 * PART + searched(len(part) * len(rooms), self.narrow))
                found += self._steps_of(number, odd, part)
        ways_before, ways_after, odds, rooms = (np.concatenate(each) for each in zip(*found, strict=True))
        self.budget.spend(len(rooms) // SORTED)
        width = int(rooms.max(initial=0)) + 1
        codes = odds * width + rooms
        ordered = np.sort(codes)  # np.unique would load numpy.ma, half as much again as numpy
        held = ordered[np.flatnonzero(np.diff(ordered, prepend=-1))]
        states = [divmod(each, width) for each in held.tolist()]
        return StateSteps(ways_before, ways_after, held.searchsorted(codes), states)

    def _steps_of(self, number: int, odd: int, targets: Array) -> list[_Found]:
        """The steps into these states on which the item holds such odd pods; each has a state before."""
        before, after = self.rows[number - 1].ravel(), self.rows[number].ravel()
        rooms, counts = self.offers[number - 1].held[odd]
        state, room = np.divmod(targets, self.width)
        start = self.origins[odd][state] * self.width
        come = room[:, None] - rooms
        equal = before[start[:, None] + np.maximum(come, 0)] + counts == after[targets][:, None]
        row, column = np.nonzero(equal & ((come >= 0) | (room == self.wanted)[:, None]))
        if not len(row):
            return []
        into, held = targets[row], rooms[column]
        begin = start[row] + np.maximum(come[row, column], 0)
        found = [(begin, into, np.full(len(row), odd), held)]
        full = room[row] == self.wanted
        if full.any():
            found += self._beyond(before, odd, begin[full], into[full], held[full])
        return found

    def _beyond(self, before: Array, odd: int, begins: Array, intos: Array, rooms: Array) -> list[_Found]:
        """Steps to the full room from states that hold more than they would need to, at the same cost."""
        found = []
        self.budget.spend(PART * len(begins) // 2)
        for begin, into, room in zip(begins.tolist(), intos.tolist(), rooms.tolist(), strict=True):
            end = (begin // self.width + 1) * self.width
            last = begin + int(np.searchsorted(before[begin:end], before[begin], side="right"))
            if last > begin + 1:
                more = np.arange(begin + 1, last)
                full, odds, held = (np.full(len(more), each) for each in (into, odd, room))
                found.append((more, full, odds, held))
        return found

    def _values(self, steps: StateSteps, known: Mapping[State, int]) -> Array:
        return steps.each([known.get(state, self.never) for state in steps.states], self.dtype)

    def _tight(self, steps: Sequence[StateSteps], wanted: Array) -> list[StateSteps]:
        """The steps to the wanted states on which what compares first is least."""
        firsts = [
            each.each(offer.source.firsts(each.states), self.dtype)
            for offer, each in zip(self.offers, steps, strict=True)
        ]
        for each in steps:
            self.budget.spend(PART + len(each.states) // 2 + followed(2 * len(each.after)))
        best = self._forward(steps, firsts)
        kept: list[StateSteps] = []
        wanted = wanted.ravel()
        for number in range(len(steps) - 1, -1, -1):
            each = steps[number]
            cost = best[number][each.before] + firsts[number]
            keep = (cost == best[number + 1][each.after]) & (cost < self.never) & wanted[each.after]
            kept.append(each.only(keep.astype(np.bool_)))
            wanted = np.zeros(wanted.shape, dtype=np.bool_)
            wanted[kept[-1].before] = True
        kept.reverse()
        return kept

    def _ask(self) -> bool:
        """Ask the items for the values of what steps take; whether all of that can be held."""
        possible = True
        for offer, steps, known in zip(self.offers, self.steps, self.known, strict=True):
            taken = [steps.states[number] for number in np.flatnonzero(np.bincount(steps.which)).tolist()]
            missing = [state for state in taken if state not in known]
            self.budget.spend(len(taken) + len(steps.which) // SORTED)
            for state, value in zip(missing, offer.source.values(missing) if missing else (), strict=True):
                known[state] = self.never if value is None else value
                possible = possible and value is not None
        return possible

    def _forward(self, steps: Sequence[StateSteps], values: Sequence[Array]) -> list[Array]:
        """The least value of each state after each item; values: of the steps."""
        row = np.full(self.rows[0].size, self.never, dtype=self.dtype)
        row[0] = 0
        best = [row]
        for each, value in zip(steps, values, strict=True):
            self.budget.spend(PART + added(row.size, self.is_narrow) + followed(2 * len(each.after)))
            row = np.full(row.size, self.never, dtype=self.dtype)
            if len(each.after):
                np.minimum.at(row, each.after, np.minimum(best[-1][each.before] + value, self.never))
            best.append(row)
        return best

    def best_for(self, target: State, narrow: bool) -> list[State]:
        """What each item holds in the best solution of a state."""
        if target not in self.solved:
            self.solve([target], narrow)
        return self._taken(target) if self.paid is None else self.paid.taken(target)

    def _taken(self, target: State) -> list[State]:
        """What each item holds in the best solution of a state; of equals the first items hold most."""
        at = target[0] * self.width + target[1]
        taken: list[State] = []
        for number in range(len(self.offers) - 1, -1, -1):
            steps, known = self.steps[number], self.known[number]
            self.budget.spend(PART // 2 + added(len(steps.after), True))
            for choice in np.flatnonzero(steps.after == at).tolist():
                held = steps.states[int(steps.which[choice])]
                before = int(steps.before[choice])
                if self.best[number][before] + known[held] == self.best[number + 1][at]:
                    taken.append(held)
                    at = before
                    break
        taken.reverse()
        return taken


def _rows(numbers: Array) -> slice | Array:
    """These rows, as a slice where they follow each other."""
    first, last = int(numbers[0]), int(numbers[-1])
    return slice(first, last + 1) if last - first + 1 == len(numbers) else numbers
