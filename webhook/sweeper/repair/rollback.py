"""Gangs of which a part is released and the rest has found no place for too long: the part goes back."""

import time
from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass

from webhook.kube.objects import Pod
from webhook.sweeper.observe.gangs import GangKey, PodGang
from webhook.sweeper.observe.view import View
from webhook.sweeper.settings import Settings


@dataclass
class _Unfinished:
    """unreleased: how much was not released when that last shrank, and since when it has not."""

    unreleased: int
    since: float


class HalfReleased:
    """Remembers since when each gang has been half released; losing it only delays."""

    def __init__(self, settings: Settings, clock: Callable[[], float] = time.monotonic) -> None:
        self._settings = settings
        self._clock = clock
        self._halves: dict[GangKey, _Unfinished] = {}

    def due(
        self, view: View, gangs: Sequence[PodGang], at_once: Set[GangKey] = frozenset()
    ) -> list[tuple[PodGang, list[Pod]]]:
        """The gangs whose time is over, each with its released part. Each gang's time then begins anew.

        at_once: gangs that do not wait for theirs.
        """
        now = self._clock()
        halves: dict[GangKey, _Unfinished] = {}
        found: list[tuple[PodGang, list[Pod]]] = []
        for gang in gangs:
            released = _released_part(gang, view)
            if not released:
                continue
            half = self._halves.get(gang.key)
            if half is None or len(gang.gated) < half.unreleased:
                half = _Unfinished(len(gang.gated), now)
            half.unreleased = len(gang.gated)
            if gang.key in at_once or now - half.since >= self._settings.rollback_seconds:
                half.since = now
                found.append((gang, released))
            halves[gang.key] = half
        self._halves = halves
        return found

    @property
    def known(self) -> Set[GangKey]:
        """The gangs of which a part is released and the rest waits, as of the last look."""
        return self._halves.keys()

    def still_due(self, gangs: Iterable[GangKey]) -> None:
        """These were due, and have not been looked at."""
        for gang in gangs:
            self._halves[gang].since = float("-inf")


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
