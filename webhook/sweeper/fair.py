"""Fair order in a pass: counts who has which GPUs, puts gangs in turn, and has use written down.

Without fairOrder in the policy it does nothing and reads nothing. What fails here leaves gangs in the order
of their age, or use a little out of date; it never keeps one from being placed.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import mul
from typing import Final

from webhook.fairness.book import Book, Ran
from webhook.fairness.telling import own_turn, shares
from webhook.fairness.turns import AccountStanding, Waiter
from webhook.kube.objects import Node, Pod
from webhook.kube.times import since_1970
from webhook.policy.fair import FairOrder
from webhook.policy.values import Policy
from webhook.scheduling import convert
from webhook.scheduling.nodes import node_of
from webhook.sweeper.context import Pass
from webhook.sweeper.decide.orders import Cause, Done
from webhook.sweeper.decide.reservations import Reservation
from webhook.sweeper.metrics import replace
from webhook.sweeper.observe.converted import Converted
from webhook.sweeper.observe.gangs import GangKey, PodGang
from webhook.sweeper.observe.view import View, is_usable
from webhook.sweeper.pace import Pace
from webhook.sweeper.use_store import UseStore

SHARE: Final = 0.02
"""Of the time, that counting may take in the long run."""

MOST_SECONDS: Final = 10.0
"""It is counted this often all the same."""

TOLD: Final = 8
"""Gangs of an account, of one priority, that are told how it stands; the others wait behind these."""

TOLD_SECONDS: Final = 60.0
"""What was told is told anew after this long at the soonest."""

MOST_ACCOUNTS: Final = 32
MOST_MODELS: Final = 32
OTHER: Final = "other"
"""What accounts beyond MOST_ACCOUNTS are called in the metrics, and models beyond MOST_MODELS."""

OVERDUE: Final = "fair order: it has waited so long that it comes before all turns"

_NO_ROOM: Final = frozenset({Cause.NO_ROOM, Cause.HELD, Cause.UNDECIDED})

Rates = dict[str, dict[str, int]]


class FairTurns:
    """What a leader knows of use. Losing it costs what was used since it was written down last."""

    def __init__(self, surroundings: Pass, now: Callable[[], float] = time.time) -> None:
        """now: seconds since 1970, for what is written down and for the age of gangs."""
        self._pass = surroundings
        self._clock = surroundings.clock
        self._now = now
        self._counting = surroundings.settings.counting
        self._gpus: Converted[Pod, int] = Converted(lambda pod, _: self._count(pod))
        self._models: Converted[Node, str] = Converted(lambda node, _: self._model(node))
        self._sizes: Converted[Node, int] = Converted(lambda node, _: self._size(node))
        self._begin()

    def _begin(self) -> None:
        """Know nothing, and take what was written down when there is a fair order."""
        self._policy: Policy | None = None
        self._book = Book()
        self._store = UseStore(self._pass, self._now)
        self._pace = Pace(SHARE, self._clock, most=MOST_SECONDS, spent=time.thread_time)
        self._free = 0
        self._rates: Rates = {}
        self._accounts: dict[GangKey, str] = {}
        self._late: set[GangKey] = set()
        self._told: dict[tuple[str, int], tuple[float, str]] = {}
        self.told: Mapping[str, str] = {}

    def order(
        self,
        gangs: list[PodGang],
        view: View,
        causes: Mapping[GangKey, Cause],
        stages: Mapping[str, Reservation],
    ) -> list[PodGang]:
        """The gangs in turn; as they are where the policy wants no fair order.

        causes: why gangs had no place when they were last asked about. stages: by Placement, nodes that are
        kept for pods of its gang that are yet to be made.
        """
        policy = self._pass.policy()
        fair = policy.fair_order if policy is not None else None
        self.told = {}
        if policy is None or fair is None:
            if self._policy is not None:
                self._begin()
                self._measure({}, {})
            return gangs
        if policy is not self._policy:
            self._policy = policy
            self._models.forget()
            self._gpus.forget()
        labels = self._pass.cache.namespace_labels() if fair.account_label else {}
        if labels is None:
            return gangs  # they are read in a moment; till then nobody's account is known

        def account(namespace: str) -> str:
            return fair.account(namespace, labels.get(namespace, {}))

        self._look(view, fair, account, stages)
        waiters = [self._waiter(gang, account(gang.key.namespace), view, causes, fair) for gang in gangs]
        known = self._book.standings({each.account for each in waiters}, fair)
        ordered, late = self._book.order(waiters, known, self._clock(), fair, self._free)
        self._accounts = {each.gang.key: each.account for each in ordered}
        self._late = {each.gang.key for each in late}
        self.told = self._tell(ordered, known)
        return [each.gang for each in ordered]

    def hear(self, done: Done) -> None:
        """Take in what was placed: it counts at once, though it may be a while till all is counted again."""
        if self._policy is None:
            return
        nodes = self._pass.cache.node_items() if done.placed else {}
        for plan in done.placed:
            account = self._accounts.get(plan.gang.key)
            if account is None:
                continue  # ordered by nobody, as while labels of namespaces are not known
            if plan.gang.key in self._late:
                self._late.discard(plan.gang.key)
                self._book.served(account, self._clock())
            for entry in plan.entries:
                gpus = self._gpus.get(plan.pods[entry.uid])
                if gpus:
                    there = nodes.get(entry.node)
                    _add(self._rates, account, self._models.get(there) if there is not None else "", gpus)
                    self._free -= gpus

    def keep(self) -> None:
        """Write use down, if it is time."""
        if self._policy is not None and self._policy.fair_order is not None and self._book.at is not None:
            self._store.write(self._book, self._policy.fair_order)

    # --- who has what ---------------------------------------------------------------------------

    def _look(
        self, view: View, fair: FairOrder, account: Callable[[str], str], stages: Mapping[str, Reservation]
    ) -> None:
        if self._pace.is_due or self._store.is_due:
            with self._pace.work():
                self._count_all(view, fair, account, stages)

    def _count_all(
        self, view: View, fair: FairOrder, account: Callable[[str], str], stages: Mapping[str, Reservation]
    ) -> None:
        started = self._clock()
        standing = list(self._standing(view, account))
        if self._store.is_due and (record := self._store.read()) is not None:
            now = self._now()
            running = [
                Ran(name, model, gpus, now - (since_1970(pod.metadata.creation_timestamp) or 0.0))
                for name, model, gpus, pod in standing
            ]
            self._book.adopt(record.use, now - record.at, running, started, fair)
        self._rates = {}
        for name, model, gpus, _ in standing:
            _add(self._rates, name, model, gpus)
        for name, model, gpus in self._kept(view, account, stages):
            _add(self._rates, name, model, gpus)
        self._book.saw(started, self._rates, fair)
        self._free = sum(map(self._sizes.get, filter(is_usable, view.nodes.values())))
        self._free -= sum(gpus for _, _, gpus, _ in standing)
        for each in (self._gpus, self._models, self._sizes):
            each.end_round()

    def _standing(self, view: View, account: Callable[[str], str]) -> Iterator[tuple[str, str, int, Pod]]:
        """Account, model and GPUs of each pod that has some: bound, released, or planned."""
        accounts: dict[str, str] = {}
        for pod, node in view.standing():
            gpus = self._gpus.get(pod)
            if gpus:
                namespace = pod.metadata.namespace
                name = accounts.get(namespace)
                if name is None:
                    name = accounts[namespace] = account(namespace)
                yield name, self._model_of(view, node), gpus, pod

    def _kept(
        self, view: View, account: Callable[[str], str], stages: Mapping[str, Reservation]
    ) -> Iterator[tuple[str, str, int]]:
        """What stands empty for pods of placed gangs that are yet to be made."""
        nodes = {node: key for key, kept in stages.items() for node in kept.nodes if node in view.nodes}
        if not nodes:
            return
        taken: dict[str, int] = {}
        for pod, node in view.standing():
            if node in nodes:
                taken[node] = taken.get(node, 0) + self._gpus.get(pod)
        for node, key in nodes.items():
            gpus = self._sizes.get(view.nodes[node]) - taken.get(node, 0)
            if gpus > 0:
                yield account(key.partition("/")[0]), self._model_of(view, node), gpus

    def _model_of(self, view: View, node: str) -> str:
        there = view.nodes.get(node)
        return self._models.get(there) if there is not None else ""

    def _model(self, node: Node) -> str:
        labels = node.metadata.labels
        of_catalogue = self._policy.model_of_node(labels) if self._policy is not None else ""
        return of_catalogue or self._counting.model(labels)

    def _size(self, node: Node) -> int:
        return self._counting.gpus(node_of(node).allocatable)

    def _count(self, pod: Pod) -> int:
        """A pod's GPUs. Of claims on devices, where those make a GPU pod, each counts as one."""
        try:
            gpus = self._counting.gpus(convert.requests_of(pod.spec))
        except ValueError:
            return 0  # it cannot be read, so kube-scheduler does not bind it either
        claims_count = self._policy is not None and self._policy.resource_claims
        return gpus or (len(pod.spec.resource_claims) if claims_count else 0)

    # --- whose turn it is -----------------------------------------------------------------------

    def _waiter(
        self, gang: PodGang, account: str, view: View, causes: Mapping[GangKey, Cause], fair: FairOrder
    ) -> Waiter[PodGang]:
        waiting = [pod for pod in gang.gated if pod.metadata.uid not in view.planned]
        gpus = [self._gpus.get(pod) for pod in waiting]
        cost = float(sum(gpus))
        if fair.model_costs:
            wanted = (fair.cost(self._wanted(pod)) for pod in waiting)
            cost = sum(map(mul, gpus, wanted))
        oldest = min((pod.metadata.creation_timestamp or "" for pod in waiting), default="")
        waited = self._now() - (since_1970(oldest) or 0.0) if oldest else 0.0
        no_room = causes.get(gang.key) in _NO_ROOM
        name = f"{gang.key}/{gang.key.id}"
        return Waiter(gang, gang.priority, account, gang.created, name, cost, sum(gpus), no_room, waited)

    def _wanted(self, pod: Pod) -> str:
        """The model that a pod's nodeSelector names, "" if it does not."""
        selector = pod.spec.node_selector
        if not selector or self._policy is None:
            return ""
        return self._policy.model_of_node(selector) or self._counting.model(selector)

    def _tell(
        self, ordered: Sequence[Waiter[PodGang]], known: Mapping[str, AccountStanding]
    ) -> dict[str, str]:
        """By Placement, how the account stands of each gang that found no room, and the metrics of all."""
        taking_part = {each.account for each in ordered} | set(self._book.rates)
        of = shares(known, taking_part)
        self._measure(of.used, of.due)
        now = self._clock()
        first: dict[int, str] = {}
        told: dict[tuple[str, int], tuple[float, str]] = {}
        numbers: dict[tuple[str, int], int] = {}
        found: dict[str, str] = {}
        for each in ordered:
            leader = first.setdefault(each.tier, each.account)
            group = each.account, each.tier
            if group not in told:
                before = self._told.get(group)
                if before is None or now - before[0] >= TOLD_SECONDS:
                    before = now, own_turn(each.account, known, of, leader != each.account)
                told[group] = before
            number = numbers[group] = numbers.get(group, 0) + 1
            if not each.found_no_room:
                continue
            if each.gang.key in self._late:
                sentence = OVERDUE
            elif number <= TOLD:
                sentence = told[group][1]
            else:
                sentence = f"fair order: more than {TOLD} gangs of {each.account} come before it"
            found[each.gang.key.placement_key] = sentence
        self._told = told
        return found

    def _measure(self, used: Mapping[str, float], due: Mapping[str, float]) -> None:
        names = sorted(due, key=lambda each: (-used[each], each))
        shown = set(names[:MOST_ACCOUNTS])
        for gauge, values in ((self._pass.metrics.fair_used, used), (self._pass.metrics.fair_due, due)):
            sums: dict[tuple[str, ...], float] = {}
            for name, value in values.items():
                label = (name if name in shown else OTHER,)
                sums[label] = sums.get(label, 0.0) + value
            replace(gauge, sums)


def _add(rates: Rates, account: str, model: str, gpus: int) -> None:
    models = rates.setdefault(account, {})
    if model not in models and len(models) >= MOST_MODELS:
        model = OTHER
    models[model] = models.get(model, 0) + gpus
