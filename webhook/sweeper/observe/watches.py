"""The registry of watches: live copies of the collections that are needed, and of no others.

The core starts some with the process, and Owners has those watched that it finds served. All others are
watched from the first read on, until nobody has read them for long, or until the cluster serves them no more.
"""

import threading
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Generic

from webhook.kube.client import Api
from webhook.kube.decoding import T
from webhook.kube.informer import OnEvent
from webhook.kube.write_through import WriteThroughInformer
from webhook.sweeper.observe.view import View

FIRST_SECONDS: Final = 3.0
"""The first read of a collection waits this long for its list to complete."""

UNREAD_SECONDS: Final = 600.0
"""For so long a collection is watched after the last question about it."""

Served = Mapping[str, str]
"""Which optional collections the cluster serves: "podgroups.scheduling.k8s.io" -> version."""


class Verb(StrEnum):
    """A verb on an API object, as in RBAC."""

    CREATE = "create"
    PATCH = "patch"
    DELETE = "delete"


@dataclass(frozen=True)
class WatchedCollection(Generic[T]):
    """API objects that the sweeper watches while it, or an extension that is on, needs them.

    path: of all of them in the cluster, "/apis/GROUP/VERSION/RESOURCE". kind: of each. struct: the fields to
    read. label_selector, field_selector: which ones, all without one. verbs: those that the extension orders;
    beside these the sweeper needs the rights to list and to watch. is_optional: watched only while the
    cluster serves it, see Served. is_lazy: watched only after add_resources first reads it; it is no part of
    the view then. frees: whether gangs without a place may find one after a change (before, after).
    """

    path: str
    kind: str
    struct: type[T]
    label_selector: str = ""
    verbs: frozenset[Verb] = frozenset()
    is_optional: bool = False
    is_lazy: bool = False
    frees: Callable[[Any, Any], bool] | None = None
    field_selector: str = ""

    def is_served(self, served: Served) -> bool:
        """Whether it may be watched."""
        *_, group, version, resource = self.path.split("/")
        return not self.is_optional or served.get(f"{resource}.{group}") == version

    def of(self, view: View) -> Mapping[str, T] | None:
        """The objects by "namespace/name", also those just written; None until all were read."""
        return view.objects.get(self)

    @property
    def api_version(self) -> str:
        """As in a manifest."""
        return self.path.removeprefix("/apis/").removeprefix("/api/").rpartition("/")[0]

    def path_in(self, namespace: str, name: str = "") -> str:
        """The address of those of a namespace ("" where there are none), or of one of them."""
        base, _, resource = self.path.rpartition("/")
        return "/".join(
            filter(None, (f"{base}/namespaces/{namespace}" if namespace else base, resource, name))
        )


class Watches:
    """Live copies of collections, with the writes of this process.

    One thread reads them; any thread may follow some, and drop these.
    """

    def __init__(
        self,
        api: Api,
        served: Callable[[], Served] = dict,
        on_change: Callable[[], None] = lambda: None,
        on_freed: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """served: what the cluster serves.

        on_change: called, in some thread, when a collection in use has changed. on_freed: called when
        capacity may have become free.
        """
        self._clock = clock
        self._read_at: dict[WatchedCollection[Any], float] = {}
        self._served = served
        self._api = api
        self._on_change = on_change
        self._on_freed = on_freed
        self._lock = threading.Lock()
        self._copies: Mapping[WatchedCollection[Any], WriteThroughInformer[Any]] = {}
        """Replaced, never changed, as several threads read it."""
        self._followers: dict[WatchedCollection[Any], OnEvent[Any]] = {}
        self._wanted: frozenset[WatchedCollection[Any]] = frozenset()
        self._read: frozenset[WatchedCollection[Any]] = frozenset()

    def start(self, collections: Sequence[WatchedCollection[Any]]) -> None:
        """Watch these to the end, though nobody has read them yet."""
        for each in collections:
            self._start(each)

    def prepare(self, collection: WatchedCollection[T], on_event: OnEvent[T]) -> WriteThroughInformer[T]:
        """The live copy of one that is to be started; calls this for each of its changes."""
        self._followers[collection] = on_event
        return self._add(collection)

    def follow(self, collection: WatchedCollection[T], on_event: OnEvent[T]) -> WriteThroughInformer[T]:
        """Watch one until it is dropped, unless it is watched already, and call this for each change."""
        if collection not in self._copies:
            self.prepare(collection, on_event)
            self._start(collection)
        return self._copies[collection]

    def stop(self) -> None:
        """End all watches at once, so that they end in parallel."""
        for each in self._copies.values():
            each.request_stop()
        for each in self._copies.values():
            each.stop()

    def begin(self) -> None:
        """Begin a pass: only changes of collections that this pass or the last one reads are reported.

        A collection that was not read for UNREAD_SECONDS is no longer watched, unless it was started.
        """
        self._wanted, self._read = self._read, frozenset()
        now = self._clock()
        self.drop([each for each, at in self._read_at.items() if now - at >= UNREAD_SECONDS])

    def drop(self, collections: Sequence[WatchedCollection[Any]]) -> None:
        """Watch these no more, without waiting for the watches to end."""
        for each in collections:
            self._read_at.pop(each, None)
            with self._lock:
                copies = dict(self._copies)
                dropped, self._copies = copies.pop(each, None), copies
            if dropped is not None:
                dropped.request_stop()

    def read(
        self, collections: Sequence[WatchedCollection[Any]], wait_seconds: float | None = None
    ) -> Mapping[Hashable, Mapping[str, Any]]:
        """Those of these that are served and have been read completely, each by "namespace/name".

        The objects are those of the watch, or later ones that this process has written.
        """
        served = self._served()
        self.drop([each for each in collections if not each.is_served(served)])
        collections = [each for each in collections if each.is_served(served)]
        self._read |= set(collections)
        begun = [each for each in collections if each not in self._copies]
        for each in begun:
            self._start(each)
        started = self._copies.keys() - self._read_at.keys() - set(begun)
        self._read_at |= dict.fromkeys(set(collections) - started, self._clock())
        deadline = time.monotonic() + (FIRST_SECONDS if wait_seconds is None else wait_seconds)
        for each in begun:
            self._copies[each].wait_synced(max(0.0, deadline - time.monotonic()))
        return {each: self._copies[each].current() for each in collections if self._copies[each].synced}

    def copy_of(self, collection: WatchedCollection[Any]) -> WriteThroughInformer[Any]:
        """The live copy of a collection, which also has the writes of this process."""
        return self._copies.get(collection) or self._made(collection)

    def _start(self, collection: WatchedCollection[Any]) -> None:
        copy = self._copies.get(collection) or self._add(collection)
        copy.start()

    def _add(self, collection: WatchedCollection[Any]) -> WriteThroughInformer[Any]:
        copy = self._made(collection)
        with self._lock:
            self._copies = {**self._copies, collection: copy}
        return copy

    def _made(self, collection: WatchedCollection[Any]) -> WriteThroughInformer[Any]:
        return WriteThroughInformer(
            self._api, collection.path, collection.struct, on_event=self._note(collection),
            label_selector=collection.label_selector, field_selector=collection.field_selector,
        )  # fmt: skip

    def _note(self, collection: WatchedCollection[Any]) -> OnEvent[Any]:
        on_event = self._followers.get(collection)

        def note(before: Any, after: Any) -> None:
            if on_event is not None:
                on_event(before, after)
            if collection.frees is not None and collection.frees(before, after):
                self._on_freed()
            if collection in self._read or collection in self._wanted:
                self._on_change()

        return note
