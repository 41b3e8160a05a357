"""The dynamic program over workers and spare slots, as vector operations: the least cost of several items.

Theory. After the first i items, a state (e, j) means that exactly the spare slots of state e are left and
that the nodes used also have capacity for j workers. j ends at the demand, which stands for all larger
values. Let P_i(e, j) be the least count cost (domains and nodes used) that leaves e and capacity for at least
j. After i items, any optimal solution is in an exact state with count cost P_i(e, j): a cheaper prefix with
the same e and as much capacity could replace its own (exchange argument). So backwards from the end, only
transitions with P_(i-1)(e - f, j - x) + c_i(f, x) = P_i(e, j) are part of optimal solutions. A forward pass
over these finds the least value (leftover and headroom penalty).

With E states of spare slots and K workers, the counts take O(E^2 K) vector elements per offered amount. E is
2 for a single leader, and 1 without minority pods.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from webhook.placement.budget import PART, Budget, added, followed, searched
from webhook.placement.homogeneous.min_plus import Array, Choices, Offer, PaidItems, State, StateRows, never
from webhook.placement.homogeneous.minority_pods import SpareSlots

CHUNK = 1 << 17
"""Elements that are compared in one vector operation."""

SORTED = 8
"""Transitions that are deduplicated, by sorting, in one step of the budget."""


@dataclass(slots=True, eq=False)
class StateSteps:
    """Transitions from states before an item to states after it, as flat numbers.

    states: the distinct states that the item takes on them. values: its least value for each. which: for each
    transition the number of its item state.
    """

    before: Array
    after: Array
    which: Array
    states: list[State]
    values: list[int]


_Found = tuple[Array, Array, Array, Array]
"""States before and after, and the spare slots and capacity that the item takes."""


class Lattice:
    """The dynamic program over a sequence of items, for `wanted` workers."""

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
        self.found: dict[State, int | None] = {}
        self.paid: PaidItems | None = None

    @property
    def counts(self) -> Array:
        """Least count cost of each state of spare slots, with capacity for at least 0, 1, 2, ... workers."""
        return self.rows[-1]

    # --- values -----------------------------------------------------------------------------------

    def least(self, targets: Sequence[State], narrow: bool) -> list[int | None]:
        """The result of `solve`, remembered from the first call. Later calls take some of its targets."""
        if not self.found:
            self.found = dict(zip(targets, self.solve(targets, narrow), strict=True))
        return [self.found[target] for target in targets]

    def solve(self, targets: Sequence[State], narrow: bool) -> list[int | None]:
        """The least value of exactly these states at their least count cost, None if unreachable.

        narrow: whether values fit a machine word. Raises OutOfSteps.
        """
        self.dtype: Any = np.int64 if narrow else object
        self.is_narrow = narrow
        self.never = never(narrow)
        if not any(int(self.rows[-1][target]) for target in targets):  # everything is paid for
            self.paid = PaidItems(self.offers, self.spare, self.wanted, narrow, self.budget)
            return [self.paid.value(target) for target in targets]
        wanted = np.zeros(self.rows[0].shape, dtype=np.bool_)
        for spare, free_slots in targets:
            wanted[spare, free_slots] = self.rows[-1][spare, free_slots] < self.unreachable
        self._decide(wanted)
        found = [int(self.best[-1][spare * self.width + free_slots]) for spare, free_slots in targets]
        return [None if value >= self.never else value for value in found]

    def _decide(self, wanted: Array) -> None:
        """Find the least values of the wanted states: `best`, and the transitions and values on the way."""
        self.steps = self._optimal(wanted)
        self.best = self._forward(self.steps)

    def _optimal(self, wanted: Array) -> list[StateSteps]:
        """For each item the transitions of least count cost that lead to a wanted state."""
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
        ordered = np.sort(codes)  # np.unique would import numpy.ma, half the size of numpy
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
        """The least value of each item state; None if the item cannot take it at its count cost."""
        asked = [state for state in states if state != (0, 0)]
        self.budget.spend(len(states))
        found = self.offers[number - 1].source.values(asked) if asked else []
        known = dict(zip(asked, found, strict=True))
        return [known.get(state, 0) for state in states]

    def _steps_of(self, number: int, choices: Choices, targets: Array) -> list[_Found]:
        """The transitions into these states on which the item takes something."""
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
        """Transitions to the full capacity from states with more capacity than needed, at the same cost.

        steps: the transitions from states with exactly enough, as a _Found.
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

    def best_for(self, target: State) -> list[State]:
        """The state that each item takes in the best solution for a solved target."""
        return self._taken(target) if self.paid is None else self.paid.taken(target)

    def _taken(self, target: State) -> list[State]:
        """The state that each item takes in the best solution for a target; ties go to the first items."""
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


class OneItem:
    """The lattice of one item that costs something, without spare slots.

    It needs no search, since there is one choice for each capacity.
    """

    def __init__(self, offer: Offer, wanted: int, narrow: bool, budget: Budget) -> None:
        """narrow: whether count costs fit a machine word. Raises OutOfSteps."""
        self.source = offer.source
        self.wanted = wanted
        self.slot_counts = offer.choices.slot_counts
        budget.spend(2 * PART + added(wanted, narrow))
        smallest = self.slot_counts.searchsorted(np.arange(wanted + 1))
        counts = np.append(offer.choices.counts, never(narrow))[smallest]
        counts[0] = 0
        self.counts: Array = counts[None, :]
        """See Lattice."""

    def least(self, targets: Sequence[State], _: bool) -> list[int | None]:
        """See Lattice."""
        states = [self._state_for(target) for target in targets]
        found = iter(self.source.values([state for state in states if state is not None]))
        return [None if state is None else next(found) for state in states]

    def best_for(self, target: State) -> list[State]:
        """See Lattice."""
        state = self._state_for(target)
        assert state is not None
        return [state]

    def _state_for(self, target: State) -> State | None:
        """The choice of exactly this capacity, or of at least the demand; None if there is none."""
        _, capacity = target
        number = int(self.slot_counts.searchsorted(capacity))
        if number == len(self.slot_counts):
            return None
        found = int(self.slot_counts[number])
        return (0, found) if found == capacity or capacity == self.wanted else None
