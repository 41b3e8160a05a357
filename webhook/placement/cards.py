"""Which cards of a node serve which containers.

A container asks for `count` distinct cards and the same amounts of each; containers may share a card. Whether
demands fit is decided by packing, or by the search below where links, or the NUMA nodes of several cards,
tell cards apart. The search goes over the demands, those with the fewest choices first, and over sets of
cards; cards in the same state are interchangeable, and a state that failed once is not searched again. Among
the feasible choices it prefers to open the fewest whole cards, then the least room left on the cards used,
then the lowest numbers; that preference is exact up to `POLISH` steps and then the best found.

Both end after a fixed number of steps. What is not decided by then counts as not fitting; see `doubts`.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import combinations, islice
from typing import Final

from webhook.placement import packing
from webhook.placement.eligibility import Rules
from webhook.placement.model import Card, CardShare, CardWish, Node, PodClass, Slots, Usage, Vector

POLISH: Final = 3000
"""Steps spent on the best choice."""

STEPS: Final = 5000
"""Steps of the search for a feasible choice where packing cannot tell; a step is a set of cards, or a pair of
linked ones, that is tried."""

_MOST_TRIED: Final = 20_000
"""The same once a feasible choice is known, beside POLISH."""

_DEEPEST: Final = 300
"""Demands up to which the search goes, which descends once for each."""

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
    """Cards for all these pods together on one node, in the order of the pods; None if none were found."""
    ordered = sorted(states, key=lambda s: natural(s.card.name))
    hand = _Hand(tuple(_signature(state) for state in ordered), tuple(ordered))
    chosen, exact = _choose(hand, tuple(replace(pod, requests=(), rules=_NO_RULES) for pod in pods), polish)
    _note(exact)
    return None if chosen is None else list(chosen)


_NO_RULES: Final = Rules()


@dataclass(frozen=True, slots=True)
class _Hand:
    """A node's cards in the order of numbers, equal to those of any node whose cards are the same."""

    signatures: tuple[object, ...]
    states: tuple[CardState, ...] = field(compare=False)


def _signature(state: CardState) -> object:
    card = state.card
    return (
        card.name,
        tuple(card.capacity.items()),
        card.numa,
        card.disabled,
        card.links,
        state.free,
        state.tiles,
    )


@lru_cache(maxsize=4096)
def _choose(hand: _Hand, pods: tuple[PodClass, ...], polish: int) -> tuple[tuple[Slots, ...] | None, bool]:
    """The cards and, when there are none, whether that is exact."""
    demands = [demand for number, pod in enumerate(pods) for demand in _demands(number, pod)]
    demands.sort(key=_first_the_hard_ones)
    searched = any(is_searched(pod) for pod in pods)
    packed = _Packed.of(hand.states, demands)
    answer = packed.answer()  # to a searched question, what there is at most
    if answer.takes is None and (answer.exact or not searched):
        return None, answer.exact
    search = _Search(list(hand.states), demands, polish, STEPS if searched else polish)
    best = search.run()
    if best is None and not searched:
        best = packed.choices(hand.states)
    if best is None:
        return None, not search.cut
    return tuple(search.slots(best, pods)), True


def _first_the_hard_ones(demand: "_Demand") -> tuple[object, ...]:
    """Linked wishes first, since they need particular tiles; then many cards, then large shares."""
    wish = demand.wish
    amounts = [-amount for _, amount in wish.per_card]
    return not demand.pod_class.linked, -wish.count, amounts, demand.pod, demand.containers


def fits(states: Sequence[CardState], pods: Sequence[PodClass]) -> bool:
    """Whether all these pods find cards on the node together."""
    if any(is_searched(pod) for pod in pods):
        return choose(states, pods, polish=0) is not None
    demands = [demand for number, pod in enumerate(pods) for demand in _demands(number, pod)]
    answer = _Packed.of(states, demands).answer()
    _note(answer.takes is not None or answer.exact)
    return answer.takes is not None


def room(states: Sequence[CardState], pod: PodClass, most: int) -> int:
    """How many such pods find cards on the node together, at most `most`."""
    if not is_hard(pod):
        wish = next((wish for wish in pod.cards if wish.count), CardWish())
        return _room_of_one(states, pod, wish, most)
    if not is_searched(pod):
        packed = _Packed.of(states, list(_demands(0, pod)))
        count, exact = packing.most(packed.bins, packed.kinds, most)
        _note(exact)
        return count
    count = 0
    while count < most and fits(states, [pod] * (count + 1)):
        count += 1
    return count


