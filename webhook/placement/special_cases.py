"""Gangs that need no search: each class fits on only one node, or the mode is headroom.

Mode headroom prefers nodes on which the most cpu, memory and GPUs stay free, so that each keeps reserves.

It searches the smallest domains with capacity for the gang: nodes first, then the domains of each label level
upwards, up to the required level. In each domain it takes the node with the best headroom score that fits the
whole gang. If there is none, it takes nodes from the best score down until all pods have a node. Of these
domains it chooses the one whose nodes have the best mean score. Ties go to the node with less capacity, and
to the domain that is first by name. The mode serves identical pods alone, since a node has no single score
for pods of several classes.
"""

from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction

from webhook.placement import capacity
from webhook.placement.budget import Budget
from webhook.placement.costs import SCORE_BITS
from webhook.placement.evaluate import Solution
from webhook.placement.question import Counts, Question, pods_of
from webhook.placement.snapshot import NodeState
from webhook.placement.vertex import Vertex, domains_at, nodes_of

SLOTS = 8
"""Capacities of a node that are checked in one step."""


def only_placement(question: Question, root: Vertex, budget: Budget) -> Solution | None:
    """The only placement, or the proof that none exists; None if there may be several, or cards decide.

    It serves gangs whose classes each fit on only one node, for example pods pinned to nodes.
    """
    if len(question.classes) == 1 or question.slices:
        return None
    where = _only_nodes(root, budget)
    if where is None:
        return None
    if len(where) < len(question.classes) or _is_apart(question, where.values()):
        return Solution(None, True)
    counts = _counts_on(question, where)
    for state, taken in counts.items():
        pods = pods_of(question.classes, taken)
        budget.take(1 + len(pods))
        fits = capacity.fits_together(pods, state, budget)
        if not fits:
            return None if fits is None else Solution(None, True)
    return Solution({state.name: tuple(taken) for state, taken in counts.items()}, True)


def _only_nodes(root: Vertex, budget: Budget) -> dict[int, Vertex] | None:
    """The only node for each class that fits anywhere; None if a class fits on several."""
    where: dict[int, Vertex] = {}
    for node in nodes_of(root):
        budget.take(1 + len(node.slot_counts) // SLOTS)
        for number in (number for number, free_slots in enumerate(node.slot_counts) if free_slots):
            if number in where:
                return None
            where[number] = node
    return where


def _is_apart(question: Question, nodes: Iterable[Vertex]) -> bool:
    """Whether nodes are in several domains of the required level."""
    level = question.required
    return level is not None and len({node.key[: level + 2] for node in nodes}) > 1


def _counts_on(question: Question, where: Mapping[int, Vertex]) -> dict[NodeState, list[int]]:
    """How many pods of each class each node gets, if each class uses its only node."""
    counts: dict[NodeState, list[int]] = {}
    for number, node in where.items():
        assert node.state is not None
        counts.setdefault(node.state, [0] * len(question.classes))[number] = question.counts[number]
    return counts


def most_headroom(question: Question, root: Vertex) -> Solution:
    """The distribution of mode headroom, or none if the pods do not fit."""
    wanted = question.counts[0]
    for level in _levels(question):
        fitting = [domain for domain in domains_at(root, level) if domain.free_slots >= wanted]
        if fitting:
            return Solution(min((_filled(domain, wanted) for domain in fitting), key=_first)[1], True)
    return Solution(None, True)


def _levels(question: Question) -> Iterator[int | None]:
    """The levels from the nodes up to the required level, or to the whole cluster (None)."""
    highest = 0 if question.required is None else question.required
    yield from range(question.levels, highest - 1, -1)
    if question.required is None:
        yield None


def _first(filled: tuple[Fraction, dict[str, Counts]]) -> Fraction:
    return filled[0]


def _filled(domain: Vertex, wanted: int) -> tuple[Fraction, dict[str, Counts]]:
    """The mean penalty of the nodes used in a domain, and the pods on each."""
    nodes = [node for node in nodes_of(domain) if node.free_slots]
    enough = [node for node in nodes if node.free_slots >= wanted]
    if enough:
        nodes = [min(enough, key=lambda node: (_penalty(node), node.free_slots))]
    else:
        nodes.sort(key=lambda node: (_penalty(node), -node.free_slots))
    counts: dict[str, Counts] = {}
    penalties = 0
    for node in nodes:
        if not wanted:
            break
        assert node.state is not None
        counts[node.state.name] = (min(wanted, node.free_slots),)
        wanted -= min(wanted, node.free_slots)
        penalties += _penalty(node)
    return Fraction(penalties, len(counts)), counts


def _penalty(node: Vertex) -> int:
    return node.own & (1 << SCORE_BITS) - 1
