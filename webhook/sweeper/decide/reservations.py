"""The reservation ledger: which nodes a gang may not use, for whom they are reserved, and until when. Pure.

A reserved node is empty in the meantime, so reservations are bounded, over all gangs and kinds together: in
number, by a share of the usable nodes; in time, since a node whose reservation expired unused cannot be
reserved again for as long as it was reserved. See docs/operators/reservations.md.

The two kinds below are made in `reservation_kinds`; extensions have their own, each by a ReservationSource.
The ledger knows nothing else of their kinds.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from webhook.configuration.settings import Settings
from webhook.grouping import grouped
from webhook.kube.objects import Pod, PodSpec
from webhook.placement import Snapshot
from webhook.sweeper.decide.node_rules import NodeRule, NodeRules, RuleKind, nodes_of
from webhook.sweeper.decide.replacements import Replacements
from webhook.sweeper.observe.gangs import GangKey, PodGang
from webhook.sweeper.observe.plans import foreign_gates, seconds_waited
from webhook.sweeper.observe.view import START, Moment, View
from webhook.text import few

DEFAULT_GRACE_SECONDS: Final = 30
"""The value that the API server fills in for a pod without one."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class ReservationKind:
    """Why nodes are reserved.

    name: in the metrics. sentence: the reason for a gang that may not use them, before how many and for whom.
    of_new_nodes: the nodes were created for the gang. Then nothing else is reserved for it, and a gang that
    finds no other nodes may ask an autoscaler for its own. Otherwise that gang waits until they are free.
    is_firm: pods that replace lost ones of a running gang, or must end before, do not use them either.
    """

    name: str
    sentence: str
    of_new_nodes: bool = False
    is_firm: bool = False


STARVATION: Final = ReservationKind("waiting", "nodes are reserved for gangs that have waited longer")
"""A gang has waited long and does not fit, so that smaller ones do not starve it."""
LATER_STAGE: Final = ReservationKind("stages", "nodes are reserved for pods that are created later")
"""A plan has places for pods that are created only once the first ones run."""
MOVE: Final = ReservationKind("moves", "nodes are reserved for gangs that are moved", is_firm=True)
"""A gang is evicted so that a larger one fits, and has another place."""


@dataclass(frozen=True)
class Reservation:
    """Nodes that are reserved for a gang; none while its time runs and it has no node.

    gang: its Placement, as "namespace/name". whose: its name in messages ("namespace/kind/name"), which
    several may share. holder: the uid of the plan or request, or else the gang: only the same holder may
    reserve a node again at once that it did not use. since, until: by the clock of Moment; it ends at `until`
    at the latest. ends: that in wall-clock time. priority: other gangs of this priority or lower may not use
    the nodes; None where gangs may not that come after this one in the order of the pass. beyond_share: nodes
    that were created for the gang, and do not count against the share.
    """

    kind: ReservationKind
    gang: str
    nodes: frozenset[str]
    since: float
    until: float
    ends: datetime
    whose: str = ""
    holder: str = ""
    priority: int | None = None
    beyond_share: frozenset[str] = frozenset()

    @property
    def counted(self) -> frozenset[str]:
        """Its nodes that count against the share."""
        return self.nodes - self.beyond_share

    def closed_to(self, _waiting: Iterable[Pod], _view: View) -> frozenset[str]:
        """The nodes that these waiting pods of another gang may not use."""
        return self.nodes

    def merge(self, other: "Reservation") -> "Reservation":
        """This one with the nodes and the time of another."""
        return replace(
            self,
            nodes=self.nodes | other.nodes,
            since=min(self.since, other.since),
            until=max(self.until, other.until),
            ends=max(self.ends, other.ends),
            whose=self.whose or other.whose,
        )


class Cooldown(NamedTuple):
    """A node whose reservation expired unused: only the same holder can reserve it until then."""

    holder: str
    until: float