def is_hard(pod: PodClass) -> bool:
    """Whether no closed form says how many such pods fit, so that the answer may be in doubt."""
    together = pod.same_card or pod.single_numa or pod.linked
    return bool(pod.wants_cards and (together or sum(wish.count > 0 for wish in pod.cards) > 1))


def is_searched(pod: PodClass) -> bool:
    """Whether it matters which cards a container gets together, which packing cannot tell."""
    return pod.linked or (pod.single_numa and any(wish.count > 1 for wish in pod.cards))


_doubts: Final[ContextVar[list[bool] | None]] = ContextVar("doubts", default=None)


@contextmanager
def doubts() -> Iterator[list[bool]]:
    """A list that gets an entry for each question that is asked inside and not decided within its steps.

    Such a question is answered with "does not fit", so that what is built on it holds, but is not proven.
    """
    noted: list[bool] = []
    token = _doubts.set(noted)
    try:
        yield noted
    finally:
        _doubts.reset(token)


def _note(exact: bool) -> None:
    noted = _doubts.get()
    if not exact and noted is not None:
        noted.append(True)


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


@dataclass(frozen=True, slots=True)
class _Packed:
    """Demands and cards as packing sees them: of nodes whose cards are alike, the same.

    order: the number of the card of each bin. members: the numbers of the demands of each kind.
    """

    bins: tuple[packing.Bin, ...]
    kinds: tuple[packing.Kind, ...]
    order: tuple[int, ...]
    members: tuple[tuple[int, ...], ...]
    demands: tuple[_Demand, ...]

    @staticmethod
    def of(states: Sequence[CardState], demands: Sequence[_Demand]) -> "_Packed":
        """For demands that are not searched for."""
        resources = sorted({resource for demand in demands for resource, _ in demand.wish.per_card})
        has_numa = any(state.card.numa is not None for state in states)
        serves: dict[int, tuple[bool, ...]] = {}
        kinds: dict[tuple[packing.Amounts, int, tuple[bool, ...]], list[int]] = {}
        for number, demand in enumerate(demands):
            pod, wish = demand.pod_class, demand.wish
            if id(pod) not in serves:  # pods of one class are one object, and its hash is not for free
                strict = pod.single_numa and has_numa
                serves[id(pod)] = tuple(
                    _usable(s.card, pod) and not (strict and s.card.numa is None) for s in states
                )
            amounts = dict(wish.per_card)
            need = (*(amounts.get(resource, 0) for resource in resources), wish.tiles)
            kinds.setdefault((need, wish.count, serves[id(pod)]), []).append(number)
        free = [_free(state, resources) for state in states]
        largest = [max((amounts[r] for amounts in free), default=0) for r in range(len(resources) + 1)]
        order = sorted(kinds, key=lambda kind: (_size(kind[0], largest), kind), reverse=True)
        bins = [packing.Bin(amounts, tuple(kind[2][n] for kind in order)) for n, amounts in enumerate(free)]
        cards = sorted(range(len(bins)), key=lambda n: (bins[n].serves, bins[n].free))
        return _Packed(
            tuple(bins[n] for n in cards),
            tuple(packing.Kind(need, count, len(kinds[need, count, mask])) for need, count, mask in order),
            tuple(cards),
            tuple(tuple(kinds[kind]) for kind in order),
            tuple(demands),
        )

    def answer(self) -> packing.Answer:
        """Whether the demands fit."""
        return packing.pack(self.bins, self.kinds)

    def choices(self, states: Sequence[CardState]) -> list[_Choice] | None:
        """The cards of each demand, in their order."""
        answer = self.answer()
        if answer.takes is None:
            return None
        cards: list[list[int]] = [[] for _ in self.demands]
        for kind, members in enumerate(self.members):
            # One after the other: no card comes more often than there are demands, so none gets one twice.
            served = [
                n for n, taken in zip(self.order, answer.takes, strict=True) for _ in range(taken[kind])
            ]
            for position, number in enumerate(served):
                cards[members[position % len(members)]].append(number)
        tiles = [state.tiles for state in states]
        found: list[_Choice] = []
        for demand, numbers in zip(self.demands, cards, strict=True):
            given = [(n, tile_run(tiles[n], demand.wish.tiles)) for n in sorted(numbers)]
            for n, taken in given:
                tiles[n] = _without(tiles[n], taken)
            found.append(tuple(given))
        return found


