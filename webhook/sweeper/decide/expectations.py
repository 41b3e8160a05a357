"""Releases that were written and that the watch does not show yet: such a pod is where it was sent."""

import time
from collections.abc import Callable, Iterable
from typing import Final

from webhook.kube.planned import PlannedPod
from webhook.sweeper.decide.orders import Done
from webhook.sweeper.observe.view import View

SEEN_SECONDS: Final = 300.0
"""How long a release that the watch does not show is believed to have happened."""


UNSEEN_SECONDS: Final = 10.0
"""A watch that goes on shows a release sooner: after this long its pod may be read, to know."""


class Expectations:
    """What is expected to be seen; losing it only makes the API server refuse a second release."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._released: dict[str, tuple[float, PlannedPod]] = {}

    def hear(self, done: Done) -> None:
        """What became of releases, and of those that were believed to be written."""
        for failed in done.failed_releases:
            self._released.pop(failed.pair[1].uid, None)
        self.add(done.released)

    def add(self, released: Iterable[PlannedPod]) -> None:
        """These have just been let go."""
        now = self._clock()
        self._released.update((planned.uid, (now, planned)) for planned in released)

    def __contains__(self, uid: object) -> bool:
        """Whether a pod that still looks gated has been let go."""
        return uid in self._released

    def seconds_to_show(self, uid: str) -> float:
        """How much longer that it has been let go may take to show; 0 if its pod is to be read now.

        Likewise where that has been found not to be so since the pass began.
        """
        at, _ = self._released.get(uid, (float("-inf"), None))
        return max(0.0, at + UNSEEN_SECONDS - self._clock())

    def seen(self, view: View) -> dict[str, PlannedPod]:
        """Forget what the view shows, and what is too old; returns uid -> where the others were sent."""
        now = self._clock()
        gated = {pod.metadata.uid for pod in view.gated}
        self._released = {
            uid: (at, planned)
            for uid, (at, planned) in self._released.items()
            if uid in gated and now - at < SEEN_SECONDS
        }
        return {uid: planned for uid, (_, planned) in self._released.items()}
