"""`topogate simulate` and the sweeper give the same answer to the same cluster and manifest."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
import yaml

from hack.local import nodes
from hack.local.build import ROOT
from labeler.contract import keys
from tests.cli.controllers import TRAINING_KINDS, World
from tests.sweeper.cluster import Nodes, Placing, places
from webhook.cli.main import main
from webhook.configuration.settings import Settings
from webhook.inquiry.simulation import shipped_rules
from webhook.kube.objects import Node, Pod
from webhook.workloads.kinds import CREATORS, LOOSE_OWNERS, WORKLOADS

Object = dict[str, Any]
EXAMPLES: Final = sorted((ROOT / "manifests" / "examples").glob("*.yaml"))
GPU: Final = "nvidia.com/gpu"
NOTHING: Final[Mapping[str, str]] = {}


def template(gpus: int = 8, annotations: Mapping[str, str] = NOTHING) -> Object:
    resources = {"limits": {GPU: gpus}} if gpus else {"limits": {"cpu": 1}}
    container = {"name": "c", "image": "x", "resources": resources}
    return {"metadata": {"annotations": dict(annotations)}, "spec": {"containers": [container]}}


def job_spec(pods: int, gpus: int = 8, annotations: Mapping[str, str] = NOTHING) -> Object:
    spec = {"parallelism": pods, "completions": pods, "completionMode": "Indexed"}
    return {**spec, "template": template(gpus, annotations)}


def job(annotations: Mapping[str, str] = NOTHING, gpus: int = 8, pods: int = 2) -> Object:
    return of("batch/v1", "Job", job_spec(pods, gpus, annotations))


REQUIRED: Final = {keys.REQUIRED_TOPOLOGY_ANNOTATION: "subblock"}
SLICED: Final = {keys.SLICE_TOPOLOGY_ANNOTATION: "subblock", keys.SLICE_SIZE_ANNOTATION: "2"}
ROLES: Final = {
    "Launcher": {"replicas": 1, "template": template(0)}, "Worker": {"replicas": 3, "template": template()},
}  # fmt: skip
WORKERS: Final = {
    "Master": {"replicas": 1, "template": template()}, "Worker": {"replicas": 3, "template": template()},
}  # fmt: skip
RAY: Final = {
    "headGroupSpec": {"template": template(0)},
    "workerGroupSpecs": [{"groupName": "g", "replicas": 3, "template": template()}],
}
TRAINER: Final = {"trainer": {"numNodes": 3, "resourcesPerNode": {"limits": {GPU: 8}}}}


def of(version: str, kind: str, spec: Object) -> Object:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": "x"}, "spec": spec}


def parts(*specs: Object) -> Object:
    return {
        "replicatedJobs": [
            {"name": f"p{number}", "replicas": 1, "template": {"spec": spec}}
            for number, spec in enumerate(specs)
        ]
    }


def grouped(label: str) -> list[Object]:
    """Pods that say of which PodGroup they are."""
    pods = []
    for number in range(3):
        pod = {"apiVersion": "v1", "kind": "Pod", **template()}
        pod["metadata"] = {"name": f"p-{number}", "labels": {label: "x"}}
        pods.append(pod)
    return pods


def in_group() -> list[Object]:
    """Pods of a PodGroup of Kubernetes' own."""
    pods = grouped("of")
    for pod in pods:
        pod["spec"] = {**pod["spec"], "schedulingGroup": {"podGroupName": "x"}}
    return pods


