"""The sweeper's process: what it says of itself."""

import threading
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import generate_latest

from labeler.contract.event_reasons import EventReason
from webhook.configuration.file import Configuration
from webhook.configuration.settings import Settings
from webhook.configuration.store import ConfigurationStore
from webhook.kube.collection import SILENCE_SECONDS
from webhook.kube.objects import Node, NodeMetadata, Pod, PodMetadata
from webhook.sweeper import process
from webhook.sweeper.context import Pass
from webhook.sweeper.metrics import Metrics
from webhook.sweeper.process import _Live, _refresh


class Copy:
    """A copy of the cluster, as far as probes and metrics look at it."""

    def __init__(
        self, *, synced: bool = True, nodes: float = 0.0, unreadable: int = 0, refused: tuple[str, ...] = ()
    ) -> None:
        self.synced = synced
        self.owners = SimpleNamespace(refused=dict.fromkeys(refused, "forbidden"))
        self.unsynced = [] if synced else ["pods"]
        self._nodes = nodes
        self._unreadable = unreadable

    def silences(self) -> dict[str, float]:
        return {"pods": 1.0, "nodes": self._nodes}

    def unreadable(self) -> dict[str, int]:
        return {"pods": self._unreadable}

    def oldest_gated_seconds(self, _prefix: str) -> float:
        return 7.0


@pytest.mark.parametrize(
    ("copy", "leads", "complaint"),
    [
        (None, False, ""),
        (None, True, "not complete"),
        (Copy(synced=False), True, "not complete"),
        (Copy(), True, ""),
        (Copy(nodes=SILENCE_SECONDS - 1), True, ""),
        (Copy(nodes=SILENCE_SECONDS + 1), True, "no message about nodes for 121 s"),
        (Copy(nodes=SILENCE_SECONDS + 1), False, ""),
    ],
    ids=["stands by", "begins to lead", "reads", "leads", "is not told much", "is cut off", "has led"],
)
def test_a_leader_is_ready_while_its_copy_is_whole_and_current(
    copy: Copy | None, leads: bool, complaint: str
) -> None:
    found = _Live(copy).complaint(leads)  # type: ignore[arg-type]
    assert (complaint in found) if complaint else not found


def test_a_standby_is_not_ready_while_it_does_not_know_who_leads() -> None:
    assert _Live(None).complaint(False, "lease topogate-sweeper: 401 Unauthorized").startswith("lease ")


def test_the_age_of_the_oldest_pod_is_absent_until_all_has_been_read() -> None:
    lines = scraped(Metrics(), Copy(synced=False))
    assert not [line for line in lines if line.startswith("topogate_oldest_gated_pod_seconds")]


def scraped(metrics: Metrics, copy: Copy | None, dropped: int = 0) -> set[str]:
    """The lines of one answer of /metrics."""
    recorder: Any = SimpleNamespace(dropped=dropped)
    _refresh(metrics, _Live(copy), recorder, Settings(), lambda: copy is not None)  # type: ignore[arg-type]
    return set(generate_latest(metrics.registry).decode().splitlines())


def test_what_it_cannot_read_or_write_is_counted() -> None:
    copy = Copy(nodes=30, unreadable=2, refused=("jobsets.jobset.x-k8s.io",))
    assert scraped(Metrics(), copy, dropped=3) >= {
        'topogate_watch_silence_seconds{resource="nodes"} 30.0',
        'topogate_unreadable_objects{resource="pods"} 2.0',
        'topogate_refused_owners{resource="jobsets.jobset.x-k8s.io"} 1.0',
        "topogate_events_dropped_total 3.0",
        "topogate_oldest_gated_pod_seconds 7.0",
    }


def test_events_are_counted_once_however_often_they_are_asked_for() -> None:
    metrics = Metrics()
    for dropped, shown in ((2, "2.0"), (2, "2.0"), (5, "5.0")):
        assert f"topogate_events_dropped_total {shown}" in scraped(metrics, Copy(), dropped)


def test_owners_that_can_be_read_again_are_shown_no_more() -> None:
    metrics = Metrics()
    scraped(metrics, Copy(refused=("jobs.batch",)))
    assert not [line for line in scraped(metrics, Copy()) if line.startswith("topogate_refused_owners{")]


@pytest.mark.promise("O200")
def test_who_does_not_lead_any_more_shows_nothing_of_the_cluster() -> None:
    metrics = Metrics()
    metrics.count_gangs(["Waiting"])
    scraped(metrics, Copy(nodes=300, unreadable=1, refused=("jobs.batch",)))
    left = scraped(metrics, None)
    assert "topogate_leader 0.0" in left
    assert not [line for line in left if line.startswith("topogate_oldest_gated_pod_seconds")], "not known"
    for series in ("gangs", "watch_silence_seconds", "unreadable_objects", "refused_owners"):
        assert not [line for line in left if line.startswith(f"topogate_{series}{{")]


class Passes:
    """The passes of a leader that ends with the fourth; the second one sees a new configuration."""

    def __init__(self, store: ConfigurationStore, stopping: threading.Event) -> None:
        self.store, self.stopping = store, stopping
        self.prefixes: list[str] = []

    def cache(self, _api: object, prefix: str) -> Any:
        self.prefixes.append(prefix)
        unchanged = threading.Event()
        unchanged.set()
        return SimpleNamespace(
            start=int, stop=int, owners=None, is_for_leaders=True, changed=unchanged,
            pods=SimpleNamespace(items=dict), nodes=SimpleNamespace(items=dict),
        )  # fmt: skip

    def sweeper(self, surroundings: Pass) -> Any:
        return SimpleNamespace(sweep=lambda: self.sweep(surroundings.settings.gate_prefix), close=int)

    def sweep(self, prefix: str) -> float:
        self.prefixes.append(prefix)
        if len(self.prefixes) == 3:
            self.store.configuration = Configuration(settings=Settings(gate_prefix="example.com/new-"))
        if len(self.prefixes) == 6:
            self.stopping.set()
        return 0.0


@pytest.mark.promise("O54")
def test_a_leader_begins_again_with_new_settings_and_not_before(monkeypatch: pytest.MonkeyPatch) -> None:
    store, stopping = ConfigurationStore([]), threading.Event()
    passes = Passes(store, stopping)
    monkeypatch.setattr(process, "ClusterCache", passes.cache)
    monkeypatch.setattr(process, "Sweeper", passes.sweeper)
    nothing: Any = None
    process._Process(nothing, store, stopping, None, nothing).run()
    old, new = Settings().gate_prefix, "example.com/new-"
    assert passes.prefixes == [old, old, old, new, new, new]


def test_who_does_not_lead_any_more_records_no_event() -> None:
    recorded: list[str] = []
    recorder: Any = SimpleNamespace(
        event=lambda about, *_, **__: recorded.append(f"{about.kind} {about.name}")
    )
    owners: Any = SimpleNamespace(reference=lambda _: None)
    leads = [True, True, False, False]
    events = process._Events(recorder, owners, lambda: leads.pop(0))
    pod, node = Pod(PodMetadata(name="p", namespace="ns")), Node(NodeMetadata(name="n"))
    for _ in range(2):
        events.announce(pod, EventReason.GANG_PLACED, "a note")
        events.announce_on_node(node, EventReason.NODE_AVOIDED, "a note")
    assert recorded == ["Pod p", "Node n"]
