"""What keeps the pods of a gang from being released: one Event for a gang and cause, not one for each pod."""

from collections.abc import Callable, Iterable

from webhook.sweeper.context import Announcer
from webhook.sweeper.decide.orders import Delay
from webhook.sweeper.observe.gangs import GangKey
from webhook.text import printable


class Delays:
    """What was told, for as long as it holds for a pod of the gang."""

    def __init__(self, announcer: Announcer) -> None:
        self._announcer = announcer
        self._delays: dict[GangKey, dict[str, Delay]] = {}

    def hear(self, delays: Iterable[Delay]) -> None:
        """Announce those that are news."""
        for delay in delays:
            known = self._delays.setdefault(delay.gang, {})
            # Of one kind the first is told: its sentence may have ports, versions and times in it.
            same = next((each for each in known.values() if each.kind == delay.kind), None)
            if same is None:
                self._announcer.say(delay.pod, "ReleasePutOff", printable(delay.note), warning=True)
            known[delay.pod.metadata.uid] = same or delay

    def keep(self, stays: Callable[[str], bool]) -> None:
        """Forget pods of which this does not hold; stays: told their uids."""
        left = {
            key: {uid: delay for uid, delay in own.items() if stays(uid)} for key, own in self._delays.items()
        }
        self._delays = {key: own for key, own in left.items() if own}

    def note_of(self, gang: GangKey) -> str:
        """What keeps pods of a gang, "" if nothing does."""
        return next((each.note for each in self._delays.get(gang, {}).values()), "")
