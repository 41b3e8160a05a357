"""Delete one pod, if it is still as it was judged."""

import logging
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from webhook.kube.client import Api, ApiError
from webhook.kube.objects import Pod
from webhook.kube.paths import pod_path

_TRIES: Final = 3
"""So often is a pod read again that somebody has written meanwhile."""

logger = logging.getLogger(__name__)


class Deletion(StrEnum):
    """What became of the deletion of one pod."""

    DELETED = "deleted"
    """It goes, or was gone."""
    ANOTHER = "another"
    """It is another pod by now, or is bound: to be judged anew once that has been seen."""
    PUT_OFF = "put off"
    """Not now: no answer, or too much to do."""
    CONTESTED = "contested"
    """Not now: somebody writes the pod all the time."""
    REFUSED = "refused"
    """The same again would be refused again."""


@dataclass(frozen=True)
class Deleted:
    """The outcome for one pod. error: what the API server said last, where the pod was not deleted."""

    outcome: Deletion
    error: ApiError | None = None


def evict(api: Api, pod: Pod, *, may_run: bool = False) -> Deleted:
    """Delete a pod if it is still as it was judged.

    may_run: whether it was judged as one that may run. Else its version guards a pod that has been bound
    since: our copy may be behind. Of one that runs the version changes at any moment, and of a gang that goes
    back as a whole none may be left behind for that: there the uid is enough.
    """
    metadata = pod.metadata
    path = pod_path(pod)
    version = "" if may_run else metadata.resource_version
    contested: ApiError | None = None
    for _ in range(_TRIES):
        guard = {"uid": metadata.uid} | ({"resourceVersion": version} if version else {})
        try:
            api.request(
                "DELETE",
                path,
                body={"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": guard},
            )
            return Deleted(Deletion.DELETED)
        except ApiError as error:
            if error.status == 404:
                return Deleted(Deletion.DELETED)
            if error.status != 409:
                logger.warning(
                    "evict_failed pod=%s/%s error=%r", metadata.namespace, metadata.name, str(error)
                )
                return Deleted(Deletion.PUT_OFF if error.is_for_now else Deletion.REFUSED, error)
            contested = error
        try:
            version = _version_if_unbound(api, path, metadata.uid)
        except ApiError as error:
            if error.status == 404:
                return Deleted(Deletion.DELETED)
            return Deleted(Deletion.PUT_OFF if error.is_for_now else Deletion.REFUSED, error)
        if not version:
            return Deleted(Deletion.ANOTHER)
    return Deleted(Deletion.CONTESTED, contested)


def _version_if_unbound(api: Api, path: str, uid: str) -> str:
    """The version of the pod as it is now, "" if it is another or has a node. Raises ApiError."""
    pod = api.json("GET", path)
    is_same = pod["metadata"]["uid"] == uid and not pod["spec"].get("nodeName")
    return str(pod["metadata"]["resourceVersion"]) if is_same else ""
