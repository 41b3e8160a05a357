"""Directly linked pairs of cards: enumerate sets of pairs, and bound the number of pairs.

A link counts if both its tiles are free. If a container asks for tiles, the link's tiles must be among the
tiles taken. Sets of cards are bit masks here, with bit n for the nth card.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import combinations

from webhook.placement.cards.state import CardState, Demand, times, usable

Link = tuple[int, int, int]
"""Own tile, number of the other card, its tile."""

Pair = tuple[int, int]
"""Numbers of two linked cards."""


def links_of(states: Sequence[CardState]) -> list[list[Link]]:
    """Each card's links to other cards of the node, by card number; either end may report a link."""
    numbers = {state.card.name: number for number, state in enumerate(states)}
    found: list[set[Link]] = [set() for _ in states]
    for number, state in enumerate(states):
        for own, name, theirs in state.card.links:
            other = numbers.get(name, number)
            if other != number:
                found[number].add((own, other, theirs))
                found[other].add((theirs, number, own))
    return [sorted(links, key=lambda link: (link[1], link[0], link[2])) for links in found]


def partners_of(links: Sequence[Sequence[Link]], states: Sequence[CardState]) -> list[int]:
    """For each card the mask of cards to which it has a free link."""
    free = [frozenset(state.tiles) for state in states]
    return [
        sum(1 << other for other in {o for own, o, its in mine if own in free[n] and its in free[o]})
        for n, mine in enumerate(links)
    ]


def pairings(
    order: Sequence[int], partners: Sequence[int], pairs: int, lonely_first: bool, step: Callable[[], None]
) -> Iterator[tuple[Pair, ...]]:
    """The sets of so many disjoint pairs of linked cards, each once.

    order: the cards that may be used, the preferred ones first. lonely_first: pair the cards with the fewest
    partners first, which finds a maximum matching in most graphs (Karp and Sipser, 1981).
    """
    search = _PairSearch(order, partners, lonely_first, step)
    yield from search.sets(sum(1 << n for n in order), pairs)


class _PairSearch:
    """A search for sets of pairs."""

    def __init__(
        self, order: Sequence[int], partners: Sequence[int], lonely_first: bool, step: Callable[[], None]
    ) -> None:
        self._order, self._partners, self._step = order, partners, step
        self._place = {number: position for position, number in enumerate(order)}
        self._lonely_first = lonely_first

    def sets(self, left: int, wanted: int) -> Iterator[tuple[Pair, ...]]:
        """The sets of so many pairs among the remaining cards."""
        self._step()
        if not wanted:
            yield ()
            return
        open_to = self._open_to(left)
        if len(open_to) < 2 * wanted:
            return
        pivot = self._pivot(open_to)
        for other in sorted(bits(open_to[pivot]), key=self._place.__getitem__):
            for rest in self.sets(left & ~(1 << pivot | 1 << other), wanted - 1):
                yield ((pivot, other), *rest)
        yield from self.sets(left & ~(1 << pivot), wanted)

    def _open_to(self, left: int) -> dict[int, int]:
        """The remaining partners of each remaining card that has any."""
        return {
            n: self._partners[n] & left for n in self._order if left >> n & 1 and self._partners[n] & left
        }

    def _pivot(self, open_to: Mapping[int, int]) -> int:
        """The card that is paired next, or left out."""
        if self._lonely_first:
            return min(open_to, key=lambda n: (open_to[n].bit_count(), self._place[n]))
        return min(open_to, key=self._place.__getitem__)


def tilings(
    states: Sequence[CardState],
    links: Sequence[Sequence[Link]],
    pairs: Sequence[Pair],
    tiles: int,
    step: Callable[[], None],
) -> Iterator[dict[int, tuple[int, ...]]]:
    """The ways to take `tiles` tiles of each card of these pairs."""
    step()
    if not pairs:
        yield {}
        return
    first, other = pairs[0]
    for own, number, theirs in links[first]:
        if number != other or own not in states[first].tiles or theirs not in states[other].tiles:
            continue
        for rest in tilings(states, links, pairs[1:], tiles, step):
            for mine in _with_tile(states[first], own, tiles):
                for its in _with_tile(states[other], theirs, tiles):
                    yield rest | {first: mine, other: its}


