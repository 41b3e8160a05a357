"""The input and output of placement: nodes and their cards, usage, gangs, assignments, reasons.

Amounts are exact integers: cpu in thousandths, all others in whole units (bytes, counts); see
quantities.in_units. All values are frozen: do not change a Mapping after you pass it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from webhook.placement.eligibility import LabelValues, Rules, Taint, Term

Vector = tuple[tuple[str, int], ...]
"""Resource amounts as sorted pairs, so that they can be part of a key."""


def vector(amounts: Mapping[str, int]) -> Vector:
    """The amounts above 0, sorted by name."""
    return tuple(sorted((resource, amount) for resource, amount in amounts.items() if amount > 0))


@dataclass(frozen=True, slots=True)
class Card:
    """A GPU card of a node. capacity: its amounts by resource; tiles: their number, 0 if unknown."""

    name: str
    capacity: Mapping[str, int]
    tiles: int = 0
    numa: int | None = None
    disabled: bool = False
    disabled_tiles: frozenset[int] = frozenset()
    links: tuple[tuple[int, str, int], ...] = ()
    """Direct links: (own tile, other card's name, its tile)."""


@dataclass(frozen=True, slots=True)
class NodeInfo:
    """The facts about a node that placement uses."""

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    ready: bool = True
    allocatable: Mapping[str, int] = field(default_factory=dict)
    cards: tuple[Card, ...] = ()
    problem: str = ""
    """Why the node cannot be used at all, such as contradictory labels; "" if it can."""
    unmanaged: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Uid of a pod whose cards topogate did not choose -> its cards, one name per device, if known."""
    without_cards: str = ""
    """Why the cards that the node offers are not known; "" if they are, or if it offers none."""


@dataclass(frozen=True, slots=True)
class CardRequest:
    """The card request of one container: the number of cards, and the amounts and tiles of each."""

    count: int = 0
    per_card: Vector = ()
    tiles: int = 0


@dataclass(frozen=True, slots=True)
class Usage:
    """The usage of an existing pod on its node. Only preemption reads name, gang and priority."""

    requests: Mapping[str, int]
    cards: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    tiles: Mapping[str, frozenset[int]] = field(default_factory=dict)
    name: str = ""
    gang: str = ""
    priority: int = 0
    uid: str = ""
    unmanaged: tuple[CardRequest, ...] = ()
    """Requests of containers whose cards are not recorded; they use some cards (see cards.state)."""
    labels: LabelValues = ()
    """The node labels that the pod requires."""


@dataclass(frozen=True, slots=True)
class PodCounts:
    """Pods in the domains of a label: pairs of a label value and a number or weight of pods.

    max_skew: the difference between domains that is tolerated.
    """

    key: str
    counts: tuple[tuple[str, int], ...] = ()
    max_skew: int = 1


@dataclass(frozen=True, slots=True)
class Preferences:
    """The preferences of pods for nodes, see costs. terms: preferred node affinity with weights.

    spread: domains with fewer pods are better. near: weights of pods nearby, below 0 for anti-affinity.
    """

    terms: tuple[tuple[int, Term], ...] = ()
    spread: tuple[PodCounts, ...] = ()
    near: tuple[PodCounts, ...] = ()

    def __bool__(self) -> bool:
        """Whether any preference is set."""
        return bool(self.terms or self.spread or self.near)


@dataclass(frozen=True, slots=True)
class PodClass:
    """Pods that placement does not distinguish: they have the same requests, rules and card requests.

    cards: one request for each of spec.containers, empty if none asks for a card. same_card: numbers of
    containers that share one card. beside: amounts that the pod uses on its node, but that need not be free
    there. preferred: chooses between placements that are equal otherwise. It does not distinguish classes:
    the preferences of the first pod count. problem: why such a pod can never be placed, "" if it can.
    """

    requests: Vector
    rules: Rules = field(default_factory=Rules)
    cards: tuple[CardRequest, ...] = ()
    same_card: tuple[int, ...] = ()
    allowed_cards: tuple[str, ...] | None = None
    denied_cards: tuple[str, ...] = ()
    single_numa: bool = False
    linked: bool = False
    problem: str = ""
    beside: Vector = ()
    preferred: Preferences = field(default_factory=Preferences, compare=False)

    @property
    def wants_cards(self) -> bool:
        """Whether any container asks for a card."""
        return any(request.count for request in self.cards)

    @property
    def takes_any_cards(self) -> bool:
        """Whether any cards of a node will do: whole devices, which are counted like any resource.

        That is so without tiles, shares of other amounts, and rules on which cards or which go together.
        """
        has_rules = self.same_card or self.single_numa or self.linked or self.denied_cards
        is_whole = all(len(request.per_card) <= 1 and not request.tiles for request in self.cards)
        return is_whole and not has_rules and self.allowed_cards is None


@dataclass(frozen=True, slots=True)
class Member:
    """One pod of the gang to place. Its name is opaque here.

    called: its name in messages, if that differs. role: the users' word for pods with its job ("worker"), ""
    if there is none. Neither distinguishes members.
    """

    name: str
    rank: int | None
    pod_class: PodClass
    called: str = field(default="", compare=False)
    role: str = field(default="", compare=False)

    @property
    def shown(self) -> str:
        """Its name in messages."""
        return self.called or self.name


@dataclass(frozen=True, slots=True)
class Anchor:
    """A pod of the gang that has a node. The snapshot must contain its usage."""

    node: str
    rank: int | None = None


@dataclass(frozen=True, slots=True)
class Slice:
    """Each `size` consecutive ranks from 0 share one domain. Leaders have a rank below 0 and no slice."""

    level: str
    size: int


@dataclass(frozen=True, slots=True)
class Spread:
    """Spread the pods over the domains of a level: at most `most` in each, or evenly if `most` is None.

    peers: nodes of other pods that count, beside the gang's anchors, one entry per pod.
    """

    level: str
    most: int | None = None
    peers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Gang:
    """Pods that are placed together or not at all. Levels are names; see Topology.level.

    preferred_levels: use one domain of each if there is capacity, as the objective does anyway.
    """

    name: str
    members: tuple[Member, ...]
    required_level: str | None = None
    preferred_levels: tuple[str, ...] = ()
    slices: tuple[Slice, ...] = ()
    anchors: tuple[Anchor, ...] = ()
    excluded_nodes: frozenset[str] = frozenset()
    spread: Spread | None = None

    @property
    def identity(self) -> str:
        """Distinguishes gangs with the same name, such as the groups of one set: no two share a member."""
        return f"{self.name}/{self.members[0].name}" if self.members else self.name


class Mode(StrEnum):
    """How placement chooses among placements with the fewest domains.

    Mode headroom minimizes domains only as far as most_headroom says.
    """

    BEST_FIT = "best-fit"
    HEADROOM = "headroom"


@dataclass(frozen=True, slots=True)
class Options:
    """The operator's options. weights: resource -> weight in the headroom score (see costs.Score).

    bound: the steps of one question, about a microsecond of CPU each (see budget.Budget).
    """

    mode: Mode = Mode.BEST_FIT
    weights: Mapping[str, int] = field(default_factory=lambda: {"cpu": 1, "memory": 1})
    bound: int = 1_000_000


@dataclass(frozen=True, slots=True)
class CardShare:
    """One card of a container, with its tiles if the container asks for tiles."""

    card: str
    tiles: tuple[int, ...] = ()


Slots = tuple[tuple[CardShare, ...], ...]
"""The cards of a pod: one entry for each of spec.containers, () for one without cards."""


@dataclass(frozen=True, slots=True)
class Placed:
    """The node and cards of one member."""

    member: str
    node: str
    cards: Slots = ()


@dataclass(frozen=True, slots=True, order=True)
class Objective:
    """The value of an assignment; smaller is better, compared from the left.

    domains: the number used at each level, coarsest first, and of nodes. Domains that anchors use cost
    nothing. lost: if identical pods share one node, what it loses for pods of the mix (see usable_gpus), else
    0; it has no unit. leftover: of nodes and of each level, finest first, the capacity of the domains used,
    before the gang is placed, in pods of its most frequent class. headroom_penalty: 100 minus the headroom
    score (see costs.Score), summed over the nodes used. preference_penalty: of the nodes used, see costs.

    Beside anchors with ranks, nearness to the neighbouring ranks comes before the headroom penalty. For a
    gang that is spread evenly, the sum of the squared pod counts of the domains comes first.
    """

    domains: tuple[int, ...]
    lost: int
    leftover: tuple[int, ...]
    headroom_penalty: int
    preference_penalty: int = 0


@dataclass(frozen=True, slots=True)
class Assignment:
    """A node for every member.

    proven: no assignment is better by the objective. For a gang that rules spread over domains outside the
    topology: none uses fewer domains.
    """

    placed: tuple[Placed, ...]
    objective: Objective
    proven: bool
    spread: str

    @property
    def nodes(self) -> dict[str, str]:
        """Member name -> node name."""
        return {placed.member: placed.node for placed in self.placed}

    @property
    def residents(self) -> dict[str, list[Placed]]:
        """Node name -> the members on it."""
        found: dict[str, list[Placed]] = {}
        for placed in self.placed:
            found.setdefault(placed.node, []).append(placed)
        return found


@dataclass(frozen=True, slots=True)
class Nearest:
    """The domain with the most capacity for the gang: level name, label values and free slots.

    Level and domain are empty for the whole cluster. sentence: the same in words, by the members' roles.
    """

    level: str
    domain: tuple[str, ...]
    free_slots: int
    sentence: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class NoFit:
    """Why a gang cannot be placed. causes: cause -> number of nodes that it excludes, each node once.

    proven: no placement exists; otherwise the search ended at its budget. hopeless: the gang's own request
    excludes any placement, whatever nodes exist.
    """

    sentence: str
    wanted: int
    free_slots: int
    nodes: int
    causes: Mapping[str, int]
    nearest: Nearest | None = None
    proven: bool = True
    hopeless: bool = False