KINDS: Final[dict[str, list[Object]]] = {
    "Pod.": [{"apiVersion": "v1", "kind": "Pod", **template(), "metadata": {"name": "x"}}],
    "Job.batch": [of("batch/v1", "Job", job_spec(3, annotations=REQUIRED))],
    "CronJob.batch": [of("batch/v1", "CronJob", {"jobTemplate": {"spec": job_spec(3)}})],
    "StatefulSet.apps": [of("apps/v1", "StatefulSet", {"replicas": 3, "template": template()})],
    "Deployment.apps": [of("apps/v1", "Deployment", {"replicas": 3, "template": template()})],
    "ReplicaSet.apps": [of("apps/v1", "ReplicaSet", {"replicas": 3, "template": template()})],
    "CloneSet.apps.kruise.io": [
        of("apps.kruise.io/v1alpha1", "CloneSet", {"replicas": 3, "template": template()})
    ],
    "NodeSet.slinky.slurm.net": [
        of("slinky.slurm.net/v1beta1", "NodeSet", {"replicas": 3, "template": template()})
    ],
    "ReplicationController.": [of("v1", "ReplicationController", {"replicas": 3, "template": template()})],
    "JobSet.jobset.x-k8s.io": [
        of("jobset.x-k8s.io/v1alpha2", "JobSet", parts(job_spec(1, 0), job_spec(3, annotations=REQUIRED)))
    ],
    "LeaderWorkerSet.leaderworkerset.x-k8s.io": [
        of("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", {"replicas": 2, "leaderWorkerTemplate": {
            "size": 3, "leaderTemplate": template(4), "workerTemplate": template()}})
    ],
    "PodGroup.scheduling.x-k8s.io": [
        of("scheduling.x-k8s.io/v1alpha1", "PodGroup", {"minMember": 2}),
        *grouped("scheduling.x-k8s.io/pod-group"),
    ],
    "PodGroup.scheduling.volcano.sh": [
        of("scheduling.volcano.sh/v1beta1", "PodGroup", {"minMember": 2}),
        *grouped("scheduling.volcano.sh/group-name"),
    ],
    "PodGroup.scheduling.k8s.io": [
        of("scheduling.k8s.io/v1beta1", "PodGroup", {"schedulingPolicy": {"gang": {"minCount": 2}}}),
        *in_group(),
    ],
    **{
        f"{kind}.kubeflow.org": [
            of("kubeflow.org/v1", kind, {"replicaSpecs": ROLES if kind == "MPIJob" else WORKERS})
        ]
        for kind in TRAINING_KINDS
    },
    "TrainJob.trainer.kubeflow.org": [of("trainer.kubeflow.org/v1alpha1", "TrainJob", TRAINER)],
    "RayCluster.ray.io": [of("ray.io/v1", "RayCluster", RAY)],
    "RayJob.ray.io": [of("ray.io/v1", "RayJob", {"rayClusterSpec": RAY})],
    "RayService.ray.io": [of("ray.io/v1", "RayService", {"rayClusterConfig": RAY})],
    "PodClique.grove.io": [
        of("grove.io/v1alpha1", "PodClique", {
            "replicas": 3, "minAvailable": 2, "podSpec": template()["spec"]})
    ],
    "GPUTask.falldio.com": [of("falldio.com/v1", "GPUTask", {"gpu-amount": "8", "workers": 3})],
    "Workflow.argoproj.io": [
        of("argoproj.io/v1alpha1", "Workflow", {"templates": [
            {"name": "t", "container": template()["spec"]["containers"][0]}]})
    ],
}  # fmt: skip
for _kind in TRAINING_KINDS:
    (_job,) = KINDS[f"{_kind}.kubeflow.org"]
    _word = {"PyTorchJob": "pytorch", "TFJob": "tf", "MPIJob": "mpi", "XGBoostJob": "xgb"}.get(
        _kind, _kind.removesuffix("Job").lower()
    )
    _job["spec"] = {f"{_word}ReplicaSpecs": _job["spec"].pop("replicaSpecs")}
MORE: Final[dict[str, list[Object]]] = {
    "a Job without numbers": [
        of("batch/v1", "Job", {**job_spec(3, annotations=SLICED), "completionMode": "NonIndexed"})
    ],
    "two Jobs": [
        of("batch/v1", "Job", job_spec(2)),
        of("batch/v1", "Job", job_spec(1)) | {"metadata": {"name": "y"}},
    ],
    "slices": [of("batch/v1", "Job", job_spec(4, annotations=SLICED))],
    "a level of a part": [
        of("jobset.x-k8s.io/v1alpha2", "JobSet", parts(job_spec(2), job_spec(2, annotations=REQUIRED)))
    ],
    "a model that no node has": [job({keys.GPU_MODEL_ANNOTATION: "A100 80GB"})],
    "an unknown model": [job({keys.GPU_MODEL_ANNOTATION: "h1000"})],
    "an unknown tier": [job({keys.PRIORITY_ANNOTATION: "urgent"})],
    "an opted-out Job": [job({keys.INJECT_ANNOTATION: keys.INJECT_NO})],
    "a level that is none": [job({keys.REQUIRED_TOPOLOGY_ANNOTATION: "rack"})],
    "slices without a size": [job({keys.SLICE_TOPOLOGY_ANNOTATION: "block"})],
    "more GPUs than a node has": [job(gpus=9)],
    "a level that is too small": [job(REQUIRED, pods=5)],
}  # fmt: skip
CASES: Final = {
    **{file.stem: list(yaml.safe_load_all(file.read_text())) for file in EXAMPLES}, **KINDS, **MORE,
}  # fmt: skip


