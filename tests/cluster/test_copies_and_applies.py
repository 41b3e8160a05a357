"""Copies of a placed pod, and manifests of bare pods that are applied twice, as with GitOps."""

import json
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from hack.local import nodes
from hack.local.cluster import Cluster
from hack.local.install import Installation
from labeler.contract import keys
from tests.installation import installed_on
from tests.support import wait_for_pods

SHAPE = nodes.Shape(nodes=4, blocks=1, subblocks=1, gpus=8)
BLOCK = keys.PRERELEASE_TOPOLOGY[0]
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
IN_BLOCK = {"matchExpressions": [{"key": BLOCK, "operator": "In", "values": ["b0"]}]}
OWN_AFFINITY = {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [IN_BLOCK]}}}}


@pytest.fixture(scope="module")
def installed(module_cluster: Cluster) -> Iterator[Installation]:
    """topogate as its manifests say, on four labelled nodes."""
    with installed_on(module_cluster, SHAPE) as installation:
        yield installation


def manifest(name: str, **spec: Any) -> str:
    container = {"name": "c", "image": "x", "resources": {"limits": {"nvidia.com/gpu": 8}}}
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"containers": [container], **spec},
    }
    return json.dumps(body)


def runs(pods: list[dict[str, Any]]) -> bool:
    return bool(pods) and all(pod["status"]["phase"] == "Running" for pod in pods)


SPECS: dict[str, dict[str, Any]] = {
    "plain": {},
    "with-a-node-selector": {"nodeSelector": {BLOCK: "b0"}},
    "with-node-affinity-of-its-own": OWN_AFFINITY,
}


@pytest.mark.promise("R215")
@pytest.mark.parametrize(
    ("how", "refusal"),
    [
        (["--server-side"], 'conflict with "topogate-sweeper" using v1: .spec.affinity.nodeAffinity'),
        ([], "pod updates may not change fields"),
    ],
    ids=["by the server", "by kubectl"],
)
def test_a_bare_pod_may_be_applied_again_unless_it_has_node_affinity_of_its_own(
    installed: Installation, opted_in: str, how: list[str], refusal: str
) -> None:
    bodies = {name: manifest(name, **spec) for name, spec in SPECS.items()}

    def apply(*names: str) -> subprocess.CompletedProcess[str]:
        text = "\n---\n".join(bodies[name] for name in names)
        return installed.cluster.kubectl("apply", *how, "-n", opted_in, "-f", "-", stdin=text, check=False)

    first = apply(*bodies)
    assert first.returncode == 0, first.stderr
    wait_for_pods(
        installed.cluster, opted_in, lambda pods: len(pods) == len(SPECS) and runs(pods), "the pods to run"
    )
    *others, last = bodies
    again = apply(*others)
    assert again.returncode == 0, again.stderr
    refused = apply(last)
    assert (refused.returncode, refusal in refused.stderr) == (1, True), refused.stderr


@pytest.mark.promise("R215")
def test_a_copy_of_a_placed_pod_is_warned_of_the_pin_and_runs_once_it_is_made_without(
    installed: Installation, opted_in: str
) -> None:
    cluster = installed.cluster
    cluster.kubectl("create", "-n", opted_in, "-f", "-", stdin=manifest("work"))
    (pod,) = wait_for_pods(cluster, opted_in, runs, "the pod to run")
    node = pod["spec"]["nodeName"]
    copied = ("debug", "work", "--copy-to=copy", "--container=c", "--image=y", "--attach=false")
    warnings = cluster.kubectl("-n", opted_in, *copied, "--", "sh").stderr
    assert (
        f'spec.affinity.nodeAffinity matchFields: only "{node}" fits; remove it from a copied pod' in warnings
    )
    path = f"/api/v1/namespaces/{opted_in}/pods/copy"
    copy = installed.api.json("GET", path)
    installed.api.request("DELETE", path, query={"gracePeriodSeconds": "0"})
    del copy["spec"]["affinity"], copy["metadata"]["uid"], copy["metadata"]["resourceVersion"]
    remade = cluster.kubectl("create", "-n", opted_in, "-f", "-", stdin=json.dumps(copy))
    assert "Warning" not in remade.stderr
    pods = wait_for_pods(cluster, opted_in, lambda pods: len(pods) == 2 and runs(pods), "the copy to run")
    assert len({pod["spec"]["nodeName"] for pod in pods}) == 2
