"""A node on which pods fail again and again, on the real control plane: its kubelet is played."""

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from hack.local.build import ROOT
from hack.local.cluster import Cluster
from hack.local.faults import EXIT, NOT_ADMITTED, BrokenNodes, refused
from labeler.contract import keys
from tests.support import create_namespace, delete_namespace
from tests.sweeper.at_work import Pods, create_job, run_all, sweep, template
from webhook.configuration.settings import Avoid, BadNodes, Settings, SpareNodes
from webhook.extensions.node_health import avoided_nodes
from webhook.kube.client import MERGE_PATCH, Api
from webhook.kube.state_config_map import NAMESPACE, path_of

PATH = path_of(avoided_nodes.NAME)

SETTINGS = Settings(
    settle_seconds=0.2,
    interval_seconds=0.2,
    bad_nodes=BadNodes(failures=2, outlive_seconds=0, soon_seconds=60),
)


@pytest.fixture
def tenants(two_subblocks: Cluster) -> Iterator[tuple[str, str, str]]:
    """Three namespaces on six nodes, and the object in which failures are kept."""
    two_subblocks.api().request("POST", "/api/v1/namespaces", body={"metadata": {"name": NAMESPACE}})
    manifest = ROOT / "manifests" / "base" / "node-failures.yaml"
    two_subblocks.kubectl("apply", "--server-side", "-f", str(manifest))
    names = create_namespace(two_subblocks), create_namespace(two_subblocks), create_namespace(two_subblocks)
    yield names
    for name in names:
        delete_namespace(two_subblocks, name)


def places(pods: Pods) -> list[str]:
    return sorted(pod["spec"].get("nodeName", "") for pod in pods)


def stored(api: Api) -> list[dict[str, Any]]:
    data = api.json("GET", PATH).get("data") or {}
    found: list[dict[str, Any]] = json.loads(data.get("failures") or "[]")
    return found


def one_gang(cluster: Cluster, namespace: str, broken: BrokenNodes, how: str = EXIT) -> None:
    """A gang of two whose pod on the broken node fails while the other runs on; then it is deleted."""
    api, broken.how = cluster.api(), how
    create_job(api, namespace, "train", 2, template(8))
    before = len(stored(api))

    def is_proven(pods: Pods) -> bool:
        broken.nodes = broken.nodes or {min(places(pods))} - {""}
        broken.fail_once()
        found = stored(api)
        return len(found) > before and all(each["state"] == "proven" for each in found)

    sweep(cluster, namespace, SETTINGS, is_proven, "a failure that speaks against its node")
    delete_gang(cluster, namespace, "train")


def delete_gang(cluster: Cluster, namespace: str, name: str) -> None:
    path = f"/apis/batch/v1/namespaces/{namespace}/jobs/{name}"
    cluster.api().request("DELETE", path, query={"propagationPolicy": "Background"})
    pods = f"/api/v1/namespaces/{namespace}/pods"
    cluster.wait_for("the end of the gang", lambda: not cluster.api().json("GET", pods)["items"])


def avoided(api: Api) -> list[str]:
    return [each.node for each in avoided_nodes.avoided(api.json("GET", PATH)["data"])]


@pytest.mark.promise("O139")
def test_a_node_where_gangs_of_two_namespaces_failed_is_avoided_by_a_third_while_others_have_capacity(
    two_subblocks: Cluster, tenants: tuple[str, str, str]
) -> None:
    """Each gang has a sweeper of its own, which knows of the earlier ones what the API server keeps."""
    api, third = two_subblocks.api(), tenants[2]
    broken = BrokenNodes(api)
    one_gang(two_subblocks, tenants[0], broken)
    one_gang(two_subblocks, tenants[1], broken, NOT_ADMITTED)
    (bad,) = broken.nodes
    assert {node for node, _ in broken.failed} == {bad}
    create_job(api, third, "train", 2, template(8))
    pods = sweep(two_subblocks, third, SETTINGS, lambda pods: run_all(pods, "train", 2), "a gang that runs")
    assert bad not in places(pods)
    (placement,) = api.json("GET", f"/apis/topogate.io/v1alpha1/namespaces/{third}/placements")["items"]
    assert list(placement["spec"]["avoided"]) == [bad]
    assert "pods of 2 gangs failed there and ran elsewhere" in placement["spec"]["avoided"][bad]
    assert not any(name in json.dumps(placement["spec"]["avoided"]) for name in tenants)

    create_job(api, third, "rest", 4, template(8))
    pods = sweep(two_subblocks, third, SETTINGS, lambda pods: run_all(pods, "rest", 4), "the other nodes")
    assert bad in places(pods)

    assert avoided(api) == [bad]
    reset = {keys.RESET_FAILURES_ANNOTATION: "2999-01-01T00:00:00Z"}
    body = {"metadata": {"annotations": reset}}
    api.request("PATCH", f"/api/v1/nodes/{bad}", body=body, content_type=MERGE_PATCH)
    sweep(two_subblocks, third, SETTINGS, lambda _: not avoided(api), "that nothing is avoided any more")


