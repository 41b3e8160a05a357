"""The faults of a soak: of pods and nodes, of the API server, and of the leading sweeper."""

import contextlib
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from hack.local import nodes
from hack.local import pods as facts
from hack.local.cluster import Cluster, ClusterError
from hack.local.controlplane import START_ORDER
from hack.local.install import SYSTEM
from hack.local.kubelet import Program
from hack.local.nodes import SimulatedNode
from hack.soaks.load import OURS
from webhook.kube.client import MERGE_PATCH, ApiError

COUNTED: Final = (
    "pods deleted", "nodes cordoned", "nodes failed", "nodes removed",
    "API server restarts", "API server hangs", "API server overloaded",
    "leaders killed", "leaders stopped", "leaders frozen",
)  # fmt: skip
"""What Trouble counts."""

MOST_FAILED: Final = 4
"""Pods of a Job that may be deleted: its controller makes the next one after 10 s, 20 s, 40 s and so on up to
ten minutes, which is longer than the end of a soak."""
LEAST_LEAD_SECONDS: Final = 10.0
"""A sweeper that has just begun to lead shows nothing when it dies."""

_FLOWS: Final = "/apis/flowcontrol.apiserver.k8s.io/v1"
_OVERLOAD: Final = "soak-overload"
_FROZEN: Final = "frozen leader"
_LEASE: Final = f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM}/leases/topogate-sweeper"
_NOT_READY: Final = "local.topogate.io/not-ready"


