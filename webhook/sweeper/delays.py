"""What keeps the pods of a gang from being released: one Event for a gang, and the last answer in its status.

An overloaded API server answers now so and now so; that it is put off is one thing to tell.
"""

from collections.abc import Iterable, Set
from dataclasses import dataclass, field

from webhook.sweeper.context import Announcer
from webhook.sweeper.decide.orders import Delay
from webhook.sweeper.observe.gangs import GangKey
from webhook.text import printable


@dataclass
class _Told:
    """Of a gang: the last answer, and the uids of its pods for which one holds."""

    kind: str
    note: str
    uids: set[str] = field(default_factory=set)


class Delays:
    """What was told, for as long as it holds for a pod of the gang."""

    def __init__(self, announcer: Announcer) -> None:
        self._announcer = announcer
        self._told: dict[GangKey, _Told] = {}
        self._gangs: dict[str, GangKey] = {}

    def hear(self, delays: Iterable[Delay]) -> None:
        """Announce those of gangs of which nothing is told yet."""
        for delay in delays:
            uid = delay.pod.metadata.uid
            told = self._told.get(delay.gang)
            if told is None:
                told = self._told[delay.gang] = _Told(delay.kind, delay.note)
                self._announcer.say(delay.pod, "ReleasePutOff", printable(delay.note), warning=True)
            elif told.kind != delay.kind:
                # Of one kind the first is told: its sentence may have ports, versions and times in it.
                told.kind, told.note = delay.kind, delay.note
            if self._gangs.get(uid, delay.gang) != delay.gang:
                self.over([uid])
            told.uids.add(uid)
            self._gangs[uid] = delay.gang

    def over(self, uids: Iterable[str]) -> None:
        """These pods are delayed no more."""
        for uid in uids:
            if (gang := self._gangs.pop(uid, None)) is None:
                continue
            told = self._told[gang]
            told.uids.discard(uid)
            if not told.uids:
                del self._told[gang]

    def keep_only(self, uids: Set[str]) -> None:
        """Only these pods wait still."""
        self.over([uid for uid in self._gangs if uid not in uids])

    def note_of(self, gang: GangKey) -> str:
        """What keeps pods of a gang, "" if nothing does."""
        told = self._told.get(gang)
        return told.note if told is not None else ""
