"""An immutable view of the cluster for placing gangs: the free amounts of nodes, grouped by top-level domain.

`assume` returns a new snapshot with the usage of a gang added, and touches only the nodes concerned. Blocks
with unchanged nodes are the same objects in the new snapshot and keep the results that the solver cached in
them. `build(..., previous=...)` keeps such blocks across decisions too.
"""

from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, field, replace
from typing import Any, Final

from webhook.placement.cards.state import CardState, card_state, unmanaged_use
from webhook.placement.eligibility import label_values
from webhook.placement.mix import NO_MIX, Mix
from webhook.placement.model import Assignment, Card, Gang, NodeInfo, Placed, PodClass, Usage
from webhook.placement.names import natural
from webhook.placement.topology import PlacementError, Topology

Path = tuple[str, ...]

MOST_CACHED: Final = 256
"""The most results cached for a block, of some kilobytes each; when it is full, the cache is cleared."""


MOST_NOTES: Final = 64
"""The most results cached for a node."""


class CacheKey:
    """The key of a cached result. It computes its hash once, since its parts hash slowly."""

    __slots__ = ("_hash", "_parts")

    def __init__(self, *parts: object) -> None:
        self._parts = parts
        self._hash = hash(parts)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, CacheKey) and self._parts == other._parts)


MOST_KEYS: Final = 10_000
"""The most keys of which one object is cached."""

_keys: dict[CacheKey, CacheKey] = {}


def shared_key(*parts: object) -> CacheKey:
    """A key that is the same object for equal parts, so that comparing it takes no time."""
    if len(_keys) >= MOST_KEYS:
        _keys.clear()
    key = CacheKey(*parts)
    return _keys.setdefault(key, key)


@dataclass(frozen=True, slots=True, eq=False)
class NodeState:
    """A node, its path (None: no complete label family) and the amounts that its pods leave free."""

    node: NodeInfo
    path: Path | None
    usages: tuple[Usage, ...]
    free: Mapping[str, int]
    cards: tuple[CardState, ...]
    notes: dict[Any, Any] = field(default_factory=dict)
    """Results for exactly this state, at most MOST_NOTES of them."""

    def note(self, key: object, found: object) -> None:
        """Cache a result."""
        if len(self.notes) >= MOST_NOTES:
            self.notes.clear()
        self.notes[key] = found

    @property
    def name(self) -> str:
        """The node's name."""
        return self.node.name

    def with_usages(self, usages: tuple[Usage, ...]) -> "NodeState":
        """The same node with other pods on it."""
        return node_state(self.node, self.path, usages)


def node_state(node: NodeInfo, path: Path | None, usages: tuple[Usage, ...]) -> NodeState:
    """The state of a node with these pods. Free amounts are below 0 if the node is over-committed."""
    free = dict(node.allocatable)
    for usage in usages:
        for resource, amount in usage.requests.items():
            free[resource] = free.get(resource, 0) - amount
    if not node.cards:
        return NodeState(node, path, usages, free, ())
    unmanaged = unmanaged_use(node, usages)
    cards = tuple(_card_state(card, usages, unmanaged.get(card.name, {})) for card in node.cards)
    return NodeState(node, path, usages, free, cards)


def _card_state(card: Card, usages: tuple[Usage, ...], unmanaged: Mapping[str, int]) -> CardState:
    used = dict(unmanaged)
    tiles: frozenset[int] = frozenset()
    for usage in usages:
        for resource, amount in usage.cards.get(card.name, {}).items():
            used[resource] = used.get(resource, 0) + amount
        tiles |= usage.tiles.get(card.name, frozenset())
    return card_state(card, used, tiles)


@dataclass(frozen=True, slots=True, eq=False)
class Domain:
    """A domain of some level, or a node (`index` in the block's states, -1 for a domain), in name order.

    key: the path to the domain; for a node the whole path and its name. flat: if the domain has several nodes
    and each child has a single one, their numbers in the block's states; else empty.
    """

    key: Path
    children: tuple["Domain", ...] = ()
    index: int = -1
    flat: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """The nodes of one top-level domain in the order of the topology.

    layout: its tree, which depends on the labels alone. cache: results for exactly these states, at most
    MOST_CACHED of them. of_layout: results that depend on the layout alone.
    """

    key: Path
    states: tuple[NodeState, ...]
    layout: Domain
    cache: dict[Any, Any] = field(default_factory=dict)
    of_layout: dict[Any, Any] = field(default_factory=dict)

    def largest(self, resource: str) -> int:
        """The largest allocatable amount of a resource on any of the nodes."""
        amount: int = self.worked_out(
            ("largest", resource),
            lambda: max([state.node.allocatable.get(resource, 0) for state in self.states]),
        )
        return amount

    def worked_out(self, key: object, work_out: Callable[[], Any]) -> Any:
        """The cached result for a key, computed now if it is missing."""
        known = self.cache.get(key)
        if known is None:
            known = work_out()
            self.keep(key, known)
        return known

    def keep(self, key: object, found: object) -> None:
        """Cache a result. The cache is bounded, since users may ask any number of questions."""
        if len(self.cache) >= MOST_CACHED:
            self.cache.clear()
        self.cache[key] = found

    def with_states(self, changed: Mapping[str, NodeState]) -> "Block":
        """The same block with new states of some nodes."""
        states = tuple([changed.get(s.node.name, s) for s in self.states])
        return Block(self.key, states, self.layout, of_layout=self.of_layout)


