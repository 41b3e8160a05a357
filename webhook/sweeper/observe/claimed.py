"""GPUs that are had by claims, as amounts of nodes and pods: for people and metrics, not for placement."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from webhook.devices.counted import DeviceCounts
from webhook.devices.supply import Supply
from webhook.identity_cache import IdentityCache
from webhook.kube.objects import Node
from webhook.placement import NodeInfo, Usage
from webhook.scheduling.gpus import DEVICES
from webhook.sweeper.observe.on_nodes import PodsOnNodes, Usages, amended


class Claimed:
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
        standing: PodsOnNodes,
        usages: Usages,
    ) -> tuple[list[NodeInfo], dict[str, tuple[Usage, ...]]]:
        """The nodes with their GPUs, and the usages of those where pods have some. standing: these pods."""
        counts = self._counts
        if counts is None or not counts.serves(supply):
            counts = self._counts = DeviceCounts(supply, self._classes)
        if not counts.counts_any:
            return list(nodes), {}
        found = amended(
            standing,
            usages,
            objects,
            lambda pod: counts.has_any(pod.metadata.uid),
            lambda pod, name, use: _with_gpus(use, counts.of_pod(pod.metadata.uid, objects[name])),
        )
        made = [self._node(each, counts.of_node(objects[each.name])) for each in nodes]
        self._nodes.end_round()
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
