"""Each example, on a real control plane with topogate at work, becomes what its first lines say.

JobSet, LeaderWorkerSet and PyTorchJob are served without their controllers: `controllers` makes their pods.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from hack.local import claims, nodes
from hack.local.build import ROOT
from hack.local.cluster import Cluster
from hack.local.install import Installation
from labeler.contract import keys
from tests.definitions import define, wait_gone, wait_served
from tests.installation import installed_on
from tests.manifests import controllers
from tests.support import delete, wait_for_pods
from webhook.workloads import marks

EXAMPLES = ROOT / "manifests" / "examples"
SHAPE = nodes.Shape(nodes=16, blocks=2, subblocks=2, gpus=8, intel=2)
KINDS = {
    "JobSet": ("jobset.x-k8s.io", "v1alpha2"),
    "LeaderWorkerSet": ("leaderworkerset.x-k8s.io", "v1"),
    "PyTorchJob": ("kubeflow.org", "v1"),
}
Pods = list[dict[str, Any]]


@pytest.fixture(scope="module")
def kinds(module_cluster: Cluster) -> Iterator[None]:
    """The kinds of other projects that examples need."""
    paths = [define(module_cluster, kind, group, version) for kind, (group, version) in KINDS.items()]
    for kind, (group, version) in KINDS.items():
        wait_served(module_cluster, f"{group}/{version}", kind)
    yield
    for path in paths:
        delete(module_cluster.api(), path)
    for path in paths:
        wait_gone(module_cluster, path)


@pytest.fixture(scope="module")
def installed(module_cluster: Cluster, kinds: None) -> Iterator[Installation]:
    """topogate as its manifests say, on sixteen labelled nodes."""
    with installed_on(module_cluster, SHAPE) as installation:
        yield installation


def applied(installed: Installation, namespace: str, file: str, count: int) -> Pods:
    """The pods of an example once so many run, those that say their rank in its order."""
    path = EXAMPLES / file
    installed.cluster.kubectl("apply", "-n", namespace, "-f", str(path))
    for manifest in yaml.safe_load_all(path.read_text()):
        if manifest["kind"] in KINDS:
            group, version = KINDS[manifest["kind"]]
            name, resource = manifest["metadata"]["name"], manifest["kind"].lower() + "s"
            served = f"/apis/{group}/{version}/namespaces/{namespace}/{resource}/{name}"
            controllers.make_pods(installed.api, namespace, installed.api.json("GET", served))
    pods = wait_for_pods(
        installed.cluster,
        namespace,
        lambda pods: [pod["status"]["phase"] for pod in pods] == ["Running"] * count,
        f"{count} running pods of {file}",
    )
    return sorted(pods, key=lambda pod: int(pod["metadata"].get("labels", {}).get(marks.JOB_INDEX_KEY, 0)))


def subblocks_of(pods: Pods) -> list[str]:
    """Nodes are called node-b<block>-s<subblock>-h<host>."""
    return [re.sub(r"-h\d+$", "", pod["spec"]["nodeName"]) for pod in pods]


def blocks_of(pods: Pods) -> set[str]:
    return {subblock.rpartition("-")[0] for subblock in subblocks_of(pods)}


def gangs_of(installed: Installation, namespace: str) -> dict[str, int]:
    """Pods of each plan."""
    found = installed.api.json("GET", f"/apis/topogate.io/v1alpha1/namespaces/{namespace}/placements")
    return {each["spec"]["gang"]: len(each["spec"]["pods"]) for each in found["items"]}


@pytest.mark.promise("R3", "O238", "R230")
def test_an_indexed_job_is_one_gang_in_one_subblock(installed: Installation, opted_in: str) -> None:
    pods = applied(installed, opted_in, "01-indexed-job.yaml", 4)
    assert len(set(subblocks_of(pods))) == 1
    assert gangs_of(installed, opted_in) == {"Job/train": 4}


@pytest.mark.promise("O238", "R230")
def test_the_jobs_of_a_jobset_are_one_gang_in_one_block(installed: Installation, opted_in: str) -> None:
    pods = applied(installed, opted_in, "02-jobset.yaml", 5)
    assert len(blocks_of(pods)) == 1
    assert gangs_of(installed, opted_in) == {"JobSet/pretrain": 5}


@pytest.mark.promise("O238", "R230")
def test_each_group_of_a_leaderworkerset_is_a_gang_in_a_subblock(
    installed: Installation, opted_in: str
) -> None:
    pods = applied(installed, opted_in, "03-leaderworkerset.yaml", 6)
    for group in ("0", "1"):
        members = [
            pod for pod in pods if pod["metadata"]["labels"][f"{controllers.LWS}/group-index"] == group
        ]
        assert len(members) == 3
        assert len(set(subblocks_of(members))) == 1


@pytest.mark.promise("R230")
def test_master_and_workers_of_a_pytorchjob_are_one_gang_in_one_subblock(
    installed: Installation, opted_in: str
) -> None:
    pods = applied(installed, opted_in, "04-pytorchjob.yaml", 3)
    assert len(set(subblocks_of(pods))) == 1
    assert gangs_of(installed, opted_in) == {"TrainingJob/finetune": 3}


@pytest.mark.promise("R42")
def test_pods_with_the_gang_annotation_are_one_gang(installed: Installation, opted_in: str) -> None:
    pods = applied(installed, opted_in, "05-bare-gang.yaml", 3)
    assert len(set(subblocks_of(pods))) == 1
    assert gangs_of(installed, opted_in) == {"Gang/ring": 3}


@pytest.mark.promise("O238")
def test_two_pods_share_one_intel_card(installed: Installation, opted_in: str) -> None:
    pods = applied(installed, opted_in, "06-shared-intel-cards.yaml", 2)
    cards = {pod["metadata"]["annotations"][keys.GAS_CARDS_ANNOTATION] for pod in pods}
    assert len({pod["spec"]["nodeName"] for pod in pods}) == 1
    assert cards in ({"card0"}, {"card1"})


@pytest.mark.promise("R2", "R41")
def test_a_tier_becomes_a_class_and_a_model_a_selector(installed: Installation, opted_in: str) -> None:
    (pod,) = applied(installed, opted_in, "07-tiers-and-models.yaml", 1)
    assert (pod["spec"]["priorityClassName"], pod["spec"]["priority"]) == ("gpu-high-priority", 100)
    assert pod["spec"]["nodeSelector"] == {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}


@pytest.mark.promise("O238", "R46")
def test_each_slice_has_a_subblock(installed: Installation, opted_in: str) -> None:
    pods = applied(installed, opted_in, "08-slices.yaml", 6)
    places = subblocks_of(pods)
    assert [places[rank] == places[rank + 1] for rank in (0, 2, 4)] == [True] * 3


@pytest.mark.promise("R39")
def test_a_pod_that_opts_out_is_left_alone(installed: Installation, opted_in: str) -> None:
    (pod,) = applied(installed, opted_in, "09-opt-out.yaml", 1)
    assert "affinity" not in pod["spec"]
    assert "priorityClassName" not in pod["spec"]
    assert gangs_of(installed, opted_in) == {}


@pytest.mark.promise("R149")
def test_a_gputask_becomes_a_running_pod_of_its_class_and_model(
    installed: Installation, opted_in: str
) -> None:
    (pod,) = applied(installed, opted_in, "10-gputask.yaml", 1)
    assert (pod["spec"]["priorityClassName"], pod["spec"]["priority"]) == ("gpu-low-priority", 1)
    assert pod["spec"]["nodeSelector"] == {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}
    assert pod["spec"]["containers"][0]["resources"]["requests"] == {
        "cpu": "8", "memory": "16Gi", "nvidia.com/gpu": "1",
    }  # fmt: skip
    assert gangs_of(installed, opted_in) == {"Job/finetune": 1}


@pytest.mark.promise("R161")
def test_the_workers_of_a_gputask_are_one_gang_in_one_block(installed: Installation, opted_in: str) -> None:
    pods = applied(installed, opted_in, "11-gputask-gang.yaml", 3)
    assert len(blocks_of(pods)) == 1
    assert gangs_of(installed, opted_in) == {"Job/pretrain": 3}
    api, path = installed.cluster.api(), f"/apis/discovery.k8s.io/v1/namespaces/{opted_in}/endpointslices"

    def names() -> set[str]:
        slices = api.json("GET", path)["items"]
        return {each.get("hostname", "") for part in slices for each in part.get("endpoints") or ()}

    installed.cluster.wait_for(
        "the workers' names in DNS", lambda: names() == {f"pretrain-{rank}" for rank in range(3)}
    )


@pytest.mark.promise("O238", "R48")
def test_the_replicas_of_a_service_are_spread_over_both_blocks(
    installed: Installation, opted_in: str
) -> None:
    pods = applied(installed, opted_in, "12-spread.yaml", 4)
    blocks = [subblock.rpartition("-")[0] for subblock in subblocks_of(pods)]
    assert sorted(blocks.count(block) for block in set(blocks)) == [2, 2]


@pytest.mark.promise("O238", "R126")
@pytest.mark.kubernetes("1.34")
def test_a_gang_with_claims_is_packed_onto_the_nodes_with_devices(
    installed: Installation, opted_in: str
) -> None:
    api = installed.cluster.api()
    claims.publish(api, nodes.grid(SHAPE))
    try:
        pods = applied(installed, opted_in, "13-claims.yaml", 4)
    finally:
        claims.withdraw(api)
    assert len({pod["spec"]["nodeName"] for pod in pods}) == 2
    assert len(set(subblocks_of(pods))) == 1
    assert gangs_of(installed, opted_in) == {"Job/claims": 4}


@pytest.mark.promise("O238")
def test_every_example_has_a_test() -> None:
    tested = re.findall(r'"(\d\d-[a-z-]+\.yaml)"', Path(__file__).read_text())
    assert sorted(tested) == sorted(path.name for path in EXAMPLES.glob("*.yaml"))