def _free(state: CardState, resources: Sequence[str]) -> packing.Amounts:
    free = dict(state.free)
    return (*(free.get(resource, 0) for resource in resources), len(state.tiles))


def _size(need: packing.Amounts, largest: Sequence[int]) -> int:
    """The largest share of a card, in millionths."""
    return max(amount * 1_000_000 // max(1, most) for amount, most in zip(need, largest, strict=True))


_Key = tuple[int, int, tuple[_Choice, ...]]


class _Enough(Exception):
    """The steps are used up."""


class _Search:
    """One search over the demands of a node."""

    def __init__(self, states: list[CardState], demands: list[_Demand], polish: int, most_steps: int) -> None:
        """most_steps: while no feasible choice is known."""
        self.states = states
        self.demands = demands
        self.polish = polish
        self.most_steps = most_steps
        self.whole = [state.whole for state in states]
        self.named = demands_name_cards(demands)
        self.numbers: dict[object, int] = {}
        self.dead: set[tuple[int, object]] = set()
        self.best: tuple[_Key, list[_Choice]] | None = None
        self.steps = 0
        self.tried = 0
        self.cut = False
        self.chosen: list[_Choice] = []

    def run(self) -> list[_Choice] | None:
        """The best choice for each demand; `cut` tells whether the steps ended before one was found."""
        try:
            if len(self.demands) > _DEEPEST:
                raise _Enough
            self._descend(0, self.states)
        except _Enough:
            self.cut = self.best is None
        return self.best[1] if self.best is not None else None

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
            self._check_steps()
        if not found:
            self.dead.add(state_key)
        return found

    def _try(self) -> None:
        self.tried += 1
        self._check_steps()

    def _check_steps(self) -> None:
        if self.best is None:
            is_over = self.tried > self.most_steps
        else:
            is_over = self.steps > self.polish or self.tried > _MOST_TRIED
        if is_over:
            raise _Enough

    def _canonical(self, states: list[CardState]) -> object:
        if self.named:
            return tuple((state.free, state.tiles) for state in states)
        return tuple(sorted([self._alike(state) for state in states]))

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
                self._try()
                signature = tuple(sorted([n if self.named else self._alike(states[n]) for n in choice]))
                if signature in seen:
                    continue
                seen.add(signature)
                yield from self._with_tiles(demand, states, sorted(choice), after)

    def _with_tiles(
        self, demand: _Demand, states: list[CardState], cards: Sequence[int], after: Mapping[int, CardState]
    ) -> Iterator[tuple[_Choice, list[CardState]]]:
        """The ways to take tiles of these cards: one, as tiles are alike, unless links tell them apart."""
        tiles = demand.wish.tiles
        ways: Iterable[Mapping[int, tuple[int, ...]]]
        if demand.pod_class.linked:
            ways = linkings(states, cards, tiles, self._try)
            # Without tiles any way to pair the cards is as good as another.
            ways = ways if tiles else islice(ways, 1)
        else:
            ways = [{n: tile_run(states[n].tiles, tiles) for n in cards}]
        for way in ways:
            result = list(states)
            for n in cards:
                result[n] = CardState(states[n].card, after[n].free, _without(states[n].tiles, way[n]))
            yield tuple((n, way[n]) for n in cards), result

    def _alike(self, state: CardState) -> int:
        """A number that cards share which are interchangeable, where they have no names."""
        card = state.card
        key = (card.numa, card.disabled, state.free, tuple(card.capacity.items()), state.tiles)
        return self.numbers.setdefault(key, len(self.numbers))

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

    def slots(self, choices: list[_Choice], pods: Sequence[PodClass]) -> list[Slots]:
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
    states: Sequence[CardState], cards: Sequence[int], tiles: int, step: Callable[[], None]
) -> Iterator[dict[int, tuple[int, ...]]]:
    """The ways to part the cards into directly linked pairs, with `tiles` tiles of each card.

    A link counts when both its tiles are free; where tiles are asked for, they are among those taken.
    """
    step()
    if not cards:
        yield {}
        return
    first = cards[0]
    by_name = {states[n].card.name: n for n in cards[1:]}
    for own, name, theirs in _links(states, first):
        other = by_name.get(name)
        if other is None or own not in states[first].tiles or theirs not in states[other].tiles:
            continue
        for rest in linkings(states, [n for n in cards[1:] if n != other], tiles, step):
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
