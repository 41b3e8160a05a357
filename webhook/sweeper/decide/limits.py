"""Places for pods of one class with limits by domain: a maximum in each, or an even spread. Pure.

Where the domains are those of a level, the placement core's own spread request expresses the limit. Otherwise
the gang is divided among the domains, and each share is placed by itself, within the remaining limits. For
topology spread, a domain that gains a pod ends at most max_skew above the emptiest one that counts. Then
there is an order in which each pod may be bound, those of the lower domains first. As few domains as possible
are used: the emptiest one is raised no higher than it must be, and the rest fills the largest.

A limit on the number of pods leaves each domain a minimum share. Where no share uses more domains of the
topology than the minimum share, no other division is better.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from webhook.grouping import grouped
from webhook.placement import (
    Assignment,
    Budget,
    Gang,
    Member,
    Mode,
    NoFit,
    Options,
    PlacementError,
    Snapshot,
    Spread,
    capacity,
    place,
)
from webhook.placement.bounds import least_domains
from webhook.placement.question import by_rank
from webhook.placement.snapshot import Block, NodeState, Path, make_block
from webhook.scheduling.acceptance import Acceptance
from webhook.scheduling.label_domains import LabelDomains
from webhook.scheduling.tallies import Tally
from webhook.sweeper.decide.gang_question import in_order, together


def shares(
    present: Mapping[str, int], slots: Mapping[str, int], wanted: int, skew: int, *, floor_is_zero: bool
) -> dict[str, int] | None:
    """How many pods each domain gets; None if there is no way.

    present: existing pods of each domain that counts. slots: the free slots of each; domains without an entry
    have none. floor_is_zero: whether the emptiest domain is taken to have none.
    """
    floor = _floor(present, slots, wanted, skew, floor_is_zero=floor_is_zero)
    if floor is None:
        return None
    found = {value: 0 if floor_is_zero else max(0, floor - count) for value, count in present.items()}
    most = {
        value: max(found[value], min(slots.get(value, 0), floor + skew - count))
        for value, count in present.items()
    }
    left = wanted - sum(found.values())
    for value in sorted(most, key=lambda each: (found[each] == 0, -most[each], each)):
        more = min(left, most[value] - found[value])
        found[value] += more
        left -= more
    return {value: count for value, count in found.items() if count}


def _floor(
    present: Mapping[str, int], slots: Mapping[str, int], wanted: int, skew: int, *, floor_is_zero: bool
) -> int | None:
    """The final count of the emptiest domain, the lowest with which all have a place; None if none has."""

    def is_enough(floor: int) -> bool:
        free = (min(slots.get(value, 0), floor + skew - count) for value, count in present.items())
        return sum(max(0, each) for each in free) >= wanted

    if floor_is_zero:
        return 0 if is_enough(0) else None
    full = (count + slots.get(value, 0) for value, count in present.items())
    floor = _first(min(present.values(), default=0), min(full, default=0), is_enough)
    least = sum(max(0, floor - count) for count in present.values())
    return floor if is_enough(floor) and least <= wanted else None


def _first(low: int, high: int, is_enough: Callable[[int], bool]) -> int:
    """The first number from low on that is enough, as are all above it; high where none below it is."""
    return low + bisect_left(range(low, high), True, key=is_enough)


def cap(present: Mapping[str, int], wanted: int, skew: int, *, floor_is_zero: bool) -> int:
    """At most so many in a domain, as if each had capacity without end."""
    if floor_is_zero or not present:
        return skew
    domains_by_count = Counter(present.values())

    def is_enough(floor: int) -> bool:
        return (
            sum(times * max(0, floor + skew - count) for count, times in domains_by_count.items()) >= wanted
        )

    return _first(min(domains_by_count), max(domains_by_count) + wanted, is_enough) + skew


def least_share(
    value: str, present: Mapping[str, int], wanted: int, skew: int, *, floor_is_zero: bool
) -> int:
    """At least this many of the pods go into a domain, whatever the others get; see shares."""
    others = Counter(count for other, count in present.items() if other != value)

    def is_enough(share: int) -> bool:
        floor = 0 if floor_is_zero else present[value] + share
        rest = (times * max(0, floor + skew - count) for count, times in others.items())
        return share + sum(rest) >= wanted

    return _first(0, wanted, is_enough)


def parted(
    snapshot: Snapshot, domains: LabelDomains, key: str, wanted: Collection[str]
) -> dict[str, Snapshot]:
    """The nodes of each wanted domain; blocks within one domain keep their cached sums."""
    nodes: dict[str, dict[str, NodeState]] = {value: {} for value in wanted}
    blocks: dict[str, dict[Path, Block]] = {value: {} for value in wanted}
    domain_of, levels = domains.of_nodes(key), len(snapshot.topology.level_names)
    for path, block in snapshot.blocks.items():
        for value, part in _by_domain(path, block, domain_of, levels):
            if value in nodes:
                nodes[value].update((state.node.name, state) for state in part.states)
                blocks[value][path] = part
    mix = snapshot.mix
    return {value: Snapshot(snapshot.topology, nodes[value], blocks[value], mix=mix) for value in wanted}


def _by_domain(
    path: Path, block: Block, domain_of: Mapping[str, str | None], levels: int
) -> Iterable[tuple[str, Block]]:
    """The parts of a block by the domains in which they lie; most lie in one alone."""
    values = [domain_of[state.node.name] for state in block.states]
    if values.count(values[0]) == len(values):
        return [] if values[0] is None else [(values[0], block)]
    here = grouped((v, state) for v, state in zip(values, block.states, strict=True) if v is not None)
    return [(value, make_block(path, states, levels)) for value, states in here.items()]


def _are_apart(parts: Iterable[Snapshot]) -> bool:
    """Whether no block lies in two of these."""
    blocks = [path for part in parts for path in part.blocks]
    return len(set(blocks)) == len(blocks)


MOST_DOMAINS: Final = 64
"""Domains of a label that is no level which are tried one by one, or among which a gang is shared."""


@dataclass(frozen=True)
class Limit:
    """A bound on pods in the domains of a label: skew above the emptiest, or (apart) one in each."""

    key: str
    present: Mapping[str, int]
    skew: int
    apart: bool
    floor_is_zero: bool


class LimitSearch:
    """Asks for places within the limits of one gang, which are those of its only class."""

    def __init__(self, rules: Acceptance, snapshot: Snapshot, options: Options, budget: Budget) -> None:
        self.rules = rules
        self.domains = rules.there.domains
        self.snapshot = snapshot
        self.options = options
        self.budget = budget
        self._levels: dict[str, str | None] = {}
        self.limits = self._found()

    def _found(self) -> list[Limit]:
        """The rules of identical pods, the coarsest first; none of different ones."""
        if len(self.rules.classes) != 1:
            return []
        (kind,) = self.rules.classes
        found = [
            Limit(
                each.rule.key,
                each.tally.base,
                each.rule.max_skew,
                apart=False,
                floor_is_zero=each.domains < each.rule.min_domains,
            )
            for each in kind.spread
            if each.counts_itself
        ]
        apart: dict[str, Tally] = {tally.key: tally for tally, _ in kind.apart if tally.classes}
        for key, tally in apart.items():
            present = dict.fromkeys(self.domains.by_value(key), 0) | dict(tally.base)
            found.append(Limit(key, present, 1, apart=True, floor_is_zero=True))
        return sorted(found, key=lambda each: (len(each.present), each.key))

    def level(self, key: str) -> str | None:
        """The level whose domains are those of the label, None if there is none."""
        if key not in self._levels:
            self._levels[key] = self._found_level(key)
        return self._levels[key]

    def _found_level(self, key: str) -> str | None:
        topology = self.snapshot.topology
        try:
            level = topology.level(key)
        except PlacementError:
            return None
        is_level = self._are_single(key) if level == len(topology.level_names) else self._are_of(level, key)
        return key if is_level else None

    def _are_single(self, key: str) -> bool:
        """Whether no domain of a label has several nodes."""
        if len(self.snapshot.nodes) == len(self.domains.labels):
            return self.domains.are_single(key)
        values = [
            value for name in self.snapshot.nodes if (value := self.domains.value(name, key)) is not None
        ]
        return len(set(values)) == len(values)

    def _are_of(self, level: int, key: str) -> bool:
        """Whether the domains of a label are those of a level."""
        found: dict[str, object] = {}
        for name, state in self.snapshot.nodes.items():
            value = self.domains.value(name, key)
            if value is None:
                continue
            path = (state.path or ())[: level + 2]
            if not path or found.setdefault(value, path) != path:
                return False
        return len(set(found.values())) == len(found)

    def place(self, gang: Gang, limits: list[Limit], snapshot: Snapshot) -> Assignment | None:
        """A place within these limits, None if none is found."""
        if not limits:
            answer = self._ask(gang, snapshot)
            return None if isinstance(answer, NoFit) else answer
        if gang.slices or gang.spread is not None:
            return None
        if (level := self._level_of(gang, limits)) is not None:
            if limits[0].apart:
                return self._apart_on_level(gang, limits[0], level, snapshot)
            return self._on_level(gang, limits[0], level, snapshot)
        if gang.required_level is None:
            return self._shared(gang, limits, snapshot)
        for names in self._required_domains(gang, snapshot):
            inside = replace(gang, required_level=None)
            if found := self._shared(inside, limits, snapshot.only(names)):
                return found
        return None

    def _level_of(self, gang: Gang, limits: list[Limit]) -> str | None:
        """The level by which the placement core itself can meet these limits, None if there is none."""
        level = self.level(limits[0].key) if len(limits) == 1 else None
        if level is None or self._is_required_below(gang, level):
            return None
        classes = {id(member.pod_class): member.pod_class for member in gang.members}
        return level if len(set(classes.values())) == 1 else None

    def _is_required_below(self, gang: Gang, level: str) -> bool:
        topology = self.snapshot.topology
        return gang.required_level is not None and topology.level(level) <= topology.level(
            gang.required_level
        )

    def _required_domains(self, gang: Gang, snapshot: Snapshot) -> list[frozenset[str]]:
        """The nodes of each domain of the required level, those of the largest first."""
        level = snapshot.topology.level(gang.required_level or "node")
        by_domain = grouped(
            ((*state.path, name)[: level + 2], name)
            for name, state in snapshot.nodes.items()
            if state.path is not None
        )
        domains = [frozenset(names) for names in by_domain.values()]
        anchors = {each.node for each in gang.anchors if each.node in self.snapshot.nodes}
        if anchors:  # it stays where its placed pods are
            domains = [names for names in domains if anchors <= names]
        return sorted(domains, key=lambda names: (-len(names), min(names)))[:MOST_DOMAINS]

    def _on_level(self, gang: Gang, limit: Limit, level: str, snapshot: Snapshot) -> Assignment | None:
        """A place by the core's own rule on the domains of a level."""
        answer = self._ask(gang, snapshot)
        if isinstance(answer, NoFit):
            return None
        present = self._present(limit, snapshot)
        most = cap(present, len(gang.members), limit.skew, floor_is_zero=limit.floor_is_zero)
        # This is within the skew for any final counts, or within the most that each may have in the end.
        is_within = self._is_within(answer, limit.key, limit.present, limit.skew) or self._is_within(
            answer, limit.key, present, most
        )
        if is_within and self._is_accepted(answer):
            return answer
        capped, even = self._spreads(gang, limit, level, present, most)
        # One above the emptiest: all lie evenly, unless one that counts stays empty.
        is_even = limit.skew == 1 and len(gang.members) > len(present)
        for spread in (*even, *capped) if is_even else (*capped, *even):
            answer = self._ask(replace(gang, spread=spread), snapshot)
            if not isinstance(answer, NoFit) and self._is_accepted(answer):
                return replace(answer, proven=False)
        return None

    def _apart_on_level(self, gang: Gang, limit: Limit, level: str, snapshot: Snapshot) -> Assignment | None:
        """The same where each domain may have one pod."""
        peers = tuple(self._peers(limit.key, self._present(limit, snapshot), gang))
        answer = self._ask(replace(gang, spread=Spread(level, 1, peers)), snapshot)
        return None if isinstance(answer, NoFit) else answer

    def _spreads(
        self, gang: Gang, limit: Limit, level: str, present: Mapping[str, int], most: int
    ) -> tuple[list[Spread], list[Spread]]:
        """At most so many in a domain; and evenly, where all domains count."""
        peers = tuple(self._peers(limit.key, present, gang))
        even = [] if limit.floor_is_zero else [Spread(level, None, peers)]
        return [Spread(level, most, peers)], even

    def _is_accepted(self, answer: Assignment) -> bool:
        """Whether kube-scheduler takes the pods one by one; of several limits that is seen at the end."""
        return len(self.limits) > 1 or in_order(answer, self.rules) is not None

    def _is_within(self, answer: Assignment, key: str, present: Mapping[str, int], most: int) -> bool:
        """Whether no domain ends with more."""
        gained = Counter(self.domains.value(each.node, key) for each in answer.placed)
        return all(present.get(value or "", 0) + count <= most for value, count in gained.items())

    def _present(self, limit: Limit, snapshot: Snapshot) -> dict[str, int]:
        """The number of pods in each domain that has a node in the snapshot."""
        if len(snapshot.nodes) == len(self.snapshot.nodes):
            return dict(limit.present)
        present = limit.present
        here = dict.fromkeys(map(self.domains.of_nodes(limit.key).__getitem__, snapshot.nodes))
        return {value: present[value] for value in here if value is not None and value in present}

    def _peers(self, key: str, present: Mapping[str, int], gang: Gang) -> Iterator[str]:
        """For each pod that counts a node of its domain; the gang's own the core counts by itself."""
        if not any(present.values()):
            return
        there = self.domains
        own = [there.value(each.node, key) for each in gang.anchors if each.node in there.labels]
        nodes = self.domains.by_value(key)
        for value, count in present.items():
            for _ in range(count - own.count(value)):
                yield nodes[value][0]

    def _shared(self, gang: Gang, limits: list[Limit], snapshot: Snapshot) -> Assignment | None:
        """The gang shared among the domains of the coarsest limit, each part placed for itself."""
        limit = limits[0]
        present = self._present(limit, snapshot)
        if len(present) > MOST_DOMAINS:
            return None
        members = by_rank(gang.members)
        parts = parted(snapshot, self.domains, limit.key, present)
        slots = {
            value: 1 - present[value] if limit.apart else len(members)
            for value, part in parts.items()
            if part.nodes
        }
        for _ in range(2 * len(parts) + 4):
            quotas = shares(present, slots, len(members), limit.skew, floor_is_zero=limit.floor_is_zero)
            if quotas is None or self.budget.exhausted:
                return None
            found, full = self._place_shares(gang, members, quotas, limits[1:], parts)
            if full is not None:
                slots[full] = min(quotas[full] - 1, self._slots(gang, parts[full]))
                continue
            joined = together(gang, list(found.values()), snapshot)
            if limit.apart:
                return joined
            return replace(joined, proven=self._are_least(gang, limit, present, parts, found))
        return None

    def _are_least(
        self,
        gang: Gang,
        limit: Limit,
        present: Mapping[str, int],
        parts: Mapping[str, Snapshot],
        found: Mapping[str, Assignment],
    ) -> bool:
        """Whether no placement within a limit uses fewer domains of the topology. found: the shares' places.

        Where no block is in two of the label's domains, the domains of the shares add up. Each domain of the
        label has at least its minimum share.
        """
        if self.options.mode is not Mode.BEST_FIT or gang.anchors or gang.required_level:
            return False
        if not _are_apart(parts.values()) or not all(each.proven for each in found.values()):
            return False
        wanted, skew, floor_is_zero = len(gang.members), limit.skew, limit.floor_is_zero
        for value, answer in found.items():
            share = least_share(value, present, wanted, skew, floor_is_zero=floor_is_zero)
            if share < len(answer.placed) and not self._uses_least(gang, share, parts[value], answer):
                return False
        return True

    def _uses_least(self, gang: Gang, count: int, snapshot: Snapshot, answer: Assignment) -> bool:
        """Whether the first pods of a gang, so many of them, use as many domains here as an answer does."""
        first = replace(gang, members=gang.members[:count])
        least = least_domains(first, snapshot, self.options, self.budget) if count else None
        return least == answer.objective.domains

    def _place_shares(
        self,
        gang: Gang,
        members: Sequence[Member],
        quotas: Mapping[str, int],
        limits: list[Limit],
        parts: Mapping[str, Snapshot],
    ) -> tuple[dict[str, Assignment], str | None]:
        """The place of each domain's share of the members, and the first domain that is too full for its."""
        found: dict[str, Assignment] = {}
        first = 0
        for value, count in quotas.items():
            share = replace(gang, members=tuple(members[first : first + count]), preferred_levels=())
            answer = self.place(share, limits, parts[value])
            if answer is None:
                return found, value
            first += count
            found[value] = answer
        return found, None

    def _slots(self, gang: Gang, snapshot: Snapshot) -> int:
        states = [state for name, state in snapshot.nodes.items() if name not in gang.excluded_nodes]
        counts = capacity.count_slots_by_node(gang.members[0].pod_class, states, self.budget).counts
        wanted = len(gang.members)
        return min(wanted, sum(min(wanted, count) for count in counts))

    def _ask(self, gang: Gang, snapshot: Snapshot) -> Assignment | NoFit:
        return place(gang, snapshot, self.options, self.budget)
