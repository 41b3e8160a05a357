"""What the demo asks of the cluster, and what must have become of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from hack.local.nodes import SimulatedNode
from labeler.contract import keys
from webhook.workloads import marks

NAMESPACE: Final = "demo"
FOREIGN_NAMESPACE: Final = "others"
GANG: Final = "train"
GANG_SIZE: Final = 16
BEST: Final = (1, 2)
"""The fewest blocks and subblocks in which the gang can run: of eight nodes in a subblock it takes all."""
GPUS: Final = "nvidia.com/gpu"

Objects = list[tuple[str, dict[str, Any]]]
"""Pairs of collection path and object."""


@dataclass(frozen=True)
class SeenPod:
    """A pod at the end: as the API server has it, and how long it took to run (seconds)."""

    pod: dict[str, Any]
    seconds: float | None

    @property
    def name(self) -> str:
        """The pod's name."""
        return str(self.pod["metadata"]["name"])

    @property
    def annotations(self) -> Mapping[str, str]:
        """The pod's annotations."""
        return self.pod["metadata"].get("annotations") or {}

    @property
    def spec(self) -> Mapping[str, Any]:
        """The pod's spec."""
        spec: Mapping[str, Any] = self.pod["spec"]
        return spec

    @property
    def node(self) -> str:
        """Where it runs."""
        return str(self.spec.get("nodeName", ""))

    @property
    def rank(self) -> str:
        """Its rank in its gang, "" without one."""
        return str(self.annotations.get(marks.JOB_INDEX_KEY, ""))


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


def faults(seen: Sequence[SeenPod], places: Mapping[str, SimulatedNode]) -> list[str]:  # noqa: C901
    """Everything that is not as it should be, as sentences; none is what everybody hopes for.

    places: node name -> node.
    """
    by_name = {each.name: each for each in seen}
    found = [f"{each.name} does not run" for each in seen if each.pod["status"].get("phase") != "Running"]
    gang = members(seen)
    if len(gang) != GANG_SIZE:
        found.append(f"the gang has {len(gang)} pods instead of {GANG_SIZE}")
    elif spread(gang, places) != BEST:
        found.append(f"the gang is spread over (blocks, subblocks) {spread(gang, places)}, best is {BEST}")
    found += _overbooked(seen)
    for each in [*gang, *(by_name[name] for name in ("intel-a", "intel-b", "urgent") if name in by_name)]:
        if not _is_pinned(each):
            found.append(f"{each.name} was not placed by the sweeper")
    expected_classes = {"urgent": ("gpu-high-priority", 100), "opted-out": ("", 0), "cpu-only": ("", 0)}
    for name, expected in expected_classes.items():
        if name not in by_name:
            found.append(f"{name} is missing")
            continue
        spec = by_name[name].spec
        if (spec.get("priorityClassName", ""), spec.get("priority")) != expected:
            found.append(f"{name} has priority {spec.get('priorityClassName')!r} {spec.get('priority')}")
    if "urgent" in by_name and "nvidia.com/gpu.product" not in by_name["urgent"].spec.get("nodeSelector", {}):
        found.append("urgent has no node selector of its GPU model")
    for name in ("opted-out", "cpu-only"):
        if name in by_name and _is_pinned(by_name[name]):
            found.append(f"{name} was touched although it should have been left alone")
    cards = {
        (each.node, each.annotations.get(keys.GAS_CARDS_ANNOTATION))
        for each in seen
        if each.name.startswith("intel")
    }
    if len(cards) != 1 or None in {card for _, card in cards}:
        found.append(f"the two Intel pods do not share one card: {sorted(map(str, cards))}")
    return found


def members(seen: Sequence[SeenPod]) -> list[SeenPod]:
    """The gang's pods in the order of rank."""
    label = {"batch.kubernetes.io/job-name": GANG}.items()
    pods = [each for each in seen if label <= (each.pod["metadata"].get("labels") or {}).items()]
    return sorted(pods, key=lambda each: int(each.rank or 0))


def spread(gang: Sequence[SeenPod], places: Mapping[str, SimulatedNode]) -> tuple[int, int]:
    """How many blocks and subblocks a gang runs in."""
    taken = [places[each.node].place for each in gang if each.node in places]
    return len({place[0] for place in taken}), len({place[:2] for place in taken})


def gpus_used(pods: Sequence[dict[str, Any]]) -> dict[str, int]:
    """NVIDIA GPUs that bound pods take on each node."""
    used: dict[str, int] = {}
    for pod in pods:
        node = pod["spec"].get("nodeName")
        if node:
            used[node] = used.get(node, 0) + sum(
                int(container.get("resources", {}).get("requests", {}).get(GPUS, 0))
                for container in pod["spec"]["containers"]
            )
    return used


def _is_pinned(each: SeenPod) -> bool:
    terms = (
        each.spec.get("affinity", {})
        .get("nodeAffinity", {})
        .get("requiredDuringSchedulingIgnoredDuringExecution", {})
        .get("nodeSelectorTerms", [])
    )
    pins = [field["values"] for term in terms for field in term.get("matchFields", [])]
    return pins == [[each.node]]


def _overbooked(seen: Sequence[SeenPod]) -> list[str]:
    used = gpus_used([each.pod for each in seen])
    return [f"{node} has {count} GPUs booked of 8" for node, count in used.items() if count > 8]
