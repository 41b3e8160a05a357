"""Choose the cards of a node for containers: the functions that placement calls.

A container asks for `count` distinct cards and the same amounts of each. Containers may share a card. Packing
decides whether demands fit. If links, or the NUMA nodes of several cards, distinguish cards, a search
decides. A search also finds the best of the feasible choices.

Both end after a fixed number of steps, and an answer says whether it is decided (exact). Undecided demands
count as not fitting. So results that use them are feasible, but not proven.
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Final, NamedTuple

from webhook.placement.budget import Budget
from webhook.placement.cards import packing
from webhook.placement.cards.first_cards import most_by_first_cards
from webhook.placement.cards.links import are_too_many
from webhook.placement.cards.search import POLISH, STEPS, CardSearch, first_the_hard_ones
from webhook.placement.cards.state import (
    CardState,
    Choice,
    Demand,
    demands_of,
    is_searched,
    may_serve,
    tile_run,
    times,
    usable,
    without,
)
from webhook.placement.eligibility import Rules
from webhook.placement.model import CardRequest, PodClass, Slots
from webhook.placement.names import natural

TRY: Final = 22
"""Budget steps per attempt of the search, including the checks of cards before it."""


OVERDRAWN: Final = 250_000
"""Where nodes differ, they still get the first cards that serve up to so many steps beyond the budget."""


class Chosen(NamedTuple):
    """Cards for each pod, or None. exact: whether None proves that there are none."""

    slots: list[Slots] | None
    exact: bool


class FreeSlots(NamedTuple):
    """The number of pods that fit. exact: whether it is proven that no more fit."""

    pods: int
    exact: bool


def choose(
    states: Sequence[CardState],
    pods: Sequence[PodClass],
    polish: int = POLISH,
    budget: Budget | None = None,
    attempts: int = STEPS,
) -> Chosen:
    """Cards for all these pods together on one node, in the order of the pods.

    polish: descents for the best choice, after a feasible one is found. attempts: the most attempts to find a
    feasible one. Once the budget is exhausted, nothing is decided.
    """
    if not states:
        return Chosen([()] * len(pods) if _take_any(pods) else None, True)
    if budget is not None and budget.exhausted:
        return Chosen(None, False)
    plain = tuple(replace(pod, requests=(), rules=_NO_RULES) for pod in pods)
    chosen, exact, steps = _choose(_Hand.of(states), plain, polish, attempts)
    if budget is not None:
        budget.take(steps)
    return Chosen(None if chosen is None else list(chosen), exact)


def _take_any(pods: Iterable[PodClass]) -> bool:
    """Whether a node whose cards are not known serves all of these: it counts whole devices."""
    return all(pod.takes_any_cards for pod in pods if pod.wants_cards)


_NO_RULES: Final = Rules()


@dataclass(frozen=True, slots=True)
class _Hand:
    """A node's cards in the order of their numbers; it is equal for all nodes with the same cards."""

    signatures: tuple[object, ...]
    states: tuple[CardState, ...] = field(compare=False)

    @staticmethod
    def of(states: Sequence[CardState]) -> "_Hand":
        ordered = sorted(states, key=lambda s: natural(s.card.name))
        return _Hand(tuple(map(signature, ordered)), tuple(ordered))


def signature(state: CardState) -> object:
    """A key of a card: cards with equal keys serve the same pods."""
    card = state.card
    tiles = (state.tiles, card.tiles)
    return card.name, tuple(card.capacity.items()), card.numa, card.disabled, card.links, state.free, tiles


@lru_cache(maxsize=4096)
def _choose(
    hand: _Hand, pods: tuple[PodClass, ...], polish: int, most_steps: int = STEPS
) -> tuple[tuple[Slots, ...] | None, bool, int]:
    """The cards, whether None is exact, and the steps taken."""
    demands = sorted(_demands(pods), key=first_the_hard_ones)
    searched = any(is_searched(pod) for pod in pods)
    packed = _Packed.of(hand.states, demands)
    answer = packed.answer()  # for a searched question an upper bound
    if answer.takes is None and (answer.exact or not searched):
        return None, answer.exact, packing.EACH * answer.steps
    search = CardSearch(list(hand.states), demands, polish, most_steps if searched else polish)
    best = search.run()
    steps = packing.EACH * answer.steps + search.steps
    if best is None and not searched:
        best = packed.choices(hand.states)
    if best is None:
        return None, not search.cut, steps
    return tuple(search.slots(best, pods)), True, steps


def _demands(pods: Sequence[PodClass]) -> list[Demand]:
    return [demand for number, pod in enumerate(pods) for demand in demands_of(number, pod)]


