"""Places for pods that are alike, at most so many in each domain of some labels, or spread evenly. Pure.

Where the domains are those of a level, the placement core's own wish to be spread says it. Else the gang is
shared among the domains, and each part is placed for itself, within the limits that are left. Of topology
spread: a domain that gains a pod ends at most max_skew above the emptiest one that counts. Then there is an
order in which each pod may go, the lower ones first. As few domains as that leaves are used: the emptiest one
is raised no higher than it must be, and what is left over fills the roomiest.

A rule on the number of pods leaves each domain a share at least, and no share uses less than the least one
does alone. Where no block lies in two of the label's domains, what the shares use adds up. So down to the
level where each share uses no more than the least one must, no other sharing is better; and below that none
is where the gang could not use less without any rule.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from webhook.placement import (
    Assignment,
    Budget,
    Gang,
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
from webhook.sweeper.decide.question import in_order, together


def shares(
    held: Mapping[str, int], rooms: Mapping[str, int], wanted: int, skew: int, *, floor_is_zero: bool
) -> dict[str, int] | None:
    """How many pods go to each domain; None if there is no way.

    held: pods that count already, of each domain that counts. rooms: for how many pods there is room; domains
    that are not named have none. floor_is_zero: whether the emptiest domain is taken to hold none.
    """
    floor = _floor(held, rooms, wanted, skew, floor_is_zero=floor_is_zero)
    if floor is None:
        return None
    found = {value: 0 if floor_is_zero else max(0, floor - count) for value, count in held.items()}
    most = {
        value: max(found[value], min(rooms.get(value, 0), floor + skew - count))
        for value, count in held.items()
    }
    left = wanted - sum(found.values())
    for value in sorted(most, key=lambda each: (found[each] == 0, -most[each], each)):
        more = min(left, most[value] - found[value])
        found[value] += more
        left -= more
    return {value: count for value, count in found.items() if count}


def _floor(
    held: Mapping[str, int], rooms: Mapping[str, int], wanted: int, skew: int, *, floor_is_zero: bool
) -> int | None:
    """What the emptiest domain holds in the end, the least with which all have a place; None if none has."""

    def most(floor: int) -> int:
        return sum(max(0, min(rooms.get(value, 0), floor + skew - count)) for value, count in held.items())

    low = 0 if floor_is_zero else min(held.values(), default=0)
    high = (
        0 if floor_is_zero else min((count + rooms.get(value, 0) for value, count in held.items()), default=0)
    )
    while low < high:
        middle = (low + high) // 2
        if most(middle) >= wanted:
            high = middle
        else:
            low = middle + 1
    if most(low) < wanted:
        return None
    least = 0 if floor_is_zero else sum(max(0, low - count) for count in held.values())
    return low if least <= wanted else None


def cap(held: Mapping[str, int], wanted: int, skew: int, *, floor_is_zero: bool) -> int:
    """At most so many in a domain, as if each had room without end."""
    if floor_is_zero or not held:
        return skew
    alike = Counter(held.values())
    low, high = min(alike), max(alike) + wanted
    while low < high:
        middle = (low + high) // 2
        if sum(times * max(0, middle + skew - count) for count, times in alike.items()) >= wanted:
            high = middle
        else:
            low = middle + 1
    return low + skew


def least_share(value: str, held: Mapping[str, int], wanted: int, skew: int, *, floor_is_zero: bool) -> int:
    """At least so many of the pods go to a domain, whatever room the others have; see shares."""
    others = Counter(count for other, count in held.items() if other != value)
    low, high = 0, wanted
    while low < high:
        middle = (low + high) // 2
        floor = 0 if floor_is_zero else held[value] + middle
        if middle + sum(times * max(0, floor + skew - count) for count, times in others.items()) >= wanted:
            high = middle
        else:
            low = middle + 1
    return low


def parted(
    snapshot: Snapshot, domains: LabelDomains, key: str, wanted: Collection[str]
) -> dict[str, Snapshot]:
    """The nodes of each wanted domain; blocks that lie in one alone keep what is known of them."""
    nodes: dict[str, dict[str, NodeState]] = {value: {} for value in wanted}
    blocks: dict[str, dict[Path, Block]] = {value: {} for value in wanted}
    domain_of, levels = domains.of_nodes(key), len(snapshot.topology.level_names)
    for path, block in snapshot.blocks.items():
        names = [state.node.name for state in block.states]
        values = [domain_of[name] for name in names]
        if values.count(values[0]) == len(values):  # most blocks lie in one domain alone
            whole = values[0]
            if whole is not None and whole in nodes:
                nodes[whole].update(zip(names, block.states, strict=True))
                blocks[whole][path] = block
            continue
        here: dict[str, dict[str, NodeState]] = {}
        for name, value, state in zip(names, values, block.states, strict=True):
            if value is not None and value in nodes:
                here.setdefault(value, {})[name] = state
        for value, states in here.items():
            nodes[value].update(states)
            blocks[value][path] = make_block(path, list(states.values()), levels)
    return {value: Snapshot(snapshot.topology, nodes[value], blocks[value]) for value in wanted}


Domains = tuple[int, ...]
"""How many are used of each level, the coarsest first."""


@dataclass(frozen=True)
class Sharing:
    """A gang of pods that are alike, shared. found: the place of each share, of the domains that have one.

    held, skew, floor_is_zero: see quotas.shares; parts: the snapshot by the label's domains.
    """

    gang: Gang
    snapshot: Snapshot
    parts: Mapping[str, Snapshot]
    held: Mapping[str, int]
    skew: int
    floor_is_zero: bool
    found: Mapping[str, Assignment]

    def is_least(self, used: Domains, options: Options, budget: Budget) -> bool:
        """Whether no placement that keeps the rule uses fewer domains of the topology, the coarsest first."""
        gang = self.gang
        if options.mode is not Mode.BEST_FIT or gang.anchors or gang.required_level:
            return False
        blocks = [path for part in self.parts.values() for path in part.blocks]
        if len(set(blocks)) < len(blocks) or not all(each.proven for each in self.found.values()):
            return False
        level = self._first_above(options, budget)
        if level == len(used):
            return True
        without_rule = least_domains(gang, self.snapshot, options, budget) or ()
        return used[level:] == without_rule[level:]

    def _first_above(self, options: Options, budget: Budget) -> int:
        """The first level of which some share uses more domains than the least one does."""
        level = len(next(iter(self.found.values())).objective.domains)
        for value, answer in self.found.items():
            wanted = len(self.gang.members)
            share = least_share(value, self.held, wanted, self.skew, floor_is_zero=self.floor_is_zero)
            used, low = answer.objective.domains, (0,) * level
            if share == len(answer.placed):
                continue
            if share:
                fewer = replace(self.gang, members=self.gang.members[:share])
                low = least_domains(fewer, self.parts[value], options, budget) or ()
            above = (
                number for number in range(level) if low[number : number + 1] != used[number : number + 1]
            )
            level = next(above, level)
        return level


MOST_DOMAINS: Final = 64
"""Domains of a label that is no level which are tried one by one, or among which a gang is shared."""


@dataclass(frozen=True)
class Limit:
    """A bound on pods in the domains of a label: skew above the emptiest, or (apart) one in each."""

    key: str
    held: Mapping[str, int]
    skew: int
    apart: bool
    floor_is_zero: bool


class LimitSearch:
    """Asks for places within the limits of one gang, which are those of the only kind of its pods."""

    def __init__(self, rules: Acceptance, snapshot: Snapshot, options: Options, budget: Budget) -> None:
        self.rules = rules
        self.domains = rules.there.domains
        self.snapshot = snapshot
        self.options = options
        self.budget = budget
        self._levels: dict[str, str | None] = {}
        self.limits = self._found()

    def _found(self) -> list[Limit]:
        """The rules of pods that are alike, the coarsest first; none are told of unlike ones."""
        if len(self.rules.kinds) != 1:
            return []
        (kind,) = self.rules.kinds
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
        apart: dict[str, Tally] = {tally.key: tally for tally, _ in kind.apart if tally.kinds}
        for key, tally in apart.items():
            held = dict.fromkeys(self.domains.by_value(key), 0) | dict(tally.base)
            found.append(Limit(key, held, 1, apart=True, floor_is_zero=True))
        return sorted(found, key=lambda each: (len(each.held), each.key))

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
        labels, lowest = self.domains.labels, len(topology.level_names)
        if level == lowest and len(self.snapshot.nodes) == len(labels):  # each node is a domain
            return key if self.domains.are_single(key) else None
        if level == lowest:
            values = [value for name in self.snapshot.nodes if (value := labels[name].get(key)) is not None]
            return key if len(set(values)) == len(values) else None
        found: dict[str, object] = {}
        for name, state in self.snapshot.nodes.items():
            value = labels[name].get(key)
            if value is None:
                continue
            path = (state.path or ())[: level + 2]
            if not path or found.setdefault(value, path) != path:
                return None
        return key if len(set(found.values())) == len(found) else None

    def place(self, gang: Gang, limits: list[Limit], snapshot: Snapshot) -> Assignment | None:
        """A place within these limits, None if none is found."""
        if not limits:
            answer = self._ask(gang, snapshot)
            return None if isinstance(answer, NoFit) else answer
        if gang.slices or gang.spread is not None:
            return None
        level = self.level(limits[0].key) if len(limits) == 1 else None
        is_alike = len({id(member.pod_class) for member in gang.members}) == 1 or (
            len({member.pod_class for member in gang.members}) == 1
        )
        if level is not None and is_alike and not self._is_required_below(gang, level):
            return self._on_level(gang, limits[0], level, snapshot)
        if gang.required_level is None:
            return self._shared(gang, limits, snapshot)
        for names in self._required_domains(gang, snapshot):
            inside = replace(gang, required_level=None)
            if found := self._shared(inside, limits, snapshot.only(names)):
                return found
        return None

    def _is_required_below(self, gang: Gang, level: str) -> bool:
        topology = self.snapshot.topology
        return gang.required_level is not None and topology.level(level) <= topology.level(
            gang.required_level
        )

    def _required_domains(self, gang: Gang, snapshot: Snapshot) -> list[frozenset[str]]:
        """The nodes of each domain of the required level, those of the largest first."""
        level = snapshot.topology.level(gang.required_level or "node")
        domains: dict[object, set[str]] = {}
        for name, state in snapshot.nodes.items():
            if state.path is not None:
                domains.setdefault((*state.path, name)[: level + 2], set()).add(name)
        anchors = {each.node for each in gang.anchors if each.node in self.snapshot.nodes}
        if anchors:  # it stays where its placed pods are
            domains = {key: names for key, names in domains.items() if anchors <= names}
        ordered = sorted(domains.values(), key=lambda names: (-len(names), min(names)))
        return [frozenset(names) for names in ordered[:MOST_DOMAINS]]

    def _on_level(self, gang: Gang, limit: Limit, level: str, snapshot: Snapshot) -> Assignment | None:
        """A place by the core's own rule on the domains of a level."""
        if limit.apart:
            peers = tuple(self._peers(limit.key, self._held(limit, snapshot), gang))
            answer = self._ask(replace(gang, spread=Spread(level, 1, peers)), snapshot)
            return None if isinstance(answer, NoFit) else answer
        wanted, is_one_of_several = len(gang.members), len(self.limits) > 1
        answer = self._ask(gang, snapshot)
        if isinstance(answer, NoFit):
            return None
        is_within = self._is_within(answer, limit.key, limit.held, limit.skew)  # whatever the others hold
        if is_within and (is_one_of_several or in_order(answer, self.rules)):
            return answer
        held = self._held(limit, snapshot)
        peers = tuple(self._peers(limit.key, held, gang))
        most = cap(held, wanted, limit.skew, floor_is_zero=limit.floor_is_zero)
        is_within = not is_within and self._is_within(answer, limit.key, held, most)
        if is_within and (is_one_of_several or in_order(answer, self.rules)):
            return answer
        capped = [Spread(level, most, peers)]
        even = [] if limit.floor_is_zero else [Spread(level, None, peers)]
        # One above the emptiest: all lie evenly, unless one that counts stays empty.
        order = (*even, *capped) if limit.skew == 1 and wanted > len(held) else (*capped, *even)
        for spread in order:
            answer = self._ask(replace(gang, spread=spread), snapshot)
            if not isinstance(answer, NoFit) and (is_one_of_several or in_order(answer, self.rules)):
                return replace(answer, proven=False)
        return None

    def _is_within(self, answer: Assignment, key: str, held: Mapping[str, int], most: int) -> bool:
        """Whether no domain ends with more."""
        gained = Counter(self.domains.value(each.node, key) for each in answer.placed)
        return all(held.get(value or "", 0) + count <= most for value, count in gained.items())

    def _held(self, limit: Limit, snapshot: Snapshot) -> dict[str, int]:
        """What the domains hold that have a node in the snapshot."""
        if len(snapshot.nodes) == len(self.snapshot.nodes):
            return dict(limit.held)
        held = limit.held
        here = dict.fromkeys(map(self.domains.of_nodes(limit.key).__getitem__, snapshot.nodes))
        return {value: held[value] for value in here if value is not None and value in held}

    def _peers(self, key: str, held: Mapping[str, int], gang: Gang) -> Iterator[str]:
        """For each pod that counts a node of its domain; the gang's own the core counts by itself."""
        if not any(held.values()):
            return
        there = self.domains
        own = [there.value(each.node, key) for each in gang.anchors if each.node in there.labels]
        nodes = self.domains.by_value(key)
        for value, count in held.items():
            for _ in range(count - own.count(value)):
                yield nodes[value][0]

    def _shared(self, gang: Gang, limits: list[Limit], snapshot: Snapshot) -> Assignment | None:
        """The gang shared among the domains of the coarsest limit, each part placed for itself."""
        limit = limits[0]
        held = self._held(limit, snapshot)
        if len(held) > MOST_DOMAINS:
            return None
        members = by_rank(gang.members)
        parts = parted(snapshot, self.domains, limit.key, held)
        rooms = {value: len(members) if part.nodes else 0 for value, part in parts.items()}
        for _ in range(2 * len(parts) + 4):
            if limit.apart:
                rooms = {value: min(room, 1 - held[value]) for value, room in rooms.items()}
            quotas = shares(held, rooms, len(members), limit.skew, floor_is_zero=limit.floor_is_zero)
            if quotas is None or self.budget.exhausted:
                return None
            found: dict[str, Assignment] = {}
            first = 0
            for value, count in quotas.items():
                part = replace(gang, members=tuple(members[first : first + count]), preferred_levels=())
                answer = self.place(part, limits[1:], parts[value])
                if answer is None:
                    rooms[value] = min(count - 1, self._room(gang, parts[value]))
                    break
                first += count
                found[value] = answer
            else:
                joined = together(gang, list(found.values()), snapshot)
                if limit.apart:
                    return joined
                sharing = Sharing(
                    gang, snapshot, parts, held, limit.skew, floor_is_zero=limit.floor_is_zero, found=found
                )
                is_least = sharing.is_least(joined.objective.domains, self.options, self.budget)
                return replace(joined, proven=is_least)
        return None

    def _room(self, gang: Gang, snapshot: Snapshot) -> int:
        states = [state for name, state in snapshot.nodes.items() if name not in gang.excluded_nodes]
        counts = capacity.rooms(gang.members[0].pod_class, states, self.budget).counts
        wanted = len(gang.members)
        return min(wanted, sum(min(wanted, count) for count in counts))

    def _ask(self, gang: Gang, snapshot: Snapshot) -> Assignment | NoFit:
        return place(gang, snapshot, self.options, self.budget)
