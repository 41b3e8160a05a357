"""Heterogeneous pods that are hard to pack into nodes."""

import random
from dataclasses import dataclass

RESOURCES = ("cpu", "memory", "nvidia.com/gpu")


@dataclass(frozen=True)
class Packing:
    """sizes: what a pod of each kind asks for; counts: pods of each kind; free: what each node has."""

    sizes: list[list[int]]
    counts: list[int]
    free: list[list[int]]


def planted(nodes: int, kinds: int, slack: int, seed: int) -> Packing:
    """Nodes that pods fill but for at most so much of cpu and memory each; -1: one cpu too few in all."""
    dice = random.Random(f"{nodes}/{kinds}/{slack}/{seed}")
    sizes = [[dice.randint(1, 16), dice.randint(1, 32), dice.choice((0, 0, 1, 2, 3))] for _ in range(kinds)]
    counts, free = [0] * kinds, []
    for _ in range(nodes):
        sums = [0, 0, 0]
        for _ in range(dice.randint(4, 7)):
            kind = dice.randrange(kinds)
            counts[kind] += 1
            sums = [amount + more for amount, more in zip(sums, sizes[kind], strict=True)]
        spare = [dice.randint(0, max(0, slack)), dice.randint(0, max(0, slack)), 0]
        free.append([amount + more for amount, more in zip(sums, spare, strict=True)])
    if slack < 0:
        free[0][0] -= 1
    used = [kind for kind, count in enumerate(counts) if count]
    return Packing([sizes[kind] for kind in used], [counts[kind] for kind in used], free)


def loose(nodes: int, kinds: int, each: int, seed: int) -> Packing:
    """So many kinds of so many pods each, on nodes of several sizes."""
    dice = random.Random(f"{nodes}/{kinds}/{each}/{seed}")
    sizes = [
        [dice.randint(1, 16), dice.randint(1, 32), dice.choice((0, 1, 1, 2, 4, 8))] for _ in range(kinds)
    ]
    free = [
        [dice.choice((16, 32, 64)), dice.choice((64, 128)), dice.choice((0, 1, 2, 4, 8))]
        for _ in range(nodes)
    ]
    return Packing(sizes, [each] * kinds, free)