def fits(
    states: Sequence[CardState],
    pods: Sequence[PodClass],
    budget: Budget | None = None,
    looks: int = packing.STEPS,
) -> bool | None:
    """Whether the node has cards for all these pods together; None if undecided.

    looks: the most looks of packing (see packing.STEPS), or attempts of the search.
    """
    if not states:
        return _take_any(pods)
    if budget is not None and budget.exhausted:
        return None
    if any(is_searched(pod) for pod in pods):
        slots, exact = choose(states, pods, 0, budget, min(looks, STEPS))
        found = slots is not None
    else:
        demands = _demands(pods)
        answer = _Packed.of(states, demands).answer(looks)
        found, exact = answer.takes is not None, answer.exact
        if budget is not None:
            budget.take(packing.EACH * answer.steps + len(demands))
    return found if found or exact else None


def count_slots(
    states: Sequence[CardState],
    pod: PodClass,
    most: int,
    budget: Budget | None = None,
    longest: int = packing.LONGEST,
) -> FreeSlots:
    """The number of such pods, at most `most`, for which the node has cards.

    longest: steps after which no more pods are tried, so that one node does not take all steps.
    """
    if not (states and is_hard(pod)):
        return FreeSlots(_slots_of_one(states, pod, most), True)
    count, is_ample = 0, longest >= packing.LONGEST
    if not is_ample and (budget is None or budget.left > -OVERDRAWN):
        count = most_by_first_cards(states, pod, most)
        _take(budget, 2 * len(states) * (count + 1))
    if count == most or (budget is not None and budget.exhausted):
        return FreeSlots(count, count == most)
    found, exact, steps = _free_slots(states, pod, most, longest)
    _take(budget, steps)
    return FreeSlots(max(found, count), exact)


def _take(budget: Budget | None, steps: int) -> None:
    if budget is not None:
        budget.take(steps)


def _free_slots(states: Sequence[CardState], pod: PodClass, most: int, longest: int) -> tuple[int, bool, int]:
    """See packing.most."""
    if is_searched(pod):
        return _searched_slots(_Hand.of(states), replace(pod, requests=(), rules=_NO_RULES), most, longest)
    packed = _Packed.of(states, list(demands_of(0, pod)))
    return packing.most(packed.bins, packed.classes, most, longest)


