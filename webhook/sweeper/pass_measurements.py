"""Measurements of passes for the metrics: how long gangs took, which GPUs there are.

It adds up values that a pass has already and reads nothing else. The sums over the cluster are computed at
most every few seconds, and never for more than a small share of the time.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from webhook.kube.times import since_1970
from webhook.placement import Snapshot
from webhook.placement.capacity import takes_pods
from webhook.placement.snapshot import Block, NodeState, place_of
from webhook.placement.stranded_gpus import stranded_gpus
from webhook.scheduling.gpu_counts import NodeGpus, count_gpus, gpu_hours, node_gpus, units_per_gpu, used_gpus
from webhook.scheduling.gpus import Counting
from webhook.sweeper.context import Pass
from webhook.sweeper.decide.orders import Cause, Done, EvictionCause, NewPlan, Orders
from webhook.sweeper.metrics import replace as replace_values
from webhook.sweeper.observe.plans import PodId
from webhook.sweeper.observe.view import View, identity

EVERY_SECONDS: Final = 5.0
SHARE: Final = 0.02
"""Of the time, that adding up may take in the long run."""

MOST_CLASSES: Final = 32
OTHER: Final = "other"
"""The label value for PriorityClasses beyond MOST_CLASSES, and models beyond MOST_MODELS: neither these nor
node labels may create series without limit."""


@dataclass
class _Starting:
    """A plan of this process whose pods do not all run yet. created: of its oldest pod, wall-clock time."""

    created: float
    priority_class: str
    pods: set[PodId]


class PassMeasurements:
    """Measures decisions and results of passes, and updates the metrics."""

    def __init__(self, surroundings: Pass, now: Callable[[], float] = time.time) -> None:
        """now: seconds since 1970."""
        self._metrics = surroundings.metrics
        self._settings = surroundings.settings
        self._counting = surroundings.settings.counting
        self._clock = surroundings.clock
        self._now = now
        self._starting: list[_Starting] = []
        self._classes: set[str] = set()
        self._stock: Stock | None = None
        self._taken_at = self._due_at = 0.0

    @property
    def is_stale(self) -> bool:
        """Whether nothing has been added up for so long that a snapshot is worth while for that alone."""
        return self._stock is None or self._clock() - self._taken_at >= self._settings.interval_seconds

    def on_result(self, orders: Orders, done: Done) -> None:
        """Record the decisions of a step, or their results."""
        cut = sum(outcome.cause is Cause.WORK_BUDGET for outcome in orders.outcomes)
        self._metrics.undecided.labels("waiting").inc(cut)
        for plan in done.placed:
            self._on_plan(plan)
        moved = [order.pod for order in done.evicted if order.cause is EvictionCause.MOVED]
        self._metrics.moved_gpu_hours.inc(gpu_hours(moved, self._counting, self._now()))

    def _on_plan(self, plan: NewPlan) -> None:
        pods = [plan.pods[entry.uid] for entry in plan.entries]
        created = min(_seconds(pod.metadata.creation_timestamp) for pod in pods)
        priority_class = self._class_of(pods[0].spec.priority_class_name)
        waited = max(0.0, self._now() - created)
        self._metrics.placement_seconds.labels(priority_class).observe(waited)
        counter = self._metrics.moving_plans if plan.is_moving else self._metrics.preemptions
        counter.inc(plan.preempts)
        self._metrics.undecided.labels("placed").inc(not plan.answer.proven)
        self._starting.append(_Starting(created, priority_class, set(map(identity, pods))))

    def _class_of(self, name: str) -> str:
        if name not in self._classes and len(self._classes) >= MOST_CLASSES:
            return OTHER
        self._classes.add(name)
        return name or "none"

    def note(self, view: View, snapshot: Snapshot | None, reserved: Mapping[str, Set[str]]) -> None:
        """Record a pass at its end.

        reserved: reserved nodes, by the name of the kind of reservation.
        """
        self._note_running(view)
        if snapshot is not None and (self._stock is None or self._clock() >= self._due_at):
            self._take_stock(view, snapshot)
            self._note_reserved(snapshot, reserved)

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

    def _take_stock(self, view: View, snapshot: Snapshot) -> None:
        """Add up; the next time depends on how long it took, so that it takes a small share of the time."""
        before = self._clock()
        reserved = {name for placement in view.placements.values() for name in placement.holding}
        stock = self._stock = take_stock(snapshot, self._counting, reserved)
        replace_values(self._metrics.gpus, stock.gpus)
        replace_values(self._metrics.stranded, stock.stranded)
        replace_values(self._metrics.largest, stock.largest)
        replace_values(self._metrics.domains, stock.domains)
        self._metrics.unplaced.value = stock.unplaced
        self._taken_at = self._clock()
        self._due_at = self._taken_at + max(EVERY_SECONDS, (self._taken_at - before) / SHARE)

    def _note_reserved(self, snapshot: Snapshot, reserved: Mapping[str, Set[str]]) -> None:
        for purpose, names in reserved.items():
            nodes = (snapshot.nodes[name].node for name in names if name in snapshot.nodes)
            gpus = sum(count_gpus(node, self._counting) for node in nodes)
            self._metrics.reserved.labels(purpose).set(gpus)


def _seconds(created: str | None) -> float:
    """Seconds since 1970; of an invalid time, now."""
    found = since_1970(created)
    return time.time() if found is None else found


# --- sums of GPUs -------------------------------------------------------------------------------------
# By model and by level. Pure.
#
# A block's sums stay for as long as the block does, so a pass adds up only what has changed since the last.

FREE: Final = "free"
USED: Final = "used"
EXCLUDED: Final = "excluded"
"""Of a GPU on a node that takes no pods, used or not."""

PARTLY: Final = "partly"
FULL: Final = "full"
"""Of a domain, beside FREE: some or all of its GPUs are used."""

NODE: Final = "node"
MOST_MODELS: Final = 32


@dataclass
class _Domain:
    """Sums over the nodes of one domain that take pods. whole: model -> GPUs on wholly free nodes."""

    gpus: int = 0
    used: int = 0
    whole: dict[str, int] = field(default_factory=dict)

    def add(self, other: "_Domain") -> None:
        """Count another's in."""
        self.gpus += other.gpus
        self.used += other.used
        for model, count in other.whole.items():
            self.whole[model] = self.whole.get(model, 0) + count


