"""The faults of a soak: pods, nodes, the API server and the leading sweeper."""

import contextlib
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from hack.local import nodes
from hack.local.cluster import Cluster, ClusterError
from hack.local.controlplane import START_ORDER
from hack.local.kubelet import Program
from hack.local.nodes import SimulatedNode
from hack.soaks.crowd import OURS, UNFINISHED
from webhook.kube.client import MERGE_PATCH, ApiError

MOST_FAILED: Final = 4
"""Pods of a Job that may be deleted: its controller makes the next one after 10 s, 20 s, 40 s and so on up to
ten minutes, which is longer than the end of a soak."""


class Trouble:
    """Makes trouble, and makes it good again."""

    def __init__(
        self,
        cluster: Cluster,
        grid: Mapping[str, SimulatedNode],
        sweepers: Sequence[Program],
        choices: random.Random,
        done: Counter[str],
        stay: Collection[str] = (),
    ) -> None:
        """grid: the nodes by name; choices: decides what happens; done: counts it; stay: nodes never go."""
        self._stay = frozenset(stay)
        self._cluster = cluster
        self._api = cluster.api()
        self._grid = grid
        self._sweepers = sweepers
        self._random = choices
        self._done = done
        self.amiss: dict[str, tuple[float, Callable[[], None]]] = {}
        """Nodes that are in trouble: until when (monotonic seconds), and how it ends."""
        self._last: dict[str, float] = {}
        self.away: list[float] = []
        """For how many seconds the API server was away each time."""

    def is_sound(self, name: str) -> bool:
        """Whether nothing has been amiss with a node for a minute."""
        return name not in self.amiss and time.monotonic() - self._last.get(name, -60.0) >= 60.0

    def end_what_is_due(self) -> None:
        """Nodes get well again after a while. Raises ApiError; then it is tried again."""
        for name, (until, undo) in list(self.amiss.items()):
            if time.monotonic() >= until:
                undo()
                self._last[name] = time.monotonic()
                del self.amiss[name]

    def make_good(self) -> None:
        """End all trouble. Raises ClusterError for a node that cannot be made good."""
        for name, (_, undo) in self.amiss.items():
            for _ in range(20):
                with contextlib.suppress(ApiError):
                    undo()
                    self._last[name] = time.monotonic()
                    break
                time.sleep(0.5)
            else:
                raise ClusterError(f"node {name} could not be made good")
        self.amiss.clear()

    def something(self) -> None:
        """Do one of the things that happen to pods and nodes."""
        action = self._random.choice(
            (self._delete_pod, self._delete_pod, self._cordon, self._fail_node, self._remove_node)
        )
        self._done[action.__name__.strip("_")] += 1
        action()

    def _delete_pod(self) -> None:
        pods = self._api.json("GET", f"/api/v1/namespaces/{OURS}/pods", query=UNFINISHED)["items"]
        jobs = self._api.json("GET", f"/apis/batch/v1/namespaces/{OURS}/jobs")["items"]
        often = {job["metadata"]["uid"] for job in jobs if job["status"].get("failed", 0) >= MOST_FAILED}
        pods = [
            pod
            for pod in pods
            if often.isdisjoint(owner["uid"] for owner in pod["metadata"].get("ownerReferences", ()))
        ]
        if pods:
            name = self._random.choice(pods)["metadata"]["name"]
            self._api.request("DELETE", f"/api/v1/namespaces/{OURS}/pods/{name}")

    def _sound_node(self) -> SimulatedNode | None:
        """A node with nothing amiss, as long as most are sound."""
        sound = [node for name, node in self._grid.items() if name not in self.amiss]
        return self._random.choice(sound) if len(self.amiss) < len(self._grid) // 4 else None

    def _patch_node(self, name: str, body: dict[str, Any]) -> None:
        self._api.request("PATCH", f"/api/v1/nodes/{name}", body=body, content_type=MERGE_PATCH)

    def _cordon(self) -> None:
        if node := self._sound_node():
            self._patch_node(node.name, {"spec": {"unschedulable": True}})
            self._amiss(node, lambda: self._patch_node(node.name, {"spec": {"unschedulable": None}}))

    def _fail_node(self) -> None:
        if node := self._sound_node():
            mark = "local.topogate.io/not-ready"
            self._patch_node(node.name, {"metadata": {"annotations": {mark: "true"}}})
            self._amiss(
                node, lambda: self._patch_node(node.name, {"metadata": {"annotations": {mark: None}}})
            )

    def _remove_node(self) -> None:
        if (node := self._sound_node()) and node.name not in self._stay:
            self._api.request("DELETE", f"/api/v1/nodes/{node.name}")
            self._amiss(node, lambda: nodes.register(self._api, [node]))

    def _amiss(self, node: SimulatedNode, undo: Callable[[], None]) -> None:
        self.amiss[node.name] = (time.monotonic() + self._random.uniform(2, 12), undo)

    def restart_api_server(self) -> None:
        """Stop the API server, for a while."""
        self._done["API server restarts"] += 1
        begun = time.monotonic()
        self._cluster.stop("kube-apiserver")
        time.sleep(self._random.uniform(0, 2))
        self._cluster.start("kube-apiserver")
        self.away.append(time.monotonic() - begun)

    def revive(self) -> list[str]:
        """Start programs of the control plane again that have ended by themselves, as a kubelet does.

        kube-scheduler ends itself where its view of a pod's node is wrong, which it has been after a restart
        of the API server (UpdatePod in its cache). Returns their names.
        """
        runs = self._cluster.alive
        ended = [name for name in START_ORDER[2:] if not runs.get(name, True)]
        for name in ended:
            self._done[f"{name} ended by itself"] += 1
            self._cluster.start(name, wait=False)
        return ended

    def kill_leader(self, least: float) -> bool:
        """Kill the sweeper that leads as nobody can prepare for, and start it again; returns whether it did.

        least: for so many seconds it must have led; who dies at once shows nothing.
        """
        path = "/apis/coordination.k8s.io/v1/namespaces/topogate-system/leases/topogate-sweeper"
        lease = self._api.json("GET", path)["spec"]
        holder = lease.get("holderIdentity") or ""
        began = datetime.fromisoformat(lease["acquireTime"])
        if (datetime.now(UTC) - began).total_seconds() < least:
            return False
        for program in self._sweepers:
            process = program.process
            if process is not None and holder.endswith(f"_{process.pid}"):
                self._done["leaders killed"] += 1
                process.send(signal.SIGKILL)
                program.start()
                return True
        return False
