"""What pods take on nodes: worked out again for those nodes alone whose pods, or plans for them, changed."""

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from webhook.identity_cache import IdentityCache
from webhook.kube.objects import Node, Pod
from webhook.placement import NodeInfo, PodClass, Usage
from webhook.sweeper.observe.plans import CardsByPod, Texts

Usages = Mapping[str, tuple[Usage, ...]]
"""What pods take, by node."""

Placed = tuple[Pod, Texts | None]
"""A pod on a node, and the annotations that say which cards it has, None where its own do."""


@dataclass(frozen=True)
class PodsOnNodes:
    """The pods that have a node, by it: the very same tuples for as long as nothing changes on a node.

    bound: others, as they stand there. coming: those that are sent or planned there. cards: what plans say of
    the cards of bound ones.
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
    """Remembers what each node's pods take for as long as all of them are the very same."""

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
        """By node, what its pods take; what was handed out before stays as it was.

        by: the identity of all else on which usage_of depends. A pod for which that is None takes what `fill`
        says of its node.
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
    """What pods take of these nodes where some are concerned, with what is added to the use of each.

    A pod that could not be read fills its node, so that it does not matter whose usage is whose there.
    """
    found = {}
    for name, taken in usages.items():
        pods = on_nodes.on(name)
        if name in nodes and any(concerns(pod) for pod, _ in pods):
            own = (amend(pod, name, each) for (pod, _), each in zip(pods, taken, strict=False))
            found[name] = (*own, *taken[len(pods) :])
    return found


# --- what extensions add ------------------------------------------------------------------------------

AMOUNTS: Final = 320_000
"""Nodes times rules between pods, or added resources, that are held in memory, at about 80 bytes each."""

FEWEST_RULES: Final = 16
"""So many of them are distinguished however large the cluster is."""


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

    def devices_of(self, pod: Pod, is_counted: Callable[[str], bool]) -> int | None:
        """How many devices a pod's claims have been given, or ask for; None where that is not known.

        is_counted: whether those of a DeviceClass count, by its name.
        """


UNKNOWN_CLAIMS: Final = "what its claims on devices ask for is not known in this pass: see the sweeper's log"
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

    def devices_of(self, pod: Pod, is_counted: Callable[[str], bool]) -> int | None:
        """It is not known."""
        return None
