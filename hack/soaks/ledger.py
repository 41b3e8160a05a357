"""What must hold whatever happens, checked against each version of each object that the API server reports.

Which claim is true? Not that a node is never asked for more than it has: kube-scheduler may bind a foreign
pod to a node between our plan and our release, and a pod of a plan that preempts is released beside
its victims. True at every moment is:

1. What pods placed by topogate take of a node, released or bound, and those that still terminate, never
   exceeds what the node has; victims of a pod that is to preempt them are left out until it is bound.
2. What bound pods take, by any scheduler, never exceeds it either (kube-scheduler's own promise: if it
   broke here, the ledger itself would be wrong).
3. No card is given out more than once.
4. A pod is released after a plan that names its node was written, and it is bound to that node.
5. gas-ts grows strictly from one binding to the next on each node.
6. A tenant whom no other has a reason to disturb loses no pod.
7. The sweeper deletes no pod of a gang that runs (see losses.py).
8. No preempted gang stays partially running (see partly_released.py).

Pods of hostile namespaces count towards 1 to 3 where they are bound, or released as a plan says; what their
authors wrote of nodes does not count.
"""

import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Final

from hack.local.nodes import INTEL_CARDS
from hack.soaks.losses import Losses
from hack.soaks.partial_gangs import PartlyReleased
from hack.soaks.takes import Take, has_ended, is_gated, listed, pinned_to, take_of
from labeler.contract import keys

NODE_GPUS: Final = 8
CARD_SHARES: Final = 16

Json = dict[str, Any]


