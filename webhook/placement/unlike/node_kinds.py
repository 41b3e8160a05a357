"""Nodes that are alike to a gang of unlike pods, and what all searches over given nodes need of them."""

from collections.abc import Sequence
from dataclasses import dataclass

from webhook.placement import capacity
from webhook.placement.budget import Budget
from webhook.placement.model import PodClass
from webhook.placement.question import Counts, Question
from webhook.placement.snapshot import NodeState
from webhook.placement.tree import Vertex

DEEPEST = 400
"""Pods or nodes beyond which no search is tried: each is one call inside the other."""


@dataclass(frozen=True, slots=True)
class NodeKind:
    """Nodes that are alike to the gang's classes: room for each class alone, what is free, one of them, and
    the names of all.
    """

    number: int
    rooms: Counts
    free: Counts
    node: NodeState
    names: list[str]


class NodePacking:
    """One question on some nodes: whether all pods fit on them.

    needs: of each class the amounts of the resources that the gang asks for; scale: the largest free amount
    of each on any node. exact: whether each question about cards was decided; one that was not counts as not
    fitting, and no answer is certain then.
    """

    def __init__(self, question: Question, nodes: Sequence[Vertex], budget: Budget) -> None:
        """nodes: vertices of single nodes. budget: of the steps that may be taken."""
        self.classes = question.classes
        self.counts = question.counts
        self.budget = budget
        self.exact = True
        resources = sorted({resource for pod in question.classes for resource, _ in pod.requests})
        requests = [dict(pod.requests) for pod in question.classes]
        self.needs: list[Counts] = [tuple(each.get(r, 0) for r in resources) for each in requests]
        self.carded = any(pod.wants_cards for pod in question.classes)
        self.kinds = self._kinds(nodes, resources)
        self.scale = [max(1, *(kind.free[r] for kind in self.kinds)) for r in range(len(resources))]

    def _kinds(self, nodes: Sequence[Vertex], resources: Sequence[str]) -> list[NodeKind]:
        """The nodes by kind; where cards matter, no two nodes with cards are alike."""
        kinds: dict[object, NodeKind] = {}
        for vertex in nodes:
            state = vertex.state
            assert state is not None
            free = tuple(state.free.get(resource, 0) for resource in resources)
            alike = (vertex.rooms, free, id(state) if self.carded and state.cards else 0)
            kind = kinds.setdefault(alike, NodeKind(len(kinds), vertex.rooms, free, state, []))
            kind.names.append(state.name)
        return list(kinds.values())

    def fits_together(self, pods: Sequence[PodClass], kind: NodeKind) -> bool:
        """Whether these pods fit on such a node, as far as that was decided."""
        fits = capacity.fits_together(pods, kind.node, self.budget)
        self.exact = self.exact and fits is not None
        return bool(fits)

    def share(self, amounts: Sequence[int]) -> float:
        """How large amounts are in all, each against the largest node."""
        return sum(amount / most for amount, most in zip(amounts, self.scale, strict=True))
