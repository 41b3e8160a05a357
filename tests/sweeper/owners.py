"""Owners of pods, and an API server that is asked for them."""

import json
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from tests.sweeper.cluster import gpu_pod
from webhook.kube.client import ApiError
from webhook.kube.objects import Metadata, OwnerReference, Pod


def owner(kind: str, name: str, version: str = "batch/v1") -> dict[str, Any]:
    return {"apiVersion": version, "kind": kind, "name": name, "uid": f"uid-{name}", "controller": True}


def pod_of(kind: str, name: str, number: int = 0, **spec: Any) -> Pod:
    metadata = {"ownerReferences": [owner(kind, name)]}
    return gpu_pod(f"{name}-{number}", metadata=metadata, **spec)


def found(name: str, uid: str = "", deleted: bool = False, *above: dict[str, Any]) -> Metadata:
    body = {"name": name, "uid": uid or f"uid-{name}", "ownerReferences": list(above)}
    return msgspec.convert(
        body | ({"deletionTimestamp": "2026-01-01T00:00:00Z"} if deleted else {}), Metadata
    )


SERVED: Final = {
    "/apis/batch/v1": {"kind": "Job", "name": "jobs", "namespaced": True},
    "/apis/example.com/v1": {"kind": "Fleet", "name": "fleets", "namespaced": False},
}


class AnsweringApi:
    """Answers requests for owners by path, or with an HTTP status."""

    def __init__(self, answers: Mapping[str, dict[str, Any] | int]) -> None:
        self.answers = dict(answers)
        self.asked: list[str] = []

    def request(self, _: str, path: str, **__: Any) -> bytes:
        self.asked.append(path)
        if path in SERVED:
            return json.dumps({"resources": [SERVED[path]]}).encode()
        answer = self.answers.get(path, 404)
        if isinstance(answer, int):
            raise ApiError(answer, "NotFound" if answer == 404 else "", "refused")
        return json.dumps({"metadata": answer}).encode()


def reference(name: str = "big", version: str = "batch/v1") -> OwnerReference:
    return msgspec.convert(owner("Job", name, version), OwnerReference)


PATH = "/apis/batch/v1/namespaces/ns/jobs/big"
