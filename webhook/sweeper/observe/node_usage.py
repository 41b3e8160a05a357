"""What pods take on nodes, recomputed only for nodes whose pods or plans have changed."""

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from webhook.identity_cache import IdentityCache
from webhook.kube.objects import Node, Pod
from webhook.placement import NodeInfo, PodClass, Usage
from webhook.sweeper.observe.plans import CardsByPod, Texts

Usages = Mapping[str, tuple[Usage, ...]]
"""Usage of pods, by node."""

Placed = tuple[Pod, Texts | None]
"""A pod on a node, and the annotations that say which cards it has, None where its own do."""


@dataclass(frozen=True)
class PodsOnNodes:
    """The pods by node; the tuples of a node stay the same objects while nothing changes there.

    bound: pods that are bound. coming: pods that are released or planned to the node. cards: the cards that
    plans give to bound pods.
    """

    bound: Mapping[str, tuple[Pod, ...]]
    coming: Mapping[str, tuple[Placed, ...]]
    cards: Mapping[str, CardsByPod]

    def on(self, node: str) -> list[Placed]:
        """All pods of a node. The cards of a pod that we placed are those of its plan."""
        cards = self.cards.get(node, {})
        bound = self.bound.get(node, ())
        there = ((pod, cards.get((pod.metadata.namespace, pod.metadata.uid))) for pod in bound)
        return [*there, *self.coming.get(node, ())]


class UsagesOnNodes:
    """Caches the usage of each node while its pods are the same objects."""

    def __init__(self) -> None:
        self._by: object = None
        self._usages = IdentityCache[str, tuple[Usage, ...]]()
        self._filled = set[str]()

    def of(
        self,
        on_nodes: PodsOnNodes,
        nodes: Mapping[str, Node],
        by: object,
        usage_of: Callable[[Pod, Texts | None], Usage | None],
        fill: Callable[[str], Usage],
    ) -> Usages:
        """The usage of the pods by node; earlier results are not changed.

        by: the identity of all other inputs of usage_of. A pod for which usage_of returns None takes what
        `fill` returns for its node.
        """
        if by is not self._by:
            self._by, self._usages = by, IdentityCache()

        def usages_on(name: str) -> tuple[Usage, ...] | None:
            usages = [usage_of(pod, annotations) for pod, annotations in on_nodes.on(name)]
            readable = tuple(each for each in usages if each is not None)
            if len(readable) == len(usages):
                self._filled.discard(name)
                return readable or None
            self._filled.add(name)
            return (*readable, fill(name))

        filled = {name: nodes[name] for name in self._filled if name in nodes}
        return self._usages.of_all(usages_on, on_nodes.bound, on_nodes.coming, on_nodes.cards, filled)


def amended(
    on_nodes: PodsOnNodes,
    usages: Usages,
    nodes: Container[str],
    concerns: Callable[[Pod], object],
    amend: Callable[[Pod, str, Usage], Usage],
) -> dict[str, tuple[Usage, ...]]:
    """The usage of these nodes where some are affected, with the added resources.

    A pod that could not be read fills its node, so it does not matter which usage belongs to which pod there.
    """
    found = {}
    for name, taken in usages.items():
        pods = on_nodes.on(name)
        if name in nodes and any(concerns(pod) for pod, _ in pods):
            own = (amend(pod, name, each) for (pod, _), each in zip(pods, taken, strict=False))
            found[name] = (*own, *taken[len(pods) :])
    return found


# --- resources that extensions add --------------------------------------------------------------------

AMOUNTS: Final = 320_000
"""Nodes times rules between pods, or added resources, that are cached, at about 80 bytes each."""

FEWEST_RULES: Final = 16
"""So many of them are distinguished however large the cluster is."""


def most_amounts(node_count: int) -> int:
    """How many rules, or added resources, each of so many nodes may have an amount of."""
    return max(FEWEST_RULES, AMOUNTS // max(1, node_count))


class AddedResources(Protocol):
    """Resources of one pass that neither the spec of a pod nor the status of a node has."""

    def pod_class(self, pod: Pod, pod_class: PodClass) -> PodClass:
        """The class with the added resources that the pod asks for, or with a problem."""

    def completed(
        self, nodes: Sequence[NodeInfo], on_nodes: PodsOnNodes, usages: Usages, objects: Mapping[str, Node]
    ) -> tuple[list[NodeInfo], Usages]:
        """The nodes with their added resources, and the usages with those that pods take.

        on_nodes: the pods of these usages. objects: the nodes by name.
        """

    def devices_of(self, pod: Pod, is_counted: Callable[[str], bool]) -> int | None:
        """How many devices a pod's claims have or ask for; None if unknown.

        is_counted: whether a DeviceClass counts, by its name.
        """


UNKNOWN_CLAIMS: Final = "what its claims on devices ask for is not known in this pass: see the sweeper's log"
CLAIMS_OFF: Final = (
    "its claims on devices are not read: the cluster does not serve resource.k8s.io/v1, or the sweeper has "
    "not found that out yet"
)


@dataclass(frozen=True)
class ClaimsWait:
    """Makes pods with device claims wait where no extension reads claims. problem: the reason."""

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

    def devices_of(self, pod: Pod, is_counted: Callable[[str], bool]) -> int | None:
        """It is not known."""
        return None
