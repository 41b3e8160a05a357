"""Delete one pod, if it is still as it was judged."""

import logging

from webhook.kube.client import Api, ApiError
from webhook.kube.objects import Pod

logger = logging.getLogger(__name__)


def evict(api: Api, pod: Pod) -> bool:
    """Delete a pod if it is still as it was judged; returns whether it is (or was) gone.

    The version guards a pod that has been bound since, and may run: our copy may be behind.
    """
    metadata = pod.metadata
    try:
        api.request(
            "DELETE",
            f"/api/v1/namespaces/{metadata.namespace}/pods/{metadata.name}",
            body={
                "apiVersion": "v1",
                "kind": "DeleteOptions",
                "preconditions": {"uid": metadata.uid, "resourceVersion": metadata.resource_version},
            },
        )
    except ApiError as error:
        if error.status == 404:
            return True
        if error.status != 409:  # changed, or another pod by now: judged anew once it has been seen
            logger.warning("evict_failed pod=%s/%s error=%r", metadata.namespace, metadata.name, str(error))
        return False
    return True
