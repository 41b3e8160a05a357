"""What items hold together where all domains and nodes are paid for: the least value, without the counts.

Where a state costs nothing in domains and nodes (beside anchors), each way to it that costs nothing is as
good in counts (see alike.paid). So values are added up at once: with P_i(e, j) the least value of just j and
the odd pods e on the first i items, P_i(e, j) is the least of P_(i-1)(e - f, j - x) + v_i(f, x) over what an
item holds at no cost. As in the lattice, the room wanted stands for all beyond it.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from webhook.placement.alike.paid import steps_of, with_part
from webhook.placement.budget import Budget
from webhook.placement.mixed.offers import Array, Offer, State
from webhook.placement.prices import PART


class PaidItems:
    """Items in a row, of which only what costs nothing is taken."""

    def __init__(
        self, offers: Sequence[Offer], pairs: Mapping[int, Array], empty: Array, never: int, budget: Budget
    ) -> None:
        """pairs: for each state that an item may hold the states before and after. empty: a row of values in
        which nothing is reached: states of odd pods by room. never: more than any value. Raises OutOfSteps.
        """
        self.pairs = pairs
        self.never = never
        self.wanted = empty.shape[1] - 1
        self.budget = budget
        first = empty.copy()
        first[0, 0] = 0
        self.rows = [first]
        self.held: list[dict[State, int]] = []
        """For each item the value of each state that it may hold."""
        reach = 0
        for offer in offers:
            known = self._values(offer)
            self.held.append(known)
            self.rows.append(self._merged(self.rows[-1], known, reach))
            reach = min(self.wanted, reach + max((room for _, room in known), default=0))

    def _values(self, offer: Offer) -> dict[State, int]:
        held = offer.held
        free = (held.counts == 0).nonzero()[0]
        states = list(zip(held.odds[free].tolist(), held.rooms[free].tolist(), strict=True))
        self.budget.spend(1 + len(states))
        found = offer.source.values(states) if states else []
        return {state: value for state, value in zip(states, found, strict=True) if value is not None}

    def _merged(self, row: Array, known: Mapping[State, int], reach: int) -> Array:
        """The row once the item may hold something too. reach: of the row, no room beyond is held."""
        merged = row.copy()
        for odd in {odd for odd, _ in known}:
            rooms = [room for held, room in known if held == odd]
            values = [known[odd, room] for room in rooms]
            for before, after in self.pairs[odd].T.tolist():
                self.budget.spend(steps_of(row[before, : reach + 1], rooms, reach))
                found = with_part(row[before], rooms, values, self.never)
                np.minimum(merged[after], found, out=merged[after])
        return merged

    def value(self, target: State) -> int | None:
        """The least value of a state, None for never."""
        found = int(self.rows[-1][target])
        return None if found >= self.never else found

    def taken(self, target: State) -> list[State]:
        """What each item holds in the best solution of a state; of equals the first items hold most."""
        taken: list[State] = []
        for number in range(len(self.held) - 1, -1, -1):
            known, best = self.held[number], self.rows[number + 1][target]
            self.budget.spend(PART + len(known) // 2)
            held, target = self._step(self.rows[number], known, target, best)
            taken.append(held)
        taken.reverse()
        return taken

    def _step(self, row: Array, known: Mapping[State, int], target: State, best: Any) -> tuple[State, State]:
        """What an item holds on the way to a state, and the state before it."""
        if row[target] == best:
            return (0, 0), target
        for (odd, room), value in known.items():
            before, after = self.pairs[odd]
            for one in before[after == target[0]].tolist():
                least = max(0, target[1] - room)
                most = target[1] - room if target[1] < self.wanted else self.wanted
                for at in range(least, most + 1):
                    if row[one, at] + value == best:
                        return (odd, room), (one, at)
        raise AssertionError(target)
