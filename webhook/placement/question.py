"""The question that the solvers answer for a gang: its classes, levels, anchors and slices."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import compress, pairwise
from operator import not_
from typing import ClassVar, Final

from labeler.contract import keys
from webhook.placement.capacity import card_steps
from webhook.placement.cards.packing import LONGEST
from webhook.placement.costs import MOST_UNLIKED, Costs, Ranking, ranking
from webhook.placement.eligibility import NAME_FIELD, Requirement, Rules, Term
from webhook.placement.model import Gang, Member, Options, PodClass, vector
from webhook.placement.names import natural
from webhook.placement.snapshot import Block, NodeState, Path, Snapshot, block_key, key_of
from webhook.placement.topology import PlacementError


@dataclass(frozen=True, slots=True)
class Spreading:
    """A request to spread over the domains of a level. there: the pods that count, by domain."""

    level: int
    most: int | None
    there: Mapping[Path, int]

    def there_in(self, key: Path) -> int:
        """How many pods are in the domain of a path. The path may be that of a domain or node inside it."""
        return self.there.get(key[: self.level + 2], 0)

    def is_full(self, key: Path) -> bool:
        """Whether the domain of a path has as many pods as the cap allows."""
        return self.most is not None and self.there_in(key) >= self.most


def spreading(gang: Gang, snapshot: Snapshot, required: int | None, classes: int) -> Spreading | None:
    """The request to spread, with the pods that count. Raises PlacementError for an invalid request."""
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
"""For each class the only nodes on which its pods can run, by name; None: its rules name no nodes."""

_Hosts = Mapping[str, Sequence[str]]
"""The names of nodes by the value of their hostname label."""

_HOSTS: Final = "hosts"

_NAMES: Final = 64
"""Rules with more names, or terms, than this count as naming none: reading them takes no steps."""


def named_nodes(classes: Sequence[PodClass], snapshot: Snapshot) -> Named:
    """The nodes that the rules of each class name: by affinity, a selector, or for volumes and claims."""
    if not any(_may_name(each.rules) for each in classes):
        return (None,) * len(classes)
    hosts: dict[str, list[str]] = {}
    for block in snapshot.blocks.values():
        for host, names in block.worked_out(_HOSTS, partial(_hosts, block)).items():
            hosts.setdefault(host, []).extend(names)
    return tuple(_named(each.rules, hosts) if _may_name(each.rules) else None for each in classes)


def by_block(named: Named, snapshot: Snapshot) -> dict[Path, dict[int, list[str]]]:
    """For each block the classes that name nodes of it, and the names."""
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
    """The nodes that these alternative terms name."""
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
    """Whether the requirement is a list (In) of at most so many values of a key."""
    return requirement.key == key and requirement.operator == "In" and len(requirement.values) <= most


Counts = tuple[int, ...]
"""The number of pods of each class."""


@dataclass(frozen=True, slots=True)
class Question:
    """A gang as the solvers see it: classes with counts, and the rules that shape the tree.

    required: number of the required level, or None. slices: (level, size), coarsest level first. anchored:
    the paths of the domains and nodes that the gang already uses.
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
    named: Named = ()
    """For each class the nodes that its rules name."""
    named_in: Mapping[Path, Mapping[int, Sequence[str]]] = field(default_factory=dict)
    """For each block: the classes that name nodes of it, and the names."""
    card_steps: int = LONGEST
    """Steps for the card search on one node; see capacity.card_steps."""
    ranking: Ranking | None = None
    """The ranking of nodes by the most frequent class; None if all nodes are equal to it."""
    listed: tuple[int, ...] = ()
    """The classes for which the tree has the free slots of each node: all, or of very many classes those that
    need more than free amounts."""
    others: tuple[PodClass, ...] = ()
    """For each set of rules of the other classes, a pod that requests the least of them of each resource."""

    reference: ClassVar[int] = 0
    """Number of the class in whose pods capacities are measured: the most frequent class comes first."""

    def costs(self) -> Costs:
        """The fields of a cost."""
        return Costs(self.levels, self.ties)

    @property
    def ties(self) -> int:
        """Bits for the preference penalties of all pods together."""
        return 0 if self.ranking is None else (MOST_UNLIKED * sum(self.counts)).bit_length()

    @property
    def is_identical(self) -> bool:
        """Whether all pods are identical and no slices bind them."""
        return len(self.counts) == 1 and not self.slices

    @property
    def labelled_only(self) -> bool:
        """Whether the gang can use only nodes with topology labels."""
        lowest = self.levels if self.spread is None else self.spread.level
        return min(lowest, self.levels if self.required is None else self.required) < self.levels

    def confinement(self, number: int) -> Path | None:
        """The domain in which a class must stay; None: anywhere."""
        return self.confined[number] if self.confined else None


ClassKey = tuple[PodClass, Path | None, bool]
"""A pod class, the domain in which these pods must stay, and whether they are leaders without slices."""

MANY_CLASSES: Final = 64
"""With more classes than this, first-fit is the only solver, and no results are cached with a block."""

BESIDE_SLICES = 8
"""The most leaders and pods of other classes beside workers in slices."""


def pods_of(classes: Iterable[PodClass], counts: Iterable[int]) -> list[PodClass]:
    """The pods of each class, as many as its count."""
    return [pod for pod, count in zip(classes, counts, strict=True) for _ in range(count)]


class Impossible(Exception):
    """No node can meet the gang's own request; the text says why."""


