"""What an extension adds to nodes and pods of one pass, beside what their own objects say. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from webhook.kube.objects import Node, Pod
from webhook.placement import NodeInfo, PodClass
from webhook.sweeper.observe.node_usage import PodsOnNodes, Usages

AMOUNTS: Final = 320_000
"""Nodes times rules between pods, or added resources, that are held in memory, at about 80 bytes each."""

FEWEST_RULES: Final = 16
"""So many of them are told apart however large the cluster is."""


def most_amounts(node_count: int) -> int:
    """How many rules, or added resources, each of so many nodes may have an amount of."""
    return max(FEWEST_RULES, AMOUNTS // max(1, node_count))


class AddedResources(Protocol):
    """Resources of one pass that neither the spec of a pod nor the status of a node has."""

    def pod_class(self, pod: Pod, pod_class: PodClass) -> PodClass:
        """The class with what the pod asks for of them, or with the problem that this is."""

    def completed(
        self, nodes: Sequence[NodeInfo], on_nodes: PodsOnNodes, usages: Usages, objects: Mapping[str, Node]
    ) -> tuple[list[NodeInfo], Usages]:
        """The nodes with what they have, and the usages with what their pods take.

        on_nodes: the pods of these usages. objects: the nodes by name.
        """


UNKNOWN_CLAIMS: Final = (
    "what its claims on devices ask for is not known in this pass: the sweeper's log says why"
)
CLAIMS_OFF: Final = (
    "its claims on devices are not read: the cluster does not serve resource.k8s.io/v1, or the sweeper has "
    "not found that out yet"
)


@dataclass(frozen=True)
class ClaimsWait:
    """Lets pods with claims on devices wait, where nothing else knows what these ask for. problem: why."""

    problem: str

    def pod_class(self, pod: Pod, pod_class: PodClass) -> PodClass:
        """The class, or the problem."""
        if pod_class.problem or not pod.spec.resource_claims:
            return pod_class
        return PodClass((), pod_class.rules, problem=self.problem)

    def completed(
        self, nodes: Sequence[NodeInfo], on_nodes: PodsOnNodes, usages: Usages, objects: Mapping[str, Node]
    ) -> tuple[list[NodeInfo], Usages]:
        """All as it was."""
        return list(nodes), usages
