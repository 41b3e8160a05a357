"""Which cards of a node serve which containers: an exact search over the whole node.

A container asks for `count` distinct cards and the same amounts of each; containers may share a card. The
search goes over the demands, those with the fewest choices first, and over sets of cards; cards in the same
state are interchangeable, and a state that failed once is not searched again, so a feasible choice is never
missed. Among the feasible ones it prefers to open the fewest whole cards, then the least room left on the
cards used, then the lowest numbers; that preference is exact up to `POLISH` steps and then the best found.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from typing import Final

from webhook.placement.model import Card, CardShare, CardWish, Node, PodClass, Slots, Usage, Vector

POLISH: Final = 3000
"""Steps spent on a better choice after a feasible one is known."""

_PARTS: Final = re.compile(r"(\d+)")


@dataclass(frozen=True, slots=True)
class CardState:
    """A card and what is free on it."""

    card: Card
    free: Vector
    tiles: tuple[int, ...]

    @property
    def whole(self) -> bool:
        """Whether nothing of the card is used."""
        return all(dict(self.free).get(r, 0) == amount for r, amount in self.card.capacity.items())

    def take(self, amounts: Vector, tiles: int) -> "CardState | None":
        """The card after one more demand, or None if it does not fit; the tiles taken are not yet named."""
        free = dict(self.free)
        for resource, amount in amounts:
            left = free.get(resource, 0) - amount
            if left < 0:
                return None
            free[resource] = left
        if tiles > len(self.tiles):
            return None
        return CardState(self.card, tuple(free.items()), _without(self.tiles, tile_run(self.tiles, tiles)))


def card_state(card: Card, used: Mapping[str, int], used_tiles: frozenset[int]) -> CardState:
    """What is free on a card beside its users; more use than room leaves 0."""
    free = tuple((r, max(0, amount - used.get(r, 0))) for r, amount in card.capacity.items())
    tiles = tuple(t for t in range(card.tiles) if t not in used_tiles and t not in card.disabled_tiles)
    return CardState(card, free, tiles)


def overbooked_cards(node: Node, usages: Iterable[Usage]) -> list[str]:
    """Names of the cards on which these pods together take more than there is, in the order of numbers.

    That is: more of a resource than the card holds, a tile given to two pods, or anything of a card that the
    node does not have. card_state cannot tell, as it shows 0 left in all these cases.
    """
    sums: dict[str, Counter[str]] = {}
    tiles: dict[str, Counter[int]] = {}
    for usage in usages:
        for name, amounts in usage.cards.items():
            sums.setdefault(name, Counter()).update(amounts)
        for name, own in usage.tiles.items():
            tiles.setdefault(name, Counter()).update(own)
    held = {card.name: card.capacity for card in node.cards}
    over = {
        name
        for name, amounts in sums.items()
        if any(amount > held.get(name, {}).get(resource, 0) for resource, amount in amounts.items())
    }
    over |= {name for name, users in tiles.items() if users and (name not in held or max(users.values()) > 1)}
    return sorted(over, key=natural)


def natural(name: str) -> tuple[tuple[int, int | str], ...]:
    """Sort key that puts card2 before card10."""
    return _natural(name)


@lru_cache(maxsize=200_000)
def _natural(name: str) -> tuple[tuple[int, int | str], ...]:
    return tuple((0, int(part)) if part.isdigit() else (1, part) for part in _PARTS.split(name) if part)


def tile_run(free: Sequence[int], count: int) -> tuple[int, ...]:
    """`count` of the free tiles: from the tightest contiguous run that holds them, else the lowest."""
    runs: list[list[int]] = []
    for tile in sorted(free):
        if runs and runs[-1][-1] == tile - 1:
            runs[-1].append(tile)
        else:
            runs.append([tile])
    fitting = [run for run in runs if len(run) >= count]
    chosen = min(fitting, key=len) if fitting else sorted(free)
    return tuple(chosen[:count])


def _without(tiles: tuple[int, ...], taken: Sequence[int]) -> tuple[int, ...]:
    return tuple(tile for tile in tiles if tile not in taken)


@dataclass(frozen=True, slots=True)
class _Demand:
    """One container's wish, or that of several that share one card."""

    pod: int
    containers: tuple[int, ...]
    wish: CardWish
    pod_class: PodClass


def choose(states: Sequence[CardState], pods: Sequence[PodClass], polish: int = POLISH) -> list[Slots] | None:
    """Cards for all these pods together on one node, in the order of the pods; None if there are none."""
    demands = [demand for number, pod in enumerate(pods) for demand in _demands(number, pod)]
    demands.sort(key=_first_the_hard_ones)
    search = _Search(sorted(states, key=lambda s: natural(s.card.name)), demands, polish)
    return search.run(pods)


