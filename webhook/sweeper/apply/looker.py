"""Read the pods of releases of which it is not known whether they are written, so that turns go on."""

import logging
from typing import Final

from webhook.kube.objects import Pod
from webhook.sweeper.apply.put_off import PutOff
from webhook.sweeper.apply.release import Outcome, Release, Releaser
from webhook.sweeper.context import Pass
from webhook.sweeper.decide.orders import Delay, Done, FailedRelease, Hindered, Orders
from webhook.sweeper.observe.gangs import key_of

_UNDONE: Final = "undone"

logger = logging.getLogger(__name__)


class Looker:
    """Looks, and remembers which pods could not be read, so that they take no time from the others."""

    def __init__(self, surroundings: Pass, releaser: Releaser) -> None:
        self._pass = surroundings
        self._releaser = releaser
        self._put_off = PutOff(surroundings.settings.interval_seconds, surroundings.clock)

    def look(self, orders: Orders) -> list[Done]:
        """What the pods say of releases in doubt, and of those that were answered as done and do not show."""
        self._put_off.forget_old()
        pairs = (*orders.looks, *orders.unseen)
        waits = {planned.uid: self._put_off.seconds_left(planned.uid) for _, planned in pairs}
        pods = {planned.uid: pod for pod, planned in pairs if not waits[planned.uid]}
        unseen = {planned.uid for _, planned in orders.unseen}
        due = [(pod, planned) for pod, planned in pairs if planned.uid in pods]
        done = [Done(again_seconds=seconds) for seconds in waits.values() if seconds]
        for release in self._releaser.look(due):
            uid = release.planned.uid
            done.append(self._seen(pods[uid], release, is_unseen=uid in unseen))
        return done

    def _seen(self, pod: Pod, release: Release, *, is_unseen: bool) -> Done:
        planned = release.planned
        if release.outcome is Outcome.RELEASED:
            return Done(released=(planned,))
        if release.outcome is Outcome.FAILED and not release.answer and not is_unseen:
            return Done(failed_releases=(FailedRelease((pod, planned), is_read=True),))
        seconds = self._put_off.again(planned.uid)
        if release.outcome is Outcome.GONE:
            return Done(again_seconds=seconds)  # the watch will show it
        if not release.answer:
            return self._undone(pod, release, seconds)
        if is_unseen:
            return Done(again_seconds=seconds)
        unread = FailedRelease((pod, planned), doubt_seconds=seconds, is_read=True)
        return Done(again_seconds=seconds, failed_releases=(unread,))

    def _undone(self, pod: Pod, release: Release, seconds: float) -> Done:
        planned = release.planned
        logger.warning("release_undone pod=%s/%s node=%s", pod.metadata.namespace, planned.name, planned.node)
        note = (
            "not released: the API server has taken its release, and it is gated all the same: see whether a "
            f"webhook undoes it; tried again, every {self._pass.settings.interval_seconds:g} s at least"
        )
        gang = key_of(pod, self._pass.settings.owner_rules)
        told = Delay(gang, pod, Hindered.RELEASE_PUT_OFF, _UNDONE, note)
        failed = FailedRelease((pod, planned), seconds)
        return Done(again_seconds=seconds, failed_releases=(failed,), delays=(told,))
