"""Nodes that plans keep for pods of their gangs that are made only once the first ones run.

They are bounded as reservations are: in number, together with those; in time, for each stage anew. A leader
that never becomes ready keeps nodes empty for a while only, and its gang's later pods then look for others.
"""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from webhook.kube.objects import Pod
from webhook.kube.placements import Placement
from webhook.sweeper.decide.reservations import Held, longest_run, most_nodes
from webhook.sweeper.observe.gangs import PodGang
from webhook.sweeper.observe.view import View
from webhook.sweeper.settings import Settings


@dataclass(frozen=True)
class _Keeper:
    """A plan that keeps nodes. gang: as people call it; priority: of its most important pod."""

    gang: str
    priority: int
    held: Held


class KeptNodes:
    """Remembers since when each plan keeps what it keeps; losing it lets that last longer."""

    def __init__(
        self,
        settings: Settings,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """now: the time of day, for sentences."""
        self._settings = settings
        self._clock = clock
        self._now = now
        self._since: dict[tuple[str, str], float] = {}
        self._keepers: dict[str, _Keeper] = {}

    def saw(self, view: View) -> None:
        """Take in what a pass sees: plans whose gangs are there, and that have not kept for too long."""
        keeping = {key: each for key, each in view.placements.items() if each.spec.kept and each.spec.pods}
        named = {planned.uid for each in keeping.values() for planned in each.spec.pods}
        pods = (pod for pod in (*view.gated, *view.others) if pod.metadata.uid in named) if named else ()
        priorities = {pod.metadata.uid: pod.spec.priority or 0 for pod in pods}
        since = {_stage(each): self._since.get(_stage(each), self._clock()) for each in keeping.values()}
        self._since, self._keepers = since, {}
        left = most_nodes(view, self._settings)
        for key, placement in sorted(keeping.items(), key=lambda each: (since[_stage(each[1])], each[0])):
            there = [priorities[each.uid] for each in placement.spec.pods if each.uid in priorities]
            held = self._held(placement, since[_stage(placement)], left)
            if there and held.nodes and self._clock() < held.until:
                left -= len(held.nodes)
                gang = f"{placement.metadata.namespace}/{placement.spec.gang}"
                self._keepers[key] = _Keeper(gang, max(there), held)

    def _held(self, placement: Placement, since: float, most: int) -> Held:
        seconds = self._settings.reserve_hold_seconds
        left = timedelta(seconds=since + seconds - self._clock())
        return Held(frozenset(placement.spec.kept[:most]), since, since + seconds, self._now() + left)

    @property
    def nodes(self) -> frozenset[str]:
        """All that are kept."""
        return frozenset().union(*(each.held.nodes for each in self._keepers.values()))

    def before(self, gang: PodGang, waiting: Iterable[Pod]) -> dict[str, Held]:
        """What plans of other gangs of at least its priority keep where its waiting pods may not go."""
        if not self._keepers:
            return {}
        ends = self._clock() + longest_run(waiting)
        return {
            each.gang: each.held
            for key, each in self._keepers.items()
            if key != gang.key.placement_key and each.priority >= gang.priority and ends > each.held.until
        }


def _stage(placement: Placement) -> tuple[str, str]:
    """The plan and its newest pod: each stage adds pods."""
    return placement.metadata.uid, placement.spec.pods[-1].uid


def later_told(gang: PodGang) -> str:
    """A sentence on pods that are planned and yet to be made, "" if there are none."""
    if not gang.later:
        return ""
    return f"{len(gang.later)} of its pods are made once the first ones run, and are planned with them"