@lru_cache(maxsize=4096)
def _searched_slots(hand: _Hand, pod: PodClass, most: int, longest: int) -> tuple[int, bool, int]:
    """See packing.most. Rules find a lower bound fast, and bounds an upper one; a search decides between."""
    is_ample = longest >= packing.LONGEST
    if is_ample:
        limit, steps = _searched_limit(hand, pod, most, longest)
        count, more = _by_rules(hand, pod, limit)
    else:
        count, steps = _by_rules(hand, pod, most, longest)
        limit, more = _searched_limit(hand, pod, most, longest - steps)
    steps += more
    while count < limit:
        most_steps = STEPS if is_ample else min(STEPS, (longest - steps) // TRY)
        if steps > longest or most_steps <= 0:
            return count, False, steps
        chosen, exact, more = _choose(hand, (pod,) * (count + 1), 0, most_steps)
        steps += more
        if chosen is None:
            return count, exact, steps
        count += 1
    return count, True, steps


def _by_rules(hand: _Hand, pod: PodClass, limit: int, longest: int | None = None) -> tuple[int, int]:
    """The number of such pods, at most `limit`, for which rules find cards, and the steps taken.

    It uses binary search; with `longest` it counts up from one pod while steps are left.
    """
    count, too_many, steps = 0, limit + 1, 0
    tried = limit if longest is None else 1
    while count + 1 < too_many and (longest is None or steps <= longest):
        chosen, _, more = _choose(hand, (pod,) * tried, 0, most_steps=0)
        steps += more
        count, too_many = (count, tried) if chosen is None else (tried, too_many)
        tried = (count + too_many) // 2
        if longest is not None:
            tried = min(2 * count or 1, tried)
    return count, steps


def _searched_limit(hand: _Hand, pod: PodClass, most: int, longest: int) -> tuple[int, int]:
    """An upper bound of such pods on the node, and the steps taken."""
    if longest <= 0:
        return most, 0
    demands = list(demands_of(0, pod))
    packed = _Packed.of(hand.states, demands)
    limit, exact, steps = packing.most(packed.bins, packed.classes, most, longest)
    limit = limit if exact else most
    limit -= bisect_left(
        range(limit), True, key=lambda n: not are_too_many(hand.states, demands * (limit - n))
    )
    return limit, steps


def is_hard(pod: PodClass) -> bool:
    """Whether no closed form gives the number of such pods that fit, so that it may stay undecided."""
    together = pod.same_card or pod.single_numa or pod.linked
    return bool(pod.wants_cards and (together or sum(request.count > 0 for request in pod.cards) > 1))


def _slots_of_one(states: Sequence[CardState], pod: PodClass, most: int) -> int:
    """Closed form for one request, and for cards that are not known.

    p pods with N distinct cards fit if sum of min(slots of a card, p) >= N p. Source: Gale-Ryser; the
    condition is monotone in p.
    """
    if not states:
        return most if _take_any([pod]) else 0
    request = next((request for request in pod.cards if request.count), CardRequest())
    slot_counts = [times(state, request) for state in states if usable(state.card, pod)]
    while most > 0 and sum(min(r, most) for r in slot_counts) < request.count * most:
        most = min(most - 1, sum(min(r, most) for r in slot_counts) // request.count)
    return most


@dataclass(frozen=True, slots=True)
class _Packed:
    """Demands and cards as input of packing; it is the same for nodes with equal cards.

    order: the card number of each bin. members: the numbers of the demands in each class.
    """

    bins: tuple[packing.Bin, ...]
    classes: tuple[packing.DemandClass, ...]
    order: tuple[int, ...]
    members: tuple[tuple[int, ...], ...]
    demands: tuple[Demand, ...]

    @staticmethod
    def of(states: Sequence[CardState], demands: Sequence[Demand]) -> "_Packed":
        """The packing input for demands that need no search."""
        resources = sorted({resource for demand in demands for resource, _ in demand.request.per_card})
        classes = _classes_of(states, demands, resources)
        free = [_free(state, resources) for state in states]
        largest = [max((amounts[r] for amounts in free), default=0) for r in range(len(resources) + 1)]
        order = sorted(classes, key=lambda kind: (_size(kind[0], largest), kind), reverse=True)
        bins = [packing.Bin(amounts, tuple(kind[2][n] for kind in order)) for n, amounts in enumerate(free)]
        cards = sorted(range(len(bins)), key=lambda n: (bins[n].serves, bins[n].free))
        return _Packed(
            tuple(map(bins.__getitem__, cards)),
            tuple(packing.DemandClass(kind[0], kind[1], len(classes[kind])) for kind in order),
            tuple(cards),
            tuple(tuple(classes[kind]) for kind in order),
            tuple(demands),
        )

    def answer(self, looks: int = packing.STEPS) -> packing.Answer:
        """Whether the demands fit."""
        return packing.pack(self.bins, self.classes, looks)

    def choices(self, states: Sequence[CardState]) -> list[Choice] | None:
        """The cards of each demand, in the order of demands."""
        takes = self.answer().takes
        if takes is None:
            return None
        tiles = [state.tiles for state in states]
        found: list[Choice] = []
        for demand, numbers in zip(self.demands, self._cards(takes), strict=True):
            given = [(n, tile_run(tiles[n], demand.request.tiles)) for n in sorted(numbers)]
            for n, taken in given:
                tiles[n] = without(tiles[n], taken)
            found.append(tuple(given))
        return found

    def _cards(self, takes: Sequence[Sequence[int]]) -> list[list[int]]:
        """The card numbers of each demand. takes: for each bin the number of demands served by class."""
        cards: list[list[int]] = [[] for _ in self.demands]
        for kind, members in enumerate(self.members):
            # In turn: no card occurs more often than there are demands, so no demand gets a card twice.
            served = [n for n, taken in zip(self.order, takes, strict=True) for _ in range(taken[kind])]
            for position, number in enumerate(served):
                cards[members[position % len(members)]].append(number)
        return cards


_Kind = tuple[packing.Amounts, int, tuple[bool, ...]]
"""The amounts of a demand per card, its number of cards, and for each card whether it may serve."""


def _classes_of(
    states: Sequence[CardState], demands: Sequence[Demand], resources: Sequence[str]
) -> dict[_Kind, list[int]]:
    """The numbers of the demands in each class."""
    has_numa = any(state.card.numa is not None for state in states)
    serves: dict[int, tuple[bool, ...]] = {}
    classes: dict[_Kind, list[int]] = {}
    for number, demand in enumerate(demands):
        pod, request = demand.pod_class, demand.request
        if id(pod) not in serves:  # by identity, since hashing a class is slow
            serves[id(pod)] = tuple(may_serve(state.card, pod, has_numa) for state in states)
        amounts = dict(request.per_card)
        need = (*(amounts.get(resource, 0) for resource in resources), request.tiles)
        classes.setdefault((need, request.count, serves[id(pod)]), []).append(number)
    return classes


def _free(state: CardState, resources: Sequence[str]) -> packing.Amounts:
    free = dict(state.free)
    return (*(free.get(resource, 0) for resource in resources), len(state.tiles))


def _size(need: packing.Amounts, largest: Sequence[int]) -> int:
    """The largest share of a card, in millionths."""
    return max(amount * 1_000_000 // max(1, most) for amount, most in zip(need, largest, strict=True))
