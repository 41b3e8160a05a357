"""The best choice of cards: a search over the demands on a node and over sets of cards.

Demands with the fewest choices come first. Cards in the same state are interchangeable, and a state that
failed is not searched again. Among the feasible choices, the search prefers the fewest newly used cards, then
the least free amounts on the cards used, then the lowest numbers. This is exact within `POLISH` descents;
after that the result is the best found.
"""

from collections.abc import Iterator, Mapping, Sequence
from enum import Enum, auto
from itertools import combinations
from typing import Final

from webhook.placement.budget import Budget, OutOfSteps
from webhook.placement.cards.links import are_too_many, links_of, pairings, partners_of, tilings
from webhook.placement.cards.state import (
    CardState,
    Choice,
    Demand,
    is_searched,
    tile_run,
    times,
    usable,
    without,
)
from webhook.placement.model import CardRequest, CardShare, PodClass, Slots

POLISH: Final = 3000
"""The most descents for the best choice, once a feasible one is known."""

STEPS: Final = 5000
"""Attempts of the search for a feasible choice where packing cannot decide. An attempt is a set of cards, or
a pair of linked cards."""

_MOST_TRIED: Final = 20_000
"""The same once a feasible choice is known."""

_FIRST_STEPS: Final = 3
"""Attempts of a rule per requested card."""

_LOOK: Final = 4
"""Budget steps per check of a card."""

_TRY: Final = 8
"""Budget steps per attempted set of cards."""

DESCENT: Final = 7
"""Budget steps of a descent per card of the node, about."""

_DEEPEST: Final = 300
"""The most demands of a search, which recurses once for each."""


def first_the_hard_ones(demand: Demand) -> tuple[object, ...]:
    """Sort key: requests for linked cards first, which need particular tiles; then many cards, then large
    amounts.
    """
    request = demand.request
    amounts = [-amount for _, amount in request.per_card]
    return not demand.pod_class.linked, -request.count, amounts, demand.pod, demand.containers


_Key = tuple[int, int, tuple[Choice, ...]]


class Rule(Enum):
    """The order of cards in a choice. Lonely cards have the fewest partners left.

    With few links, one of these rules finds a solution if there is one: cards that may serve many pods are
    best used evenly, and cards that serve one pod where they would be left over.
    """

    USED_AND_LONELY_FIRST = auto()
    BY_NUMBER = auto()
    FREE_FIRST = auto()
    FREE_AND_LONELY_FIRST = auto()


