"""Nodes that gangs hold which do not fit and have waited long, so that smaller ones do not starve them.

What is held stands empty in the meantime, so it is bounded, over all gangs together: in number, by a share of
the nodes; in time, as a node that was held in vain is held by nobody for as long afterwards, and so stands
empty for half of the time at most. A pod that must end before the time is over may run there.
"""

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from webhook.kube.objects import Pod, PodSpec
from webhook.placement import Budget, Snapshot, victims
from webhook.sweeper.decide.question import GangQuestion
from webhook.sweeper.decide.rest import Rest
from webhook.sweeper.observe.gangs import GangKey, PodGang
from webhook.sweeper.observe.view import View
from webhook.sweeper.settings import Settings

DEFAULT_GRACE_SECONDS: Final = 30
"""Of a pod that does not say: what the API server fills in."""

_NAMED: Final = 3
"""Holders that a sentence names."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Held:
    """The nodes that a gang holds; since when and until when at most, by the clock and by the time of day.

    whose: what people call the gang ("namespace/kind/name"), as several may be called: its Placement alone
    tells it from others. is_new: whether they have come since it asked an autoscaler for nodes.
    """

    nodes: frozenset[str]
    since: float
    until: float
    ends: datetime
    whose: str = ""
    is_new: bool = False

    def beside(self, other: "Held") -> "Held":
        """This and what the same gang holds otherwise."""
        return Held(
            self.nodes | other.nodes,
            min(self.since, other.since),
            max(self.until, other.until),
            max(self.ends, other.ends),
            self.whose or other.whose,
            self.is_new and other.is_new,
        )


class Reservations:
    """What each gang holds; losing it only delays."""

    def __init__(
        self,
        settings: Settings,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        rest: Rest | None = None,
    ) -> None:
        """now: the time of day, for sentences and for the age of gangs. rest: shared with KeptNodes."""
        self._settings = settings
        self._clock = clock
        self._now = now
        self._held: dict[GangKey, Held] = {}
        self._rest = rest or Rest(clock)
        self._kept: frozenset[str] = frozenset()
        self._made: frozenset[str] = frozenset()
        self._paused_until = float("-inf")
        self._stages_wait = self._stages_waited = False

    def of(self, key: GangKey) -> frozenset[str]:
        """The nodes that a gang holds."""
        held = self._held.get(key)
        return held.nodes if held else frozenset()

    @property
    def held(self) -> Mapping[GangKey, Held]:
        """What each gang holds."""
        return dict(self._held)

    @property
    def nodes(self) -> frozenset[str]:
        """All that are held."""
        return frozenset().union(*(each.nodes for each in self._held.values()))

    def beside(self, key: GangKey) -> frozenset[str]:
        """What other gangs hold."""
        return frozenset().union(*(held.nodes for each, held in self._held.items() if each != key))

    def keep_beside(self, nodes: Set[str]) -> None:
        """These are kept from now on, and held by nobody: a plan of this pass needs them for later pods."""
        self._kept |= nodes

    def held_for_others(self, key: GangKey) -> bool:
        """Whether other gangs hold nodes, or plans keep some."""
        return bool(self._kept) or any(held.nodes for each, held in self._held.items() if each != key)

    def before(
        self, rank: Mapping[GangKey, int], gang: PodGang, waiting: Iterable[Pod]
    ) -> dict[GangKey, Held]:
        """What gangs hold that come before this one, and where its waiting pods may not go for that.

        rank: of the gangs that are asked about; others are before nobody.
        """
        if not self._held:
            return {}
        ends = self._clock() + longest_run(waiting)
        own = rank[gang.key]
        return {
            key: held for key, held in self._held.items() if rank.get(key, own) < own and ends > held.until
        }

    def drop(self, key: GangKey) -> None:
        """The gang has found its place: what it held is in use, or was not needed."""
        self._held.pop(key, None)

    def keep_only(
        self,
        living: Set[GangKey],
        kept: frozenset[str] = frozenset(),
        made: frozenset[str] = frozenset(),
    ) -> None:
        """Other gangs are gone, and what is over is let go.

        kept: nodes that plans keep, or that are booked, are nobody else's. made: those of them that were made
        for their gangs, and do not count to the share.
        """
        self._kept, self._made = kept, made
        self._stages_waited, self._stages_wait = self._stages_wait, False
        now = self._clock()
        for key, held in list(self._held.items()):
            if key not in living or now >= held.until:
                self._let_go(key)

    def leave_share_to_stages(self) -> None:
        """A gang in stages has waited long for the share of nodes that may be held.

        What was held in vain then gives it a turn: for reserve_hold_seconds nobody holds others instead.
        """
        self._stages_wait = True

    def give_up(self, key: GangKey) -> None:
        """The gang cannot be placed as it is now, whatever becomes free."""
        if key in self._held:
            self._let_go(key)

    def _let_go(self, key: GangKey) -> None:
        """What was held in vain rests for as long as it was held."""
        held = self._held.pop(key)
        self._paused_until = self._clock() + self._settings.reserve_hold_seconds
        logger.info("lets_go gang=%s nodes=%d", key, len(held.nodes))
        self._rest.begin(held.nodes, held.since, key.placement_key)

    def hold(
        self,
        gang: PodGang,
        asked: GangQuestion,
        snapshot: Snapshot,
        view: View,
        budget: Budget | None = None,
    ) -> None:
        """The gang does not fit now: give it the nodes that are easiest to become free for it, in time."""
        held = self._held.get(gang.key)
        if held is not None:
            if all(name in snapshot.nodes for name in held.nodes):
                return
            self._let_go(gang.key)
        is_paused = self._stages_waited and self._clock() < self._paused_until
        if is_paused or not self.has_waited_long(gang):
            return
        taken = self._taken()
        if self._left(view) <= 0:
            return
        stays = view.lasting | view.endless
        closed = taken | self._rest.nodes()
        found = victims.find(
            asked.without(closed).gang,
            snapshot,
            self._settings.options,
            lambda use: use.name not in stays,
            budget,
        )
        if found is not None:
            pods = {name: len(snapshot.nodes[name].usages) for name in found.nodes}
            self.take(gang.key, sorted(pods, key=lambda name: (pods[name], name)), view)

    def take(self, key: GangKey, nodes: Iterable[str], view: View) -> None:
        """From now on the gang holds these nodes, or the first of them where that is all that may be held.

        Those that rest it does not hold. What it has held already began its time, which goes on for these:
        till nobody binds a pod any more that is made anew for them, and no longer than twice its length.
        """
        before = self._held.pop(key, None)
        taken = self._taken()
        closed = taken | self._rest.nodes()
        free = [name for name in nodes if name not in closed]
        chosen = frozenset(free[: max(0, self._left(view))])
        now, seconds = self._clock(), self._settings.reserve_hold_seconds
        since, until = now, now + seconds
        if before is not None:
            self._rest.begin(before.nodes - chosen, before.since, key.placement_key)
            since = before.since
            until = max(before.until, min(now + self._settings.bind_seconds, since + 2 * seconds))
        held = Held(chosen, since, until, self._now() + timedelta(seconds=until - now), str(key))
        self._held[key] = held
        logger.info("reserves gang=%s nodes=%d", key, len(held.nodes))

    def _taken(self) -> frozenset[str]:
        return self._kept | self.nodes

    def _left(self, view: View) -> int:
        """How many more nodes may be held."""
        return most_nodes(view, self._settings) - len(self._taken() - self._made)

    def has_waited_long(self, gang: PodGang) -> bool:
        """Whether it is old enough to hold nodes."""
        return self._age_seconds(gang) >= self._settings.reserve_seconds

    def _age_seconds(self, gang: PodGang) -> float:
        try:
            created = datetime.fromisoformat(gang.created)
        except ValueError:
            return 0.0
        return (self._now() - created).total_seconds()


def most_nodes(view: View, settings: Settings) -> int:
    """How many nodes may be held in all."""
    share = min(1.0, settings.reserve_share)
    return max(1, int(view.usable_count * share)) if share > 0 else 0


def told(holders: Iterable[Held], namespace: str) -> str:
    """A sentence for a namespace whose gang is kept out, "" if nobody holds anything.

    Holders of other namespaces are not named: who may read that namespace's Placements finds there which of
    its gangs holds which nodes. Of several with one name, as groups of one set, it is told together.
    """
    said = []
    for is_new, what in (
        (False, "nodes are held for gangs that have waited longer"),
        (True, "new nodes are held for gangs that have asked for them"),
    ):
        shown = [
            f"{len(held.nodes)} for {name} until {held.ends:%H:%M} UTC"
            for name, held in _by_name(holders, namespace)
            if held.is_new is is_new
        ]
        more = f" and {len(shown) - _NAMED} more gangs" if len(shown) > _NAMED else ""
        if shown:
            said.append(f"{what}: {', '.join(shown[:_NAMED])}{more}")
    return "; ".join(said)


def _by_name(holders: Iterable[Held], namespace: str) -> list[tuple[str, Held]]:
    own: dict[tuple[str, bool], Held] = {}
    others: list[tuple[str, Held]] = []
    for held in holders:
        if not held.whose.startswith(f"{namespace}/"):
            others.append(("a gang of another namespace", held))
            continue
        name = held.whose, held.is_new
        own[name] = held.beside(own[name]) if name in own else held
    return [*((name, held) for (name, _), held in own.items()), *others]


def longest_run(waiting: Iterable[Pod]) -> float:
    """Seconds after which the last of these pods has ended; infinity where one need not end.

    The kubelet ends a pod at its deadline, and gives it its grace period for that.
    """
    return max((_longest_run(pod.spec) for pod in waiting), default=float("inf"))


def _longest_run(spec: PodSpec) -> float:
    limit, grace = spec.active_deadline_seconds, spec.termination_grace_period_seconds
    if limit is None:
        return float("inf")
    return limit + (DEFAULT_GRACE_SECONDS if grace is None else grace)
