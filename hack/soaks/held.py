"""How many nodes waiting gangs hold empty, all together, and for how long, by what their Placements say.

A status lags behind what the sweeper has decided, and one gang's may be written before another's: so more
than a share of the nodes, or a node for longer than its time, is a fault only if it goes on. A new leader
begins anew, as what is held is remembered by the leader alone.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

Json = dict[str, Any]


@dataclass
class Holdings:
    """Follows the Placements. most: nodes that may be held at once; seconds: for how long at a time.

    grace: seconds for which what is told may lag behind. clock: the time of day, in seconds.
    """

    most: int
    seconds: float
    grace: float = 8.0
    clock: Callable[[], float] = time.time
    faults: list[str] = field(default_factory=list)
    most_seen: int = 0
    _held: dict[str, tuple[frozenset[str], float]] = field(default_factory=dict)
    _since: dict[str, float] = field(default_factory=dict)
    _above_since: float | None = None
    _told: set[str] = field(default_factory=set)

    def plan(self, kind: str, placement: Json) -> None:
        """A version of a Placement."""
        status, uid = placement.get("status") or {}, placement["metadata"]["uid"]
        self._held.pop(uid, None)
        if kind != "DELETED" and status.get("held") and status.get("held_until"):
            until = datetime.fromisoformat(status["held_until"]).timestamp()
            self._held[uid] = frozenset(status["held"]), until
        self.look()

    def begin_anew(self) -> None:
        """Another process leads, or the API server was away: what was held before is counted no more."""
        self._held.clear()
        self._since.clear()
        self._above_since = None

    def look(self) -> None:
        """Judge this moment."""
        now = self.clock()
        nodes = frozenset().union(*(names for names, until in self._held.values() if until > now))
        self.most_seen = max(self.most_seen, len(nodes))
        self._since = {name: self._since.get(name, now) for name in nodes}
        if len(nodes) <= self.most:
            self._above_since = None
        elif self._above_since is None:
            self._above_since = now
        elif now - self._above_since > self.grace:
            self._say("share", f"waiting gangs hold {len(nodes)} nodes, more than {self.most}, for too long")
        for name, since in self._since.items():
            # A gang that has found its place lets its nodes go, and the next may hold them for its own time.
            if now - since > 2 * self.seconds + self.grace:
                self._say(name, f"{name} is held for {now - since:.0f} s, of {self.seconds:.0f} s at a time")

    def _say(self, about: str, fault: str) -> None:
        if about not in self._told:
            self._told.add(about)
            self.faults.append(fault)


def bounds(settings: Mapping[str, Any], nodes: int) -> Holdings:
    """What the sweeper's settings allow in a cluster of so many nodes."""
    share, seconds = float(settings["reserve_share"]), float(settings["reserve_hold_seconds"])
    return Holdings(max(1, int(nodes * share)), seconds)
