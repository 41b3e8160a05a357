"""The values that placement takes and gives: nodes and their cards, usage, gangs, assignments, reasons.

Amounts are exact integers: cpu in thousandths, everything else in whole units (bytes, counts), see
quantities.in_units. Everything is frozen; a Mapping given here must not be changed afterwards.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from webhook.placement.eligibility import Rules, Taint, Term

Vector = tuple[tuple[str, int], ...]
"""Resource amounts as sorted pairs, so that they can be part of a key."""


def vector(amounts: Mapping[str, int]) -> Vector:
    """The amounts above 0, sorted by name."""
    return tuple(sorted((resource, amount) for resource, amount in amounts.items() if amount > 0))


@dataclass(frozen=True, slots=True)
class Card:
    """A GPU card of a node. capacity: what one card holds; tiles: how many tiles it has, 0 for unknown."""

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
    """A node as far as placement cares."""

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    ready: bool = True
    allocatable: Mapping[str, int] = field(default_factory=dict)
    cards: tuple[Card, ...] = ()
    problem: str = ""
    """Why the node cannot be used at all, such as labels that contradict; "" when it can."""
    unmanaged: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Uid of a pod for which nobody chose cards -> those that it has, one name a device, if that is known."""


@dataclass(frozen=True, slots=True)
class CardRequest:
    """What one container asks of cards: how many, and of each of them the amounts and the tiles."""

    count: int = 0
    per_card: Vector = ()
    tiles: int = 0


@dataclass(frozen=True, slots=True)
class Usage:
    """What an existing pod takes on its node; name, gang and priority matter to the preemption view alone."""

    requests: Mapping[str, int]
    cards: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    tiles: Mapping[str, frozenset[int]] = field(default_factory=dict)
    name: str = ""
    gang: str = ""
    priority: int = 0
    uid: str = ""
    unmanaged: tuple[CardRequest, ...] = ()
    """What containers ask of cards that nobody chose: they have some of the node's (see cards.state)."""


@dataclass(frozen=True, slots=True)
class PodCounts:
    """Pods in the domains of a label, as (value, how many, or what they are worth) where there are any.

    max_skew: by how much domains may differ before it counts.
    """

    key: str
    counts: tuple[tuple[str, int], ...] = ()
    max_skew: int = 1


@dataclass(frozen=True, slots=True)
class Preferences:
    """What pods would like of their node. terms: each with its weight; spread: the fewer pods, the better;
    near: what the pods there are worth, below 0 for those to be far from. See preferences.
    """

    terms: tuple[tuple[int, Term], ...] = ()
    spread: tuple[PodCounts, ...] = ()
    near: tuple[PodCounts, ...] = ()

    def __bool__(self) -> bool:
        """Whether there is any."""
        return bool(self.terms or self.spread or self.near)


@dataclass(frozen=True, slots=True)
class PodClass:
    """Pods that are alike to placement: the same requests, rules and card wishes.

    cards has one wish for each of spec.containers, or is empty when none asks for a card. same_card: numbers
    of containers that share one card. beside: amounts that it need not find on its node, but takes of it for
    those who come later. preferred: decides between placements that are equal else; pods that differ
    in it are alike all the same, and the first one's counts. problem: why such a pod can never be placed; ""
    when it can.
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


@dataclass(frozen=True, slots=True)
class Member:
    """One pod of the gang that is to be placed; its name is opaque here.

    called: how sentences name it, by its name where empty. role: what its users call the pods that do the
    same ("worker"), "" where they have no word for them. Neither makes two members unlike.
    """

    name: str
    rank: int | None
    pod_class: PodClass
    called: str = field(default="", compare=False)
    role: str = field(default="", compare=False)

    @property
    def shown(self) -> str:
        """Its name for people."""
        return self.called or self.name


@dataclass(frozen=True, slots=True)
class Anchor:
    """A pod of the gang that is placed already; its use of the node must be in the snapshot."""

    node: str
    rank: int | None = None


@dataclass(frozen=True, slots=True)
class Slice:
    """Each `size` consecutive ranks from 0 share one domain of a level; a rank below 0 leads, in no slice."""

    level: str
    size: int


@dataclass(frozen=True, slots=True)
class Spread:
    """The domains of a level share the pods: at most `most` in each, or (None) as evenly as capacity allows.

    peers: nodes of pods that count too, beside the gang's anchors, once for each pod.
    """

    level: str
    most: int | None = None
    peers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Gang:
    """Pods that are placed together or not at all. Levels by name; see Topology.level.

    preferred_levels: of each, one domain if there is capacity. The objective takes the fewest domains anyway,
    so they only decide where a mode would not: see question.machine_of.
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
        """Tells it from others that people call the same, as the groups of one set: no two share a member."""
        return f"{self.name}/{self.members[0].name}" if self.members else self.name