class Trouble:
    """Makes trouble, and ends it again after a while. done: counts it."""

    def __init__(
        self,
        cluster: Cluster,
        grid: Sequence[SimulatedNode],
        sweepers: Sequence[Program],
        choices: random.Random,
        done: Counter[str],
    ) -> None:
        self._cluster, self._api = cluster, cluster.api()
        self._grid, self._sweepers = grid, sweepers
        self._random, self._done = choices, done
        self.under_way: dict[str, tuple[float, Callable[[], None]]] = {}
        """What is in trouble: until when (monotonic seconds), and how it ends."""
        self.kinds: Final[dict[str, tuple[Callable[[], None], ...]]] = {
            "pods and nodes": (
                self.delete_pod,
                self.delete_pod,
                self.cordon,
                self.fail_node,
                self.remove_node,
            ),
            "API server": (self.restart_api_server, self.hang_api_server, self.overload_api_server),
            "leader": (self.kill_leader, self.kill_leader, self.stop_leader, self.freeze_leader),
        }

    def make(self, kind: str) -> None:
        """Make trouble of one of the kinds. Raises ApiError."""
        self._random.choice(self.kinds[kind])()

    def end_what_is_due(self, *, all_of_it: bool = False) -> None:
        """End the trouble whose time is over. Raises ApiError; then it is tried again."""
        for name, (until, end) in list(self.under_way.items()):
            if all_of_it or time.monotonic() >= until:
                end()
                del self.under_way[name]

    def end_all(self) -> None:
        """End all trouble. Raises ClusterError if some of it does not end."""
        for _ in range(40):
            with contextlib.suppress(ApiError):
                self.end_what_is_due(all_of_it=True)
                return
            time.sleep(0.5)
        raise ClusterError(f"trouble did not end: {', '.join(self.under_way)}")

    def revive(self) -> None:
        """Start programs of the control plane again that have ended by themselves, as a kubelet does.

        kube-scheduler ends itself where its view of a pod's node is wrong, which it has been after a restart
        of the API server (UpdatePod in its cache).
        """
        runs = self._cluster.alive
        for name in START_ORDER[2:]:
            if not runs.get(name, True):
                self._done[f"{name} ended by itself"] += 1
                self._cluster.start(name, wait=False)

    def _note(self, name: str, seconds: float, end: Callable[[], None]) -> None:
        self.under_way[name] = time.monotonic() + seconds, end

    # --- pods and nodes -------------------------------------------------------------------------

    def delete_pod(self) -> None:
        """Delete a pod, as its owner may."""
        pods = self._api.json("GET", f"/api/v1/namespaces/{OURS}/pods")["items"]
        jobs = self._api.json("GET", f"/apis/batch/v1/namespaces/{OURS}/jobs")["items"]
        often = {job["metadata"]["uid"] for job in jobs if job["status"].get("failed", 0) >= MOST_FAILED}
        names = [
            pod["metadata"]["name"]
            for pod in pods
            if not facts.is_finished(pod)
            and often.isdisjoint(owner["uid"] for owner in pod["metadata"].get("ownerReferences", ()))
        ]
        if names:
            self._done["pods deleted"] += 1
            self._api.request("DELETE", f"/api/v1/namespaces/{OURS}/pods/{self._random.choice(names)}")

    def cordon(self) -> None:
        """Cordon a node for a while."""
        self._change_node("nodes cordoned", lambda on: {"spec": {"unschedulable": on or None}})

    def fail_node(self) -> None:
        """Have a node be not ready for a while."""
        mark = {True: "true", False: None}
        self._change_node("nodes failed", lambda on: {"metadata": {"annotations": {_NOT_READY: mark[on]}}})

    def remove_node(self) -> None:
        """Delete a node; it registers again after a while."""
        if node := self._sound_node("nodes removed"):
            self._api.request("DELETE", f"/api/v1/nodes/{node.name}")
            self._note(node.name, self._random.uniform(2, 12), lambda: nodes.register(self._api, [node]))

    def _change_node(self, what: str, body: Callable[[bool], dict[str, Any]]) -> None:
        def patch(name: str, *, on: bool) -> None:
            path = f"/api/v1/nodes/{name}"
            self._api.request("PATCH", path, body=body(on), content_type=MERGE_PATCH)

        if node := self._sound_node(what):
            patch(node.name, on=True)
            self._note(node.name, self._random.uniform(2, 12), lambda: patch(node.name, on=False))

    def _sound_node(self, what: str) -> SimulatedNode | None:
        """A node that is not in trouble, as long as most are not."""
        sound = [node for node in self._grid if node.name not in self.under_way]
        if len(sound) * 4 < len(self._grid) * 3:
            return None
        self._done[what] += 1
        return self._random.choice(sound)

    # --- the API server -------------------------------------------------------------------------

    def restart_api_server(self) -> None:
        """Stop the API server, for a while."""
        self._done["API server restarts"] += 1
        self._cluster.stop("kube-apiserver")
        time.sleep(self._random.uniform(0, 2))
        self._cluster.start("kube-apiserver")

    def hang_api_server(self) -> None:
        """Have the API server answer nobody, in half of the cases for longer than a leader may lead then."""
        self._done["API server hangs"] += 1
        with self._cluster.paused("kube-apiserver"):
            time.sleep(self._random.choice((3, 18)))

    def overload_api_server(self) -> None:
        """Have it answer the sweepers with 429, either always or what is more than a few requests at once."""
        if _OVERLOAD in self.under_way:
            return
        self._done["API server overloaded"] += 1
        shares = self._random.choice((0, 1))
        limited = {
            "nominalConcurrencyShares": shares,
            "lendablePercent": 0,
            "borrowingLimitPercent": 0,
            "limitResponse": {"type": "Reject"},
        }
        level = {"metadata": {"name": _OVERLOAD}, "spec": {"type": "Limited", "limited": limited}}
        account = {"kind": "ServiceAccount", "serviceAccount": {"namespace": SYSTEM, "name": "sweeper"}}
        everything = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}
        resources = everything | {"namespaces": ["*"], "clusterScope": True}
        flow = {
            "matchingPrecedence": 2,
            "priorityLevelConfiguration": {"name": _OVERLOAD},
            "rules": [{"subjects": [account], "resourceRules": [resources]}],
        }
        self._note(_OVERLOAD, self._random.uniform(3, 20), self._end_overload)
        self._api.request("POST", f"{_FLOWS}/prioritylevelconfigurations", body=level)
        self._api.request(
            "POST", f"{_FLOWS}/flowschemas", body={"metadata": {"name": _OVERLOAD}, "spec": flow}
        )

    def _end_overload(self) -> None:
        for kind in ("flowschemas", "prioritylevelconfigurations"):
            try:
                self._api.request("DELETE", f"{_FLOWS}/{kind}/{_OVERLOAD}")
            except ApiError as error:
                if error.status != 404:
                    raise

    # --- the leader -----------------------------------------------------------------------------

    def kill_leader(self) -> None:
        """Kill the sweeper that leads as nobody can prepare for, and start it again."""
        if leader := self._leader("leaders killed"):
            self._signal(leader, signal.SIGKILL)
            leader.start()

    def stop_leader(self) -> None:
        """Stop the sweeper that leads as a kubelet would, and start it again."""
        if leader := self._leader("leaders stopped"):
            leader.start()

    def freeze_leader(self) -> None:
        """Freeze the sweeper that leads until its Lease is over; then it continues where it was."""
        if leader := self._leader("leaders frozen"):
            self._signal(leader, signal.SIGSTOP)
            seconds = self._random.uniform(16, 22)
            self._note(_FROZEN, seconds, lambda: self._signal(leader, signal.SIGCONT))

    def _signal(self, program: Program, number: int) -> None:
        if program.process is not None:
            program.process.send(number)

    def _leader(self, what: str) -> Program | None:
        """The sweeper that has led for a while, if there is one and none is frozen."""
        lease = self._api.json("GET", _LEASE)["spec"]
        holder = lease.get("holderIdentity") or ""
        seconds = (datetime.now(UTC) - datetime.fromisoformat(lease["acquireTime"])).total_seconds()
        if seconds < LEAST_LEAD_SECONDS or _FROZEN in self.under_way:
            return None
        for program in self._sweepers:
            if program.process is not None and holder.endswith(f"_{program.process.pid}"):
                self._done[what] += 1
                return program
        return None
