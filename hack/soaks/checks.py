"""What must hold at each moment of a soak, checked on all pods and Placements as they are listed.

Which claim is true? Not that a node is never asked for more than it has: kube-scheduler may bind a foreign
pod to a node between our plan and our release, and a pod of a plan that preempts is released beside
its victims. True at every moment is:

1. A released pod is pinned to a node that its plan has named, and is bound to no other.
2. What pods placed by topogate take of a node, released or bound, and those that still terminate, never
   exceeds what the node has; victims of a pod that is to preempt them are left out until it is bound.
3. No card is given out more than once.
4. gas-ts grows from one binding to the next on each node.
5. No gang that needs all of its pods runs for long without some of them, while these exist.

Pods of hostile namespaces count towards 2 to 4 where they are bound, or released as a plan says; what their
authors wrote of nodes does not count.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from hack.local import pods as facts
from hack.local.nodes import INTEL_CARDS
from hack.local.pods import Json, name_of
from labeler.contract import keys
from webhook.kube.client import Api
from webhook.workloads import marks

PODS: Final = "/api/v1/pods"
PLACEMENTS: Final = "/apis/topogate.io/v1alpha1/placements"
NODE_GPUS: Final = 8
CARD_SHARES: Final = 16

Gang = tuple[str, str]
"""Namespace and name."""


def listed(api: Api, namespaces: Collection[str]) -> tuple[list[Json], list[Json]]:
    """The pods of these namespaces, and all Placements. Raises ApiError.

    Pods come first: what was released when they were listed was planned before the Placements are.
    """
    pods = api.json("GET", PODS)["items"]
    pods = [pod for pod in pods if pod["metadata"]["namespace"] in namespaces]
    return pods, api.json("GET", PLACEMENTS)["items"]


@dataclass
class Checks:
    """What was seen so far, and what of it was wrong.

    ours: namespaces all of whose pods topogate places; hostile: those whose pods state nothing true.
    longest: for how many seconds a gang ran partially at most, since `begin_quiet` if that was called;
    longest_before: before that.
    """

    ours: frozenset[str]
    hostile: frozenset[str]
    faults: list[str] = field(default_factory=list)
    released: set[str] = field(default_factory=set)
    stamped: int = 0
    longest: float = 0.0
    longest_before: float = 0.0
    _planned: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    _preempting: set[str] = field(default_factory=set)
    _suspects: set[str] = field(default_factory=set)
    _bound: set[str] = field(default_factory=set)
    _stamps: dict[str, int] = field(default_factory=dict)
    _partial_since: dict[Gang, float] = field(default_factory=dict)
    _reported: set[tuple[str, ...]] = field(default_factory=set)

    def look(self, pods: Sequence[Json], placements: Iterable[Json], now: float, patience: float) -> None:
        """Check all pods and Placements, as `listed` returns them.

        now: in seconds by any clock. patience: for how many seconds a gang may run partially.
        """
        self._read(placements)
        nodes = defaultdict[str, list[Json]](list)
        for pod in pods:
            if not facts.is_finished(pod) and (node := self._node_of(pod)):
                nodes[node].append(pod)
        self._check_pins(pods)
        for node, here in nodes.items():
            self._check_node(node, here)
            self._check_stamps(node, [pod for pod in here if facts.bound_node(pod)])
        self._check_gangs(pods, now, patience)

    def begin_quiet(self) -> None:
        """Count from now on for how long gangs run partially."""
        self._partial_since.clear()
        self.longest_before, self.longest = self.longest, 0.0

    def _read(self, placements: Iterable[Json]) -> None:
        for placement in placements:
            spec = placement.get("spec", {})
            for entry in spec.get("pods", ()):
                planned = self._planned[entry["uid"]]
                if entry["node"] not in planned[-1:]:
                    planned.append(entry["node"])
                if spec.get("preempts"):
                    self._preempting.add(entry["uid"])

    def _report(self, fault: str, *key: str) -> None:
        """Note a fault. key: what is reported only once."""
        if key not in self._reported:
            self._reported.add(key)
            self.faults.append(f"{datetime.now(UTC):%T}: {fault}")

    def _is_hostile(self, pod: Json) -> bool:
        return pod["metadata"]["namespace"] in self.hostile

    def _node_of(self, pod: Json) -> str:
        """The node on which a pod counts, "" for none: one deleted before it was bound will never be."""
        if node := facts.bound_node(pod):
            return node
        if facts.is_terminating(pod) or facts.is_gated(pod):
            return ""
        planned = self._planned.get(pod["metadata"]["uid"], [""])[-1]
        return planned if self._is_hostile(pod) else facts.pinned_node(pod)

    def _check_pins(self, pods: Iterable[Json]) -> None:
        """A pod without a plan is suspect at first: its Placement may have been deleted between two lists."""
        suspects = set()
        for pod in pods:
            is_gone = facts.is_finished(pod) or facts.is_terminating(pod)
            if pod["metadata"]["namespace"] not in self.ours or is_gone or facts.is_gated(pod):
                continue
            uid, pin = pod["metadata"]["uid"], facts.pinned_node(pod)
            node, planned = facts.bound_node(pod) or pin, self._planned.get(uid, [])
            self.released.add(uid)
            if node != pin or pin not in planned:
                suspects.add(uid)
                if uid in self._suspects:
                    places = f"is pinned to {pin or 'no node'}, and on {node or 'no node'}"
                    self._report(f"{name_of(pod)} {places}; planned were {planned}", "pin", uid)
        self._suspects = suspects

    def _check_node(self, node: str, here: Iterable[Json]) -> None:
        """Claims 2 and 3."""
        waiting = [pod for pod in here if not facts.bound_node(pod)]
        preempting = [pod for pod in waiting if pod["metadata"]["uid"] in self._preempting]
        floor = max((_priority(pod) for pod in preempting), default=None)
        ours = [pod for pod in here if self._is_ours(pod) and (floor is None or _priority(pod) >= floor)]
        names = ", ".join(map(name_of, ours))
        if (taken := sum(map(facts.gpus, ours))) > NODE_GPUS:
            self._report(f"{node} has {taken} GPUs given out of {NODE_GPUS}: {names}", "GPUs", node)
        for card in (f"card{number}" for number in range(INTEL_CARDS)):
            users = [pod for pod in ours if card in facts.cards(pod)]
            if sum(map(facts.millicores, users)) > 1000 or len(users) > CARD_SHARES:
                names = ", ".join(map(name_of, users))
                self._report(f"{card} of {node} is given out more than once: {names}", card, node)

    def _is_ours(self, pod: Json) -> bool:
        is_planned = pod["metadata"]["uid"] in self._planned
        return is_planned if self._is_hostile(pod) else bool(facts.pinned_node(pod))

    def _check_stamps(self, node: str, bound: Iterable[Json]) -> None:
        """The order of two bindings is known where one was seen before the other."""
        last, newest = self._stamps.get(node, 0), 0
        for pod in bound:
            uid, stamp = pod["metadata"]["uid"], facts.annotation(pod, keys.GAS_TIMESTAMP_ANNOTATION)
            if uid in self._bound or not stamp:
                continue
            self._bound.add(uid)
            self.stamped += 1
            newest = max(newest, int(stamp))
            if int(stamp) <= last:
                fault = f"{name_of(pod)} was bound to {node} with gas-ts {stamp} after {last}"
                self._report(fault, "stamp", uid)
        self._stamps[node] = max(last, newest)

    def _check_gangs(self, pods: Iterable[Json], now: float, patience: float) -> None:
        partial = _partial_gangs(pods)
        self._partial_since = {gang: self._partial_since.get(gang, now) for gang in partial}
        for gang, since in self._partial_since.items():
            self.longest = max(self.longest, now - since)
            if now - since > patience:
                fault = f"{'/'.join(gang)} has run partially for {now - since:.0f} s; {partial[gang]}"
                self._report(fault, "partial", *gang)


def _priority(pod: Json) -> int:
    return int(pod["spec"].get("priority", 0))


def _partial_gangs(pods: Iterable[Json]) -> dict[Gang, str]:
    """Gangs of which all pods exist, and some wait while others run, with those that wait."""
    gangs = defaultdict[Gang, list[Json]](list)
    for pod in pods:
        if facts.label(pod, facts.SIZE) and not facts.is_terminating(pod):
            name = facts.annotation(pod, keys.GANG_ANNOTATION) or facts.label(pod, marks.JOB_NAME_LABEL)
            gangs[pod["metadata"]["namespace"], name].append(pod)
    found = {}
    for gang, members in gangs.items():
        alive = [pod for pod in members if pod["status"]["phase"] != "Failed"]
        waiting = [pod for pod in alive if not facts.bound_node(pod)]
        runs = any(facts.bound_node(pod) and not facts.is_finished(pod) for pod in alive)
        if runs and waiting and len(alive) >= int(facts.label(alive[0], facts.SIZE)):
            found[gang] = f"waiting: {', '.join(map(name_of, waiting))}"
    return found
