"""The reported state of gangs that wait, as a value: why they wait, and what delays their pods' labels,
release or eviction. Pure.

The answers of an overloaded API server vary; a delay is reported once. The status has the last answer for the
first of the delayed pods.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final, NamedTuple

from labeler.contract.event_reasons import EventReason
from webhook.configuration.settings import Settings
from webhook.kube.events import shortened
from webhook.kube.objects import Pod
from webhook.kube.placements import Placement
from webhook.sweeper.decide.orders import Cause, Delay, Done, Orders, Warn
from webhook.sweeper.observe.gangs import GangKey, PodGang
from webhook.sweeper.observe.view import View
from webhook.text import joined, printable

_OF_GATED: Final = (
    EventReason.LABELS_DEFERRED,
    EventReason.LABELS_REFUSED,
    EventReason.RELEASE_DEFERRED,
    EventReason.RELEASE_REFUSED,
)
_ALL: Final = (*_OF_GATED, EventReason.EVICTION_DEFERRED, EventReason.EVICTION_REFUSED)
_NAMED: Final = 3
"""Pods that a sentence names beside the first."""

REASON_BYTES: Final = 4096
"""A reason is cut to this length, since it quotes text that authors choose."""


class GangReason(NamedTuple):
    """The last report. cause: None for a gang that has its place, INCOMPLETE for one that settles."""

    reason: str
    cause: Cause | None = None


GangReasons = Mapping[GangKey, GangReason]


def reasons_after(reasons: GangReasons, news: Orders | Done) -> GangReasons:
    """With these decisions or results; the same object if nothing is new."""
    placed = news.placed if isinstance(news, Done) else ()
    if not news.outcomes and not placed:
        return reasons
    found = dict(reasons)
    for outcome in news.outcomes:
        found[outcome.gang.key] = GangReason(
            reason_of(outcome.gang, outcome.reason, outcome.cause), outcome.cause
        )
    for plan in placed:
        found[plan.gang.key] = GangReason(reason_of(plan.gang))
    return found


def causes_of(reasons: GangReasons) -> Mapping[GangKey, Cause]:
    """Why gangs wait, in one word."""
    return {key: each.cause for key, each in reasons.items() if each.cause is not None}


def reason_of(gang: PodGang, reason: str = "", cause: Cause | None = None) -> str:
    """The sentence that is written of a gang. reason: why it waits, "" where it has its place."""
    problems = () if cause is Cause.INCOMPLETE else gang.problems
    return shortened(printable(joined(reason, *problems)), REASON_BYTES)


# --- delays of pods -----------------------------------------------------------------------------------


class _PodDelay(NamedTuple):
    """The last answer for a pod, in a sentence, and when it came."""

    gang: GangKey
    reason: EventReason
    kind: str
    note: str
    at: float


@dataclass(frozen=True)
class Delays:
    """Delays of pods of gangs, by uid, in the order in which they were first reported."""

    by_uid: Mapping[str, _PodDelay] = field(default_factory=dict)

    @cached_property
    def _notes(self) -> Mapping[tuple[GangKey, EventReason], str]:
        """The sentence of the first pod of each gang."""
        notes: dict[tuple[GangKey, EventReason], str] = {}
        for each in self.by_uid.values():
            notes.setdefault((each.gang, each.reason), each.note)
        return notes

    def notes_of(self, gang: GangKey) -> Sequence[str]:
        """The delays of a gang's pods, in sentences."""
        return [note for each in _ALL if (note := self._notes.get((gang, each))) is not None]

    def news(self, done: Done) -> Sequence[Warn]:
        """Of each gang the delays that were not reported yet."""
        found: defaultdict[tuple[GangKey, EventReason], list[Delay]] = defaultdict(list)
        for delay in done.delays:
            found[delay.gang, delay.reason].append(delay)
        return [
            Warn(own[0].pod, own[0].reason, own[0].note + _so_with([each.pod for each in own[1:]]))
            for key, own in found.items()
            if key not in self._notes
        ]

    def after(self, done: Done, now: float) -> "Delays":
        """With the results of orders."""
        if not self.by_uid and not done.delays:
            return self
        found = dict(self.by_uid)
        for delay in done.delays:
            uid = delay.pod.metadata.uid
            known = _PodDelay(delay.gang, delay.reason, delay.kind, delay.note, now)
            before = found.get(uid)
            if before is None or (before.gang, before.reason) != (delay.gang, delay.reason):
                found.pop(uid, None)  # it is the last of its gang now
            elif before.kind == delay.kind:
                # Of one kind the first is reported: its sentence may have ports, versions and times in it.
                known = before._replace(at=now)
            found[uid] = known
        for uid in _uids_over(done):
            found.pop(uid, None)
        return Delays(found)

    def current(self, view: View, gangs: Sequence[PodGang], since: float) -> "Delays":
        """Without delays that are over: the pod is released or gone, or was not tried since then."""
        if not self.by_uid:
            return self
        gated = {pod.metadata.uid for gang in gangs for pod in gang.gated}

        def holds(uid: str, delay: _PodDelay) -> bool:
            waits = uid in gated if delay.reason in _OF_GATED else _stands(view.by_uid.get(uid))
            return waits and delay.at >= since

        return Delays({uid: each for uid, each in self.by_uid.items() if holds(uid, each)})


