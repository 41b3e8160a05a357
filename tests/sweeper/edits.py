"""Whole passes over objects that a client has edited, in memory, and the defects that they log."""

import logging
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final

import msgspec
from hypothesis import strategies as st

from tests.sweeper.clock import Clock
from webhook.kube.client import Api, ApiError
from webhook.kube.objects import Pod
from webhook.sweeper.observe.cache import ClusterCache
from webhook.sweeper.sweep import Sweeper

TEXT: Final = st.one_of(st.text(max_size=20), st.sampled_from(["n0", "\0", "\x1b[2J", "a" * 100_000]))
SIMPLE: Final = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**63), 2**63 - 1), TEXT,
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from([2**64, -(2**64), 1e300, "n0", "uid-wait", "uid-run"]),
)  # fmt: skip


def any_json(*more: str) -> st.SearchStrategy[Any]:
    """Values of any type, of which some are these texts."""
    return st.recursive(
        SIMPLE | st.sampled_from(more),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
        max_leaves=5,
    )


def paths_in(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Each place of a document, outermost first."""
    if path:
        yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in items:
        yield from paths_in(each, (*path, key))


def edited(document: dict[str, Any], path: tuple[str | int, ...], value: Any) -> dict[str, Any]:
    """The document with this value there, unless an earlier edit has replaced the surroundings."""
    inner: Any = document
    with suppress(KeyError, IndexError, TypeError):
        for part in path[:-1]:
            inner = inner[part]
        inner[path[-1]] = value
    return document


class Stored(Api):
    """An API server that keeps one Placement, whatever its fields are, and answers each write of a pod."""

    def __init__(self) -> None:
        self.writes: list[str] = []
        self.placement: dict[str, Any] | None = None
        self.version = 1

    def request(self, method: str, path: str, *, body: Any = None, **_: Any) -> bytes:
        self.writes.append(f"{method} {path}")
        if "/placements" not in path:
            if method == "GET":
                raise ApiError(404, "NotFound", f"{path}: there is none")
            return b"{}"
        if method == "DELETE":
            self.placement = None
            return b"{}"
        before = self.placement or {}
        self.version += 1
        self.placement = {**before, **msgspec.to_builtins(body)}
        metadata = {"name": path.rsplit("/", 2)[-1], "namespace": "ns", **before.get("metadata", {})}
        metadata |= {"uid": "u", "resourceVersion": str(self.version)}
        for part in ("spec", "status"):
            old, new = before.get(part), self.placement.get(part, {})
            merged = {**(old if isinstance(old, dict) else {}), **new} if part in body else old
            self.placement[part] = (
                {name: each for name, each in merged.items() if each is not None}
                if isinstance(merged, dict)
                else merged
            )
        given = {name: each for name, each in body["metadata"].items() if each is not None}
        self.placement["metadata"] = {**given, **metadata}
        return msgspec.json.encode(self.placement)


class Defects(logging.Handler):
    """What is logged with a traceback, and other errors."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.found: list[str] = []
        self.reported: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info:
            self.found.append(self.format(record))
        self.reported.append(record.getMessage())

    def __enter__(self) -> "Defects":
        logging.getLogger().addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        logging.getLogger().removeHandler(self)


class NoneFailed(ClusterCache):
    """A live copy in which no pod has failed, so that no watch is begun."""

    def take_failed(self) -> list[Pod]:
        return []


def defects_of(
    sweeper: Sweeper, cache: ClusterCache, clock: Clock | None = None, passes: int = 3
) -> list[str]:
    """What a sweeper logs as defects in some passes, 200 s of the clock apart; then both are stopped."""
    try:
        with Defects() as defects:
            for _ in range(passes):
                sweeper.sweep()
                if clock is not None:
                    clock.now += 200
    finally:
        sweeper.close()
        cache.stop()
    return defects.found
