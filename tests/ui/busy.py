"""A busy cluster for the page: 64 nodes in 4 blocks, 13 gangs in 5 states, one node failing, one cordoned."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from hack.local import nodes
from labeler.contract import keys
from tests.sweeper.pods import decode, job_pod
from tests.ui.scenes import COUNTING, SETTINGS, bound_pod, gpu_container
from webhook.inquiry.cluster_state import ClusterReading
from webhook.kube.objects import Node, Pod
from webhook.kube.placements import Placement
from webhook.sweeper.observe.gangs import OwnerFacts, key_of
from webhook.ui.live import Artist, Scene

MODEL = "nvidia.com/gpu.product"
H100, A100 = "NVIDIA-H100-80GB-HBM3", "NVIDIA-A100-SXM4-80GB"
GRID = nodes.grid(nodes.Shape(nodes=64, blocks=4, subblocks=2))
NAMES = [node.name for node in GRID]
FAILING, CORDONED = NAMES[40], NAMES[63]


@dataclass(frozen=True)
class _Job:
    """A gang of pods with 8 GPUs. first: the number of its first node, None if it has none."""

    namespace: str
    name: str
    size: int
    state: str
    minutes: int
    first: int | None = None
    model: str = ""
    reason: str = ""
    priority: int = 0


NO_BLOCK = (
    "Gang research/Job/train-405b cannot be placed: 40 pods do not fit into one block; block b1 has capacity "
    "for 6 of 40. Use topogate.io/preferred-topology, or add nodes. "
    'Of 64 nodes, excluded: nodeSelector nvidia.com/gpu.product: 32, resource "nvidia.com/gpu": 22.'
)
NO_SUBBLOCK = (
    "Gang vision/Job/pretrain cannot be placed: 12 pods do not fit into one subblock; subblock b3/s0 has "
    "capacity for 8."
)
LONG_NAME = "notebook-gang-with-a-rather-long-name-of-its-own"
JOBS = (
    _Job("research", "train-70b", 12, "Bound", 600, 0, H100),
    _Job("research", "train-8b", 8, "Bound", 240, 16, H100),
    _Job("search", "embed", 6, "Bound", 75, 32, A100),
    _Job("research", "sweep-lr-3", 2, "Bound", 30, 12, H100),
    _Job("vision", "detector", 4, "Released", 2, 44, A100, priority=50),
    _Job("search", "rerank", 2, "Releasing", 1, 24, H100, priority=50),
    _Job("research", "train-405b", 40, "Waiting", 310, None, H100, NO_BLOCK, 100),
    _Job("vision", "pretrain", 12, "Waiting", 95, None, A100, NO_SUBBLOCK),
    _Job("search", "index", 20, "Waiting", 48, None, A100, "Gang search/Job/index: capacity for 15 of 20."),
    _Job(
        "vision",
        "eval-night",
        16,
        "Waiting",
        22,
        None,
        H100,
        "Gang vision/Job/eval-night: capacity for 14 of 16.",
    ),
    _Job("guest", LONG_NAME, 30, "Waiting", 12, None, "", "Room for 29 of 30."),
    _Job("guest", "quick", 1, "Held", 0),
    _Job("search", "burst", 3, "Held", 0),
)


def busy_scene() -> Scene:
    """The scene now; ages are counted back from this moment."""
    pods = [
        *_pods(),
        bound_pod("notebook", NAMES[30], 3, "guest"),
        bound_pod("viewer", NAMES[31], 1, "guest"),
    ]
    placements = dict(map(_placement, (job for job in JOBS if job.state != "Held")))
    reading = ClusterReading(tuple(pods), dict(_nodes()), placements, lambda key: OwnerFacts(_size(key.name)))
    why = {FAILING: "pods of 3 gangs failed there in the last hour and ran elsewhere"}
    return Artist(reading, SETTINGS, COUNTING, lambda: why).scene()


def _size(name: str) -> int | None:
    return next((job.size for job in JOBS if job.name == name), None)


def _nodes() -> Iterator[tuple[str, Node]]:
    for number, node in enumerate(GRID):
        body = node.manifest(node.topology_labels)
        body["metadata"]["labels"] = {**body["metadata"]["labels"], MODEL: H100 if number < 32 else A100}
        if node.name == CORDONED:
            body["spec"] = {**body.get("spec", {}), "unschedulable": True}
        yield node.name, msgspec.convert(body, Node)


def _pods() -> Iterator[Pod]:
    for job in JOBS:
        for index in range(job.size):
            yield _pod(job, index)


def _pod(job: _Job, index: int) -> Pod:
    created = datetime.now(UTC) - timedelta(minutes=job.minutes)
    made = job_pod(index, job.name, job.namespace, creationTimestamp=created.strftime("%Y-%m-%dT%H:%M:%SZ"))
    body: dict[str, Any] = msgspec.to_builtins(made)
    spec: dict[str, Any] = {"containers": [gpu_container(8)], "priority": job.priority}
    spec["nodeSelector"] = {MODEL: job.model} if job.model else {}
    if job.state == "Bound":
        spec |= {"nodeName": NAMES[(job.first or 0) + index], "schedulingGates": []}
    else:
        spec["schedulingGates"] = [{"name": keys.GATE}]
    raw = {"metadata": body["metadata"] | {"name": made.metadata.name}, "spec": spec, "status": {}}
    return decode(raw)


def _placement(job: _Job) -> tuple[str, Placement]:
    pods = [_pod(job, index) for index in range(job.size)]
    key = key_of(pods[0])
    planned = [
        {"name": pod.metadata.name, "uid": pod.metadata.uid, "node": NAMES[job.first + index], "rank": index}
        for index, pod in enumerate(pods)
        if job.first is not None
    ]
    status = {"state": job.state, "reason": job.reason, "spread": "1 block, 1 subblock" if planned else ""}
    body = {
        "metadata": {"name": key.placement_name, "namespace": key.namespace, "uid": f"placement-{job.name}"},
        "spec": {"gang": f"{key.kind}/{key.name}", "size": job.size, "pods": planned},
        "status": status,
    }
    return key.placement_key, msgspec.convert(body, Placement)
