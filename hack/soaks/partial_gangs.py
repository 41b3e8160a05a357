"""Which gangs run below their minimum, although they have lost nothing, 5 s after their first pod was bound.

A gang is judged each time that pods of it are bound after none was. It is not judged if meanwhile one of its
pods was deleted, failed or was preempted, or a node of a bound one was lost: these are counted by cause. So
are gangs that had lacked pods for so long before that they were planned without these. Pods that have
succeeded count for the minimum, also once they are gone with their Job. Where gangs are bound as one, those
are not judged that have a pod without a PodGroup, as where admission did not answer in time.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from hack.soaks.takes import preempted

GANG: Final = "local.topogate.io/gang"
MINIMUM: Final = "local.topogate.io/minimum"
"""Annotations of pods that are judged: the name of their gang, and how many of it must run."""

JUDGED_SECONDS: Final = 5.0

Json = dict[str, Any]
Gang = tuple[str, str]
"""Namespace and name."""


def annotations_of(gang: str, minimum: int) -> dict[str, str]:
    """What pods say of themselves so that their gang is judged."""
    return {GANG: gang, MINIMUM: str(minimum)}


@dataclass
class _Start:
    """Of a gang of which none was bound before. enough_at: when its minimum was bound. lost: what it lost."""

    at: float
    minimum: int
    enough_at: float | None = None
    lost: str = ""


@dataclass
class PartialGangs:
    """Follows pods and nodes. Safe for use by several readers.

    patience: seconds after which a gang that lacks pods is planned without them. as_one: whether each pod is
    to have a PodGroup.
    faults: sentences. judged: gangs that had their minimum in time. excluded: starts by what was lost.
    slowest: the most seconds from the first bind to the minimum.
    """

    patience: float
    as_one: bool = False
    clock: Callable[[], float] = time.monotonic
    faults: list[str] = field(default_factory=list)
    judged: Counter[Gang] = field(default_factory=Counter)
    below: Counter[Gang] = field(default_factory=Counter)
    excluded: Counter[str] = field(default_factory=Counter)
    slowest: float = 0.0
    _bound: dict[Gang, dict[str, str]] = field(default_factory=dict)
    """By uid the node of each pod that is bound, also of those that have succeeded."""
    _ran: dict[Gang, set[str]] = field(default_factory=dict)
    """uids of its pods that have succeeded, also of those that are gone with their Job."""
    _there: dict[Gang, set[str]] = field(default_factory=dict)
    """uids of its pods that have succeeded, or are to stay."""
    _gone: set[str] = field(default_factory=set)
    """uids of lost pods: one that terminates may succeed yet."""
    _without_group: set[Gang] = field(default_factory=set)
    _lacks_since: dict[Gang, float] = field(default_factory=dict)
    """Of gangs of which fewer pods than the minimum are there."""
    _starts: dict[Gang, _Start] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def pod(self, kind: str, pod: Json) -> None:
        """A version of a pod."""
        metadata, spec = pod["metadata"], pod["spec"]
        annotations = metadata.get("annotations") or {}
        if GANG not in annotations:
            return
        gang, uid = (metadata["namespace"], annotations[GANG]), metadata["uid"]
        with self._lock:
            bound = self._bound.setdefault(gang, {})
            ran, there = self._ran.setdefault(gang, set()), self._there.setdefault(gang, set())
            if uid not in self._gone and pod.get("status", {}).get("phase") == "Succeeded":
                ran.add(uid)
            loss = loss_of(kind, pod) if uid not in ran else ""
            if loss:
                self._gone.add(uid)
                if uid in there:
                    self._lose(gang, loss)
                there.discard(uid)
                bound.pop(uid, None)
            elif kind == "DELETED":
                bound.pop(uid, None)
            else:
                there.add(uid)
                if node := spec.get("nodeName"):
                    bound[uid] = node
            if self.as_one and "schedulingGroup" not in spec:
                self._without_group.add(gang)
            self._count(gang, int(annotations[MINIMUM]))

    def node(self, kind: str, node: Json) -> None:
        """A version of a node."""
        ready = [each for each in node.get("status", {}).get("conditions", ()) if each["type"] == "Ready"]
        if kind != "DELETED" and all(each["status"] == "True" for each in ready):
            return
        name = node["metadata"]["name"]
        with self._lock:
            for gang, bound in self._bound.items():
                if name in bound.values():
                    self._lose(gang, "node lost")

    def look(self) -> None:
        """Judge the gangs whose time is over."""
        now = self.clock()
        with self._lock:
            for gang, start in self._starts.items():
                if now - start.at >= JUDGED_SECONDS and start.minimum:
                    self._check(gang, start)

    @property
    def waits(self) -> bool:
        """Whether the time of a gang is not over yet."""
        with self._lock:
            return any(start.minimum for start in self._starts.values())

    def _lose(self, gang: Gang, what: str) -> None:
        if (start := self._starts.get(gang)) is not None and not start.lost:
            start.lost = what

    def _count(self, gang: Gang, minimum: int) -> None:
        bound = self._bound[gang]
        if len(self._there[gang]) < minimum:
            self._lacks_since.setdefault(gang, self.clock())
        else:
            self._lacks_since.pop(gang, None)
        if not bound:
            if (start := self._starts.pop(gang, None)) is not None and start.minimum:
                self._check(gang, start)
            return
        if gang not in self._starts:
            self._starts[gang] = _Start(self.clock(), minimum, lost=self._excuse(gang))
        start = self._starts[gang]
        if len(bound.keys() | self._ran[gang]) >= start.minimum and start.enough_at is None:
            start.enough_at = self.clock()

    def _excuse(self, gang: Gang) -> str:
        """Why a gang that begins may run below its minimum, "" if it may not."""
        if gang in self._without_group:
            return "a pod without a PodGroup"
        # More losses do not begin the patience again: it is counted from when the gang was last whole.
        since = self._lacks_since.get(gang)
        has_waited = since is not None and self.clock() - since >= self.patience
        return "planned without pods lost long before" if has_waited else ""

    def _check(self, gang: Gang, start: _Start) -> None:
        """Once for each start, which has no minimum any more then."""
        is_in_time = start.enough_at is not None and start.enough_at - start.at < JUDGED_SECONDS
        if is_in_time:
            assert start.enough_at is not None
            self.judged[gang] += 1
            self.slowest = max(self.slowest, start.enough_at - start.at)
        elif start.lost:
            self.excluded[start.lost] += 1
        else:
            self.below[gang] += 1
            self.faults.append(
                f"{'/'.join(gang)} has {len(self._bound[gang])} pods on nodes {JUDGED_SECONDS:g} s after its "
                f"first was bound, and needs {start.minimum}; {len(self._there[gang])} are there or have "
                f"succeeded, of which {len(self._ran[gang])} have succeeded"
            )
        start.minimum = 0


def loss_of(kind: str, pod: Json) -> str:
    """What has become of a pod that does not stay, "" of one that does."""
    if preempted(pod):
        return "pod preempted"
    if pod.get("status", {}).get("phase") == "Failed":
        return "pod failed"
    return "pod deleted" if kind == "DELETED" or "deletionTimestamp" in pod["metadata"] else ""
