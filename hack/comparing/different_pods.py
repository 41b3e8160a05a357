"""Gangs of pods no two of which ask for the same."""

import random
from typing import Final

from webhook.placement import Gang, Member, PodClass, vector

GPU: Final = "nvidia.com/gpu"
GIB: Final = 2**30


def different_pods(count: int, seed: int, level: str | None) -> Gang:
    """A gang of so many pods. level: the one that it requires."""
    dice = random.Random(1000 * seed + count)
    members = []
    for rank in range(count):
        amounts = {GPU: dice.choice((1, 2, 3, 5, 7)), "cpu": dice.randint(5000, 60_000), "pods": 1}
        amounts["memory"] = dice.randint(10, 600) * GIB
        members.append(Member(f"p{rank}", None, PodClass(vector(amounts))))
    return Gang("g", tuple(members), required_level=level)
