"""Rows shifted by amounts: as by the definition, short or long, at once or one by one."""

import random

import numpy as np
import pytest

from tests.placement.small import seeds
from webhook.placement.homogeneous.min_plus import FEW, Shifts, into_shifted
from webhook.placement.homogeneous.offers import Array

NEVER = 1 << 62


def shifted_by_definition(
    found: list[list[int]], rows: list[list[int]], shifts: list[tuple[int, int, int]]
) -> list[list[int]]:
    """The least of what was found and of each shift of what the rows hold already."""
    result = [list(row) for row in found]
    for down, amount, cost in shifts:
        for number, row in enumerate(rows[: len(rows) - down]):
            best = result[number + down]
            for held, known in enumerate(row[: len(best) - amount]):
                best[held + amount] = min(best[held + amount], known + cost)
    return result


@pytest.mark.parametrize("dtype", [np.int64, object])
@pytest.mark.parametrize("shifts_of", [1, FEW, FEW + 1, 3 * FEW])
@pytest.mark.parametrize("seed", seeds(12))
def test_shifted_rows_are_as_by_the_definition(seed: int, shifts_of: int, dtype: type) -> None:
    dice = random.Random(seed)
    number, width = dice.randint(1, 4), dice.randint(2, 60)
    shifts = [(dice.randrange(number), dice.randrange(width), dice.randint(1, 99)) for _ in range(shifts_of)]
    length = dice.randint(1, width)
    rows = [[dice.choice((NEVER, dice.randint(0, 99))) for _ in range(length)] for _ in range(number)]
    found = [[dice.choice((NEVER, dice.randint(0, 99))) for _ in range(width)] for _ in range(number)]
    expected = shifted_by_definition(found, rows, shifts)
    into: Array = np.array(found, dtype=dtype)
    down, along, costs = zip(*shifts, strict=True)
    ways = Shifts(np.array(down), np.array(along), np.array(costs, dtype=dtype))
    into_shifted(into, np.array(rows, dtype=dtype), ways, NEVER)
    assert into.tolist() == expected
