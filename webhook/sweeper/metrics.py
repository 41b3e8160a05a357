"""What the sweeper counts and measures."""

from collections.abc import Iterable, Iterator
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

PHASES: Final = ("observe", "snapshot", "finish", "repair", "place", "rollback", "apply", "report")
"""Steps of a pass; finish to rollback include what of "apply" carries their orders out."""


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
        for phase in PHASES:
            self.passes.labels(phase)

    def count_dropped_events(self, total: int) -> None:
        """Bring the counter up to what the recorder has counted."""
        self.dropped_events.inc(max(0, total - self._dropped))
        self._dropped = max(self._dropped, total)

    def forget_cluster(self) -> None:
        """Show nothing of a cluster that this process does not follow any more."""
        for gauge in (self.gangs, self.silence, self.unreadable, self.refused_owners):
            gauge.clear()
        self.oldest.value = None

    def count_gangs(self, states: Iterable[str]) -> None:
        """Replace the number of gangs in each state."""
        counts: dict[str, int] = dict.fromkeys(("Settling", "Waiting", "Releasing", "Released", "Bound"), 0)
        for state in states:
            counts[state] = counts.get(state, 0) + 1
        for state, count in counts.items():
            self.gangs.labels(state).set(count)
