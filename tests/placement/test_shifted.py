"""Rows shifted by amounts: as by the definition, short or long."""

import random

import numpy as np
import pytest

from tests.placement.small import seeds
from webhook.placement.homogeneous.min_plus import Array, into_shifted

NEVER = 1 << 62


def shifted_by_definition(
    found: list[list[int]], rows: list[list[int]], shifts: list[tuple[int, int]]
) -> list[list[int]]:
    """The least of what was found and of each shift of what the rows hold already."""
    result = [list(row) for row in found]
    for amount, cost in shifts:
        for best, row in zip(result, rows, strict=True):
            for count, known in enumerate(row[: len(best) - amount]):
                best[count + amount] = min(best[count + amount], known + cost)
    return result


@pytest.mark.parametrize("dtype", [np.int64, object])
@pytest.mark.parametrize("shifts_of", [1, 2, 6, 20])
@pytest.mark.parametrize("seed", seeds(12))
def test_shifted_rows_are_as_by_the_definition(seed: int, shifts_of: int, dtype: type) -> None:
    dice = random.Random(seed)
    number, width = dice.randint(1, 4), dice.randint(2, 60)
    shifts = [(dice.randrange(width), dice.randint(1, 99)) for _ in range(shifts_of)]
    length = dice.randint(1, width)
    rows = [[dice.choice((NEVER, dice.randint(0, 99))) for _ in range(length)] for _ in range(number)]
    found = [[dice.choice((NEVER, dice.randint(0, 99))) for _ in range(width)] for _ in range(number)]
    expected = shifted_by_definition(found, rows, shifts)
    into: Array = np.array(found, dtype=dtype)
    amounts, costs = zip(*shifts, strict=True)
    into_shifted(into, np.array(rows, dtype=dtype), np.array(amounts), np.array(costs, dtype=dtype))
    assert into.tolist() == expected
