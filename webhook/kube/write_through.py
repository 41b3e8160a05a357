"""A live copy that includes this process's own writes before the watch shows them."""

import contextlib
import threading
from collections.abc import Mapping
from typing import Any

import msgspec

from webhook.kube.client import Api
from webhook.kube.decoding import T, key_of
from webhook.kube.informer import Informer, OnEvent


class WriteThroughInformer(Informer[T]):
    """An informer of a collection that this process itself writes."""

    def __init__(
        self, api: Api, path: str, decoder: type[T], *, on_event: OnEvent[T] | None = None, **options: Any
    ) -> None:
        """See Informer."""
        super().__init__(api, path, decoder, on_event=self._on_watched, **options)
        self._after = on_event
        self._written_lock = threading.Lock()
        self._written: dict[str, T] = {}
        self._removed: dict[str, T] = {}
        self._seen_before = 0

    def written(self, written: T) -> None:
        """Remember a written object until the watch shows it."""
        with self._written_lock:
            self._written[key_of(written)] = written

    def answered(self, answer: bytes) -> None:
        """Remember the object in an answer of the API server; an unreadable one is ignored."""
        with contextlib.suppress(msgspec.DecodeError):
            written, _, _ = self._reader.object(msgspec.Raw(answer))
            if written is not None:
                self.written(written)

    def forgotten(self, key: str) -> None:
        """Forget a written object that we deleted; the watch will show the deletion."""
        with self._written_lock:
            self._written.pop(key, None)

    def removed(self, key: str, uid: str) -> None:
        """Hide a deleted object unless the watch shows a later state of it.

        An object with another uid is a new one with the same name, and stays.
        """
        with self._written_lock:
            there = self._written.get(key) or self.items().get(key)
            if there is not None and there.metadata.uid == uid:
                self._written.pop(key, None)
                self._removed[key] = there

    def current(self) -> Mapping[str, T]:
        """By "namespace/name": the object of the watch, or a later one that was written."""
        with self._written_lock:
            seen = _number(self.seen_version)
            if seen < self._seen_before:  # etcd was restored, without the writes since its backup
                self._written.clear()
                self._removed.clear()
            self._seen_before = seen
            there = self.items()
            # The watch does not report a removal between two watches, nor a change before written().
            self._written = {
                key: mine
                for key, mine in self._written.items()
                if _version(mine) > (_version(there[key]) if key in there else seen)
            }
            self._removed = {
                key: gone
                for key, gone in self._removed.items()
                if key in there and _version(there[key]) <= _version(gone)
            }
            if not self._written and not self._removed:
                return there
            return {key: each for key, each in there.items() if key not in self._removed} | self._written

    def _on_watched(self, before: T | None, after: T | None) -> None:
        shown = after or before
        if shown is not None:
            with self._written_lock:
                key = key_of(shown)
                mine = self._written.get(key)
                # Versions of one object are ordered numbers (KEP-5504); drop ours once the watch shows it.
                if mine is not None and (after is None or _version(after) >= _version(mine)):
                    del self._written[key]
        if self._after is not None:
            self._after(before, after)


def _version(item: T) -> int:
    return _number(item.metadata.resource_version)


def _number(version: str) -> int:
    return int(version or 0)
