"""What people ask of the cluster in a soak: gangs of several kinds, and pods of others."""

import contextlib
import random
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

from hack.soaks import claims, spreads
from hack.soaks.reader import PODS
from hack.soaks.spreads import OVER
from hack.soaks.takes import GPUS, RUN_FOR
from labeler.contract import keys
from webhook.kube.client import Api, ApiError
from webhook.workloads import marks

OURS: Final = "soak"
FOREIGN: Final = "soak-others"
UNFINISHED: Final = {"fieldSelector": "status.phase!=Succeeded,status.phase!=Failed"}
_SETS: Final = f"/apis/apps/v1/namespaces/{OURS}/statefulsets"
KINDS: Final = {
    "job": 5, "pods": 2, "intel": 2, "foreign": 2, "elastic": 2, "exclusive": 1, "staged": 1, "ruled": 2,
    "urgent": 2, "claims": 3,
}  # fmt: skip
"""How many of each kind are among as many as these are together."""
_CLASSES: Final = ("", "", "gpu-low-priority", "gpu-high-priority")


class Crowd:
    """Makes gangs as long as there are not too many pods."""

    def __init__(self, api: Api, most: int, choices: random.Random, done: Counter[str]) -> None:
        """most: unfinished pods, beside the hostile tenant's, before new gangs wait; done: counts gangs."""
        self._api = api
        self._most = most
        self._random = choices
        self._done = done
        self._sets: dict[str, float] = {}
        self._kinds: list[str] = []
        self.more: dict[str, tuple[int, Callable[[int], None]]] = {}
        """Kinds that others make: how many of them come with each kind above, and how by a number."""

    @property
    def kinds(self) -> int:
        """How many kinds of gangs there are, and so how many come before any comes again."""
        return len(KINDS) + len(self.more)

    def create(self) -> None:  # noqa: C901
        """One more gang, or one more pod of others, if there is capacity for more to wait."""
        unfinished = self._api.json("GET", PODS, query=UNFINISHED)["items"]
        if sum(pod["metadata"]["namespace"] in (OURS, FOREIGN) for pod in unfinished) >= self._most:
            return
        number = self._done["gangs"]
        self.end_staged()
        kind = self._next_kind()
        self._done[kind] += 1
        if kind == "foreign":
            self.post_foreign(f"foreign-{self._done[kind]}", self._random.choice((1, 2, 4)))
            return
        self._done["gangs"] += 1
        size = self._random.choice((1, 2, 2, 3, 4, 6, 8))
        if kind in self.more:
            self.more[kind][1](number)
        elif kind == "intel":
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
            size, name = min(size, 4), f"bare-{number}"
            annotations = {keys.GANG_ANNOTATION: name, keys.GANG_SIZE_ANNOTATION: str(size)}
            self.post_pods(name, size, {GPUS: self._random.choice((1, 4, 8))}, annotations)

    def _next_kind(self) -> str:
        """Drawn like cards of decks, of which the first two have one of each: a short soak has all, too."""
        if not self._kinds:
            counts = KINDS | {kind: count for kind, (count, _) in self.more.items()}
            is_early = self._done["gangs"] < 2 * self.kinds - 2
            self._kinds = [kind for kind, count in counts.items() for _ in range(1 if is_early else count)]
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
        self.post_job(name, size, {GPUS: 1}, {}, {spreads.LABEL: name}, spreads.rule(kind, name))

    def _staged(self, name: str, size: int) -> None:
        """Pods that come one after the other and do not end by themselves."""
        self.post_set(name, size, {GPUS: self._random.choice((4, 8))})

    def post_set(self, name: str, size: int, limits: dict[str, int], **more: Any) -> None:
        """Make a StatefulSet that is deleted after a while. more: fields of its spec."""
        template = self._pod(limits, 0, gated=True)
        template["metadata"] = {"labels": {"set": name}}
        template["spec"]["restartPolicy"] = "Always"
        spec = {
            "replicas": size,
            "serviceName": name,
            "selector": {"matchLabels": {"set": name}},
            "template": template,
            **more,
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
        seconds: float = 0.0,
    ) -> None:
        """Make a Job. spec: further fields of its pods; seconds: for how long they run, 0 for a few."""
        template = self._pod(limits, seconds or self._random.uniform(2, 6), gated=True)
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

    def post_pods(
        self,
        name: str,
        size: int,
        limits: dict[str, int],
        annotations: dict[str, str],
        labels: dict[str, str] | None = None,
        spec: dict[str, Any] | None = None,
        seconds: float = 0.0,
    ) -> None:
        """Make pods that nobody makes again. The rest is as with post_job."""
        body = self._pod(limits, seconds or self._random.uniform(2, 6), gated=True)
        body["spec"] |= spec or {}
        for index in range(size):
            metadata = {
                "name": f"{name}-{index}",
                "labels": labels or {},
                "annotations": {**body["metadata"]["annotations"], **annotations},
            }
            self._post(OURS, {**body, "metadata": metadata})

    def post_foreign(
        self,
        name: str,
        gpus: int,
        priority_class: str = "",
        seconds: float = 0.0,
        spec: dict[str, Any] | None = None,
    ) -> None:
        """Make a pod that topogate has nothing to do with.

        seconds: for how long it runs, 0 for a few; spec: further fields.
        """
        pod = self._pod({GPUS: gpus}, seconds or self._random.uniform(2, 6))
        pod["metadata"]["name"] = name
        pod["spec"] |= {"priorityClassName": priority_class} if priority_class else {}
        pod["spec"] |= spec or {}
        self._post(FOREIGN, pod)

    def _pod(self, limits: dict[str, int], seconds: float, *, gated: bool = False) -> dict[str, Any]:
        spec: dict[str, Any] = {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 1,
            "containers": [{"name": "c", "image": "x", "resources": {"limits": limits}}],
        }
        if gated:
            spec["schedulingGates"] = [{"name": keys.GATE}]
            spec["priorityClassName"] = self._random.choice(_CLASSES)
        annotations = {RUN_FOR: f"{seconds:.0f}s"}
        return {"metadata": {"annotations": annotations}, "spec": spec}

    def _post(self, namespace: str, pod: dict[str, Any]) -> None:
        self._api.request("POST", f"/api/v1/namespaces/{namespace}/pods", body=pod)
