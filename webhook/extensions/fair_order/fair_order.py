"""The extension for fair order: among gangs of one priority, accounts with less recent use come first. Pure.

Missing data means that gangs stay in the order of their age, or that use is slightly out of date. It never
prevents a placement.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import mul
from typing import Final

from webhook.extensions.fair_order.account_use import (
    KEY,
    NAME,
    OTHER,
    AccountOf,
    Book,
    GpuCounts,
    PodGpus,
    Ran,
    RecordError,
    added,
    decode,
    encode,
)
from webhook.extensions.fair_order.scores import (
    AccountScore,
    Waiter,
    account_scores,
    explain,
    own_position,
    shares,
    sorted_waiters,
)
from webhook.kube.times import since_1970
from webhook.policy.fair import FairOrder
from webhook.sweeper.decide.orders import NO_PLACE_FOUND, NewPlan
from webhook.sweeper.extension import EndOrders, Extension, Gauges, HookInput, Ordered, RecordSpec
from webhook.sweeper.metrics import GaugeSpec
from webhook.sweeper.observe.gangs import GangKey, PodGang
from webhook.sweeper.observe.plans import seconds_waited
from webhook.sweeper.observe.view import View

SHARE: Final = 0.02
"""The largest share of CPU time for counting GPUs, in the long run."""

MOST_SECONDS: Final = 10.0
"""The longest time between two counts, whatever they cost."""

EXPLAINED_GANGS: Final = 8
"""The gangs of one account and priority whose reason has its score; the others wait behind them."""

SENTENCE_SECONDS: Final = 60.0
"""The shortest time before a newer sentence replaces an account's sentence."""

MOST_ACCOUNTS: Final = 32
"""The most accounts with their own series in the metrics."""

OVERDUE: Final = "fair order: it has waited so long that it comes first"

USED: Final = GaugeSpec(
    "topogate_fair_used_ratio",
    "The share of each account in the decayed GPU time of all that wait or run; of the 32 largest, and with "
    "a "
    "fair order alone.",
    ("account",),
)
DUE: Final = GaugeSpec(
    "topogate_fair_due_ratio",
    "The share of each account in the weights of all that wait or run: what it is due; of the same 32.",
    ("account",),
)

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class FairMemory:
    """A leader's knowledge of use. If it is lost, use since the last saved record is lost.

    counts: by the current policy, None before the first pass. record: read, but not yet applied. due_at: when
    GPUs are counted again. free: the free GPUs of the cluster. accounts: of the ordered gangs; late: the
    overdue ones. sentences: by account and priority, the last sentence about its score, and when it was made.
    """

    counts: GpuCounts | None = None
    book: Book = field(default_factory=Book)
    record: Mapping[str, str] | None = None
    due_at: float = float("-inf")
    free: int = 0
    accounts: Mapping[GangKey, str] = field(default_factory=dict)
    late: frozenset[GangKey] = frozenset()
    sentences: Mapping[tuple[str, int], tuple[float, str]] = field(default_factory=dict)


def _by_score(
    given: HookInput, memory: FairMemory, counts: GpuCounts, fair: FairOrder
) -> tuple[Ordered, FairMemory]:
    """The gangs in fair order, after a new count if that is due."""
    labels = given.namespaces or {}

    def account(namespace: str) -> str:
        return fair.account(namespace, labels.get(namespace, {}))

    if memory.record is not None or given.view.now.seconds >= memory.due_at:
        memory = _counted(given, memory, counts, account, fair)
    waiters = [_waiter(gang, account(gang.key.namespace), given, counts, fair) for gang in given.gangs]
    now, book = given.view.now.seconds, memory.book
    known = account_scores(book.use, book.rates, {each.account for each in waiters}, fair)
    ordered, late = sorted_waiters(waiters, known, fair, memory.free, book.served_lately(now, fair))
    memory = replace(
        memory,
        accounts={each.gang.key: each.account for each in ordered},
        late=frozenset(each.gang.key for each in late),
    )
    return _explained(ordered, known, now, memory)


