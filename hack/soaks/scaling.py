"""Gangs in a soak that run on nodes of a pool alone, which an autoscaler (a stand-in) makes on request.

It also refuses, lets bookings expire, and removes nodes that stand empty. So that nodes do stand empty, gangs
come in bursts, and none until one is removed.
"""

import random
import time
from collections import Counter
from typing import Final

from hack.local.autoscaler import BEST_EFFORT, StandIn
from hack.local.nodes import PoolNode
from hack.soaks.crowd import OURS, UNFINISHED, Crowd
from hack.soaks.reader import PODS
from hack.soaks.takes import GPUS
from webhook.extensions.scale_up.provisioning import REQUESTS, TEMPLATES
from webhook.kube.client import MERGE_PATCH, Api, ApiError

POOL: Final = "local.topogate.io/pool"
"""Taint of the pool's nodes, so that other gangs of the soak run where they are known; and their label."""
CHOICES: Final = {
    "provisioning_class": BEST_EFFORT,
    "after_seconds": 0.2,
    "retry_seconds": 1,
    "label_seconds": 5,
}
_LEAVING: Final = [{"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"}]
PRIORITY: Final = "soak-scaled"
"""Class of the pool's gangs, above all tiers: a gang that waits for reserved nodes requests none."""
POOL_NODES: Final = 4
"""Nodes that the autoscaler can make."""
NAMES: Final = tuple(f"pool-{number}" for number in range(POOL_NODES))
_IDLE_SECONDS: Final = 4.0
_BURST: Final = (2, 5)
_QUIET_SECONDS: Final = 45.0
"""The most between bursts, should no node be removed."""
_RESERVED_SECONDS: Final = 6.0


class Scaling:
    """The pool, what happens to it, and gangs that want it."""

    def __init__(
        self,
        api: Api,
        crowd: Crowd,
        choices: random.Random,
        done: Counter[str],
    ) -> None:
        self._api = api
        self._crowd = crowd
        self._random = choices
        self._done = done
        self.nodes = [
            PoolNode(name, ("b0", "s0", f"pool{number}"), False, 8, POOL) for number, name in enumerate(NAMES)
        ]
        self.standin = StandIn(api, self.nodes, label_seconds=0.3)
        self._idle: dict[str, float] = {}
        self._number = 0
        self._burst = choices.randint(*_BURST)
        self._quiet_until = 0.0
        self._looked = 0.0

    def define(self) -> None:
        """Make the class. Raises ApiError."""
        body = {"metadata": {"name": PRIORITY}, "value": 400}
        self._api.request("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", body=body)

    def something(self) -> None:
        """A gang for the pool, or another mood of the autoscaler. Raises ApiError."""
        if self.standin.refuses or self._random.random() < 0.3:
            self.standin.refuses = "" if self.standin.refuses else "no stock"
            self._done["autoscaler moods"] += 1
            return
        if time.monotonic() < self._quiet_until:
            return
        self._post(self._random.choice((1, 2, 3, POOL_NODES)))
        self._burst -= 1
        if self._burst <= 0:
            self._burst = self._random.randint(*_BURST)
            self._quiet_until = time.monotonic() + _QUIET_SECONDS

    def _post(self, size: int) -> None:
        self._number += 1
        self._done["scaled"] += 1
        only = {**self.nodes[0].only, "priorityClassName": PRIORITY}
        self._crowd.post_job(f"scaled-{self._number}", size, {GPUS: 8}, spec=only)

    def make_good(self) -> None:
        """Refuse nothing any more."""
        self.standin.refuses = ""

    def end_what_is_due(self) -> None:
        """Let bookings expire, and remove nodes that stand empty. Raises ApiError."""
        if time.monotonic() - self._looked < 1.0:
            return
        self._looked = time.monotonic()
        for request in self._api.json("GET", REQUESTS.path)["items"]:
            conditions = request.get("status", {}).get("conditions", [])
            provided = next((each for each in conditions if each["type"] == "Provisioned"), None)
            ended = {each["type"] for each in conditions} & {"BookingExpired", "Failed"}
            if provided is not None and not ended:
                at = time.mktime(time.strptime(provided["lastTransitionTime"], "%Y-%m-%dT%H:%M:%SZ"))
                if time.time() - (at - time.timezone) > _RESERVED_SECONDS:
                    self.standin.set_condition(
                        request["metadata"], "BookingExpired", "True", "not used in time"
                    )
        self._remove_empty()

    def _remove_empty(self) -> None:
        pods = self._api.json("GET", PODS, query=UNFINISHED)["items"]
        used = {pod["spec"].get("nodeName") for pod in pods}
        there = {node["metadata"]["name"] for node in self._api.json("GET", "/api/v1/nodes")["items"]}
        now = time.monotonic()
        for node in self.nodes:
            if node.name not in there or node.name in used:
                if self._idle.pop(node.name, 0.0) and node.name in there:
                    self._taint(node, node.taints)
                continue
            idle = now - self._idle.setdefault(node.name, now)
            if idle > _IDLE_SECONDS + 1.0:
                self._remove(node)
            elif idle > _IDLE_SECONDS:
                self._taint(node, [*node.taints, *_LEAVING])

    def _remove(self, node: PoolNode) -> None:
        self._api.request("DELETE", f"/api/v1/nodes/{node.name}")
        self._done["nodes scaled down"] += 1
        self._quiet_until = 0.0
        del self._idle[node.name]
        self.standin.pool.append(node)

    def _taint(self, node: PoolNode, taints: list[dict[str, str]]) -> None:
        body = {"spec": {"taints": taints}}
        self._api.request("PATCH", f"/api/v1/nodes/{node.name}", body=body, content_type=MERGE_PATCH)

    def left(self, seconds: float) -> list[str]:
        """Once all gangs have ended: requests and PodTemplates that are still there after so long."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                items = [
                    each
                    for kind in (REQUESTS, TEMPLATES)
                    for each in self._api.json("GET", kind.path)["items"]
                ]
            except ApiError as error:
                return [f"requests for nodes cannot be read: {error}"]
            # Of the hostile tenant's gangs some wait for ever.
            left = [each["metadata"] for each in items if each["metadata"]["namespace"] == OURS]
            if not left or time.monotonic() > deadline:
                return [f"{each['name']} is left of a request for nodes" for each in left]
            time.sleep(0.5)
