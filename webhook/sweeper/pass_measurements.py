"""What passes come to in figures, for the metrics: how long gangs took, how they lie, what GPUs there are.

It adds up what a pass has at hand and asks nothing of anybody. The sums of the cluster are made at most every
few seconds, and never for more than a small share of the time.
"""

import time
from collections import Counter
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass
from typing import Final

from webhook.kube.times import since_1970
from webhook.placement import Snapshot
from webhook.placement.snapshot import key_of
from webhook.scheduling.gpu_counts import count_gpus
from webhook.sweeper.context import Pass
from webhook.sweeper.decide.orders import Cause, Done, NewPlan, Orders
from webhook.sweeper.metrics import replace
from webhook.sweeper.observe.fewest_domains import FewestDomains
from webhook.sweeper.observe.plans import PodId
from webhook.sweeper.observe.stock import NODE, Stock, take_stock
from webhook.sweeper.observe.view import View, identity

EVERY_SECONDS: Final = 5.0
SHARE: Final = 0.02
"""Of the time, that adding up may take in the long run."""

MOST_CLASSES: Final = 32
OTHER: Final = "other"
"""What PriorityClasses beyond MOST_CLASSES are called: they must not make series without end."""


@dataclass
class _Starting:
    """A plan of this process whose pods do not all run yet. created: of its oldest pod, by the wall clock."""

    created: float
    priority_class: str
    pods: set[PodId]


class PassMeasurements:
    """Hears what passes decide and do, and keeps the metrics of it."""

    def __init__(self, surroundings: Pass, now: Callable[[], float] = time.time) -> None:
        """now: seconds since 1970."""
        self._metrics = surroundings.metrics
        self._settings = surroundings.settings
        self._counting = surroundings.settings.counting
        self._clock = surroundings.clock
        self._now = now
        self._starting: list[_Starting] = []
        self._classes: set[str] = set()
        self._placed: list[NewPlan] = []
        self._stock: Stock | None = None
        self._fewest_domains = FewestDomains()
        self._taken_at = self._due_at = 0.0

    @property
    def is_stale(self) -> bool:
        """Whether nothing has been added up for so long that a snapshot is worth while for that alone."""
        return self._stock is None or self._clock() - self._taken_at >= self._settings.interval_seconds

    def on_result(self, orders: Orders, done: Done) -> None:
        """Take in what a step has decided and what became of it."""
        cut = sum(outcome.cause is Cause.UNDECIDED for outcome in orders.outcomes)
        self._metrics.undecided.labels("waiting").inc(cut)
        for plan in done.placed:
            self._on_plan(plan)

    def _on_plan(self, plan: NewPlan) -> None:
        pods = [plan.pods[entry.uid] for entry in plan.entries]
        created = min(_seconds(pod.metadata.creation_timestamp) for pod in pods)
        priority_class = self._class_of(pods[0].spec.priority_class_name)
        waited = max(0.0, self._now() - created)
        self._metrics.placement_seconds.labels(priority_class).observe(waited)
        self._metrics.preemptions.inc(plan.preempts)
        self._metrics.undecided.labels("placed").inc(not plan.answer.proven)
        self._starting.append(_Starting(created, priority_class, set(map(identity, pods))))
        self._placed.append(plan)

    def _class_of(self, name: str) -> str:
        if name not in self._classes and len(self._classes) >= MOST_CLASSES:
            return OTHER
        self._classes.add(name)
        return name or "none"

    def note(self, view: View, snapshot: Snapshot | None, reserved: Mapping[str, Set[str]]) -> None:
        """Take in what a pass has seen, at its end.

        reserved: reserved nodes, by the name of the kind of reservation.
        """
        self._note_running(view)
        if snapshot is None:
            self._placed.clear()
            return
        if self._stock is None or self._clock() >= self._due_at:
            self._take_stock(snapshot)
            self._note_reserved(snapshot, reserved)
        for plan in self._placed:
            self._note_spread(plan, snapshot)
        self._placed.clear()

    def _note_running(self, view: View) -> None:
        if not self._starting:
            return
        pending = set().union(*(each.pods for each in self._starting))
        phases = {
            name: pod.status.phase
            for name in pending
            if (pod := view.by_uid.get(name[1])) is not None and identity(pod) == name
        }
        still = []
        for each in self._starting:
            there = [name for name in each.pods if name in phases]
            if any(phases[name] != "Running" for name in there):
                still.append(each)
            elif there:
                waited = max(0.0, self._now() - each.created)
                self._metrics.running_seconds.labels(each.priority_class).observe(waited)
        self._starting = still

    def _take_stock(self, snapshot: Snapshot) -> None:
        """Add up; that is due again by what it takes, so that it takes a small share of the time."""
        before = self._clock()
        stock = self._stock = take_stock(snapshot, self._counting)
        replace(self._metrics.gpus, stock.gpus)
        replace(self._metrics.largest, stock.largest)
        replace(self._metrics.domains, stock.domains)
        self._metrics.unplaced.value = stock.unplaced
        self._taken_at = self._clock()
        self._due_at = self._taken_at + max(EVERY_SECONDS, (self._taken_at - before) / SHARE)

    def _note_reserved(self, snapshot: Snapshot, reserved: Mapping[str, Set[str]]) -> None:
        for purpose, names in reserved.items():
            nodes = (snapshot.nodes[name].node for name in names if name in snapshot.nodes)
            gpus = sum(count_gpus(node, self._counting) for node in nodes)
            self._metrics.reserved.labels(purpose).set(gpus)

    def _note_spread(self, plan: NewPlan, snapshot: Snapshot) -> None:
        """Compare with the fewest domains. Of whole gangs alone: other plans go where the gang's pods are."""
        classes = Counter(
            member.pod_class
            for member in plan.asked.gang.members
            if self._counting.gpus(member.pod_class.requests)
        )
        names = set(plan.answer.nodes.values())
        if plan.gang.released or plan.is_unpinned or not classes or not names <= snapshot.nodes.keys():
            return
        level_names = (*snapshot.topology.level_names, NODE)
        fewest = self._fewest_domains.of(classes, snapshot)
        keys = [key_of(snapshot.nodes[name], len(level_names) - 1) for name in names]
        for number, (level, best) in enumerate(zip(level_names, fewest, strict=False)):
            count = len({key[: number + 2] if level != NODE else key for key in keys})
            self._metrics.spread_ratio.labels(level).observe(count / best)


def _seconds(created: str | None) -> float:
    """Seconds since 1970; of what cannot be read, now."""
    found = since_1970(created)
    return time.time() if found is None else found