def _with_tile(state: CardState, tile: int, count: int) -> Iterator[tuple[int, ...]]:
    """The sets of `count` free tiles that contain this tile."""
    for others in combinations([other for other in state.tiles if other != tile], count - 1):
        yield tuple(sorted((tile, *others)))


# --- upper bounds of the number of pairs --------------------------------------------------------------


def are_too_many(states: Sequence[CardState], demands: Sequence[Demand]) -> bool:
    """Whether these demands need more linked pairs than an upper bound; if not, they may fit or not."""
    linked = [demand for demand in demands if demand.pod_class.linked]
    pairs = sum(demand.request.count for demand in linked) // 2
    if not pairs:
        return False
    demand_classes = list({(id(demand.pod_class), demand.request): demand for demand in linked}.values())
    pair_counts = [
        max(
            (times(state, kind.request) for kind in demand_classes if usable(state.card, kind.pod_class)),
            default=0,
        )
        for state in states
    ]
    return most_pairs(pair_counts, partners_of(links_of(states), states), len(linked)) < pairs


def most_pairs(pair_counts: Sequence[int], partners: Sequence[int], demands: int) -> int:
    """An upper bound of the pairs for so many demands, each of which uses a card at most once.

    pair_counts: the most pairs of each card. By the formula of Tutte and Berge (Schrijver, Combinatorial
    Optimization, theorem 31.1), any set of cards U bounds the number: a pair touches U, or is inside a
    connected component of the rest. U starts empty, and as the set of cards that can be in fewer pairs than
    their partners. It changes card by card while the bound improves.
    """
    pair_counts = [min(free_slots, demands) for free_slots in pair_counts]
    everything = sum(1 << n for n, free_slots in enumerate(pair_counts) if free_slots)
    partners = [mask & everything if pair_counts[n] else 0 for n, mask in enumerate(partners)]
    bound = partial(_pairs_beside, pair_counts, partners, demands, everything)
    crowded = sum(
        1 << n for n in bits(everything) if pair_counts[n] < sum(pair_counts[m] for m in bits(partners[n]))
    )
    return min(_least_nearby(bound, everything, cut) for cut in (0, crowded))


def _least_nearby(bound: Callable[[int], int], everything: int, cut: int) -> int:
    """The least bound by local search from a set of cards, one card at a time."""
    best = bound(cut)
    while True:
        nearby = min(((bound(cut ^ 1 << n), n) for n in bits(everything)), default=(best, 0))
        if nearby[0] >= best:
            return best
        best, cut = nearby[0], cut ^ 1 << nearby[1]


def _pairs_beside(
    pair_counts: Sequence[int], partners: Sequence[int], demands: int, everything: int, cut: int
) -> int:
    """An upper bound of the pairs that touch a set of cards, or are inside a component of the rest."""
    total = sum(pair_counts[n] for n in bits(cut))
    for part in _parts(everything & ~cut, partners):
        size = part.bit_count()
        if size > 1:
            total += min(sum(pair_counts[n] for n in bits(part)) // 2, demands * (size // 2))
    return total


def _parts(left: int, partners: Sequence[int]) -> Iterator[int]:
    """The connected components of these cards."""
    while left:
        part = new = left & -left
        while new:
            reached = 0
            for n in bits(new):
                reached |= partners[n]
            new = reached & left & ~part
            part |= new
        left &= ~part
        yield part


def bits(mask: int) -> Iterator[int]:
    """The card numbers of a mask, ascending."""
    while mask:
        yield (mask & -mask).bit_length() - 1
        mask &= mask - 1
