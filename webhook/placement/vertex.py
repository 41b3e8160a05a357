"""A domain of the topology, or a node, with capacity for a gang, and functions that traverse it.

A domain with a single child is merged with it, so that a vertex covers a run of levels. If every child of a
domain is a single node, the nodes are stored as lists of capacities (Leaves), and their vertices are made on
demand. Costs are those of costs.Costs.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from webhook.placement.costs import Costs, Score
from webhook.placement.snapshot import NodeState, block_key, key_of


@dataclass(slots=True, eq=False)
class Leaves:
    """The nodes of a domain in topology order, each of which covers all levels from `top` down."""

    top: int
    states: list[NodeState]
    slot_counts: list[int]
    every: list[list[int]]
    """For each class: the free slots of each node for this class alone."""
    kinds: Sequence[object]
    """For each node a key: nodes with equal keys differ only in names and penalties to the gang."""
    score: Score
    costs: Costs
    made: tuple["Vertex", ...] = ()
    worked_out: list[int] | None = None
    firsts: dict[tuple[int, int], tuple[int, int]] | None = None
    """By free slots for the first class, and those in the cost: the least penalty, and its node."""

    @property
    def penalties(self) -> list[int]:
        """The headroom penalty of each node."""
        if self.worked_out is None:
            self.worked_out = list(map(self.score.penalty, self.states))
        return self.worked_out

    @property
    def vertices(self) -> tuple["Vertex", ...]:
        """The nodes as vertices."""
        if not self.made:
            self.made = tuple(map(self.vertex, range(len(self.states))))
        return self.made

    def vertex(self, number: int) -> "Vertex":
        """One of the nodes as a vertex."""
        state, bottom = self.states[number], self.costs.depth - 1
        slot_counts = tuple([of_class[number] for of_class in self.every])
        own, key = self.own(number), key_of(state, bottom)
        return Vertex(
            self.top,
            bottom,
            key,
            self.slot_counts[number],
            own,
            (),
            None,
            state,
            slot_counts,
            self.kinds[number],
        )

    def cheapest(self, pods: int) -> "Vertex | None":
        """The cheapest node with free slots for so many pods of the first class; None without one."""
        if self.firsts is None:
            self.firsts = {}
            every = zip(self.every[0], self.slot_counts, self.penalties, strict=True)
            for number, (free_slots, counted, penalty) in enumerate(every):
                best = self.firsts.get((free_slots, counted))
                if best is None or penalty < best[0]:
                    self.firsts[free_slots, counted] = penalty, number
        enough = [number for (free_slots, _), (_, number) in self.firsts.items() if free_slots >= pods]
        return self.vertex(min(enough, key=lambda number: (self.own(number), number))) if enough else None

    def own(self, number: int) -> int:
        """The cost of using a node."""
        return self.cost_without_penalty(self.slot_counts[number]) + self.penalties[number]

    def cost_without_penalty(self, free_slots: int) -> int:
        """The cost of using a node with so many free slots, without its headroom penalty."""
        return self.costs.of_node(self.top, free_slots)


@dataclass(slots=True, eq=False)
class Vertex:
    """A domain (or a node, when `state` is set) with capacity for the gang.

    top, bottom: the levels that it covers. free_slots: for pods of the reference class. own: the cost of
    using it. Its children are either `parts` or `leaves`. notes: a cache for the results of solvers.
    """

    top: int
    bottom: int
    key: tuple[str, ...]
    free_slots: int
    own: int
    parts: tuple["Vertex", ...] = ()
    leaves: Leaves | None = None
    state: NodeState | None = None
    slot_counts: tuple[int, ...] = ()
    """For a node: the free slots for each class alone."""
    kind: object = 0
    """For a node: see Leaves.kinds."""
    notes: dict[Any, Any] = field(default_factory=dict)

    @property
    def children(self) -> tuple["Vertex", ...]:
        """The vertices just below."""
        return self.parts if self.leaves is None else self.leaves.vertices


def around(root: Vertex, nodes: Iterable[NodeState]) -> Iterator[Vertex]:
    """The domains of leaves and the single nodes in the blocks of these nodes, in topology order."""
    blocks = {block_key(state) for state in nodes}

    def below(vertex: Vertex) -> Iterator[Vertex]:
        if not vertex.parts:
            yield vertex
        for part in vertex.parts:
            if part.key[:2] in blocks:
                yield from below(part)

    return below(root)


def nodes_of(vertex: Vertex) -> Iterator[Vertex]:
    """The vertices of the nodes of a domain, in topology order."""
    if vertex.state is not None:
        yield vertex
    elif vertex.leaves is not None:
        yield from vertex.leaves.vertices
    for part in vertex.parts:
        yield from nodes_of(part)


def states_of(vertex: Vertex) -> Iterator[tuple[NodeState, int]]:
    """The nodes of a domain and their free slots in topology order, without making vertices."""
    if vertex.state is not None:
        yield vertex.state, vertex.free_slots
    elif vertex.leaves is not None:
        yield from zip(vertex.leaves.states, vertex.leaves.slot_counts, strict=True)
    for part in vertex.parts:
        yield from states_of(part)


def slot_counts_of_states(vertex: Vertex) -> Iterator[tuple[NodeState, tuple[int, ...]]]:
    """The same with the free slots for each class alone."""
    if vertex.state is not None:
        yield vertex.state, vertex.slot_counts
    elif vertex.leaves is not None:
        yield from zip(vertex.leaves.states, zip(*vertex.leaves.every, strict=True), strict=True)
    for part in vertex.parts:
        yield from slot_counts_of_states(part)


def domains_at(vertex: Vertex, level: int | None) -> Iterator[Vertex]:
    """The domains of a level inside a domain; None: the domain itself."""
    if level is None or vertex.bottom >= level:
        yield vertex
    elif vertex.leaves is not None:
        yield from vertex.leaves.vertices
    else:
        for part in vertex.parts:
            yield from domains_at(part, level)


def regions(vertex: Vertex, level: int | None, around: int = 0) -> Iterator[tuple[int, Vertex]]:
    """The same, each with the cost of the domains around it. around: the cost of those around the vertex."""
    if level is None or vertex.bottom >= level:
        yield around, vertex
        return
    for child in vertex.children:
        yield from regions(child, level, around + vertex.own)
