"""What people ask of the cluster in a soak: gangs of several kinds, and pods of others.

Long gangs fill the cluster, and more important ones preempt them: gangs, for which topogate evicts whole
gangs, and pods of others, for which kube-scheduler evicts single pods and leaves parts of gangs.
"""

import contextlib
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

from hack.local import claims
from hack.local import pods as facts
from hack.local.nodes import SimulatedNode
from hack.local.pods import GPUS, RUN_FOR, SIZE, Json
from labeler.contract import keys
from webhook.kube.client import Api, ApiError
from webhook.workloads import marks

OURS: Final = "soak"
FOREIGN: Final = "soak-others"
MOST_PODS: Final = 80
"""So many unfinished pods, beside the hostile tenant's, before new gangs wait."""

_JOBS: Final = f"/apis/batch/v1/namespaces/{OURS}/jobs"
_SETS: Final = f"/apis/apps/v1/namespaces/{OURS}/statefulsets"
_BLOCK: Final = keys.PRERELEASE_TOPOLOGY[0]
_HIGH: Final = "gpu-high-priority"
_CLASSES: Final = ("", "", "gpu-low-priority", _HIGH)
_NODE_GPUS: Final = 8
_DEVICES: Final = 4
"""To claim on each node, beside the GPUs that its device plugin offers."""
_CLAIMED: Final = (1, 2, 4)
_LONG: Final = {"local.topogate.io/long": "true"}
_FEW: Final = 16
"""No more long gangs come while so many of their pods have not ended."""
_FOREIGN_PODS: Final = 3
_MOST_FREE: Final = 8
"""So many nodes that are free are filled by pods of others as well, so that the next of them preempt."""


