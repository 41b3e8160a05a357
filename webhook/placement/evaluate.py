"""The result of a solver, and its objective, computed from the nodes' states alone."""

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass

from webhook.placement import capacity
from webhook.placement.budget import Budget
from webhook.placement.costs import Costs
from webhook.placement.model import Objective
from webhook.placement.question import Counts, Question, is_in, is_usable
from webhook.placement.snapshot import NodeState, Path, Snapshot, key_of
from webhook.placement.tree import score_of
from webhook.placement.vertex import Vertex


@dataclass(frozen=True, slots=True)
class Cover:
    """Nodes in topology order for identical pods, each with its free slots, and the cost of using them."""

    cost: int
    nodes: list[tuple[NodeState, int]]


@dataclass(frozen=True, slots=True)
class Solution:
    """Pods of each class by node (None: no placement found), and whether it is proven to be the best.

    cost: of the nodes used, if the solver knows it; then the counts are in topology order.
    """

    counts: Mapping[str, Counts] | None
    proven: bool
    cost: int | None = None


def cost_of(root: Vertex, places: Iterable[Path]) -> int:
    """Cost of using these nodes. places: their paths, which end with their names."""
    used = set(places)
    return _cost_below(root, {place[:2] for place in used}, {place[-1] for place in used}) or 0


def _cost_below(vertex: Vertex, blocks: Set[Path], names: Set[str]) -> int | None:
    """Cost of using these nodes of a domain; None if it has none of them. blocks: the blocks of the nodes."""
    if vertex.state is not None:
        return vertex.own if vertex.state.node.name in names else None
    leaves = vertex.leaves
    if leaves is not None:
        chosen = [n for n, state in enumerate(leaves.states) if state.node.name in names]
        inside = [leaves.own(number) for number in chosen]
    else:
        parts = [part for part in vertex.parts if part.key[:2] in blocks]
        inside = [cost for part in parts if (cost := _cost_below(part, blocks, names)) is not None]
    return vertex.own + sum(inside) if inside else None


def evaluate(question: Question, snapshot: Snapshot, counts: Mapping[str, int], costs: Costs) -> Objective:
    """The objective of a distribution (node name -> members on it), computed from scratch."""
    used: set[tuple[int, Path]] = set()
    total = 0
    score = score_of(question, snapshot)
    for name in counts:
        state = snapshot.nodes[name]
        key = key_of(state, question.levels)
        used |= {(level, key[: level + 2]) for level in range(question.levels + 1)}
        total += score.penalty(state)
    slot_counts = _slots_by_prefix(question, snapshot)
    for level, prefix in used:
        if prefix not in question.anchored:
            total += costs.of_domain(level, slot_counts.get(prefix, 0))
    return costs.objective(total)


def _slots_by_prefix(question: Question, snapshot: Snapshot) -> dict[Path, int]:
    slot_counts: dict[Path, int] = {}
    for state in snapshot.nodes.values():
        if not is_usable(question, state):
            continue
        count = _reference_slots(question, state)
        key = key_of(state, question.levels)
        for level in range(question.levels + 1):
            slot_counts[key[: level + 2]] = slot_counts.get(key[: level + 2], 0) + count
    return slot_counts


def _reference_slots(question: Question, state: NodeState) -> int:
    """Free slots that count as leftover: wherever the class can run, even if it is confined elsewhere."""
    pod_class = question.classes[question.reference]
    if capacity.reason_against_node(pod_class, state):
        return 0
    return capacity.count_slots(pod_class, state, longest=question.card_steps).pods


def class_slots(question: Question, number: int, state: NodeState, budget: Budget | None = None) -> int:
    """Free slots of a node for a class of the gang, by rules and amounts, as far as the budget decides."""
    if not is_in(question.confinement(number), state, question.levels):
        return 0
    pod_class = question.classes[number]
    if capacity.reason_against_node(pod_class, state):
        return 0
    return capacity.count_slots(pod_class, state, budget=budget, longest=question.card_steps).pods
