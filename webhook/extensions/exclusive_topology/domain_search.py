"""Finds an exclusive domain for each group of a gang, such as the Jobs of an exclusive JobSet. Pure.

All groups get a domain, or none does. The placement core places a group within one domain of its label. This
module chooses the coarser domains that groups share: as few as possible, coarsest level first. It takes the
smallest domain with capacity for all remaining groups, else the domain with capacity for most of them. For
equal groups the number of domains is minimal at the coarsest level. Other groups are placed largest first,
without that guarantee.
"""

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Final

from webhook.grouping import grouped
from webhook.placement import (
    Assignment,
    Budget,
    Gang,
    Member,
    NoFit,
    Options,
    Placed,
    PlacementError,
    Snapshot,
    place,
)
from webhook.placement.names import natural
from webhook.sweeper.observe.gang_requests import DomainLayout
from webhook.text import counted
from webhook.workloads import marks
from webhook.workloads.additions import is_extended
from webhook.workloads.own_domains import DomainRequest


@dataclass(frozen=True)
class Group:
    """Members, or only anchors, that need an exclusive domain."""

    gang: Gang
    request: DomainRequest


Found = list[tuple[Group, Assignment]]
Along = tuple[tuple[tuple[tuple[int, int | str], ...], ...], tuple[tuple[int, int | str], ...]]
"""A sort key."""


def wanted_of(gang: Gang) -> dict[str, int]:
    """The extended resources that all members request."""
    wanted: dict[str, int] = {}
    for member in gang.members:
        for what, amount in member.pod_class.requests:
            if is_extended(what):
                wanted[what] = wanted.get(what, 0) + amount
    return wanted


def weight(gang: Gang) -> int:
    """The sum of these amounts: the heaviest groups are the hardest to place."""
    return sum(wanted_of(gang).values())


def group_class(group: Group) -> object:
    """A key that is equal for interchangeable groups."""
    gang = group.gang
    classes = tuple(member.pod_class for member in _by_rank(gang))
    return classes, gang.required_level, gang.slices, gang.excluded_nodes, group.request.over


def _by_rank(gang: Gang) -> list[Member]:
    return sorted(gang.members, key=lambda member: (member.rank or 0, member.name))


def _as_many(groups: Sequence[Group], found: Found) -> Found:
    """The same answers for these groups, which are interchangeable with the original ones."""
    return [
        (group, as_placed(group, other, answer))
        for group, (other, answer) in zip(groups, found, strict=False)
    ]


def as_placed(group: Group, other: Group, answer: Assignment) -> Assignment:
    """The answer for another, interchangeable group, applied to this one."""
    names = {
        theirs.name: mine.name
        for theirs, mine in zip(_by_rank(other.gang), _by_rank(group.gang), strict=True)
    }
    placed = tuple(Placed(names[each.member], each.node, each.cards) for each in answer.placed)
    return replace(answer, placed=placed)


def in_order(found: Found, snapshot: Snapshot) -> Found:
    """The same domains; interchangeable groups get them in the order of the topology."""
    ordered = Found()
    for some in grouped((group_class(group), (group, answer)) for group, answer in found).values():
        groups = sorted((group for group, _ in some), key=_first_rank)
        places = sorted(some, key=lambda each: along_topology(each[1], snapshot))
        ordered += _as_many(groups, places)
    return ordered


def _first_rank(group: Group) -> tuple[int, str]:
    return min((member.rank or 0, member.name) for member in group.gang.members)


def along_topology(answer: Assignment, snapshot: Snapshot) -> Along:
    """The position of an answer's first node in the topology."""
    first = min(answer.nodes.values(), key=natural)
    path = snapshot.nodes[first].path or (first,)
    return tuple(map(natural, path)), natural(first)


MOST_QUESTIONS: Final = 1024
"""The most calls of the placement core for one gang."""

Nodes = frozenset[str]


def lay(
    groups: Sequence[Group], snapshot: Snapshot, options: Options, budget: Budget
) -> DomainLayout | NoFit:
    """A domain for each group, or why there is none. Raises PlacementError for contradictory requests.

    If all groups require one level that is coarser than their domains, all are placed in one domain of it.
    """
    return _Laying(groups, snapshot, options, budget).all()


