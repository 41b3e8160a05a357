"""Lists one collection of the API server, and watches it from a version.

Objects are decoded one at a time, so that an unreadable one is reported and hides no other.
"""

import logging
import threading
import time
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Generic

from webhook.kube.client import Api, ApiError, Stream
from webhook.kube.decoding import Event, Reader, T
from webhook.kube.jitter import jitter

PAGE_SIZE: Final = 500
WATCH_SECONDS: Final = 100
"""The longest watch. The API server ends it even if nothing happened, so no live connection is silent for
longer. The next watch costs one request and continues at the same version."""
SILENCE_SECONDS: Final = WATCH_SECONDS + 20.0
"""A watch that is silent for this long is dead: a firewall or a load balancer dropped it, or the server is
gone. Bookmarks arrive about once a minute, but none before the first event of the resource
(Cacher.dispatchEvents in k8s.io/apiserver), which can take hours. So this limit relies on the end of the
watch, not on bookmarks."""
LIST_SECONDS: Final = 60.0
"""The longest silence within a list."""
_SHORT_SECONDS: Final = 1.0
"""A watch that ends sooner than this without an event counts as failed."""
_NO_STREAM: Final = (400, 405, 422)
"""Statuses of servers that do not support streaming lists."""

logger = logging.getLogger(__name__)


@dataclass
class Listing(Generic[T]):
    """A collection at one version: objects by key, and why others are unreadable."""

    version: str = ""
    items: dict[str, T] = field(default_factory=dict)
    undecodable: dict[str, str] = field(default_factory=dict)

    def put(self, key: str, item: T | None, why: str) -> None:
        """Add one object; a list may contain it twice if it changes meanwhile."""
        self.items.pop(key, None)
        self.undecodable.pop(key, None)
        if item is not None:
            self.items[key] = item
        elif why:
            self.undecodable[key] = why


class Collection(Generic[T]):
    """Reads for one thread; another thread may call stop()."""

    def __init__(
        self, api: Api, path: str, decoder: type[T], selectors: Mapping[str, str], stream_lists: bool
    ) -> None:
        """selectors: fieldSelector, labelSelector; "" is none.

        stream_lists: request streaming lists if the server supports them.
        """
        self.path = path
        self.reader = Reader(path, decoder)
        self.stopped = threading.Event()
        self._api = api
        self._selectors = {name: value for name, value in selectors.items() if value}
        self._last_message_at = time.monotonic()
        self._lock = threading.Lock()
        self._stream: Stream | None = None
        self._stream_lists = stream_lists
        self._stream_next = True

    @property
    def silence_seconds(self) -> float:
        """Seconds since the last message of the API server: an event, a bookmark, or the end of a watch."""
        return time.monotonic() - self._last_message_at

    def stop(self) -> None:
        """Read no more, and interrupt the open stream."""
        self.stopped.set()
        self.cut()

    def cut(self) -> None:
        """Interrupt the open stream, if any."""
        with self._lock:
            if self._stream is not None:
                self._stream.cut()

    # --- lists ----------------------------------------------------------------------------------

    def read(self) -> Listing[T]:
        """Read the whole collection. Raises ApiError, ExpiredError, msgspec.DecodeError."""
        found: Listing[T] | None = None
        if self._stream_lists and self._stream_next:
            self._stream_next = False  # if it breaks, the next list uses pages
            found = self._list_as_stream()
        found = found or self._list_in_pages()
        self._stream_next = True
        return found

    def _list_as_stream(self) -> Listing[T] | None:
        """The list as the first events of a watch (KEP-3157): client and server keep one object in memory.

        It is a separate watch, to detect a silent server sooner than in the long one. None if the API server
        does not support it.
        """
        query = {
            "watch": "1",
            "sendInitialEvents": "true",
            "resourceVersionMatch": "NotOlderThan",
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(int(LIST_SECONDS)),
        }
        found: Listing[T] = Listing()
        try:
            stream = self._open(query, LIST_SECONDS)
        except ApiError as error:
            if error.status not in _NO_STREAM:
                raise
            self._stream_lists = False
            logger.info("no_streaming_list path=%s reason=%r", self.path, str(error))
            return None
        for event in self._events(stream):
            if event.type == "BOOKMARK":
                if self.reader.is_end_of_list(event.object):
                    found.version = self.reader.version(event.object)
                    return found
                continue
            item, key, why = self.reader.object(event.object)
            found.put(key, None if event.type == "DELETED" else item, why)
        raise ApiError(0, "Incomplete", f"the list of {self.path} ended before it was complete")

    def _list_in_pages(self) -> Listing[T]:
        query = {**self._selectors, "limit": str(PAGE_SIZE)}
        found: Listing[T] = Listing()
        while not self.stopped.is_set():
            body = self._api.request("GET", self.path, query=query, timeout_seconds=LIST_SECONDS)
            self._last_message_at = time.monotonic()
            items, metadata = self.reader.page(body)
            for item, key, why in items:
                found.put(key, item, why)
            if not metadata.continue_:
                found.version = metadata.resource_version
                return found
            query["continue"] = metadata.continue_
        raise ApiError(0, "Stopped", f"the list of {self.path} was given up: the informer stops")

    # --- watches --------------------------------------------------------------------------------

    def watch(self, version: str) -> Generator[Event]:
        """The events after `version`, bookmarks among them, until the server ends the watch.

        Raises ApiError (also for a watch that ends as soon as it begins), ExpiredError, msgspec.DecodeError.
        """
        query = {
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": version,
            "timeoutSeconds": str(int(WATCH_SECONDS * jitter(0.8, 1.0))),
        }
        began = time.monotonic()
        is_empty = True
        for event in self._events(self._open(query, SILENCE_SECONDS)):
            is_empty = False
            yield event
        if is_empty and time.monotonic() - began < _SHORT_SECONDS and not self.stopped.is_set():
            raise ApiError(0, "Ended", f"the watch of {self.path} ended as soon as it began")

    def _events(self, stream: Stream) -> Iterator[Event]:
        with stream:
            for line in stream:
                self._last_message_at = time.monotonic()
                yield self.reader.event(line)
        self._last_message_at = time.monotonic()

    def _open(self, query: Mapping[str, str], silence_seconds: float) -> Stream:
        stream = self._api.stream(
            self.path, query={**self._selectors, **query}, timeout_seconds=silence_seconds
        )
        self._last_message_at = time.monotonic()
        with self._lock:
            self._stream = stream
            if self.stopped.is_set():
                stream.cut()
        return stream
