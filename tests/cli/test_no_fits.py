"""Why gangs of every shape have no place, as people read it: `topogate simulate`, and `topogate explain`."""

from pathlib import Path
from typing import Any

import pytest

from labeler.contract import keys
from tests.cli.explanations import cluster as reading
from tests.cli.explanations import explained, job_pods
from tests.cli.simulations import (
    away_from,
    cluster,
    group,
    job,
    node,
    owner,
    replicated,
    simulated,
    template,
    with_spec,
)
from tests.sweeper.pods import decode, pod_json
from webhook.workloads import marks

ELSEWHERE = {"pool": "elsewhere"}
OUT = 'taint "k=v:NoSchedule": 1, unschedulable: 1'


def six_nodes() -> dict[str, Any]:
    """Three racks of two nodes with 8 GPUs; the first three nodes are a block, the last two nodes are out."""
    made = [node(f"n{number}", f"b{number // 3}", 8) for number in range(6)]
    for number, each in enumerate(made):
        each["metadata"]["labels"][keys.GCE_TOPOLOGY[1]] = f"r{number // 2}"
    made[4]["spec"] = {"taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}]}
    made[5]["spec"] = {"unschedulable": True}
    return cluster(*made)


def asking(gpus: int, spec: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    """A template of a pod with so many GPUs."""
    body = template({"limits": {"nvidia.com/gpu": gpus, **more}})
    body["spec"] |= spec or {}
    return body


def jobs(*of: tuple[str, int, dict[str, Any]]) -> dict[str, Any]:
    """A JobSet of Jobs: name, pods, template."""
    return owner("JobSet", {"replicatedJobs": [replicated(name, 1, pods, body) for name, pods, body in of]})


def whole_nodes(pods: int, spec: dict[str, Any] | None = None, **annotations: Any) -> dict[str, Any]:
    """A Job whose pods take a node each."""
    body = job(pods, **annotations)
    body["spec"]["template"]["spec"]["containers"] = asking(8)["spec"]["containers"]
    return with_spec(body, **(spec or {}))


def resources(**amounts: str) -> dict[str, Any]:
    return {"containers": [{"name": "c", "resources": {"limits": amounts}}]}


SLICES: dict[str, Any] = {keys.SLICE_TOPOLOGY_ANNOTATION: "subblock", keys.SLICE_SIZE_ANNOTATION: "2"}
NESTED: dict[str, Any] = {keys.SLICE_TOPOLOGY_ANNOTATION: "block,subblock", keys.SLICE_SIZE_ANNOTATION: "4,2"}
REQUIRED: dict[str, Any] = {keys.REQUIRED_TOPOLOGY_ANNOTATION: "block"}
WANTS_A_POOL = {
    "nodeSelectorTerms": [{"matchExpressions": [{"key": "pool", "operator": "In", "values": ["x"]}]}]
}
PORT = {"containers": [{"name": "c", "ports": [{"containerPort": 80, "hostPort": 80}]}]}
OWN_JOB = {"matchLabels": {marks.JOB_NAME_LABEL: "train"}}

SHAPES: dict[str, tuple[dict[str, Any], list[str]]] = {
    "too many": (jobs(("w", 5, asking(8))), ["the cluster has capacity for 4 of 5", OUT]),
    "a leader that may go nowhere": (
        jobs(("l", 1, asking(2, {"nodeSelector": ELSEWHERE})), ("w", 3, asking(8))),
        ["capacity for 3 of 3 pods of w and 0 of 1 pod of l",
         'for 1 pod of l alone: capacity for 0 (no label "pool": 6)'],
    ),
    "workers that may go nowhere": (
        jobs(("l", 1, asking(2)), ("w", 3, asking(8, {"nodeSelector": ELSEWHERE}))),
        ["capacity for 0 of 3 pods of w and 1 of 1 pod of l",
         'for 3 pods of w alone: capacity for 0 (no label "pool": 6)'],
    ),
    "a leader that is too large": (
        jobs(("l", 1, asking(2, cpu=99)), ("w", 3, asking(8))),
        ['for 1 pod of l alone: capacity for 0 (resource "cpu": 4, ' + OUT],
    ),
    "one leader too many": (
        jobs(("l", 1, asking(2)), ("w", 4, asking(8))),
        ["capacity for 4 of 4 pods of w and 0 of 1 pod of l",
         "for 4 pods of w alone: capacity for 4",
         "for 1 pod of l alone"],
    ),
    "a group's leader": (
        group({"size": 4, "leaderTemplate": asking(2, {"nodeSelector": ELSEWHERE}),
               "workerTemplate": asking(8)}),
        ["capacity for 3 of 3 workers and 0 of 1 leader",
         'for 1 leader alone: capacity for 0 (no label "pool": 6)'],
    ),
    "a group whose leader asks the same": (
        group({"size": 6, "leaderTemplate": asking(8), "workerTemplate": asking(8)}), ["capacity for 4 of 6"],
    ),
    "one of three kinds": (
        jobs(("a", 2, asking(2)), ("b", 2, asking(4, {"nodeSelector": ELSEWHERE})), ("c", 3, asking(8))),
        ["capacity for 3 of 3 pods of c, 2 of 2 pods of a and 0 of 2 pods of b",
         'for 2 pods of b alone: capacity for 0 (no label "pool": 6)'],
    ),
    "kinds that fit alone, and not together": (
        jobs(("a", 4, asking(5)), ("b", 4, asking(4))),
        ["capacity for 2 of 4 pods of a and 4 of 4 pods of b",
         "for 4 pods of a alone: capacity for 4",
         "for 4 pods of b alone"],
    ),
    "in one block": (whole_nodes(4, **REQUIRED), ["into one block; block b0 has capacity for 3 of 4", OUT]),
    "in slices": (
        whole_nodes(6, **SLICES),
        ["capacity for 2 of 6 in slices of 2 per subblock; capacity for 1 of 3 subblock slices"],
    ),
    "in slices in slices": (
        whole_nodes(8, **NESTED),
        [
            "in slices of 4 per block, 2 per subblock",
            "; capacity for 0 of 2 block slices, 1 of 4 subblock slices",
        ],
    ),
    "with anti-affinity": (
        whole_nodes(5, away_from(OWN_JOB)),
        ["capacity for 4 of 5; each node takes only one of them (anti-affinity"],
    ),
    "with a host port": (whole_nodes(5, PORT), ["each node takes only one of them (host port 80/TCP)"]),
    "with a rule to be spread": (
        whole_nodes(4, {"topologySpreadConstraints": [{
            "maxSkew": 1, "topologyKey": keys.GCE_TOPOLOGY[0], "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": OWN_JOB}]}),
        [
            "no placement was found that also keeps their rules on other pods",
            f"spread over {keys.GCE_TOPOLOGY[0]}",
        ],
    ),
    "with node affinity": (
        whole_nodes(2, {"affinity": {"nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": WANTS_A_POOL}}}),
        ["no node has capacity for any of them", "node affinity: 6"],
    ),
    "with a resource that no node has": (
        whole_nodes(2, resources(**{"amd.com/gpu": "1"})), ['resource "amd.com/gpu": 4', OUT],
    ),
    "with cards that no node has": (
        whole_nodes(2, resources(**{"gpu.intel.com/i915": "1"})), ['resource "gpu.intel.com/i915": 4', OUT],
    ),
    "with too much memory": (
        whole_nodes(1, resources(memory="999Gi")), ['resource "memory": 4', OUT],
    ),
}  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES)
def test_simulate_explains_why_a_gang_has_no_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], shape: str
) -> None:
    manifest, expected = SHAPES[shape]
    assert simulated(tmp_path, six_nodes(), manifest) == 1
    printed = capsys.readouterr().out
    assert [each for each in expected if each not in printed] == [], printed


def test_explain_names_the_pod_that_has_no_place_and_why() -> None:
    leader = job_pods(1)[0]
    container = {"name": "c", "resources": {"requests": {"nvidia.com/gpu": "1"}}}
    metadata = {
        "uid": "leader-uid",
        "labels": {**leader.metadata.labels, marks.JOB_INDEX_KEY: "3"},
        "ownerReferences": [{"kind": "Job", "name": "train", "uid": "j", "controller": True}],
    }
    body = pod_json("train-3", containers=[container], metadata=metadata, nodeSelector=ELSEWHERE)
    text = explained(reading([*job_pods(3), decode(body)], parallelism=4))
    assert 'for 1 pod like train-3 alone: capacity for 0 (no label "pool": 4)' in text
    assert "uid" not in text
