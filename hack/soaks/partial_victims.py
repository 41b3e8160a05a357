"""Makes partially running gangs in a soak: a foreign pod takes the only node that one of their pods can use.

Left to chance that hardly happens: a free node is found for the missing pod, or the rest ends before it is
noticed. So each of these gangs may run on as many nodes as it has pods; the pod that takes one of them has a
higher priority than the gang, is sent there, and stays for longer than the gang is left broken.
"""

import random
import time
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, Final

from hack.soaks.crowd import OURS, UNFINISHED, Crowd
from hack.soaks.reader import PODS
from hack.soaks.takes import GPUS
from labeler.contract import keys
from webhook.kube.client import Api
from webhook.workloads import marks

ABOVE: Final = "soak-above"
"""The PriorityClass of who takes a place."""
HALVED: Final = "soak-halved"
"""The gangs' own, above all tiers, so that they soon have their nodes."""
_CLASSES: Final = {ABOVE: 1000, HALVED: 500}
WHOLE: Final = 8
"""GPUs of a node: what each pod of these asks for."""
_ENOUGH_FAILED: Final = 1
"""A gang whose pods have failed more often comes again late (see trouble.MOST_FAILED) and is left alone."""
_TAKEN_SECONDS: Final = 60.0
_RUN_SECONDS: Final = 75.0
_GIVEN_UP_SECONDS: Final = 60.0
_PAUSE_SECONDS: Final = 10.0


@dataclass
class _Gang:
    """One that is to be halved. nodes: where its pods may run; since: when it was made."""

    name: str
    nodes: tuple[str, ...]
    since: float


class Halving:
    """Makes one gang after the other, and sends a pod to one of its nodes once all of it runs."""

    def __init__(
        self,
        api: Api,
        crowd: Crowd,
        nodes: Collection[str],
        seconds: float,
        choices: random.Random,
        done: Counter[str],
    ) -> None:
        """nodes: those with GPUs that work. seconds: for how long things are disturbed at all."""
        self._api = api
        self._crowd = crowd
        self._nodes = sorted(nodes)
        self._random = choices
        self._done = done
        self._taken_seconds = min(_TAKEN_SECONDS, seconds / 6)
        self._run_seconds = min(_RUN_SECONDS, seconds / 4)
        self._last = time.monotonic() + seconds - self._run_seconds
        self._gang: _Gang | None = None
        self._next = 0.0

    def define(self) -> None:
        """Make the classes. Raises ApiError."""
        for name, value in _CLASSES.items():
            body = {"metadata": {"name": name}, "value": value}
            self._api.request("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", body=body)

    def something(self, is_amiss: Callable[[str], bool]) -> None:
        """The next step. is_amiss: whether a node is in trouble. Raises ApiError."""
        now = time.monotonic()
        if self._gang is None:
            if self._next <= now < self._last:
                self._begin([name for name in self._nodes if not is_amiss(name)], now)
        elif now - self._gang.since > _GIVEN_UP_SECONDS:
            self._end(now)
        elif places := self._where_all_run(self._gang):
            gang = self._gang
            self._end(now)
            if self._failed(gang) <= _ENOUGH_FAILED:
                self._take(self._random.choice(places))

    def _begin(self, nodes: list[str], now: float) -> None:
        size = self._random.choice((2, 2, 3))
        pods = self._api.json("GET", PODS, query=UNFINISHED)["items"]
        used = {pod["spec"].get("nodeName") for pod in pods}
        if len(free := [name for name in nodes if name not in used]) >= size:
            nodes = free
        if len(nodes) < size:
            return
        self._done["to be halved"] += 1
        name, places = f"halved-{self._done['to be halved']}", tuple(self._random.sample(nodes, size))
        only = [{"key": keys.HOSTNAME_LABEL, "operator": "In", "values": sorted(places)}]
        required = {"nodeSelectorTerms": [{"matchExpressions": only}]}
        affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
        spec: dict[str, Any] = {"priorityClassName": HALVED, "affinity": affinity}
        self._crowd.post_job(name, size, {GPUS: WHOLE}, spec=spec, seconds=self._run_seconds)
        self._gang = _Gang(name, places, now)

    def _end(self, now: float) -> None:
        self._gang, self._next = None, now + _PAUSE_SECONDS

    def _where_all_run(self, gang: _Gang) -> list[str]:
        """The nodes of its pods if all of them run, else []."""
        query = UNFINISHED | {"labelSelector": f"{marks.JOB_NAME_LABEL}={gang.name}"}
        pods = self._api.json("GET", f"/api/v1/namespaces/{OURS}/pods", query=query)["items"]
        running = [
            pod["spec"]["nodeName"]
            for pod in pods
            if pod["status"].get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]
        ]
        return running if len(running) == len(gang.nodes) else []

    def _failed(self, gang: _Gang) -> int:
        job = self._api.json("GET", f"/apis/batch/v1/namespaces/{OURS}/jobs/{gang.name}")
        return int(job["status"].get("failed", 0))

    def _take(self, node: str) -> None:
        self._done["halving"] += 1
        there = {"nodeSelector": {keys.HOSTNAME_LABEL: node}}
        name = f"halving-{self._done['halving']}"
        self._crowd.post_foreign(name, WHOLE, ABOVE, self._taken_seconds, there)
