"""The vector operations for workers with minority pods: what items in a row hold together, at which cost.

Theory. After the first i items a state (e, j) says that the minority pods of state e are placed, exactly, and
that the nodes used have capacity for j workers beside them; j ends at the number wanted, which stands for all
beyond it. Let P_i(e, j) be the least count cost (domains and nodes used) of placing e and capacity for at
least j. Any optimal solution passes, after i items, some exact state at a count cost of P_i(e, j): a cheaper
way to the same e with as much capacity could replace its beginning (exchange argument). So from the end
backwards only steps with P_(i-1)(e - f, j - x) + c_i(f, x) = P_i(e, j) are part of optimal solutions, and on
them a forward pass finds the least value (leftover and headroom penalty). Values compare by the leftover of
the items' own level first, so steps that are not least in that go before the items are asked for their
values.

With E states of minority pods and K workers the counts take O(E^2 K) vector elements for each amount offered;
for a single leader E is 2, without minority pods 1.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np

from webhook.placement.budget import PART, Budget, added, followed, searched
from webhook.placement.homogeneous.min_plus import Array, Choices, Offer, PaidItems, State, StateRows, never
from webhook.placement.homogeneous.minority_pods import Stepwise

CHUNK = 1 << 17
"""Elements that are compared at once."""

TIGHT = 3
"""Rounds of questions to items in which only ways that may be least are asked about; then all are."""

SORTED = 8
"""Steps of items that are distinguished in one step of the budget: they are sorted for it."""


@dataclass(slots=True, eq=False)
class StateSteps:
    """Ways from states before an item to states after it, as flat numbers.

    states: what the item holds on any of them; which: on each, as a number of these.
    """

    before: Array
    after: Array
    which: Array
    states: list[State]

    def only(self, keep: Array) -> "StateSteps":
        """Those of them."""
        return StateSteps(self.before[keep], self.after[keep], self.which[keep], self.states)

    def each(self, known: Sequence[int], dtype: Any) -> Array:
        """For each step what is known of the state that it takes; known: of the states."""
        values: Array = np.array(known, dtype=dtype)[self.which]
        return values


_Found = tuple[Array, Array, Array, Array]
"""States before and after, state of minority pods and capacity that the item holds."""


class Lattice:
    """Items in a row, and capacity for `wanted` workers."""

    def __init__(
        self, offers: Sequence[Offer], minority: Stepwise, wanted: int, narrow: bool, budget: Budget
    ) -> None:
        """narrow: whether count costs fit a machine word. Raises OutOfSteps."""
        self.offers = offers
        self.minority = minority
        self.wanted = wanted
        self.width = wanted + 1
        self.narrow = narrow
        self.budget = budget
        counted = StateRows(offers, minority, wanted, narrow, budget)
        self.rows, self.origins = counted.rows, counted.origins
        self.unreachable = counted.unreachable
        self.steps: list[StateSteps] = []
        self.best: list[Array] = []
        self.known: list[dict[State, int]] = []
        self.solved: frozenset[State] = frozenset()
        self.found: dict[State, int | None] = {}
        self.paid: PaidItems | None = None

    @property
    def counts(self) -> Array:
        """Least count cost of each state of minority pods, beside at least 0, 1, 2, ... workers."""
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
            self.paid = PaidItems(self.offers, self.minority, self.wanted, narrow, self.budget)
            return [self.paid.value(target) for target in targets]
        self.paid = None
        wanted = np.zeros(self.rows[0].shape, dtype=np.bool_)
        for minority, free_slots in targets:
            wanted[minority, free_slots] = self.rows[-1][minority, free_slots] < self.unreachable
        self._decide(wanted)
        found = [int(self.best[-1][minority * self.width + free_slots]) for minority, free_slots in targets]
        return [None if value >= self.never else value for value in found]

    def _decide(self, wanted: Array) -> None:
        """Find the least values of the wanted states: `best`, and the steps and values that lead there."""
        self.known = [{(0, 0): 0} for _ in self.offers]
        possible = self._optimal(wanted)
        for attempt in count():
            self.steps = self._tight(possible, wanted) if attempt < TIGHT else list(possible)
            if self._ask():
                break
            for number, known in enumerate(self.known):
                each = possible[number]
                alive = [known.get(state, 0) < self.never for state in each.states]
                possible[number] = each.only(each.each(alive, np.bool_))
        values = [self._values(each, known) for each, known in zip(self.steps, self.known, strict=True)]
        self.best = self._forward(self.steps, values)

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
        ways_before, ways_after, odds, slot_counts = (
            np.concatenate(each) for each in zip(*found, strict=True)
        )
        self.budget.spend(len(slot_counts) // SORTED)
        width = int(slot_counts.max(initial=0)) + 1
        codes = odds * width + slot_counts
        ordered = np.sort(codes)  # np.unique would load numpy.ma, half as much again as numpy
        is_new = np.ones(len(ordered), dtype=np.bool_)
        np.not_equal(ordered[1:], ordered[:-1], out=is_new[1:])
        distinct = ordered[is_new]
        states = [divmod(each, width) for each in distinct.tolist()]
        return StateSteps(ways_before, ways_after, distinct.searchsorted(codes), states)

    def _steps_of(self, number: int, choices: Choices, targets: Array) -> list[_Found]:
        """The steps into these states on which the item holds something; each has a state before."""
        before, after = self.rows[number - 1].ravel(), self.rows[number].ravel()
        odds, slot_counts, counts = choices.odds, choices.slot_counts, choices.counts
        state, free_slots = np.divmod(targets, self.width)
        origin, come = self.origins[odds, state[:, None]], free_slots[:, None] - slot_counts
        row, column = np.nonzero((origin >= 0) & ((come >= 0) | (free_slots == self.wanted)[:, None]))
        begin = origin[row, column] * self.width + np.maximum(come[row, column], 0)
        equal = (before[begin] + counts[column] == after[targets[row]]).nonzero()[0]
        if not len(equal):
            return []
        row, column, begin = row[equal], column[equal], begin[equal]
        into, minority, taken = targets[row], odds[column], slot_counts[column]
        full = (free_slots[row] == self.wanted).nonzero()[0]
        found = self._beyond(before, begin[full], into[full], minority[full], taken[full])
        return [(begin, into, minority, taken), *found]

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
                into, minority, taken = (np.full(len(more), each) for each in rest)
                found.append((more, into, minority, taken))
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
        tight: list[StateSteps] = []
        wanted = wanted.ravel()
        for number in range(len(steps) - 1, -1, -1):
            each = steps[number]
            cost = best[number][each.before] + firsts[number]
            keep = (cost == best[number + 1][each.after]) & (cost < self.never) & wanted[each.after]
            tight.append(each.only(keep.astype(np.bool_)))
            wanted = np.zeros(wanted.shape, dtype=np.bool_)
            wanted[tight[-1].before] = True
        tight.reverse()
        return tight

    def _ask(self) -> bool:
        """Ask the items for the values of what steps take; whether all of that can be held."""
        possible = True
        for offer, steps, known in zip(self.offers, self.steps, self.known, strict=True):
            taken = [steps.states[number] for number in np.bincount(steps.which).nonzero()[0].tolist()]
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
            for choice in (steps.after == at).nonzero()[0].tolist():
                state = steps.states[int(steps.which[choice])]
                before = int(steps.before[choice])
                if self.best[number][before] + known[state] == self.best[number + 1][at]:
                    taken.append(state)
                    at = before
                    break
        taken.reverse()
        return taken
