"""Random clusters that tests and benchmarks of placement share: blocks of subblocks of nodes, fragmented."""

import itertools
import random
from collections.abc import Iterator
from typing import NamedTuple

BUSY_SUBBLOCKS = 0.4


class Spot(NamedTuple):
    """A node to be: the numbers of its block, of its subblock and of itself in there, and its free slots."""

    block: int
    subblock: int
    number: int
    free: int


def fragmented(
    dice: random.Random,
    least: int,
    slots: int,
    *,
    subblocks: tuple[int, int],
    nodes: tuple[int, int],
    whole: float,
) -> Iterator[Spot]:
    """Whole blocks, until there are at least so many nodes; drawn while they are read.

    subblocks, nodes: how many a block and a subblock have, from and to. Four subblocks in ten are busy,
    with any number of free slots; in the others a node has all its slots with the probability `whole`.
    """
    made = 0
    for block in itertools.count():
        for subblock in range(dice.randint(*subblocks)):
            busy = dice.random() < BUSY_SUBBLOCKS
            for number in range(dice.randint(*nodes)):
                free = slots if not busy and dice.random() < whole else dice.randint(0, slots)
                made += 1
                yield Spot(block, subblock, number, free)
        if made >= least:
            return
