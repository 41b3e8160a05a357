"""Plays broken GPUs: on chosen nodes every pod with GPUs that runs fails, as a kubelet would say it.

KWOK's stages look at the pod alone; this looks at the node. It writes what a kubelet writes, the status of
pods, and nothing else.
"""

import threading
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, Final

from webhook.kube.client import MERGE_PATCH, Api, ApiError

EXIT: Final = "exit"
"""A container ends with a fault."""
NOT_ADMITTED: Final = "not-admitted"
"""The kubelet cannot give the pod its devices."""

_EVERY_SECONDS: Final = 0.2


class BrokenNodes:
    """Nodes on which pods fail, as long as they are named here. Use as a context, or call fail_once."""

    def __init__(self, api: Api, nodes: Iterable[str] = (), how: str = EXIT) -> None:
        self._api = api
        self.how = how
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="broken nodes", daemon=True)
        self.nodes = set(nodes)
        self.failed: list[tuple[str, str]] = []
        """The node and the uid of each pod that has failed here."""

    def fail_once(self) -> int:
        """Fail what runs on these nodes now; returns how many pods that were."""
        count = 0
        for node in sorted(self.nodes):
            query = {"fieldSelector": f"spec.nodeName={node},status.phase=Running"}
            for pod in self._api.json("GET", "/api/v1/pods", query=query)["items"]:
                if _has_gpus(pod) and not pod["metadata"].get("deletionTimestamp"):
                    count += self._fail(pod)
        return count

    def _fail(self, pod: dict[str, Any]) -> bool:
        metadata = pod["metadata"]
        path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}/status"
        body = {"metadata": {"uid": metadata["uid"]}, "status": failed(pod, self.how)}
        try:
            self._api.request("PATCH", path, body=body, content_type=MERGE_PATCH)
        except ApiError:
            return False  # gone, or the API server is away: the next round sees
        self.failed.append((pod["spec"]["nodeName"], metadata["uid"]))
        return True

    def _run(self) -> None:
        while not self._stopping.wait(_EVERY_SECONDS):
            try:
                self.fail_once()
            except ApiError:
                continue

    def __enter__(self) -> "BrokenNodes":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()


def refused(reason: str, message: str) -> dict[str, Any]:
    """The status of a pod that the kubelet does not admit (rejectPod in its kubelet.go)."""
    message = f"Pod was rejected: {message}"
    return {"phase": "Failed", "reason": reason, "message": message, "containerStatuses": None}


def failed(pod: dict[str, Any], how: str) -> dict[str, Any]:
    """The status of a pod that has failed now."""
    now = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
    if how == NOT_ADMITTED:
        message = "Allocate failed due to no healthy devices present; cannot allocate unhealthy devices"
        return refused("UnexpectedAdmissionError", message)
    started = pod["status"].get("startTime", now)
    ended = {"exitCode": 1, "reason": "Error", "startedAt": started, "finishedAt": now}
    containers = [
        {
            "name": container["name"],
            "image": container["image"],
            "imageID": "",
            "ready": False,
            "restartCount": 0,
            "state": {"terminated": ended},
        }
        for container in pod["spec"]["containers"]
    ]
    return {"phase": "Failed", "containerStatuses": containers}


def _has_gpus(pod: dict[str, Any]) -> bool:
    return any(
        "gpu" in name
        for container in pod["spec"]["containers"]
        for name in container.get("resources", {}).get("limits", {})
    )
