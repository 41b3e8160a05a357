"""Reservations for gangs that are moved, until their recreated pods have their place. Pure.

The plan of the gang for which they are moved names their new places. So one write makes both durable, before
any pod is evicted. A move that has begun keeps its places also if that plan is dropped or deleted. It is over
once a Placement records it: that of the moved gang, when its recreated pods are planned. It waits a day for
that, without nodes once their time is over, as it counts for the limit of moves of its gang.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final

from webhook.durations import DAY
from webhook.kube.objects import OwnerReference, Pod, PodMetadata
from webhook.kube.placements import Placement, VictimGroup
from webhook.kube.times import since_1970
from webhook.scheduling.antiaffinity import AntiAffinityTerm
from webhook.sweeper.decide.reservations import (
    MOVE,
    Reservation,
    ReservationInput,
    ReservationLedger,
    ReservationSource,
)
from webhook.sweeper.observe.gangs import PodGang
from webhook.sweeper.observe.pods import ENDING_SECONDS
from webhook.sweeper.observe.view import View

_ABOVE_ALL: Final = 2**31
"""No gang, however important, takes the place of one that has given up its own."""
_LEAST_SECONDS: Final = 2 * ENDING_SECONDS
"""For so long a place is reserved at least: until the evicted pods have ended, and are recreated."""
_SKEW_SECONDS: Final = 60.0
"""By so much the clock of the leader before may have been ahead; a later move was written by no sweeper."""
_COMPARED: Final = 8
"""The pods of a gang whose labels are compared with the anti-affinity of others."""


@dataclass(frozen=True)
class MoveReservation(Reservation):
    """The new place of a gang.

    moves: when the gang was moved; the last one is this move, by which it is recognized. pods: uids of those
    that are evicted. owner: see VictimGroup. is_over: the gang has its place, or is deleted; without nodes,
    it stays for a day, so that the plan does not begin it again. is_recorded: by a Placement. labels: of some
    of its pods, () if they were gone before this leader could see them.
    """

    moves: tuple[str, ...] = ()
    pods: tuple[str, ...] = ()
    owner: OwnerReference | None = None
    is_over: bool = False
    is_recorded: bool = False
    labels: tuple[Mapping[str, str], ...] = ()

    def closed_to(self, waiting: Iterable[Pod], view: View) -> frozenset[str]:
        """Also the domains of these nodes from which such pods would keep its own by their anti-affinity."""
        if view.near is None:  # no waiting pod has rules on others
            return self.nodes
        closed, domains = set(self.nodes), view.domains_of(view.nodes)
        for rule in {rule for pod in waiting for rule in view.near.rules_of(pod).apart}:
            if self._is_repelled(rule.pods):
                closed.update(domains.nodes_with(rule.key, domains.values(self.nodes, rule.key)))
        return frozenset(closed)

    def _is_repelled(self, term: AntiAffinityTerm) -> bool:
        """Whether a term may exclude its pods, of which perhaps only the namespace is known."""
        namespace = self.gang.partition("/")[0]
        if not self.labels:
            return term.namespaces is None or namespace in term.namespaces
        return any(term.repels(namespace, labels) for labels in self.labels)


def is_needed_by_moves(placement: Placement, view: View) -> bool:
    """Whether a Placement without pods is all that the next leader may know of moves.

    It names a move of this day that has begun and that no Placement records, or counts the moves of its own
    gang, whose pods may be recreated within the day.
    """
    begun = [group for group in placement.spec.victims if group.is_moved and _is_begun(group.pods, view)]
    recorded = _recorded(view) if begun else frozenset()
    named = [group.moves[-1] for group in begun if group.moves[-1] not in recorded]
    return bool(moves_within(DAY, [*named, *placement.spec.moves], view.now.at.timestamp()))


def _recorded(view: View) -> frozenset[str]:
    """The moves of gangs that are back."""
    return frozenset(at for each in view.placements.values() for at in each.spec.moves)


def moves_within(seconds: float, moves: Sequence[str], at: float) -> list[str]:
    """Those of these moves that were made within this time. at: now, in seconds since 1970.

    A time to come counts within the same bound: an earlier leader's clock may have been ahead, but an
    edited time ends no moves for good.
    """
    return [each for each in moves if (made := since_1970(each)) is not None and abs(at - made) < seconds]


def moves_of(view: View) -> Iterator[tuple[Placement, VictimGroup]]:
    """The moves that plans name, each with the plan of the gang for which it is made."""
    for plan in view.placements.values():
        yield from ((plan, group) for group in plan.spec.victims if group.is_moved)


def reserve_for_moved(given: ReservationInput) -> Sequence[Reservation]:
    """The new places of gangs that are evicted, or are to be, and that are not back yet."""
    view, ledger, found = given.view, given.ledger, list[Reservation]()
    moves = list(_current(view, ledger))
    recorded, at = _recorded(view) if moves else frozenset[str](), view.now.at.timestamp()
    for each in moves:
        is_recorded = each.holder in recorded
        is_over = is_recorded or _is_over(each, given)
        if is_over or each.until <= ledger.now.seconds:
            each = replace(each, nodes=frozenset(), is_over=is_over, is_recorded=is_recorded)
        found += [each] if moves_within(DAY, [each.holder], at) else []
    return found


def _current(view: View, ledger: ReservationLedger) -> Iterator[MoveReservation]:
    """The moves of plans, and those that have begun though their plan is dropped."""
    known = {each.holder: each for each in _of_ledger(ledger)}
    planned = list(_planned(view, ledger, known))
    pending = {each.holder for each, is_pending in planned if is_pending}
    for each in {**known, **{each.holder: each for each, _ in planned}}.values():
        if each.holder in pending or _is_begun(each.pods, view):
            yield each


def _planned(
    view: View, ledger: ReservationLedger, known: Mapping[str, MoveReservation]
) -> Iterator[tuple[MoveReservation, bool]]:
    """The moves of plans, and whether the gang for which each is made still waits, by a valid plan."""
    for plan, group in moves_of(view):
        made = _reservation(group, view, ledger, known.get(group.moves[-1]))
        if made is not None:
            yield made, any(entry.uid in view.planned for entry in plan.spec.pods)


MOVES: Final = ReservationSource(MOVE, reserve_for_moved)


def with_moves(ledger: ReservationLedger, victims: Iterable[VictimGroup], view: View) -> ReservationLedger:
    """With the new places of the gangs that a plan of this pass moves."""
    made = [_reservation(group, view, ledger, None) for group in victims if group.is_moved]
    return replace(ledger, reservations=(*ledger.reservations, *filter(None, made)))


def moves_under_way(plan: Placement | None, ledger: ReservationLedger, view: View) -> Iterator[VictimGroup]:
    """The moves of a plan that have begun and are not over: a new plan of its gang names them, too."""
    holders = {each.holder for each in _of_ledger(ledger) if not each.is_over and _is_begun(each.pods, view)}
    groups = plan.spec.victims if plan is not None else ()
    return (group for group in groups if group.is_moved and group.moves[-1] in holders)


def _is_begun(uids: Iterable[str], view: View) -> bool:
    """Whether one of these pods of a gang is gone, or is being deleted."""
    pods = map(view.by_uid.get, uids)
    return any(pod is None or pod.metadata.deletion_timestamp for pod in pods)


def _is_over(move: MoveReservation, given: ReservationInput) -> bool:
    """Whether it was over before, or its controller is gone, or creates no more pods."""
    pod = moved_pod(move.gang, move.owner)
    if move.is_over or pod is None:
        return move.is_over
    lost = given.view.lost_owners.of(pod)
    return given.has_ended(pod) or (lost is not None and lost.is_confirmed)


def moved_pod(moved_gang: str, owner: OwnerReference | None) -> Pod | None:
    """A pod of a gang that was moved, as far as a plan names it; None where it names no owner."""
    if owner is None:
        return None
    namespace, _, name = moved_gang.partition("/")
    return Pod(metadata=PodMetadata(name=name, namespace=namespace, owner_references=[owner]))


def _reservation(
    group: VictimGroup, view: View, ledger: ReservationLedger, before: MoveReservation | None
) -> MoveReservation | None:
    """The reservation of a move, None if its time cannot be read, or is to come."""
    began, now = since_1970(group.moves[-1]), ledger.now.at.timestamp()
    if began is None or began > now + _SKEW_SECONDS:
        return None
    seconds = max(_LEAST_SECONDS, ledger.settings.reserve_hold_seconds)
    until = ledger.now.seconds - now + began + seconds
    nodes = frozenset(group.nodes) & view.nodes.keys()
    known = view.placements.get(group.moved_gang)
    namespace = group.moved_gang.partition("/")[0]
    pods = [pod for uid in group.pods if (pod := view.by_uid.get(uid)) is not None]
    labels = tuple(pod.metadata.labels for pod in pods[:_COMPARED])
    return MoveReservation(
        MOVE, group.moved_gang, nodes, until - seconds, until, datetime.fromtimestamp(began + seconds, UTC),
        whose=f"{namespace}/{known.spec.gang}" if known is not None else group.moved_gang,
        holder=group.moves[-1], priority=_ABOVE_ALL, beyond_share=nodes, moves=tuple(group.moves),
        pods=tuple(group.pods), owner=group.owner, is_over=before is not None and before.is_over,
        labels=labels or (before.labels if before is not None else ()),
    )  # fmt: skip


def _of_ledger(ledger: ReservationLedger) -> list[MoveReservation]:
    return [each for each in ledger.of_kind(MOVE) if isinstance(each, MoveReservation)]


def nodes_after_move(gang: PodGang, view: View, ledger: ReservationLedger) -> frozenset[str]:
    """The nodes that are reserved for a moved gang, or for moved pods of its controller.

    None if some of its pods were not evicted: the others return to these.
    """
    names = gang.key.placement_key, gang.controller.placement_key
    found = frozenset[str]().union(*(ledger.of(name, MOVE) for name in names))
    return found if found.issuperset(view.placed_on(gang.workers).values()) else frozenset()


def move_of(gang: PodGang, nodes: frozenset[str], ledger: ReservationLedger) -> MoveReservation | None:
    """The move that is over once pods of the gang are planned on these nodes, None if it was not moved."""
    own = gang.key.placement_key, gang.controller.placement_key
    moves = (each for each in _of_ledger(ledger) if each.gang in own and not each.is_recorded)
    return min(moves, key=lambda each: (not nodes <= each.nodes, each.holder), default=None)
