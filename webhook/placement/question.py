"""A gang turned into the question that the solvers answer: its classes, levels, anchors and slices."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import ClassVar, Final

from labeler.contract import keys
from webhook.placement.capacity import card_steps
from webhook.placement.cards.packing import LONGEST
from webhook.placement.costs import MOST_UNLIKED, Costs, Ranking, ranking
from webhook.placement.eligibility import NAME_FIELD, Requirement, Rules, Term
from webhook.placement.model import Gang, Member, Mode, Options, PodClass
from webhook.placement.names import natural
from webhook.placement.snapshot import Block, NodeState, Path, Snapshot, block_key, key_of
from webhook.placement.topology import PlacementError, Topology


@dataclass(frozen=True, slots=True)
class Spreading:
    """A wish to be spread over the domains of a level. there: pods that count, by their domain's path."""

    level: int
    most: int | None
    there: Mapping[Path, int]

    def there_in(self, key: Path) -> int:
        """How many are in the domain of a path, which may be that of a domain or a node inside."""
        return self.there.get(key[: self.level + 2], 0)

    def is_full(self, key: Path) -> bool:
        """Whether the domain of a path takes no more."""
        return self.most is not None and self.there_in(key) >= self.most


def spreading(gang: Gang, snapshot: Snapshot, required: int | None, classes: int) -> Spreading | None:
    """The wish to be spread, with what is there. Raises PlacementError for one that cannot be meant."""
    request = gang.spread
    if request is None:
        return None
    topology = snapshot.topology
    level = topology.level(request.level)
    if request.most is not None and request.most < 1:
        raise PlacementError(f"gang {gang.name}: at most {request.most} pods per domain; allow at least 1")
    if required is not None and level <= required:
        raise PlacementError(
            f"gang {gang.name}: the level to spread over, {request.level}, is not below the required "
            f"{gang.required_level}; spread over a finer level"
        )
    if gang.slices:
        raise PlacementError(f"gang {gang.name}: slices cannot be spread; ask for slices or for a spread")
    if classes > 1:
        raise PlacementError(f"gang {gang.name}: only identical pods can be spread, and its pods differ")
    there = Counter(
        key_of(snapshot.nodes[name], len(topology.level_names))[: level + 2]
        for name in (*(anchor.node for anchor in gang.anchors), *request.peers)
        if name in snapshot.nodes
    )
    return Spreading(level, request.most, there)


Named = tuple[frozenset[str] | None, ...]
"""For each class names of nodes than which its pods run on no other; None: the rules name none."""

_Hosts = Mapping[str, Sequence[str]]
"""By the label of their hostname the names of nodes."""

_HOSTS: Final = "hosts"

_NAMES: Final = 64
"""More names than this in one term, or terms, are taken for none: nobody charges for reading them."""


def named_nodes(classes: Sequence[PodClass], snapshot: Snapshot) -> Named:
    """What the rules of each class name: by affinity, a selector, or for its volumes and claims."""
    if not any(_may_name(each.rules) for each in classes):
        return (None,) * len(classes)
    hosts: dict[str, list[str]] = {}
    for block in snapshot.blocks.values():
        for host, names in block.worked_out(_HOSTS, partial(_hosts, block)).items():
            hosts.setdefault(host, []).extend(names)
    return tuple(_named(each.rules, hosts) if _may_name(each.rules) else None for each in classes)


def by_block(named: Named, snapshot: Snapshot) -> dict[Path, dict[int, list[str]]]:
    """For each block the classes that name nodes of it, and these."""
    found: dict[Path, dict[int, list[str]]] = {}
    for number, names in enumerate(named):
        for name in sorted(names or ()):
            if name in snapshot.nodes:
                key = block_key(snapshot.nodes[name])
                found.setdefault(key, {}).setdefault(number, []).append(name)
    return found


def _may_name(rules: Rules) -> bool:
    return bool(rules.selector or rules.affinity or rules.volumes or rules.claims)


def _hosts(block: Block) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for state in block.states:
        host = state.node.labels.get(keys.HOSTNAME_LABEL)
        if host is not None:
            found.setdefault(host, []).append(state.name)
    return found


def _named(rules: Rules, hosts: _Hosts) -> frozenset[str] | None:
    groups = [*rules.volumes, *rules.claims, *([] if rules.affinity is None else [rules.affinity])]
    every = [_of_terms(terms, hosts) for terms in groups]
    every += [set(hosts.get(value, ())) for key, value in rules.selector if key == keys.HOSTNAME_LABEL]
    known = [names for names in every if names is not None]
    return frozenset(set.intersection(*known)) if known else None


