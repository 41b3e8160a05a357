"""The order of waiting gangs: priority, then overdue ones by age, then accounts in turn, each by age.

An account's standing is its decayed use, and what it has now times a short while, divided by its weight. The
account that stands lowest gives its oldest gang and stands higher by what that asks for, and so on. What it
has now counts at once, as use alone would tell too late: gangs of hours go on running when their account has
long had its share.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import Final, Generic, TypeVar

from webhook.extensions.fair_order.use import Rates, Use
from webhook.policy.fair import FairOrder

PROJECTED: Final = 1 / 8
"""Of the half-life: for so long what an account has now is counted as used already."""

FREE_ATTEMPTS: Final = 8
"""Gangs of an account that can find no room now, and of which none moves its turn back."""

T = TypeVar("T")


@dataclass(frozen=True)
class Waiter(Generic[T]):
    """A gang that waits. tier: its priority. created: what its age is told by (sorts as text).

    cost: GPUs that it asks for, each times its model's cost. found_no_place: when it was last asked about.
    waited: seconds since its oldest waiting pod was made. gpus: without costs.
    """

    gang: T
    tier: int
    account: str
    created: str
    name: str
    cost: float
    gpus: int
    found_no_place: bool = False
    waited: float = 0.0


@dataclass(frozen=True)
class AccountScore:
    """An account's: score is what its turn goes by. used: its use, with its models' costs, in GPU-seconds."""

    score: float
    used: float
    weight: float


def account_scores(
    use: Use, rates: Rates, accounts: Iterable[str], fair: FairOrder
) -> dict[str, AccountScore]:
    """Of these accounts, and of all that have used or have anything."""
    projected = PROJECTED * fair.half_life_seconds
    found: dict[str, AccountScore] = {}
    for account in {*use, *rates, *accounts}:
        used = sum(fair.cost(model) * amount for model, amount in use.get(account, {}).items())
        now = sum(fair.cost(model) * gpus for model, gpus in rates.get(account, {}).items())
        weight = fair.weight(account)
        found[account] = AccountScore((used + projected * now) / weight, used, weight)
    return found


def sorted_waiters(
    waiters: Collection[Waiter[T]],
    known: Mapping[str, AccountScore],
    fair: FairOrder,
    free: int,
    is_served: Callable[[str], bool] = lambda _: False,
) -> tuple[list[Waiter[T]], list[Waiter[T]]]:
    """The waiters, most urgent first, and those that are overdue.

    known: scores of all their accounts. free: GPUs that nobody has, wherever they are. is_served: whether
    an overdue gang of an account was placed less than the longest wait ago, so that no other is overdue.
    """
    ordered: list[Waiter[T]] = []
    late: list[Waiter[T]] = []
    tiers: dict[int, list[Waiter[T]]] = {}
    for each in waiters:
        tiers.setdefault(each.tier, []).append(each)
    for tier in sorted(tiers, reverse=True):
        of_tier = sorted(tiers[tier], key=lambda each: (each.created, each.name))
        overdue = _overdue(of_tier, fair, is_served)
        chosen = set(map(id, overdue))
        rest = [each for each in of_tier if id(each) not in chosen]
        ordered += overdue + _by_accounts(rest, known, fair, free)
        late += overdue
    return ordered, late


def _overdue(
    by_age: Sequence[Waiter[T]], fair: FairOrder, is_served: Callable[[str], bool]
) -> list[Waiter[T]]:
    """Of each account the oldest that found no room, if it has waited too long."""
    oldest: dict[str, Waiter[T]] = {}
    for each in by_age:
        if each.found_no_place:
            oldest.setdefault(each.account, each)
    return [
        each
        for each in oldest.values()
        if each.waited >= fair.maximum_wait_seconds and not is_served(each.account)
    ]


def _by_accounts(
    by_age: Sequence[Waiter[T]], known: Mapping[str, AccountScore], fair: FairOrder, free: int
) -> list[Waiter[T]]:
    queues: dict[str, list[Waiter[T]]] = {}
    for each in reversed(by_age):
        queues.setdefault(each.account, []).append(each)
    projected = PROJECTED * fair.half_life_seconds
    attempts = dict.fromkeys(queues, FREE_ATTEMPTS)

    def position(account: str, score: float) -> tuple[float, str, str, str]:
        first = queues[account][-1]
        return score, first.created, first.name, account

    heap = [position(account, known[account].score) for account in queues]
    heapify(heap)
    ordered: list[Waiter[T]] = []
    while heap:
        score, _, _, account = heappop(heap)
        each = queues[account].pop()
        ordered.append(each)
        if each.found_no_place and each.gpus > free and attempts[account]:
            attempts[account] -= 1  # that it is asked about again takes nothing from anybody
        else:
            score += projected * max(1.0, each.cost) / known[account].weight
        if queues[account]:
            heappush(heap, position(account, score))
    return ordered
