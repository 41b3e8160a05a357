"""What a leader knows of use: sums that go on from pass to pass, and who was served as overdue.

Times are seconds of one clock that never jumps back; what was used before comes from what was written down.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from webhook.fairness.turns import AccountStanding, Waiter, in_turn, standings
from webhook.fairness.use import Rates, Use, add, advanced, gained
from webhook.policy.fair import FairOrder

T = TypeVar("T")


class Ran(NamedTuple):
    """GPUs that have been in use for so many seconds until now."""

    account: str
    model: str
    gpus: int
    seconds: float


@dataclass
class Book:
    """Use by account and model, as of `at`; None before the first moment."""

    use: Use = field(default_factory=dict)
    rates: Rates = field(default_factory=dict)
    at: float | None = None
    _served: dict[str, float] = field(default_factory=dict)

    def saw(self, now: float, rates: Rates, fair: FairOrder) -> None:
        """Until now the GPUs were in use that were seen last; from now on these."""
        self._go_on(now, fair)
        self.rates = rates

    def adopt(self, use: Use, ago: float, running: Iterable[Ran], now: float, fair: FairOrder) -> None:
        """Begin with use as it was `ago` seconds before now, and what has been running since."""
        self.use = advanced(use, ago, {}, fair.half_life_seconds)
        for each in running:
            seconds = min(each.seconds, max(0.0, ago))
            add(self.use, each.account, each.model, gained(each.gpus, seconds, fair.half_life_seconds))
        self.at = now

    def standings(self, accounts: Iterable[str], fair: FairOrder) -> dict[str, AccountStanding]:
        """See turns.standings."""
        return standings(self.use, self.rates, accounts, fair)

    def order(
        self,
        waiters: Collection[Waiter[T]],
        known: dict[str, AccountStanding],
        now: float,
        fair: FairOrder,
        free: int,
    ) -> tuple[list[Waiter[T]], list[Waiter[T]]]:
        """See turns.in_turn."""
        wait = fair.maximum_wait_seconds
        self._served = {account: at for account, at in self._served.items() if now - at < wait}
        return in_turn(waiters, known, fair, free, self._served.__contains__)

    def served(self, account: str, now: float) -> None:
        """An overdue gang of this account was placed: none of it is overdue for as long as that takes."""
        self._served[account] = now

    def _go_on(self, now: float, fair: FairOrder) -> None:
        if self.at is not None:
            self.use = advanced(self.use, now - self.at, self.rates, fair.half_life_seconds)
        self.at = now if self.at is None else max(now, self.at)
