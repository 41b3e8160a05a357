"""A live copy of one collection of the API server: list, then watch, for ever.

Level-based: what it holds is what the API server held at some recent version. Nobody may act on a
copy that is not `synced`. A version that has expired (410) is answered by a fresh list, every other
trouble by trying again after a growing, jittered pause; a watch that fails again and again by a list.

What the API server says of itself is not all there is. kube-apiserver accepts a watch from a version that
it has not reached, as after a restore of etcd from a backup, and lets it end in time without an event. So
the collection is listed again

- before a watch, when neither a list nor an event nor a bookmark has confirmed the version for
  CONFIRMED_SECONDS: the watch before was silent, or the server was away for long;
- when a version is lower than the one before it: the history of the API server went back;
- every RELIST_SECONDS at the latest, for what no rule can see from here.

A list that is older than what has been seen is read once more, since a server may lag behind the others of
a control plane; when it stays older, etcd was restored, and it is taken.
"""

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Final, Generic

import msgspec

from webhook.kube.client import Api, ApiError
from webhook.kube.collection import WATCH_SECONDS, Collection, Listing
from webhook.kube.decoding import Event, ExpiredError, T
from webhook.kube.jitter import jitter

_MAX_PAUSE_SECONDS: Final = 30.0
_WATCH_FAILURES: Final = 3
"""So many in a row, and the version itself is doubted: an API server restored from a backup has never
received it, and answers with a time-out."""
CONFIRMED_SECONDS: Final = 0.75 * WATCH_SECONDS
"""For so long a version is gone on from without a word of the API server that confirms it: less than the
shortest watch lasts, so that a watch that ends without a word is followed by a list."""
RELIST_SECONDS: Final = 1800.0
"""The longest time from one list to the next, whatever the watches say."""
_GONE: Final = 410
_STOP_SECONDS: Final = 2.0
"""How long a stop waits for the thread. One that waits for a server's first word cannot be cut, and ends
by itself later: a leader that has lost its Lease must not wait for it."""

logger = logging.getLogger(__name__)


OnEvent = Callable[[T | None, T | None], None]
"""Called with (before, after): an added object has no before, a deleted one no after."""


