"""What claims on devices make of nodes and pods in one pass: see webhook/devices/needs.py.

GPUs that are had by claims are added as amounts of nodes and pods for people and metrics, not for placement.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from webhook.devices.counted import DeviceCounts
from webhook.devices.needs import Needs
from webhook.devices.supply import Supply
from webhook.identity_cache import IdentityCache
from webhook.kube.objects import Node, Pod
from webhook.placement import NodeInfo, PodClass, Usage
from webhook.scheduling.gpus import DEVICES
from webhook.sweeper.observe.node_usage import PodsOnNodes, Usages, amended


@dataclass(frozen=True)
class AddedDevices:
    """The devices of nodes, and what pods ask for and take of them. counts: of GPUs."""

    needs: Needs
    counts: "ClaimedGpus"

    def pod_class(self, pod: Pod, pod_class: PodClass) -> PodClass:
        """The class with what the pod's claims ask for, or with the problem that they are."""
        return self.needs.pod_class(pod, pod_class)

    def completed(
        self, nodes: Sequence[NodeInfo], on_nodes: PodsOnNodes, usages: Usages, objects: Mapping[str, Node]
    ) -> tuple[list[NodeInfo], Usages]:
        """The nodes with their devices, and the usages with what claims may be given there."""
        made = [self.needs.node(each) for each in nodes]
        claimed = amended(on_nodes, usages, objects, self.needs.concerns, self._usage)
        usages = {**usages, **claimed}
        made, counted = self.counts.counted(self.needs.supply, objects, made, on_nodes, usages)
        return made, {**usages, **counted}

    def _usage(self, pod: Pod, node: str, usage: Usage) -> Usage:
        return self.needs.usage(pod, usage)


class ClaimedGpus:
    """Completes nodes and usages; a node of which nothing has changed stays the very same value."""

    def __init__(self, classes: Collection[str]) -> None:
        """classes: names or shell patterns of the DeviceClasses of GPUs."""
        self._classes = classes
        self._counts: DeviceCounts | None = None
        self._nodes = IdentityCache[tuple[str, int], NodeInfo]()

    def counted(
        self,
        supply: Supply,
        objects: Mapping[str, Node],
        nodes: Sequence[NodeInfo],
        on_nodes: PodsOnNodes,
        usages: Usages,
    ) -> tuple[list[NodeInfo], dict[str, tuple[Usage, ...]]]:
        """The nodes with their GPUs, and the usages of those where pods have some. on_nodes: these pods."""
        counts = self._counts
        if counts is None or not counts.serves(supply):
            counts = self._counts = DeviceCounts(supply, self._classes)
        if not counts.counts_any:
            return list(nodes), {}
        found = amended(
            on_nodes,
            usages,
            objects,
            lambda pod: counts.has_any(pod.metadata.uid),
            lambda pod, name, use: _with_gpus(use, counts.of_pod(pod.metadata.uid, objects[name])),
        )
        made = [self._node(each, counts.of_node(objects[each.name])) for each in nodes]
        self._nodes.end_pass()
        return made, found

    def _node(self, node: NodeInfo, gpus: int) -> NodeInfo:
        if not gpus:
            return node
        made = self._nodes.find((node.name, gpus), node)
        if made is not None:
            return made
        made = replace(node, allocatable={**node.allocatable, DEVICES: gpus})
        return self._nodes.keep((node.name, gpus), made, node)


def _with_gpus(use: Usage, gpus: int) -> Usage:
    return replace(use, requests={**use.requests, DEVICES: gpus}) if gpus else use
