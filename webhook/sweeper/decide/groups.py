"""Groups that want a domain each: which of them are alike, and in which order they lie. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from webhook.placement import Assignment, Gang, Member, Placed, Snapshot
from webhook.placement.names import natural
from webhook.sweeper.observe.membership import Claim
from webhook.workloads.additions import is_extended


@dataclass(frozen=True)
class Group:
    """Members, or only anchors, that want a domain to themselves."""

    gang: Gang
    claim: Claim


Found = list[tuple[Group, Assignment]]
Along = tuple[tuple[tuple[tuple[int, int | str], ...], ...], tuple[tuple[int, int | str], ...]]
"""A sort key."""


def wanted_of(gang: Gang) -> dict[str, int]:
    """What all members ask for of extended resources."""
    wanted: dict[str, int] = {}
    for member in gang.members:
        for what, amount in member.pod_class.requests:
            if is_extended(what):
                wanted[what] = wanted.get(what, 0) + amount
    return wanted


def weight(gang: Gang) -> int:
    """How much that is, all resources together: the heaviest groups are the hardest to place."""
    return sum(wanted_of(gang).values())


def shape(group: Group) -> object:
    """What groups have in common of which each may take the other's place."""
    gang = group.gang
    classes = tuple(member.pod_class for member in _by_rank(gang))
    return classes, gang.required_level, gang.slices, gang.excluded_nodes, group.claim.over


def _by_rank(gang: Gang) -> list[Member]:
    return sorted(gang.members, key=lambda member: (member.rank or 0, member.name))


def _as_many(groups: Sequence[Group], found: Found) -> Found:
    """The same places for these groups, which are like those that found them."""
    return [
        (group, as_placed(group, other, answer))
        for group, (other, answer) in zip(groups, found, strict=False)
    ]


def as_placed(group: Group, other: Group, answer: Assignment) -> Assignment:
    """The answer of another group, which is like this one, for this one."""
    names = {
        theirs.name: mine.name
        for theirs, mine in zip(_by_rank(other.gang), _by_rank(group.gang), strict=True)
    }
    placed = tuple(Placed(names[each.member], each.node, each.cards) for each in answer.placed)
    return replace(answer, placed=placed)


def in_order(found: Found, snapshot: Snapshot) -> Found:
    """The same domains, those of groups that are alike in the order of the groups along the topology."""

    alike: dict[object, Found] = {}
    for group, answer in found:
        alike.setdefault(shape(group), []).append((group, answer))
    ordered = Found()
    for some in alike.values():
        groups = sorted((group for group, _ in some), key=_first_rank)
        places = sorted(some, key=lambda each: along_topology(each[1], snapshot))
        ordered += _as_many(groups, places)
    return ordered


def _first_rank(group: Group) -> tuple[int, str]:
    return min((member.rank or 0, member.name) for member in group.gang.members)


def along_topology(answer: Assignment, snapshot: Snapshot) -> Along:
    """Where along the topology an answer begins."""
    first = min(answer.nodes.values(), key=natural)
    path = snapshot.nodes[first].path or (first,)
    return tuple(map(natural, path)), natural(first)
