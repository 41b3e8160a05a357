"""Pods for the sweeper's tests, as the API server would deliver them."""

from typing import Any

import msgspec

from labeler.contract import keys
from webhook.kube.objects import Pod
from webhook.sweeper.observe.gangs import GangKey, OwnerFacts, PodGang, gather
from webhook.workloads import marks

_decoder = msgspec.json.Decoder(Pod)


def pod_json(name: str = "p", **spec: Any) -> dict[str, Any]:
    """A gated pod; further spec fields, and metadata under that name, as given."""
    metadata = {"name": name, "namespace": "ns", "uid": f"uid-{name}", **spec.pop("metadata", {})}
    return {
        "metadata": metadata,
        "spec": {
            "containers": [{"name": "c", "image": "x"}],
            "schedulingGates": [{"name": keys.GATE}],
            **spec,
        },
        "status": {"phase": "Pending"},
    }


def decode(pod: dict[str, Any]) -> Pod:
    """Decode as the informer does."""
    return _decoder.decode(msgspec.json.encode(pod))


def job_pod(index: int, job: str = "train", namespace: str = "ns", **metadata: Any) -> Pod:
    """A pod of an indexed Job."""
    return decode(
        pod_json(
            f"{job}-{index}",
            metadata={
                "namespace": namespace,
                "uid": f"{namespace}-{job}-{index}",
                "labels": {
                    marks.JOB_NAME_LABEL: job,
                    "batch.kubernetes.io/controller-uid": f"{namespace}-{job}",
                    marks.JOB_INDEX_KEY: str(index),
                },
                "ownerReferences": [
                    {
                        "apiVersion": "batch/v1",
                        "kind": "Job",
                        "name": job,
                        "uid": f"{namespace}-{job}",
                        "controller": True,
                    }
                ],
                "creationTimestamp": "2026-01-01T00:00:00Z",
                **metadata,
            },
        )
    )


def no_size(_key: GangKey) -> OwnerFacts:
    """No owner says how many pods a gang has."""
    return OwnerFacts()


def gather_all(*pods: Pod) -> list[PodGang]:
    """The gangs of these pods where no owner says anything."""
    return gather(pods, [], no_size)