def by_rank(members: Sequence[Member]) -> list[Member]:
    """Members in rank order; those without a rank come last, in natural order of their names."""
    ranks = {member.rank for member in members}
    if None not in ranks and len(ranks) == len(members):
        return sorted(members, key=lambda member: member.rank or 0)
    return sorted(members, key=lambda m: (m.rank is None, m.rank or 0, natural(m.name)))


def ask(
    gang: Gang, snapshot: Snapshot, options: Options, near: int | None = None
) -> tuple[Question, list[list[Member]]]:
    """The question, and each class's members in rank order.

    near: for a gang without slices, a level at which each ranked member must share the domain of the placed
    pod with the nearest rank.

    Raises PlacementError for a contradictory request, Impossible for one that no node can meet.
    """
    _check_members(gang)
    topology = snapshot.topology
    levels = len(topology.level_names)
    required = None if gang.required_level is None else topology.level(gang.required_level)
    for each in gang.preferred_levels:
        topology.level(each)  # raises for an unknown one
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
        named=named,
        named_in=by_block(named, snapshot),
        card_steps=card_steps(classes, snapshot.blocks.values(), options.bound // 2),
        ranking=ranking(keys[0][0], snapshot) if keys else None,
        listed=tuple(range(len(classes))),
    )
    return _of_many(question), [groups[key] for key in keys]


def _of_many(question: Question) -> Question:
    """The question, with the free slots of few classes listed if there are very many."""
    if len(question.classes) <= MANY_CLASSES:
        return question
    is_other = [
        number != question.reference and not pod.wants_cards and names is None
        for number, (pod, names) in enumerate(zip(question.classes, question.named, strict=True))
    ]
    if question.confined or question.slices or sum(is_other) <= MANY_CLASSES:
        return question
    others = tuple(_least_of_rules(compress(question.classes, is_other)))
    return replace(question, listed=tuple(compress(question.listed, map(not_, is_other))), others=others)


def _least_of_rules(classes: Iterable[PodClass]) -> Iterator[PodClass]:
    """For each set of rules a pod that requests the least of these classes."""
    least: dict[Rules, dict[str, int]] = {}
    for pod in classes:
        asked = dict(pod.requests)
        known = least.setdefault(pod.rules, asked)
        least[pod.rules] = {name: min(known[name], asked[name]) for name in known.keys() & asked.keys()}
    return (PodClass(vector(amounts), rules) for rules, amounts in least.items())


def _check_members(gang: Gang) -> None:
    if len({member.name for member in gang.members}) != len(gang.members):
        raise PlacementError(f"gang {gang.name}: two of its members have the same name")
    for member in gang.members:
        if member.pod_class.problem:
            raise Impossible(f"pod {member.shown}: {member.pod_class.problem}")


_Places = list[tuple[Path, int | None]]
"""The key of an anchor's node (its path and name) and the anchor's rank."""


def _anchor_places(gang: Gang, snapshot: Snapshot) -> _Places:
    """The places of the anchors, except those on deleted nodes."""
    levels = len(snapshot.topology.level_names)
    return [
        (key_of(snapshot.nodes[anchor.node], levels), anchor.rank)
        for anchor in gang.anchors
        if anchor.node in snapshot.nodes
    ]


def _anchored(places: _Places, levels: int) -> frozenset[Path]:
    """The domains of all levels, and the nodes, with placed pods of the gang."""
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
"""The domain of each slice that has a placed pod, by level and number of the slice."""


def _begun(slices: tuple[tuple[int, int], ...], places: _Places) -> _Begun:
    begun: _Begun = {}
    for level, size in slices:
        for key, rank in places:
            if rank is not None and rank >= 0 and size > 0:
                begun.setdefault((level, rank // size), key[: level + 2])
    return begun


def _slice_domain(member: Member, slices: tuple[tuple[int, int], ...], begun: _Begun) -> Path | None:
    """The domain of the member's innermost slice that has a placed pod."""
    if member.rank is None or member.rank < 0:
        return None
    for level, size in reversed(slices):
        if size > 0 and (level, member.rank // size) in begun:
            return begun[level, member.rank // size]
    return None


def _neighbour(member: Member, level: int, places: _Places) -> Path | None:
    """The domain of the placed pod with the nearest rank; of two equally near, the lower rank."""
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
    """How many slice layers, from the coarsest, do not bind a class.

    All layers bind workers whose slices have no placed pod. Only the layers inside the confining slice bind
    confined workers. No layer binds leaders and pods of other classes.
    """
    if key[1] is None:
        return 0 if key == free[0] and not key[2] else len(slices)
    return next(number for number, (level, _) in enumerate(slices, 1) if level + 2 == len(key[1]))


def _unbound_slices(
    gang: Gang,
    groups: Mapping[ClassKey, Sequence[Member]],
    keys: Sequence[ClassKey],
    slices: tuple[tuple[int, int], ...],
) -> tuple[int, ...]:
    """For each class how many slice layers do not bind it. keys: those that are not confined come first.

    Slices bind the workers, which are one class. A few leaders or pods of other classes may be beside them.
    Raises PlacementError if there are too many of these, or if the workers do not divide into slices.
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
    """Whether the gang's own request allows the node."""
    if state.path is None and question.labelled_only:
        return False
    if state.node.name in question.excluded:
        return False
    return is_in(question.inside, state, question.levels)


def is_in(domain: Path | None, state: NodeState, levels: int) -> bool:
    """Whether a node is in a domain; always true for None."""
    return domain is None or key_of(state, levels)[: len(domain)] == domain
