"""New nodes for gangs that asked an autoscaler for them: for a while no others of their urgency get them.

Nobody tells which node was made for which request. So a gang's own are those that have come since it asked
and take pods of it: first come those that their autoscaler says it has served, then those that asked first.

They are bounded as reservations are, together with these: in number, and in time; what stood empty in vain is
held by nobody for as long afterwards. A gang that is more urgent, or must end before, may use them. Nodes
that an autoscaler has made for a request are not bounded by the share: they are there for its gang alone, and
bounded by what may be asked for. Else in a cluster that had no nodes half of a gang's would be anybody's. Nor
do they count to the share, or what was made for one gang would take from others what they have booked.
"""

import logging
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Final

from webhook.kube.objects import Pod
from webhook.placement import Budget, Snapshot
from webhook.placement.capacity import rooms
from webhook.placement.model import PodClass
from webhook.placement.snapshot import NodeState
from webhook.sweeper.decide.reservations import Held, longest_run, most_nodes
from webhook.sweeper.decide.rest import Rest
from webhook.sweeper.observe.gangs import PodGang
from webhook.sweeper.observe.view import View
from webhook.sweeper.settings import Settings

MOST_LOOKS: Final = 200_000
"""So often it is looked in a pass at a node for a kind of pods, by gangs of all namespaces alike: what their
pods wish may suit no node. Whose share is used up books no more, and is placed all the same."""
AT_ONCE: Final = 64
"""So many nodes are looked at together."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Booking:
    """A request for nodes that an autoscaler has heard. placement: its gang's, as "namespace/name".

    request: its uid. created: when the API server took it (RFC 3339), as it says of nodes. pods: how many.
    is_served: whether the autoscaler says that there are, or come, nodes for it; is_made: whether it makes
    nodes for requests of its class, where others are only told whether there is room.
    """

    placement: str
    request: str
    created: str
    pods: int
    is_served: bool = False
    is_made: bool = False


@dataclass(frozen=True)
class _Booked:
    """is_made: whether its nodes are beyond the share of nodes that may be held."""

    request: str
    gang: PodGang
    held: Held
    is_made: bool


class BookedNodes:
    """Remembers since when each request has nodes; losing it lets that last longer."""

    def __init__(
        self,
        settings: Settings,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        rest: Rest | None = None,
        bookings: Callable[[], Iterable[Booking]] = lambda: (),
        avoided: Callable[[PodGang], frozenset[str]] = lambda _: frozenset(),
    ) -> None:
        """now: the time of day, for sentences. rest: shared with Reservations. bookings: as they are now.

        avoided: where a gang is not to go, so that no node there is held for it.
        """
        self._settings = settings
        self._clock = clock
        self._now = now
        self._rest = rest or Rest(clock)
        self._bookings = bookings
        self._avoided = avoided
        self._began: dict[str, tuple[float, datetime]] = {}
        self._booked: dict[str, _Booked] = {}

    @property
    def nodes(self) -> frozenset[str]:
        """All that are held so."""
        return frozenset().union(*(each.held.nodes for each in self._booked.values()))

    @property
    def held(self) -> dict[str, Held]:
        """What is held, by the Placements ("namespace/name") of the gangs."""
        return {key: each.held for key, each in self._booked.items()}

    @property
    def made(self) -> dict[str, frozenset[str]]:
        """What is held beyond the share, by the Placements of the gangs for which it was made."""
        return {key: each.held.nodes for key, each in self._booked.items() if each.is_made}

    def beside_plans(self, view: View, but: str = "") -> frozenset[str]:
        """Those that count to the share of kept nodes, beside which others' plans keep theirs.

        but: a Placement whose gang's do not count.

        Not those that a gang's own plan keeps for its later pods, where they count from now on, nor those
        that were made for a gang: else what was made for one would push out what another's plan keeps.
        """
        plans = view.placements
        return frozenset().union(
            *(
                each.held.nodes.difference(plans[key].spec.kept if key in plans else ())
                for key, each in self._booked.items()
                if not each.is_made and key != but
            )
        )

    def saw(
        self, gangs: Sequence[PodGang], view: View, snapshot: Snapshot | None, taken: Set[str] = frozenset()
    ) -> None:
        """Take in what a pass sees. taken: nodes that are held, or kept, already."""
        before, self._booked = self._booked, {}
        bookings = sorted(self._bookings(), key=_turn)
        self._began = {each.request: began for each in bookings if (began := self._began.get(each.request))}
        if bookings and snapshot is not None:
            self._book(bookings, {gang.key.placement_key: gang for gang in gangs}, view, snapshot, taken)
        if not before:
            return  # to go through every pod that is planned was most of a pass in which nobody waits
        planned = {entry.node for known in view.placements.values() for entry in known.spec.pods}
        for booked in before.values():
            left = booked.held.nodes - self.nodes - planned - taken  # the gang's plan may keep them now
            self._rest.begin(left, booked.held.since, booked.request)

    def _book(
        self,
        bookings: Sequence[Booking],
        gangs: Mapping[str, PodGang],
        view: View,
        snapshot: Snapshot,
        taken: Set[str],
    ) -> None:
        most = most_nodes(view, self._settings)
        left = most - len(taken)
        closed = set(taken)
        first = min(each.created for each in bookings)
        came = ((_created(name, view), name) for name in snapshot.nodes)
        new = sorted(each for each in came if each[0] >= first)
        namespaces = {each.placement.partition("/")[0] for each in bookings}
        looks = Counter(dict.fromkeys(namespaces, MOST_LOOKS // len(namespaces)))
        for booking in bookings:
            gang = gangs.get(booking.placement)
            began = self._began.get(booking.request, (self._clock(), self._now()))
            until = began[0] + self._settings.reserve_hold_seconds
            room = None if most and booking.is_served and booking.is_made else max(0, left)
            if gang is None or room == 0 or self._clock() >= until:
                continue
            since = islice(new, bisect_left(new, (booking.created, "")), None)
            # A node that was not ready for a moment rests, but not from whom it is booked for.
            off = closed | self._rest.nodes(but=booking.request) | self._avoided(gang)
            there = (snapshot.nodes[name] for _, name in since if name not in off)
            nodes = self._suited(gang, booking.pods, there, view, looks)[:room]
            if nodes:
                self._began[booking.request] = began
                left -= 0 if room is None else len(nodes)
                closed.update(nodes)
                ends = began[1] + timedelta(seconds=self._settings.reserve_hold_seconds)
                held = Held(frozenset(nodes), began[0], until, ends, str(gang.key), is_new=True)
                self._booked[booking.placement] = _Booked(booking.request, gang, held, room is None)

    def _suited(
        self, gang: PodGang, pods: int, there: Iterator[NodeState], view: View, looks: Counter[str]
    ) -> list[str]:
        """The first of these nodes that have room for so many of the gang's pods, of each kind by itself.

        looks: how many of its namespace's are left, of which this takes some.
        """
        budget, found = Budget(self._settings.options.bound), list[str]()
        try:
            kinds = _kinds(gang, view)
            while kinds and pods > 0 and looks[gang.key.namespace] > 0:
                some = list(islice(there, AT_ONCE))
                if not some:
                    break
                looks[gang.key.namespace] -= len(some) * len(kinds)
                counts = [rooms(kind, some, budget).counts for kind in kinds]
                for state, room in zip(some, map(max, zip(*counts, strict=True)), strict=True):
                    if pods > 0 and room > 0:
                        found.append(state.name)
                        pods -= room
        except ValueError:  # it is told where the gang is placed
            return []
        except Exception:  # one bad gang never stops the others
            logger.exception("booking_failed gang=%s", gang.key)
            return []
        return found

    def before(self, gang: PodGang, waiting: Iterable[Pod]) -> dict[str, Held]:
        """By Placement, what other gangs of at least its priority have booked from its waiting pods."""
        if not self._booked:
            return {}
        ends = self._clock() + longest_run(waiting)
        return {
            key: each.held
            for key, each in self._booked.items()
            if key != gang.key.placement_key
            and each.gang.priority >= gang.priority
            and ends > each.held.until
        }


def _turn(booking: Booking) -> tuple[bool, str, str]:
    return not booking.is_served, booking.created, booking.placement


def _created(name: str, view: View) -> str:
    node = view.nodes.get(name)
    return (node.metadata.creation_timestamp or "") if node is not None else ""


def _kinds(gang: PodGang, view: View) -> list[PodClass]:
    """What those of its pods ask for that have no place. Raises ValueError where that cannot be read."""
    pods = (
        pod
        for pod in (*gang.gated, *gang.later)
        if (uid := pod.metadata.uid) not in view.planned and uid not in gang.companions
    )
    return list(dict.fromkeys(map(view.class_of, pods)))
