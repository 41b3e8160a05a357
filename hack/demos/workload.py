"""What the demo asks of the cluster, and what must have become of it."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from hack.local.nodes import SimulatedNode
from hack.local.pods import GPUS, Json, annotation, bound_node, cards, gpus, label, pinned_node
from labeler.contract import keys
from webhook.workloads import marks

NAMESPACE: Final = "demo"
FOREIGN_NAMESPACE: Final = "others"
GANG: Final = "train"
GANG_SIZE: Final = 16
BEST: Final = (1, 2)
"""The fewest blocks and subblocks in which the gang can run: of eight nodes in a subblock it takes all."""
_CLASSES: Final = {"urgent": ("gpu-high-priority", 100), "opted-out": ("", 0), "cpu-only": ("", 0)}
"""The PriorityClass and priority of each single pod that has no card."""

Objects = list[tuple[str, dict[str, Any]]]
"""Pairs of collection path and object."""


def foreign_pods() -> Objects:
    """Pods of others that were there before: they leave one block alone with capacity for the whole gang."""
    busy = {
        "node-b0-s0-h01": 8,
        "node-b0-s1-h05": 8,
        "node-b0-s0-h03": 4,
        "node-b2-s0-h00": 8,
        "node-b2-s1-h07": 2,
    }
    path = f"/api/v1/namespaces/{FOREIGN_NAMESPACE}/pods"
    return [
        (path, _pod(f"busy-{index}", {GPUS: gpus}, nodeName=node))
        for index, (node, gpus) in enumerate(busy.items())
    ]


def objects() -> Objects:
    """The demo's own pods and its Job."""
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": GANG},
        "spec": {
            "completionMode": "Indexed",
            "completions": GANG_SIZE,
            "parallelism": GANG_SIZE,
            "template": {"spec": {"restartPolicy": "Never", "containers": [_container({GPUS: 8})]}},
        },
    }
    pods = f"/api/v1/namespaces/{NAMESPACE}/pods"
    shared_card = {keys.I915: 1, keys.MILLICORES: 500}
    annotations = {keys.PRIORITY_ANNOTATION: "high", keys.GPU_MODEL_ANNOTATION: "h100"}
    return [
        (f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs", job),
        (pods, _pod("intel-a", shared_card)),
        (pods, _pod("intel-b", shared_card)),
        (pods, _pod("urgent", {GPUS: 1}, annotations=annotations)),
        (
            pods,
            _pod(
                "opted-out", {GPUS: 1}, annotations={keys.INJECT_ANNOTATION: keys.INJECT_NO},
                nodeSelector={keys.PRERELEASE_TOPOLOGY[0]: "b0"},
            ),
        ),
        (pods, _pod("cpu-only", {"cpu": 2})),
    ]  # fmt: skip


def _container(resources: dict[str, Any]) -> dict[str, Any]:
    return {"name": "main", "image": "example", "resources": {"limits": resources}}


def _pod(
    name: str, resources: dict[str, Any], *, annotations: dict[str, str] | None = None, **spec: Any
) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": annotations or {}},
        "spec": {"containers": [_container(resources)], **spec},
    }


def faults(pods: Sequence[Json], places: Mapping[str, SimulatedNode]) -> list[str]:
    """Everything that is not as it should be, as sentences; none is what everybody hopes for.

    pods: all of the namespace at the end. places: node name -> node.
    """
    by_name = {pod["metadata"]["name"]: pod for pod in pods}
    if missing := {"intel-a", "intel-b", "urgent", *_CLASSES} - by_name.keys():
        return [f"{', '.join(sorted(missing))} is missing"]
    gang = members(pods)
    found = [
        f"{name} does not run" for name, pod in by_name.items() if pod["status"].get("phase") != "Running"
    ]
    if len(gang) != GANG_SIZE:
        found.append(f"the gang has {len(gang)} pods instead of {GANG_SIZE}")
    elif spread(gang, places) != BEST:
        found.append(f"the gang is spread over (blocks, subblocks) {spread(gang, places)}, best is {BEST}")
    used: Counter[str] = Counter()
    for pod in pods:
        used[bound_node(pod)] += gpus(pod)
    found += [f"{node} has {count} GPUs booked of 8" for node, count in used.items() if count > 8]
    for pod in [*gang, *(by_name[name] for name in ("intel-a", "intel-b", "urgent"))]:
        if pinned_node(pod) != bound_node(pod):
            found.append(f"{pod['metadata']['name']} was not placed by the sweeper")
    return [*found, *_faults_of_single_pods(by_name)]


def _faults_of_single_pods(by_name: Mapping[str, Json]) -> Iterator[str]:
    for name, expected in _CLASSES.items():
        spec = by_name[name]["spec"]
        if (spec.get("priorityClassName", ""), spec.get("priority")) != expected:
            yield f"{name} has priority {spec.get('priorityClassName')!r} {spec.get('priority')}"
    if "nvidia.com/gpu.product" not in by_name["urgent"]["spec"].get("nodeSelector", {}):
        yield "urgent has no node selector of its GPU model"
    for name in ("opted-out", "cpu-only"):
        if pinned_node(by_name[name]):
            yield f"{name} was touched although it should have been left alone"
    chosen = [(bound_node(by_name[name]), cards(by_name[name])) for name in ("intel-a", "intel-b")]
    if chosen[0] != chosen[1] or not chosen[0][1]:
        yield f"the two Intel pods do not share one card: {chosen}"


def members(pods: Iterable[Json]) -> list[Json]:
    """The gang's pods in the order of rank."""
    gang = [pod for pod in pods if label(pod, marks.JOB_NAME_LABEL) == GANG]
    return sorted(gang, key=lambda pod: int(annotation(pod, marks.JOB_INDEX_KEY) or 0))


def spread(gang: Iterable[Json], places: Mapping[str, SimulatedNode]) -> tuple[int, int]:
    """How many blocks and subblocks a gang runs in."""
    taken = [places[bound_node(pod)].place for pod in gang if bound_node(pod) in places]
    return len({place[0] for place in taken}), len({place[:2] for place in taken})