# --- counting -----------------------------------------------------------------------------------------


def _counted(
    given: HookInput, memory: FairMemory, counts: GpuCounts, account: AccountOf, fair: FairOrder
) -> FairMemory:
    before, now, view = given.cpu_seconds(), given.view.now, given.view
    in_use = list(counts.in_use(view, account))
    book = memory.book
    if memory.record is not None:
        book = _from_record(book, memory.record, in_use, view, fair)
    rates = added({}, (each[:3] for each in in_use))
    rates = added(rates, counts.reserved(view, account, given.stages))
    free = counts.capacity(view) - sum(each.gpus for each in in_use)
    counts.end_pass()
    pause = (given.cpu_seconds() - before) / SHARE
    return replace(
        memory,
        book=book.with_rates(now.seconds, rates, fair),
        record=None,
        due_at=now.seconds + min(MOST_SECONDS, pause),
        free=free,
    )


def _from_record(
    book: Book, data: Mapping[str, str], in_use: Sequence[PodGpus], view: View, fair: FairOrder
) -> Book:
    """The saved use, plus the pods that have run since; none if an operator has emptied the record."""
    text, now = data.get(KEY), view.now.at.timestamp()
    if not text:
        return book.begun({}, 0.0, (), view.now.seconds, fair)
    try:
        record = decode(text)
    except RecordError as error:
        logger.warning(
            "fair_order_use_unreadable key=%s reason='it is ignored and will be replaced: %s'", KEY, error
        )
        return book
    logger.info("fair_order_use_loaded accounts=%d seconds_old=%.0f", len(record.use), now - record.at)
    running = [
        Ran(
            each.account,
            each.model,
            each.gpus,
            now - (since_1970(each.pod.metadata.creation_timestamp) or 0.0),
        )
        for each in in_use
    ]
    return book.begun(record.use, now - record.at, running, view.now.seconds, fair)


def _placed(plan: NewPlan, view: View, counts: GpuCounts, fair: FairOrder, memory: FairMemory) -> FairMemory:
    key, book = plan.gang.key, memory.book
    account = memory.accounts.get(key)
    if account is None:
        return memory  # it was not ordered, for example before the labels of namespaces were read
    if key in memory.late:
        book = book.with_served(account, view.now.seconds, fair)
    pods = [(entry.node, counts.gpus(view, plan.pods[entry.uid])) for entry in plan.entries]
    taken = ((account, counts.model_on(view, node), gpus) for node, gpus in pods if gpus)
    book = replace(book, rates=added(book.rates, taken))
    free = memory.free - sum(gpus for _, gpus in pods)
    return replace(memory, book=book, late=memory.late - {key}, free=free)


# --- waiting gangs ------------------------------------------------------------------------------------


def _waiter(
    gang: PodGang, account: str, given: HookInput, counts: GpuCounts, fair: FairOrder
) -> Waiter[PodGang]:
    waiting = [pod for pod in gang.gated if pod.metadata.uid not in given.view.planned]
    gpus = [counts.gpus(given.view, pod) for pod in waiting]
    cost = float(sum(gpus))
    if fair.model_costs:
        cost = sum(map(mul, gpus, (fair.cost(counts.model_wanted(pod)) for pod in waiting)))
    waited = seconds_waited(waiting, given.view.planned, given.view.now.at)
    has_no_place = given.causes.get(gang.key) in NO_PLACE_FOUND
    name = f"{gang.key}/{gang.key.id}"
    return Waiter(gang, gang.priority, account, gang.created, name, cost, sum(gpus), has_no_place, waited)