class Informer(Generic[T]):
    """One collection, kept current by a thread of its own."""

    def __init__(
        self,
        api: Api,
        path: str,
        decoder: type[T],
        *,
        on_event: OnEvent[T] | None = None,
        field_selector: str = "",
        label_selector: str = "",
        stream_lists: bool = True,
    ) -> None:
        """Prepare; nothing is read before start().

        path: the collection's, e.g. "/api/v1/pods". decoder: the struct of one object; what it does not
        name is never kept. on_event runs in the informer's thread and must be quick; an exception from
        it ends nothing but is logged. stream_lists: ask for lists as streams where the server has them.
        """
        selectors = {"fieldSelector": field_selector, "labelSelector": label_selector}
        self._collection = Collection(api, path, decoder, selectors, stream_lists)
        self._path = path
        self._reader = self._collection.reader
        self._on_event = on_event
        self._lock = threading.Lock()
        self._items: dict[str, T] = {}
        self._copy: Mapping[str, T] | None = None
        self._undecodable: dict[str, str] = {}
        self._synced = threading.Event()
        self._stop = self._collection.stopped
        self._version = ""
        self._seen = ""
        self._watch_failures = 0
        self._confirmed_at = 0.0
        self._relist_at = 0.0
        self._is_going_back = False
        self._thread = threading.Thread(target=self._run, name=f"informer {path}", daemon=True)

    @property
    def synced(self) -> bool:
        """Whether the first list is complete."""
        return self._synced.is_set()

    @property
    def silence_seconds(self) -> float:
        """Seconds since the API server last said anything here: an event, a bookmark, the end of a watch."""
        return self._collection.silence_seconds

    def start(self) -> None:
        """Start to list and watch."""
        self._thread.start()

    def request_stop(self) -> None:
        """Cut a watch under way; the thread ends by itself, and what was read stays."""
        self._collection.stop()

    def stop(self) -> None:
        """Cut a watch under way and wait a moment for the thread to end; what was read stays."""
        self.request_stop()
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join(_STOP_SECONDS)

    def wait_synced(self, timeout_seconds: float) -> bool:
        """Wait for the first complete list."""
        return self._synced.wait(timeout_seconds)

    def items(self) -> Mapping[str, T]:
        """A copy of what is there, by "namespace/name" (or "name" where there are no namespaces).

        It is the very same one for as long as nothing changes, so nobody may change it.
        """
        with self._lock:
            if self._copy is None:
                self._copy = dict(self._items)
            return self._copy

    def get(self, key: str) -> T | None:
        """One object."""
        with self._lock:
            return self._items.get(key)

    @property
    def undecodable(self) -> Mapping[str, str]:
        """Objects that could not be read, and why. The copy has their last readable version, or none."""
        with self._lock:
            return dict(self._undecodable)

    @property
    def seen_version(self) -> str:
        """The version of the collection that the copy holds at least, "" before the first list."""
        with self._lock:
            return self._seen

    # --- the thread -----------------------------------------------------------------------------

    def _run(self) -> None:
        failures = 0
        while not self._stop.is_set():
            retry_after = 0.0
            try:
                if not self._version or self._is_list_due():
                    self._list()
                    self._watch_failures = 0
                self._watch()
                failures = 0
                continue
            except ExpiredError:
                self._version = ""
                if not failures:  # the first time is nothing to wait for; again and again is
                    failures = 1
                    continue
            except ApiError as error:
                retry_after = error.retry_after or 0.0
                if error.status == _GONE or self._is_version_doubtful():
                    self._version = ""
                if not self._stop.is_set():
                    logger.warning("watch_failed path=%s error=%r", self._path, str(error))
            except msgspec.DecodeError as error:
                self._version = ""  # not even a name: what was missed is unknown, so list again
                logger.error("undecodable path=%s error=%r", self._path, str(error))
            except Exception:
                self._version = ""  # a defect of ours must not end the copy silently
                logger.exception("informer_failed path=%s", self._path)
            failures += 1
            self._stop.wait(max(retry_after, pause_seconds(failures)))

    def _is_version_doubtful(self) -> bool:
        self._watch_failures += 1
        return self._watch_failures >= _WATCH_FAILURES

    def _is_list_due(self) -> bool:
        now = time.monotonic()
        return now - self._confirmed_at > CONFIRMED_SECONDS or now > self._relist_at

    # --- lists and watches ----------------------------------------------------------------------

    def _list(self) -> None:
        """Read the whole collection. Raises ApiError, once, for one that is older than what has been seen."""
        listing = self._collection.read()
        if is_older(listing.version, self._seen):
            if not self._is_going_back:
                self._is_going_back = True
                older = f"version {listing.version} is older than {self._seen}, which was seen before"
                raise ApiError(0, "Older", f"the list of {self._path} is read once more: its {older}")
            logger.warning(
                "history_went_back path=%s from=%s to=%s: the API server was restored from a backup?",
                self._path,
                self._seen,
                listing.version,
            )
        self._is_going_back = False
        self._replace(listing)
        self._synced.set()
        self._version = listing.version
        self._confirmed_at = time.monotonic()
        self._relist_at = self._confirmed_at + RELIST_SECONDS * jitter(0.8, 1.0)

    def _replace(self, listing: Listing[T]) -> None:
        fresh = listing.items
        for key in fresh.keys() & self._items.keys():
            if fresh[key] == self._items[key]:
                fresh[key] = self._items[key]  # the very same, so that what was made of it holds
        with self._lock:
            for key in listing.undecodable.keys() & self._items.keys():
                fresh[key] = self._items[key]
            before, self._items, self._copy = self._items, fresh, None
            self._seen = listing.version
            known, self._undecodable = self._undecodable, listing.undecodable
        for key, why in listing.undecodable.items():
            self._name_unreadable(key, why, known.get(key))
        for key in before.keys() - fresh.keys():
            self._notify(before[key], None)
        for key, item in fresh.items():
            # Not by its version alone: one of an API server restored from a backup may come twice.
            if (old := before.get(key)) is not item:
                self._notify(old, item)

    def _watch(self) -> None:
        """Follow the changes until the server ends the watch.

        The version is kept at each event: a watch that breaks goes on behind the last one. From further
        back it would show everybody the past once more. Raises ExpiredError if versions go back.
        """
        with contextlib.closing(self._collection.watch(self._version)) as events:
            for event in events:
                self._watch_failures = 0
                before = self._version
                if event.type == "BOOKMARK":
                    self._version = self._note_version(self._reader.version(event.object))
                else:
                    item, key, why = self._reader.object(event.object)
                    if item is None:
                        self._version = self._set_aside(event, key, why)
                    else:
                        self._version = item.metadata.resource_version
                        self._apply(event.type, key, item)
                if is_older(self._version, before):
                    raise ExpiredError
                self._confirmed_at = time.monotonic()
                if self._stop.is_set():
                    break

    def _apply(self, kind: str, key: str, item: T) -> None:
        with self._lock:
            before, self._copy = self._items.get(key), None
            self._seen = item.metadata.resource_version
            if self._undecodable:
                self._undecodable.pop(key, None)
            if kind == "DELETED":
                self._items.pop(key, None)
            else:
                self._items[key] = item
        self._notify(before, None if kind == "DELETED" else item)

    def _set_aside(self, event: Event, key: str, why: str) -> str:
        """Note an event whose object cannot be read; one that is deleted is gone all the same."""
        before = None
        with self._lock:
            known = self._undecodable.pop(key, None)
            if event.type == "DELETED":
                before, self._copy = self._items.pop(key, None), None
            else:
                self._undecodable[key] = why
        if event.type != "DELETED":
            self._name_unreadable(key, why, known)
        if before is not None:
            self._notify(before, None)
        return self._note_version(self._reader.version(event.object))

    def _note_version(self, version: str) -> str:
        with self._lock:
            self._seen = version
        return version

    def _name_unreadable(self, key: str, why: str, known: str | None) -> None:
        if why != known:
            logger.warning("unreadable path=%s object=%s error=%r", self._path, key, why)

    def _notify(self, before: T | None, after: T | None) -> None:
        if self._on_event is None:
            return
        try:
            self._on_event(before, after)
        except Exception:
            logger.exception("event_handler_failed path=%s", self._path)


def is_older(version: str, than: str) -> bool:
    """Whether a version is lower than another one of the same collection; not, where one is no number.

    Versions are numbers that can be compared as such (KEP-5504, Kubernetes 1.35; etcd's revisions before).
    """
    return version.isdecimal() and than.isdecimal() and int(version) < int(than)


def pause_seconds(failures: int) -> float:
    """How long to wait after so many failures in a row: growing, capped, and never in step with others."""
    return min(_MAX_PAUSE_SECONDS, 0.25 * 2.0 ** min(failures, 10)) * jitter(0.5, 1.0)
