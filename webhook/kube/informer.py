"""A live copy of one collection of the API server: list, then watch, for ever.

Level-based: what it holds is what the API server held at some recent version. Nobody may act on a
copy that is not `synced`. A version that has expired (410) is answered by a fresh list, every other
trouble by trying again after a growing, jittered pause; a watch that fails again and again by a list.
"""

import logging
import random
import threading
import time
from collections.abc import Callable, Mapping
from typing import Final, Generic

import msgspec

from webhook.kube.client import Api, ApiError, Stream
from webhook.kube.decoding import Event, ExpiredError, Reader, T

PAGE_SIZE: Final = 500
WATCH_SECONDS: Final = 100
"""The longest that one watch lasts. The API server ends it in time even if nothing has happened, so that no
live connection is ever silent for longer; asking again costs it one request, from where we were."""
SILENCE_SECONDS: Final = WATCH_SECONDS + 20.0
"""A watch that is silent for this long is dead: a firewall or a load balancer has dropped it, or the server
is gone without a word. Bookmarks, which we ask for, come about once a minute, but none before the server has
seen an event of that resource (Cacher.dispatchEvents in k8s.io/apiserver), and some rest for hours. Hence we
count on the end of the watch, not on them."""
_LIST_SECONDS: Final = 60.0
"""The longest silence within a list."""
_MAX_PAUSE_SECONDS: Final = 30.0
_SHORT_SECONDS: Final = 1.0
"""A watch that ends sooner than this without an event has failed, whatever the server calls it."""
_WATCH_FAILURES: Final = 3
"""So many in a row, and the version itself is doubted: an API server restored from a backup has never
heard of it, and says so as a time-out."""
_GONE: Final = 410
_NO_STREAM: Final = (400, 405, 422)
"""How servers refuse a list as a stream that do not know it, or do not offer it."""

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
        self._api = api
        self._path = path
        self._reader = Reader(path, decoder)
        self._on_event = on_event
        self._query = {
            name: value
            for name, value in (("fieldSelector", field_selector), ("labelSelector", label_selector))
            if value
        }
        self._lock = threading.Lock()
        self._items: dict[str, T] = {}
        self._undecodable: dict[str, str] = {}
        self._synced = threading.Event()
        self._stop = threading.Event()
        self._heard = time.monotonic()
        self._stream: Stream | None = None
        self._stream_lists = stream_lists
        self._stream_next = True
        self._watch_failures = 0
        self._thread = threading.Thread(target=self._run, name=f"informer {path}", daemon=True)

    @property
    def synced(self) -> bool:
        """Whether the first list is complete."""
        return self._synced.is_set()

    @property
    def silence_seconds(self) -> float:
        """Seconds since the API server last said anything here: an event, a bookmark, the end of a watch."""
        return time.monotonic() - self._heard

    def start(self) -> None:
        """Start to list and watch."""
        self._thread.start()

    def stop(self) -> None:
        """Cut a watch under way and wait for the thread to end; what was read stays."""
        self._stop.set()
        with self._lock:
            if self._stream is not None:
                self._stream.cut()
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join(_LIST_SECONDS)

    def wait_synced(self, timeout_seconds: float) -> bool:
        """Wait for the first complete list."""
        return self._synced.wait(timeout_seconds)

    def items(self) -> Mapping[str, T]:
        """A copy of what is there, by "namespace/name" (or "name" where there are no namespaces)."""
        with self._lock:
            return dict(self._items)

    def get(self, key: str) -> T | None:
        """One object."""
        with self._lock:
            return self._items.get(key)

    @property
    def undecodable(self) -> Mapping[str, str]:
        """Objects that could not be read, and why. The copy has their last readable version, or none."""
        with self._lock:
            return dict(self._undecodable)

    # --- the thread -----------------------------------------------------------------------------

    def _run(self) -> None:
        failures = 0
        version = ""
        while not self._stop.is_set():
            retry_after = 0.0
            try:
                if not version:
                    version = self._list()
                    self._watch_failures = 0
                version = self._watch(version)
                failures = 0
                continue
            except ExpiredError:
                version = ""
                if not failures:  # the first time is nothing to wait for; again and again is
                    failures = 1
                    continue
            except ApiError as error:
                retry_after = error.retry_after or 0.0
                if error.status == _GONE or self._is_version_doubtful():
                    version = ""
                if not self._stop.is_set():
                    logger.warning("watch_failed path=%s error=%r", self._path, str(error))
            except msgspec.DecodeError as error:
                version = ""  # not even a name: what was missed is unknown, so list again
                logger.error("undecodable path=%s error=%r", self._path, str(error))
            except Exception:
                version = ""  # a defect of ours must not end the copy silently
                logger.exception("informer_failed path=%s", self._path)
            failures += 1
            self._stop.wait(max(retry_after, pause_seconds(failures)))

    def _is_version_doubtful(self) -> bool:
        self._watch_failures += 1
        return self._watch_failures >= _WATCH_FAILURES

    # --- lists ----------------------------------------------------------------------------------

    def _list(self) -> str:
        """Read the whole collection; returns the version that it stands for."""
        fresh: dict[str, T] = {}
        undecodable: dict[str, str] = {}
        version = ""
        if self._stream_lists and self._stream_next:
            self._stream_next = False  # if it breaks, the next list is in pages
            version = self._list_as_stream(fresh, undecodable)
        if not version:
            fresh.clear()
            undecodable.clear()
            version = self._list_in_pages(fresh, undecodable)
        self._stream_next = True
        self._replace(fresh, undecodable)
        self._synced.set()
        return version

    def _list_as_stream(self, fresh: dict[str, T], undecodable: dict[str, str]) -> str:
        """The list as the first events of a watch (KEP-3157): one object in memory at a time, here and there.

        A watch of its own, so that a silent server is found out sooner than in the long one. Returns ""
        where the API server offers no such list.
        """
        query = {
            **self._query,
            "watch": "1",
            "sendInitialEvents": "true",
            "resourceVersionMatch": "NotOlderThan",
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(int(_LIST_SECONDS)),
        }
        try:
            stream = self._open(query, _LIST_SECONDS)
        except ApiError as error:
            if error.status not in _NO_STREAM:
                raise
            self._stream_lists = False
            logger.info("no_streaming_list path=%s reason=%r", self._path, str(error))
            return ""
        with stream:
            for line in stream:
                self._heard = time.monotonic()
                event = self._reader.event(line)
                if event.type == "BOOKMARK":
                    if self._reader.is_end_of_list(event.object):
                        return self._reader.version(event.object)
                    continue
                item, key, why = self._reader.object(event.object)
                _put(fresh, undecodable, key, None if event.type == "DELETED" else item, why)
        raise ApiError(0, "Incomplete", f"the list of {self._path} ended before it was complete")

    def _list_in_pages(self, fresh: dict[str, T], undecodable: dict[str, str]) -> str:
        query = {**self._query, "limit": str(PAGE_SIZE)}
        while not self._stop.is_set():
            body = self._api.request("GET", self._path, query=query, timeout_seconds=_LIST_SECONDS)
            self._heard = time.monotonic()
            items, metadata = self._reader.page(body)
            for item, key, why in items:
                _put(fresh, undecodable, key, item, why)
            if not metadata.continue_:
                return metadata.resource_version
            query["continue"] = metadata.continue_
        raise ApiError(0, "Stopped", f"the list of {self._path} was given up: the informer stops")

    def _replace(self, fresh: dict[str, T], undecodable: dict[str, str]) -> None:
        with self._lock:
            for key in undecodable.keys() & self._items.keys():
                fresh[key] = self._items[key]
            before, self._items = self._items, fresh
            known, self._undecodable = self._undecodable, undecodable
        for key, why in undecodable.items():
            self._name_unreadable(key, why, known.get(key))
        for key in before.keys() - fresh.keys():
            self._tell(before[key], None)
        for key, item in fresh.items():
            old = before.get(key)
            if old is None or old.metadata.resource_version != item.metadata.resource_version:
                self._tell(old, item)

    # --- watches --------------------------------------------------------------------------------

    def _watch(self, version: str) -> str:
        """Follow the changes after `version` until the server ends the watch; returns the last version."""
        query = {
            **self._query,
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": version,
            "timeoutSeconds": str(int(WATCH_SECONDS * random.uniform(0.8, 1.0))),
        }
        began = time.monotonic()
        heard_nothing = True
        with self._open(query, SILENCE_SECONDS) as stream:
            for line in stream:
                self._heard = time.monotonic()
                event = self._reader.event(line)
                heard_nothing = False
                self._watch_failures = 0
                if event.type == "BOOKMARK":
                    version = self._reader.version(event.object)
                    continue
                item, key, why = self._reader.object(event.object)
                if item is None:
                    version = self._set_aside(event, key, why)
                else:
                    version = item.metadata.resource_version
                    self._apply(event.type, key, item)
                if self._stop.is_set():
                    break
        self._heard = time.monotonic()
        if heard_nothing and time.monotonic() - began < _SHORT_SECONDS and not self._stop.is_set():
            raise ApiError(0, "Ended", f"the watch of {self._path} ended as soon as it began")
        return version

    def _apply(self, kind: str, key: str, item: T) -> None:
        with self._lock:
            before = self._items.get(key)
            if self._undecodable:
                self._undecodable.pop(key, None)
            if kind == "DELETED":
                self._items.pop(key, None)
            else:
                self._items[key] = item
        self._tell(before, None if kind == "DELETED" else item)

    def _set_aside(self, event: Event, key: str, why: str) -> str:
        """Note an event whose object cannot be read; one that is deleted is gone all the same."""
        before = None
        with self._lock:
            known = self._undecodable.pop(key, None)
            if event.type == "DELETED":
                before = self._items.pop(key, None)
            else:
                self._undecodable[key] = why
        if event.type != "DELETED":
            self._name_unreadable(key, why, known)
        if before is not None:
            self._tell(before, None)
        return self._reader.version(event.object)

    def _name_unreadable(self, key: str, why: str, known: str | None) -> None:
        if why != known:
            logger.warning("unreadable path=%s object=%s error=%r", self._path, key, why)

    # --- pieces ---------------------------------------------------------------------------------

    def _open(self, query: Mapping[str, str], silence_seconds: float) -> Stream:
        stream = self._api.stream(self._path, query=query, timeout_seconds=silence_seconds)
        self._heard = time.monotonic()
        with self._lock:
            self._stream = stream
            if self._stop.is_set():
                stream.cut()
        return stream

    def _tell(self, before: T | None, after: T | None) -> None:
        if self._on_event is None:
            return
        try:
            self._on_event(before, after)
        except Exception:
            logger.exception("event_handler_failed path=%s", self._path)


def pause_seconds(failures: int) -> float:
    """How long to wait after so many failures in a row: growing, capped, and never in step with others."""
    return min(_MAX_PAUSE_SECONDS, 0.25 * 2.0 ** min(failures, 10)) * random.uniform(0.5, 1.0)


def _put(fresh: dict[str, T], undecodable: dict[str, str], key: str, item: T | None, why: str) -> None:
    """Enter one object of a list, which may be read twice while the list goes on."""
    fresh.pop(key, None)
    undecodable.pop(key, None)
    if item is not None:
        fresh[key] = item
    elif why:
        undecodable[key] = why
