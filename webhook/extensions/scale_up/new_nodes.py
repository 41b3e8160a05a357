"""New nodes: reservations for gangs that asked for them, and those that have no topology labels yet. Pure.

Nobody tells which node was made for which request. So a gang's own are those that have come since it asked
and take pods of it: first come those that their autoscaler says it has served, then those that asked first.

Nodes that an autoscaler has made for a request are beyond the share: they are there for its gang alone, and
bounded by what may be asked for. Else in a cluster that had no nodes half of a gang's would be anybody's, and
what was made for one gang would take from others what is reserved for them.
"""

import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Final

from webhook.extensions.scale_up.provisioning import CHECK_CAPACITY, Progress, live_requests, progress_of
from webhook.kube.objects import Node
from webhook.placement import Budget, Snapshot, Topology
from webhook.placement.capacity import count_slots_by_node
from webhook.placement.model import PodClass
from webhook.placement.snapshot import NodeState
from webhook.sweeper.decide.node_exclusions import ExcludedNodes, Exclusion
from webhook.sweeper.decide.reservations import (
    Reservation,
    ReservationInput,
    ReservationKind,
    ReservationLedger,
    nodes_of,
)
from webhook.sweeper.observe.gangs import PodGang
from webhook.sweeper.observe.view import View

MOST_LOOKS: Final = 200_000
"""So often it is looked in a pass at a node for a class of pods, by gangs of all namespaces alike: what their
pods wish may suit no node. Whose share is used up reserves no more, and is placed all the same."""
AT_ONCE: Final = 64
"""So many nodes are looked at together."""

NEW_NODES: Final = ReservationKind(
    "booked", "new nodes are reserved for gangs that have asked for them", of_new_nodes=True
)

