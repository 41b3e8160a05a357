"""A node on which pods fail again and again, on the real control plane: its kubelet is played."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from hack.local.build import ROOT
from hack.local.cluster import Cluster
from labeler.contract import keys
from tests.broken_nodes import EXIT, NOT_ADMITTED, BrokenNodes
from tests.support import create_namespace, delete_namespace
from tests.sweeper.at_work import Pods, create_job, run_all, sweep, template
from webhook.configuration.settings import BadNodes, Settings
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
