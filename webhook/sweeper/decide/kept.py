"""Nodes that plans keep for pods of their gangs that are made only once the first ones run.

They are bounded as reservations are: in number, together with those, but for nodes that were made for the
gang; in time, for each stage anew, which has more pods than the one before, and begins once those ran; in
all, by as much time for each node. A leader that never becomes ready keeps nodes empty for a while only,
and its gang's later pods then look for others. What was kept in vain is kept and held by nobody for as long
afterwards, and what was held, likewise: so nobody has it for ever by making such leaders one after the other.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import NamedTuple

from webhook.kube.objects import Pod
from webhook.kube.placements import Placement
from webhook.sweeper.decide.reservations import Held, longest_run, most_nodes
from webhook.sweeper.decide.rest import Rest
from webhook.sweeper.observe.gangs import GangKey, PodGang, urgency
from webhook.sweeper.observe.plans import PodId
from webhook.sweeper.observe.view import View, identity
from webhook.sweeper.settings import Settings


@dataclass(frozen=True)
class _Keeper:
    """A plan that keeps nodes. priority: its gang's urgency, as that of gangs that wait.

    made: nodes that an autoscaler has made for the gang, which are beyond the share.
    """

    plan: str
    priority: int
    held: Held
    made: frozenset[str] = frozenset()


class _Stage(NamedTuple):
    """How many pods a plan has had at most, and since when so many; which of its pods have run.

    first: when it began to keep nodes, and last: when that ends, whatever stages come.
    """

    pods: int
    since: float
    first: float
    last: float
    ran: frozenset[str]


class KeptNodes:
    """Remembers since when each plan keeps what it keeps; losing it lets that last longer."""

    def __init__(
        self,
        settings: Settings,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        rest: Rest | None = None,
    ) -> None:
        """now: the time of day, for sentences. rest: shared with Reservations."""
        self._settings = settings
        self._clock = clock
        self._now = now
        self._stages: dict[str, _Stage] = {}
        self._keepers: dict[str, _Keeper] = {}
        self._rest = rest or Rest(clock)
        self._in_all = 0

    def saw(
        self,
        view: View,
        held: Set[str] = frozenset(),
        made: Mapping[str, frozenset[str]] = MappingProxyType({}),
    ) -> None:
        """Take in what a pass sees: plans whose gangs are there, and that have not kept for too long.

        held: nodes that gangs hold which have waited long. made: by Placement, nodes that were made for its
        gang, and held for it before it had this plan.
        """
        keeping = {key: each for key, each in view.placements.items() if each.spec.kept and each.spec.pods}
        named = {planned.uid for each in keeping.values() for planned in each.spec.pods}
        pods = {identity(view.by_uid[uid]): view.by_uid[uid] for uid in named if uid in view.by_uid}
        now, before = self._clock(), self._keepers
        self._stages = {each.metadata.uid: self._stage(each, pods) for each in keeping.values()}
        self._keepers = {}
        # A share of fewer nodes, as some have failed, takes nothing from who has begun: nobody gets more.
        left = max(most_nodes(view, self._settings), self._in_all) - len(held) if keeping else 0
        for key, placement in sorted(
            keeping.items(), key=lambda each: (self._stages[each[1].metadata.uid].since, each[0])
        ):
            there = _there(placement, pods)
            plan, known = placement.metadata.uid, before.get(key)
            own = made.get(key, frozenset())
            if known is not None and known.plan == plan:
                own |= known.made
            kept = self._held(placement, max(0, left), known, own)
            if there and kept.nodes and now < kept.until:
                left -= len(kept.nodes - own)
                self._keepers[key] = _Keeper(plan, urgency(there), kept, own)
        self._in_all = len(self.nodes - self.made | held)
        self._let_rest(before, view)

    def _stage(self, placement: Placement, pods: Mapping[PodId, Pod]) -> "_Stage":
        """A pod that takes the place of another begins no stage, nor does one before the earlier ones ran."""
        plan, now, seconds = placement.metadata.uid, self._clock(), self._settings.reserve_hold_seconds
        count = len(placement.spec.pods)
        running = [pod for pod in _there(placement, pods) if pod.status.phase == "Running"]
        ran = frozenset(pod.metadata.uid for pod in running)
        last = now + seconds * (1 + len(placement.spec.kept))
        known = self._stages.get(plan)
        if known is None:
            return _Stage(count, now, now, last, ran)
        ran |= known.ran
        if count <= known.pods or len(ran) < known.pods:
            return known._replace(ran=ran)
        goes_on = any(each.plan == plan for each in self._keepers.values()) or (
            self._rest.nodes() != self._rest.nodes(but=plan)
        )
        return _Stage(count, now, *((known.first, known.last) if goes_on else (now, last)), ran)

    def _held(self, placement: Placement, most: int, before: _Keeper | None, own: frozenset[str]) -> Held:
        """most: how many nodes at most, beside its own, which were made for it."""
        plan = placement.metadata.uid
        stage = self._stages[plan]
        until = min(stage.since + self._settings.reserve_hold_seconds, stage.last)
        if before is not None and before.plan == plan and before.held.until == until:
            ends = before.held.ends  # what is told of it does not change from pass to pass
        else:
            ends = self._now() + timedelta(seconds=until - self._clock())
        resting = self._rest.nodes(but=plan)
        nodes = [name for name in placement.spec.kept if name not in resting]
        others = [name for name in nodes if name not in own]
        whose = f"{placement.metadata.namespace}/{placement.spec.gang}"
        return Held(frozenset(others[:most]) | own.intersection(nodes), stage.first, until, ends, whose)

    def _let_rest(self, before: Mapping[str, _Keeper], view: View) -> None:
        """What was kept and is neither kept nor planned for anybody now rests for as long as it was kept.

        A later stage of the same plan may keep it again, within the time that the plan has in all.
        """
        if not before:
            return
        planned = {each.node for known in view.placements.values() for each in known.spec.pods}
        for keeper in before.values():
            self._rest.begin(keeper.held.nodes - self.nodes - planned, keeper.held.since, keeper.plan)

    @property
    def nodes(self) -> frozenset[str]:
        """All that are kept."""
        return frozenset().union(*(each.held.nodes for each in self._keepers.values()))

    @property
    def made(self) -> frozenset[str]:
        """Those of them that were made for the gangs that keep them: they are beyond the share."""
        return frozenset().union(*(each.held.nodes & each.made for each in self._keepers.values()))

    @property
    def held(self) -> dict[str, Held]:
        """What each Placement ("namespace/name") keeps."""
        return {key: each.held for key, each in self._keepers.items()}

    def before(self, gang: PodGang, waiting: Iterable[Pod]) -> dict[str, Held]:
        """By Placement, what plans of other gangs of at least its priority keep from its waiting pods.

        Where its own plan keeps a node as well, both were planned there, each with room beside the other.
        """
        if not self._keepers:
            return {}
        own = self._keepers.get(gang.key.placement_key)
        both = own.held.nodes if own is not None else frozenset[str]()
        ends = self._clock() + longest_run(waiting)
        return {
            key: replace(each.held, nodes=each.held.nodes - both)
            for key, each in self._keepers.items()
            if each is not own and each.priority >= gang.priority and ends > each.held.until
        }

    def beside(self, gang: GangKey) -> frozenset[str]:
        """What counts to the share of what plans of other gangs keep."""
        others = (each for key, each in self._keepers.items() if key != gang.placement_key)
        return frozenset().union(*(each.held.nodes - each.made for each in others))

    def resting_for(self, gang: GangKey, view: View) -> frozenset[str]:
        """Nodes that a plan of this gang cannot keep at the moment, as they were held in vain."""
        placement = view.placements.get(gang.placement_key)
        return self._rest.nodes(but=placement.metadata.uid if placement is not None else "")


def _there(placement: Placement, pods: Mapping[PodId, Pod]) -> list[Pod]:
    """The pods of a plan that are there, of its own namespace."""
    named = ((placement.metadata.namespace, each.uid) for each in placement.spec.pods)
    return [pods[each] for each in named if each in pods]


def later_told(gang: PodGang) -> str:
    """A sentence on pods that are planned and yet to be made, "" if there are none."""
    if not gang.later:
        return ""
    return f"{len(gang.later)} of its pods are made once the first ones run, and are planned with them"
