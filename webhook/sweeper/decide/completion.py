"""When a gang is complete, and how many pods of an elastic one are placed if there is no room for all. Pure.

It is complete once its expected size is there, or it has been quiet for as long as that takes. A pod that
ends does not make a gang younger, and one that never becomes quiet is placed all the same. But one that was
whole has lost a pod just now: its controller is given as long to make it again as to make it.

Of an elastic gang as many pods are placed as fit, in their order. Fewer pods fit wherever more do, so the
number is found by halving. Whole slices stay whole.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

from webhook.kube.objects import Pod
from webhook.placement import Assignment, NoFit
from webhook.sweeper.decide.gang_question import GangQuestion
from webhook.sweeper.observe.gangs import PodGang
from webhook.sweeper.settings import Settings


@dataclass(frozen=True)
class Growth:
    """How a gang has come to what it is; losing it only delays. Times are of a clock that only goes on.

    members: uids in the last pass. grown_at: when one was new, or all that are expected were there.
    waiting_since: since when some wait for others, None while none does.
    """

    members: frozenset[str]
    grown_at: float
    waiting_since: float | None = None


def grown(known: Growth | None, gang: PodGang, waiting: Collection[Pod], now: float) -> Growth:
    """What a gang is in a new pass. known: in the last one; waiting: its pods that have no place."""
    members = frozenset(pod.metadata.uid for pod in gang.pods)
    if known is None or members - known.members or _is_whole(gang):
        known = Growth(members, now, known.waiting_since if known is not None else None)
    since = known.waiting_since
    if not waiting:
        since = None
    elif since is None and not _needs_nobody(gang):
        since = now
    return replace(known, members=members, waiting_since=since)


def seconds_to_complete(gang: PodGang, growth: Growth, settings: Settings, now: float) -> float:
    """0 for a gang that is complete, else how much longer its present pods must stay the only ones."""
    if _needs_nobody(gang):
        return 0.0
    if gang.size is not None and not gang.staged:
        return max(0.0, growth.grown_at + settings.patience_seconds - now)
    # Waiting for all would be waiting for ever, and so would be waiting until no more come.
    since = now if growth.waiting_since is None else growth.waiting_since
    settled = growth.grown_at + settings.settle_seconds
    return max(0.0, min(settled, since + settings.patience_seconds) - now)


def _needs_nobody(gang: PodGang) -> bool:
    return gang.is_stage_complete or _is_whole(gang)


def _is_whole(gang: PodGang) -> bool:
    return gang.size is not None and len(gang.pods) >= gang.size


AskForPlaces = Callable[[Sequence[Pod]], tuple[GangQuestion, Assignment | NoFit]]
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


def fewer(
    gang: PodGang, waiting: Sequence[Pod], ask: AskForPlaces
) -> tuple[GangQuestion, Assignment | NoFit]:
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
    return (
        f"{placed} of {all_} pods have a place, {gang.minimum} are enough, the others join as capacity comes"
    )
