"""How many parts of some domains suffice, by trying every choice."""

import random
from itertools import accumulate, product

import pytest

from tests.placement.small import seeds
from webhook.placement.alike.pricing import by_parts, by_units
from webhook.placement.budget import Budget


def heads_of(dice: random.Random) -> list[list[int]]:
    """Of two or three domains the sums of the rooms of their roomiest parts."""
    rooms = [[dice.randint(1, 6) for _ in range(dice.randint(1, 4))] for _ in range(dice.randint(2, 3))]
    return [list(accumulate(sorted(of_domain, reverse=True))) for of_domain in rooms]


def held_by_choice(heads: list[list[int]]) -> list[tuple[int, list[int]]]:
    """For each number of parts taken of each domain: how many in all, and what each domain then holds."""
    choices = product(*(range(len(head) + 1) for head in heads))
    return [(sum(taken), [[0, *head][n] for n, head in zip(taken, heads, strict=True)]) for taken in choices]


@pytest.mark.parametrize("seed", seeds(40))
def test_the_fewest_parts_that_hold_so_much_are_found(seed: int) -> None:
    dice = random.Random(seed)
    heads, wanted = heads_of(dice), dice.randint(1, 25)
    enough = [parts for parts, held in held_by_choice(heads) if sum(held) >= wanted]
    assert by_parts(heads, wanted)(tuple(range(len(heads)))) == min(enough, default=None)


@pytest.mark.parametrize("seed", seeds(40))
def test_the_fewest_parts_that_hold_whole_units_and_more_in_one_domain_are_found(seed: int) -> None:
    dice = random.Random(seed)
    heads, unit = heads_of(dice), dice.randint(1, 5)
    wanted, more = dice.randint(1, max(1, sum(head[-1] for head in heads) // unit)), dice.choice((0, 1, 3))

    def holds(held: list[int]) -> bool:
        loads = (
            [amount - more * (n == loaded) for n, amount in enumerate(held)] for loaded in range(len(held))
        )
        return any(min(load) >= 0 and sum(each // unit for each in load) >= wanted for load in loads)

    enough = [parts for parts, held in held_by_choice(heads) if holds(held)]
    assert by_units(heads, unit, wanted, more, Budget(10**6))(tuple(range(len(heads)))) == min(
        enough, default=None
    )
