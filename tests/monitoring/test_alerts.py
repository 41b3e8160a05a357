"""Each alert fires in the state that it is for, by Prometheus' own judgement, and none when all is well.

The series are what our programs answer at /metrics: the webhook as a process, the others from the registries
that they serve. Of states that take hours to come, their series get the values that they have then.
"""

import json
import subprocess
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.admission.alone import serving
from tests.admission.harness import HOSTS, Webhook
from tests.monitoring.conftest import API_SERVER, FAILS_OPEN, sweeper_series
from tests.monitoring.scrapes import (
    COMPONENT,
    NOT_HERE,
    PROMTOOL,
    Series,
    State,
    alerts,
    changed,
    fires,
    fires_nothing,
    read,
    rules,
)
from webhook.admission import certificates

pytestmark = pytest.mark.skipif(not PROMTOOL, reason=NOT_HERE)

NAMES = [alert["alert"] for alert in alerts()]
SWEEPER, WEBHOOK, TASKS, ALLOCATOR = (
    f"topogate-{name}" for name in ("sweeper", "webhook", "tasks", "allocator")
)


def alert(name: str) -> dict[str, Any]:
    return next(each for each in alerts() if each["alert"] == name)


def assert_fires(name: str, state: State, folder: Path) -> None:
    found = fires(alert(name), state, folder)
    assert found.returncode == 0, found.stdout + found.stderr


