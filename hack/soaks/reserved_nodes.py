"""How many nodes are reserved, for gangs that wait or for pods yet to be created, and for how long.

Read from the status of Placements, which lags behind what the sweeper has decided, and one may be written
before another: so more than a share of the nodes, or a node for longer than its time, is a fault only if it
continues. A new leader starts again, as reservations are remembered by the leader alone.
"""

import time
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

import msgspec

from webhook.kube.placements import Placement

Json = dict[str, Any]


class _Hold(NamedTuple):
    """What one Placement holds, until when (time of day), and for how many seconds it may at most."""

    nodes: frozenset[str]
    until: float
    seconds: float


class _Since(NamedTuple):
    """Since when a node is reserved without a break, and the longest time of its reservations."""

    at: float
    seconds: float


@dataclass
class Holdings:
    """Follows the Placements. most: nodes that may be reserved at once; seconds: for how long at a time.

    made: nodes that an autoscaler makes, which do not count: they are all for the gang that asked for them.

    A plan may keep nodes for later stages for as long in each, in all for as much time for each node.

    grace: seconds for which reports may lag behind. clock: the time of day, in seconds. holds: how often a
    gang began to reserve nodes, or planned to keep some; most_seen: nodes at once.
    """

    most: int
    seconds: float
    grace: float = 8.0
    clock: Callable[[], float] = time.time
    made: Set[str] = frozenset()
    faults: list[str] = field(default_factory=list)
    holds: int = 0
    most_seen: int = 0
    longest: float = 0.0
    _holds: dict[str, _Hold] = field(default_factory=dict)
    _since: dict[str, _Since] = field(default_factory=dict)
    _above_since: float | None = None
    _reported: set[str] = field(default_factory=set)

    def plan(self, kind: str, body: Json) -> None:
        """A version of a Placement."""
        placement = msgspec.convert(body, Placement)
        status, uid = placement.status, placement.metadata.uid
        before = self._holds.pop(uid, None)
        if kind != "DELETED" and status.reserved_nodes and status.reserved_until:
            until = datetime.fromisoformat(status.reserved_until).timestamp()
            seconds = self.seconds * (1 + len(placement.spec.later_pod_nodes))
            self._holds[uid] = _Hold(frozenset(status.reserved_nodes), until, seconds)
            self.holds += before is None
        self.look()

    def restart(self) -> None:
        """Another process leads, or the API server was away: earlier reservations are counted no more."""
        self._holds.clear()
        self._since.clear()
        self._above_since = None

    def look(self) -> None:
        """Judge this moment."""
        now = self.clock()
        allowed: dict[str, float] = {}
        for hold in self._holds.values():
            if hold.until > now:
                allowed.update((name, max(hold.seconds, allowed.get(name, 0.0))) for name in hold.nodes)
        self._since = {name: self._continued(name, now, seconds) for name, seconds in allowed.items()}
        bounded = len(allowed.keys() - self.made)
        self.most_seen = max(self.most_seen, bounded)
        if bounded <= self.most:
            self._above_since = None
        elif self._above_since is None:
            self._above_since = now
        elif now - self._above_since > self.grace:
            self._report("share", f"{bounded} nodes are held, more than {self.most}, for too long")
        for name, since in self._since.items():
            lasts = now - since.at
            self.longest = max(self.longest, lasts)
            # A gang that has found its place lets its nodes go, and the next may hold them for its own time.
            if lasts > 2 * since.seconds + self.grace:
                self._report(name, f"{name} is held for {lasts:.0f} s, of {since.seconds:.0f} s at a time")

    def _continued(self, name: str, now: float, seconds: float) -> _Since:
        before = self._since.get(name, _Since(now, seconds))
        return before._replace(seconds=max(before.seconds, seconds))

    def _report(self, about: str, fault: str) -> None:
        if about not in self._reported:
            self._reported.add(about)
            self.faults.append(fault)

    @property
    def summary(self) -> str:
        """What there was to judge, as a sentence."""
        if not self.holds:
            return "No node was held for anybody: those bounds were not tried."
        return (
            f"Nodes were held {self.holds} times, {self.most_seen} at once of {self.most} that may be, "
            f"one for {self.longest:.0f} s at most."
        )


def bounds(settings: Mapping[str, Any], nodes: int, made: Set[str] = frozenset()) -> Holdings:
    """What the sweeper's settings allow in a cluster of so many nodes.

    made: those that an autoscaler may make beside them.
    """
    share, seconds = float(settings["reserve_share"]), float(settings["reserve_hold_seconds"])
    return Holdings(max(1, int((nodes + len(made)) * share)), seconds, made=made)
