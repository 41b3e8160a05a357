"""A simulated cluster whose waiting gangs are ordered as the sweeper orders them; hours pass in no time.

It has one pool of GPUs. Gangs are placed in order wherever they fit; one that does not and has waited long
keeps GPUs from those behind it, up to half of all, as the sweeper's reservations do. Times are seconds.
"""

import heapq
import itertools
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from webhook.extensions.fair_order.account_use import Book
from webhook.extensions.fair_order.scores import Waiter, account_scores, sorted_waiters
from webhook.policy.fair import FairOrder

HOUR = 3600.0
DAY = 24 * HOUR
MODEL = "H100"
RESERVE_SECONDS = 300.0


@dataclass(frozen=True)
class Gang:
    """account: of its namespace. seconds: how long it runs."""

    name: str
    account: str
    gpus: int
    seconds: float
    created: float


@dataclass
class Cluster:
    """GPUs, who has them, and who waits. started: by gang's name, when it got its GPUs."""

    gpus: int
    fair: FairOrder
    book: Book = field(default_factory=Book)
    now: float = 0.0
    waiting: list[Gang] = field(default_factory=list)
    running: list[tuple[float, str, Gang]] = field(default_factory=list)
    started: dict[str, float] = field(default_factory=dict)
    used: dict[str, float] = field(default_factory=dict)
    tried: set[str] = field(default_factory=set)
    idle: float = 0.0

    @property
    def free(self) -> int:
        return self.gpus - sum(gang.gpus for _, _, gang in self.running)

    def advance_to(self, now: float) -> None:
        """Let the running gangs use their GPUs until then."""
        for _, _, gang in self.running:
            spent = self.used.get(gang.account, 0.0) + gang.gpus * (now - self.now)
            self.used[gang.account] = spent
        if self.waiting:
            self.idle += self.free * (now - self.now)
        self.now = now

    def end_those_that_are_over(self) -> None:
        while self.running and self.running[0][0] <= self.now:
            heapq.heappop(self.running)

    def one_pass(self) -> None:
        """Order those that wait, and place each that fits."""
        self._look()
        waiters = [
            Waiter(
                gang, 0, gang.account, f"{gang.created:020.3f}", gang.name, gang.gpus, gang.gpus,
                gang.name in self.tried, self.now - gang.created,
            )
            for gang in self.waiting
        ]  # fmt: skip
        accounts = {gang.account for gang in self.waiting}
        known = account_scores(self.book.use, self.book.rates, accounts, self.fair)
        served = self.book.served_lately(self.now, self.fair)
        ordered, late = sorted_waiters(waiters, known, self.fair, self.free, served)
        free, in_use = self.free, 0
        self.tried = set()
        for waiter in ordered:
            gang = waiter.gang
            if gang.gpus <= free - in_use:
                free -= gang.gpus
                heapq.heappush(self.running, (self.now + gang.seconds, gang.name, gang))
                self.started[gang.name] = self.now
                if waiter in late:
                    self.book = self.book.with_served(gang.account, self.now, self.fair)
            else:
                self.tried.add(gang.name)
                if self.now - gang.created >= RESERVE_SECONDS:
                    in_use = min(in_use + gang.gpus, self.gpus // 2)
        self.waiting = [gang for gang in self.waiting if gang.name not in self.started]
        self._look()

    def _look(self) -> None:
        rates: dict[str, dict[str, int]] = {}
        for _, _, gang in self.running:
            models = rates.setdefault(gang.account, {})
            models[MODEL] = models.get(MODEL, 0) + gang.gpus
        self.book = self.book.with_rates(self.now, rates, self.fair)

    def run(self, until: float, arrivals: "Arrivals") -> None:
        """Pass after pass, at each end of a gang and four times an hour. arrivals: new gangs by then."""
        while self.now < until:
            self.waiting += arrivals(self)
            self.one_pass()
            ends = self.running[0][0] if self.running else until
            self.advance_to(min(until, max(self.now + 1.0, min(ends, self.now + HOUR / 4))))
            self.end_those_that_are_over()

    def share(self, account: str, since: dict[str, float] | None = None) -> float:
        """Of the GPU time that was used, all of it or since then."""
        before = since or {}
        spent = {each: used - before.get(each, 0.0) for each, used in self.used.items()}
        return spent.get(account, 0.0) / sum(spent.values())


Arrivals = Callable[[Cluster], list[Gang]]
"""New gangs by the time of the cluster."""


def backlog(random: Random, accounts: dict[str, int], longest: float = 2 * HOUR) -> Arrivals:
    """Each account always has so many gangs that wait, of random sizes and lengths."""
    names = itertools.count()

    def arrive(cluster: Cluster) -> list[Gang]:
        there = Counter(gang.account for gang in cluster.waiting)
        return [
            Gang(
                f"{account}-{next(names)}",
                account,
                random.choice((1, 1, 2, 4, 8, 8, 16, 32)),
                random.uniform(60, longest),
                cluster.now,
            )
            for account, depth in accounts.items()
            for _ in range(depth - there[account])
        ]

    return arrive