@pytest.mark.promise("R306")
def test_what_a_kubelet_has_refused_runs_elsewhere(
    two_subblocks: Cluster, tenants: tuple[str, str, str]
) -> None:
    """A StatefulSet makes the next pod at once. No setting switches this off."""
    api, namespace = two_subblocks.api(), tenants[0]
    off = replace(SETTINGS, bad_nodes=BadNodes(avoid=Avoid.OFF))
    reasons = {"topology": "TopologyAffinityError", "out": "OutOfnvidia.com/gpu", "down": "NodeShutdown"}
    for name in reasons:
        body = template(8)
        body["metadata"]["labels"] = {"app": name}
        selector = {"matchLabels": {"app": name}}
        spec = {"replicas": 1, "serviceName": name, "selector": selector, "template": body}
        path = f"/apis/apps/v1/namespaces/{namespace}/statefulsets"
        api.request("POST", path, body={"metadata": {"name": name}, "spec": spec})
    before: dict[str, tuple[str, str]] = {}

    def have_moved(pods: Pods) -> bool:
        if not before and run_all(pods, "", 3):
            for pod in pods:
                name = pod["metadata"]["name"]
                before[name] = pod["metadata"]["uid"], pod["spec"]["nodeName"]
                status = refused(reasons[name.removesuffix("-0")], "as a test will have it")
                path = f"/api/v1/namespaces/{namespace}/pods/{name}/status"
                api.request("PATCH", path, body={"status": status}, content_type=MERGE_PATCH)
        others = all(pod["metadata"]["uid"] not in [uid for uid, _ in before.values()] for pod in pods)
        return bool(before) and others and run_all(pods, "", 3)

    pods = sweep(two_subblocks, namespace, off, have_moved, "the next pods to run")
    for pod in pods:
        assert pod["spec"]["nodeName"] != before[pod["metadata"]["name"]][1], pod["metadata"]["name"]
    assert stored(api) == []


@pytest.mark.promise("O135")
def test_a_program_that_fails_wherever_it_runs_condemns_no_node(
    two_subblocks: Cluster, tenants: tuple[str, str, str]
) -> None:
    api = two_subblocks.api()
    names = [node["metadata"]["name"] for node in api.json("GET", "/api/v1/nodes")["items"]]
    broken = BrokenNodes(api, names)
    for number, namespace in enumerate(tenants[:2], 1):
        create_job(api, namespace, "train", 2, template(8))

        def is_recorded(_: Pods, number: int = number) -> bool:
            broken.fail_once()
            return len({each["namespace"] for each in stored(api)}) == number

        sweep(two_subblocks, namespace, SETTINGS, is_recorded, "a failure that is kept")
    assert {each["state"] for each in stored(api)} == {"open"}
    assert avoided(api) == []


@pytest.mark.promise("O150")
def test_the_successor_of_a_pod_on_a_bad_node_uses_the_spare_node_of_its_block(
    two_subblocks: Cluster, tenants: tuple[str, str, str]
) -> None:
    api, (own, other, _) = two_subblocks.api(), tenants
    settings = replace(SETTINGS, spare_nodes=SpareNodes(per_block=1))
    names = {node["metadata"]["name"] for node in api.json("GET", "/api/v1/nodes")["items"]}
    create_job(api, own, "train", len(names) - 1, template(8))

    def runs(pods: Pods) -> bool:
        return run_all(pods, "train", len(names) - 1)

    pods = sweep(two_subblocks, own, settings, runs, "a gang on all nodes but the spare one")
    (spare,) = names - set(places(pods))
    create_job(api, other, "small", 1, template(8))

    def is_reported(_: Pods) -> bool:
        found = api.json("GET", f"/apis/topogate.io/v1alpha1/namespaces/{other}/placements")["items"]
        reasons = [each.get("status", {}).get("reason", "") for each in found]
        return any("1 free node is reserved for replacements of failed pods" in each for each in reasons)

    sweep(two_subblocks, other, settings, is_reported, "a new gang that is kept off the spare node")
    delete_gang(two_subblocks, other, "small")
    bad = min(places(pods))
    broken = BrokenNodes(api, {bad})

    def has_moved(pods: Pods) -> bool:
        broken.fail_once()
        return runs([each for each in pods if each["status"]["phase"] != "Failed"]) and spare in places(pods)

    sweep(two_subblocks, own, settings, has_moved, "the gang to be whole again")
    assert {node for node, _ in broken.failed} == {bad}
    assert len(broken.failed) == 1, "the successor was sent to the bad node"