@dataclass
class Ledger:
    """All that is known. Safe for use by its two readers.

    namespaces: whose pods are judged. hostile: whose pods say nothing true.
    protected: whose pods nobody may take.
    """

    namespaces: frozenset[str]
    hostile: frozenset[str] = frozenset()
    protected: frozenset[str] = frozenset()
    losses: Losses = field(default_factory=Losses)
    partial: PartlyReleased = field(default_factory=PartlyReleased)
    faults: list[str] = field(default_factory=list)
    released: int = 0
    bound: int = 0
    stamped: int = 0
    unjudged: int = 0
    takes: dict[str, Take] = field(default_factory=dict)
    _plans: dict[str, list[tuple[int, str, bool]]] = field(default_factory=dict)
    _waiting: dict[str, tuple[int, str, str, str]] = field(default_factory=dict)
    _stamps: dict[str, int] = field(default_factory=dict)
    _suspects: list[tuple[str, str, dict[str, Take]]] = field(default_factory=list)
    _lost: set[str] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def plan(self, kind: str, placement: Json, *, in_order: bool = True) -> None:
        """A version of a Placement. in_order: whether it came by a watch, not by a list after a gap.

        A list shows the last version alone, which a change of the status may have made after the release: it
        says that there was a plan, not since when.
        """
        version = int(placement["metadata"]["resourceVersion"]) if in_order else 0
        spec = placement.get("spec", {})
        if kind == "DELETED":
            return
        with self._lock:
            for entry in spec.get("pods", []):
                plans = self._plans.setdefault(entry["uid"], [])
                word = (entry["node"], bool(spec.get("preempts")))
                if not plans or plans[-1][1:] != word:
                    plans.append((version, *word))

    def pod(self, kind: str, pod: Json, *, in_order: bool = True) -> None:
        """A version of a pod. in_order: whether it came by a watch, not by a list after a gap."""
        if pod["metadata"]["namespace"] not in self.namespaces:
            return  # a DaemonSet pins its pods as well
        uid = pod["metadata"]["uid"]
        gone = kind == "DELETED" or has_ended(pod)
        with self._lock:
            node = self._where(pod)
            before = self.takes.pop(uid, None)
            self._check_loss(kind, pod)
            if pod["metadata"]["namespace"] not in self.hostile:
                self.losses.pod(kind, pod)
                self.partial.pod(pod, gone=gone)
            if gone or not node:
                return
            take = self.takes[uid] = self._take(pod, node)
            is_hostile = pod["metadata"]["namespace"] in self.hostile
            if before is None and take.is_ours and not is_hostile:
                self.released += 1
                self._waiting[uid] = (int(pod["metadata"]["resourceVersion"]), take.name, node, _now())
            if take.is_bound and not (before and before.is_bound):
                self.bound += 1
                self._check_binding(pod, take, in_order=in_order)
            self._check_node(node)

    def keep_only(self, pods: Iterable[Json]) -> None:
        """All pods that there are, listed after a gap; to be called before they are reported one by one.

        Of what has ended or gone meanwhile nothing counts beside what has come since.
        """
        there = [pod["metadata"] for pod in pods if not has_ended(pod)]
        uids = {each["uid"] for each in there}
        with self._lock:
            self.takes = {uid: take for uid, take in self.takes.items() if uid in uids}
            self.partial.keep_only(uids)
            self.losses.keep_only({(each["namespace"], each["name"]) for each in there})

    def check_partial(self) -> None:
        """Check which gangs have run partially for too long."""
        with self._lock:
            self.partial.look()

    def _where(self, pod: Json) -> str:
        """The node on which it counts, "" for none; what was deleted before it was bound will never be."""
        metadata, spec = pod["metadata"], pod["spec"]
        if node := spec.get("nodeName"):
            return str(node)
        if metadata.get("deletionTimestamp") or is_gated(spec):
            return ""
        if metadata["namespace"] not in self.hostile:
            return pinned_to(pod)
        plans = self._plans.get(metadata["uid"])
        return plans[-1][1] if plans else ""

    def _check_loss(self, kind: str, pod: Json) -> None:
        metadata = pod["metadata"]
        if metadata["namespace"] not in self.protected or metadata["uid"] in self._lost:
            return
        if not has_ended(pod) and (kind == "DELETED" or metadata.get("deletionTimestamp")):
            self._lost.add(metadata["uid"])
            self.faults.append(f"{metadata['namespace']}/{metadata['name']} was deleted before it had ended")

    def _take(self, pod: Json, node: str) -> Take:
        is_hostile = pod["metadata"]["namespace"] in self.hostile
        is_ours = pod["metadata"]["uid"] in self._plans if is_hostile else bool(pinned_to(pod))
        return take_of(pod, node, is_ours=is_ours)

    def _check_binding(self, pod: Json, take: Take, *, in_order: bool) -> None:
        pin = "" if pod["metadata"]["namespace"] in self.hostile else pinned_to(pod)
        if pin and pin != take.node:
            self.faults.append(f"{_now()}: {take.name} is pinned to {pin} and runs on {take.node}")
        stamp = (pod["metadata"].get("annotations") or {}).get(keys.GAS_TIMESTAMP_ANNOTATION)
        if stamp is None:
            return
        last = self._stamps.get(take.node, 0)
        if not in_order:
            self.unjudged += 1
        elif int(stamp) <= last:
            self.faults.append(
                f"{_now()}: {take.name} was bound to {take.node} with gas-ts {stamp} after {last}"
            )
        self.stamped += 1
        self._stamps[take.node] = max(last, int(stamp))

    def _check_node(self, node: str) -> None:
        here = {uid: take for uid, take in self.takes.items() if take.node == node}
        bound = sum(take.gpus for take in here.values() if take.is_bound)
        if bound > NODE_GPUS:
            fault = f"{node} has {bound} GPUs bound of {NODE_GPUS}: {listed(here.values())}"
            self.faults.append(f"{_now()}: {fault}")
        if self._given_out_twice(node, here):
            self._suspects.append((_now(), node, {uid: replace(take) for uid, take in here.items()}))

    def _given_out_twice(self, node: str, here: Mapping[str, Take]) -> list[str]:
        """Claims 1 and 3 of what was on a node at one moment, by the plans that are known now."""
        preempting = [
            take.priority for uid, take in here.items() if not take.is_bound and self._preempts(uid)
        ]
        floor = max(preempting, default=None)
        ours = [take for take in here.values() if take.is_ours and (floor is None or take.priority >= floor)]
        found = []
        if (taken := sum(take.gpus for take in ours)) > NODE_GPUS:
            found.append(f"{node} has {taken} GPUs given out of {NODE_GPUS}: {listed(ours)}")
        for card in range(INTEL_CARDS):
            users = [take for take in ours if f"card{card}" in take.cards]
            if sum(take.millicores for take in users) > 1000 or len(users) > CARD_SHARES:
                found.append(f"card{card} of {node} is given out more than once: {listed(users)}")
        return found

    def _preempts(self, uid: str) -> bool:
        return any(preempts for _, _, preempts in self._plans.get(uid, []))

    def settle(self) -> None:
        """Judge by plans, which may be read later than pods: call it when both readers have caught up."""
        with self._lock:
            first: dict[str, str] = {}
            for at, node, here in self._suspects:
                for fault in self._given_out_twice(node, here):
                    first.setdefault(fault, at)
            self.faults += [f"{at}: {fault}" for fault, at in first.items()]
            self._suspects.clear()
            for uid, (version, name, node, at) in self._waiting.items():
                earlier = [where for since, where, _ in self._plans.get(uid, []) if since < version]
                if node not in earlier:
                    self.faults.append(f"{at}: {name} was released to {node}; planned before that: {earlier}")
            self._waiting.clear()


def _now() -> str:
    return f"{datetime.now(UTC):%T}"
