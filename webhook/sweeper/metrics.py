"""The metrics of the sweeper."""

import collections
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from webhook.build_info import register_build_info

PHASES: Final = (
    "observe",
    "read-failures",
    "snapshot",
    "find-gangs",
    "complete-gangs",
    "order-gangs",
    "exclude-nodes",
    "find-ungated",
    "repair",
    "find-victims",
    "release",
    "update-records",
    "preempt",
    "add-node-selectors",
    "place",
    "evict-incomplete",
    "rollback",
    "check-manifests",
    "apply",
    "report",
    "update-metrics",
    "extensions",
)
"""Steps of a pass. Those from "repair" to "check-manifests" decide, and "apply" carries their orders out."""

_LONG_SECONDS: Final = (1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 14400, 43200, 86400)
"""Of the time for which gangs wait, from 1 second to a day."""

_PASS_SECONDS: Final = (0.001, 0.005, 0.025, 0.1, 0.5, 1, 2.5, 5, 10, 30)

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

    def describe(self) -> Iterator[Metric]:
        """The series without a value, whether it is known or not."""
        yield GaugeMetricFamily(self._name, self._text)

    def collect(self) -> Iterator[Metric]:
        """Called by the registry."""
        if self.value is not None:
            yield GaugeMetricFamily(self._name, self._text, self.value)


