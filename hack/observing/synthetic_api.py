"""An API server that is played in this process: synthetic objects, for clusters too large to run.

What a program of ours asks over HTTP is answered here as JSON, for the real decoder and cache.
Writes are taken and shown in the watches, as far as a sweeper needs: plans, their status, and released pods.
"""

import itertools
import queue
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Self, cast

import msgspec

from labeler.contract import keys
from webhook.kube.client import METADATA_ONLY, Api, ApiError, Stream
from webhook.kube.placements import ALL as PLACEMENTS

Objects = Callable[[], Iterable[dict[str, Any]]]
PODS: Final = "/api/v1/pods"
_END: Final = b""


class PlayedStream:
    """What a watch gives: lines, until it is cut."""

    def __init__(self, first: Iterable[bytes], follow: "queue.SimpleQueue[bytes]") -> None:
        """first: what comes at once; follow: what is yet to come."""
        self._first = first
        self._follow = follow

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is open."""

    def __iter__(self) -> Iterator[bytes]:
        yield from self._first
        while line := self._follow.get():
            yield line

    def cut(self) -> None:
        """End it."""
        self._follow.put(_END)


class PlayedApi(Api):
    """Answers of an API server that serves what it is given, and no owners of gangs."""

    def __init__(self, collections: Mapping[str, Objects]) -> None:
        """collections: path -> how its objects are made, one by one, so that none is kept here."""
        self._collections = collections
        self._watches: dict[str, list[tuple[str, queue.SimpleQueue[bytes]]]]
        self._watches = {path: [] for path in collections}
        self._lock = threading.Lock()
        self._versions = itertools.count(1_000_000)
        self.written: dict[str, dict[str, Any]] = {}

    def request(self, method: str, path: str, **options: Any) -> bytes:
        """As Api.request."""
        if method == "GET" and path == "/apis":
            return b'{"groups":[]}'
        if method in ("POST", "PATCH") and ("/placements" in path or "/pods/" in path):
            return self._write(method, path, **options)
        raise ApiError(404, "NotFound", f"{method} {path} is not played")

    def stream(self, path: str, *, query: Mapping[str, str], timeout_seconds: float) -> Stream:
        """As Api.stream: a list as a stream, or a watch that lasts until it is cut."""
        follow: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        selector = query.get("fieldSelector", "")
        if query.get("sendInitialEvents"):
            follow.put(_END)
            return cast(Stream, PlayedStream(self._listed(path, selector), follow))
        with self._lock:
            self._watches.setdefault(path, []).append((selector, follow))
        return cast(Stream, PlayedStream((), follow))

    def close(self) -> None:
        """Nothing is open."""

    def show(self, path: str, made: dict[str, Any], kind: str = "ADDED") -> None:
        """Send an object to the watches, as a new version; not to those that no longer select it.

        Writers are many at once: after a version older than the last a watch lists again.
        """
        with self._lock:
            made["metadata"]["resourceVersion"] = str(next(self._versions))
            line = _event(kind, made)
            for selector, follow in self._watches[path]:
                if _is_selected(made, selector):
                    follow.put(line)

    def _listed(self, path: str, selector: str) -> Iterator[bytes]:
        for made in self._collections.get(path, tuple)():
            if _is_selected(made, selector):
                yield _event("ADDED", made)
        done = {"resourceVersion": "1", "annotations": {keys.INITIAL_EVENTS_END: "true"}}
        yield _event("BOOKMARK", {"metadata": done})

    # --- writes ---------------------------------------------------------------------------------

    def _write(self, method: str, path: str, *, body: Any = None, accept: str = "", **_: Any) -> bytes:
        """Take a write of a Placement, its status or a pod, and show what came of it."""
        collection = PLACEMENTS if "/placements" in path else PODS
        kind = "MODIFIED"
        if method == "POST":
            kind, path = "ADDED", f"{path}/{body['metadata']['name']}"
            made = {**body, "metadata": {**body["metadata"], "uid": path}}
        else:
            path = path.removesuffix("/status")
            before = self.written[path]
            is_patch = isinstance(body, list)
            made = _patched(before, body) if is_patch else _merged(before, body)
        self.written[path] = made
        self.show(collection, made, kind)
        return msgspec.json.encode({"metadata": made["metadata"]} if accept == METADATA_ONLY else made)


def _is_selected(made: Mapping[str, Any], selector: str) -> bool:
    """Whether a field selector lets an object through: a sweeper reads failed pods apart from the others."""
    for condition in filter(None, selector.split(",")):
        path, value = condition.split("=", 1)
        field: Any = made
        for name in path.removesuffix("!").split("."):
            field = field.get(name, {})
        if ((field or "") == value) is path.endswith("!"):
            return False
    return True


def _patched(made: Any, operations: Sequence[Mapping[str, Any]]) -> Any:
    """RFC 6902, in place, of what a sweeper sends: a server's own work is not to count with the pass."""
    for operation in operations:
        *parents, last = (
            part.replace("~1", "/").replace("~0", "~") for part in operation["path"].split("/")[1:]
        )
        place = made
        for name in parents:
            place = place[int(name) if isinstance(place, list) else name]
        key = last if isinstance(place, dict) else len(place) if last == "-" else int(last)
        if operation["op"] == "remove":
            del place[key]
        elif operation["op"] == "test":
            if place.get(key) != operation["value"]:
                raise ApiError(422, "Invalid", f"test of {operation['path']} failed")
        elif isinstance(place, list):
            place.insert(int(key), operation["value"])
        else:
            place[key] = operation["value"]
    return made


def _merged(before: Any, patch: Any) -> Any:
    """RFC 7396."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(before) if isinstance(before, dict) else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = _merged(merged.get(name), value)
    return merged


def _event(kind: str, made: dict[str, Any]) -> bytes:
    return msgspec.json.encode({"type": kind, "object": made})
