"""The cluster as a tree for one gang: domains that have room for it, their rooms and what using them costs.

A cost is one integer made of fields, the most important highest: domains used at each level, unevenness,
leftover at each level, discord (see model.Objective). Costs add up, and comparing two of them compares the
fields from the left. A domain with a single child is merged with it, so that a vertex covers a run of levels.
"""

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from webhook.placement import capacity
from webhook.placement.cards import natural
from webhook.placement.model import Mode, Objective, Options, PodClass
from webhook.placement.snapshot import Block, Domain, NodeState, Path, Snapshot, place_of

_COUNT_BITS = 32
_ROOM_BITS = 64
_SQUARE_BITS = 64
_SCORE_BITS = 40


class Costs:
    """Packs and unpacks the fields of a cost for a topology of `levels` label levels and the node below."""

    def __init__(self, levels: int) -> None:
        """levels: number of label levels, without the node."""
        self.depth = levels + 1
        self.square = _SCORE_BITS + _ROOM_BITS * self.depth
        self.leftover = [_SCORE_BITS + _ROOM_BITS * (self.depth - 1 - level) for level in range(self.depth)]
        first = self.square + _SQUARE_BITS
        self.domains = [first + _COUNT_BITS * (self.depth - 1 - level) for level in range(self.depth)]

    def of_domain(self, level: int, room: int) -> int:
        """Cost of using one domain of a level that has room for so many pods."""
        return (1 << self.domains[level]) + (room << self.leftover[level])

    def objective(self, cost: int) -> Objective:
        """The fields of a cost."""
        return Objective(
            tuple(cost >> shift & (1 << _COUNT_BITS) - 1 for shift in self.domains),
            cost >> self.square & (1 << _SQUARE_BITS) - 1,
            tuple(cost >> shift & (1 << _ROOM_BITS) - 1 for shift in self.leftover),
            cost & (1 << _SCORE_BITS) - 1,
        )


@dataclass(slots=True, eq=False)
class Vertex:
    """A domain (or a node, when `state` is set) with room for the gang.

    top, bottom: the levels that it covers. room: of the reference class, in pods. own: the cost of using it.
    """

    top: int
    bottom: int
    key: tuple[str, ...]
    room: int
    own: int
    children: tuple["Vertex", ...] = ()
    state: NodeState | None = None
    rooms: tuple[int, ...] = ()
    """Of a node: room for each class alone."""
    even: tuple[int, int] | None = None
    """Where all its nodes have the same room: that, and the lowest level at which a node is not merged up."""


@dataclass(frozen=True, slots=True)
class Question:
    """A gang as the solvers see it: classes with counts, and the rules that shape the tree.

    required: number of the required level or None; slices: (level, size), coarsest level first; anchored:
    prefixes of the paths of domains that the gang uses already, and the names of such nodes.
    """

    classes: tuple[PodClass, ...]
    counts: tuple[int, ...]
    levels: int
    options: Options = field(default_factory=Options)
    required: int | None = None
    preferred: int | None = None
    slices: tuple[tuple[int, int], ...] = ()
    anchored: frozenset[tuple[str, ...]] = frozenset()
    inside: tuple[str, ...] | None = None
    excluded: frozenset[str] = frozenset()
    tied: tuple[tuple[str, ...] | None, ...] = ()
    """For each class the domain that it must stay in; () when none is tied."""
    settled: tuple[int, ...] = ()
    """For each class how many of the slices, from the coarsest, do not bind it; () without slices."""

    reference: ClassVar[int] = 0
    """Number of the class that rooms are measured in: the most frequent comes first."""


def build(question: Question, snapshot: Snapshot) -> Vertex:
    """The tree of everything the gang may use; its root stands for the cluster and costs nothing."""
    costs = Costs(question.levels)
    blocks = [block_vertex(question, block, costs) for block in snapshot.blocks.values()]
    children = sorted(
        (vertex for vertex in blocks if vertex is not None), key=lambda v: [natural(part) for part in v.key]
    )
    room = sum(child.room for child in children)
    return Vertex(-1, -1, (), room, 0, tuple(children), even=_even(children))


