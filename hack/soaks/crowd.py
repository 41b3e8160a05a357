"""What people ask of the cluster in a soak: gangs of several kinds, and pods of others."""

import random
from collections import Counter
from typing import Any, Final

from hack.soaks.ledger import GPUS, PODS
from labeler.contract import keys
from webhook.kube.client import Api

OURS: Final = "soak"
FOREIGN: Final = "soak-others"
UNFINISHED: Final = {"fieldSelector": "status.phase!=Succeeded,status.phase!=Failed"}
_CLASSES: Final = ("", "", "gpu-low-priority", "gpu-high-priority")


class Crowd:
    """Makes gangs as long as there are not too many pods."""

    def __init__(self, api: Api, most: int, choices: random.Random, done: Counter[str]) -> None:
        """most: unfinished pods before new gangs wait; choices: decides what comes; done: counts it."""
        self._api = api
        self._most = most
        self._random = choices
        self._done = done

    def create(self) -> None:
        """One more gang, or one more pod of others, if there is room for more to wait."""
        unfinished = self._api.json("GET", PODS, query=UNFINISHED)["items"]
        if len(unfinished) >= self._most:
            return
        number = self._done["gangs"]
        kind = self._random.choices(("job", "pods", "intel", "foreign"), (5, 2, 2, 2))[0]
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
            self._job(f"intel-{number}", min(size, 4), limits)
        elif kind == "job":
            self._job(f"job-{number}", size, {GPUS: self._random.choice((1, 2, 4, 8))})
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

    def _job(self, name: str, size: int, limits: dict[str, int]) -> None:
        template = self._pod(limits, self._random.uniform(2, 6), gated=True)
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