class Metrics:
    """All series, in a registry of their own."""

    def __init__(self) -> None:
        """Every series starts at 0."""
        self.registry = CollectorRegistry()
        self._dropped = 0
        self._extended: dict[str, Gauge] = {}
        self._counters: dict[str, Counter] = {}
        self._add_passes()
        register_build_info(self.registry)
        self._add_gangs()
        self._add_gpus()

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(name, text, labels, registry=self.registry)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(name, text, labels, registry=self.registry)

    def _histogram(self, name: str, text: str, label: str, buckets: Sequence[float]) -> Histogram:
        return Histogram(name, text, [label], buckets=buckets, registry=self.registry)

    def _known_gauge(self, name: str, text: str) -> KnownGauge:
        made = KnownGauge(name, text)
        self.registry.register(made)
        return made

    def _add_passes(self) -> None:
        self.gangs = self._gauge(
            "topogate_gangs", "Gangs by state: Settling, Waiting, Releasing, Released, Bound.", "state"
        )
        self.oldest = self._known_gauge(
            "topogate_oldest_gated_pod_seconds",
            "Age of the oldest pod that waits for topogate; absent while the cluster is not known.",
        )
        self.passes = self._histogram(
            "topogate_pass_seconds", "Duration of a pass by phase.", "phase", _PASS_SECONDS
        )
        for phase in PHASES:
            self.passes.labels(phase)
        self.releases = self._counter(
            "topogate_releases_total", "Pods by the outcome of their release.", "outcome"
        )
        self.placed = self._counter("topogate_gangs_placed_total", "Placements written.")
        self.repairs = self._counter(
            "topogate_repairs_total", "Released pods deleted to be placed again.", "cause"
        )
        self.errors = self._counter(
            "topogate_api_errors_total", "Requests that the API server refused.", "status"
        )
        self._add_watches()

    def _add_watches(self) -> None:
        self.leading = self._gauge("topogate_leader", "1 while this process leads.")
        self.silence = self._gauge(
            "topogate_watch_silence_seconds",
            "Seconds since the last message of the API server on a watch.",
            "resource",
        )
        self.unreadable = self._gauge(
            "topogate_unreadable_objects",
            "Objects that could not be decoded; the log names them, and their last readable version counts.",
            "resource",
        )
        self.refused_owners = self._gauge(
            "topogate_refused_owners",
            "1 for each kind of owner that may not be read; the size of its gangs is not known.",
            "resource",
        )
        self.dropped_events = self._counter(
            "topogate_events_dropped_total",
            "Events that were not written: there were too many, or the API server was slow or refused them.",
        )

    def _add_gangs(self) -> None:
        self.ungated = self._known_gauge(
            "topogate_ungated_pods",
            "GPU pods of opted-in namespaces created without a gate in the last hour, as far as this leader "
            "has seen.",
        )
        self.unbound = self._known_gauge(
            "topogate_unbound_pods",
            "Released pods that kube-scheduler has not bound within binding.timeout, as far as this leader "
            "has seen.",
        )
        self.waiting = self._gauge(
            "topogate_gangs_waiting",
            "Gangs that wait, by cause; docs/users/waiting.md explains them.",
            "cause",
        )
        self.placement_seconds = self._histogram(
            "topogate_time_to_placement_seconds",
            "From the creation of a plan's oldest pod until the plan was written and its first pods were "
            "released.",
            "priority_class",
            _LONG_SECONDS,
        )
        self.running_seconds = self._histogram(
            "topogate_time_to_running_seconds",
            "From the creation of a plan's oldest pod until all its pods ran; of plans of this process.",
            "priority_class",
            _LONG_SECONDS,
        )
        self._add_decisions()

    def _add_decisions(self) -> None:
        self.preemptions = self._counter(
            "topogate_preemptions_total", "Gangs whose plan preempts pods of lower priority."
        )
        self.evictions = self._counter(
            "topogate_evictions_total",
            "Pods evicted for others. Cause: with their whole gang (preempted), to be placed elsewhere "
            "(moved), beyond their gang's minimum (above-minimum), or as the rest of a gang that "
            "lost pods (incomplete-gang). "
            "Outcome: evicted, refused by a PodDisruptionBudget, failed.",
            "cause",
            "outcome",
        )
        self.moving_plans = self._counter(
            "topogate_moving_plans_total", "Gangs for whose plan other gangs are moved."
        )
        self.moved_gpu_hours = self._counter(
            "topogate_moved_gpu_hours_total",
            "GPU hours since their start of pods that were moved so that a larger gang fits.",
        )
        self.undecided = self._counter(
            "topogate_work_budget_reached_total",
            "Decisions that ended at their work budget: gangs placed (perhaps not best), or waiting.",
            "outcome",
        )
        for outcome in ("placed", "waiting"):
            self.undecided.labels(outcome)

    def _add_gpus(self) -> None:
        self.gpus = self._gauge(
            "topogate_gpus",
            "GPUs: free, used (also by planned pods), excluded (the node takes no pods). A shared or "
            "time-sliced card counts as one, and is used when any share is. A MIG instance counts as one, of "
            "a model of its own. A device of a claim counts as one.",
            "model",
            "state",
        )
        self.stranded = self._gauge(
            "topogate_stranded_gpus",
            "Free GPUs, and shares of cards, that the next pod cannot use, on average over the pods of the "
            "cluster, by what the node lacks.",
            "model",
            "cause",
        )
        self.largest = self._gauge(
            "topogate_largest_gang_gpus",
            "The largest gang of whole nodes that fits into one domain of a level, in GPUs.",
            "level",
            "model",
        )
        self.domains = self._gauge(
            "topogate_domains", "Domains with GPUs: free, partly used, full.", "level", "state"
        )
        self.reserved = self._gauge(
            "topogate_reserved_gpus",
            "GPUs of nodes reserved for gangs that have waited long (waiting), for pods of later stages "
            "(stages), or for gangs that have requested nodes from an autoscaler (scale-up).",
            "purpose",
        )
        self.unplaced = self._known_gauge(
            "topogate_gpu_nodes_without_topology",
            "Nodes with GPUs and without a complete set of topology labels.",
        )

    def declare(self, gauges: Iterable[GaugeSpec], counters: Iterable[CounterSpec] = ()) -> None:
        """Declare the metrics of an extension, unless they are there already."""
        for gauge in gauges:
            if gauge.name not in self._extended:
                self._extended[gauge.name] = self._gauge(gauge.name, gauge.meaning, *gauge.labels)
        for each in counters:
            if each.name not in self._counters:
                self._counters[each.name] = self._counter(each.name, each.meaning, *each.labels)

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
        """Set the counter to the recorder's count."""
        self.dropped_events.inc(max(0, total - self._dropped))
        self._dropped = max(self._dropped, total)

    def forget_cluster(self) -> None:
        """Show nothing of a cluster that this process does not follow any more."""
        of_passes = self.gangs, self.waiting, self.silence, self.unreadable, self.refused_owners
        shown = self.gpus, self.largest, self.domains, self.reserved
        of_extensions = [each for each in self._extended.values() if each._labelnames]
        for gauge in (*of_passes, *shown, *of_extensions):
            gauge.clear()
        self.oldest.value = self.unplaced.value = self.ungated.value = self.unbound.value = None

    def count_causes(self, causes: Iterable[str], known: Iterable[str]) -> None:
        """Replace the number of gangs that wait for each cause; known: all causes that there are."""
        _count(self.waiting, causes, known)

    def count_gangs(self, states: Iterable[str]) -> None:
        """Replace the number of gangs in each state."""
        _count(self.gangs, states, ("Settling", "Waiting", "Releasing", "Released", "Bound"))


def _count(gauge: Gauge, values: Iterable[str], known: Iterable[str]) -> None:
    """Show how often each value occurs; known: values that are shown in any case."""
    counts = collections.Counter(values)
    replace(gauge, {(value,): counts[value] for value in {*known, *counts}})


def replace(gauge: Gauge, values: Mapping[Labels, float]) -> None:
    """Show just these values, by label values in their order; a scrape meanwhile misses none that stays."""
    before = {tuple(sample.labels.values()) for metric in gauge.collect() for sample in metric.samples}
    for labels, value in values.items():
        gauge.labels(*labels).set(value)
    for gone in before - set(values):
        gauge.remove(*gone)