def _even(children: Sequence[Vertex]) -> tuple[int, int] | None:
    rooms = {child.even[0] if child.even else None for child in children}
    if len(rooms) != 1 or None in rooms:
        return None
    return max(child.even for child in children if child.even)


def block_vertex(question: Question, block: Block, costs: Costs) -> Vertex | None:
    """One block's part of the tree, from the block's cache where it does not depend on the gang itself."""
    if question.inside is not None and not _overlaps(question.inside, block.key):
        return None
    if question.tied and not any(tie is None or _overlaps(tie, block.key) for tie in question.tied):
        return None
    plain = (
        not question.tied
        and not question.anchored
        and question.inside is None
        and not (question.excluded and any(state.name in question.excluded for state in block.states))
    )
    labelled_only = question.required is not None and question.required < question.levels
    if not plain:
        return _block_vertex(question, block, costs, labelled_only)
    options = question.options
    key = (
        "vertex", question.classes, question.reference, labelled_only,
        tuple(sorted(options.weights.items())), options.most_allocated,
    )  # fmt: skip
    if key not in block.cache:
        block.cache[key] = _block_vertex(question, block, costs, labelled_only)
    vertex: Vertex | None = block.cache[key]
    return vertex


def _overlaps(inside: tuple[str, ...], key: tuple[str, ...]) -> bool:
    length = min(len(inside), len(key))
    return inside[:length] == key[:length]


def _block_vertex(question: Question, block: Block, costs: Costs, labelled_only: bool) -> Vertex | None:
    if labelled_only and block.states[0].path is None:
        return None
    return _Builder(question, block, costs).vertex(block.layout, 0)


class _Builder:
    """Turns a block's layout into vertices, leaving out what has no room for the gang."""

    def __init__(self, question: Question, block: Block, costs: Costs) -> None:
        self.question = question
        self.states = block.states
        self.costs = costs
        self.choosy = bool(question.excluded) or question.inside is not None
        self.score = Score(question)

    def vertex(self, domain: Domain, level: int) -> Vertex | None:
        if domain.index >= 0:
            return self._leaf(domain)
        if len(domain.children) == 1:
            only = self.vertex(domain.children[0], level + 1)
            return None if only is None else self._merged(domain, level, only)
        children = []
        room = 0
        for part in domain.children:
            child = self.vertex(part, level + 1)
            if child is not None:
                children.append(child)
                room += child.room
        if not children:
            return None
        if len(children) == 1:
            return self._merged(domain, level, children[0])
        own = self._own(domain.key, level, room)
        return Vertex(level, level, domain.key, room, own, tuple(children), even=_even(children))

    def _merged(self, domain: Domain, level: int, child: Vertex) -> Vertex:
        """The only child, standing for the domain as well."""
        child.top = level
        child.own += self._own(domain.key, level, child.room)
        if child.state is not None:
            child.even = (child.room, level)
        return child

    def _leaf(self, domain: Domain) -> Vertex | None:
        state = self.states[domain.index]
        question = self.question
        if self.choosy and not is_usable(question, state):
            return None
        rooms = tuple([class_room(question, number, state) for number in range(len(question.classes))])
        if not any(rooms):
            return None
        level, room = question.levels, _reference_room(question, state) if question.tied else rooms[0]
        own = self._own(domain.key, level, room) + self.score.discord(state)
        return Vertex(level, level, domain.key, room, own, (), state, rooms, (room, level))

    def _own(self, key: Path, level: int, room: int) -> int:
        return 0 if key in self.question.anchored else self.costs.of_domain(level, room)