class Load:
    """Makes gangs as long as there are not too many pods.

    patient: for so many seconds one of the long gangs runs. nodes: those to fill. done: counts what is made.
    """

    def __init__(
        self, api: Api, nodes: Sequence[str], patient: float, choices: random.Random, done: Counter[str]
    ) -> None:
        self._api, self._nodes, self._patient = api, frozenset(nodes), patient
        self._random, self._done = choices, done
        self._pods: Sequence[Json] = ()
        self._sets: dict[str, float] = {}
        self._deck: list[str] = []
        self.kinds: dict[str, tuple[int, Callable[[str, int], None]]] = {
            "job": (5, self._job),
            "bare": (2, self._bare),
            "intel": (2, self._intel),
            "foreign": (2, self._foreign),
            "elastic": (2, self._elastic),
            "exclusive": (1, self._exclusive),
            "staged": (1, self._staged),
            "ruled": (2, self._ruled),
            "urgent": (2, self._urgent),
            "claims": (3, self._claims),
            "long": (2, self._fill),
            "foreign-urgent": (2, self._foreign_urgent),
        }
        """How many of each kind are among as many as these are together, and how one is made."""

    def publish_devices(self, grid: Sequence[SimulatedNode]) -> None:
        """Give each node devices, and the namespace templates of claims on some of them."""
        claims.publish(self._api, grid, _DEVICES)
        for count in _CLAIMED:
            claims.create_template(self._api, OURS, claims.template(f"devices-{count}", count))

    def create(self, pods: Sequence[Json]) -> None:
        """One more gang, or one more pod of others, if few enough wait. pods: all. Raises ApiError."""
        self._pods = pods = [pod for pod in pods if not facts.is_finished(pod)]
        if sum(pod["metadata"]["namespace"] in (OURS, FOREIGN) for pod in pods) < MOST_PODS:
            kind = self._next_kind()
            self._done[kind] += 1
            size = self._random.choice((1, 2, 2, 3, 4, 6, 8))
            self.kinds[kind][1](f"{kind}-{self._done[kind]}", size)

    def _next_kind(self) -> str:
        """Drawn like cards of decks, of which the first two have one of each: a short soak has all, too."""
        if not self._deck:
            is_early = sum(self._done[kind] for kind in self.kinds) < 2 * len(self.kinds)
            weights = {kind: 1 if is_early else weight for kind, (weight, _) in self.kinds.items()}
            self._deck = self._random.sample(list(weights), sum(weights.values()), counts=weights.values())
        return self._deck.pop()

    # --- kinds ----------------------------------------------------------------------------------

    def _job(self, name: str, size: int) -> None:
        self.post_job(name, size, {GPUS: self._random.choice((1, 2, 4, 8))})

    def _urgent(self, name: str, _: int) -> None:
        size = self._random.choice((2, 4, 6, 8))
        self.post_job(name, size, {GPUS: _NODE_GPUS}, spec={"priorityClassName": _HIGH})

    def _intel(self, name: str, size: int) -> None:
        millicores = self._random.choice((200, 300, 500, 600, 1000))
        self.post_job(name, min(size, 4), {keys.I915: 1, keys.MILLICORES: millicores})

    def _elastic(self, name: str, size: int) -> None:
        least = {keys.GANG_MIN_SIZE_ANNOTATION: str(self._random.randint(1, size))}
        self.post_job(name, size, {GPUS: self._random.choice((4, 8))}, least, {SIZE: ""})

    def _claims(self, name: str, size: int) -> None:
        """Devices that kube-scheduler gives out: a gang planned where it finds none never runs."""
        count = self._random.choice(_CLAIMED)
        if self._random.random() < 0.3:
            self.post_job(name, size, {claims.RESOURCE: count})
            return
        claim = {"name": "gpus", "resourceClaimTemplateName": f"devices-{count}"}
        self.post_job(name, size, {}, spec={"resourceClaims": [claim]})

    def _ruled(self, name: str, size: int) -> None:
        """Pods in different blocks, or evenly over these: planned otherwise, the gang never runs."""
        selector = {"topologyKey": _BLOCK, "labelSelector": {"matchLabels": {"ruled": name}}}
        even = [{**selector, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}]
        rule: Json = {"topologySpreadConstraints": even}
        if self._random.random() < 0.5:
            apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [selector]}}
            size, rule = min(size, 3), {"affinity": apart}
        self.post_job(name, size, {GPUS: 1}, labels={"ruled": name}, spec=rule)

    def _exclusive(self, name: str, size: int) -> None:
        """A Job with a block of its own, or a set of two, marked as JobSet marks them."""
        size, annotations = min(size, 3), {marks.JOBSET_EXCLUSIVE: _BLOCK}
        if self._random.random() < 0.5:
            self.post_job(name, size, {GPUS: 1}, annotations)
            return
        annotations[keys.GANG_SIZE_ANNOTATION] = str(2 * size)
        for job in "01":
            indices = {marks.JOB_GLOBAL_INDEX: job, marks.JOBS_OF_JOBSET: "2"}
            labels = {marks.JOBSET_NAME_LABEL: name} | indices
            self.post_job(f"{name}-{job}", size, {GPUS: 1}, annotations, labels)

    def _fill(self, prefix: str, _: int) -> None:
        """Long gangs without a class on all nodes: the least important pods are preempted first."""
        if sum(_LONG.items() <= pod["metadata"].get("labels", {}).items() for pod in self._pods) >= _FEW:
            return
        left, seconds = len(self._nodes), self._patient
        while left > 0:
            size = self._random.choice((3, 5, 6, 8))
            spec = {"priorityClassName": ""}
            self.post_job(f"{prefix}-{left}", size, {GPUS: _NODE_GPUS}, None, _LONG, spec, seconds)
            left, seconds = left - size, self._random.uniform(20, 35)

    def _foreign(self, name: str, _: int) -> None:
        self._post_foreign(name, self._random.choice((1, 2, 4)))

    def _foreign_urgent(self, prefix: str, _: int) -> None:
        """They run for so long that evicted pods find no place before the rest of their gang is evicted."""
        free = len(self._nodes - {facts.bound_node(pod) for pod in self._pods})
        for number in range(_FOREIGN_PODS + (free if free <= _MOST_FREE else 0)):
            self._post_foreign(f"{prefix}-{number}", _NODE_GPUS, _HIGH, self._random.uniform(10, 15))

    def _staged(self, name: str, size: int) -> None:
        """A StatefulSet, whose pods come one after the other; it is deleted after a while."""
        template = self._pod({GPUS: self._random.choice((4, 8))}, 0)
        template["metadata"] = {"labels": {"set": name}}
        template["spec"] |= {"restartPolicy": "Always", "schedulingGates": [{"name": keys.GATE}]}
        selector = {"matchLabels": {"set": name}}
        spec = {"replicas": min(size, 3), "serviceName": name, "selector": selector, "template": template}
        self._api.request("POST", _SETS, body={"metadata": {"name": name}, "spec": spec})
        self._sets[name] = time.monotonic() + self._random.uniform(6, 15)

    def end_staged(self) -> None:
        """Delete the StatefulSets whose time is over."""
        for name, until in list(self._sets.items()):
            if time.monotonic() >= until:
                with contextlib.suppress(ApiError):
                    query = {"propagationPolicy": "Background"}
                    self._api.request("DELETE", f"{_SETS}/{name}", query=query)
                    del self._sets[name]

    def _bare(self, name: str, size: int) -> None:
        """Pods that call themselves a gang, and that nobody creates again."""
        size = min(size, 4)
        body = self._gang_pod({GPUS: self._random.choice((1, 4, 8))}, size)
        annotations = {keys.GANG_ANNOTATION: name, keys.GANG_SIZE_ANNOTATION: str(size)}
        body["metadata"]["annotations"] |= annotations
        for index in range(size):
            metadata = body["metadata"] | {"name": f"{name}-{index}"}
            self._api.request("POST", _pods_of(OURS), body=body | {"metadata": metadata})

    # --- how ------------------------------------------------------------------------------------

    def post_job(
        self,
        name: str,
        size: int,
        limits: dict[str, int],
        annotations: dict[str, str] | None = None,
        labels: dict[str, str] | None = None,
        spec: Json | None = None,
        seconds: float = 0.0,
    ) -> None:
        """Make a Job. spec: further fields of its pods; seconds: for how long they run, 0 for a few."""
        template = self._gang_pod(limits, size, seconds)
        template["spec"] |= spec or {}
        template["metadata"]["annotations"] |= annotations or {}
        template["metadata"]["labels"] |= labels or {}
        job = {
            "completionMode": "Indexed",
            "completions": size,
            "parallelism": size,
            "backoffLimit": 1000,
            "ttlSecondsAfterFinished": 5,
            "template": template,
        }
        self._api.request("POST", _JOBS, body={"metadata": {"name": name}, "spec": job})

    def _gang_pod(self, limits: dict[str, int], size: int, seconds: float = 0.0) -> Json:
        pod = self._pod(limits, seconds)
        pod["metadata"]["labels"] = {SIZE: str(size)}
        pod["spec"]["schedulingGates"] = [{"name": keys.GATE}]
        pod["spec"]["priorityClassName"] = self._random.choice(_CLASSES)
        return pod

    def _post_foreign(self, name: str, gpus: int, priority_class: str = "", seconds: float = 0.0) -> None:
        pod = self._pod({GPUS: gpus}, seconds)
        pod["metadata"]["name"] = name
        pod["spec"] |= {"priorityClassName": priority_class} if priority_class else {}
        self._api.request("POST", _pods_of(FOREIGN), body=pod)

    def _pod(self, limits: dict[str, int], seconds: float) -> Json:
        runs = seconds or self._random.uniform(2, 6)
        return {
            "metadata": {"annotations": {RUN_FOR: f"{runs:.0f}s"}},
            "spec": {
                "restartPolicy": "Never",
                "terminationGracePeriodSeconds": 1,
                "containers": [{"name": "c", "image": "x", "resources": {"limits": limits}}],
            },
        }


def _pods_of(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/pods"
