"""What each domain of a spread's level takes of identical pods, at least and at most.

With a cap that is none, and the cap less those that are there. Evenly, the sum of the squares of what the
domains hold is least; squares are convex, so pod by pod the emptiest domain takes the next, as water finds
its level: each domain takes what it lacks of that as far as it has room, and some of those that end there
take one more. Which ones, cost decides.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from webhook.placement.bounds import rooms_at
from webhook.placement.question import Question
from webhook.placement.snapshot import Path, key_of
from webhook.placement.vertex import Vertex, domains_at


@dataclass(slots=True, eq=False)
class SpreadDomain:
    """A domain of the level: how many pods it takes at least and at most, and what so many cost."""

    vertex: Vertex
    least: int
    most: int
    known: dict[int, int] = field(default_factory=dict)


def room_under_cap(question: Question, vertex: Vertex) -> int:
    """How many of the pods a domain has room for under the spread's cap."""
    assert question.spread is not None
    wish = question.spread
    if wish.most is None or not vertex.room:
        return vertex.room
    if not wish.there:  # without a look at each
        return sum(min(room, wish.most) for room in rooms_at(vertex, wish.level))
    found = _rooms_of(vertex, wish.level)
    return sum(min(room, max(0, wish.most - wish.there_in(path))) for path, room in found)


Shares = dict[Path, tuple[int, int]]
"""For the path of each domain of the level that may take pods: how many at least and at most."""


def shares(question: Question, vertex: Vertex) -> tuple[int, Shares]:
    """By how much the squares grow, and what domains may take; there is room, see room_under_cap."""
    wish, wanted = question.spread, question.counts[0]
    assert wish is not None
    found = [(path, wish.there_in(path), room) for path, room in _rooms_of(vertex, wish.level) if room]
    cap = wish.most
    if cap is not None:
        return 0, {path: (0, min(free, wanted, cap - there)) for path, there, free in found if cap > there}
    level = _level([(there, free) for _, there, free in found], wanted)
    taken: Shares = {}
    grown, left = 0, wanted
    for path, there, free in found:
        least = min(free, max(0, level - there))
        most = min(free, max(0, level + 1 - there))
        if most:
            taken[path] = least, most
        grown += (there + least) ** 2 - there**2
        left -= least
    return grown + left * (2 * level + 1), taken


def _rooms_of(vertex: Vertex, level: int) -> Iterator[tuple[Path, int]]:
    """The paths of a level's domains in a domain, and their rooms; quicker than their vertices."""
    if vertex.bottom >= level:
        yield vertex.key[: level + 2], vertex.room
    elif vertex.leaves is not None:
        bottom = vertex.leaves.costs.depth - 1
        for state, room in zip(vertex.leaves.states, vertex.leaves.rooms, strict=True):
            yield key_of(state, bottom)[: level + 2], room
    else:
        for part in vertex.parts:
            yield from _rooms_of(part, level)


def domains_of(question: Question, vertex: Vertex, taken: Shares) -> list[SpreadDomain]:
    """The domains that may take pods."""
    assert question.spread is not None
    level = question.spread.level
    named = ((domain, domain.key[: level + 2]) for domain in domains_at(vertex, level))
    return [SpreadDomain(domain, *taken[path]) for domain, path in named if path in taken]


def _level(domains: Sequence[tuple[int, int]], wanted: int) -> int:
    """The highest level up to which so many pods fill domains of which each holds some and has room."""
    alike = Counter(domains).items()
    low, high = 0, max(there for there, _ in domains) + wanted
    while low < high:
        middle = (low + high + 1) // 2
        if sum(number * min(free, max(0, middle - there)) for (there, free), number in alike) <= wanted:
            low = middle
        else:
            high = middle - 1
    return low
