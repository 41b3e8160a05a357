"""How many pods of an elastic gang are placed if there is no room for all: as many as fit, in their order.

Fewer pods fit wherever more do, so the number is found by halving. Whole slices stay whole. Pure.
"""

from collections.abc import Callable, Sequence

from webhook.kube.objects import Pod
from webhook.placement import Assignment, NoFit
from webhook.sweeper.decide.question import GangQuestion
from webhook.sweeper.observe.gangs import PodGang

Ask = Callable[[Sequence[Pod]], tuple[GangQuestion, Assignment | NoFit]]
"""Asks for places for these pods."""


def needed(gang: PodGang, waiting: Sequence[Pod]) -> int:
    """How many of the waiting pods must be placed together, at least one: all, unless a minimum is enough.

    Which of unlike parts were enough nobody says, so of these it is all.
    """
    if gang.minimum is None or gang.parts:
        return len(waiting)
    step = gang.slices[0].size if gang.slices else 1
    missing = max(1, gang.minimum - (len(gang.pods) - len(waiting)))
    return min(len(waiting), -(-missing // step) * step)


def has_enough(gang: PodGang, waiting: Sequence[Pod]) -> bool:
    """Whether the gang runs without the waiting pods."""
    return gang.minimum is not None and len(gang.pods) - len(waiting) >= gang.minimum


def fewer(gang: PodGang, waiting: Sequence[Pod], ask: Ask) -> tuple[GangQuestion, Assignment | NoFit]:
    """The most of the first waiting pods that fit, though not all; if not as many as are needed, why not."""
    least = needed(gang, waiting)
    step = gang.slices[0].size if gang.slices else 1
    best = ask(waiting[:least])
    if isinstance(best[1], NoFit):
        return best
    low, high = 0, (len(waiting) - 1 - least) // step  # in steps above the least
    while low < high:
        middle = (low + high + 1) // 2
        tried = ask(waiting[: least + middle * step])
        if isinstance(tried[1], NoFit):
            high = middle - 1
        else:
            low, best = middle, tried
    return best


def so_far(gang: PodGang, waiting: Sequence[Pod]) -> str:
    """How many pods of an elastic gang have a place, in a sentence; "" for other gangs."""
    if gang.minimum is None:
        return ""
    placed, all_ = len(gang.pods) - len(waiting), len(gang.pods)
    return f"{placed} of {all_} pods have a place, {gang.minimum} are enough, the others join as room comes"
