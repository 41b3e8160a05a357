"""Requests for nodes and what a pass wants of them, for tests."""

from collections.abc import Mapping
from typing import Any

import msgspec

from labeler.contract import keys
from tests.sweeper.pods import gather_all, job_pod
from webhook.configuration.settings import ScaleUp
from webhook.extensions.scale_up.attempts import Steps
from webhook.extensions.scale_up.provisioning_requests import ProvisioningRequest
from webhook.extensions.scale_up.wants import Want, want_of
from webhook.kube.objects import Metadata
from webhook.kube.placements import Placement

CLASS = "best-effort-atomic-scale-up.autoscaling.x-k8s.io"


CHOICES = ScaleUp(CLASS, requests=3, pods=10, retry_seconds=60.0)


Conditions = Mapping[str, str]


NONE: Conditions = {}


BEGAN = 1_767_225_600.0  # 2026-01-01T00:00:00Z


def want(job: str = "train", namespace: str = "ns", pods: int = 2) -> Want:
    (gang,) = gather_all(*(job_pod(index, job, namespace) for index in range(pods)))
    name = f"job-{job}"
    owner = Placement(metadata=Metadata(name=name, namespace=namespace, uid=f"{namespace}-{job}"))
    return want_of(gang, gang.gated, owner)


def request(
    of: Want, attempt: int = 1, shape: str = "", conditions: Conditions = NONE
) -> ProvisioningRequest:
    """A request as the API server would have it. conditions: type -> status."""
    body: dict[str, Any] = {
        "metadata": {
            "name": f"{of.owner.metadata.name}-{attempt}",
            "namespace": of.owner.metadata.namespace,
            "uid": f"request-{attempt}",
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {
                keys.SCALE_UP_SHAPE_LABEL: shape or of.shape,
                keys.SCALE_UP_ATTEMPT_LABEL: str(attempt),
            },
            "ownerReferences": [{"kind": "Placement", "uid": of.owner.metadata.uid}],
        },
        "spec": {"provisioningClassName": CLASS, "podSets": [{"count": of.pods}]},
        "status": {
            "conditions": [
                {
                    "type": kind,
                    "status": status,
                    "message": "as it is",
                    "lastTransitionTime": "2026-01-01T00:00:00Z",
                }
                for kind, status in conditions.items()
            ]
        },
    }
    return msgspec.convert(body, ProvisioningRequest)


def asked(made: Steps) -> list[tuple[str, int]]:
    return [(ask.want.gang.key.name, ask.attempt) for ask in made.asks]
