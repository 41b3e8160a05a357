"""Releases of pods with cards that have failed: which may have arrived all the same, and who goes after whom.

On a node with cards one pod goes at a time. A release that may still arrive keeps its node's turn; one of
which it is known that it did not, and will not, goes to the end of the line.
"""

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from labeler.contract.annotations import encode_timestamp
from webhook.kube.planned import PlannedPod
from webhook.sweeper.decide.orders import Done, FailedRelease, Pair
from webhook.sweeper.decide.timestamps import Timestamps, turn_of
from webhook.sweeper.observe.view import View

LOST_SECONDS: Final = 120.0
"""How long a request may still arrive that got no answer, or that a leader before has sent: TCP repeats what
an ended connection has left for some 100 s."""

_TRIES_IN_DOUBT: Final = 2
"""So often a release in doubt is tried although others wait for its node: an API server that restarts
answers soon."""


@dataclass
class _DoubtfulRelease:
    """A release that may have arrived, or may still do so; it is one until the pod has been read after that.

    tries: how often since it is in doubt; until: when it arrives no more, until_ns: by the time of day.
    """

    pair: Pair
    until: float = 0.0
    until_ns: int = 0
    tries: int = 0


class Tries:
    """What is known of them; losing it puts the failures of the next two minutes in doubt.

    The next leader tries the first of each line first, which is safe whatever became of an earlier try: who
    goes out of line, after a failure of the first, has been written down as the first before.
    """

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, now_ns: Callable[[], int] = time.time_ns
    ) -> None:
        """now_ns: the time of day, as in gas-ts."""
        self._clock = clock
        self._now_ns = now_ns
        self._timestamps = Timestamps()
        self._began, self._began_ns = clock(), now_ns()
        self._doubts: dict[tuple[str, str], _DoubtfulRelease] = {}
        self._again_at: dict[str, float] = {}
        """By uid: wherever a pod is planned by now, it is tried no sooner."""
        self._failed_at: dict[str, str] = {}
        """By namespace when one failed last, as a gas-ts; likewise by uid:"""
        self._pod_failed_at: dict[str, str] = {}

    def hear(self, done: Done) -> None:
        """What became of releases.

        One that is in doubt stays so where a later try was answered as done, until that shows: somebody's
        webhook may have undone it.
        """
        for failed in done.failed_releases:
            if failed.is_read:
                self._was_read(failed)
            else:
                self._failed(failed)

    def _failed(self, failed: FailedRelease) -> None:
        pod, planned = failed.pair
        now = self._clock()
        self._again_at[planned.uid] = now + failed.again_seconds
        # Nobody here knows what a leader before has sent.
        until = max(self._began + LOST_SECONDS, now + failed.doubt_seconds)
        if until > now or _key(planned) in self._doubts:
            known = self._doubts.setdefault(_key(planned), _DoubtfulRelease(failed.pair))
            known.pair, known.tries = failed.pair, known.tries + 1
            if until > max(now, known.until):
                self._lasts(known, until)
        at = encode_timestamp(self._timestamps.next(self._now_ns()))
        self._failed_at[pod.metadata.namespace] = self._pod_failed_at[planned.uid] = at

    def _was_read(self, failed: FailedRelease) -> None:
        key = _key(failed.pair[1])
        if not failed.doubt_seconds:
            self._doubts.pop(key, None)
        elif key in self._doubts:
            self._lasts(self._doubts[key], self._clock() + failed.doubt_seconds)

    def _lasts(self, known: _DoubtfulRelease, until: float) -> None:
        known.until = until
        known.until_ns = self._now_ns() + int((until - self._clock()) * 1e9)

    def look(self, view: View) -> None:
        """Forget pods that are gone, or that the view shows released.

        What fails then comes after all that is planned there, also where the clock has been set back since.
        """
        self._timestamps.saw(planned.annotations for planned in view.planned.values())
        if self._doubts or self._failed_at:
            gated = {pod.metadata.uid for pod in view.gated}
            self._doubts = {key: each for key, each in self._doubts.items() if key[0] in gated}
            self._again_at = {uid: at for uid, at in self._again_at.items() if uid in gated}
            self._pod_failed_at = {uid: at for uid, at in self._pod_failed_at.items() if uid in gated}
            namespaces = {pod.metadata.namespace for pod in view.gated}
            self._failed_at = {name: at for name, at in self._failed_at.items() if name in namespaces}

    def place_in_line(self, pair: Pair) -> tuple[str, str, str]:
        """To sort by: when it was planned, or when a release of its namespace failed last, if that was later.

        So each failure is one turn that others do without, however many pods the namespace has. Among its
        own pods those come first that have not failed, then those whose failure is longest ago.
        """
        pod, planned = pair
        stamp = turn_of(planned)
        failed_at = self._failed_at.get(pod.metadata.namespace, "")
        return max(stamp, failed_at), self._pod_failed_at.get(planned.uid, ""), stamp

    def seconds_unknown(self) -> float:
        """How much longer what the leader before has sent may arrive, which nobody here knows."""
        return max(0.0, self._began + LOST_SECONDS - self._clock())

    def unknown_until(self) -> datetime:
        """Likewise, by the time of day, in whole seconds."""
        return datetime.fromtimestamp(math.ceil(self._began_ns / 1e9 + LOST_SECONDS), UTC)

    def in_doubt(self) -> Iterator[Pair]:
        """Releases that may have arrived, or may still do so."""
        return (each.pair for each in self._doubts.values())

    def seconds_in_doubt(self, planned: PlannedPod) -> float:
        """How much longer one in doubt may still arrive; 0 if its pod is to be read now."""
        return max(0.0, self._doubts[_key(planned)].until - self._clock())

    def in_doubt_until(self, planned: PlannedPod) -> datetime:
        """Likewise, by the time of day, in whole seconds."""
        return datetime.fromtimestamp(math.ceil(self._doubts[_key(planned)].until_ns / 1e9), UTC)

    def rests(self, planned: PlannedPod) -> bool:
        """Whether one in doubt is not tried while others wait for its node, so that the doubt can end."""
        known = self._doubts.get(_key(planned))
        if known is None:
            return False
        return known.tries >= _TRIES_IN_DOUBT or known.until <= self._clock()

    def seconds_left(self, planned: PlannedPod) -> float:
        """How much longer one that has failed is not to be tried."""
        return max(0.0, self._again_at.get(planned.uid, 0.0) - self._clock())


def _key(planned: PlannedPod) -> tuple[str, str]:
    return planned.uid, planned.node
