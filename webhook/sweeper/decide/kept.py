"""Nodes that plans keep for pods of their gangs that are made only once the first ones run.

They are bounded as reservations are: in number, together with those; in time, for each stage anew, which has
more pods than the one before. A leader that never becomes ready keeps nodes empty for a while only, and its
gang's later pods then look for others. What was kept in vain is kept by nobody for as long afterwards, so
that nobody keeps it for ever by making such leaders one after the other.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from webhook.kube.objects import Pod
from webhook.kube.placements import Placement
from webhook.sweeper.decide.reservations import Held, longest_run, most_nodes
from webhook.sweeper.observe.gangs import PodGang
from webhook.sweeper.observe.view import View
from webhook.sweeper.settings import Settings


@dataclass(frozen=True)
class _Keeper:
    """A plan that keeps nodes. gang: as people call it; priority: of its most important pod."""

    plan: str
    gang: str
    priority: int
    held: Held


class _Stage(NamedTuple):
    """How many pods a plan has had at most, and since when so many."""

    pods: int
    since: float


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
        self._stages: dict[str, _Stage] = {}
        self._keepers: dict[str, _Keeper] = {}
        self._resting: dict[str, tuple[str, float]] = {}

    def saw(self, view: View, held: Set[str] = frozenset()) -> None:
        """Take in what a pass sees: plans whose gangs are there, and that have not kept for too long.

        held: nodes that gangs hold which have waited long.
        """
        keeping = {key: each for key, each in view.placements.items() if each.spec.kept and each.spec.pods}
        named = {planned.uid for each in keeping.values() for planned in each.spec.pods}
        pods = (pod for pod in (*view.gated, *view.others) if pod.metadata.uid in named) if named else ()
        priorities = {pod.metadata.uid: pod.spec.priority or 0 for pod in pods}
        now, before = self._clock(), self._keepers
        self._stages = {each.metadata.uid: self._stage(each) for each in keeping.values()}
        self._resting = {name: rest for name, rest in self._resting.items() if rest[1] > now}
        self._keepers = {}
        left = most_nodes(view, self._settings) - len(held)
        for key, placement in sorted(
            keeping.items(), key=lambda each: (self._stages[each[1].metadata.uid].since, each[0])
        ):
            there = [priorities[each.uid] for each in placement.spec.pods if each.uid in priorities]
            kept = self._held(placement, max(0, left))
            if there and kept.nodes and now < kept.until:
                left -= len(kept.nodes)
                gang = f"{placement.metadata.namespace}/{placement.spec.gang}"
                self._keepers[key] = _Keeper(placement.metadata.uid, gang, max(there), kept)
        self._let_rest(before, view)

    def _stage(self, placement: Placement) -> "_Stage":
        """A pod that takes the place of another begins no stage."""
        known, pods = self._stages.get(placement.metadata.uid), len(placement.spec.pods)
        return known if known and pods <= known.pods else _Stage(pods, self._clock())

    def _held(self, placement: Placement, most: int) -> Held:
        since, seconds = self._stages[placement.metadata.uid].since, self._settings.reserve_hold_seconds
        left = timedelta(seconds=since + seconds - self._clock())
        plan = placement.metadata.uid
        nodes = [name for name in placement.spec.kept if self._resting.get(name, (plan, 0.0))[0] == plan]
        return Held(frozenset(nodes[:most]), since, since + seconds, self._now() + left)

    def _let_rest(self, before: Mapping[str, _Keeper], view: View) -> None:
        """What was kept and is neither kept nor planned for anybody now rests for as long as it was kept.

        A later stage of the same plan may keep it again: it has as many stages as pods at most.
        """
        now = self._clock()
        planned = {each.node for known in view.placements.values() for each in known.spec.pods}
        for keeper in before.values():
            for name in keeper.held.nodes - self.nodes - planned:
                self._resting[name] = keeper.plan, 2 * now - keeper.held.since

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


def later_told(gang: PodGang) -> str:
    """A sentence on pods that are planned and yet to be made, "" if there are none."""
    if not gang.later:
        return ""
    return f"{len(gang.later)} of its pods are made once the first ones run, and are planned with them"
