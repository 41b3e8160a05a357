"""Gangs of which a part is released, and whose rest finds no place for too long: the part goes back. Pure."""

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace

from webhook.kube.objects import Pod
from webhook.sweeper.observe.gangs import GangKey, PodGang
from webhook.sweeper.observe.view import View
from webhook.sweeper.settings import Settings


@dataclass(frozen=True)
class Half:
    """unreleased: how much was not released when that last shrank, and since when it has not."""

    unreleased: int
    since: float


Halves = Mapping[GangKey, Half]
"""Since when each gang has been half released; losing it only delays."""


def half_released(
    halves: Halves, view: View, gangs: Sequence[PodGang], settings: Settings, at_once: Set[GangKey]
) -> tuple[list[tuple[PodGang, list[Pod]]], Halves]:
    """The gangs whose time is over, each with its released part. Each gang's time then begins anew.

    at_once: gangs that do not wait for theirs.
    """
    now = view.now.seconds
    known: dict[GangKey, Half] = {}
    found: list[tuple[PodGang, list[Pod]]] = []
    for gang in gangs:
        released = _released_part(gang, view)
        if not released:
            continue
        half = halves.get(gang.key)
        shrank = half is None or len(gang.gated) < half.unreleased
        since = now if half is None or shrank else half.since
        if gang.key in at_once or now - since >= settings.rollback_seconds:
            since = now
            found.append((gang, released))
        known[gang.key] = Half(len(gang.gated), since)
    return found, known


def still_due(halves: Halves, gangs: Iterable[GangKey]) -> Halves:
    """These were due, and have not been looked at."""
    return {**halves, **{gang: replace(halves[gang], since=float("-inf")) for gang in gangs}}


def _released_part(gang: PodGang, view: View) -> list[Pod]:
    """The part of a gang that waits, released, for a rest that has never run; [] for other gangs."""
    placement = view.placements.get(gang.key.placement_key)
    if placement is None or placement.is_complete:
        return []
    if gang.minimum is not None and len(gang.released) >= gang.minimum:
        return []  # enough to run: the others join as room comes
    ours = {planned.uid for planned in placement.spec.pods}
    # A member that never went through us (a Ray head without GPU, say) is not ours to delete; and companions
    # stand in nobody's way.
    return [pod for pod in gang.released if pod.metadata.uid in ours - gang.companions]