@dataclass(frozen=True)
class _BlockStock:
    """One block's sums, per level from the block down to the node. models: of each node, the first one."""

    gpus: Mapping[tuple[str, str], int]
    largest: tuple[Mapping[str, int], ...]
    domains: tuple[Mapping[str, int], ...]
    unplaced: int
    models: Mapping[str, str]


@dataclass(frozen=True)
class Stock:
    """The cluster's GPUs. levels: names, coarsest first, and the node.

    gpus: (model, FREE or USED or EXCLUDED) -> GPUs. largest: (level, model) -> GPUs on wholly free nodes of
    the one domain that has most of them: the largest gang of whole nodes that fits there.
    domains: (level, FREE or PARTLY or FULL) -> domains. unplaced: GPU nodes without topology labels.
    """

    levels: tuple[str, ...]
    gpus: Mapping[tuple[str, str], int]
    largest: Mapping[tuple[str, str], int]
    domains: Mapping[tuple[str, str], int]
    unplaced: int
    stranded: Mapping[tuple[str, str], float] = field(default_factory=dict)
    """(model, cause) -> GPUs; see placement.stranded_gpus."""


def take_stock(snapshot: Snapshot, counting: Counting, reserved: Set[str] = frozenset()) -> Stock:
    """The sums of a snapshot; costs a few microseconds a node of each block that is new.

    reserved: nodes that are reserved for gangs, as the page shows them; nothing counts as stranded there.
    """
    levels = (*snapshot.topology.level_names, NODE)
    blocks = [_of_block(block, len(levels) - 1, counting) for block in snapshot.blocks.values()]
    shown = _shown({model for own in blocks for model, _ in own.gpus})
    gpus: Counter[tuple[str, str]] = Counter()
    domains: Counter[tuple[str, str]] = Counter()
    for own in blocks:
        for (model, state), count in own.gpus.items():
            gpus[shown[model], state] += count
        for level, by_use in zip(levels, own.domains, strict=True):
            domains.update({(level, state): count for state, count in by_use.items()})
    unplaced = sum(own.unplaced for own in blocks)
    stranded = _stranded(snapshot, counting, blocks, shown, reserved)
    return Stock(levels, gpus, _largest_of(blocks, levels, shown), domains, unplaced, stranded)


