"""No gang takes a node that another, between its stages, keeps for pods that are yet to be made.

Judged by what Placements say, so a while later: the status lags behind what the sweeper has decided. Who
replaces lost pods, or must end in time, or is more urgent, may use what is kept.
"""

import time
from collections.abc import Callable, Set
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, NamedTuple

import msgspec

from webhook.kube.placements import Placement

SETTLED_SECONDS: Final = 4.0
"""After so long what a pass has decided stands in every status."""

Json = dict[str, Any]


class _Taker(NamedTuple):
    """A pod that has not ended: its priority, and whether it must end in time."""

    priority: int
    is_limited: bool


class _Suspect(NamedTuple):
    """A new entry of a plan, and the keeper of its node ("namespace/name") as it was then."""

    at: float
    plan: str
    uid: str
    node: str
    keeper: Placement


@dataclass
class Takeovers:
    """Follows Placements and pods; the ledger feeds it. faults: sentences; judged: plans that kept nodes.

    clock: the time of day, in seconds.
    """

    clock: Callable[[], float] = time.time
    faults: list[str] = field(default_factory=list)
    judged: int = 0
    _plans: dict[str, Placement] = field(default_factory=dict)
    _pods: dict[str, _Taker] = field(default_factory=dict)
    _suspects: list[_Suspect] = field(default_factory=list)

    def plan(self, kind: str, body: Json, *, in_order: bool) -> None:
        """A version of a Placement. in_order: whether it came by a watch, so that its entries are new."""
        placement = msgspec.convert(body, Placement)
        before = self._plans.pop(placement.key, None)
        if kind == "DELETED":
            return
        self._plans[placement.key] = placement
        had = before.spec if before is not None else None
        self.judged += bool(placement.spec.later_pod_nodes and not (had and had.later_pod_nodes))
        # Between its stages a gang has pods already; any other that has some may replace lost ones.
        if in_order and (had is None or not had.pods or had.later_pod_nodes):
            self._suspect(placement, {each.uid for each in had.pods} if had else set())

    def _suspect(self, placement: Placement, known: Set[str]) -> None:
        own = set(placement.spec.later_pod_nodes)
        for key, keeper in self._plans.items():
            reserved = self._reserved(keeper) - own if key != placement.key else set()
            self._suspects += [
                _Suspect(self.clock(), placement.key, each.uid, each.node, keeper)
                for each in placement.spec.pods
                if each.uid not in known and each.node in reserved
            ]

    def _reserved(self, placement: Placement) -> set[str]:
        """Nodes that it is to keep for a while yet."""
        until = placement.status.reserved_until
        lasts = bool(until) and datetime.fromisoformat(until).timestamp() > self.clock() + 1.0
        return (
            set(placement.spec.later_pod_nodes).intersection(placement.status.reserved_nodes)
            if lasts
            else set()
        )

    def pod(self, pod: Json, *, gone: bool) -> None:
        """A version of a pod."""
        uid, spec = pod["metadata"]["uid"], pod["spec"]
        self._pods.pop(uid, None)
        if not gone and not pod["metadata"].get("deletionTimestamp"):
            self._pods[uid] = _Taker(spec.get("priority") or 0, "activeDeadlineSeconds" in spec)

    def keep_only(self, uids: Set[str]) -> None:
        """The others are gone: a watch was interrupted, and then all that is there was listed."""
        self._pods = {uid: pod for uid, pod in self._pods.items() if uid in uids}

    def look(self) -> None:
        """Judge those of which all is known by now."""
        due = [each for each in self._suspects if self.clock() >= each.at + SETTLED_SECONDS]
        self._suspects = self._suspects[len(due) :]
        for each in due:
            if self._is_fault(each):
                self.faults.append(
                    f"{each.plan} took {each.node}, which {each.keeper.key} keeps for later pods"
                )

    def _is_fault(self, suspect: _Suspect) -> bool:
        now, taker = self._plans.get(suspect.keeper.key), self._pods.get(suspect.uid)
        if now is None or taker is None or taker.is_limited or suspect.node not in self._reserved(now):
            return False
        first = [self._pods.get(each.uid) for each in suspect.keeper.spec.pods]
        there = [pod for pod in first if pod is not None]
        # Of a gang that lost a pod meanwhile nobody knows what it kept at that moment.
        if len(there) < len(first) or now.metadata.uid != suspect.keeper.metadata.uid:
            return False
        return taker.priority <= min(pod.priority for pod in there)
