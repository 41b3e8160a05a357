"""New nodes: reservations for gangs that requested them, and nodes without topology labels yet. Pure.

Autoscalers do not report which node they created for which request. So a gang reserves nodes that were
created after its request and have capacity for its pods. Provided requests come first, then older ones.

Nodes that an autoscaler created for a request do not count against the share of nodes that may be reserved.
They exist only for its gang, and requests have their own limits. Otherwise, in a cluster that began without
nodes, part of a gang's nodes would be free for others. Nodes created for one gang would also use up the share
for other reservations.
"""

import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Final

from webhook.extensions.scale_up.provisioning_requests import (
    CHECK_CAPACITY,
    Progress,
    live_requests,
    progress_of,
)
from webhook.kube.objects import Node
from webhook.placement import Budget, Snapshot, Topology
from webhook.placement.capacity import count_slots_by_node
from webhook.placement.model import PodClass
from webhook.placement.snapshot import NodeState
from webhook.sweeper.decide.node_rules import GangNodes, NodeRule, NodeRules, nodes_of
from webhook.sweeper.decide.reservations import (
    Reservation,
    ReservationInput,
    ReservationKind,
    ReservationLedger,
)
from webhook.sweeper.observe.gangs import PodGang
from webhook.sweeper.observe.view import View

MOST_LOOKS: Final = 200_000
"""The checks of a node for a class of pods in one pass, in equal shares for all namespaces: their pods may
fit no node. A gang whose namespace has used its share reserves no more nodes, and is still placed."""
AT_ONCE: Final = 64
"""The number of nodes that are checked together."""

NEW_NODES: Final = ReservationKind(
    "scale-up", "new nodes are reserved for gangs that have asked for them", of_new_nodes=True
)

_COMING: Final = frozenset({Progress.REQUESTED, Progress.PROVIDED})
"""The states of a request in which new nodes may be for it."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Booking:
    """A request for nodes that an autoscaler has accepted. placement: of its gang, as "namespace/name".

    request: its uid. created: its creation time in the API server (RFC 3339), comparable with that of nodes.
    pods: their number. is_served: whether the autoscaler reports that its nodes exist or are being added.
    is_made: whether requests of its class create nodes; others only check for capacity.
    """

    placement: str
    request: str
    created: str
    pods: int
    is_served: bool = False
    is_made: bool = False


def reserve(given: ReservationInput) -> list[Reservation]:
    """Reserve new nodes for waiting gangs, see ReservationSource."""
    return reserve_new_nodes(bookings_of(given.view), given)


def bookings_of(view: View) -> list[Booking]:
    """The requests that an autoscaler has accepted, and whose nodes exist or may be created."""
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
    """Reserve new nodes for waiting gangs: one reservation for each request.

    A reservation that lost its nodes stays, since its time continues. bookings: the current requests.
    """
    bookings = sorted(bookings, key=_fair_order)
    if not bookings:
        return []
    known = {each.holder: each for each in given.ledger.of_kind(NEW_NODES)}
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
    """The nodes created since the first request, and those that can still be reserved."""

    def __init__(self, bookings: Sequence[Booking], given: ReservationInput) -> None:
        self._given = given
        reserved = given.ledger
        self._taken = nodes_of(each for each in reserved.reservations if each.kind is not NEW_NODES)
        self._left = reserved.most - len(self._taken)
        self._new = _since_first(bookings, given.view, given.snapshot)
        self._looks = _looks(bookings)

    def reserve(self, booking: Booking, gang: PodGang, empty: Reservation) -> Reservation:
        """The reservation with nodes for a request, as many as exist and may be reserved."""
        reserved = self._given.ledger
        is_beyond = bool(reserved.most) and booking.is_served and booking.is_made
        most = None if is_beyond else max(0, self._left)
        if most == 0:
            return empty
        # A node that was briefly not ready has a cooldown, but not for the gang that had reserved it.
        unusable = GangNodes(self._given.rules.of(gang)).hard
        off = self._taken | reserved.cooling(but=booking.request) | unusable
        there = (state for came, state in self._new if came >= booking.created and state.name not in off)
        bound = reserved.settings.options.bound
        nodes = frozenset(_suited(gang, booking.pods, there, self._given.view, self._looks, bound)[:most])
        beyond = nodes if is_beyond else frozenset[str]()
        self._left -= len(nodes - beyond)
        self._taken |= nodes
        return replace(empty, nodes=nodes, whose=str(gang.key), priority=gang.priority, beyond_share=beyond)


def _without_nodes(booking: Booking, before: Reservation | None, reserved: ReservationLedger) -> Reservation:
    """The earlier reservation of a request, or a new one, without nodes."""
    if before is not None:
        return replace(before, nodes=frozenset(), beyond_share=frozenset())
    now, seconds = reserved.now, reserved.settings.reserve_hold_seconds
    return Reservation(
        NEW_NODES, booking.placement, frozenset(), now.seconds, now.seconds + seconds,
        now.at + timedelta(seconds=seconds), holder=booking.request, priority=0,
    )  # fmt: skip


def _since_first(
    bookings: Iterable[Booking], view: View, snapshot: Snapshot | None
) -> list[tuple[str, NodeState]]:
    """The nodes created since the first request, oldest first, each with its creation time."""
    first = min((each.created for each in bookings), default="")
    if snapshot is None or not first:
        return []
    came = ((_created(name, view), state) for name, state in snapshot.nodes.items())
    return sorted((each for each in came if each[0] >= first), key=lambda each: (each[0], each[1].name))


def _looks(bookings: Iterable[Booking]) -> Counter[str]:
    """The checks of nodes that the gangs of each namespace may use."""
    namespaces = {each.placement.partition("/")[0] for each in bookings}
    return Counter({namespace: MOST_LOOKS // len(namespaces) for namespace in namespaces})


def _suited(
    gang: PodGang, pods: int, there: Iterator[NodeState], view: View, looks: Counter[str], bound: int
) -> list[str]:
    """The first nodes with capacity for so many of the gang's pods, counting each pod class by itself.

    looks: the remaining checks, which this reduces. bound: the work budget for this gang.
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
    except ValueError:  # the gang's placement reports it
        return []
    except Exception:  # one bad gang must not stop the others
        logger.exception("reservation_failed gang=%s", gang.key)
        return []
    return found


