"""A stand-in for an autoscaler that serves ProvisioningRequests: it registers simulated nodes, and says so.

It counts GPUs and nothing else, where a real one asks kube-scheduler's own code.
"""

import contextlib
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import yaml

from hack.local.nodes import SimulatedNode
from webhook.extensions.scale_up.provisioning_requests import GROUP_VERSION, REQUESTS
from webhook.kube.client import MERGE_PATCH, Api, ApiError

BEST_EFFORT: Final = "best-effort-atomic-scale-up.autoscaling.x-k8s.io"
GPU: Final = "nvidia.com/gpu"
_DEFINITIONS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_DEFINITION: Final = Path(__file__).with_name("provisioningrequests.yaml")


def define(api: Api) -> str:
    """Make the API server take ProvisioningRequests; returns the path of the definition."""
    body = yaml.safe_load(_DEFINITION.read_text())
    api.request("POST", _DEFINITIONS, body=body)
    return f"{_DEFINITIONS}/{body['metadata']['name']}"


class StandIn:
    """Serves requests with the nodes of a pool, in their order."""

    def __init__(self, api: Api, pool: Iterable[SimulatedNode], *, label_seconds: float = 0.0) -> None:
        """label_seconds: so long a new node has no topology labels."""
        self._api = api
        self.pool = list(pool)
        self.label_seconds = label_seconds
        self._unlabelled: list[tuple[float, SimulatedNode]] = []
        self.refuses = ""
        """What it says of every request, "" while it serves them."""
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="autoscaler", daemon=True)

    def start(self) -> None:
        """Serve from now on."""
        self._thread.start()

    def stop(self) -> None:
        """Serve no more."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()

    def __enter__(self) -> "StandIn":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _run(self) -> None:
        while not self._stopping.wait(0.05):
            with contextlib.suppress(ApiError):
                self.step()

    def step(self) -> None:
        """Label what is due, and answer every request that has neither nodes nor failed. Raises ApiError."""
        for since, node in list(self._unlabelled):
            if time.monotonic() - since >= self.label_seconds:
                self._unlabelled.remove((since, node))
                self._label(node)
        for request in self._api.json("GET", REQUESTS.path)["items"]:
            conditions = request.get("status", {}).get("conditions", [])
            if not any(each["status"] == "True" for each in conditions):
                self._answer(request)

    def _label(self, node: SimulatedNode) -> None:
        body = {"metadata": {"labels": node.topology_labels}}
        path = f"/api/v1/nodes/{node.name}"
        try:
            self._api.request("PATCH", path, body=body, content_type=MERGE_PATCH)
        except ApiError as error:
            if error.status != 404:  # removed meanwhile
                self._unlabelled.append((0.0, node))
                raise

    def _answer(self, request: dict[str, Any]) -> None:
        metadata = request["metadata"]
        if self.refuses:
            self.set_condition(metadata, "Failed", "True", self.refuses)
            return
        wanted = sum(each["count"] * self._gpus(metadata, each) for each in request["spec"]["podSets"])
        chosen: list[SimulatedNode] = []
        for node in self.pool:
            if sum(each.gpus for each in chosen) < wanted:
                chosen.append(node)
        if sum(each.gpus for each in chosen) < wanted:
            self.set_condition(metadata, "Provisioned", "False", f"the pool has no {wanted} GPUs left")
            return
        for node in chosen:
            self._api.request("POST", "/api/v1/nodes", body=node.manifest())
            self._unlabelled.append((time.monotonic(), node))
            self.pool.remove(node)
        self.set_condition(metadata, "Provisioned", "True", f"{len(chosen)} nodes come")

    def _gpus(self, metadata: dict[str, Any], pod_set: dict[str, Any]) -> int:
        name = pod_set["podTemplateRef"]["name"]
        path = f"/api/v1/namespaces/{metadata['namespace']}/podtemplates/{name}"
        containers = self._api.json("GET", path)["template"]["spec"]["containers"]
        return sum(int(each.get("resources", {}).get("requests", {}).get(GPU, 0)) for each in containers)

    def set_condition(self, metadata: dict[str, Any], kind: str, status: str, message: str) -> None:
        """Write one condition beside those that are there. Raises ApiError."""
        path = f"/apis/{GROUP_VERSION}/namespaces/{metadata['namespace']}/provisioningrequests/"
        path += metadata["name"]
        there = self._api.json("GET", path).get("status", {}).get("conditions", [])
        if any((each["type"], each["status"], each["message"]) == (kind, status, message) for each in there):
            return
        at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        own = {"type": kind, "status": status, "reason": "StandIn", "message": message}
        conditions = [*(each for each in there if each["type"] != kind), {**own, "lastTransitionTime": at}]
        body = {"status": {"conditions": conditions}}
        self._api.request("PATCH", f"{path}/status", body=body, content_type=MERGE_PATCH)
