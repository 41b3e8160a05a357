"""The cluster as a tree for one gang: domains that have room for it, their rooms and what using them costs.

A cost is one integer made of fields, the most important highest: domains used at each level, unevenness,
leftover at each level, discord (see model.Objective). Costs add up, and comparing two of them compares the
fields from the left. A domain with a single child is merged with it, so that a vertex covers a run of levels.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from webhook.placement import capacity
from webhook.placement.cards import natural
from webhook.placement.model import Mode, Objective, Options, PodClass
from webhook.placement.snapshot import Block, NodeState, Snapshot

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

    reference: ClassVar[int] = 0
    """Number of the class that rooms are measured in: the most frequent comes first."""


def build(question: Question, snapshot: Snapshot) -> Vertex:
    """The tree of everything the gang may use; its root stands for the cluster and costs nothing."""
    costs = Costs(question.levels)
    blocks = [block_vertex(question, block, costs) for block in snapshot.blocks.values()]
    children = sorted((vertex for vertex in blocks if vertex is not None), key=_order)
    return Vertex(-1, -1, (), sum(child.room for child in children), 0, tuple(children))


def block_vertex(question: Question, block: Block, costs: Costs) -> Vertex | None:
    """One block's part of the tree, from the block's cache where it does not depend on the gang itself."""
    if question.inside is not None and not _overlaps(question.inside, block.key):
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
    leaves = []
    for state in block.states:
        if state.path is None and labelled_only:
            continue
        if state.name in question.excluded or not _is_inside(question, state):
            continue
        leaf = _leaf(question, state, costs)
        if leaf is not None:
            leaves.append(leaf)
    return _group(question, leaves, 0, costs) if leaves else None


def _is_inside(question: Question, state: NodeState) -> bool:
    inside = question.inside
    return inside is None or (*place_of(state, question.levels), state.name)[: len(inside)] == inside


def _leaf(question: Question, state: NodeState, costs: Costs) -> Vertex | None:
    rooms = tuple(class_room(question, number, state) for number in range(len(question.classes)))
    if not any(rooms):
        return None
    level = question.levels
    key = (*place_of(state, level), state.name)
    own = _own(question, key, level, rooms[question.reference], costs) + discord(question, state)
    return Vertex(level, level, key, rooms[question.reference], own, (), state, rooms)


def place_of(state: NodeState, levels: int) -> tuple[str, ...]:
    """A node's path; one without place is alone in a domain of its own at every level."""
    return state.path or ("", state.name, *("" for _ in range(levels - 1)))


def class_room(question: Question, number: int, state: NodeState) -> int:
    """How many pods of a class of the gang may and can run on a node."""
    domain = question.tied[number] if question.tied else None
    if domain is not None and place_of(state, question.levels)[: len(domain)] != domain:
        return 0
    return node_room(question.classes[number], state)


def node_room(pod_class: PodClass, state: NodeState) -> int:
    """How many pods of a class may and can run on a node."""
    return 0 if capacity.reason_against_node(pod_class, state) else capacity.room(pod_class, state)


def _own(question: Question, prefix: tuple[str, ...], level: int, room: int, costs: Costs) -> int:
    return 0 if prefix in question.anchored else costs.of_domain(level, room)


def _group(question: Question, leaves: Sequence[Vertex], level: int, costs: Costs) -> Vertex:
    """The vertex of the domain of a level that holds these leaves."""
    if level == question.levels:
        return leaves[0]
    parts: dict[tuple[str, ...], list[Vertex]] = {}
    for leaf in leaves:
        end = level + 3 if level + 1 < question.levels else None
        parts.setdefault(leaf.key[:end], []).append(leaf)
    children = sorted((_group(question, part, level + 1, costs) for part in parts.values()), key=_order)
    room = sum(child.room for child in children)
    key = leaves[0].key[: level + 2]
    own = _own(question, key, level, room, costs)
    if len(children) == 1:
        child = children[0]
        return Vertex(
            level, child.bottom, child.key, room, own + child.own, child.children, child.state, child.rooms
        )
    return Vertex(level, level, key, room, own, tuple(children))


def _order(vertex: Vertex) -> tuple[object, ...]:
    return tuple(natural(part) for part in vertex.key)


def discord(question: Question, state: NodeState) -> int:
    """100 minus the headroom score of a node, at its best 0, in whole numbers.

    The score is the weighted mean of the shares of the allocatable amounts that stay free after one pod of
    the reference class; extended resources that the class asks for count with weight 1 unless given another.
    """
    wanted = dict(question.classes[question.reference].requests)
    weights = {r: 1 for r in wanted if "/" in r} | dict(question.options.weights)
    total = parts = 0
    for resource, weight in weights.items():
        allocatable = state.node.allocatable.get(resource, 0)
        if allocatable > 0 and weight > 0:
            left = max(0, state.free.get(resource, 0) - wanted.get(resource, 0))
            parts += weight * min(100, 100 * left // allocatable)
            total += weight
    score = parts // total if total else 0
    return score if question.options.most_allocated else 100 - score


def evaluate(question: Question, snapshot: Snapshot, counts: Mapping[str, int], costs: Costs) -> Objective:
    """The objective of a distribution (node name -> members on it), worked out from scratch."""
    used: set[tuple[int, tuple[str, ...]]] = set()
    total = 0
    for name, count in counts.items():
        state = snapshot.nodes[name]
        key = (*place_of(state, question.levels), name)
        used |= {(level, key[: level + 2]) for level in range(question.levels + 1)}
        total += discord(question, state)
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
        count = class_room(question, question.reference, state)
        key = (*place_of(state, question.levels), state.name)
        for level in range(question.levels + 1):
            rooms[key[: level + 2]] = rooms.get(key[: level + 2], 0) + count
    return rooms


def usable_states(question: Question, states: Iterable[NodeState]) -> Iterable[NodeState]:
    """The nodes that the gang's own wishes leave to it."""
    labelled_only = question.required is not None and question.required < question.levels
    for state in states:
        if state.path is None and labelled_only:
            continue
        if state.name not in question.excluded and _is_inside(question, state):
            yield state