def _most_slots(classes: Sequence[PodClass], some: Sequence[NodeState], budget: Budget) -> Iterator[int]:
    """For each node, the most pods of one class that fit."""
    counts = [count_slots_by_node(each, some, budget).counts for each in classes]
    return map(max, zip(*counts, strict=True))


def _fair_order(booking: Booking) -> tuple[bool, str, str]:
    return not booking.is_served, booking.created, booking.placement


def _created(name: str, view: View) -> str:
    node = view.nodes.get(name)
    return (node.metadata.creation_timestamp or "") if node is not None else ""


def _classes(gang: PodGang, view: View) -> list[PodClass]:
    """The classes of its unplaced pods. Raises ValueError if requests are unreadable."""
    pods = (
        pod
        for pod in (*gang.gated, *gang.later)
        if (uid := pod.metadata.uid) not in view.planned and uid not in gang.cpu_pods
    )
    return list(dict.fromkeys(map(view.class_of, pods)))


# --- new nodes without topology labels ----------------------------------------------------------------
# New nodes without topology labels: their labeler or their cloud will write them soon.
#
# Until then, a placement on them would ignore the topology. The wait is bounded: on a cluster whose nodes
# never get such labels, each node is used a little later. A node whose creation time is far in the future by
# our clock is used at once.

SKEW_SECONDS: Final = 60.0
"""How far the API server's clock may be ahead of ours; if it is more, one of them was set back."""


_UNLABELLED: Final = "it is new, and has no topology labels yet"


def excluded(nodes: Iterable[str]) -> NodeRules:
    """Exclude these nodes for all gangs."""
    names = frozenset(nodes)
    return NodeRules((NodeRule(names, _UNLABELLED, is_hard=True),) if names else ())


def missing_labels(
    nodes: Mapping[str, Node], label_seconds: float, topology: Topology, now: float
) -> dict[str, float]:
    """Nodes younger than label_seconds without complete topology labels -> seconds until they are older.

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
    """A time in the API server's format, which sorts as text."""
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%SZ}"