class Score:
    """The headroom score of nodes, 0 to 100, for one gang.

    It is the weighted mean of the shares of the allocatable amounts that stay free after one pod of the
    reference class; extended resources that the class asks for count with weight 1 unless given another.
    """

    def __init__(self, question: Question) -> None:
        """question: the gang."""
        wanted = dict(question.classes[question.reference].requests)
        weights = {r: 1 for r in wanted if "/" in r} | dict(question.options.weights)
        self.parts = [(r, weight, wanted.get(r, 0)) for r, weight in sorted(weights.items()) if weight > 0]
        self.most_allocated = question.options.most_allocated

    def discord(self, state: NodeState) -> int:
        """100 minus the score."""
        total = parts = 0
        for resource, weight, need in self.parts:
            allocatable = state.node.allocatable.get(resource, 0)
            if allocatable > 0:
                left = state.free.get(resource, 0) - need
                if left > 0:
                    parts += weight * min(100, 100 * left // allocatable)
                total += weight
        score = parts // total if total else 0
        return score if self.most_allocated else 100 - score


def cost_of(root: Vertex, used: Container[str]) -> int:
    """Cost of using these nodes, by name; without unevenness."""

    def below(vertex: Vertex) -> int:
        if vertex.state is not None:
            return vertex.own if vertex.state.node.name in used else -1
        total = -1
        for child in vertex.children:
            cost = below(child)
            if cost >= 0:
                total = max(total, 0) + cost
        return total + vertex.own if total >= 0 else -1

    return max(0, below(root))


def evaluate(question: Question, snapshot: Snapshot, counts: Mapping[str, int], costs: Costs) -> Objective:
    """The objective of a distribution (node name -> members on it), worked out from scratch."""
    used: set[tuple[int, Path]] = set()
    total = 0
    score = Score(question)
    for name, count in counts.items():
        state = snapshot.nodes[name]
        key = (*place_of(state, question.levels), name)
        used |= {(level, key[: level + 2]) for level in range(question.levels + 1)}
        total += score.discord(state)
        if question.options.mode is Mode.BALANCED:
            total += count * count << costs.square
    rooms = _rooms_by_prefix(question, snapshot)
    for level, prefix in used:
        if prefix not in question.anchored:
            total += costs.of_domain(level, rooms.get(prefix, 0))
    return costs.objective(total)


def _rooms_by_prefix(question: Question, snapshot: Snapshot) -> dict[tuple[str, ...], int]:
    rooms: dict[tuple[str, ...], int] = {}
    for state in usable_states(question, snapshot.nodes.values()):
        count = _reference_room(question, state)
        key = (*place_of(state, question.levels), state.name)
        for level in range(question.levels + 1):
            rooms[key[: level + 2]] = rooms.get(key[: level + 2], 0) + count
    return rooms


def usable_states(question: Question, states: Iterable[NodeState]) -> Iterable[NodeState]:
    """The nodes that the gang's own wishes leave to it."""
    return (state for state in states if is_usable(question, state))


def is_usable(question: Question, state: NodeState) -> bool:
    """Whether the gang's own wishes leave the node to it."""
    if state.path is None and question.required is not None and question.required < question.levels:
        return False
    if state.node.name in question.excluded:
        return False
    inside = question.inside
    return inside is None or (*place_of(state, question.levels), state.node.name)[: len(inside)] == inside


def _reference_room(question: Question, state: NodeState) -> int:
    """Room that leftover is measured in: wherever the class may run, even where it is tied elsewhere."""
    pod_class = question.classes[question.reference]
    return 0 if capacity.reason_against_node(pod_class, state) else capacity.room(pod_class, state)


def class_room(question: Question, number: int, state: NodeState) -> int:
    """How many pods of a class of the gang may and can run on a node."""
    domain = question.tied[number] if question.tied else None
    if domain is not None and (*place_of(state, question.levels), state.name)[: len(domain)] != domain:
        return 0
    pod_class = question.classes[number]
    return 0 if capacity.reason_against_node(pod_class, state) else capacity.room(pod_class, state)
