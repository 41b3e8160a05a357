"""A live copy of one collection of the API server: list in pages, then watch, for ever.

Level-based: what it holds is what the API server held at some recent version. Nobody may act on a
copy that is not `synced`. A version that has expired (410) is answered by a fresh list, every other
trouble by trying again after a growing, jittered pause.
"""

import logging
import random
import threading
import time
from collections.abc import Callable, Mapping
from typing import Final, Generic, Protocol, TypeVar

import msgspec

from webhook.kube.client import Api, ApiError
from webhook.kube.objects import Metadata, ObjectList, Struct

PAGE_SIZE: Final = 500
WATCH_SECONDS: Final = 290
"""How long one watch lasts: under the API server's own 30 to 60 minutes, so that we choose the moment."""
_SILENCE_SECONDS: Final = WATCH_SECONDS + 20
_MAX_PAUSE_SECONDS: Final = 30.0
_GONE: Final = 410

logger = logging.getLogger(__name__)


class HasMetadata(Protocol):
    """Any Kubernetes object."""

    @property
    def metadata(self) -> Metadata:
        """Its metadata."""


T = TypeVar("T", bound=HasMetadata)
OnEvent = Callable[[T | None, T | None], None]
"""Called with (before, after): an added object has no before, a deleted one no after."""


class _Event(Struct, frozen=True):
    type: str
    object: msgspec.Raw


class _Envelope(Struct, frozen=True):
    metadata: Metadata = Metadata()
    code: int = 0
    reason: str = ""
    message: str = ""


class ExpiredError(Exception):
    """The version to go on from is older than the API server's history."""


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
    ) -> None:
        """Prepare; nothing is read before start().

        path: the collection's, e.g. "/api/v1/pods". decoder: the struct of one object. on_event runs
        in the informer's thread and must be quick; an exception from it ends nothing but is logged.
        """
        self._api = api
        self._path = path
        self._event_decoder = msgspec.json.Decoder(_Event)
        self._object_decoder: msgspec.json.Decoder[T] = msgspec.json.Decoder(decoder)
        self._list_decoder = msgspec.json.Decoder(ObjectList[decoder])  # type: ignore[valid-type]
        self._envelope_decoder = msgspec.json.Decoder(_Envelope)
        self._on_event = on_event
        self._query = {
            name: value
            for name, value in (("fieldSelector", field_selector), ("labelSelector", label_selector))
            if value
        }
        self._lock = threading.Lock()
        self._items: dict[str, T] = {}
        self._synced = threading.Event()
        self._stop = threading.Event()
        self._heard = time.monotonic()
        self._thread = threading.Thread(target=self._run, name=f"informer {path}", daemon=True)

    @property
    def synced(self) -> bool:
        """Whether the first list is complete."""
        return self._synced.is_set()

    @property
    def silence_seconds(self) -> float:
        """Seconds since the API server last said anything here."""
        return time.monotonic() - self._heard

    def start(self) -> None:
        """Start to list and watch."""
        self._thread.start()

    def stop(self) -> None:
        """Ask the thread to end; a watch under way ends with its process."""
        self._stop.set()

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

    def _run(self) -> None:
        failures = 0
        version = ""
        while not self._stop.is_set():
            try:
                if not version:
                    version = self._list()
                    failures = 0
                version = self._watch(version)
                failures = 0
                continue
            except ExpiredError:
                version = ""
                continue
            except ApiError as error:
                if error.status == _GONE:
                    version = ""
                logger.warning("watch_failed path=%s error=%r", self._path, str(error))
            except msgspec.DecodeError as error:
                version = ""  # cannot be skipped safely: what was missed is unknown, so list again
                logger.error("undecodable path=%s error=%r", self._path, str(error))
            except Exception:
                version = ""  # a defect of ours must not end the copy silently
                logger.exception("informer_failed path=%s", self._path)
            failures += 1
            pause = min(_MAX_PAUSE_SECONDS, 0.25 * 2 ** min(failures, 10)) * random.uniform(0.5, 1.0)
            self._stop.wait(pause)

    def _list(self) -> str:
        """Read the whole collection; returns the version that it stands for."""
        fresh: dict[str, T] = {}
        query = {**self._query, "limit": str(PAGE_SIZE)}
        while True:
            body = self._api.request("GET", self._path, query=query, timeout_seconds=60)
            page = self._list_decoder.decode(body)
            for item in page.items:
                fresh[_key(item)] = item
            self._heard = time.monotonic()
            if not page.metadata.continue_:
                break
            query["continue"] = page.metadata.continue_
        with self._lock:
            before, self._items = self._items, fresh
        for key in before.keys() - fresh.keys():
            self._tell(before[key], None)
        for key, item in fresh.items():
            old = before.get(key)
            if old is None or old.metadata.resource_version != item.metadata.resource_version:
                self._tell(old, item)
        self._synced.set()
        return str(page.metadata.resource_version)

    def _watch(self, version: str) -> str:
        """Follow the changes after `version` until the server ends the watch; returns the last version."""
        query = {
            **self._query,
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": version,
            "timeoutSeconds": str(int(WATCH_SECONDS * random.uniform(0.8, 1.0))),
        }
        for line in self._api.lines(self._path, query=query, timeout_seconds=_SILENCE_SECONDS):
            self._heard = time.monotonic()
            event = self._event_decoder.decode(line)
            if event.type == "ERROR":
                status = self._envelope_decoder.decode(event.object)
                if status.code == _GONE:
                    raise ExpiredError
                raise ApiError(status.code, status.reason, f"watch of {self._path}: {status.message}")
            if event.type == "BOOKMARK":
                version = self._envelope_decoder.decode(event.object).metadata.resource_version
                continue
            item = self._object_decoder.decode(event.object)
            version = item.metadata.resource_version
            self._apply(event.type, item)
            if self._stop.is_set():
                break
        return version

    def _apply(self, kind: str, item: T) -> None:
        key = _key(item)
        with self._lock:
            before = self._items.get(key)
            if kind == "DELETED":
                self._items.pop(key, None)
            else:
                self._items[key] = item
        self._tell(before, None if kind == "DELETED" else item)

    def _tell(self, before: T | None, after: T | None) -> None:
        if self._on_event is None:
            return
        try:
            self._on_event(before, after)
        except Exception:
            logger.exception("event_handler_failed path=%s", self._path)


def _key(item: HasMetadata) -> str:
    metadata = item.metadata
    return f"{metadata.namespace}/{metadata.name}" if metadata.namespace else metadata.name
