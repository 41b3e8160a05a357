"""Simulated nodes: what a kubelet would have registered, with GPUs, in blocks and subblocks."""

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

from labeler.contract import keys
from webhook.kube.client import Api

_GIB: Final = 1024**3
INTEL_CARDS: Final = 2


@dataclass(frozen=True)
class Shape:
    """A grid of nodes. intel: how many of them, the last ones, carry two Intel cards instead."""

    nodes: int = 64
    blocks: int = 4
    subblocks: int = 2
    gpus: int = 8
    intel: int = 0

    def __post_init__(self) -> None:
        if min(self.nodes, self.blocks, self.subblocks) < 1 or self.nodes < self.blocks * self.subblocks:
            raise ValueError(
                f"{self.nodes} nodes cannot fill {self.blocks} blocks of {self.subblocks} subblocks"
            )


@dataclass(frozen=True)
class SimulatedNode:
    """One node of the grid: its name, its place (block, subblock, host) and what it carries."""

    name: str
    place: tuple[str, str, str]
    intel: bool
    gpus: int

    @property
    def topology_labels(self) -> dict[str, str]:
        """The labels that a labeler would write."""
        return dict(zip(keys.PRERELEASE_TOPOLOGY, self.place, strict=True))

    @property
    def _taint(self) -> dict[str, str]:
        """As GPU nodes have it; the API server makes pods that ask for the resource tolerate it."""
        return {"key": keys.I915 if self.intel else "nvidia.com/gpu", "effect": "NoSchedule"}

    def manifest(self, labels: dict[str, str] | None = None, *, tainted: bool = False) -> dict[str, Any]:
        """The Node object, ready, with allocatable resources. tainted: only pods that want its GPUs come."""
        resources = {
            "cpu": "96",
            "memory": f"{1024 * _GIB}",
            "ephemeral-storage": f"{2048 * _GIB}",
            "pods": "110",
        }
        if self.intel:
            resources |= {
                keys.I915: str(self.gpus * 16),
                keys.MILLICORES: str(self.gpus * 1000),
                keys.MEMORY_MAX: str(self.gpus * 48 * _GIB),
            }
        elif self.gpus:
            resources["nvidia.com/gpu"] = str(self.gpus)
        own = {keys.HOSTNAME_LABEL: self.name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}
        if self.gpus and not self.intel:
            own["nvidia.com/gpu.product"] = "NVIDIA-H100-80GB-HBM3"
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": self.name, "labels": own | (labels or {})},
            "spec": {"taints": [self._taint]} if tainted else {},
            "status": {
                "allocatable": resources,
                "capacity": resources,
                "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
                "addresses": [
                    {"type": "InternalIP", "address": "10.0.0.1"},
                    {"type": "Hostname", "address": self.name},
                ],
                "nodeInfo": dict.fromkeys(
                    (
                        "architecture",
                        "bootID",
                        "containerRuntimeVersion",
                        "kernelVersion",
                        "kubeProxyVersion",
                        "kubeletVersion",
                        "machineID",
                        "operatingSystem",
                        "osImage",
                        "systemUUID",
                    ),
                    "simulated",
                ),
            },
        }


def grid(shape: Shape) -> list[SimulatedNode]:
    """The nodes of a shape, spread evenly over blocks and subblocks, in the order of their places."""
    places = [(block, subblock) for block in range(shape.blocks) for subblock in range(shape.subblocks)]
    nodes: list[SimulatedNode] = []
    for index, (block, subblock) in enumerate(places):
        count = shape.nodes // len(places) + (index < shape.nodes % len(places))
        for host in range(count):
            name = f"node-b{block}-s{subblock}-h{host:02d}"
            nodes.append(
                SimulatedNode(name, (f"b{block}", f"s{subblock}", f"h{host:02d}"), False, shape.gpus)
            )
    return [
        SimulatedNode(node.name, node.place, True, INTEL_CARDS)
        if position >= len(nodes) - shape.intel
        else node
        for position, node in enumerate(nodes)
    ]


def register(
    api: Api, nodes: Iterable[SimulatedNode], *, labelled: bool = True, tainted: bool = False
) -> None:
    """Create the nodes. labelled: with their topology labels, as if a labeler had been there.

    tainted: they take only pods that want their GPUs, so that all others go to a real node.
    """

    def create(node: SimulatedNode) -> None:
        labels = dict(node.topology_labels) if labelled else {}
        if labelled and node.intel:
            numbers = range(node.gpus)
            labels[keys.GPU_NUMBERS_LABEL] = ".".join(map(str, numbers))
            labels[keys.CARDS_LABEL] = ".".join(f"card{number}" for number in numbers)
        api.request("POST", "/api/v1/nodes", body=node.manifest(labels, tainted=tainted))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(create, nodes))
