"""The best choice of cards: a search over the demands on a node and over sets of cards.

The demands with the fewest choices come first; cards in the same state are interchangeable, and a state that
failed once is not searched again. Among the feasible choices the search prefers to open the fewest whole
cards, then the least room left on the cards used, then the lowest numbers; that preference is exact up to
`POLISH` steps and then the best found.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import combinations, islice
from typing import Final

from webhook.placement.budget import Budget, OutOfSteps
from webhook.placement.cards.state import CardState, Choice, Demand, tile_run, usable, without
from webhook.placement.model import CardShare, CardWish, PodClass, Slots
from webhook.placement.names import natural

POLISH: Final = 3000
"""Descents spent on the best choice once a feasible one is known."""

STEPS: Final = 5000
"""Steps of the search for a feasible choice where packing cannot tell; a step is a set of cards, or a pair of
linked ones, that is tried."""

_MOST_TRIED: Final = 20_000
"""The same once a feasible choice is known."""

_LOOK: Final = 9
"""Steps of a budget that a look at one card stands for."""

_TRY: Final = 18
"""Steps of a budget that a set of cards that is tried stands for."""

DESCENT: Final = 20
"""Steps of a budget that a descent takes for each card of the node, about."""

_DEEPEST: Final = 300
"""Demands up to which the search goes, which descends once for each."""


def first_the_hard_ones(demand: Demand) -> tuple[object, ...]:
    """Linked wishes first, since they need particular tiles; then many cards, then large shares."""
    wish = demand.wish
    amounts = [-amount for _, amount in wish.per_card]
    return not demand.pod_class.linked, -wish.count, amounts, demand.pod, demand.containers


_Key = tuple[int, int, tuple[Choice, ...]]


class CardSearch:
    """One search over the demands of a node."""

    def __init__(self, states: list[CardState], demands: list[Demand], polish: int, most_steps: int) -> None:
        """most_steps: while no feasible choice is known."""
        self.states = states
        self.demands = demands
        self.steps = 0
        """Of a budget, what the search takes."""
        self.tries = Budget(most_steps)
        self.descents = Budget(polish)
        self.whole = [state.whole for state in states]
        self.named = demands_name_cards(demands)
        self.numbers: dict[object, int] = {}
        self.dead: set[tuple[int, object]] = set()
        self.best: tuple[_Key, list[Choice]] | None = None
        self.cut = False
        self.chosen: list[Choice] = []

    def run(self) -> list[Choice] | None:
        """The best choice for each demand; `cut` tells whether the steps ended before one was found."""
        try:
            if len(self.demands) > _DEEPEST:
                raise OutOfSteps
            self._descend(0, self.states)
        except OutOfSteps:
            self.cut = self.best is None
        return self.best[1] if self.best is not None else None

    def _descend(self, depth: int, states: list[CardState]) -> bool:
        """True when a feasible end was found below."""
        if self.best is not None:
            self.descents.spend()
        if depth == len(self.demands):
            key = self._key(states)
            if self.best is None:
                self.tries = Budget(_MOST_TRIED)
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
        if not found:
            self.dead.add(state_key)
        return found

    def _try(self) -> None:
        self.steps += _TRY
        self.tries.spend()

    def _canonical(self, states: list[CardState]) -> object:
        if self.named:
            return tuple((state.free, state.tiles) for state in states)
        return tuple(sorted([self._alike(state) for state in states]))

    def _choices(self, demand: Demand, states: list[CardState]) -> Iterator[tuple[Choice, list[CardState]]]:
        wish = demand.wish
        after: dict[int, CardState] = {}
        self.steps += _LOOK * len(states)
        for number, state in enumerate(states):
            if usable(state.card, demand.pod_class):
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
        self, demand: Demand, states: list[CardState], cards: Sequence[int], after: Mapping[int, CardState]
    ) -> Iterator[tuple[Choice, list[CardState]]]:
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
                result[n] = CardState(states[n].card, after[n].free, without(states[n].tiles, way[n]))
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

    def _groups(self, demand: Demand, states: list[CardState], order: list[int]) -> Iterator[list[int]]:
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

    def slots(self, choices: list[Choice], pods: Sequence[PodClass]) -> list[Slots]:
        """Cards and tiles by pod and container."""
        slots: list[list[tuple[CardShare, ...]]] = [[() for _ in pod.cards] for pod in pods]
        for demand, choice in zip(self.demands, choices, strict=True):
            shares = tuple(CardShare(self.states[n].card.name, tiles) for n, tiles in choice)
            for container in demand.containers:
                slots[demand.pod][container] = shares
        return [tuple(pod) for pod in slots]


def demands_name_cards(demands: Sequence[Demand]) -> bool:
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
