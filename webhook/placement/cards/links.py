"""Cards in directly linked pairs: which sets of pairs there are, and how many pairs there are at most.

A link counts when both its tiles are free; where tiles are asked for, they are among those taken. Sets of
cards are masks here, bit n for the nth card.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import combinations

from webhook.placement.cards.state import CardState, Demand, times, usable

Link = tuple[int, int, int]
"""Own tile, number of the other card, its tile."""

Pair = tuple[int, int]
"""Numbers of two linked cards."""


def links_of(states: Sequence[CardState]) -> list[list[Link]]:
    """Each card's links to other cards of the node, whichever end names them, in the order of numbers."""
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
    """For each card those that it has a free link to."""
    free = [frozenset(state.tiles) for state in states]
    return [
        sum(1 << other for other in {o for own, o, its in mine if own in free[n] and its in free[o]})
        for n, mine in enumerate(links)
    ]


def pairings(
    order: Sequence[int], partners: Sequence[int], pairs: int, lonely_first: bool, step: Callable[[], None]
) -> Iterator[tuple[Pair, ...]]:
    """The sets of so many disjoint pairs of linked cards, each once.

    order: which cards may be used, those that are rather used first. lonely_first: pair the cards with the
    fewest partners first, which finds as many pairs as there can be in most graphs (Karp and Sipser, 1981).
    """
    place = {number: position for position, number in enumerate(order)}
    dead: set[tuple[int, int]] = set()

    def sets(left: int, wanted: int) -> Iterator[tuple[Pair, ...]]:
        step()
        if not wanted:
            yield ()
            return
        open_to = {n: partners[n] & left for n in order if left >> n & 1 and partners[n] & left}
        if len(open_to) < 2 * wanted or (left, wanted) in dead:
            return
        pivot = min(open_to, key=lambda n: (open_to[n].bit_count() if lonely_first else 0, place[n]))
        found = False
        others = sorted(bits(open_to[pivot]), key=place.__getitem__)
        for other in others:
            for rest in sets(left & ~(1 << pivot | 1 << other), wanted - 1):
                found = True
                yield ((pivot, other), *rest)
        for rest in sets(left & ~(1 << pivot), wanted):
            found = True
            yield rest
        if not found:
            dead.add((left, wanted))

    yield from sets(sum(1 << n for n in order), pairs)


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
    """Sets of `count` free tiles, this one among them."""
    for others in combinations([other for other in state.tiles if other != tile], count - 1):
        yield tuple(sorted((tile, *others)))


# --- how many there are at most ----------------------------------------------------------------------


def are_too_many(states: Sequence[CardState], demands: Sequence[Demand]) -> bool:
    """Whether these demands are for more linked pairs than there can be; if not, they may fit or not."""
    linked = [demand for demand in demands if demand.pod_class.linked]
    pairs = sum(demand.wish.count for demand in linked) // 2
    if not pairs:
        return False
    links = links_of(states)
    kinds = list({(id(demand.pod_class), demand.wish): demand for demand in linked}.values())
    rooms = [
        max((times(state, kind.wish) for kind in kinds if usable(state.card, kind.pod_class)), default=0)
        for state in states
    ]
    if most_pairs(rooms, partners_of(links, states), len(linked)) < pairs:
        return True
    return all(kind.wish.tiles for kind in kinds) and _most_linked_tiles(rooms, links, states) < pairs


def _most_linked_tiles(
    rooms: Sequence[int], links: Sequence[Sequence[Link]], states: Sequence[CardState]
) -> int:
    """No more pairs than that can be made of links whose tiles are taken."""
    tiles = [(n, tile) for n, state in enumerate(states) if rooms[n] for tile in state.tiles]
    number = {tile: position for position, tile in enumerate(tiles)}
    partners = [
        sum(1 << number[o, its] for own, o, its in links[n] if own == tile and (o, its) in number)
        for n, tile in tiles
    ]
    return most_pairs([1] * len(tiles), partners, len(tiles))


def most_pairs(rooms: Sequence[int], partners: Sequence[int], demands: int) -> int:
    """No more pairs than that can be given to so many demands, each of which takes a card once at most.

    rooms: how many pairs each card can be in. By Tutte and Berge (Schrijver, Combinatorial Optimization,
    theorem 31.1) any set of cards U bounds the number: a pair touches U, or lies in a part of what is left.
    U comes from a smallest cover of the links with halves, and is then changed card by card while that helps.
    """
    rooms = [min(room, demands) for room in rooms]
    everything = sum(1 << n for n, room in enumerate(rooms) if room)
    partners = [mask & everything if rooms[n] else 0 for n, mask in enumerate(partners)]

    def bound(cut: int) -> int:
        total = sum(rooms[n] for n in bits(cut))
        for part in _parts(everything & ~cut, partners):
            size = part.bit_count()
            if size > 1:
                total += min(sum(rooms[n] for n in bits(part)) // 2, demands * (size // 2))
        return total

    cut = _covering(rooms, partners)
    best = bound(cut)
    while True:
        nearby = min(((bound(cut ^ 1 << n), n) for n in bits(everything)), default=(best, 0))
        if nearby[0] >= best:
            return best
        best, cut = nearby[0], cut ^ 1 << nearby[1]


def _parts(left: int, partners: Sequence[int]) -> Iterator[int]:
    """The connected parts of these cards."""
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


def _covering(rooms: Sequence[int], partners: Sequence[int]) -> int:
    """The cards that a smallest cover of all links with halves takes whole.

    By a largest flow from each card to its partners (König): what the search cannot reach on the one side and
    reaches on the other is in the cover.
    """
    count = len(rooms)
    out, into = list(rooms), list(rooms)
    flow = [[0] * count for _ in rooms]

    def push(n: int, most: int, seen: set[int]) -> int:
        """More of the flow out of a card, along one way."""
        for m in bits(partners[n]):
            if m in seen:
                continue
            seen.add(m)
            if into[m]:
                pushed = min(most, into[m])
                into[m] -= pushed
                flow[n][m] += pushed
                return pushed
            for other in range(count):
                pushed = push(other, min(most, flow[other][m]), seen) if flow[other][m] else 0
                if pushed:
                    flow[other][m] -= pushed
                    flow[n][m] += pushed
                    return pushed
        return 0

    for n in range(count):
        while out[n] and (pushed := push(n, out[n], set())):
            out[n] -= pushed
    near, far = {n for n in range(count) if out[n]}, set[int]()
    waiting = list(near)
    while waiting:
        for m in bits(partners[waiting.pop()]):
            far.add(m)
            new = {other for other in range(count) if flow[other][m]} - near
            near |= new
            waiting += new
    return sum(1 << n for n in range(count) if n in far and n not in near)


def bits(mask: int) -> Iterator[int]:
    """The numbers of the cards of a mask, ascending."""
    while mask:
        yield (mask & -mask).bit_length() - 1
        mask &= mask - 1