def make_block(key: Path, states: list[NodeState], levels: int) -> Block:
    """A block of nodes that share their top-level domain."""
    places = [key_of(state, levels) for state in states]
    order = sorted(range(len(states)), key=lambda number: [natural(part) for part in places[number]])
    leaves = [Domain(places[number], (), index) for index, number in enumerate(order)]
    return Block(key, tuple(states[number] for number in order), _layout(leaves, 0, levels))


def _layout(leaves: list[Domain], level: int, levels: int) -> Domain:
    if level == levels:
        return leaves[0]
    parts: dict[Path, list[Domain]] = {}
    for leaf in leaves:
        parts.setdefault(leaf.key[: level + 3 if level + 1 < levels else None], []).append(leaf)
    children = tuple(_layout(part, level + 1, levels) for part in parts.values())
    flat = tuple(leaf.index for leaf in leaves) if 1 < len(leaves) == len(children) else ()
    return Domain(leaves[0].key[: level + 2], children, flat=flat)


def place_of(state: NodeState, levels: int) -> Path:
    """A node's path. A node without topology labels has a domain of its own at every level."""
    return state.path or ("", state.name, *("" for _ in range(levels - 1)))


def families_of(snapshot: "Snapshot", names: Iterable[str]) -> set[str]:
    """The label families that locate these nodes."""
    paths = (snapshot.nodes[name].path for name in names)
    return {path[0] for path in paths if path is not None}


def key_of(state: NodeState, levels: int) -> Path:
    """A node's path and name. The first level + 2 parts are the key of its domain at that level."""
    return (*place_of(state, levels), state.node.name)


def _state_after(
    before: NodeState | None, node: NodeInfo, usages: tuple[Usage, ...], topology: Topology
) -> NodeState:
    """The state of a node with these pods, which reuses the unchanged parts of an older state."""
    if before is not None and (before.node is node or before.node == node):
        return before if before.usages == usages else before.with_usages(usages)
    return node_state(node, topology.path(node.labels), usages)


