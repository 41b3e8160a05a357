"""What the programs of topogate answer at /metrics when all is well."""

from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from labeler.allocator import metrics as allocator
from labeler.contract import keys
from tests.admission.alone import serving
from tests.monitoring.scrapes import NOT_HERE, PROMTOOL, Series, State, read
from webhook.sweeper.decide.orders import Cause
from webhook.sweeper.metrics import Metrics
from webhook.sweeper.process import _Live, _refresh
from webhook.sweeper.settings import Settings
from webhook.tasks.main import _Metrics as TaskMetrics

API_SERVER = "apiserver"
FAILS_OPEN = "apiserver_admission_webhook_fail_open_count"


class Copy:
    """A copy of the cluster, as far as metrics look at one."""

    synced = True
    owners = SimpleNamespace(refused={})

    def silences(self) -> dict[str, float]:
        return {"pods": 1.0}

    def unreadable(self) -> dict[str, int]:
        return {"pods": 0}

    def oldest_gated_seconds(self, _prefix: str) -> float:
        return 5.0


def sweeper_series(*, leads: bool = True, knows: bool = True) -> tuple[Series, ...]:
    """What a sweeper answers. knows: whether it has read the cluster."""
    metrics = Metrics()
    if leads and knows:
        metrics.count_causes([Cause.NO_ROOM], Cause)
        metrics.unplaced.value = 0
    live: Any = _Live(Copy() if leads and knows else None)  # type: ignore[arg-type]
    recorder: Any = SimpleNamespace(dropped=0)
    _refresh(metrics, live, recorder, Settings(), lambda: leads)
    return read(generate_latest(metrics.registry).decode())


def tasks_series() -> tuple[Series, ...]:
    """What the task controller that leads answers."""

    class Informers:
        tasks = SimpleNamespace(items=dict)

        def silences(self) -> dict[str, float]:
            return {"tasks": 1.0}

        def unreadable(self) -> dict[str, int]:
            return {"tasks": 0}

    service: Any = SimpleNamespace(
        leads=lambda: True, cache=Informers(), policy=SimpleNamespace(faults=()), steps=0
    )
    metrics = TaskMetrics(service)
    metrics.refresh()
    return read(generate_latest(metrics.registry).decode())


def allocator_series() -> tuple[Series, ...]:
    """What the allocator shows once it has given a container its cards, as planned."""
    resource = keys.I915
    allocator.ALLOCATIONS.labels(resource, "planned").inc()
    allocator.ALLOCATIONS.labels(resource, "refused").inc(0)
    allocator.CONFLICT.labels(resource).set(0)
    allocator.REGISTERED.labels(resource).set(1)
    registry = CollectorRegistry()
    for each in (allocator.ALLOCATIONS, allocator.CONFLICT, allocator.REGISTERED):
        registry.register(each)
    return read(generate_latest(registry).decode())


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> State:
    """All is well with all programs."""
    if not PROMTOOL:
        pytest.skip(NOT_HERE)
    with serving(tmp_path_factory.mktemp("webhook")) as webhook:
        of_webhook = read(webhook.get("/metrics")[1].decode())
    return State(
        {
            "topogate-webhook": of_webhook,
            "topogate-sweeper": sweeper_series(),
            "topogate-tasks": tasks_series(),
            "topogate-allocator": allocator_series(),
            API_SERVER: (),
        }
    )