@dataclass(frozen=True)
class ReservedNodes(NodeRule):
    """The rule for a gang, of this namespace, that these reservations for others exclude."""

    reservations: tuple[Reservation, ...] = ()
    namespace: str = ""

    @property
    def is_firm(self) -> bool:
        return any(each.kind.is_firm for each in self.reservations)

    @property
    def note(self) -> str:
        return reserved_sentence(self.reservations, self.namespace)


@dataclass(frozen=True)
class ReservationLedger:
    """All reservations of one pass. The next pass starts from the ledger that this one leaves.

    Losing it delays: reservations for starving gangs begin again, the time of the others begins again.

    most: how many nodes may be reserved in all. cooldowns: by node. order: Placement -> its gang's position
    among those that are asked about in the pass. promised: nodes for later stages in plans of this pass.
    replacements: the requests of pods of plans. paused_until: until when nothing is reserved for starving
    gangs, if a gang in stages has waited for the share in the last pass (stages_waited); stages_wait records
    this for the next pass. used: the reservations of gangs that have found their place in this pass, as long
    as their plans are not written. planned: the uids of pods in plans. gated_at: by Placement, when a pod of
    its gang last had the gate of another controller, in seconds of Moment.
    """

    settings: Settings = field(default_factory=Settings)
    now: Moment = START
    most: int = 0
    reservations: tuple[Reservation, ...] = ()
    cooldowns: Mapping[str, Cooldown] = field(default_factory=dict)
    order: Mapping[str, int] = field(default_factory=dict)
    promised: frozenset[str] = frozenset()
    replacements: Replacements = field(default_factory=Replacements)
    paused_until: float = float("-inf")
    stages_waited: bool = False
    stages_wait: bool = False
    used: tuple[Reservation, ...] = ()
    planned: Set[str] = frozenset()
    gated_at: Mapping[str, float] = field(default_factory=dict)

    # --- the reserved nodes ---------------------------------------------------------------------

    def rules(self, gang: PodGang, waiting: Sequence[Pod], view: View) -> Iterator[NodeRule]:
        """The nodes that these waiting pods of a gang may not use, as they are reserved for others."""
        others = self._others(gang, waiting, view)
        by_kind = grouped(((each.kind.of_new_nodes, each.kind.is_firm), each) for each in others)
        for (is_new, _), some in by_kind.items():
            kind = RuleKind.RESERVED_NEW if is_new else RuleKind.RESERVED
            yield ReservedNodes(
                nodes_of(some), "", kind, is_hard=True, reservations=tuple(some), namespace=gang.key.namespace
            )

    def _others(self, gang: PodGang, waiting: Sequence[Pod], view: View) -> tuple[Reservation, ...]:
        """Pods that must have ended before a reservation does may use its nodes, unless it is firm.

        Where two plans reserve one node for later stages, both were placed there with capacity for each
        other.
        """
        key = gang.key.placement_key
        names = key, gang.controller.placement_key
        others = [each for each in self.reservations if each.nodes and each.gang not in names]
        if not others:
            return ()
        ends = self.now.seconds + longest_run(waiting)
        own = self.of(key, LATER_STAGE)
        position = self.order.get(key, len(self.order))
        return tuple(
            replace(each, nodes=each.closed_to(waiting, view) - own)
            for each in others
            if (each.kind.is_firm or ends > each.until)
            and (
                self.order.get(each.gang, position) < position
                if each.priority is None
                else each.priority >= gang.priority
            )
        )

    def of(self, gang: str, kind: ReservationKind | None = None) -> frozenset[str]:
        """The nodes that are reserved for a gang, by its Placement."""
        return nodes_of(each for each in self.reservations if each.gang == gang and kind in (None, each.kind))

    def of_kind(self, kind: ReservationKind) -> tuple[Reservation, ...]:
        """All reservations of a kind, also those without nodes."""
        return tuple(each for each in self.reservations if each.kind is kind)

    def nodes(self, kind: ReservationKind | None = None) -> frozenset[str]:
        """All reserved nodes, of one kind or of all."""
        return nodes_of(each for each in self.reservations if kind in (None, each.kind))

    def by_gang(self, kind: ReservationKind | None = None) -> dict[str, Reservation]:
        """By Placement, all nodes reserved for its gang."""
        there = (each for each in self.reservations if each.nodes and kind in (None, each.kind))
        return _merged((each.gang, each) for each in there)

    def reported(self) -> dict[str, Reservation]:
        """By Placement, what its status says: also that the time for its later stages is over."""
        found = (each for each in self.reservations if each.nodes or each.kind is LATER_STAGE)
        return _merged((each.gang, each) for each in found)

    def cooling(self, but: str = "") -> frozenset[str]:
        """Nodes that cannot be reserved now. but: a holder that may reserve again what it had."""
        return frozenset(name for name, each in self.cooldowns.items() if not but or each.holder != but)

    @property
    def taken(self) -> frozenset[str]:
        """Nodes that are reserved, or will be by plans of this pass."""
        return self.nodes() | self.promised

    @property
    def beyond_share(self) -> frozenset[str]:
        """Nodes that were created for the gangs for which they are reserved."""
        return frozenset().union(*(each.nodes & each.beyond_share for each in self.reservations))

    @property
    def left(self) -> int:
        """How many more nodes can be reserved."""
        return self.most - len(self.taken - self.beyond_share)

    def beside(self, gang: PodGang) -> frozenset[str]:
        """The nodes that count against the share when a gang in stages begins.

        Reservations for starving gangs count only against gangs whose later pods are bound to a domain: those
        of other gangs may go anywhere, and one large waiting gang must not keep all of these from beginning.
        """
        is_bound = bool(gang.required_level or gang.slices or gang.parts)
        others = (
            each.counted
            for each in self.reservations
            if each.gang != gang.key.placement_key and (is_bound or each.kind is not STARVATION)
        )
        return self.promised.union(*others)

    def has_waited_long(self, gang: PodGang) -> bool:
        """Whether a gang has waited so long that nodes are reserved for it."""
        return self.has_waited(gang, self.settings.reserve_seconds)

    def has_waited(self, gang: PodGang, seconds: float) -> bool:
        """Whether the oldest of its waiting pods is so old, without the time behind the gates of others."""
        behind_us = self.now.seconds - self.gated_at.get(gang.key.placement_key, float("-inf"))
        return min(seconds_waited(gang.gated, self.planned, self.now.at), behind_us) >= seconds

    # --- the ledger after something has happened ------------------------------------------------

    def in_order(self, gangs: Sequence[PodGang]) -> "ReservationLedger":
        """These gangs are asked about, in this order; nothing is reserved for other waiting gangs."""
        order = {gang.key.placement_key: number for number, gang in enumerate(gangs)}
        ledger = replace(self, order=order)
        for each in self.reservations:
            if each.kind is STARVATION and (each.gang not in order or self.now.seconds >= each.until):
                ledger = ledger._expired(each)
        return ledger

    def renewed(self, kind: ReservationKind, found: Iterable[Reservation], view: View) -> "ReservationLedger":
        """With these reservations of a kind; nodes that the earlier ones did not use get a cooldown."""
        before, found = self.of_kind(kind), tuple(found)
        if not before and not found:
            return self
        others = (each for each in self.reservations if each.kind is not kind)
        ledger = replace(self, reservations=(*others, *found))
        lost = nodes_of(before) - ledger.nodes()
        if lost:  # reading every planned pod takes long, so it is done only where it matters
            lost -= {entry.node for each in view.placements.values() for entry in each.spec.pods}
        for each in before:
            ledger = ledger._cooled(each, each.nodes & lost)
        return ledger

    def promise(self, nodes: Iterable[str]) -> "ReservationLedger":
        """A plan of this pass reserves these for later stages."""
        return replace(self, promised=self.promised.union(nodes))

    def leave_share_to_stages(self) -> "ReservationLedger":
        """A gang in stages has waited long for the share of nodes that may be reserved.

        When reservations expire unused, it comes first: for reserve_hold_seconds nothing is reserved for
        starving gangs.
        """
        return replace(self, stages_wait=True)

    @property
    def is_paused(self) -> bool:
        """Whether nothing is reserved for starving gangs at the moment."""
        return self.stages_waited and self.now.seconds < self.paused_until

    def placed(self, gang: GangKey) -> "ReservationLedger":
        """The gang has found its place: its reservation is in use, or not needed."""
        before = self._starving(gang.placement_key)
        return self if before is None else replace(self._without(before), used=(*self.used, before))

    def unplaced(self, gangs: Set[GangKey]) -> "ReservationLedger":
        """The plans of these gangs were not written after all: each has its reservation again.

        Nodes are left out that have been reserved for others since, and those beyond the current share.
        """
        ledger, names = self, {gang.placement_key for gang in gangs}
        for each in self.used:
            if each.gang in names:
                nodes = frozenset(sorted(each.nodes - ledger.taken)[: max(0, ledger.left)])
                again = replace(each, nodes=nodes)
                ledger = replace(ledger, reservations=(*ledger.reservations, again))
        return ledger

    def give_up(self, gang: GangKey) -> "ReservationLedger":
        """The gang cannot be placed as it is now, whatever becomes free."""
        before = self._starving(gang.placement_key)
        return self._expired(before) if before is not None else self

    def reserve(self, gang: GangKey, nodes: Iterable[str]) -> "ReservationLedger":
        """Reserve these nodes for a gang that waits, or the first of them as far as the share allows.

        Nodes in cooldown are left out. The time of an earlier reservation of the gang continues: until its
        recreated pods are surely bound, and for twice the usual time at most.
        """
        key, before = gang.placement_key, self._starving(gang.placement_key)
        ledger = self._without(before)
        closed = ledger.taken | self.cooling()
        free = [name for name in nodes if name not in closed]
        chosen = frozenset(free[: max(0, ledger.left)])
        now, seconds = self.now.seconds, self.settings.reserve_hold_seconds
        since, until = now, now + seconds
        if before is not None:
            ledger = ledger._cooled(before, before.nodes - chosen)
            since = before.since
            until = max(before.until, min(now + self.settings.bind_seconds, since + 2 * seconds))
        ends = self.now.at + timedelta(seconds=until - now)
        made = Reservation(STARVATION, key, chosen, since, until, ends, str(gang), key)
        logger.info("nodes_reserved gang=%s nodes=%d", gang, len(chosen))
        return replace(ledger, reservations=(*ledger.reservations, made))

    def _starving(self, gang: str) -> Reservation | None:
        found = (each for each in self.reservations if each.kind is STARVATION and each.gang == gang)
        return next(found, None)

    def without_holder(self, holder: str) -> "ReservationLedger":
        """Without the reservations of this holder, whose pods have their place."""
        return replace(self, reservations=tuple(each for each in self.reservations if each.holder != holder))

    def _without(self, reservation: Reservation | None) -> "ReservationLedger":
        if reservation is None:
            return self
        left = tuple(each for each in self.reservations if each is not reservation)
        return replace(self, reservations=left)

    def _expired(self, reservation: Reservation) -> "ReservationLedger":
        logger.info("reservation_expired gang=%s nodes=%d", reservation.whose, len(reservation.nodes))
        paused = self.now.seconds + self.settings.reserve_hold_seconds
        ledger = replace(self._without(reservation), paused_until=paused)
        return ledger._cooled(reservation, reservation.nodes)

    def _cooled(self, reservation: Reservation, nodes: Set[str]) -> "ReservationLedger":
        """These nodes of a reservation cool down for as long as they were reserved."""
        if not nodes:
            return self
        until = 2 * self.now.seconds - reservation.since
        added = dict.fromkeys(nodes, Cooldown(reservation.holder, until))
        return replace(self, cooldowns={**self.cooldowns, **added})