@dataclass(frozen=True, slots=True, eq=False)
class Snapshot:
    """The cluster at one moment; see the module docstring. mix: the GPU pods that it runs."""

    topology: Topology
    nodes: Mapping[str, NodeState]
    blocks: Mapping[Path, Block]
    """In name order."""
    facts: dict[Any, Any] = field(default_factory=dict)
    """Results about the nodes without their pods."""
    mix: Mix = NO_MIX

    @staticmethod
    def build(
        nodes: Iterable[NodeInfo],
        usage: Iterable[tuple[str, Usage]],
        topology: Topology | None = None,
        previous: "Snapshot | None" = None,
    ) -> "Snapshot":
        """A snapshot of these nodes. usage: pairs of a node's name and a pod's usage; see `of`."""
        by_node: dict[str, list[Usage]] = {}
        for name, used in usage:
            by_node.setdefault(name, []).append(used)
        return Snapshot.of(nodes, {name: tuple(used) for name, used in by_node.items()}, topology, previous)

    @staticmethod
    def of(
        nodes: Iterable[NodeInfo],
        usages: Mapping[str, tuple[Usage, ...]],
        topology: Topology | None = None,
        previous: "Snapshot | None" = None,
    ) -> "Snapshot":
        """A snapshot of these nodes and of the usage of pods on them; usage on unknown nodes is ignored.

        previous: an older snapshot of the same topology, whose unchanged parts are reused. That is fast if
        the Node and Usage objects are the same. Raises PlacementError for two nodes of one name.
        """
        topology = topology or Topology()
        old = previous.nodes if previous is not None and previous.topology == topology else {}
        states: dict[str, NodeState] = {}
        for node in nodes:
            if node.name in states:
                raise PlacementError(f"two nodes are named {node.name}")
            used = usages.get(node.name, ())
            states[node.name] = _state_after(old.get(node.name), node, used, topology)
        blocks = _blocks(states, len(topology.level_names), previous if old else None)
        return Snapshot(topology, states, blocks)

    def renewed(self, nodes: Mapping[str, NodeInfo], usages: Mapping[str, tuple[Usage, ...]]) -> "Snapshot":
        """This snapshot with new facts about some nodes, and new usages on some; all others stay."""
        states = dict(self.nodes)
        changed: dict[Path, dict[str, NodeState]] = {}
        has_moved = False
        for name in nodes.keys() | usages.keys():
            before = states[name]
            node, used = nodes.get(name, before.node), usages.get(name, before.usages)
            state = _state_after(before, node, used, self.topology)
            if state is not before:
                has_moved |= state.path != before.path
                states[name] = state
                changed.setdefault(block_key(state), {})[name] = state
        if has_moved:
            blocks = _blocks(states, len(self.topology.level_names), self)
        else:
            blocks = dict(self.blocks)
            for key, each in changed.items():
                blocks[key] = blocks[key].with_states(each)
        facts = {} if nodes else self.facts
        return replace(self, nodes=states, blocks=blocks, facts=facts) if changed else self

    def largest(self, resource: str) -> int:
        """The largest allocatable amount of a resource on any node."""
        if resource not in self.facts:
            each = (block.largest(resource) for block in self.blocks.values())
            self.facts[resource] = max(each, default=0)
        amount: int = self.facts[resource]
        return amount

    def assume(self, assignment: Assignment, gang: Gang) -> "Snapshot":
        """This snapshot with the gang's members on the nodes of the assignment."""
        classes = {member.name: member.pod_class for member in gang.members}
        added: dict[str, list[Usage]] = {}
        for placed in assignment.placed:
            use = usage_of_member(placed, classes[placed.member], gang.identity)
            added.setdefault(placed.node, []).append(use)
        return self.with_usages({name: self.nodes[name].usages + tuple(more) for name, more in added.items()})

    def without(self, node_names: Iterable[str], gone: Any) -> "Snapshot":
        """This snapshot without the pods on these nodes for which `gone` is true."""
        return self.with_usages(
            {name: tuple(use for use in self.nodes[name].usages if not gone(use)) for name in node_names}
        )

    def only(self, names: Set[str]) -> "Snapshot":
        """This snapshot with these nodes alone; complete blocks keep their caches."""
        nodes: dict[str, NodeState] = {}
        blocks: dict[Path, Block] = {}
        for key, block in self.blocks.items():
            left = {name: state for state in block.states if (name := state.node.name) in names}
            if not left:
                continue
            nodes |= left
            is_complete = len(left) == len(block.states)
            made = (
                block if is_complete else make_block(key, list(left.values()), len(self.topology.level_names))
            )
            blocks[key] = made
        return Snapshot(self.topology, nodes, blocks, mix=self.mix)

    def with_mix(self, mix: Mix) -> "Snapshot":
        """This snapshot with another mix, or itself if that is equal, which keeps what is computed for it."""
        return self if mix == self.mix else replace(self, mix=mix)

    def with_usages(self, usages: Mapping[str, tuple[Usage, ...]]) -> "Snapshot":
        """This snapshot with new usages on some nodes."""
        return self.renewed({}, usages)


def usage_of_member(placed: Placed, pod_class: PodClass, gang: str) -> Usage:
    """The usage of a placed member."""
    cards: dict[str, dict[str, int]] = {}
    tiles: dict[str, frozenset[int]] = {}
    for request, slot in zip(pod_class.cards, placed.cards, strict=bool(placed.cards)):
        for share in slot:
            amounts = cards.setdefault(share.card, {})
            for resource, amount in request.per_card:
                amounts[resource] = amounts.get(resource, 0) + amount
            tiles[share.card] = tiles.get(share.card, frozenset()) | frozenset(share.tiles)
    requests = {**dict(pod_class.requests), **dict(pod_class.beside)}
    return Usage(requests, cards, tiles, name=placed.member, gang=gang, labels=label_values(pod_class.rules))


def block_key(state: NodeState) -> Path:
    """The top-level domain of a node; a node without topology labels is a domain of its own."""
    return state.path[:2] if state.path is not None else ("", state.name)


def _blocks(states: Mapping[str, NodeState], levels: int, previous: Snapshot | None) -> dict[Path, Block]:
    grouped: dict[Path, list[NodeState]] = {}
    for state in states.values():
        grouped.setdefault(block_key(state), []).append(state)
    old = previous.blocks if previous is not None else {}
    blocks: dict[Path, Block] = {}
    for key, members in grouped.items():
        known = old.get(key)
        blocks[key] = make_block(key, members, levels) if known is None else _renewed(known, members, levels)
    order = old if old.keys() == blocks.keys() else sorted(blocks, key=lambda key: [*map(natural, key)])
    return {key: blocks[key] for key in order}


def _renewed(known: Block, members: list[NodeState], levels: int) -> Block:
    """The old block if nothing changed, one with its layout if only usage changed, else a new block."""
    if len(known.states) == len(members):
        before = {state.node.name: state for state in known.states}
        same_places = all(
            (old := before.get(state.node.name)) is not None and old.path == state.path for state in members
        )
        if same_places:
            changed = {s.node.name: s for s in members if before[s.node.name] is not s}
            return known.with_states(changed) if changed else known
    return make_block(known.key, members, levels)