class Mode(StrEnum):
    """How a gang is laid out once the fewest domains are kept (see most_headroom for how far headroom
    keeps them; keep-whole, the fewest above the machines: see Objective.holes).
    """

    BEST_FIT = "best-fit"
    HEADROOM = "headroom"
    KEEP_WHOLE = "keep-whole"


@dataclass(frozen=True, slots=True)
class Options:
    """Choices of the operator. weights: resource -> weight in the headroom score (see headroom.Score), where
    a GPU that is asked for counts too. bound: steps that one question may take in all, about a microsecond of
    CPU each (see budget.Budget). any_place: whether a gang of several large classes may have the first place
    that is found, which costs less to find than the best.
    """

    mode: Mode = Mode.BEST_FIT
    weights: Mapping[str, int] = field(default_factory=lambda: {"cpu": 1, "memory": 1})
    most_allocated: bool = False
    bound: int = 1_000_000
    any_place: bool = False


@dataclass(frozen=True, slots=True)
class CardShare:
    """One card as a container gets it, with its tiles where tiles were asked for."""

    card: str
    tiles: tuple[int, ...] = ()


Slots = tuple[tuple[CardShare, ...], ...]
"""Cards of a pod: one slot for each of spec.containers, () for one without cards."""


@dataclass(frozen=True, slots=True)
class Placed:
    """Where one member goes."""

    member: str
    node: str
    cards: Slots = ()


@dataclass(frozen=True, slots=True, order=True)
class Objective:
    """The value of an assignment; smaller is better, compared from the left.

    domains: how many are used at each level, coarsest first, the last being nodes. leftover: at each level,
    the capacity (in pods of the gang's most frequent class, before placing) of the domains used.
    headroom_penalty: 100 minus the headroom score (see headroom.Score), added over the nodes used. Domains
    that anchors use cost nothing. holes: the squares of the capacities of the nodes used in mode keep-whole,
    else 0; they compare before the numbers of machines (hosts and nodes). preference_penalty: of the nodes
    used, see preferences; it compares last. Beside anchors with ranks, nearness to the neighbouring ranks
    comes before the headroom penalty. Where a gang is spread evenly, the sum of the squares of what the
    domains hold comes before all.
    """

    domains: tuple[int, ...]
    leftover: tuple[int, ...]
    headroom_penalty: int
    holes: int = 0
    preference_penalty: int = 0


@dataclass(frozen=True, slots=True)
class Assignment:
    """A place for every member.

    proven: nothing better exists by the objective.
    Of a gang that rules share among domains which are no level: nothing uses fewer domains.
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
    """The domain that came closest: its level's name, its label values, capacity for how many members.

    Both are empty where the whole cluster counts. sentence: the same for people, by the roles of the members.
    """

    level: str
    domain: tuple[str, ...]
    free_slots: int
    sentence: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class NoFit:
    """Why a gang has no place. causes: cause -> nodes that it rules out, each node once.

    proven: no place exists; otherwise the search ended at its budget. hopeless: the gang's own wishes rule
    out any place, whatever nodes there are.
    """

    sentence: str
    wanted: int
    free_slots: int
    nodes: int
    causes: Mapping[str, int]
    nearest: Nearest | None = None
    proven: bool = True
    hopeless: bool = False