@dataclass(frozen=True)
class ReservationInput:
    """The inputs of the reservations of a kind.

    ledger: with the reservations of this kind of the last pass, and the current ones of other kinds. gangs:
    all that have a waiting pod. snapshot: None if no gang waits. rules: those of the pass, without
    reservations. has_ended: whether the controller of a pod creates no more pods.
    """

    ledger: ReservationLedger
    gangs: Sequence[PodGang]
    view: View
    snapshot: Snapshot | None = None
    rules: NodeRules = field(default_factory=NodeRules)
    has_ended: Callable[[Pod], bool] = lambda _: False


@dataclass(frozen=True)
class ReservationSource:
    """Who makes the reservations of a kind. reserve: in each pass, all that hold in it."""

    kind: ReservationKind
    reserve: Callable[[ReservationInput], Iterable[Reservation]]


def opened(
    given: ReservationInput, sources: Sequence[ReservationSource], settings: Settings
) -> ReservationLedger:
    """The ledger of a pass, from the one that the last pass left.

    given: with that one. sources: the first come first. Reservations of a source that is no longer there end.
    """
    before, view = given.ledger, given.view
    kinds = {STARVATION, *(source.kind for source in sources)}
    ledger = replace(
        before,
        settings=settings,
        now=view.now,
        most=share_of(view.usable_count, settings),
        reservations=tuple(each for each in before.reservations if each.kind in kinds),
        cooldowns={name: each for name, each in before.cooldowns.items() if each.until > view.now.seconds},
        promised=frozenset(),
        replacements=before.replacements.after(view),
        stages_waited=before.stages_wait,
        stages_wait=False,
        used=(),
        planned=view.planned.keys(),
        gated_at=dict(_gated_at(before.gated_at, given.gangs, settings, view.now.seconds)),
    ).in_order(given.gangs)
    for source in sources:
        found = source.reserve(replace(given, ledger=ledger))
        ledger = ledger.renewed(source.kind, found, view)
    return ledger