def grid(blocks: int, hosts: int, *busy: str) -> list[Object]:
    """Nodes of 8 GPUs in blocks of two subblocks of so many hosts, the last two with Intel cards.

    busy: names of nodes with a pod that takes all of it, and is evicted for nobody.
    """
    made: list[Object] = []
    shape = nodes.Shape(
        nodes=2 * blocks * hosts, blocks=blocks, subblocks=2, gpus=8, intel=2 if hosts > 1 else 0
    )
    for node in nodes.grid(shape):
        labels = dict(node.topology_labels)
        if node.intel:
            labels |= {keys.GPU_NUMBERS_LABEL: "0.1", keys.CARDS_LABEL: "card0.card1"}
        made.append(node.manifest(labels))
    for name in busy:
        pod = {"apiVersion": "v1", "kind": "Pod", **template()}
        pod["spec"] = {**pod["spec"], "nodeName": name, "priority": 1000}
        pod["spec"]["containers"][0]["resources"]["requests"] = {GPU: 8}
        made.append({**pod, "metadata": {"name": f"on-{name}", "namespace": "other", "uid": name}})
    return made


CLUSTERS: Final = {
    "roomy": grid(2, 4),
    "half full": grid(2, 4, "node-b0-s0-h00", "node-b0-s0-h01", "node-b0-s1-h02", "node-b1-s0-h03"),
    "tiny": grid(1, 1),
    "full": grid(1, 1, "node-b0-s0-h00", "node-b0-s1-h00"),
}


PREFIX: Final = re.compile(r"^(Pod \S+ would be refused: |\d+ of \d+ replicas of \S+ have no place\. )")
ANSWER: Final = re.compile(r"  |Gang \S+: |Replicas of |Preferred: |Pod .* not placed by")
"""How lines begin that say where pods go, or that others place them."""


def nameless(reasons: set[str]) -> set[str]:
    """The same whatever the gang is called."""
    return {re.sub(r"\bGang \S+", "Gang", each) for each in reasons}


@dataclass(frozen=True)
class Answers:
    """Pod -> node, and the reasons of gangs without a place and of pods that are refused."""

    nodes: dict[str, str]
    reasons: set[str]


def simulated(
    documents: list[Object], cluster: list[Object], folder: Path, capsys: pytest.CaptureFixture[str]
) -> Answers:
    """What the command says."""
    (folder / "cluster.json").write_text(json.dumps({"kind": "List", "apiVersion": "v1", "items": cluster}))
    (folder / "manifest.yaml").write_text(yaml.safe_dump_all(documents))
    status = main(["simulate", "--cluster", str(folder / "cluster.json"), str(folder / "manifest.yaml")])
    out, err = capsys.readouterr()
    if status == 2:
        return Answers({}, {line.removeprefix("topogate simulate: ") for line in err.splitlines()})
    lines = out.splitlines()
    rows = [line.split() for line in lines if line.startswith("  ")]
    remainder = {PREFIX.sub("", line) for line in lines if not ANSWER.match(line)}
    assert status == (1 if remainder or not rows else 0) or "have no place" in out
    return Answers({row[0]: row[1] for row in rows}, remainder)


def swept(documents: list[Object], cluster: list[Object]) -> Answers:
    """What the sweeper decides in its first pass, with gangs called as the command calls them."""
    world = World(documents, shipped_rules())
    there = Nodes(0)
    there.nodes = {
        each["metadata"]["name"]: msgspec.convert(each, Node) for each in cluster if each["kind"] == "Node"
    }
    there.pods = [msgspec.convert(each, Pod) for each in cluster if each["kind"] == "Pod"] + world.pods
    placing = Placing(there, Settings(reserve_share=0.0))
    placing.owner_facts = world.owner_facts
    orders = placing.one()
    reasons = [*world.refusals, *(each.reason for each in orders.outcomes)]
    return Answers(places(orders), {re.sub(r"\b([Gg]ang) \w+/\w+/", r"\1 ", each) for each in reasons})


@pytest.mark.promise("R239")
@pytest.mark.parametrize("state", CLUSTERS)
@pytest.mark.parametrize("case", CASES)
def test_simulate_and_the_sweeper_give_the_same_answer(
    case: str, state: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = simulated(CASES[case], CLUSTERS[state], tmp_path, capsys)
    wanted = swept(CASES[case], CLUSTERS[state])
    assert found.nodes == wanted.nodes
    assert found.reasons <= wanted.reasons
    # Of replicas that wait for the same, the command says it once.
    assert nameless(found.reasons) == nameless(wanted.reasons)


@pytest.mark.promise("R239")
def test_every_kind_that_the_sweeper_knows_is_compared() -> None:
    loose = {each.name for each in LOOSE_OWNERS if each.pods} - {"ReplicaSet", "ReplicationController"}
    creators = {f"{each.kind}.{each.group}" for each in CREATORS}
    replicas = {"ReplicaSet.apps", "ReplicationController."}
    assert {each.owner_name for each in WORKLOADS} | loose | creators | replicas <= set(KINDS)
