"""Pods that the kubelet lists and the API server does not know, and which of them cannot be asking.

Static pods that the API server refused to mirror, and pods that were deleted by force, have no plan to read.
Each could be the one being served, until it is certain that the kubelet has admitted it.
"""

import contextlib
import threading
from collections.abc import Collection, Iterable, Iterator

from labeler.allocator.values import PodName


class SettledPods:
    """Who is settled, by what was listed when. Several threads may ask."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._in_flight = 0
        self._listed: frozenset[PodName] = frozenset()
        self._settled: frozenset[PodName] = frozenset()
        self._before: frozenset[PodName] = frozenset()

    def among(self, listing: Iterable[PodName], known: Collection[PodName]) -> set[PodName]:
        """Those of a list that are settled, and that the API server does not know."""
        return {key for key in listing if key in self._settled and key not in known}

    def update(self, listing: Iterable[PodName]) -> None:
        """Settle the pods listed before a new one came: the kubelet lists a pod just before it admits it.

        It admits one after the other (HandlePodAdditions), so that those listed before are admitted by then.
        """
        listed = frozenset(listing)
        with self._lock:
            if listed - self._before:
                self._settled |= self._before & listed
            self._before = listed

    def update_while_idle(self, listing: Iterable[PodName]) -> None:
        """Settle the pods of the last list as well, if nobody has asked for devices since."""
        listed = frozenset(listing)
        self.update(listed)
        with self._lock:
            if not self._in_flight:
                self._settled = (self._settled | self._listed) & listed
                self._listed = listed

    @contextlib.contextmanager
    def somebody_asks(self) -> Iterator[None]:
        """No list that is taken meanwhile settles by having been taken twice."""
        with self._lock:
            self._in_flight += 1
            self._listed = frozenset()  # a list from before this moment may still be on its way
        try:
            yield
        finally:
            with self._lock:
                self._in_flight -= 1

    def kubelet_restarted(self) -> None:
        """It admits its pods again, in another order."""
        with self._lock:
            self._before = frozenset()
