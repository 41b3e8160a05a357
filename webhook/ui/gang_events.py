"""Reads the Events of a gang, once for all viewers, and a bounded number of them."""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

import msgspec

from webhook.kube.client import Api, ApiError
from webhook.ui.gang_rows import GangRow
from webhook.ui.picture import Shown

MOST_EVENTS: Final = 50
"""The most Events of one gang; the newest are shown."""

PAGE: Final = 500
PAGES: Final = 10
"""The most pages read of one namespace. If it has more, only the Events of the gang's owner, Placement and
first pod are read."""

CACHE_SECONDS: Final = 10.0
MOST_NAMESPACES: Final = 50


class EventLine(Shown, frozen=True):
    """An Event of the gang's owner, its pods or its Placement. at: RFC 3339."""

    at: str
    type: str
    reason: str
    note: str
    count: int = 1


class EventList(NamedTuple):
    """The lines, the latest first, and which are missing, "" if none."""

    lines: list[EventLine]
    missing: str = ""


Lines = dict[str, list[EventLine]]
"""Name of the object that Events are about -> its Events."""


class GangEvents:
    """Reads Events and caches them for CACHE_SECONDS. Thread-safe."""

    def __init__(self, api: Api, clock: Callable[[], float] = time.monotonic) -> None:
        """api: connected with this process's own rights."""
        self._api = api
        self._clock = clock
        self._lock = threading.Lock()
        self._known: OrderedDict[tuple[str, str], tuple[float, Lines | None]] = OrderedDict()

    def of(self, row: GangRow) -> EventList:
        """The gang's newest Events; if they cannot be read, `missing` says why."""
        placement = row.id.partition("/")[2]
        names = list(dict.fromkeys([row.name, placement, *(member.name for member in row.members)]))
        missing = ""
        try:
            found = self._of(row.namespace)
            if found is None:
                names = names[:3]
                missing = f"its namespace has more than {PAGE * PAGES}: only those of {', '.join(names)}"
                parts = [self._of(row.namespace, name) or {} for name in names]
                found = {name: lines for part in parts for name, lines in part.items()}
        except ApiError as error:
            return EventList([], f"they cannot be read: {error}")
        lines = [line for name in names for line in found.get(name, ())]
        return EventList(_merged(lines)[:MOST_EVENTS], missing)

    def _of(self, namespace: str, name: str = "") -> Lines | None:
        """The Events of a namespace, or about one object; None if there are too many. Raises ApiError."""
        question, now = (namespace, name), self._clock()
        with self._lock:
            known = self._known.get(question)
        if known is not None and now - known[0] < CACHE_SECONDS:
            return known[1]
        found = self._read(namespace, name)
        with self._lock:
            self._known[question] = now, found
            self._known.move_to_end(question)
            while len(self._known) > MOST_NAMESPACES:
                self._known.popitem(last=False)
        return found

    def _read(self, namespace: str, name: str) -> Lines | None:
        query = {"limit": str(PAGE)} | ({"fieldSelector": f"regarding.name={name}"} if name else {})
        found: Lines = {}
        for _ in range(PAGES):
            answer = self._api.json(
                "GET", f"/apis/events.k8s.io/v1/namespaces/{namespace}/events", query=query
            )
            for item in answer.get("items") or ():
                about = str((item.get("regarding") or {}).get("name") or "")
                found.setdefault(about, []).append(_line(item))
            query["continue"] = str((answer.get("metadata") or {}).get("continue") or "")
            if not query["continue"]:
                return found
        return found if name else None


def _merged(lines: Iterable[EventLine]) -> list[EventLine]:
    """The lines, the latest first; the same Event on a Job and its pod appears once."""
    merged: dict[tuple[str, str, str], EventLine] = {}
    for line in sorted(lines, key=lambda line: line.at, reverse=True):
        key = line.type, line.reason, line.note
        latest = merged.get(key, line)
        merged[key] = msgspec.structs.replace(latest, count=max(latest.count, line.count))
    return list(merged.values())


def _line(item: dict[str, Any]) -> EventLine:
    series = item.get("series") or {}
    at = series.get("lastObservedTime") or item.get("eventTime") or item.get("deprecatedLastTimestamp")
    return EventLine(
        str(at or (item.get("metadata") or {}).get("creationTimestamp") or ""),
        str(item.get("type", "")),
        str(item.get("reason", "")),
        str(item.get("note", "")),
        int(series.get("count") or item.get("deprecatedCount") or 1),
    )
