"""The picture of the cluster at one moment: domains and nodes. Pure.

A picture is drawn once for all viewers and then limited to the rights of each (see redact). GPUs are the
operator's GPU resources (gpus.resources), counted by scheduling.gpu_counts. Shared cards are shown
one by one inside their node.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

import msgspec

from webhook.kube.objects import Pod
from webhook.placement import Snapshot, Topology
from webhook.placement.names import natural
from webhook.placement.snapshot import NodeState
from webhook.scheduling.gpu_counts import NodeGpus, node_gpus, used_gpus
from webhook.scheduling.gpus import Counting
from webhook.sweeper.observe.gangs import GangKey
from webhook.sweeper.observe.view import View

FREE: Final = "free"
USED: Final = "used"
WAITED_FOR: Final = "waiting-for"
RESERVED: Final = "reserved"
EXCLUDED: Final = "excluded"
STATES: Final = (FREE, USED, RESERVED, WAITED_FOR, EXCLUDED)
"""The states of a node; a later one takes precedence. Partly used nodes count as used."""

PlacedPod = tuple[Pod, str, str]
"""A pod, its state on the node, and its gang; see PodTile."""

Holder = tuple[str, str]
"""The gang that a node is reserved for, and until when; see NodeTile."""

NOT_RESERVED: Final[Holder] = ("", "")

NO_PLACE: Final = "no topology labels"
"""The name of the domain of nodes without a complete family of topology labels."""


class Shown(msgspec.Struct, frozen=True, rename="camel"):
    """Base of everything that is sent to the page."""


class PodTile(Shown, frozen=True):
    """A pod on a node. state: "bound", "released" or "planned"; gpus: how many it uses there.

    gang: its gang as kind/name, "" for a pod without a gang.
    """

    namespace: str
    name: str
    gpus: int
    state: str
    gang: str = ""


class CardTile(Shown, frozen=True):
    """A shared card: how many pods share it, and which of its tiles are used."""

    name: str
    pods: int
    tiles: int
    tiles_used: list[int]


class NodeTile(Shown, frozen=True):
    """A node: its GPUs, the pods that use them, and why it takes no pods (cause, "" if it does).

    reserved_for: the gang that it is reserved for, as namespace/kind/name, "" if none; reserved_until:
    RFC 3339, "" if it is reserved for later pods of that gang. avoided: why gangs avoid it, "" if not.
    """

    name: str
    domain: str
    model: str
    gpus: int
    used: int
    waiting: int
    state: str
    cause: str = ""
    cards: list[CardTile] = msgspec.field(default_factory=list)
    pods: list[PodTile] = msgspec.field(default_factory=list)
    reserved_for: str = msgspec.field(default="", name="heldFor")
    reserved_until: str = msgspec.field(default="", name="reservedUntil")
    avoided: str = ""
    by_model: dict[str, list[int]] = msgspec.field(default_factory=dict)
    """For a node with several models, such as MIG instances beside whole GPUs: how many, and how many
    used."""

    @property
    def gpus_by_model(self) -> Mapping[str, Sequence[int]]:
        """For each of its models the number of GPUs, and how many of them are used or waited for.

        On a node that takes no pods, only used GPUs count.
        """
        counts: Mapping[str, Sequence[int]] = self.by_model or {
            self.model: (self.gpus, self.used + self.waiting)
        }
        if self.state != EXCLUDED:
            return counts
        return {model: (used, used) for model, (_, used) in counts.items()}


class DomainTile(Shown, frozen=True):
    """A domain with sums over its nodes. id: its path; nodes: how many in each of STATES.

    gpus: of nodes that take pods, plus those used or waited for on other nodes.
    """

    id: str
    parent: str
    level: int
    name: str
    gpus: int
    used: int
    waiting: int
    nodes: list[int]
    whole: int
    """GPUs on nodes that are wholly free and not reserved."""
    reserved: int = 0
    """GPUs that are free and reserved for a gang."""


class Picture(Shown, frozen=True):
    """The whole picture. levels: names, coarsest first; families: see family_names."""

    levels: list[str]
    families: list[str]
    domains: list[DomainTile]
    nodes: dict[str, NodeTile]
    models: list[str]
    unreadable: int = 0


def draw(
    view: View,
    snapshot: Snapshot,
    counting: Counting,
    avoided: Mapping[str, str] = MappingProxyType({}),
    gang_of: Callable[[Pod], GangKey] | None = None,
) -> Picture:
    """The picture of one view and of the snapshot made from it.

    avoided: nodes where pods fail, and why. gang_of: the gang of a pod, if already known.
    """
    places, holders = _pods_by_node(view, gang_of or view.gang_of), reserved_nodes(view)
    tiles = {
        state.name: node_tile(
            state,
            counting,
            places.get(state.name, []),
            holders.get(state.name, NOT_RESERVED),
            avoided.get(state.name, ""),
        )
        for state in snapshot.nodes.values()
        if counting.gpus(state.node.allocatable) or state.cards
    }
    topology = snapshot.topology
    return Picture(
        levels=list(topology.level_names),
        families=family_names(topology, {state.path[0] for state in snapshot.nodes.values() if state.path}),
        domains=sum_domains(tiles.values()),
        nodes=tiles,
        models=sorted({tile.model for tile in tiles.values() if tile.model}),
        unreadable=len(view.nodes) - len(snapshot.nodes),
    )


def family_names(topology: Topology, used: Set[str]) -> list[str]:
    """The displayed name of each family, "" for families without nodes.

    It is the prefix of its keys, plus a key if two families share the prefix. used: the numbers of families
    with nodes; paths begin with these numbers.
    """
    prefixes = [
        family[0].rpartition("/")[0] or family[0] if str(number) in used else ""
        for number, family in enumerate(topology.families)
    ]
    return [
        prefix
        if prefixes.count(prefix) == 1 or not prefix
        else f"{prefix}, {family[min(1, len(family) - 1)]}"
        for prefix, family in zip(prefixes, topology.families, strict=True)
    ]


def _pods_by_node(view: View, gang_of: Callable[[Pod], GangKey]) -> dict[str, list[PlacedPod]]:
    """Node -> its bound, released and planned pods."""
    found: dict[str, list[PlacedPod]] = {}

    def add(node: str, pod: Pod, how: str) -> None:
        gang = gang_of(pod)
        found.setdefault(node, []).append(
            (pod, how, "" if gang.kind == "Pod" else f"{gang.kind}/{gang.name}")
        )

    for pod in view.others:
        node = view.occupied(pod)
        if node is not None and (pod.spec.node_name or view.is_ours(pod)):
            add(node, pod, "bound" if pod.spec.node_name else "released")
    for pod in view.gated:
        planned = view.planned.get(pod.metadata.uid)
        if planned is not None:
            add(planned.node, pod, "planned")
    return found


def reserved_nodes(view: View) -> dict[str, Holder]:
    """Node -> the gang that it is reserved for: one that has waited long, or has later pods."""
    found: dict[str, Holder] = {}
    for placement in view.placements.values():
        holder = f"{placement.metadata.namespace}/{placement.spec.gang}", placement.status.reserved_until
        found.update((name, holder) for name in placement.holding)
    return found


def node_tile(
    state: NodeState,
    counting: Counting,
    pods: Iterable[PlacedPod] = (),
    holder: Holder = NOT_RESERVED,
    avoided: str = "",
) -> NodeTile:
    """The tile of a node with these pods."""
    taken = {use.name: counting.gpus(use.requests) for use in state.usages}
    shown = [
        PodTile(pod.metadata.namespace, pod.metadata.name, gpus, how, gang)
        for pod, how, gang in pods
        if (gpus := taken.get(f"{pod.metadata.namespace}/{pod.metadata.name}", 0))
    ]
    found = node_gpus(state.node, counting)
    coming = {f"{pod.namespace}/{pod.name}" for pod in shown if pod.state != "bound"}
    used = _used(state, found, coming)
    cause = excluded_because(state)
    return NodeTile(
        state.name,
        domain_of(state),
        model=found[0].model if found else counting.model(state.node.labels),
        gpus=sum(each.gpus for each in found),
        used=used,
        waiting=_used(state, found, coming=set()) - used if coming else 0,
        state=_condition(cause, coming, holder, used),
        cause=cause,
        cards=_cards(state),
        pods=shown,
        reserved_for=holder[0],
        reserved_until=holder[1],
        avoided=avoided,
        by_model={each.model: [each.gpus, used_gpus(state, each)] for each in found[1:] and found},
    )


def _condition(cause: str, coming: Set[str], holder: Holder, used: int) -> str:
    """One of STATES. cause: why it takes no pods. coming: released or planned pods. used: GPUs in use."""
    if cause:
        return EXCLUDED
    if coming:
        return WAITED_FOR
    if holder[0]:
        return RESERVED
    return USED if used else FREE


def _used(state: NodeState, found: Iterable[NodeGpus], coming: Set[str]) -> int:
    """GPUs in use, without those of released or planned pods."""
    if coming:
        state = state.with_usages(tuple(use for use in state.usages if use.name not in coming))
    return sum(used_gpus(state, each) for each in found)


def excluded_because(state: NodeState) -> str:
    """Why a node takes no GPU pods even if it has free GPUs; "" if it does."""
    node = state.node
    if node.problem:
        return node.problem
    if node.unschedulable:
        return "cordoned"
    return "" if node.ready else "not ready"


def domain_of(state: NodeState) -> str:
    """The id of the lowest domain above the node."""
    return "/".join(state.path) if state.path is not None else NO_PLACE


def _cards(state: NodeState) -> list[CardTile]:
    users: dict[str, int] = {}
    tiles: dict[str, set[int]] = {}
    for use in state.usages:
        for card in use.cards.keys() | use.tiles.keys():
            users[card] = users.get(card, 0) + 1
            tiles.setdefault(card, set()).update(use.tiles.get(card, ()))
    return [
        CardTile(card.name, users.get(card.name, 0), card.tiles, sorted(tiles.get(card.name, ())))
        for card in state.node.cards
    ]


@dataclass
class _Sum:
    """The sums of a domain so far."""

    gpus: int = 0
    used: int = 0
    waiting: int = 0
    whole: int = 0
    reserved: int = 0
    nodes: tuple[int, ...] = (0,) * len(STATES)

    def add(self, tile: NodeTile) -> None:
        """Add a node."""
        self.gpus += tile.gpus if tile.state != EXCLUDED else tile.used + tile.waiting
        self.used += tile.used
        self.waiting += tile.waiting
        self.whole += tile.gpus if tile.state == FREE else 0
        self.reserved += tile.gpus - tile.used if tile.state == RESERVED else 0
        number = STATES.index(tile.state)
        self.nodes = tuple(count + (index == number) for index, count in enumerate(self.nodes))


def sum_domains(tiles: Iterable[NodeTile]) -> list[DomainTile]:
    """The domains above these nodes with their sums, parents before their children, in natural order.

    Lowest domains with a single node are left out: the node represents them.
    """
    tiles = list(tiles)
    alone = {domain for domain, count in Counter(tile.domain for tile in tiles).items() if count == 1}
    sums: dict[str, _Sum] = {}
    for tile in tiles:
        for ancestor in lineage(tile.domain):
            if ancestor in alone and _depth(ancestor) > 0:
                continue
            sums.setdefault(ancestor, _Sum()).add(tile)
    return [
        DomainTile(
            id=key,
            parent=_parent(key),
            level=_depth(key),
            name=key if key == NO_PLACE else key.rpartition("/")[2],
            gpus=total.gpus,
            used=total.used,
            waiting=total.waiting,
            nodes=list(total.nodes),
            whole=total.whole,
            reserved=total.reserved,
        )
        for key, total in sorted(sums.items(), key=lambda item: _order(item[0]))
    ]


def lineage(domain: str) -> list[str]:
    """The ids of a lowest domain and of the domains above it, coarsest first."""
    if domain == NO_PLACE:
        return [domain]
    parts = domain.split("/")
    return ["/".join(parts[: length + 1]) for length in range(1, len(parts))]


def count_by_top_domain(nodes: Iterable[str], tiles: Mapping[str, NodeTile]) -> dict[str, int]:
    """Top-level domain (id) -> how many of these nodes are in it; repeated names count each time."""
    return dict(Counter(lineage(tiles[node].domain)[0] for node in nodes if node in tiles))


def _parent(key: str) -> str:
    return "" if key == NO_PLACE or key.count("/") < 2 else key.rpartition("/")[0]


def _depth(key: str) -> int:
    return 0 if key == NO_PLACE else key.count("/") - 1


def _order(key: str) -> list[tuple[tuple[int, int | str], ...]]:
    """The sort key of a domain: b2 before b10, and NO_PLACE last."""
    return [((9, ""),)] if key == NO_PLACE else [natural(part) for part in key.split("/")]