def _first_the_hard_ones(demand: "_Demand") -> tuple[object, ...]:
    """Linked wishes first, since they need particular tiles; then many cards, then large shares."""
    wish = demand.wish
    amounts = [-amount for _, amount in wish.per_card]
    return not demand.pod_class.linked, -wish.count, amounts, demand.pod, demand.containers


def fits(states: Sequence[CardState], pods: Sequence[PodClass]) -> bool:
    """Whether all these pods find cards on the node together."""
    return choose(states, pods, polish=0) is not None


def room(states: Sequence[CardState], pod: PodClass, most: int) -> int:
    """How many such pods find cards on the node together, at most `most`."""
    simple = [wish for wish in pod.cards if wish.count]
    plain = not (pod.same_card or pod.single_numa or pod.linked)
    if plain and len(simple) == 1:
        return _room_of_one(states, pod, simple[0], most)
    count = 0
    while count < most and fits(states, [pod] * (count + 1)):
        count += 1
    return count


def _room_of_one(states: Sequence[CardState], pod: PodClass, wish: CardWish, most: int) -> int:
    """Closed form for one wish: p pods of N distinct cards fit where sum of min(room of card, p) >= N p.

    Source: Gale-Ryser; the condition is monotone in p.
    """
    rooms = [_times(state, wish) for state in states if _usable(state.card, pod)]
    while most > 0 and sum(min(r, most) for r in rooms) < wish.count * most:
        most = min(most - 1, sum(min(r, most) for r in rooms) // wish.count)
    return most


def _times(state: CardState, wish: CardWish) -> int:
    free = dict(state.free)
    rooms = [free.get(resource, 0) // amount for resource, amount in wish.per_card if amount > 0]
    if wish.tiles:
        rooms.append(len(state.tiles) // wish.tiles)
    return min(rooms, default=10**9)


def _usable(card: Card, pod: PodClass) -> bool:
    if card.disabled or card.name in pod.denied_cards:
        return False
    return pod.allowed_cards is None or card.name in pod.allowed_cards


def _demands(number: int, pod: PodClass) -> Iterator[_Demand]:
    if pod.same_card:
        amounts: dict[str, int] = {}
        for index in pod.same_card:
            for resource, amount in pod.cards[index].per_card:
                amounts[resource] = amounts.get(resource, 0) + amount
        yield _Demand(number, pod.same_card, CardWish(1, tuple(sorted(amounts.items()))), pod)
    for index, wish in enumerate(pod.cards):
        if wish.count and index not in pod.same_card:
            yield _Demand(number, (index,), wish, pod)


_Choice = tuple[tuple[int, tuple[int, ...]], ...]
"""The cards that a demand takes, by number, ascending, with the tiles of each."""

_Key = tuple[int, int, tuple[_Choice, ...]]


class _Search:
    """One search over the demands of a node."""

    def __init__(self, states: list[CardState], demands: list[_Demand], polish: int) -> None:
        self.states = states
        self.demands = demands
        self.polish = polish
        self.whole = [state.whole for state in states]
        self.named = demands_name_cards(demands)
        self.dead: set[tuple[int, object]] = set()
        self.best: tuple[_Key, list[_Choice]] | None = None
        self.steps = 0
        self.chosen: list[_Choice] = []

    def run(self, pods: Sequence[PodClass]) -> list[Slots] | None:
        self._descend(0, self.states)
        if self.best is None:
            return None
        return self._slots(self.best[1], pods)

    def _descend(self, depth: int, states: list[CardState]) -> bool:
        """True when a feasible end was found below."""
        self.steps += 1
        if depth == len(self.demands):
            key = self._key(states)
            if self.best is None or key < self.best[0]:
                self.best = (key, list(self.chosen))
            return True
        state_key = (depth, self._canonical(states))
        if state_key in self.dead:
            return False
        found = False
        for choice, after in self._choices(self.demands[depth], states):
            self.chosen.append(choice)
            found |= self._descend(depth + 1, after)
            self.chosen.pop()
            if self.best is not None and self.steps > self.polish:
                return True
        if not found:
            self.dead.add(state_key)
        return found

    def _canonical(self, states: list[CardState]) -> object:
        signatures = [
            (
                i if self.named else 0,
                s.card.numa,
                s.card.disabled,
                s.free,
                len(s.tiles) if not self.named else s.tiles,
            )
            for i, s in enumerate(states)
        ]
        return tuple(signatures) if self.named else tuple(sorted(signatures, key=repr))

    def _choices(self, demand: _Demand, states: list[CardState]) -> Iterator[tuple[_Choice, list[CardState]]]:
        wish = demand.wish
        after: dict[int, CardState] = {}
        for number, state in enumerate(states):
            if _usable(state.card, demand.pod_class):
                left = state.take(wish.per_card, wish.tiles)
                if left is not None:
                    after[number] = left
        order = sorted(
            after, key=lambda n: (self.whole[n] and states[n].whole, self._left(after[n], wish), n)
        )
        seen: set[object] = set()
        for group in self._groups(demand, states, order):
            for choice in combinations(group, wish.count):
                signature = tuple(sorted(repr(self._alike(states[n], n)) for n in choice))
                if signature in seen:
                    continue
                seen.add(signature)
                yield from self._with_tiles(demand, states, sorted(choice), after)

    def _with_tiles(
        self, demand: _Demand, states: list[CardState], cards: Sequence[int], after: Mapping[int, CardState]
    ) -> Iterator[tuple[_Choice, list[CardState]]]:
        """The ways to take tiles of these cards: one, as tiles are alike, unless links tell them apart."""
        tiles = demand.wish.tiles
        if demand.pod_class.linked:
            ways = list(linkings(states, cards, tiles))
        else:
            ways = [{n: tile_run(states[n].tiles, tiles) for n in cards}]
        for way in ways:
            result = list(states)
            for n in cards:
                result[n] = CardState(states[n].card, after[n].free, _without(states[n].tiles, way[n]))
            yield tuple((n, way[n]) for n in cards), result

    def _alike(self, state: CardState, number: int) -> object:
        """What two cards must share to be interchangeable."""
        if self.named:
            return number
        return (state.card.numa, state.free, tuple(state.card.capacity.items()), state.tiles)

    def _left(self, state: CardState, wish: CardWish) -> int:
        free = dict(state.free)
        return sum(
            free[r] * 1_000_000 // state.card.capacity[r]
            for r, _ in wish.per_card
            if state.card.capacity.get(r)
        )

    def _groups(self, demand: _Demand, states: list[CardState], order: list[int]) -> Iterator[list[int]]:
        """The sets out of which a choice may be made: all cards, or the cards of one NUMA node."""
        if not demand.pod_class.single_numa or all(state.card.numa is None for state in states):
            yield order
            return
        for numa in sorted({states[n].card.numa for n in order if states[n].card.numa is not None}, key=str):
            yield [n for n in order if states[n].card.numa == numa]

    def _key(self, states: list[CardState]) -> _Key:
        touched = {n for choice in self.chosen for n, _ in choice}
        opened = sum(self.whole[n] for n in touched)
        left = sum(
            amount * 1_000_000 // states[n].card.capacity[r]
            for n in touched
            for r, amount in states[n].free
            if states[n].card.capacity[r]
        )
        return opened, left, tuple(self.chosen)

    def _slots(self, choices: list[_Choice], pods: Sequence[PodClass]) -> list[Slots]:
        """Cards and tiles by pod and container."""
        slots: list[list[tuple[CardShare, ...]]] = [[() for _ in pod.cards] for pod in pods]
        for demand, choice in zip(self.demands, choices, strict=True):
            shares = tuple(CardShare(self.states[n].card.name, tiles) for n, tiles in choice)
            for container in demand.containers:
                slots[demand.pod][container] = shares
        return [tuple(pod) for pod in slots]


def demands_name_cards(demands: Sequence[_Demand]) -> bool:
    """Whether a wish tells cards apart by name or link, so that no two are interchangeable."""
    return any(
        d.pod_class.allowed_cards is not None or d.pod_class.denied_cards or d.pod_class.linked
        for d in demands
    )


def linkings(
    states: Sequence[CardState], cards: Sequence[int], tiles: int
) -> Iterator[dict[int, tuple[int, ...]]]:
    """The ways to part the cards into directly linked pairs, with `tiles` tiles of each card.

    A link counts when both its tiles are free; where tiles are asked for, they are among those taken.
    """
    if not cards:
        yield {}
        return
    first = cards[0]
    by_name = {states[n].card.name: n for n in cards[1:]}
    for own, name, theirs in _links(states, first):
        other = by_name.get(name)
        if other is None or own not in states[first].tiles or theirs not in states[other].tiles:
            continue
        for rest in linkings(states, [n for n in cards[1:] if n != other], tiles):
            for mine in _with_tile(states[first], own, tiles):
                for its in _with_tile(states[other], theirs, tiles):
                    yield rest | {first: mine, other: its}


def _links(states: Sequence[CardState], number: int) -> list[tuple[int, str, int]]:
    """A card's links, whichever end names them."""
    name = states[number].card.name
    own = list(states[number].card.links)
    reverse = [
        (tile, state.card.name, mine)
        for state in states
        for mine, other, tile in state.card.links
        if other == name
    ]
    return sorted(set(own + reverse), key=lambda link: (natural(link[1]), link[0], link[2]))


def _with_tile(state: CardState, tile: int, count: int) -> Iterator[tuple[int, ...]]:
    """Sets of `count` free tiles, this one among them; none of them when no tiles are asked for."""
    if not count:
        yield ()
        return
    for others in combinations([other for other in state.tiles if other != tile], count - 1):
        yield tuple(sorted((tile, *others)))