def _stranded(
    snapshot: Snapshot,
    counting: Counting,
    blocks: Iterable[_BlockStock],
    shown: Mapping[str, str],
    reserved: Set[str],
) -> Mapping[tuple[str, str], float]:
    """See Stock.stranded. On nodes with several models it counts for the first."""
    found: Counter[tuple[str, str]] = Counter()
    models = {name: shown[model] for own in blocks for name, model in own.models.items()}
    by_node = stranded_gpus(snapshot, partial(units_per_gpu, counting=counting))
    for name, causes in by_node.items():
        if name in models and name not in reserved:
            for cause, amount in causes.items():
                found[models[name], cause] += amount
    return {key: amount / 1000 for key, amount in found.items()}


def _shown(models: Set[str]) -> Mapping[str, str]:
    """The label value of each model."""
    return {model: model if number < MOST_MODELS else OTHER for number, model in enumerate(sorted(models))}


def _largest_of(
    blocks: Iterable[_BlockStock], levels: Sequence[str], shown: Mapping[str, str]
) -> Mapping[tuple[str, str], int]:
    """See Stock.largest. shown: the label value of each model."""
    largest: dict[tuple[str, str], int] = {}
    for own in blocks:
        for level, by_model in zip(levels, own.largest, strict=True):
            for model, count in by_model.items():
                key = level, shown[model]
                largest[key] = max(count, largest.get(key, 0))
    return largest


def _of_block(block: Block, levels: int, counting: Counting) -> _BlockStock:
    known: _BlockStock | None = block.cache.get(counting)
    if known is None:
        known = block.cache[counting] = _added_up(block.states, levels, counting)
    return known


def _added_up(states: Iterable[NodeState], levels: int, counting: Counting) -> _BlockStock:
    gpus: Counter[tuple[str, str]] = Counter()
    domains: list[dict[tuple[str, ...], _Domain]] = [{} for _ in range(levels)]
    nodes: list[_Domain] = []
    models: dict[str, str] = {}
    unplaced = 0
    for state in states:
        found = node_gpus(state.node, counting)
        if not found:
            continue
        models[state.name] = found[0].model
        unplaced += state.path is None
        own = _of_node(state, found, gpus)
        if own is None:
            continue
        nodes.append(own)
        place = place_of(state, levels)
        for level, known in enumerate(domains):
            known.setdefault(place[: level + 2], _Domain()).add(own)
    each_level = [*(list(known.values()) for known in domains), nodes]
    return _BlockStock(
        gpus, tuple(map(_largest, each_level)), tuple(map(_by_use, each_level)), unplaced, models
    )


def _of_node(state: NodeState, found: Iterable[NodeGpus], gpus: Counter[tuple[str, str]]) -> _Domain | None:
    """A node's sums, None if it takes no pods; its GPUs are added to `gpus` in any case."""
    if not takes_pods(state):
        for each in found:
            gpus[each.model, EXCLUDED] += each.gpus
        return None
    own = _Domain()
    for each in found:
        used = used_gpus(state, each)
        gpus[each.model, USED] += used
        gpus[each.model, FREE] += each.gpus - used
        own.add(_Domain(each.gpus, used, {each.model: each.gpus}))
    return replace(own, whole={}) if own.used else own


def _largest(domains: Iterable[_Domain]) -> dict[str, int]:
    found: dict[str, int] = {}
    for domain in domains:
        for model, count in domain.whole.items():
            found[model] = max(count, found.get(model, 0))
    return found


def _by_use(domains: Iterable[_Domain]) -> dict[str, int]:
    found = {FREE: 0, PARTLY: 0, FULL: 0}
    for domain in domains:
        found[FULL if domain.used >= domain.gpus else PARTLY if domain.used else FREE] += 1
    return found
