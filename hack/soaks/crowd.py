"""What people ask of the cluster in a soak: gangs of several kinds, and pods of others."""

import contextlib
import random
import time
from collections import Counter
from typing import Any, Final

from hack.soaks import claims, spreads
from hack.soaks.domains import OVER
from hack.soaks.ledger import GPUS
from hack.soaks.reader import PODS
from labeler.contract import keys
from webhook.kube.client import Api, ApiError
from webhook.workloads import marks

OURS: Final = "soak"
FOREIGN: Final = "soak-others"
UNFINISHED: Final = {"fieldSelector": "status.phase!=Succeeded,status.phase!=Failed"}
_SETS: Final = f"/apis/apps/v1/namespaces/{OURS}/statefulsets"
_KINDS: Final = {
    "job": 5, "pods": 2, "intel": 2, "foreign": 2, "elastic": 2, "exclusive": 1, "staged": 1, "ruled": 2,
    "urgent": 2, "claims": 3,
}  # fmt: skip
"""How many of each kind are among as many as these are together."""
_CLASSES: Final = ("", "", "gpu-low-priority", "gpu-high-priority")


class Crowd:
    """Makes gangs as long as there are not too many pods."""

    def __init__(self, api: Api, most: int, choices: random.Random, done: Counter[str]) -> None:
        """most: unfinished pods before new gangs wait; choices: decides what comes; done: counts it."""
        self._api = api
        self._most = most
        self._random = choices
        self._done = done
        self._sets: dict[str, float] = {}
        self._kinds: list[str] = []

    def create(self) -> None:
        """One more gang, or one more pod of others, if there is room for more to wait."""
        unfinished = self._api.json("GET", PODS, query=UNFINISHED)["items"]
        if len(unfinished) >= self._most:
            return
        number = self._done["gangs"]
        self.end_staged()
        kind = self._next_kind()
        self._done[kind] += 1
        if kind == "foreign":
            pod = self._pod({GPUS: self._random.choice((1, 2, 4))}, self._random.uniform(2, 6))
            pod["metadata"]["name"] = f"foreign-{self._done[kind]}"
            self._post(FOREIGN, pod)
            return
        self._done["gangs"] += 1
        size = self._random.choice((1, 2, 2, 3, 4, 6, 8))
        if kind == "intel":
            millicores = self._random.choice((200, 300, 500, 600, 1000))
            limits = {keys.I915: 1, keys.MILLICORES: millicores}
            self.post_job(f"intel-{number}", min(size, 4), limits)
        elif kind == "job":
            self.post_job(f"job-{number}", size, {GPUS: self._random.choice((1, 2, 4, 8))})
        elif kind == "urgent":
            spec = {"priorityClassName": "gpu-high-priority"}
            self.post_job(f"urgent-{number}", self._random.choice((2, 4, 8)), {GPUS: 8}, spec=spec)
        elif kind == "elastic":
            least = {keys.GANG_MIN_SIZE_ANNOTATION: str(self._random.randint(1, size))}
            self.post_job(f"elastic-{number}", size, {GPUS: self._random.choice((4, 8))}, least)
        elif kind == "exclusive":
            self._exclusive(f"exclusive-{number}", min(size, 3), self._random.choice((1, 2)))
        elif kind == "claims":
            limits, spec = claims.asking(self._random.choice(claims.COUNTS), self._random.random() < 0.7)
            self.post_job(f"claims-{number}", size, limits, spec=spec)
        elif kind == "ruled":
            self._ruled(f"ruled-{number}", size, self._random.choice((spreads.APART, spreads.EVEN)))
        elif kind == "staged":
            self._staged(f"staged-{number}", min(size, 3))
        else:
            size = min(size, 4)
            body = self._pod({GPUS: self._random.choice((1, 4, 8))}, self._random.uniform(2, 6), gated=True)
            for index in range(size):
                metadata = {
                    "name": f"bare-{number}-{index}",
                    "annotations": {
                        **body["metadata"]["annotations"],
                        keys.GANG_ANNOTATION: f"bare-{number}",
                        keys.GANG_SIZE_ANNOTATION: str(size),
                    },
                }
                self._post(OURS, {**body, "metadata": metadata})

    def _next_kind(self) -> str:
        """Drawn like cards of a deck: each kind comes early in a short soak, too."""
        if not self._kinds:
            self._kinds = [kind for kind, count in _KINDS.items() for _ in range(count)]
            self._random.shuffle(self._kinds)
        return self._kinds.pop()

    def _exclusive(self, name: str, size: int, jobs: int) -> None:
        """A Job with a block of its own, or a set of them, marked as JobSet marks them."""
        annotations = {marks.JOBSET_EXCLUSIVE: OVER}
        if jobs == 1:
            self.post_job(name, size, {GPUS: 1}, annotations)
            return
        annotations[keys.GANG_SIZE_ANNOTATION] = str(size * jobs)
        for job in range(jobs):
            labels = {
                marks.JOBSET_NAME_LABEL: name,
                marks.JOB_GLOBAL_INDEX: str(job),
                marks.JOBS_OF_JOBSET: str(jobs),
            }
            self.post_job(f"{name}-{job}", size, {GPUS: 1}, annotations, labels)

    def _ruled(self, name: str, size: int, kind: str) -> None:
        """A Job whose pods are to be in different blocks, or spread over these evenly."""
        size = min(size, 3) if kind == spreads.APART else size
        said, labels = {spreads.RULE: f"{kind}/{size}"}, {spreads.LABEL: name}
        self.post_job(name, size, {GPUS: 1}, said, labels, spreads.rule(kind, name))

    def _staged(self, name: str, size: int) -> None:
        """Pods that come one after the other and do not end by themselves."""
        template = self._pod({GPUS: self._random.choice((4, 8))}, 0, gated=True)
        template["metadata"] = {"labels": {"set": name}}
        template["spec"]["restartPolicy"] = "Always"
        spec = {
            "replicas": size,
            "serviceName": name,
            "selector": {"matchLabels": {"set": name}},
            "template": template,
        }
        self._api.request("POST", _SETS, body={"metadata": {"name": name}, "spec": spec})
        self._sets[name] = time.monotonic() + self._random.uniform(6, 15)

    def end_staged(self) -> None:
        """Delete those whose time is over."""
        for name, until in list(self._sets.items()):
            if time.monotonic() >= until:
                query = {"propagationPolicy": "Background"}
                with contextlib.suppress(ApiError):
                    self._api.request("DELETE", f"{_SETS}/{name}", query=query)
                    del self._sets[name]

    def post_job(
        self,
        name: str,
        size: int,
        limits: dict[str, int],
        annotations: dict[str, str] | None = None,
        labels: dict[str, str] | None = None,
        spec: dict[str, Any] | None = None,
    ) -> None:
        """Make a Job. spec: further fields of its pods."""
        template = self._pod(limits, self._random.uniform(2, 6), gated=True)
        template["spec"] |= spec or {}
        template["metadata"]["annotations"] |= annotations or {}
        template["metadata"]["labels"] = labels or {}
        body = {
            "metadata": {"name": name},
            "spec": {
                "completionMode": "Indexed",
                "completions": size,
                "parallelism": size,
                "backoffLimit": 1000,
                "ttlSecondsAfterFinished": 5,
                "template": template,
            },
        }
        self._api.request("POST", f"/apis/batch/v1/namespaces/{OURS}/jobs", body=body)

    def _pod(self, limits: dict[str, int], seconds: float, *, gated: bool = False) -> dict[str, Any]:
        spec: dict[str, Any] = {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 1,
            "containers": [{"name": "c", "image": "x", "resources": {"limits": limits}}],
        }
        if gated:
            spec["schedulingGates"] = [{"name": keys.GATE}]
            spec["priorityClassName"] = self._random.choice(_CLASSES)
        annotations = {"local.topogate.io/run-for": f"{seconds:.0f}s"}
        return {"metadata": {"annotations": annotations}, "spec": spec}

    def _post(self, namespace: str, pod: dict[str, Any]) -> None:
        self._api.request("POST", f"/api/v1/namespaces/{namespace}/pods", body=pod)