def _uids_over(done: Done) -> set[str]:
    """Pods without a delay any more."""
    over = {planned.uid for planned in done.released}
    over |= {pod.metadata.uid for pod in (*done.labelled, *(order.pod for order in done.evicted))}
    # A pod that was replaced, or has a node, is checked again: its delay is over.
    stay = {delay.pod.metadata.uid for delay in done.delays}
    stay |= {order.pod.metadata.uid for order in done.deferred}
    return over | ({order.pod.metadata.uid for order in done.denied} - stay)


def _so_with(others: Sequence[Pod]) -> str:
    """A clause on further pods of the gang, "" if there are none."""
    named = ", ".join(pod.metadata.name for pod in others[:_NAMED])
    more = ", ..." if len(others) > _NAMED else ""
    return f"; likewise {len(others)} more of its pods: {named}{more}" if others else ""


def _stands(pod: Pod | None) -> bool:
    return pod is not None and not pod.metadata.deletion_timestamp


# --- the whole memory ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class ReportMemory:
    """All that was reported; if it is lost, all is reported once more.

    reasons: why gangs wait. delays: of their pods. waiters: sentences on the unconfirmed releases for which
    they wait. notes: of extensions. missed: the Placements that passes did not come to write, and since when.
    bound: by Placement, the uids of pods that have been bound, until all have; without it, those that are
    gone count as never bound.
    """

    reasons: GangReasons = field(default_factory=dict)
    delays: Delays = field(default_factory=Delays)
    waiters: Mapping[GangKey, str] = field(default_factory=dict)
    notes: Mapping[GangKey, str] = field(default_factory=dict)
    missed: Mapping[str, float] = field(default_factory=dict)
    bound: Mapping[str, Set[str]] = field(default_factory=dict)

    def after(self, news: Orders | Done, now: float) -> "ReportMemory":
        """With these decisions or results."""
        delays = self.delays.after(news, now) if isinstance(news, Done) else self.delays
        return replace(self, reasons=reasons_after(self.reasons, news), delays=delays)

    def current(self, view: View, gangs: Sequence[PodGang], now: float, settings: Settings) -> "ReportMemory":
        """Without gangs that are gone, and delays that are over."""
        living = {gang.key for gang in gangs}
        # All is tried again in such a time, unless it is not wanted any more.
        since = now - 2 * max(settings.interval_seconds, settings.rollback_seconds)
        return replace(
            self,
            reasons={key: each for key, each in self.reasons.items() if key in living},
            delays=self.delays.current(view, gangs, since),
        )

    def with_bound(self, unfinished: Iterable[Placement], view: View) -> "ReportMemory":
        """With the pods of these plans that are bound now; of other plans they are forgotten."""
        bound = {
            plan.key: self.bound.get(plan.key, frozenset())
            | {pod.metadata.uid for pod in view.pods_of(plan) if pod.spec.node_name}
            for plan in unfinished
            if not plan.is_complete
        }
        return replace(self, bound=bound)

    def sentence(self, key: GangKey) -> str:
        """The reason why a gang waits, and its other reports."""
        reason = known.reason if (known := self.reasons.get(key)) is not None else ""
        delays = self.delays.notes_of(key)
        parts = (reason, *delays, self.waiters.get(key, ""), self.notes.get(key, ""))
        return shortened(printable(joined(*parts)), REASON_BYTES)