def _of_terms(terms: Sequence[Term], hosts: _Hosts) -> set[str] | None:
    """Of terms of which one must hold."""
    if len(terms) > _NAMES:
        return None
    found = [_of_term(term, hosts) for term in terms]
    known = [names for names in found if names is not None]
    return set().union(*known) if len(known) == len(found) else None


def _of_term(term: Term, hosts: _Hosts) -> set[str] | None:
    for each in term.fields:
        if _lists(each, NAME_FIELD, 1):
            return set(each.values)
    for each in term.expressions:
        if _lists(each, keys.HOSTNAME_LABEL, _NAMES):
            return {name for value in each.values for name in hosts.get(value, ())}
    return None


def _lists(requirement: Requirement, key: str, most: int) -> bool:
    """Whether the requirement names at most so many values of a key, of which one must be there."""
    return requirement.key == key and requirement.operator == "In" and len(requirement.values) <= most


Counts = tuple[int, ...]
"""How many pods of each class."""


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
    slices: tuple[tuple[int, int], ...] = ()
    anchored: frozenset[Path] = frozenset()
    inside: Path | None = None
    excluded: frozenset[str] = frozenset()
    confined: tuple[Path | None, ...] = ()
    """For each class the domain that it must stay in; () when none is confined."""
    unbound_slices: tuple[int, ...] = ()
    """For each class how many of the slices, from the coarsest, do not bind it; () without slices."""
    spread: Spreading | None = None
    machine: int | None = None
    """In mode keep-whole the level from which on domains are machines, else None; see costs.Costs."""
    named: Named = ()
    """For each class the nodes that its rules name."""
    named_in: Mapping[Path, Mapping[int, Sequence[str]]] = field(default_factory=dict)
    """The same for each block: of the classes that name nodes of it, these."""
    card_steps: int = LONGEST
    """Steps for what cards decide on one node; see capacity.card_steps."""
    ranking: Ranking | None = None
    """What the pods of the most frequent class would rather have; None where all nodes are alike to them."""

    reference: ClassVar[int] = 0
    """Number of the class that capacities are measured in: the most frequent comes first."""

    def costs(self) -> Costs:
        """The fields of a cost."""
        return Costs(self.levels, self.machine, self.ties)

    @property
    def ties(self) -> int:
        """Bits for the preferences of all pods."""
        return 0 if self.ranking is None else (MOST_UNLIKED * sum(self.counts)).bit_length()

    @property
    def is_identical(self) -> bool:
        """Whether all pods are alike, and no slices bind them."""
        return len(self.counts) == 1 and not self.slices

    @property
    def labelled_only(self) -> bool:
        """Whether nodes without a place in the topology are of no use."""
        lowest = self.levels if self.spread is None else self.spread.level
        return min(lowest, self.levels if self.required is None else self.required) < self.levels

    def confinement(self, number: int) -> Path | None:
        """The domain that a class must stay in; None: anywhere."""
        return self.confined[number] if self.confined else None


ClassKey = tuple[PodClass, Path | None, bool]
"""A class of pods, the domain that these of them must stay in, and whether they lead: no slice binds them."""

BESIDE_SLICES = 8
"""Pods of other classes, or leaders, that may stand beside workers in slices."""


def pods_of(classes: Iterable[PodClass], counts: Iterable[int]) -> list[PodClass]:
    """So many pods of each class."""
    return [pod for pod, count in zip(classes, counts, strict=True) for _ in range(count)]


class Impossible(Exception):
    """The gang's own wishes cannot be met by any node; the text says why."""


def by_rank(members: Sequence[Member]) -> list[Member]:
    """Members in rank order, those without a rank last, by name with numbers read as numbers."""
    ranks = {member.rank for member in members}
    if None not in ranks and len(ranks) == len(members):
        return sorted(members, key=lambda member: member.rank or 0)
    return sorted(members, key=lambda m: (m.rank is None, m.rank or 0, natural(m.name)))