def test_prometheus_takes_the_rules_and_finds_nothing_odd(tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(rules()))
    found = subprocess.run(
        [PROMTOOL, "check", "rules", "--lint-fatal", "rules.yaml"],
        cwd=tmp_path, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert found.returncode == 0, found.stdout + found.stderr
    assert f"{len(NAMES)} rules found" in found.stdout


def test_nothing_fires_when_all_is_well(calm: State, tmp_path: Path) -> None:
    found = fires_nothing(calm, tmp_path)
    assert found.returncode == 0, found.stdout + found.stderr


def webhook_with_an_old_certificate(folder: Path) -> tuple[Series, ...]:
    with serving(folder) as webhook:
        webhook.write_pair(certificates.issue(HOSTS, timedelta(days=3)))
        wait_for(webhook, "topogate_certificate_expiry_timestamp_seconds", lambda value: value < 2e9)
        return read(webhook.get("/metrics")[1].decode())


def webhook_with_broken_files(folder: Path) -> tuple[Series, ...]:
    with serving(folder) as webhook:
        good = webhook.pair
        (folder / "tls.crt").write_text("no certificate")
        webhook.write_policy("nonsense: true\n")
        for name in ("topogate_certificate_rejected", "topogate_policy_rejected"):
            wait_for(webhook, name, lambda value: value == 1)
        assert webhook.pair is good
        return read(webhook.get("/metrics")[1].decode())


def wait_for(webhook: Webhook, name: str, is_so: Callable[[float], bool]) -> None:
    webhook.wait(lambda: is_so(webhook.metric(name)), name)


@pytest.mark.parametrize(
    ("name", "state_of"),
    [
        ("TopogateCertificateEnds", webhook_with_an_old_certificate),
        ("TopogateCertificateRejected", webhook_with_broken_files),
        ("TopogatePolicyRejected", webhook_with_broken_files),
    ],
)
def test_a_webhook_with_bad_files_is_told_of(
    name: str, state_of: Callable[[Path], tuple[Series, ...]], calm: State, tmp_path: Path
) -> None:
    assert_fires(name, calm.but(WEBHOOK, state_of(tmp_path)), tmp_path)


def test_a_webhook_that_does_not_answer_is_told_of(calm: State, tmp_path: Path) -> None:
    assert_fires("TopogateWebhookDown", calm.but(WEBHOOK, None), tmp_path)


@pytest.mark.parametrize("how", [{"growth": 1.0}, {"first": 97}], ids=["rises", "appears"])
def test_pods_that_pass_without_the_webhook_are_told_of(
    how: dict[str, Any], calm: State, tmp_path: Path
) -> None:
    """As the API server counts them."""
    series = Series(FAILS_OPEN, (("name", "pods.topogate.io"), ("type", "admit")), 3)
    rising = changed((series,), FAILS_OPEN, 3, **how)
    assert_fires("TopogateWebhookFailsOpen", calm.but(API_SERVER, rising), tmp_path)


def test_a_sweeper_that_only_stands_by_is_told_of(calm: State, tmp_path: Path) -> None:
    assert_fires("TopogateNoLeader", calm.but(SWEEPER, sweeper_series(leads=False)), tmp_path)
    assert_fires("TopogateNoLeader", calm.but(SWEEPER, None), tmp_path)


def test_a_leader_that_has_not_read_everything_is_told_of(calm: State, tmp_path: Path) -> None:
    assert_fires("TopogateNotSynced", calm.but(SWEEPER, sweeper_series(knows=False)), tmp_path)


def test_gpu_nodes_without_labels_are_told_of(calm: State, tmp_path: Path) -> None:
    unplaced = changed(calm.jobs[SWEEPER], "topogate_unplaced_gpu_nodes", 1)
    assert_fires("TopogateLabelerAbsent", calm.but(SWEEPER, unplaced), tmp_path)


def test_a_labeler_that_does_not_run_is_told_of(calm: State, tmp_path: Path) -> None:
    labels = (("daemonset", "labeler"), ("namespace", "topogate-labeler"))
    series = (Series("kube_daemonset_status_number_unavailable", labels, 1),)
    assert_fires("TopogateLabelerAbsent", calm.but("kube-state-metrics", series), tmp_path)


@pytest.mark.parametrize(
    ("name", "job", "series", "more"),
    [
        ("TopogateNotSynced", SWEEPER, "topogate_watch_silence_seconds", {"value": 121}),
        ("TopogateGatedPodOld", SWEEPER, "topogate_oldest_gated_pod_seconds", {"value": 6 * 3600 + 1}),
        ("TopogateGangsUndecided", SWEEPER, "topogate_gangs_waiting", {"value": 1, "cause": "undecided"}),
        ("TopogateGangsFailing", SWEEPER, "topogate_gangs_waiting", {"value": 1, "cause": "refused"}),
        ("TopogateGangsFailing", SWEEPER, "topogate_gangs_waiting", {"value": 1, "cause": "defect"}),
        ("TopogateUnreadableObjects", SWEEPER, "topogate_unreadable_objects", {"value": 1}),
        ("TopogateEventsDropped", SWEEPER, "topogate_events_dropped_total", {"value": 0, "growth": 1}),
        ("TopogateClassesSilent", WEBHOOK, "topogate_priority_classes_silence_seconds", {"value": 301}),
        ("TopogateTasksNotLed", TASKS, "topogate_tasks_leading", {"value": 0}),
        ("TopogateTasksNotLed", TASKS, "topogate_tasks_watch_silence_seconds", {"value": 121}),
        ("TopogatePolicyRejected", TASKS, "topogate_tasks_policy_rejected", {"value": 1}),
        (
            "TopogateAllocatorAmbiguous",
            ALLOCATOR,
            "topogate_allocator_allocations_total",
            {"value": 0, "growth": 1, "outcome": "refused"},
        ),
        (
            "TopogateAllocatorAmbiguous",
            ALLOCATOR,
            "topogate_allocator_allocations_total",
            {"value": 1, "first": 95, "outcome": "refused"},
        ),
        ("TopogateAllocatorConflict", ALLOCATOR, "topogate_allocator_conflict", {"value": 1}),
    ],
)
def test_an_alert_fires_when_its_series_says_so(
    name: str, job: str, series: str, more: dict[str, Any], calm: State, tmp_path: Path
) -> None:
    assert_fires(name, calm.but(job, changed(calm.jobs[job], series, **more)), tmp_path)


def test_kinds_of_workloads_that_may_not_be_read_are_told_of(calm: State, tmp_path: Path) -> None:
    """While all can be read there is no such series."""
    refused = Series("topogate_refused_owners", (("resource", "jobsets.jobset.x-k8s.io"),), 1)
    state = calm.but(SWEEPER, (*calm.jobs[SWEEPER], refused))
    assert_fires("TopogateOwnersRefused", state, tmp_path)


def test_every_alert_is_fired_by_a_test() -> None:
    text = Path(__file__).read_text()
    assert [name for name in NAMES if f'"{name}"' not in text] == []


def test_the_dashboard_is_json_that_grafana_finds() -> None:
    dashboard = json.loads((COMPONENT / "topogate.json").read_text())
    assert dashboard["uid"] == "topogate"
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])