def _gated_at(
    before: Mapping[str, float], gangs: Iterable[PodGang], settings: Settings, now: float
) -> Iterator[tuple[str, float]]:
    """See ReservationLedger. before: those of the last pass."""
    for gang in gangs:
        key = gang.key.placement_key
        if foreign_gates(gang.gated, settings.gate_prefix):
            yield key, now
        elif key in before:
            yield key, before[key]


def share_of(usable_nodes: int, settings: Settings) -> int:
    """How many of so many usable nodes may be reserved in all."""
    share = min(1.0, settings.reserve_share)
    return max(1, int(usable_nodes * share)) if share > 0 else 0


def reserved_sentence(reservations: Iterable[Reservation], namespace: str) -> str:
    """The reason for a gang of a namespace that may not use these nodes, "" if there are none.

    Gangs of other namespaces are not named: users who may read the Placements there find which nodes are
    reserved for which. Those of one name, such as the groups of one set, are reported together.
    """
    sentences: list[str] = []
    for sentence, some in grouped((each.kind.sentence, each) for each in reservations).items():
        shown = [
            f"{len(each.nodes)} for {name} until {each.ends:%H:%M} UTC"
            for name, each in _by_name(some, namespace)
        ]
        sentences.append(f"{sentence}: {few(shown, unit='gang')}")
    return "; ".join(sentences)


def _by_name(reservations: Iterable[Reservation], namespace: str) -> list[tuple[str, Reservation]]:
    by_gang = _merged((each.gang, each) for each in reservations)
    own = [each for each in by_gang.values() if each.whose.startswith(f"{namespace}/")]
    others = [each for each in by_gang.values() if each not in own]
    named = _merged((each.whose, each) for each in own)
    return [*named.items(), *(("a gang of another namespace", each) for each in others)]


def _merged(reservations: Iterable[tuple[str, Reservation]]) -> dict[str, Reservation]:
    found: dict[str, Reservation] = {}
    for name, each in reservations:
        found[name] = found[name].merge(each) if name in found else each
    return found


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
