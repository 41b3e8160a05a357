"""Every metric that a program of topogate serves, as the program declares it: for the table of the docs."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

from prometheus_client import REGISTRY, CollectorRegistry

from labeler.allocator import metrics as allocator_metrics
from labeler.contention import Contention
from labeler.main import metrics_of
from webhook.admission.admission_metrics import AdmissionMetrics
from webhook.admission.app import export_state
from webhook.configuration.store import ConfigurationStore
from webhook.extensions.known import all_extensions
from webhook.sweeper.metrics import Metrics
from webhook.tasks.main import TaskMetrics


@dataclass(frozen=True)
class ServedMetric:
    """name: as it is scraped, a counter's with its end "_total". programs: those that serve it."""

    name: str
    kind: str
    labels: tuple[str, ...]
    programs: tuple[str, ...]
    meaning: str


def served_metrics() -> list[ServedMetric]:
    """All metrics, in the order of the programs and of their declarations; one of several programs once."""
    found: dict[str, ServedMetric] = {}
    for each in _all():
        known = found.get(each.name)
        programs = (*known.programs, *each.programs) if known is not None else each.programs
        found[each.name] = replace(each, programs=programs)
    return list(found.values())


def _all() -> Iterator[ServedMetric]:
    yield from _of_registry("sweeper", sweeper_metrics().registry)
    yield from _of_registry("webhook", _webhook_registry())
    unused: Any = SimpleNamespace(configuration=ConfigurationStore([]))
    yield from _of_registry("tasks", TaskMetrics(unused).registry)
    of_page = CollectorRegistry()
    of_page.register(ConfigurationStore([]))
    yield from _of_registry("page", of_page)
    for each in metrics_of(Contention()):
        labels = tuple(re.findall(r'(\w+)="', each.labels))
        yield ServedMetric(each.name, each.kind, labels, ("labeler",), each.text)
    assert allocator_metrics.BUILD is not None, "importing it declares the metrics of the allocator"
    yield from _of_registry("allocator", REGISTRY)


def sweeper_metrics() -> Metrics:
    """Those of a sweeper all of whose extensions are on."""
    metrics = Metrics()
    for extension in all_extensions():
        metrics.declare(extension.all_gauges, extension.counters)
    metrics.registry.register(ConfigurationStore([]))
    return metrics


def _webhook_registry() -> CollectorRegistry:
    metrics = AdmissionMetrics()
    state: Any = SimpleNamespace(store=ConfigurationStore([]), certificate=None, classes_silence=float)
    export_state(metrics, state)  # values are read when they are scraped, which nobody does here
    return metrics.registry


def _of_registry(program: str, registry: CollectorRegistry) -> Iterator[ServedMetric]:
    for collector in registry._collector_to_names:
        labels = tuple(getattr(collector, "_labelnames", ()))
        for metric in getattr(collector, "describe", collector.collect)():
            if metric.name.startswith("topogate_"):
                name = metric.name + "_total" * (metric.type == "counter")
                yield ServedMetric(name, metric.type, labels, (program,), metric.documentation)
