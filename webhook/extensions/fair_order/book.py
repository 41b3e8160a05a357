"""What a leader knows of use: sums that go on from pass to pass, and who was served as overdue.

Times are seconds of one clock that never jumps back; what was used before comes from what was written down.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeVar

from webhook.extensions.fair_order.scores import AccountScore, Waiter, account_scores, sorted_waiters
from webhook.extensions.fair_order.use import Rates, Use, add, advanced, gained
from webhook.policy.fair import FairOrder

T = TypeVar("T")


class Ran(NamedTuple):
    """GPUs that have been in use for so many seconds until now."""

    account: str
    model: str
    gpus: int
    seconds: float


@dataclass(frozen=True)
class Book:
    """Use by account and model, as of `at`; None before the first moment.

    served_at: when an overdue gang of an account was placed last.
    """

    use: Use = field(default_factory=dict)
    rates: Rates = field(default_factory=dict)
    at: float | None = None
    served_at: Mapping[str, float] = field(default_factory=dict)

    def with_rates(self, now: float, rates: Rates, fair: FairOrder) -> "Book":
        """Until now the GPUs were in use that were seen last; from now on these."""
        use, at = self.use, now
        if self.at is not None:
            use = advanced(use, now - self.at, self.rates, fair.half_life_seconds)
            at = max(now, self.at)
        return replace(self, use=use, at=at, rates=rates)

    def begun(self, use: Use, ago: float, running: Iterable[Ran], now: float, fair: FairOrder) -> "Book":
        """With use as it was `ago` seconds before now, and what has been running since."""
        grown = advanced(use, ago, {}, fair.half_life_seconds)
        for each in running:
            seconds = min(each.seconds, max(0.0, ago))
            add(grown, each.account, each.model, gained(each.gpus, seconds, fair.half_life_seconds))
        return replace(self, use=grown, at=now)

    def scores(self, accounts: Iterable[str], fair: FairOrder) -> dict[str, AccountScore]:
        """See scores.account_scores."""
        return account_scores(self.use, self.rates, accounts, fair)

    def order(
        self,
        waiters: Collection[Waiter[T]],
        known: dict[str, AccountScore],
        now: float,
        fair: FairOrder,
        free: int,
    ) -> tuple[list[Waiter[T]], list[Waiter[T]]]:
        """See scores.sorted_waiters."""
        served = self._served_within(now, fair)
        return sorted_waiters(waiters, known, fair, free, served.__contains__)

    def with_served(self, account: str, now: float, fair: FairOrder) -> "Book":
        """An overdue gang of this account was placed: none of it is overdue for as long as that takes."""
        return replace(self, served_at={**self._served_within(now, fair), account: now})

    def _served_within(self, now: float, fair: FairOrder) -> dict[str, float]:
        wait = fair.maximum_wait_seconds
        return {account: at for account, at in self.served_at.items() if now - at < wait}
