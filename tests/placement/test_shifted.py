"""Rows shifted by amounts: as by the definition, short or long, at once or one by one."""

import random

import numpy as np
import pytest

from tests.placement.small import seeds
from webhook.placement.alike.shifted import FEW, Array, into_shifted

NEVER = 1 << 62


def shifted_by_definition(
    found: list[list[int]], rows: list[list[int]], amounts: list[int], costs: list[int]
) -> list[list[int]]:
    """For each row the least of what was found and of each amount beside what the row holds already."""
    result = [list(row) for row in found]
    for best, row in zip(result, rows, strict=True):
        for amount, cost in zip(amounts, costs, strict=True):
            for held, known in enumerate(row):
                if held + amount < len(best):
                    best[held + amount] = min(best[held + amount], known + cost)
    return result


@pytest.mark.parametrize("dtype", [np.int64, object])
@pytest.mark.parametrize("shifts", [1, FEW, FEW + 1, 3 * FEW])
@pytest.mark.parametrize("seed", seeds(12))
def test_shifted_rows_are_as_by_the_definition(seed: int, shifts: int, dtype: type) -> None:
    dice = random.Random(seed)
    number, width = dice.randint(1, 4), dice.randint(2, 60)
    amounts = sorted(dice.choices(range(1, width), k=shifts))
    costs = [dice.randint(1, 99) for _ in amounts]
    length = dice.randint(1, width)
    rows = [[dice.choice((NEVER, dice.randint(0, 99))) for _ in range(length)] for _ in range(number)]
    found = [[dice.choice((NEVER, dice.randint(0, 99))) for _ in range(width)] for _ in range(number)]
    expected = shifted_by_definition(found, rows, amounts, costs)
    into: Array = np.array(found, dtype=dtype)
    into_shifted(into, np.array(rows, dtype=dtype), amounts, np.array(costs, dtype=dtype), NEVER)
    assert into.tolist() == expected
