"""The order of waiting gangs: priority, then overdue gangs by age, then accounts by score, each by age.

An account's score is its decayed use plus its current GPUs times a short period, divided by its weight. The
account with the lowest score contributes its oldest gang, and its score rises by the request of that gang;
and so on. Current GPUs count at once, since use alone reacts too slowly: gangs run for hours after their
account has used its share.
"""

from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import Final, Generic, TypeVar

from webhook.extensions.fair_order.account_use import KEY, Rates, RecordError, Use, decode, window
from webhook.grouping import grouped
from webhook.policy.fair import FairOrder
from webhook.sweeper.extension import HookInput
from webhook.sweeper.observe.gangs import PodGang

PROJECTED: Final = 1 / 8
"""The share of the half-life for which current GPUs count as already used."""

FREE_ATTEMPTS: Final = 8
"""The most gangs of an account that cannot fit now and do not raise its score."""

T = TypeVar("T")


@dataclass(frozen=True)
class Waiter(Generic[T]):
    """A waiting gang. tier: its priority. created: the time of its creation (sorts as text).

    cost: the GPUs that it requests, each times its model's cost. gpus: the same without costs.
    found_no_place: whether it did not fit at its last attempt. waited: seconds since the creation of its
    oldest waiting pod.
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
    """An account's score, which determines its position. used: GPU-seconds times the costs of models."""

    score: float
    used: float
    weight: float


def account_scores(
    use: Use, rates: Rates, accounts: Iterable[str], fair: FairOrder
) -> dict[str, AccountScore]:
    """The scores of these accounts, and of all with use or current GPUs."""
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
    served: Container[str] = (),
) -> tuple[list[Waiter[T]], list[Waiter[T]]]:
    """The waiters, most urgent first, and those that are overdue.

    known: scores of all their accounts. free: the free GPUs of the cluster. served: accounts whose gangs do
    not count as overdue, since one was placed less than the longest wait ago.
    """
    ordered: list[Waiter[T]] = []
    late: list[Waiter[T]] = []
    tiers = grouped((each.tier, each) for each in waiters)
    for tier in sorted(tiers, reverse=True):
        of_tier = sorted(tiers[tier], key=lambda each: (each.created, each.name))
        overdue = _overdue(of_tier, fair, served)
        chosen = set(map(id, overdue))
        rest = [each for each in of_tier if id(each) not in chosen]
        ordered += overdue + _by_accounts(rest, known, fair, free)
        late += overdue
    return ordered, late


def _overdue(by_age: Sequence[Waiter[T]], fair: FairOrder, served: Container[str]) -> list[Waiter[T]]:
    """The oldest gang of each account that did not fit, if it has waited too long."""
    oldest: dict[str, Waiter[T]] = {}
    for each in by_age:
        if each.found_no_place:
            oldest.setdefault(each.account, each)
    return [
        each
        for each in oldest.values()
        if each.waited >= fair.maximum_wait_seconds and each.account not in served
    ]


def _by_accounts(
    by_age: Sequence[Waiter[T]], known: Mapping[str, AccountScore], fair: FairOrder, free: int
) -> list[Waiter[T]]:
    queues = grouped((each.account, each) for each in reversed(by_age))
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
            attempts[account] -= 1  # its next attempt costs other accounts nothing
        else:
            score += projected * max(1.0, each.cost) / known[account].weight
        if queues[account]:
            heappush(heap, position(account, score))
    return ordered


# --- messages -----------------------------------------------------------------------------------------
# Messages about the position of accounts. Percentages are of the GPU time of participating accounts, weighted
# by the costs of models.


@dataclass(frozen=True)
class Shares:
    """Shares by account. used: of the recent use of all participants. due: of their weights."""

    used: Mapping[str, float]
    due: Mapping[str, float]


def shares(known: Mapping[str, AccountScore], taking_part: Collection[str]) -> Shares:
    """The shares of accounts that wait or have GPUs; use of other accounts does not count."""
    some = {account: known[account] for account in taking_part}
    used = sum(each.used for each in some.values()) or 1.0
    weight = sum(each.weight for each in some.values()) or 1.0
    return Shares(
        {account: each.used / used for account, each in some.items()},
        {account: each.weight / weight for account, each in some.items()},
    )


def own_position(account: str, known: Mapping[str, AccountScore], of: Shares, others_first: bool) -> str:
    """A message for users of an account, which does not name the other accounts."""
    comes = "gangs of others, which have used less for their weight, come" if others_first else "it comes"
    return f"fair order: {_of(account, known, of)}; {comes} first"


def full_position(
    account: str, known: Mapping[str, AccountScore], of: Shares, waiting: Collection[str], window: float
) -> str:
    """A message for users who may read all use. waiting: accounts with gangs of that priority."""
    gpus = known[account].used / window
    own = f"{_of(account, known, of)}, {gpus:.1f} GPUs on average"
    before = [each for each in waiting if known[each].score < known[account].score]
    if not before:
        return f"Fair order: {own}; it comes first."
    first = min(before, key=lambda each: (known[each].score, each))
    more = f" and {len(before) - 1} more" if len(before) > 1 else ""
    one = f"{first} ({of.used[first]:.0%} used, {of.due[first]:.0%} due)"
    return f"Fair order: {own}; {one}{more} {'come' if more else 'comes'} first."


def _of(account: str, known: Mapping[str, AccountScore], of: Shares) -> str:
    used, due = of.used[account], of.due[account]
    weight = f"weight {known[account].weight:g}"
    return f"{account} has used {used:.0%} of the recent GPU time, and is due {due:.0%} ({weight})"


RECENT_SECONDS: Final = 600.0
"""An older record means that the fair order has been switched off."""


def explain(given: HookInput, gang: PodGang) -> Iterator[str]:
    """A line on the gang's account and on the first account, by the last saved use.

    No line if the user may not read the record, or the labels of namespaces that define accounts.
    """
    try:
        record = decode((given.record or {}).get(KEY, ""))
    except RecordError:
        return  # the rest of the explanation needs none of it
    fair, labels = record.fair, given.namespaces
    if given.view.now.at.timestamp() - record.at >= RECENT_SECONDS or (fair.account_label and labels is None):
        return

    def account(each: PodGang) -> str:
        return fair.account(each.key.namespace, (labels or {}).get(each.key.namespace, {}))

    waiting = {account(each) for each in given.gangs if each.priority == gang.priority}
    taking_part = {account(each) for each in given.gangs} | record.rates.keys()
    known = account_scores(record.use, record.rates, taking_part, fair)
    half_life = fair.half_life_seconds
    yield full_position(account(gang), known, shares(known, taking_part), waiting, window(half_life))
