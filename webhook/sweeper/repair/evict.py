"""Delete one pod, if it is still as it was judged."""

import logging

from webhook.kube.client import Api, ApiError
from webhook.kube.objects import Pod

logger = logging.getLogger(__name__)


def evict(api: Api, pod: Pod, *, may_run: bool = False) -> bool:
    """Delete a pod if it is still as it was judged; returns whether it is (or was) gone.

    may_run: whether it was judged as one that may run. Else its version guards a pod that has been bound
    since: our copy may be behind. Of one that runs the version changes at any moment, and of a gang that goes
    back as a whole none may be left behind for that: there the uid is enough.
    """
    metadata = pod.metadata
    guard = {"uid": metadata.uid}
    if not may_run:
        guard["resourceVersion"] = metadata.resource_version
    try:
        api.request(
            "DELETE",
            f"/api/v1/namespaces/{metadata.namespace}/pods/{metadata.name}",
            body={
                "apiVersion": "v1",
                "kind": "DeleteOptions",
                "preconditions": guard,
            },
        )
    except ApiError as error:
        if error.status == 404:
            return True
        if error.status != 409:  # changed, or another pod by now: judged anew once it has been seen
            logger.warning("evict_failed pod=%s/%s error=%r", metadata.namespace, metadata.name, str(error))
        return False
    return True
