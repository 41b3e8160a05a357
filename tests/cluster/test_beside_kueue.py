"""What Kueue does to Jobs, played on a real control plane: Kueue itself is not there.

Kueue admits a Job by `suspend: false`, and evicts it by `suspend: true`, as for its quota, for another job,
or when its pods are not ready in time (waitForPodsReady). Jobs that it places have its gate and the labels of
the nodes in their template.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest

from hack.local import nodes
from hack.local.cluster import Cluster
from hack.local.install import Installation
from labeler.contract import keys
from tests.cluster.jobs import all_run, create_job, gates
from tests.installation import installed_on
from tests.support import create_namespace, delete_namespace, wait_for_pods
from webhook.workloads import marks

pytestmark = pytest.mark.cluster

GPU: Final = "nvidia.com/gpu"
SHAPE: Final = nodes.Shape(nodes=2, blocks=1, subblocks=1, gpus=8)
SHAPE_NODES: Final = [each.name for each in nodes.grid(SHAPE)]


@pytest.fixture(scope="module")
def installed(module_cluster: Cluster) -> Iterator[Installation]:
    with installed_on(module_cluster, SHAPE) as installation:
        yield installation


@pytest.fixture
def team(installed: Installation) -> Iterator[str]:
    name = create_namespace(installed.cluster, {keys.INJECTION_LABEL: keys.INJECTION_ENABLED})
    yield name
    delete_namespace(installed.cluster, name)


def suspend(installed: Installation, team: str, job: str, *, suspended: bool) -> None:
    path = f"/apis/batch/v1/namespaces/{team}/jobs/{job}"
    content = "application/merge-patch+json"
    installed.api.request("PATCH", path, body={"spec": {"suspend": suspended}}, content_type=content)


def of_job(job: str, condition: Callable[[list[dict[str, Any]]], bool]) -> Callable[[list[Any]], bool]:
    """The condition for the pods of one Job."""
    return lambda pods: condition([pod for pod in pods if pod["metadata"]["name"].startswith(f"{job}-")])


def all_gated(count: int) -> Callable[[list[dict[str, Any]]], bool]:
    return lambda pods: gates(pods) == [keys.GATE] * count


def none(pods: list[dict[str, Any]]) -> bool:
    return pods == []


@pytest.mark.promise("O369")
def test_a_job_that_kueue_evicts_gives_its_nodes_to_the_gang_that_waits_and_waits_itself_when_admitted_again(
    installed: Installation, team: str
) -> None:
    create_job(installed.api, team, "first", 2, {GPU: 8})
    wait_for_pods(installed.cluster, team, all_run(2), "the first gang to run")
    create_job(installed.api, team, "second", 2, {GPU: 8})
    wait_for_pods(installed.cluster, team, of_job("second", all_gated(2)), "the second gang to wait")
    suspend(installed, team, "first", suspended=True)
    wait_for_pods(installed.cluster, team, of_job("first", none), "Kubernetes to delete the pods")
    wait_for_pods(installed.cluster, team, of_job("second", all_run(2)), "the second gang to run")
    suspend(installed, team, "first", suspended=False)
    wait_for_pods(installed.cluster, team, of_job("first", all_gated(2)), "the first gang to wait")


@pytest.mark.promise("O369")
def test_a_gang_that_kueue_evicts_while_it_waits_is_placed_once_it_is_admitted_again_and_fits(
    installed: Installation, team: str
) -> None:
    create_job(installed.api, team, "first", 2, {GPU: 8})
    wait_for_pods(installed.cluster, team, all_run(2), "the first gang to run")
    create_job(installed.api, team, "second", 2, {GPU: 8})
    wait_for_pods(installed.cluster, team, of_job("second", all_gated(2)), "the second gang to wait")
    suspend(installed, team, "second", suspended=True)
    wait_for_pods(installed.cluster, team, of_job("second", none), "Kubernetes to delete the pods")
    suspend(installed, team, "first", suspended=True)
    suspend(installed, team, "second", suspended=False)
    wait_for_pods(installed.cluster, team, of_job("second", all_run(2)), "the second gang to run")


@pytest.mark.promise("O369")
def test_pods_that_kueue_has_placed_run_on_and_their_gpus_are_taken_for_gangs_of_topogate(
    installed: Installation, team: str
) -> None:
    node = SHAPE_NODES[0]
    create_job(
        installed.api, team, "placed", 1, {GPU: 8},
        schedulingGates=[{"name": marks.KUEUE_TOPOLOGY_GATE}], nodeSelector={"kubernetes.io/hostname": node},
    )  # fmt: skip
    (pod,) = wait_for_pods(installed.cluster, team, lambda pods: len(pods) == 1, "the pod of Kueue's Job")
    assert gates([pod]) == [marks.KUEUE_TOPOLOGY_GATE]
    path = f"/api/v1/namespaces/{team}/pods/{pod['metadata']['name']}"
    ungated = [{"op": "remove", "path": "/spec/schedulingGates"}]
    installed.api.request("PATCH", path, body=ungated, content_type="application/json-patch+json")
    wait_for_pods(installed.cluster, team, all_run(1), "the pod to run where Kueue sends it")
    create_job(installed.api, team, "ours", 1, {GPU: 8})
    pods = wait_for_pods(installed.cluster, team, all_run(2), "topogate's gang to run beside it")
    assert {each["metadata"]["name"].split("-")[0]: each["spec"]["nodeName"] for each in pods} == {
        "placed": node, "ours": SHAPE_NODES[1],
    }  # fmt: skip
    create_job(installed.api, team, "more", 1, {GPU: 8})
    wait_for_pods(installed.cluster, team, of_job("more", all_gated(1)), "a gang without place to wait")
