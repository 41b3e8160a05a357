"""Pods shared by parts of a spread: the cheapest next pods of all, where that is the least cost."""

import random
from itertools import product

import pytest

from tests.placement.small import seeds
from webhook.placement.budget import Budget
from webhook.placement.spread import CostPart

OWN = 1000


def curves_of(dice: random.Random, is_convex: bool) -> list[list[int]]:
    """Costs of 0, 1, 2, ... more pods of a few domains, none falling; with slopes in order, or in any."""
    found = []
    for _ in range(dice.randint(1, 5)):
        slopes = [dice.randint(0, 9) for _ in range(dice.randint(0, 4))]
        curve = [dice.randint(0, 9)]
        for slope in sorted(slopes) if is_convex else slopes:
            curve.append(curve[-1] + slope)
        found.append(curve)
    return found


@pytest.mark.parametrize("is_convex", [True, False])
@pytest.mark.parametrize("seed", seeds(60))
def test_joined_parts_take_every_amount_at_the_least_cost(seed: int, is_convex: bool) -> None:
    dice = random.Random(seed)
    curves = curves_of(dice, is_convex)
    parts = [CostPart(curve, key) for key, curve in enumerate(curves)]
    left = dice.randint(0, sum(len(curve) - 1 for curve in curves))
    part = CostPart.joined(parts, OWN, left, Budget(10**6))
    for amount in range(left + 1):
        taken: dict[int, int] = {}
        part.take(amount, taken)
        cost = sum(curve[taken.get(key, 0)] for key, curve in enumerate(curves))
        assert part.curve[amount] == (cost + OWN if amount or cost else 0)
        assert sum(taken.values()) >= amount
        assert cost == least_sum(curves, amount)


def least_sum(curves: list[list[int]], amount: int) -> int:
    """The least that so many pods or more cost, by trying everything."""
    chosen = product(*(range(len(curve)) for curve in curves))
    return min(
        sum(curve[each] for curve, each in zip(curves, amounts, strict=True))
        for amounts in chosen
        if sum(amounts) >= amount
    )


def test_domains_that_take_one_pod_more_or_none_are_shared_without_a_product() -> None:
    dice = random.Random(1)
    parts = [CostPart([10, 10 + dice.randint(1, 99)], key, 1) for key in range(1000)]
    part = CostPart.joined(parts, 0, 500, Budget(10**4))
    assert not part.others