def ask(
    gang: Gang, snapshot: Snapshot, options: Options, near: int | None = None
) -> tuple[Question, list[list[Member]]]:
    """The question, and each class's members in rank order.

    near: for a gang without slices a level at which each ranked member must be in one domain with the placed
    pod of the nearest rank.

    Raises PlacementError for a gang that contradicts itself, Impossible for one that no node could serve.
    """
    _check_members(gang)
    topology = snapshot.topology
    levels = len(topology.level_names)
    required = None if gang.required_level is None else topology.level(gang.required_level)
    preferred = [topology.level(each) for each in gang.preferred_levels]
    slices = tuple(sorted((topology.level(s.level), s.size) for s in gang.slices))
    _check_slices(gang, slices, required)
    places = _anchor_places(gang, snapshot)
    inside = _inside(gang, places, required)
    groups = _classes(gang, slices, places, near)
    keys = sorted(groups, key=lambda key: (key[2], -len(groups[key])))
    unbound: tuple[int, ...] = ()
    if slices:
        keys.sort(key=lambda key: key[1] is not None)  # confined ones last
        unbound = _unbound_slices(gang, groups, keys, slices)
        slices = slices if min(unbound, default=0) < len(slices) else ()
    classes = tuple(key[0] for key in keys)
    named = named_nodes(classes, snapshot)
    question = Question(
        classes=classes,
        counts=tuple(len(groups[key]) for key in keys),
        levels=levels,
        options=options,
        required=required,
        slices=slices,
        anchored=_anchored(places, levels),
        inside=inside,
        excluded=gang.excluded_nodes,
        confined=_confined(keys),
        unbound_slices=unbound,
        spread=spreading(gang, snapshot, required, len(keys)),
        machine=machine_of(gang, topology, options, preferred),
        named=named,
        named_in=by_block(named, snapshot),
        card_steps=card_steps(classes, snapshot.blocks.values(), options.bound // 2),
        ranking=ranking(keys[0][0], snapshot) if keys else None,
    )
    return question, [groups[key] for key in keys]


def _check_members(gang: Gang) -> None:
    if len({member.name for member in gang.members}) != len(gang.members):
        raise PlacementError(f"gang {gang.name}: two of its members have the same name")
    for member in gang.members:
        if member.pod_class.problem:
            raise Impossible(f"pod {member.shown}: {member.pod_class.problem}")


def machine_of(gang: Gang, topology: Topology, options: Options, preferred: Iterable[int]) -> int | None:
    """In mode keep-whole the level from which on domains are machines, whose smallest holes are filled first.

    Of preferred levels the fewest domains come first, so where a machine is preferred those below it count;
    None: fewer domains are better at every level.
    """
    if options.mode is not Mode.KEEP_WHOLE or gang.spread is not None:
        return None
    machine = max([topology.machine, *(level + 1 for level in preferred)])
    return machine if machine <= len(topology.level_names) else None


_Places = list[tuple[Path, int | None]]
"""Key of an anchor's node (its path and its name) and the anchor's rank."""


def _anchor_places(gang: Gang, snapshot: Snapshot) -> _Places:
    """Anchors on nodes that are gone do not count."""
    levels = len(snapshot.topology.level_names)
    return [
        (key_of(snapshot.nodes[anchor.node], levels), anchor.rank)
        for anchor in gang.anchors
        if anchor.node in snapshot.nodes
    ]


def _anchored(places: _Places, levels: int) -> frozenset[Path]:
    """The domains of all levels, and the nodes, that have placed pods."""
    return frozenset(key[: level + 2] for key, _ in places for level in range(levels + 1))


def _confined(keys: Sequence[ClassKey]) -> tuple[Path | None, ...]:
    domains = tuple(domain for _, domain, _ in keys)
    return domains if any(domain is not None for domain in domains) else ()


def _inside(gang: Gang, places: _Places, required: int | None) -> Path | None:
    if required is None or not places:
        return None
    domains = sorted({key[: required + 2] for key, _ in places})
    if len(domains) > 1:
        names = " and ".join("/".join(domain[1:]) for domain in domains)
        raise Impossible(f"it requires one {gang.required_level}, but its placed pods are in {names}")
    return domains[0]


def _classes(
    gang: Gang, slices: tuple[tuple[int, int], ...], places: _Places, near: int | None
) -> dict[ClassKey, list[Member]]:
    groups: dict[ClassKey, list[Member]] = {}
    known: dict[tuple[int, Path | None, bool], list[Member]] = {}  # by identity: classes hash slowly
    begun = _begun(slices, places)
    for member in by_rank(gang.members):
        domain = _slice_domain(member, slices, begun) if near is None else _neighbour(member, near, places)
        leads = bool(slices) and member.rank is not None and member.rank < 0
        group = known.get((id(member.pod_class), domain, leads))
        if group is None:
            group = groups.setdefault((member.pod_class, domain, leads), [])
            known[id(member.pod_class), domain, leads] = group
        group.append(member)
    return groups


_Begun = dict[tuple[int, int], Path]
"""The domain of each slice that has a placed pod: by the slices' level and the slice's number."""


def _begun(slices: tuple[tuple[int, int], ...], places: _Places) -> _Begun:
    begun: _Begun = {}
    for level, size in slices:
        for key, rank in places:
            if rank is not None and rank >= 0 and size > 0:
                begun.setdefault((level, rank // size), key[: level + 2])
    return begun


def _slice_domain(member: Member, slices: tuple[tuple[int, int], ...], begun: _Begun) -> Path | None:
    """The domain of the innermost slice of this member that has a placed pod already."""
    if member.rank is None or member.rank < 0:
        return None
    for level, size in reversed(slices):
        if size > 0 and (level, member.rank // size) in begun:
            return begun[level, member.rank // size]
    return None


def _neighbour(member: Member, level: int, places: _Places) -> Path | None:
    """The domain of the placed pod whose rank is nearest to the member's, the lower of two."""
    if member.rank is None:
        return None
    ranked = [(abs(rank - member.rank), rank, key) for key, rank in places if rank is not None]
    return min(ranked)[2][: level + 2] if ranked else None


def _check_slices(gang: Gang, slices: tuple[tuple[int, int], ...], required: int | None) -> None:
    for level, size in slices:
        if size < 1:
            raise PlacementError(f"gang {gang.name}: slices of {size} pods; a slice has at least 1")
        if required is not None and level < required:
            raise PlacementError(
                f"gang {gang.name}: its slices are at a level above the required {gang.required_level}; "
                "use a finer level for them"
            )
    for (level, size), (below, smaller) in pairwise(slices):
        if level == below:
            raise PlacementError(f"gang {gang.name}: two slice sizes at one level; keep one of them")
        if size % smaller:
            raise PlacementError(f"gang {gang.name}: slices of {size} do not divide into slices of {smaller}")


def _unbound(key: ClassKey, free: Sequence[ClassKey], slices: tuple[tuple[int, int], ...]) -> int:
    """How many slices, from the coarsest, do not bind a class any more.

    Workers without a placed pod in any slice are bound by all of them, confined ones by those inside the
    slice that confines them, and leaders and pods of other classes by none.
    """
    if key[1] is None:
        return 0 if key == free[0] else len(slices)
    return next(number for number, (level, _) in enumerate(slices, 1) if level + 2 == len(key[1]))


def _unbound_slices(
    gang: Gang,
    groups: Mapping[ClassKey, Sequence[Member]],
    keys: Sequence[ClassKey],
    slices: tuple[tuple[int, int], ...],
) -> tuple[int, ...]:
    """For each class how many slices do not bind it. keys: those that are not confined first.

    Slices concern the workers: one class, beside which a few pods may stand, leaders or of others. Raises
    PlacementError where there are more of these, or where workers do not divide into slices.
    """
    free = [key for key in keys if key[1] is None]
    unbound = tuple(_unbound(key, free, slices) for key in keys)
    counts = [len(groups[key]) for key in keys]
    if sum(counts[1 : len(free)]) > BESIDE_SLICES:
        raise PlacementError(
            f"gang {gang.name}: slices need identical workers; "
            f"at most {BESIDE_SLICES} other pods are allowed beside them"
        )
    for count, done in zip(counts, unbound, strict=True):
        if done < len(slices) and count % slices[done][1]:
            raise PlacementError(
                f"gang {gang.name}: {count} pods do not divide into slices of {slices[done][1]}"
            )
    return unbound


def is_usable(question: Question, state: NodeState) -> bool:
    """Whether the gang's own wishes leave the node to it."""
    if state.path is None and question.labelled_only:
        return False
    if state.node.name in question.excluded:
        return False
    return is_in(question.inside, state, question.levels)


def is_in(domain: Path | None, state: NodeState, levels: int) -> bool:
    """Whether a node lies in a domain; None: anywhere."""
    return domain is None or key_of(state, levels)[: len(domain)] == domain
