"""What the sweeper counts and measures."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from webhook.build_info import register_build_info

PHASES: Final = (
    "observe",
    "snapshot",
    "failures",
    "gather",
    "let_go",
    "order",
    "remember",
    "preempt",
    "finish",
    "repair",
    "steer",
    "place",
    "broken",
    "rollback",
    "ungated",
    "scale",
    "apply",
    "report",
    "measure",
    "extensions",
)
"""Steps of a pass; finish to rollback include what of "apply" carries their orders out."""

_LONG_SECONDS: Final = (1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 14400, 43200, 86400)
"""Of what gangs wait for, from at once to a day."""

Labels = TypeVar("Labels", bound=tuple[str, ...])


@dataclass(frozen=True)
class MetricSpec:
    """A metric of an extension. name: of a counter without its end "_total"."""

    name: str
    meaning: str
    labels: tuple[str, ...] = ()


class GaugeSpec(MetricSpec):
    """A gauge that an extension sets."""


class CounterSpec(MetricSpec):
    """A counter that an extension adds to."""


class KnownGauge(Collector):
    """A series without labels that is absent while its value (None) is not known."""

    def __init__(self, name: str, text: str) -> None:
        self._name = name
        self._text = text
        self.value: float | None = None

    def collect(self) -> Iterator[Metric]:
        """What the registry asks for."""
        if self.value is not None:
            yield GaugeMetricFamily(self._name, self._text, self.value)


class Metrics:
    """All series, in a registry of their own."""

    def __init__(self) -> None:
        """Every series starts at 0."""
        self.registry = CollectorRegistry()
        self.gangs = Gauge("topogate_gangs", "Gangs by state.", ["state"], registry=self.registry)
        self.oldest = KnownGauge(
            "topogate_oldest_gated_pod_seconds",
            "Age of the oldest pod that waits for us: alert on it, and on its absence in all replicas.",
        )
        self.registry.register(self.oldest)
        self.passes = Histogram(
            "topogate_pass_seconds",
            "Duration of a pass by phase.",
            ["phase"],
            buckets=(0.001, 0.005, 0.025, 0.1, 0.5, 1, 2.5, 5, 10, 30),
            registry=self.registry,
        )
        self.releases = Counter(
            "topogate_releases_total",
            "Pods by what became of their release.",
            ["outcome"],
            registry=self.registry,
        )
        self.placed = Counter("topogate_gangs_placed_total", "Plans written.", registry=self.registry)
        self.repairs = Counter(
            "topogate_repairs_total",
            "Released pods deleted to be placed anew.",
            ["cause"],
            registry=self.registry,
        )
        self.errors = Counter(
            "topogate_api_errors_total",
            "Requests that the API server refused.",
            ["status"],
            registry=self.registry,
        )
        self.leading = Gauge("topogate_leader", "1 while this process leads.", registry=self.registry)
        self.silence = Gauge(
            "topogate_watch_silence_seconds",
            "Seconds since the API server last said anything on a watch.",
            ["resource"],
            registry=self.registry,
        )
        self.unreadable = Gauge(
            "topogate_unreadable_objects",
            "Objects that could not be decoded (the log names them): their last readable version counts.",
            ["resource"],
            registry=self.registry,
        )
        self.refused_owners = Gauge(
            "topogate_refused_owners",
            "1 for each kind of owner that is served but cannot be read: its gangs have no known size.",
            ["resource"],
            registry=self.registry,
        )
        self.dropped_events = Counter(
            "topogate_events_dropped_total",
            "Events for people that were not written: too many, or the API server was slow or refused.",
            registry=self.registry,
        )
        self._dropped = 0
        self._extended: dict[str, Gauge] = {}
        self._counters: dict[str, Counter] = {}
        register_build_info(self.registry)
        self._add_gangs()
        self._add_gpus()
        self._add_nodes()
        for phase in PHASES:
            self.passes.labels(phase)

    def _add_gangs(self) -> None:
        registry = self.registry
        self.ungated = KnownGauge(
            "topogate_ungated_pods",
            "GPU pods of opted-in namespaces that were created without a gate in the last hour.",
        )
        registry.register(self.ungated)
        self.waiting = Gauge(
            "topogate_gangs_waiting", "Gangs that have no place, by cause.", ["cause"], registry=registry
        )
        self.placement_seconds = Histogram(
            "topogate_time_to_placement_seconds",
            "From the creation of a plan's oldest pod until it was written and its first pods released.",
            ["priority_class"],
            buckets=_LONG_SECONDS,
            registry=registry,
        )
        self.running_seconds = Histogram(
            "topogate_time_to_running_seconds",
            "From the creation of a plan's oldest pod until all its pods ran; of plans of this process.",
            ["priority_class"],
            buckets=_LONG_SECONDS,
            registry=registry,
        )
        self.spread_ratio = Histogram(
            "topogate_spread_ratio",
            "Domains of a whole gang's plan, by the fewest that its GPUs need in an empty cluster.",
            ["level"],
            buckets=(1, 1.25, 1.5, 2, 3, 5, 10, 100),
            registry=registry,
        )
        self.preemptions = Counter(
            "topogate_preemptions_total",
            "Gangs released in the place of pods of lower priority.",
            registry=registry,
        )
        self.evictions = Counter(
            "topogate_evictions_total",
            "Pods evicted for others: with their whole gang (preempted), of what it can spare (spared), or "
            "as what is left of a gang that others have broken (broken).",
            ["cause", "outcome"],
            registry=registry,
        )
        self.undecided = Counter(
            "topogate_undecided_decisions_total",
            "Decisions cut at their bound of steps: gangs placed (perhaps not best), or waiting.",
            ["outcome"],
            registry=registry,
        )
        for outcome in ("placed", "waiting"):
            self.undecided.labels(outcome)
        self.scale_up_requests = Gauge(
            "topogate_scale_up_requests",
            "Requests for nodes by how far they are; none where nodes are not asked for.",
            ["state"],
            registry=registry,
        )
        self.scale_ups = Counter(
            "topogate_scale_ups_total",
            "Requests for nodes that were made (asked), and what an autoscaler has said of them since.",
            ["outcome"],
            registry=registry,
        )

    def _add_nodes(self) -> None:
        registry = self.registry
        self.avoided = Gauge(
            "topogate_avoided_nodes",
            "Nodes that all gangs avoid since pods of several failed there, by GPU model.",
            ["model"],
            registry=registry,
        )
        self.avoided_info = Gauge(
            "topogate_avoided_node_info",
            "1 for each node that all gangs avoid; cause: of the last failure.",
            ["node", "cause"],
            registry=registry,
        )
        self.failures = Gauge(
            "topogate_node_failures",
            "Failures of gangs that are kept, at most 1000, whether they speak against their nodes or not.",
            registry=registry,
        )

    def _add_gpus(self) -> None:
        registry = self.registry
        self.gpus = Gauge(
            "topogate_gpus",
            "GPUs: free, used (also by pods that are on their way), excluded (the node takes no pods).",
            ["model", "state"],
            registry=registry,
        )
        self.largest = Gauge(
            "topogate_largest_gang_gpus",
            "The largest gang of whole nodes that fits into one domain of a level, in GPUs.",
            ["level", "model"],
            registry=registry,
        )
        self.domains = Gauge(
            "topogate_domains",
            "Domains with GPUs by level: free, partly or full.",
            ["level", "state"],
            registry=registry,
        )
        self.reserved = Gauge(
            "topogate_reserved_gpus",
            "GPUs of nodes held for gangs that wait long (waiting), for pods yet to be made (stages), or new "
            "for gangs that asked for them (booked).",
            ["purpose"],
            registry=registry,
        )
        self.unplaced = KnownGauge(
            "topogate_unplaced_gpu_nodes", "Nodes with GPUs and without a complete set of topology labels."
        )
        registry.register(self.unplaced)

    def declare(self, gauges: Iterable[GaugeSpec], counters: Iterable[CounterSpec] = ()) -> None:
        """Declare the metrics of an extension, unless they are there already."""
        for gauge in gauges:
            if gauge.name not in self._extended:
                made = Gauge(gauge.name, gauge.meaning, gauge.labels, registry=self.registry)
                self._extended[gauge.name] = made
        for each in counters:
            if each.name not in self._counters:
                counter = Counter(each.name, each.meaning, each.labels, registry=self.registry)
                self._counters[each.name] = counter

    def count(self, name: str, values: Mapping[tuple[str, ...], float]) -> None:
        """Add to an extension's counter, by label values in the order of its labels."""
        for labels, value in values.items():
            (self._counters[name].labels(*labels) if labels else self._counters[name]).inc(value)

    def show(self, name: str, values: Mapping[tuple[str, ...], float]) -> None:
        """Show just these values of an extension's gauge; () are the label values of one without labels."""
        gauge = self._extended[name]
        if values.keys() == {()}:
            gauge.set(values[()])
        else:
            replace(gauge, values)

    def count_dropped_events(self, total: int) -> None:
        """Bring the counter up to what the recorder has counted."""
        self.dropped_events.inc(max(0, total - self._dropped))
        self._dropped = max(self._dropped, total)

    def forget_cluster(self) -> None:
        """Show nothing of a cluster that this process does not follow any more."""
        told = self.gangs, self.waiting, self.silence, self.unreadable, self.refused_owners
        shown = self.gpus, self.largest, self.domains, self.reserved, self.scale_up_requests
        for gauge in (*told, *shown, self.avoided, self.avoided_info):
            gauge.clear()
        self.oldest.value = self.unplaced.value = self.ungated.value = None

    def count_causes(self, causes: Iterable[str], known: Iterable[str]) -> None:
        """Replace the number of gangs that wait for each cause; known: all causes that there are."""
        counts: dict[tuple[str, ...], float] = dict.fromkeys(((cause,) for cause in known), 0)
        for cause in causes:
            counts[cause,] = counts.get((cause,), 0) + 1
        replace(self.waiting, counts)

    def count_gangs(self, states: Iterable[str]) -> None:
        """Replace the number of gangs in each state."""
        counts: dict[str, int] = dict.fromkeys(("Settling", "Waiting", "Releasing", "Released", "Bound"), 0)
        for state in states:
            counts[state] = counts.get(state, 0) + 1
        for state, count in counts.items():
            self.gangs.labels(state).set(count)


def replace(gauge: Gauge, values: Mapping[Labels, float]) -> None:
    """Show just these values, by label values in their order; a scrape meanwhile misses none that stays."""
    before = {tuple(sample.labels.values()) for metric in gauge.collect() for sample in metric.samples}
    for labels, value in values.items():
        gauge.labels(*labels).set(value)
    for gone in before - set(values):
        gauge.remove(*gone)