_COMING: Final = frozenset({Progress.ASKED, Progress.PROVIDED})
"""While a request is in one of these, new nodes may be for it."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Booking:
    """A request for nodes that an autoscaler has accepted. placement: its gang's, as "namespace/name".

    request: its uid. created: when the API server took it (RFC 3339), as it says of nodes. pods: how many.
    is_served: whether the autoscaler says that there are, or come, nodes for it; is_made: whether it makes
    nodes for requests of its class, where others only learn whether there is capacity.
    """

    placement: str
    request: str
    created: str
    pods: int
    is_served: bool = False
    is_made: bool = False


def reserve(given: ReservationInput) -> list[Reservation]:
    """New nodes for gangs that wait, see ReservationSource."""
    return reserve_new_nodes(bookings_of(given.view), given)


def bookings_of(view: View) -> list[Booking]:
    """The requests that an autoscaler has accepted and may yet make nodes for, or has."""
    return [
        Booking(
            f"{each.metadata.namespace}/{owner.name}",
            each.metadata.uid,
            each.metadata.creation_timestamp or "",
            each.pods,
            progress.state is Progress.PROVIDED,
            each.spec.provisioning_class_name != CHECK_CAPACITY,
        )
        for each in live_requests(view)
        if (progress := progress_of(each)).state in _COMING and progress.is_answered
        for owner in each.placement_owners
    ]


def reserve_new_nodes(bookings: Iterable[Booking], given: ReservationInput) -> list[Reservation]:
    """New nodes for gangs that wait: one reservation for each request.

    Also without nodes where it had some: its time goes on. bookings: requests as they are now.
    """
    bookings = sorted(bookings, key=_fair_order)
    if not bookings:
        return []
    known = {each.claim: each for each in given.ledger.of_kind(NEW_NODES)}
    gangs = {gang.key.placement_key: gang for gang in given.gangs}
    nodes = _NewNodes(bookings, given)
    found: list[Reservation] = []
    for booking in bookings:
        before, gang = known.get(booking.request), gangs.get(booking.placement)
        reservation = _without_nodes(booking, before, given.ledger)
        if gang is not None and given.ledger.now.seconds < reservation.until:
            reservation = nodes.reserve(booking, gang, reservation)
        if reservation.nodes or before is not None:
            found.append(reservation)
    return found


class _NewNodes:
    """The nodes that have come since the first request, and which of them can still be reserved."""

    def __init__(self, bookings: Sequence[Booking], given: ReservationInput) -> None:
        self._given = given
        reserved = given.ledger
        self._taken = nodes_of(each for each in reserved.reservations if each.kind is not NEW_NODES)
        self._left = reserved.most - len(self._taken)
        self._new = _since_first(bookings, given.view, given.snapshot)
        self._looks = _looks(bookings)

    def reserve(self, booking: Booking, gang: PodGang, empty: Reservation) -> Reservation:
        """The reservation with nodes for a request, as many as there are and may be reserved."""
        reserved = self._given.ledger
        is_beyond = bool(reserved.most) and booking.is_served and booking.is_made
        most = None if is_beyond else max(0, self._left)
        if most == 0:
            return empty
        # A node that was not ready for a moment cools down, but not from whom it was reserved for.
        off = self._taken | reserved.cooling(but=booking.request) | self._given.excluded(gang)
        there = (state for came, state in self._new if came >= booking.created and state.name not in off)
        bound = reserved.settings.options.bound
        nodes = frozenset(_suited(gang, booking.pods, there, self._given.view, self._looks, bound)[:most])
        beyond = nodes if is_beyond else frozenset[str]()
        self._left -= len(nodes - beyond)
        self._taken |= nodes
        return replace(empty, nodes=nodes, whose=str(gang.key), priority=gang.priority, beyond_share=beyond)


def _without_nodes(booking: Booking, before: Reservation | None, reserved: ReservationLedger) -> Reservation:
    """What a request has reserved before, or begins to, with no nodes yet."""
    if before is not None:
        return replace(before, nodes=frozenset(), beyond_share=frozenset())
    now, seconds = reserved.now, reserved.settings.reserve_hold_seconds
    return Reservation(
        NEW_NODES, booking.placement, frozenset(), now.seconds, now.seconds + seconds,
        now.at + timedelta(seconds=seconds), claim=booking.request, priority=0,
    )  # fmt: skip


def _since_first(
    bookings: Iterable[Booking], view: View, snapshot: Snapshot | None
) -> list[tuple[str, NodeState]]:
    """Nodes that have come since the first request, the oldest first, with when they came."""
    first = min((each.created for each in bookings), default="")
    if snapshot is None or not first:
        return []
    came = ((_created(name, view), state) for name, state in snapshot.nodes.items())
    return sorted((each for each in came if each[0] >= first), key=lambda each: (each[0], each[1].name))


def _looks(bookings: Iterable[Booking]) -> Counter[str]:
    """How often a node may be looked at for the gangs of each namespace."""
    namespaces = {each.placement.partition("/")[0] for each in bookings}
    return Counter({namespace: MOST_LOOKS // len(namespaces) for namespace in namespaces})


def _suited(
    gang: PodGang, pods: int, there: Iterator[NodeState], view: View, looks: Counter[str], bound: int
) -> list[str]:
    """The first of these nodes that have capacity for so many of the gang's pods, of each class by itself.

    looks: how many are left, of which this takes some. bound: of the work for this gang.
    """
    budget, found = Budget(bound), list[str]()
    try:
        classes = _classes(gang, view)
        while (
            classes and pods > 0 and looks[gang.key.namespace] > 0 and (some := list(islice(there, AT_ONCE)))
        ):
            looks[gang.key.namespace] -= len(some) * len(classes)
            for state, slots in zip(some, _most_slots(classes, some, budget), strict=True):
                if pods > 0 and slots > 0:
                    found.append(state.name)
                    pods -= slots
    except ValueError:  # the gang gets that message where it is placed
        return []
    except Exception:  # one bad gang never stops the others
        logger.exception("reservation_failed gang=%s", gang.key)
        return []
    return found


def _most_slots(classes: Sequence[PodClass], some: Sequence[NodeState], budget: Budget) -> Iterator[int]:
    """How many pods each node takes, of the class of which it takes most."""
    counts = [count_slots_by_node(each, some, budget).counts for each in classes]
    return map(max, zip(*counts, strict=True))


def _fair_order(booking: Booking) -> tuple[bool, str, str]:
    return not booking.is_served, booking.created, booking.placement


def _created(name: str, view: View) -> str:
    node = view.nodes.get(name)
    return (node.metadata.creation_timestamp or "") if node is not None else ""


def _classes(gang: PodGang, view: View) -> list[PodClass]:
    """What those of its pods ask for that have no place. Raises ValueError where that cannot be read."""
    pods = (
        pod
        for pod in (*gang.gated, *gang.later)
        if (uid := pod.metadata.uid) not in view.planned and uid not in gang.cpu_pods
    )
    return list(dict.fromkeys(map(view.class_of, pods)))


# --- new nodes without topology labels ----------------------------------------------------------------
# New nodes that do not say yet where they stand: their labeler or their cloud is about to write it.
#
# A gang that took them now would lie on them by chance, and be bound before anybody knew better. The wait is
# bounded: on a cluster whose nodes never get such labels each is used a little later. So it is where clocks
# differ: a node that was created in the future, by our clock, is not waited for until that has come.

SKEW_SECONDS: Final = 60.0
"""By so much the API server's clock may be ahead of ours; by more, one of the two was set back."""


_EXCLUSION: Final = Exclusion("it is new, and has no topology labels yet", is_hard=True)


def excluded(nodes: Iterable[str]) -> ExcludedNodes:
    """These are given to nobody."""
    return ExcludedNodes(dict.fromkeys(nodes, _EXCLUSION))


def missing_labels(
    nodes: Mapping[str, Node], label_seconds: float, topology: Topology, now: float
) -> dict[str, float]:
    """Nodes without a complete set of topology labels that are younger, and in how many seconds they are not.

    now: seconds since 1970.
    """
    oldest, newest = _utc(now - label_seconds), _utc(now + SKEW_SECONDS)
    found = {}
    for name, node in nodes.items():
        created = node.metadata.creation_timestamp or ""
        if oldest < created <= newest and topology.path(node.metadata.labels) is None:
            found[name] = max(0.0, datetime.fromisoformat(created).timestamp() + label_seconds - now)
    return found


def _utc(seconds: float) -> str:
    """As the API server writes times, which are in order as texts."""
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%SZ}"
