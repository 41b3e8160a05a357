"""The webhook away: the API server gates the pods, the sweeper labels them, Events name what is missing."""

from typing import Any

import pytest

from hack.local import nodes
from hack.local.cluster import Cluster
from labeler.contract import keys
from tests.cluster.jobs import all_run, blocks_of
from tests.installation import installed_for
from tests.support import create_namespace, wait_for_pods

SHAPE = nodes.Shape(nodes=8, blocks=2, subblocks=2, gpus=8, intel=0)
GPUS = "nvidia.com/gpu"
A100 = {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"}
REQUESTS = {
    keys.GPU_MODEL_ANNOTATION: "a100 80gb",
    keys.PRIORITY_ANNOTATION: "high",
    keys.REQUIRED_TOPOLOGY_ANNOTATION: "subblock",
}


def gang(name: str, size: int, zone: str) -> dict[str, Any]:
    """A Job of pods that fill a node each, with topology requests, and a selector that its author wrote."""
    spec = {
        "restartPolicy": "Never",
        "nodeSelector": {"zone": zone},
        "containers": [{"name": "c", "image": "x", "resources": {"limits": {GPUS: 8}}}],
    }
    template = {"metadata": {"annotations": REQUESTS}, "spec": spec}
    counts = {"completionMode": "Indexed", "completions": size, "parallelism": size}
    return {"metadata": {"name": name}, "spec": {**counts, "template": template}}


@pytest.mark.promise("O215", "O214")
@pytest.mark.kubernetes("1.36")
def test_a_gang_made_while_the_webhook_is_dead_is_placed_as_requested_and_warned_of_its_class(
    cluster: Cluster,
) -> None:
    grid = nodes.grid(SHAPE)
    api = cluster.api()
    with installed_for(cluster, grid, components=("in-process-gate",)) as installation:
        for node in grid:
            # The model is in the last block alone, so that nothing but the request leads there.
            of_model = A100 if node.place[0] == grid[-1].place[0] else {}
            api.request(
                "POST", "/api/v1/nodes", body=node.manifest({**node.topology_labels, "zone": "a", **of_model})
            )
        namespace = create_namespace(cluster, {keys.INJECTION_LABEL: keys.INJECTION_ENABLED})
        installation.programs["webhook"].stop()
        api.request("POST", f"/apis/batch/v1/namespaces/{namespace}/jobs", body=gang("train", 2, "a"))
        pods = wait_for_pods(cluster, namespace, all_run(2), "both to run")

        assert blocks_of(pods) == {"b1"}
        assert len({pod["spec"]["nodeName"].rpartition("-")[0] for pod in pods}) == 1, "one subblock"
        assert [pod["spec"]["nodeSelector"] for pod in pods] == [{"zone": "a", **A100}] * 2
        assert not any(pod["spec"].get("priorityClassName") for pod in pods)

        def notes() -> list[str]:
            events = api.json("GET", f"/api/v1/namespaces/{namespace}/events")["items"]
            return [each["message"] for each in events if each["reason"] == "PriorityNotSet"]

        cluster.wait_for("an Event", lambda: bool(notes()))
        assert all("gpu-high-priority" in note for note in notes())
