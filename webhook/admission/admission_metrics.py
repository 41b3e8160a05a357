"""The webhook's metrics.

They only count: a counted review may be a dry run, a retry, or a pod that is refused later.
"""

from collections.abc import Callable
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from webhook.admission.decide import LeftAlone
from webhook.build_info import register_build_info

BUCKETS_SECONDS: Final = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0)
"""From a fifth of a usual decision to nearly the API server's own time-out."""

ERROR: Final = "error"


class AdmissionMetrics:
    """The webhook's metrics, in their own registry."""

    def __init__(self) -> None:
        """Register all of them."""
        self.registry = CollectorRegistry()
        self._decisions = Counter(
            "topogate_admission_decisions",
            "Reviews answered. Outcome: mutated, unchanged, left-alone, denied, error. "
            f"Reasons of left-alone: {', '.join(LeftAlone)}.",
            ("outcome", "reason"),
            registry=self.registry,
        )
        self._counted: dict[tuple[str, str], Counter] = {}
        self.warnings = Counter(
            "topogate_admission_warnings", "Warnings given to users.", registry=self.registry
        )
        self.latency = Histogram(
            "topogate_admission_seconds",
            "From the whole body read to the answer made, without TLS and HTTP.",
            buckets=BUCKETS_SECONDS,
            registry=self.registry,
        )
        self._gauges: list[Gauge] = []
        register_build_info(self.registry)

    def count(self, outcome: str, reason: str) -> None:
        """Count one answer."""
        child = self._counted.get((outcome, reason))
        if child is None:
            child = self._counted[outcome, reason] = self._decisions.labels(outcome, reason)
        child.inc()

    def gauge(self, name: str, documentation: str, read: Callable[[], float]) -> None:
        """Export a value that is read whenever the metrics are scraped."""
        gauge = Gauge(name, documentation, registry=self.registry)
        gauge.set_function(read)
        self._gauges.append(gauge)

    def render(self) -> tuple[bytes, str]:
        """The metrics as text, and its content type."""
        return generate_latest(self.registry), CONTENT_TYPE_PLAIN_0_0_4
