"""Whole passes over objects that a client has edited, in memory, and the defects that they log."""

import logging
from typing import Any

import msgspec

from webhook.kube.client import Api, ApiError
from webhook.kube.objects import Pod
from webhook.sweeper.observe.cache import ClusterCache


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