class CardSearch:
    """The search over the demands of a node."""

    def __init__(self, states: list[CardState], demands: list[Demand], polish: int, most_steps: int) -> None:
        """most_steps: the limit while no feasible choice is known."""
        self.states = states
        self.demands = demands
        self.steps = 0
        """The budget steps that the search takes."""
        self.most_steps = most_steps
        self.budget = Budget(most_steps)
        self.descents = Budget(polish)
        self.is_unused = [state.is_unused for state in states]
        self.named = demands_name_cards(demands)
        self.links = links_of(states)
        self.numbers: dict[object, int] = {}
        self.dead: set[tuple[int, object]] = set()
        self.best: tuple[_Key, list[Choice]] | None = None
        self.cut = False
        self.chosen: list[Choice] = []

    def run(self) -> list[Choice] | None:
        """The best choice for each demand. `cut` is true if the steps ended before one was found."""
        searched = any(is_searched(demand.pod_class) for demand in self.demands)
        if searched and are_too_many(self.states, self.demands):
            return None
        if searched:
            self._fit_by_rules()
        try:
            if len(self.demands) > _DEEPEST:
                raise OutOfSteps
            self.budget = Budget(self.most_steps if self.best is None else _MOST_TRIED)
            self._descend(0, self.states)
        except OutOfSteps:
            self.cut = self.best is None
        return self.best[1] if self.best is not None else None

    def _fit_by_rules(self) -> bool:
        """Find a feasible choice by rules, which give each demand its first choice.

        With few links, a simple rule may find at once what a search finds late.
        """
        numbers = range(len(self.demands))
        as_asked = sorted(numbers, key=lambda n: (self.demands[n].pod, self.demands[n].containers))
        return any(self._fit_by(rule, order) for order in (numbers, as_asked) for rule in Rule)

    def _fit_by(self, rule: Rule, order: Sequence[int]) -> bool:
        states = self.states
        chosen: dict[int, Choice] = {}
        self.budget = Budget(_FIRST_STEPS * sum(demand.request.count for demand in self.demands))
        for number in order:
            try:
                found = next(self._choices(self.demands[number], states, rule), None)
            except OutOfSteps:
                found = None
            if found is None:
                return False
            chosen[number], states = found
        self.chosen = [chosen[number] for number in range(len(order))]
        self.best = (self._key(states), self.chosen)
        self.chosen = []
        return True

    def _descend(self, depth: int, states: list[CardState]) -> bool:
        """Whether a feasible choice was found below."""
        if self.best is not None:
            self.descents.spend()
        if depth == len(self.demands):
            key = self._key(states)
            if self.best is None:
                self.budget = Budget(_MOST_TRIED)
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
        self.budget.spend()

    def _canonical(self, states: list[CardState]) -> object:
        if self.named:
            return tuple((state.free, state.tiles) for state in states)
        return tuple(sorted([self._card_key(state) for state in states]))

    def _choices(
        self, demand: Demand, states: list[CardState], rule: Rule = Rule.USED_AND_LONELY_FIRST
    ) -> Iterator[tuple[Choice, list[CardState]]]:
        request = demand.request
        after: dict[int, CardState] = {}
        self.steps += _LOOK * len(states)
        for number, state in enumerate(states):
            if usable(state.card, demand.pod_class):
                left = state.take(request.per_card, request.tiles)
                if left is not None:
                    after[number] = left
        order = sorted(after, key=lambda n: (*self._rank(n, demand, states, after, rule), n))
        for group in self._groups(demand, states, order):
            if demand.pod_class.linked:
                yield from self._linked(demand, states, group, after, rule)
            else:
                yield from self._unlinked(demand, states, group, after)

    def _rank(
        self, n: int, demand: Demand, states: list[CardState], after: Mapping[int, CardState], rule: Rule
    ) -> tuple[int, ...]:
        """The sort key by which cards are tried."""
        if rule is Rule.BY_NUMBER:
            return ()
        if rule in (Rule.FREE_FIRST, Rule.FREE_AND_LONELY_FIRST):
            return (-times(after[n], demand.request),)
        return (self.is_unused[n] and states[n].is_unused, self._left(after[n], demand.request))

    def _unlinked(
        self, demand: Demand, states: list[CardState], group: list[int], after: Mapping[int, CardState]
    ) -> Iterator[tuple[Choice, list[CardState]]]:
        tiles = demand.request.tiles
        seen: set[object] = set()
        for cards in combinations(group, demand.request.count):
            self._try()
            signature = tuple(sorted([n if self.named else self._card_key(states[n]) for n in cards]))
            if signature not in seen:
                seen.add(signature)
                yield _taken(states, {n: tile_run(states[n].tiles, tiles) for n in cards}, after)

    def _linked(
        self,
        demand: Demand,
        states: list[CardState],
        group: list[int],
        after: Mapping[int, CardState],
        rule: Rule,
    ) -> Iterator[tuple[Choice, list[CardState]]]:
        """Choices of linked cards. Without tiles, all pairings of the same cards are equal. Odd numbers have
        none.
        """
        if demand.request.count % 2:
            return
        partners = partners_of(self.links, states)
        lonely_first = rule in (Rule.USED_AND_LONELY_FIRST, Rule.FREE_AND_LONELY_FIRST)
        tiles = demand.request.tiles
        seen: set[frozenset[int]] = set()
        for pairs in pairings(group, partners, demand.request.count // 2, lonely_first, self._try):
            if tiles:
                for tiles_of in tilings(states, self.links, pairs, tiles, self._try):
                    yield _taken(states, tiles_of, after)
                continue
            cards = frozenset(n for pair in pairs for n in pair)
            if cards not in seen:
                seen.add(cards)
                yield _taken(states, dict.fromkeys(cards, ()), after)

    def _card_key(self, state: CardState) -> int:
        """A key that is equal for interchangeable cards, if no request names cards."""
        card = state.card
        key = (card.numa, card.disabled, state.free, tuple(card.capacity.items()), state.tiles)
        return self.numbers.setdefault(key, len(self.numbers))

    def _left(self, state: CardState, request: CardRequest) -> int:
        free = dict(state.free)
        return sum(
            free[r] * 1_000_000 // state.card.capacity[r]
            for r, _ in request.per_card
            if state.card.capacity.get(r)
        )

    def _groups(self, demand: Demand, states: list[CardState], order: list[int]) -> Iterator[list[int]]:
        """The sets of cards for a choice: all cards, or the cards of each NUMA node."""
        if not demand.pod_class.single_numa or all(state.card.numa is None for state in states):
            yield order
            return
        for numa in sorted({states[n].card.numa for n in order if states[n].card.numa is not None}, key=str):
            yield [n for n in order if states[n].card.numa == numa]

    def _key(self, states: list[CardState]) -> _Key:
        touched = {n for choice in self.chosen for n, _ in choice}
        opened = sum(self.is_unused[n] for n in touched)
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


def _taken(
    states: Sequence[CardState], tiles: Mapping[int, tuple[int, ...]], after: Mapping[int, CardState]
) -> tuple[Choice, list[CardState]]:
    """A choice of these cards with their tiles, and the states of all cards after it."""
    result = list(states)
    for n, taken in tiles.items():
        result[n] = CardState(states[n].card, after[n].free, without(states[n].tiles, taken))
    return tuple((n, tiles[n]) for n in sorted(tiles)), result


def demands_name_cards(demands: Sequence[Demand]) -> bool:
    """Whether a request distinguishes cards by name or link, so that no two are interchangeable."""
    return any(
        d.pod_class.allowed_cards is not None or d.pod_class.denied_cards or d.pod_class.linked
        for d in demands
    )
