"""Places for a gang whose pods have rules on other pods, so that kube-scheduler takes them one by one. Pure.

The placement core knows no such rules. It is asked for places that are likely to keep them: anywhere; in one
domain, where pods want to be together; at most so many in each, or as evenly as possible, where they are to
be spread; and pod by pod. Each answer is judged by Acceptance, pod by pod, and only one that passes counts:
so no plan breaks a rule. That no better plan exists is proven where the question left nothing out, or said
just what the rule says.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

from webhook.placement import (
    Anchor,
    Assignment,
    Budget,
    Gang,
    Member,
    NoFit,
    Options,
    PlacementError,
    Snapshot,
    Spread,
    capacity,
    place,
)
from webhook.placement.model import Objective
from webhook.placement.question import by_rank
from webhook.scheduling.acceptance import Acceptance, RuledKind, Tally
from webhook.sweeper.decide.quotas import cap, shares

MOST_DOMAINS: Final = 64
"""Domains of a label that is no level which are tried one by one, or among which a gang is shared."""

ONE_BY_ONE: Final = 64
"""Pods of a gang up to which each is asked about alone where nothing else has helped."""

Answer = Assignment | NoFit


@dataclass(frozen=True)
class _Limit:
    """A bound on pods in the domains of a label: skew above the emptiest, or (apart) one in each."""

    key: str
    held: Mapping[str, int]
    skew: int
    apart: bool
    floor_is_zero: bool


def ask_by_rules(
    gang: Gang, rules: Acceptance, snapshot: Snapshot, options: Options, budget: Budget | None = None
) -> Answer:
    """The best place that is found for a gang; its members are placed in the order of their release.

    Raises PlacementError as place does.
    """
    return _RuleSearch(gang, rules, snapshot, options, budget or Budget(4 * options.bound)).answer()


def in_order(answer: Assignment, rules: Acceptance) -> Assignment | None:
    """The answer with its members in the order of release; None if it breaks a rule."""
    placed = {each.member: each for each in answer.placed}
    ordered, reason = rules.order([(each.member, each.node) for each in answer.placed])
    return None if reason else replace(answer, placed=tuple(placed[name] for name in ordered))


def together(gang: Gang, found: Sequence[Assignment], snapshot: Snapshot) -> Assignment:
    """One answer of those of all parts. Of its objective only the domains are told: each part has its own."""
    placed = {each.member: each for answer in found for each in answer.placed}
    topology = snapshot.topology
    names = {each.node for each in placed.values()}
    paths = {name: snapshot.nodes[name].path or (name,) * (len(topology.level_names) + 1) for name in names}
    levels = range(len(topology.level_names))
    domains = (*(len({path[: level + 2] for path in paths.values()}) for level in levels), len(names))
    objective = Objective(domains, 0, (0,) * len(domains), 0)
    order = tuple(placed[member.name] for member in gang.members)
    return Assignment(order, objective, False, topology.spread(domains))


def broken(gang: Gang, rules: Acceptance, snapshot: Snapshot) -> NoFit:
    """What is told of a gang that has room, but none that was found to keep its rules."""
    names = {reason for kind in rules.kinds for reason in kind.names}
    sentence = (
        f"Gang {gang.name} needs room for {len(gang.members)} pods: there is room, but no way was found to "
        f"keep their rules on other pods as well ({', '.join(sorted(names))})."
    )
    return NoFit(sentence, len(gang.members), 0, len(snapshot.nodes), {}, proven=False)


class _RuleSearch:
    """The ways in which one gang is asked about."""

    def __init__(
        self, gang: Gang, rules: Acceptance, snapshot: Snapshot, options: Options, budget: Budget
    ) -> None:
        self.gang = gang
        self.rules = rules
        self.there = rules.there
        self.snapshot = snapshot
        self.options = options
        self.budget = budget
        self._levels: dict[str, str | None] = {}
        self.kind: RuledKind | None = rules.kinds[0] if len(rules.kinds) == 1 else None

    def answer(self) -> Answer:
        if len(self.gang.members) == 1:
            return self._one()
        relaxed: Answer | None = None
        if not self._is_hopeless():
            relaxed = self._place(self.gang, self.snapshot)
            if isinstance(relaxed, NoFit):
                return relaxed
            if found := in_order(relaxed, self.rules):
                return found
        best: Assignment | None = None
        for gang, snapshot, proven in self._domains():
            if relaxed is not None and gang is self.gang and snapshot is self.snapshot and not self._limits:
                continue  # that has been asked
            some = self._limited(gang, self._limits, snapshot)
            found = None if some is None else in_order(some, self.rules)
            if found is not None and (best is None or found.objective < best.objective):
                best = replace(found, proven=found.proven and proven)
            if self.budget.exhausted:
                break
        if best is None and not self.gang.slices and self.gang.spread is None:
            best = self._one_by_one()
        if best is not None:
            return best
        if relaxed is None:
            relaxed = self._place(self.gang, self.snapshot)
        return relaxed if isinstance(relaxed, NoFit) else broken(self.gang, self.rules, self.snapshot)

    def _place(self, gang: Gang, snapshot: Snapshot) -> Answer:
        return place(gang, snapshot, self.options, self.budget)

    def _is_hopeless(self) -> bool:
        """Whether the places without these rules cannot keep them: fewer domains than there must be."""
        wanted = len(self.gang.members)
        return any(
            each.apart or len(each.held) * (each.skew + min(each.held.values(), default=0)) < wanted
            for each in self._limits
        )

    # --- one pod ----------------------------------------------------------------------------------

    def _one(self) -> Answer:
        """A gang of one pod: what each node says of it now is all that there is to say."""
        self.rules.reset()
        (member,) = self.gang.members
        return self._place(
            replace(self.gang, members=(self._kept_off(member, self.snapshot),)), self.snapshot
        )

    def _kept_off(self, member: Member, snapshot: Snapshot) -> Member:
        kept_off = self.rules.kept_off(member.name, snapshot.nodes)
        if not kept_off:
            return member
        own = member.pod_class.rules
        rules = replace(own, kept_off=(*own.kept_off, *sorted(kept_off.items())))
        return replace(member, pod_class=replace(member.pod_class, rules=rules))

    def _one_by_one(self) -> Assignment | None:
        """Each pod where it may go beside those before it, as near to them as can be."""
        if len(self.gang.members) > ONE_BY_ONE:
            return None
        self.rules.reset()
        snapshot, anchors = self.snapshot, list(self.gang.anchors)
        waiting, found = by_rank(self.gang.members), list[Assignment]()
        while waiting:
            left = []
            for member in waiting:
                alone = replace(
                    self.gang, members=(self._kept_off(member, snapshot),), anchors=tuple(anchors)
                )
                answer = self._place(alone, snapshot)
                if isinstance(answer, NoFit):
                    left.append(member)
                    continue
                found.append(answer)
                node = answer.placed[0].node
                snapshot = snapshot.assume(answer, alone)
                anchors.append(Anchor(node, member.rank))
                self.rules.add(member.name, node)
            if len(left) == len(waiting) or self.budget.exhausted:
                return None
            waiting = left
        joined = together(self.gang, found, snapshot)
        order = {each.placed[0].member: number for number, each in enumerate(found)}
        return replace(joined, placed=tuple(sorted(joined.placed, key=lambda each: order[each.member])))

    # --- together in one domain -------------------------------------------------------------------

    def _domains(self) -> Iterator[tuple[Gang, Snapshot, bool]]:
        """What to ask about where pods want to be together, and whether it says just what they ask."""
        keys = {
            tally.key
            for kind in self.rules.kinds
            for tally in kind.near
            if not any(any(each.base.values()) for each in kind.near)
        }
        if not keys:
            yield self.gang, self.snapshot, True
            return
        key = max(keys, key=lambda each: len(self.there.by_value(each)))  # the others lie around it
        level = self._level(key)
        required = self.gang.required_level
        exact = self.kind is not None and len(keys) == 1 and not self._limits
        topology = self.snapshot.topology
        if level is not None and not self._limits:
            if required is None or topology.level(required) <= topology.level(level):
                yield replace(self.gang, required_level=level), self.snapshot, exact
            else:
                yield self.gang, self.snapshot, False
            return
        nodes = self.there.by_value(key)
        for value in sorted(nodes, key=lambda each: (-len(nodes[each]), each))[:MOST_DOMAINS]:
            yield self.gang, self.snapshot.only(frozenset(nodes[value])), exact and len(nodes) <= MOST_DOMAINS

    def _level(self, key: str) -> str | None:
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
        values: dict[str, object] = {}
        paths: dict[object, str] = {}
        for name, state in self.snapshot.nodes.items():
            value = self.there.value(name, key)
            if value is None:
                continue
            path = (state.path or ())[: level + 2] if level < len(topology.level_names) else name
            if not path or values.setdefault(value, path) != path or paths.setdefault(path, value) != value:
                return None
        return key

    # --- spread and apart -------------------------------------------------------------------------

    @cached_property
    def _limits(self) -> list[_Limit]:
        """The rules of pods that are alike, the coarsest first; none are told of unlike ones."""
        kind = self.kind
        if kind is None:
            return []
        found = [
            _Limit(
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
            held = dict.fromkeys(self.there.by_value(key), 0) | dict(tally.base)
            found.append(_Limit(key, held, 1, apart=True, floor_is_zero=True))
        return sorted(found, key=lambda each: (len(each.held), each.key))

    def _limited(self, gang: Gang, limits: list[_Limit], snapshot: Snapshot) -> Assignment | None:
        """A place within these limits, None if none is found."""
        if not limits:
            answer = self._place(gang, snapshot)
            return None if isinstance(answer, NoFit) else answer
        if gang.slices or gang.spread is not None:
            return None
        level = self._level(limits[0].key) if len(limits) == 1 else None
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
        ordered = sorted(domains.values(), key=lambda names: (-len(names), min(names)))
        return [frozenset(names) for names in ordered[:MOST_DOMAINS]]

    def _on_level(self, gang: Gang, limit: _Limit, level: str, snapshot: Snapshot) -> Assignment | None:
        """A place by the core's own rule on the domains of a level."""
        held = self._held(limit, snapshot)
        wanted = len(gang.members)
        peers = tuple(self._peers(limit.key, held, gang))
        if limit.apart:
            answer = self._place(replace(gang, spread=Spread(level, 1, peers)), snapshot)
            return None if isinstance(answer, NoFit) else answer
        most = cap(held, wanted, limit.skew, floor_is_zero=limit.floor_is_zero)
        answer = self._place(gang, snapshot)
        if isinstance(answer, NoFit):
            return None
        is_within = self._is_within(answer, limit.key, held, most)
        if is_within and (len(self._limits) > 1 or in_order(answer, self.rules)):
            return replace(answer, proven=False)
        capped = [Spread(level, most, peers)]
        even = [] if limit.floor_is_zero else [Spread(level, None, peers)]
        # One above the emptiest: all lie evenly, unless one that counts stays empty.
        order = (*even, *capped) if limit.skew == 1 and wanted > len(held) else (*capped, *even)
        for spread in order:
            answer = self._place(replace(gang, spread=spread), snapshot)
            if not isinstance(answer, NoFit) and (len(self._limits) > 1 or in_order(answer, self.rules)):
                return replace(answer, proven=False)
        return None

    def _is_within(self, answer: Assignment, key: str, held: Mapping[str, int], most: int) -> bool:
        """Whether no domain ends with more."""
        gained = Counter(self.there.value(each.node, key) for each in answer.placed)
        return all(held.get(value or "", 0) + count <= most for value, count in gained.items())

    def _held(self, limit: _Limit, snapshot: Snapshot) -> dict[str, int]:
        """What the domains hold that have a node in the snapshot."""
        if len(snapshot.nodes) == len(self.snapshot.nodes):
            return dict(limit.held)
        here = {self.there.value(name, limit.key) for name in snapshot.nodes}
        return {value: count for value, count in limit.held.items() if value in here}

    def _peers(self, key: str, held: Mapping[str, int], gang: Gang) -> Iterator[str]:
        """For each pod that counts a node of its domain; the gang's own the core counts by itself."""
        if not any(held.values()):
            return
        own = [
            self.there.value(anchor.node, key) for anchor in gang.anchors if anchor.node in self.there.labels
        ]
        nodes = self.there.by_value(key)
        for value, count in held.items():
            for _ in range(count - own.count(value)):
                yield nodes[value][0]

    def _shared(self, gang: Gang, limits: list[_Limit], snapshot: Snapshot) -> Assignment | None:
        """The gang shared among the domains of the coarsest limit, each part placed for itself."""
        limit = limits[0]
        held = self._held(limit, snapshot)
        if len(held) > MOST_DOMAINS:
            return None
        members = by_rank(gang.members)
        nodes = {
            value: frozenset(name for name in names if name in snapshot.nodes)
            for value, names in self.there.by_value(limit.key).items()
            if value in held
        }
        parts = {value: snapshot.only(names) for value, names in nodes.items()}
        rooms = {value: len(members) if part.nodes else 0 for value, part in parts.items()}
        for _ in range(2 * len(parts) + 4):
            if limit.apart:
                rooms = {value: min(room, 1 - held[value]) for value, room in rooms.items()}
            quotas = shares(held, rooms, len(members), limit.skew, floor_is_zero=limit.floor_is_zero)
            if quotas is None or self.budget.exhausted:
                return None
            found: list[Assignment] = []
            first = 0
            for value, count in quotas.items():
                part = replace(gang, members=tuple(members[first : first + count]), preferred_level=None)
                answer = self._limited(part, limits[1:], parts[value])
                if answer is None:
                    rooms[value] = min(count - 1, self._room(gang, parts[value]))
                    break
                first += count
                found.append(answer)
            else:
                return together(gang, found, snapshot)
        return None

    def _room(self, gang: Gang, snapshot: Snapshot) -> int:
        states = [state for name, state in snapshot.nodes.items() if name not in gang.excluded_nodes]
        counts = capacity.rooms(gang.members[0].pod_class, states, self.budget).counts
        wanted = len(gang.members)
        return min(wanted, sum(min(wanted, count) for count in counts))
