"""On the real API server: what pods that can never run, or wait for long, cost others, and their Events."""

import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import yaml

from hack.local.cluster import Cluster
from hack.local.controlplane import free_port
from hack.local.processes import open_tied
from labeler.contract import keys
from tests.support import create_namespace
from tests.sweeper.at_work import (
    Pods,
    create_job,
    create_large_behind_blocker,
    create_pod,
    is_gated,
    named,
    run_all,
    sweep,
    template,
)
from webhook.configuration.settings import Settings
from webhook.kube.client import Api

NOBODY = "nobody"


def placements(api: Api, namespace: str) -> dict[str, dict[str, Any]]:
    """The status of each gang's Placement, by the beginning of its name."""
    path = f"/apis/topogate.io/v1alpha1/namespaces/{namespace}/placements"
    return {item["metadata"]["name"]: item.get("status", {}) for item in api.json("GET", path)["items"]}


def reason_of(api: Api, namespace: str, begin: str) -> str:
    """Why that gang waits, "" while no reason is known."""
    found = [each for name, each in placements(api, namespace).items() if name.startswith(begin)]
    return str(found[0].get("reason", "")) if found else ""


def with_cards(**spec: Any) -> dict[str, Any]:
    """A gated pod that takes all of a card."""
    body = template(1, **spec)
    limits = {keys.I915: 1, keys.MILLICORES: 1000}
    body["spec"]["containers"] = [{"name": "c", "image": "x", "resources": {"limits": limits}}]
    return body


def test_a_pod_of_a_scheduler_that_nobody_runs_costs_another_tenant_s_gang_no_pod(
    heterogeneous_nodes: Cluster, namespace: str
) -> None:
    api, theirs = heterogeneous_nodes.api(), create_namespace(heterogeneous_nodes)
    create_pod(api, theirs, "evil", with_cards(schedulerName=NOBODY))
    create_job(api, namespace, "quiet", 2, with_cards())
    settings = Settings(bind_seconds=1, rollback_seconds=1, settle_seconds=0.1)
    pods = sweep(
        heterogeneous_nodes,
        namespace,
        settings,
        lambda pods: run_all(pods, "quiet", 2),
        "the quiet gang to run",
    )
    uids = {pod["metadata"]["uid"] for pod in pods}
    until = time.monotonic() + 3

    def later(pods: Pods) -> bool:
        return time.monotonic() > until and NOBODY in reason_of(api, theirs, "pod-evil")

    pods = sweep(heterogeneous_nodes, namespace, settings, later, "the other pod to be told")
    assert {pod["metadata"]["uid"] for pod in pods} == uids
    (evil,) = api.json("GET", f"/api/v1/namespaces/{theirs}/pods")["items"]
    assert is_gated(evil)


def test_while_their_scheduler_is_away_released_pods_are_not_deleted(
    heterogeneous_nodes: Cluster, namespace: str
) -> None:
    api = heterogeneous_nodes.api()
    create_job(api, namespace, "quiet", 2, with_cards())
    settings = Settings(bind_seconds=0.5, rollback_seconds=0.5, settle_seconds=0.1)
    begun = time.monotonic()
    with heterogeneous_nodes.paused("kube-scheduler"):
        pods = sweep(
            heterogeneous_nodes,
            namespace,
            settings,
            lambda pods: time.monotonic() > begun + 4 and any(not is_gated(pod) for pod in pods),
            "passes beyond the time for binding",
        )
    uids = {pod["metadata"]["uid"] for pod in pods}
    pods = sweep(
        heterogeneous_nodes, namespace, settings, lambda pods: run_all(pods, "quiet", 2), "the gang to run"
    )
    assert {pod["metadata"]["uid"] for pod in pods} == uids


@pytest.mark.promise("S2")
def test_beside_many_pods_that_fit_nowhere_a_gang_runs_and_each_of_them_has_a_reason(
    two_nodes: Cluster, namespace: str
) -> None:
    api, theirs = two_nodes.api(), create_namespace(two_nodes)
    for number in range(120):
        create_pod(api, theirs, f"big-{number}", template(9, priorityClassName="high"))
    create_job(api, namespace, "quiet", 2, template(8))

    def is_over(pods: Pods) -> bool:
        reported = [each.get("reason", "") for each in placements(api, theirs).values()]
        return run_all(pods, "quiet", 2) and len(reported) == 120 and all(reported)

    sweep(two_nodes, namespace, Settings(), is_over, "the quiet gang to run, and all others to be told")


def test_who_is_excluded_from_reserved_nodes_sees_by_whom_and_gets_them_in_time(
    two_nodes: Cluster, namespace: str
) -> None:
    api = two_nodes.api()
    create_large_behind_blocker(two_nodes, namespace)
    settings = Settings(reserve_seconds=0, reserve_hold_seconds=8, reserve_share=0.5)

    def is_reserved(_: Pods) -> bool:
        return any(each.get("reservedNodes") for each in placements(api, namespace).values())

    sweep(two_nodes, namespace, settings, is_reserved, "the large gang to hold a node")
    reserved = [
        each["reservedNodes"] for each in placements(api, namespace).values() if each.get("reservedNodes")
    ]
    assert [len(nodes) for nodes in reserved] == [1], "half of two nodes"
    create_pod(api, namespace, "small", template(1))
    seen: list[str] = []

    def it_runs(pods: Pods) -> bool:
        if is_gated(named(pods, "small")[0]):
            seen.append(reason_of(api, namespace, "pod-small"))
        return run_all(pods, "small", 1)

    sweep(two_nodes, namespace, settings, it_runs, "the small pod to run when nothing is held any more")
    reported = f"1 for {namespace}/Job/large until "
    assert any("reserved for gangs that have waited longer: " + reported in each for each in seen), seen


def answer(url: str) -> tuple[int, str]:
    """Status and text; 0 while nothing listens."""
    try:
        with urllib.request.urlopen(url, timeout=5) as answers:
            return answers.status, answers.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except OSError:
        return 0, ""


def test_a_sweeper_whose_token_is_refused_is_not_ready_and_reports_nothing_that_it_does_not_know(
    cluster: Cluster, tmp_path: Path
) -> None:
    config = yaml.safe_load(cluster.kubeconfig.read_text())
    config["users"] = [{**each, "user": {"token": "nobody's"}} for each in config["users"]]
    file, port = tmp_path / "kubeconfig", free_port()
    file.write_text(yaml.safe_dump(config))
    words = ("--kubeconfig", str(file), "--metrics-address", "127.0.0.1", "--metrics-port", str(port))
    program = open_tied([sys.executable, "-m", "webhook.sweeper.main", *words], stderr=subprocess.DEVNULL)
    answers: list[tuple[int, str]] = []

    def is_reported() -> bool:
        answers.append(answer(f"http://127.0.0.1:{port}/readyz"))
        return answers[-1][0] == 503 and "401" in answers[-1][1]

    try:
        cluster.wait_for("the sweeper to say that it is not ready, and why", is_reported)
        status, metrics = answer(f"http://127.0.0.1:{port}/metrics")
    finally:
        program.terminate()
        program.wait()
    assert status == 200
    assert "topogate_leader 0.0" in metrics.splitlines()
    assert "\ntopogate_oldest_gated_pod_seconds " not in metrics
