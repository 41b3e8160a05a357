"""Whether a gang is to be placed now, and what is told of one that is not."""

from collections.abc import Sequence

from webhook.kube.objects import Pod
from webhook.sweeper.decide.avoided import Avoided
from webhook.sweeper.decide.companions import wait_for_nobody
from webhook.sweeper.decide.completion import Completion
from webhook.sweeper.decide.orders import Cause
from webhook.sweeper.decide.reservations import Reservations
from webhook.sweeper.decide.rounds import Round
from webhook.sweeper.decide.urgency import held_by_others
from webhook.sweeper.observe.gangs import PodGang
from webhook.sweeper.observe.pins import scheduler_of
from webhook.sweeper.settings import Settings


class Due:
    """Judges gangs one by one; who has to wait is noted in the round."""

    def __init__(
        self, settings: Settings, avoided: Avoided, completion: Completion, reservations: Reservations
    ) -> None:
        self._settings = settings
        self._avoided = avoided
        self._completion = completion
        self._reservations = reservations

    def is_due(self, gang: PodGang, waiting: Sequence[Pod], now: Round) -> bool:
        """Whether the gang, of which these pods wait, is to be placed now."""
        if gang.key in now.ground.going:  # once the others are gone it comes again with them
            now.unasked.add(gang.key)
            return False
        if holders := held_by_others(waiting, self._settings.gate_prefix):
            # A place taken now would stand empty, and be missing to those that may run.
            reason = f"held by the gate {', '.join(holders)}; placed when that is gone"
            return self.stops(gang, reason, Cause.OTHER_GATE, now)
        if strange := {scheduler_of(pod) for pod in waiting} - self._settings.schedulers:
            served = ", ".join(sorted(self._settings.schedulers))
            reason = f"its scheduler {min(strange)!r} is none to which pods are released: {served}"
            return self.stops(gang, reason, Cause.OTHER_SCHEDULER, now)
        paused = self._avoided.paused_seconds(gang.key)
        if paused > 0:
            now.later(paused)
            now.unasked.add(gang.key)
            return False
        if gang.alone or wait_for_nobody(gang, waiting, now.view):
            return True
        if gang.hindrance and not self._settings.go_on_with_fewer:
            return self.stops(gang, "it waits for its other pods", Cause.HINDERED, now)
        remaining = self._completion.seconds(gang)
        if remaining > 0:
            now.later(remaining)
            expected = "its size is not known" if gang.size is None else f"{gang.size} are expected"
            now.waits(gang, f"{len(gang.pods)} pods are there, {expected}", Cause.INCOMPLETE)
            return False
        return True

    def stops(self, gang: PodGang, reason: str, cause: Cause, now: Round) -> bool:
        """Note that it waits for what no room helps against, so it holds nothing; returns False."""
        self._reservations.give_up(gang.key)
        now.waits(gang, reason, cause)
        return False