def _explained(
    ordered: Sequence[Waiter[PodGang]], known: Mapping[str, AccountScore], now: float, memory: FairMemory
) -> tuple[Ordered, FairMemory]:
    """The order, with a sentence for each gang that did not fit, and the metrics."""
    taking_part = {each.account for each in ordered} | set(memory.book.rates)
    of = shares(known, taking_part)
    first: dict[int, str] = {}
    sentences: dict[tuple[str, int], tuple[float, str]] = {}
    numbers: dict[tuple[str, int], int] = {}
    found: dict[str, str] = {}
    for each in ordered:
        leader = first.setdefault(each.tier, each.account)
        group = each.account, each.tier
        if group not in sentences:
            before = memory.sentences.get(group)
            if before is None or now - before[0] >= SENTENCE_SECONDS:
                before = now, own_position(each.account, known, of, leader != each.account)
            sentences[group] = before
        number = numbers[group] = numbers.get(group, 0) + 1
        if not each.found_no_place:
            continue
        if each.gang.key in memory.late:
            sentence = OVERDUE
        elif number <= EXPLAINED_GANGS:
            sentence = sentences[group][1]
        else:
            sentence = f"fair order: more than {EXPLAINED_GANGS} gangs of {each.account} come before it"
        found[each.gang.key.placement_key] = sentence
    gangs = [each.gang for each in ordered]
    return Ordered(gangs, found, _gauges(of.used, of.due)), replace(memory, sentences=sentences)


def _gauges(used: Mapping[str, float], due: Mapping[str, float]) -> Gauges:
    names = sorted(due, key=lambda each: (-used[each], each))
    shown = set(names[:MOST_ACCOUNTS])
    return {USED.name: _summed(used, shown), DUE.name: _summed(due, shown)}


def _summed(values: Mapping[str, float], shown: Iterable[str]) -> dict[tuple[str, ...], float]:
    sums: dict[tuple[str, ...], float] = {}
    for name, value in values.items():
        label = (name if name in shown else OTHER,)
        sums[label] = sums.get(label, 0.0) + value
    return sums


WRITTEN: Final = GaugeSpec(
    "topogate_fair_use_written_timestamp_seconds",
    "When this process last saved the use, 0 if it has not; only with fairOrder.",
)


class FairOrderExtension(Extension):
    """Orders gangs, and records the use of their accounts."""

    name = "fair_order"
    memory = FairMemory()
    record = RecordSpec(NAME, written=WRITTEN)
    gauges = (USED, DUE)

    def order_gangs(self, given: HookInput, memory: FairMemory) -> tuple[Ordered, FairMemory]:
        """The gangs in fair order; unchanged while their accounts are unknown."""
        policy = given.policy
        fair = policy.fair_order if policy is not None else None
        if policy is None or fair is None:
            return Ordered(given.gangs), FairMemory()
        if given.record is not None:
            memory = replace(memory, record=given.record)
        counts = memory.counts
        if counts is None or counts.policy is not policy:
            counts = GpuCounts(policy, given.settings.counting)
            memory = replace(memory, counts=counts)
        if fair.account_label and given.namespaces is None:
            return Ordered(given.gangs), memory  # the labels of namespaces have not been read yet
        return _by_score(given, memory, counts, fair)

    def explain(self, given: HookInput, gang: PodGang) -> Iterator[str]:
        """The use of the gang's account."""
        return explain(given, gang)

    def after_pass(self, given: HookInput, memory: FairMemory) -> tuple[EndOrders, FairMemory]:
        """Count placed gangs at once, before the next full count, and save the use."""
        policy, counts = given.policy, memory.counts
        if policy is None or policy.fair_order is None or counts is None:
            return EndOrders(), memory
        now = given.view.now
        for plan in given.placed:
            memory = _placed(plan, given.view, counts, policy.fair_order, memory)
        book = memory.book
        if not given.may_write or memory.record is not None or book.at is None:
            return EndOrders(), memory
        return EndOrders({KEY: encode(book.use, now.at.timestamp(), policy.fair_order, book.rates)}), memory


FAIR_ORDER: Final = FairOrderExtension()
