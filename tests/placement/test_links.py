"""Pairs of linked cards: whether demands for them fit is decided wherever a simple rule finds a place.

Against trying everything on few cards, and against the first fit on as many as a node has.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations

import pytest

from labeler.contract import keys
from webhook.placement import Card, CardRequest, PodClass
from webhook.placement.cards.choose import choose, count_slots, fits
from webhook.placement.cards.links import Link, are_too_many, links_of, most_pairs, partners_of
from webhook.placement.cards.state import CardState, Demand, card_state, demands_of

PLUGIN = keys.I915
MOST = 4


def node(dice: random.Random, cards: int, density: float, capacity: int, tiles: int) -> list[CardState]:
    """Cards of which some are linked, over any of their tiles, and some are partly used."""
    links: dict[int, list[tuple[int, str, int]]] = {n: [] for n in range(cards)}
    for one, other in combinations(range(cards), 2):
        if dice.random() < density:
            links[one].append((dice.randrange(tiles), f"card{other}", dice.randrange(tiles)))
    return [
        card_state(
            Card(f"card{n}", {PLUGIN: capacity}, tiles, links=tuple(links[n])),
            {PLUGIN: dice.choice((0, 0, 1))} if capacity > 1 else {},
            frozenset({0} if dice.random() < 0.1 else ()),
        )
        for n in range(cards)
    ]


def pods_of(*counts: int, tiles: int = 0) -> list[PodClass]:
    """A pod of one container for each count of cards."""
    return [PodClass((), cards=(CardRequest(count, ((PLUGIN, 1),), tiles),), linked=True) for count in counts]


@pytest.mark.parametrize(("used", "partners"), [((), [2, 1]), ((0,), [0, 0]), ((1,), [2, 1])])
def test_a_link_counts_only_while_both_of_its_tiles_are_free(
    used: tuple[int, ...], partners: list[int]
) -> None:
    """It joins tile 1 of the first card with tile 0 of the second."""
    first = card_state(Card("card0", {PLUGIN: 2}, 2, links=((1, "card1", 0),)), {}, frozenset())
    second = card_state(Card("card1", {PLUGIN: 2}, 2), {}, frozenset(used))
    states = [first, second]
    assert partners_of(links_of(states), states) == partners


# --- trying everything -------------------------------------------------------------------------------


def feasible(states: Sequence[CardState], counts: Sequence[int], tiles: int) -> bool:  # noqa: C901
    """By every way to give every demand its pairs, over every link."""
    links = links_of(states)
    free_cards = [dict(state.free)[PLUGIN] for state in states]
    free = [set(state.tiles) for state in states]

    def ways(cards: frozenset[int], pairs: int) -> Iterator[list[tuple[int, Link]]]:
        if not pairs:
            yield []
            return
        for first in cards:
            for link in links[first]:
                if link[1] > first and link[1] in cards:
                    for rest in ways(frozenset(n for n in cards if n > first) - {link[1]}, pairs - 1):
                        yield [(first, link), *rest]

    def descend(depth: int) -> bool:
        if depth == len(counts):
            return True
        able = frozenset(n for n, left in enumerate(free_cards) if left and len(free[n]) >= tiles)
        for pairing in ways(able, counts[depth] // 2):
            used = [(first, own) for first, (own, _, _) in pairing] + [(o, its) for _, (_, o, its) in pairing]
            if any(tile not in free[n] for n, tile in used):
                continue
            for n, tile in used:
                free_cards[n] -= 1
                free[n] -= {tile} if tiles else set()
            found = descend(depth + 1)
            for n, tile in used:
                free_cards[n] += 1
                free[n] |= {tile}
            if found:
                return True
        return False

    return descend(0)


@pytest.mark.parametrize("seed", range(15))
def test_on_few_cards_what_fits_is_what_trying_everything_finds(seed: int) -> None:
    dice = random.Random(seed)
    for _ in range(20):
        tiles = dice.choice((0, 0, 1))
        states = node(dice, dice.randint(2, 6), dice.choice((0.2, 0.4, 0.7)), dice.choice((1, 2, 3)), 2)
        counts = [dice.choice((2, 2, 4)) for _ in range(dice.randint(1, 3))]
        expected = feasible(states, counts, tiles)
        assert fits(states, pods_of(*counts, tiles=tiles)) is expected
        assert not (expected and are_too_many(states, list(demands(counts, tiles))))


def demands(counts: Sequence[int], tiles: int) -> Iterator[Demand]:
    for number, pod in enumerate(pods_of(*counts, tiles=tiles)):
        yield from demands_of(number, pod)


@pytest.mark.parametrize("seed", range(15))
def test_on_few_cards_the_capacity_is_what_trying_everything_finds(seed: int) -> None:
    dice = random.Random(seed)
    for _ in range(15):
        tiles, count = dice.choice((0, 0, 1)), dice.choice((2, 4))
        states = node(dice, dice.randint(2, 6), dice.choice((0.2, 0.4, 0.7)), dice.choice((1, 2, 3)), 2)
        expected = 0
        while expected < MOST and feasible(states, [count] * (expected + 1), tiles):
            expected += 1
        assert count_slots(states, pods_of(count, tiles=tiles)[0], MOST) == (expected, True)


@pytest.mark.parametrize("count", [1, 3])
def test_an_uneven_number_of_cards_makes_no_pairs(count: int) -> None:
    states = [
        card_state(Card(f"card{n}", {PLUGIN: 4}, 1, links=((0, f"card{n ^ 1}", 0),)), {}, frozenset())
        for n in range(4)
    ]
    assert fits(states, pods_of(count)) is False
    assert count_slots(states, pods_of(count)[0], 9) == (0, True)


def test_a_bound_sees_what_parts_of_uneven_size_leave_over() -> None:
    """Three triangles hang on one card: four pairs, though ten cards with a link each might make five."""
    triangles = [(1, 2), (1, 3), (2, 3), (4, 5), (4, 6), (5, 6), (7, 8), (7, 9), (8, 9)]
    partners = [0] * 10
    for one, other in [*triangles, (0, 1), (0, 4), (0, 7)]:
        partners[one] |= 1 << other
        partners[other] |= 1 << one
    assert most_pairs([1] * 10, partners, 10) == 4


# --- as many cards as a node has ---------------------------------------------------------------------


def first_fit(states: Sequence[CardState], counts: Sequence[int]) -> bool:
    """Each pair is the first card that still has a partner, with its first partner; nothing is taken back."""
    partners = partners_of(links_of(states), states)
    free_cards = [dict(state.free)[PLUGIN] for state in states]
    for count in counts:
        used: set[int] = set()
        while len(used) < count:
            pairs = (
                (one, other)
                for one, other in combinations(range(len(states)), 2)
                if partners[one] >> other & 1
                and free_cards[one]
                and free_cards[other]
                and not {one, other} & used
            )
            pair = next(pairs, None)
            if pair is None:
                return False
            used |= set(pair)
            for n in pair:
                free_cards[n] -= 1
    return True


def sparse(seed: int) -> list[CardState]:
    """Sixteen cards in pairs, and a few links more."""
    dice = random.Random(seed)
    states = node(dice, 16, dice.choice((0.02, 0.05, 0.1, 0.2)), dice.choice((1, 2, 16)), 1)
    order = dice.sample(range(16), 16)
    mates = dict(zip(order[::2], order[1::2], strict=True))
    made = []
    for n, state in enumerate(states):
        links = (*state.card.links, *([(0, f"card{mates[n]}", 0)] if n in mates else []))
        made.append(card_state(replace(state.card, links=links), {}, frozenset()))
    return made


SHAPES = [[2] * 8, [4] * 4, [8, 8], [16], [6, 6], [4, 2, 2, 8]]


@pytest.mark.parametrize("seed", range(10))
def test_where_the_first_fit_finds_cards_the_answer_is_never_in_doubt(seed: int) -> None:
    dice = random.Random(seed)
    found = 0
    for _ in range(8):
        states = node(dice, 16, dice.choice((0.08, 0.12, 0.2)), dice.choice((1, 2, 4)), 1)
        for counts in SHAPES:
            if first_fit(states, counts):
                found += 1
                assert fits(states, pods_of(*counts)) is True
    assert found > 3


@pytest.mark.parametrize("counts", SHAPES, ids=str)
def test_cards_that_are_all_in_pairs_are_found_whatever_other_links_they_have(counts: list[int]) -> None:
    for seed in range(8):
        assert choose(sparse(seed), pods_of(*counts), 100).slots is not None


@pytest.mark.parametrize("count", [2, 4, 8, 16])
def test_how_many_pods_find_linked_cards_among_sixteen_is_decided(count: int) -> None:
    for seed in range(8):
        found = count_slots(sparse(seed), pods_of(count)[0], 110)
        assert found.pods * count >= 16
        assert found.exact
