"""What keeps pods of a gang from their labels, release or eviction: one Event for a gang, and its status.

An overloaded API server answers now so and now so; that it is put off is one thing to tell. The status has
the last answer for the first of the pods for which one holds.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from labeler.contract.event_reasons import EventReason
from webhook.kube.objects import Pod
from webhook.sweeper.context import Pass
from webhook.sweeper.decide.orders import Delay, Done
from webhook.sweeper.observe.gangs import GangKey, PodGang
from webhook.sweeper.observe.view import View
from webhook.text import printable

_OF_GATED: Final = (
    EventReason.LABELS_DEFERRED,
    EventReason.LABELS_REFUSED,
    EventReason.RELEASE_DEFERRED,
    EventReason.RELEASE_REFUSED,
)
_ALL: Final = (*_OF_GATED, EventReason.EVICTION_DEFERRED, EventReason.EVICTION_REFUSED)
_NAMED: Final = 3
"""Pods that a sentence names beside the first."""


@dataclass
class _Told:
    """The last answer for a pod, in a sentence, and when it came."""

    kind: str
    note: str
    at: float = 0.0


class Delays:
    """What was told, for as long as it holds for a pod of the gang."""

    def __init__(self, surroundings: Pass) -> None:
        self._announcer = surroundings.announcer
        self._clock = surroundings.clock
        settings = surroundings.settings
        # All is tried again in such a time, unless it is not wanted any more.
        self._lasts = 2 * max(settings.interval_seconds, settings.rollback_seconds)
        self._told: dict[tuple[GangKey, EventReason], dict[str, _Told]] = {}
        """By uid, in the order in which they were told of first."""
        self._of: dict[str, tuple[GangKey, EventReason]] = {}

    def hear(self, done: Done) -> None:
        """Announce of each gang what is not told of it yet."""
        alike: defaultdict[tuple[GangKey, EventReason], list[Pod]] = defaultdict(list)
        for delay in done.delays:
            alike[delay.gang, delay.hindered].append(delay.pod)
        for delay in done.delays:
            self._note(delay, alike[delay.gang, delay.hindered][1:])
        for planned in done.released:
            self._over(planned.uid)
        for pod in (*done.labelled, *(order.pod for order in done.evicted)):
            self._over(pod.metadata.uid)
        # A pod that is another by now, or has a node, is judged anew: what was said of it does not hold.
        stay = {delay.pod.metadata.uid for delay in done.delays}
        stay |= {order.pod.metadata.uid for order in done.put_off}
        for order in done.denied:
            if order.pod.metadata.uid not in stay:
                self._over(order.pod.metadata.uid)

    def _note(self, delay: Delay, others: Sequence[Pod]) -> None:
        """others: further pods of the gang of which the same is to be told."""
        key, uid = (delay.gang, delay.hindered), delay.pod.metadata.uid
        if key not in self._told:
            note = delay.note + _so_with(others)
            self._announcer.say(delay.pod, delay.hindered, printable(note))
        if self._of.get(uid, key) != key:
            self._over(uid)
        self._of[uid] = key
        told = self._told.setdefault(key, {}).setdefault(uid, _Told(delay.kind, delay.note))
        if told.kind != delay.kind:
            # Of one kind the first is told: its sentence may have ports, versions and times in it.
            told.kind, told.note = delay.kind, delay.note
        told.at = self._clock()

    def _over(self, uid: str) -> None:
        if (key := self._of.pop(uid, None)) is None:
            return
        del self._told[key][uid]
        if not self._told[key]:
            del self._told[key]

    def look(self, view: View, gangs: Sequence[PodGang]) -> None:
        """Forget what does not hold any more: the pod is released or gone, or it was not tried for long."""
        gated = {pod.metadata.uid for gang in gangs for pod in gang.gated} if self._of else frozenset()
        since = self._clock() - self._lasts
        for uid, key in list(self._of.items()):
            pod = view.by_uid.get(uid)
            waits = uid in gated if key[1] in _OF_GATED else _stands(pod)
            if not waits or self._told[key][uid].at < since:
                self._over(uid)

    def notes_of(self, gang: GangKey) -> Sequence[str]:
        """What keeps pods of a gang, in sentences."""
        found = (self._told.get((gang, each)) for each in _ALL)
        return [next(iter(told.values())).note for told in found if told]


def _so_with(others: Sequence[Pod]) -> str:
    """What is said of further pods of the gang, "" if there are none."""
    named = ", ".join(pod.metadata.name for pod in others[:_NAMED])
    more = ", ..." if len(others) > _NAMED else ""
    return f"; likewise {len(others)} more of its pods: {named}{more}" if others else ""


def _stands(pod: Pod | None) -> bool:
    return pod is not None and not pod.metadata.deletion_timestamp
