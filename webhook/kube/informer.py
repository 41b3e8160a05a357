"""A live copy of one collection of the API server, by list and watch.

Level-based: the copy is the state of the API server at some recent version. Callers must not act on a copy
that is not `synced`. An expired version (410) leads to a new list, and other errors to a retry with backoff
and jitter. Several failed watches in a row lead to a list.

A watch can miss changes without an error. kube-apiserver accepts a watch from a version that it has not
reached, for example after a restore of etcd from a backup, and ends it without an event. So the collection
is listed again

- before a watch, if no list, event or bookmark has confirmed the version for CONFIRMED_SECONDS: the previous
  watch was silent, or the server was away for long;
- when a version is lower than the previous one, so the API server was restored;
- every RELIST_SECONDS at the latest, for cases that these rules miss.

A list that is older than the copy is read once more, since a server may lag behind the others of a control
plane. If it is still older, etcd was restored, and the list replaces the copy.
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
"""After so many failures in a row the version itself is suspect. An API server that was restored from a
backup has never had it, and answers with a time-out."""
CONFIRMED_SECONDS: Final = 0.75 * WATCH_SECONDS
"""How long a version is used for watches without a confirmation by the API server. It is less than the
shortest watch, so that a list follows a watch that ends without any event."""
RELIST_SECONDS: Final = 1800.0
"""The longest time between two lists."""
_GONE: Final = 410
_STOP_SECONDS: Final = 2.0
"""How long stop() waits for the thread. A thread that waits for the headers of an answer cannot be
interrupted and ends later: a leader that has lost its Lease must not wait for it."""

logger = logging.getLogger(__name__)


OnEvent = Callable[[T | None, T | None], None]
"""Called with (before, after): before is None for an added object, after for a deleted one."""


class Informer(Generic[T]):
    """One collection, kept current by its own thread."""

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
        """Nothing is read before start().

        path: of the collection, e.g. "/api/v1/pods". decoder: the struct of one object; other fields are
        dropped. on_event runs in the informer's thread and must be quick; its exceptions are logged.
        stream_lists: request streaming lists if the server supports them.
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
        self._failures = 0
        self._error: ApiError | None = None
        self._confirmed_at = 0.0
        self._relist_at = 0.0
        self._is_going_back = False
        self._thread = threading.Thread(target=self._run, name=f"informer {path}", daemon=True)

    @property
    def synced(self) -> bool:
        """Whether the first list has been read."""
        return self._synced.is_set()

    @property
    def silence_seconds(self) -> float:
        """Seconds since the last message of the API server: an event, a bookmark, or the end of a watch."""
        return self._collection.silence_seconds

    @property
    def failures(self) -> int:
        """How many lists and watches in a row have failed."""
        return self._failures

    @property
    def error(self) -> ApiError | None:
        """The last error of the API server, None if a watch has ended well since."""
        return self._error

    def start(self) -> None:
        """Start to list and watch."""
        self._thread.start()

    def request_stop(self) -> None:
        """Interrupt the watch and let the thread end; the copy stays."""
        self._collection.stop()

    def stop(self) -> None:
        """Interrupt the watch and wait up to two seconds for the thread to end; the copy stays."""
        self.request_stop()
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join(_STOP_SECONDS)

    def wait_synced(self, timeout_seconds: float) -> bool:
        """Wait for the first complete list."""
        return self._synced.wait(timeout_seconds)

    def items(self) -> Mapping[str, T]:
        """All objects by "namespace/name" (or "name" for cluster-scoped objects).

        The same mapping is returned until something changes, so callers must not change it.
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
        """Unreadable objects, and why. The copy has their last readable version, or none."""
        with self._lock:
            return dict(self._undecodable)

    @property
    def seen_version(self) -> str:
        """The copy is at least as new as this version; "" before the first list."""
        with self._lock:
            return self._seen

    # --- the thread -----------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._stop.is_set():
            retry_after = 0.0
            try:
                if not self._version or self._is_list_due():
                    self._list()
                    self._watch_failures = 0
                self._watch()
                self._failures, self._error = 0, None
                continue
            except ExpiredError:
                self._version = ""
                if not self._failures:  # the first time, list again without a pause
                    self._failures = 1
                    continue
            except ApiError as error:
                self._error, retry_after = error, error.retry_after or 0.0
                if error.status == _GONE or self._is_version_doubtful():
                    self._version = ""
                if not self._stop.is_set():
                    logger.warning("watch_failed path=%s error=%r", self._path, str(error))
            except msgspec.DecodeError as error:
                self._version = ""  # the object's name is unreadable too, so list again
                logger.error("undecodable path=%s error=%r", self._path, str(error))
            except Exception:
                self._version = ""  # a bug of ours must not end the thread
                logger.exception("informer_failed path=%s", self._path)
            self._failures += 1
            self._stop.wait(max(retry_after, pause_seconds(self._failures)))

    def _is_version_doubtful(self) -> bool:
        self._watch_failures += 1
        return self._watch_failures >= _WATCH_FAILURES

    def _is_list_due(self) -> bool:
        now = time.monotonic()
        return now - self._confirmed_at > CONFIRMED_SECONDS or now > self._relist_at

    # --- lists and watches ----------------------------------------------------------------------

    def _list(self) -> None:
        """Read the whole collection. Raises ApiError, once, for a list that is older than the copy."""
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
                fresh[key] = self._items[key]  # the same object, so that caches by identity stay valid
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
            # Not by version: after a restore from a backup the API server may give a version twice.
            if (old := before.get(key)) is not item:
                self._notify(old, item)

    def _watch(self) -> None:
        """Follow the changes until the server ends the watch.

        The version is saved at each event, so that the next watch continues after it and repeats no event.
        Raises ExpiredError if versions go back.
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
        """Record an event with an unreadable object; a DELETED event removes it all the same."""
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
    """Whether a version is lower than another one of the same collection; False if one is not a number.

    Versions are comparable numbers (KEP-5504, Kubernetes 1.35; before that they are etcd's revisions).
    """
    return version.isdecimal() and than.isdecimal() and int(version) < int(than)


def pause_seconds(failures: int) -> float:
    """The backoff after so many failures in a row: exponential, capped, and with jitter."""
    return min(_MAX_PAUSE_SECONDS, 0.25 * 2.0 ** min(failures, 10)) * jitter(0.5, 1.0)
