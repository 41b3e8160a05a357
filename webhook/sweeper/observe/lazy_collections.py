"""API objects that are read from the first question about them on: nothing of them costs anything before."""

import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, Final, Protocol

from webhook.kube.client import Api
from webhook.kube.informer import Informer, OnEvent

FIRST_SECONDS: Final = 3.0
"""How long the first question about a collection waits for all of it to be read."""


class Readable(Hashable, Protocol):
    """A collection, see WatchedCollection."""

    @property
    def path(self) -> str:
        """Of all objects in the cluster."""

    @property
    def struct(self) -> type[Any]:
        """What is read of each."""

    def is_served(self, served: Mapping[str, str]) -> bool:
        """Whether it may be watched."""

    @property
    def frees(self) -> Callable[[Any, Any], bool] | None:
        """Whether more may be free after a change, or None if it never is."""


class LazyCollections:
    """Live copies of what is asked for, by one thread."""

    def __init__(
        self,
        api: Api,
        served: Callable[[], Mapping[str, str]],
        on_change: Callable[[], None],
        on_freed: Callable[[], None],
    ) -> None:
        """served: what the cluster serves. on_change: called, in some thread, when something has changed
        that was asked for. on_freed: called when more may be free than before.
        """
        self._served = served
        self._api = api
        self._on_change = on_change
        self._on_freed = on_freed
        self._copies: dict[Readable, Informer[Any]] = {}
        self._wanted: frozenset[Readable] = frozenset()
        self._read: frozenset[Readable] = frozenset()

    def stop(self) -> None:
        """End all watches."""
        for each in self._copies.values():
            each.stop()

    def begin(self) -> None:
        """A pass begins. Changes of what the last one has not read, and this one does not, are not told."""
        self._wanted, self._read = self._read, frozenset()

    def read(self, collections: Sequence[Readable]) -> Mapping[Hashable, Mapping[str, Any]]:
        """Those of these that have been read completely, each by "namespace/name"."""
        collections = [each for each in collections if each.is_served(self._served())]
        self._read |= set(collections)
        begun = [each for each in collections if each not in self._copies]
        for each in begun:
            self._copies[each] = Informer(self._api, each.path, each.struct, on_event=self._note(each))
            self._copies[each].start()
        deadline = time.monotonic() + FIRST_SECONDS
        for each in begun:
            self._copies[each].wait_synced(max(0.0, deadline - time.monotonic()))
        return {each: self._copies[each].items() for each in collections if self._copies[each].synced}

    def _note(self, collection: Readable) -> OnEvent[Any]:
        def note(before: Any, after: Any) -> None:
            if collection.frees is not None and collection.frees(before, after):
                self._on_freed()
            if collection in self._read or collection in self._wanted:
                self._on_change()

        return note
