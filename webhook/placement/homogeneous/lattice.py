"""The vector operations for workers and spare slots: what items in a row hold together, at which cost.

Theory. After the first i items a state (e, j) says that the spare slots of state e are left, exactly, and
that the nodes used have capacity for j workers beside them; j ends at the number wanted, which stands for all
beyond it. Let P_i(e, j) be the least count cost (domains and nodes used) of leaving e and capacity for at
least j. Any optimal solution passes, after i items, some exact state at a count cost of P_i(e, j): a cheaper
way to the same e with as much capacity could replace its beginning (exchange argument). So from the end
backwards only steps with P_(i-1)(e - f, j - x) + c_i(f, x) = P_i(e, j) are part of optimal solutions, and on
them a forward pass finds the least value (leftover and headroom penalty).

With E states of spare slots and K workers the counts take O(E^2 K) vector elements for each amount offered;
for a single leader E is 2, without minority pods 1.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from webhook.placement.budget import PART, Budget, added, followed, searched
from webhook.placement.homogeneous.min_plus import Array, Choices, Offer, PaidItems, State, StateRows, never
from webhook.placement.homogeneous.minority_pods import SpareSlots

CHUNK = 1 << 17
"""Elements that are compared at once."""

SORTED = 8
"""Steps of items that are distinguished in one step of the budget: they are sorted for it."""


@dataclass(slots=True, eq=False)
class StateSteps:
    """Ways from states before an item to states after it, as flat numbers.

    states: what the item holds on any of them, and values: its least value then; which: on each, as a number
    of these.
    """

    before: Array
    after: Array
    which: Array
    states: list[State]
    values: list[int]


_Found = tuple[Array, Array, Array, Array]
"""States before and after, state of spare slots and capacity that the item holds."""


class Lattice:
    """Items in a row, and capacity for `wanted` workers."""

    def __init__(
        self, offers: Sequence[Offer], spare: SpareSlots, wanted: int, narrow: bool, budget: Budget
    ) -> None:
        """narrow: whether count costs fit a machine word. Raises OutOfSteps."""
        self.offers = offers
        self.spare = spare
        self.wanted = wanted
        self.width = wanted + 1
        self.narrow = narrow
        self.budget = budget
        counted = StateRows(offers, spare, wanted, narrow, budget)
        self.rows, self.origins = counted.rows, counted.origins
        self.unreachable = counted.unreachable
        self.steps: list[StateSteps] = []
        self.best: list[Array] = []
        self.solved: frozenset[State] = frozenset()
        self.found: dict[State, int | None] = {}
        self.paid: PaidItems | None = None

    @property
    def counts(self) -> Array:
        """Least count cost of each state of spare slots, with capacity for at least 0, 1, 2, ... workers."""
        return self.rows[-1]

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
            self.paid = PaidItems(self.offers, self.spare, self.wanted, narrow, self.budget)
            return [self.paid.value(target) for target in targets]
        self.paid = None
        wanted = np.zeros(self.rows[0].shape, dtype=np.bool_)
        for spare, free_slots in targets:
            wanted[spare, free_slots] = self.rows[-1][spare, free_slots] < self.unreachable
        self._decide(wanted)
        found = [int(self.best[-1][spare * self.width + free_slots]) for spare, free_slots in targets]
        return [None if value >= self.never else value for value in found]

    def _decide(self, wanted: Array) -> None:
        """Find the least values of the wanted states: `best`, and the steps and values that lead there."""
        self.steps = self._optimal(wanted)
        self.best = self._forward(self.steps)

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
        before, after = self.rows[number - 1].ravel(), self.rows[number].ravel()
        targets, choices = wanted.ravel().nonzero()[0], self.offers[number - 1].choices
        same = targets[before[targets] == after[targets]]
        found = [(same, same, np.zeros_like(same), np.zeros_like(same))]
        if size := len(choices):
            chunk = max(1, CHUNK // size)
            for first in range(0, len(targets), chunk):
                part = targets[first : first + chunk]
                self.budget.spend(3 * PART + searched(len(part) * size, self.narrow))
                found += self._steps_of(number, choices, part)
        ways_before, ways_after, spares, slot_counts = (
            np.concatenate(each) for each in zip(*found, strict=True)
        )
        self.budget.spend(len(slot_counts) // SORTED)
        width = int(slot_counts.max(initial=0)) + 1
        codes = spares * width + slot_counts
        ordered = np.sort(codes)  # np.unique would load numpy.ma, half as much again as numpy
        is_new = np.ones(len(ordered), dtype=np.bool_)
        np.not_equal(ordered[1:], ordered[:-1], out=is_new[1:])
        distinct = ordered[is_new]
        states = [divmod(each, width) for each in distinct.tolist()]
        values, which = self._values(number, states), distinct.searchsorted(codes)
        possible = np.array([value is not None for value in values], dtype=np.bool_)[which]
        return StateSteps(
            ways_before[possible],
            ways_after[possible],
            which[possible],
            states,
            [value or 0 for value in values],
        )

    def _values(self, number: int, states: Sequence[State]) -> list[int | None]:
        """The least value of each state that an item may take; None for what it cannot hold at its cost."""
        asked = [state for state in states if state != (0, 0)]
        self.budget.spend(len(states))
        found = self.offers[number - 1].source.values(asked) if asked else []
        known = dict(zip(asked, found, strict=True))
        return [known.get(state, 0) for state in states]

    def _steps_of(self, number: int, choices: Choices, targets: Array) -> list[_Found]:
        """The steps into these states on which the item holds something; each has a state before."""
        before, after = self.rows[number - 1].ravel(), self.rows[number].ravel()
        spares, slot_counts, counts = choices.spares, choices.slot_counts, choices.counts
        state, free_slots = np.divmod(targets, self.width)
        origin, come = self.origins[spares, state[:, None]], free_slots[:, None] - slot_counts
        row, column = np.nonzero((origin >= 0) & ((come >= 0) | (free_slots == self.wanted)[:, None]))
        begin = origin[row, column] * self.width + np.maximum(come[row, column], 0)
        equal = (before[begin] + counts[column] == after[targets[row]]).nonzero()[0]
        if not len(equal):
            return []
        row, column, begin = row[equal], column[equal], begin[equal]
        into, spare, taken = targets[row], spares[column], slot_counts[column]
        full = (free_slots[row] == self.wanted).nonzero()[0]
        found = self._beyond(before, begin[full], into[full], spare[full], taken[full])
        return [(begin, into, spare, taken), *found]

    def _beyond(self, before: Array, *steps: Array) -> list[_Found]:
        """Steps to the full capacity from states that hold more than they would need to, at the same cost.

        steps: from states that hold just enough, as a _Found.
        """
        found = []
        self.budget.spend(PART * len(steps[0]) // 2)
        for begin, *rest in zip(*(each.tolist() for each in steps), strict=True):
            end = (begin // self.width + 1) * self.width
            last = begin + int(np.searchsorted(before[begin:end], before[begin], side="right"))
            if last > begin + 1:
                more = np.arange(begin + 1, last)
                into, spare, taken = (np.full(len(more), each) for each in rest)
                found.append((more, into, spare, taken))
        return found

    def _forward(self, steps: Sequence[StateSteps]) -> list[Array]:
        """The least value of each state after each item."""
        row = np.full(self.rows[0].size, self.never, dtype=self.dtype)
        row[0] = 0
        best = [row]
        for each in steps:
            self.budget.spend(PART + added(row.size, self.is_narrow) + followed(2 * len(each.after)))
            row = np.full(row.size, self.never, dtype=self.dtype)
            if len(each.after):
                value = np.array(each.values, dtype=self.dtype)[each.which]
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
            steps = self.steps[number]
            self.budget.spend(PART // 2 + added(len(steps.after), True))
            for choice in (steps.after == at).nonzero()[0].tolist():
                which, before = int(steps.which[choice]), int(steps.before[choice])
                if self.best[number][before] + steps.values[which] == self.best[number + 1][at]:
                    taken.append(steps.states[which])
                    at = before
                    break
        taken.reverse()
        return taken