class _Laying:
    """The search for one gang. It caches labels and the core's answers."""

    def __init__(self, groups: Sequence[Group], snapshot: Snapshot, options: Options, budget: Budget) -> None:
        self._groups = groups
        self._snapshot = snapshot
        self._topology = snapshot.topology
        self._options = options
        self._budget = budget
        self._asked = 0
        self._nearest: NoFit | None = None
        self._known: dict[tuple[object, Nodes], tuple[Group, Assignment | None]] = {}
        self._scarce: dict[int, dict[str, int]] = {}
        self._domains = {
            group.request.over: self._by_value(group.request.over, snapshot.nodes) for group in groups
        }
        self._together = self._required_of_all()

    def all(self) -> DomainLayout | NoFit:
        """The answer."""
        new = [group for group in self._groups if group.gang.members and not self._has_begun(group)]
        new.sort(key=lambda group: (-weight(group.gang), -len(group.gang.members)))
        own = {group.request: self._own_domains(group) for group in self._groups if self._has_begun(group)}
        shut = frozenset[str]().union(*own.values())
        found: Found = []
        for group in self._groups:
            if group.request in own and group.gang.members:
                answer = self._in_one_domain(group, own[group.request])
                if answer is None:
                    return self._no_fit(0)
                found.append((group, answer))
        layout = self._new(new, shut, frozenset(self._anchored()))
        if len(layout) < len(new):
            return self._no_fit(len(layout))
        return self._layout([*found, *in_order(layout, self._snapshot)], shut)

    def _layout(self, found: Found, shut: Nodes) -> DomainLayout:
        """The layout of all groups. shut: nodes in domains of groups that had already begun."""
        place_of = {group.request: number for number, group in enumerate(self._groups)}
        found.sort(key=lambda each: place_of[each[0].request])
        used = frozenset(self._anchored()).union(*(answer.nodes.values() for _, answer in found))
        closed = frozenset[str]()
        if any(group.request.rule == marks.JOBSET_EXCLUSIVE for group in self._groups):
            closed = shut.union(*(self._closed_by(answer) for _, answer in found))
        return DomainLayout(tuple((group.gang, answer) for group, answer in found), used, closed)

    def _own_domains(self, group: Group) -> Nodes:
        """The nodes of the domains where a group has pods."""
        nodes = {anchor.node for anchor in group.gang.anchors} & self._snapshot.nodes.keys()
        return self._in_domains_of(nodes, group.request.over)

    def _has_begun(self, group: Group) -> bool:
        """Whether an existing node has a pod of the group; its excluded nodes limit its other pods."""
        return any(anchor.node in self._snapshot.nodes for anchor in group.gang.anchors)

    def _new(self, groups: list[Group], shut: Nodes, anchored: Nodes) -> Found:
        """Domains for groups without a placed pod."""
        everywhere = frozenset(self._snapshot.nodes) - shut
        coarse = self._coarser_levels()
        if self._together is None:
            found = self._fewest(groups, everywhere, shut, coarse)
            return found if len(found) == len(groups) else self._each(groups, everywhere, shut)
        best: Found = []
        finer = tuple(level for level in coarse if level > self._together)
        for _, nodes in self._parts(frozenset(self._snapshot.nodes), self._together):
            if anchored and not anchored <= nodes:
                continue
            found = self._fewest(groups, nodes - shut, shut, finer)
            if len(found) == len(groups):
                return found
            best = max(best, found, key=len)
        return best

    def _fewest(self, groups: Sequence[Group], within: Nodes, shut: Nodes, levels: Sequence[int]) -> Found:
        """As many groups as fit on these nodes, in the fewest domains of the first of these levels."""
        if not levels:
            return self._each(groups, within, shut)
        left, found = list(groups), Found()
        while left:
            best = Found()
            for most, nodes in self._promising(left, self._parts(within - shut, levels[0])):
                if len(best) >= min(most, len(left)):
                    break
                best = max(best, self._fewest(left, nodes, shut, levels[1:]), key=len)
            if not best:
                break
            found += best
            requests = {group.request for group, _ in best}
            left = [group for group in left if group.request not in requests]
            for _, answer in best:
                shut |= self._closed_by(answer)
        return found

    def _promising(
        self, groups: Sequence[Group], slots: list[tuple[tuple[str, ...], Nodes]]
    ) -> list[tuple[int, Nodes]]:
        """Domains, each with an upper bound of the groups that fit: highest first, then the smallest."""
        least = min((group for group in groups), key=lambda group: weight(group.gang))
        counted = []
        for path, nodes in slots:
            domains = self._by_value(least.request.over, nodes).values()
            most = sum(self._may_hold(least.gang, each) for each in domains)
            counted.append((-min(most, len(groups)), len(nodes), path, most, nodes))
        return [(most, nodes) for *_, most, nodes in sorted(counted, key=lambda each: each[:3]) if most]

    def _each(self, groups: Sequence[Group], within: Nodes, shut: Nodes) -> Found:
        """As many groups as fit, placed one after the other."""
        found = Found()
        refused: set[object] = set()
        for group in groups:
            if group_class(group) in refused:
                continue
            answer = self._in_one_domain(group, within - shut)
            if answer is None:
                refused.add(group_class(group))
                continue
            found.append((group, answer))
            shut |= self._closed_by(answer)
        return found

    def _in_one_domain(self, group: Group, allowed: Nodes) -> Assignment | None:
        """The best placement of a group on these nodes, within one domain of its label."""
        answers = [
            answer
            for nodes in self._by_value(group.request.over, allowed).values()
            if self._may_hold(group.gang, nodes) and (answer := self._in(group, nodes)) is not None
        ]
        return min(
            answers,
            key=lambda answer: (answer.objective, along_topology(answer, self._snapshot)),
            default=None,
        )

    def _in(self, group: Group, nodes: Nodes) -> Assignment | None:
        """The answer for these nodes of one domain; interchangeable groups share one call of the core."""
        key = group_class(group), nodes
        if key not in self._known:
            self._known[key] = group, self._ask(group, nodes)
        asked, answer = self._known[key]
        if answer is None or asked is group:
            return answer
        return as_placed(group, asked, answer)

    def _ask(self, group: Group, nodes: Nodes) -> Assignment | None:
        if self._asked >= MOST_QUESTIONS or self._budget.exhausted:
            return None
        self._asked += 1
        gang, over = group.gang, group.request.over
        try:
            level = self._topology.level(over)
        except PlacementError:
            level = None
        required = gang.required_level
        if level is not None and (required is None or self._topology.level(required) <= level):
            gang = replace(gang, required_level=over)
        answer = place(gang, self._snapshot.only(nodes), self._options, self._budget)
        if isinstance(answer, Assignment):
            return answer
        if self._nearest is None or answer.free_slots > self._nearest.free_slots:
            self._nearest = answer
        return None

    def _may_hold(self, gang: Gang, nodes: Iterable[str]) -> bool:
        """Whether these nodes have enough free extended resources for the gang: saves calls of the core."""
        wanted = self._wanted(gang)
        if not wanted:
            return True
        for name in nodes:
            free = self._snapshot.nodes[name].free
            wanted = {what: amount - max(0, free.get(what, 0)) for what, amount in wanted.items()}
            if all(amount <= 0 for amount in wanted.values()):
                return True
        return False

    def _wanted(self, gang: Gang) -> dict[str, int]:
        known = self._scarce.get(id(gang))
        if known is None:
            known = self._scarce[id(gang)] = wanted_of(gang)
        return known

    def _no_fit(self, count: int) -> NoFit:
        """Why not all groups have a domain. count: how many new groups have one."""
        over = " and ".join(sorted({group.request.over for group in self._groups}))
        new = sum(not self._has_begun(group) for group in self._groups)
        begun = len(self._groups) - new
        wanted = sum(len(group.gang.members) for group in self._groups)
        sentence = f"Gang {self._groups[0].gang.name} needs "
        if new:
            domains = counted(new, "more domain" if begun else "domain")
            sentence += f"{domains} of {over} to itself: there is capacity for {count}"
        else:
            sentence += (
                f"capacity for {counted(wanted, 'pod')} with the others in exclusive domains of {over}"
            )
        near = self._nearest.nearest if self._nearest is not None else None
        if self._nearest is not None and near is not None:
            where = f"{near.level} {'/'.join(near.domain)}"
            sentence += (
                f"; nearest is {where} with capacity for {near.free_slots} of {self._nearest.wanted} pods"
            )
        return NoFit(sentence, wanted, 0, len(self._snapshot.nodes), {}, near, proven=False)

    # --- labels -----------------------------------------------------------------------------------

    def _by_value(self, over: str, nodes: Iterable[str]) -> Mapping[str, Nodes]:
        """These nodes by their domain of a label."""
        values = ((self._snapshot.nodes[name].node.labels.get(over, ""), name) for name in nodes)
        return {value: frozenset(those) for value, those in grouped(values).items() if value}

    def _closed_by(self, answer: Assignment) -> Nodes:
        """Nodes that are closed to other groups once this one is placed, by its own and by their labels."""
        nodes = set(answer.nodes.values())
        return frozenset().union(*(self._in_domains_of(nodes, over) for over in self._domains))

    def _in_domains_of(self, nodes: Set[str], over: str) -> Nodes:
        """All nodes of the domains that contain these nodes."""
        found = self._snapshot.nodes
        values = {value for name in nodes if (value := found[name].node.labels.get(over, ""))}
        return frozenset().union(*(self._domains[over][value] for value in values))

    def _anchored(self) -> set[str]:
        nodes = {anchor.node for group in self._groups for anchor in group.gang.anchors}
        return {name for name in nodes if name in self._snapshot.nodes}

    def _parts(self, within: Nodes, level: int) -> list[tuple[tuple[str, ...], Nodes]]:
        """The domains of a level, each with its nodes among these."""
        paths = ((self._snapshot.nodes[name].path, name) for name in within)
        found = grouped((path[: level + 2], name) for path, name in paths if path is not None)
        ordered = sorted(found, key=lambda path: tuple(map(natural, path)))
        return [(path, frozenset(found[path])) for path in ordered]

    def _coarser_levels(self) -> tuple[int, ...]:
        """The levels above all domains; only the coarsest level, if a label is not a level."""
        levels = []
        for group in self._groups:
            try:
                levels.append(self._topology.level(group.request.over))
            except PlacementError:
                levels.append(1)
        return tuple(range(min(levels, default=0)))

    def _required_of_all(self) -> int | None:
        """The coarser level that all groups require, None if there is none."""
        required = {group.gang.required_level for group in self._groups}
        if len(required) != 1 or None in required:
            return None
        level = self._topology.level(str(required.pop()))
        return level if level < max(1, len(self._coarser_levels())) else None
