"""Evict one pod for the sake of others, by the eviction API: it heeds budgets, and the pod's own grace."""

import logging
from typing import Final

from webhook.kube.client import ApiError
from webhook.sweeper.context import Pass
from webhook.sweeper.decide.orders import Done, Eviction, Warn

EVICTED: Final = "evicted"
REFUSED: Final = "refused"
FAILED: Final = "failed"

logger = logging.getLogger(__name__)


def evict_for_others(surroundings: Pass, order: Eviction) -> Done:
    """Ask for it once; whom a budget keeps is asked for again by a later pass.

    The uid guards a pod of the same name that was made since.
    """
    if not surroundings.may_act():
        return Done()
    metadata = order.pod.metadata
    path = f"/api/v1/namespaces/{metadata.namespace}/pods/{metadata.name}/eviction"
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": metadata.name, "namespace": metadata.namespace},
        "deleteOptions": {"preconditions": {"uid": metadata.uid}},
    }
    outcomes = surroundings.metrics.evictions
    try:
        surroundings.api.request("POST", path, body=body)
    except ApiError as error:
        if error.status in (404, 409):
            return Done()  # gone, or another pod by now: the watch will show it
        outcome = REFUSED if error.status == 429 else FAILED
        outcomes.labels(order.cause, outcome).inc()
        logger.warning(
            "eviction_%s pod=%s/%s error=%r", outcome, metadata.namespace, metadata.name, str(error)
        )
        told = Warn(order.pod, "EvictionRefused", f"to be {order.reason}; tried again: {error}")
        return Done(warnings=(told,))
    outcomes.labels(order.cause, EVICTED).inc()
    logger.info(
        "evicted pod=%s/%s cause=%s reason=%r", metadata.namespace, metadata.name, order.cause, order.reason
    )
    return Done(evicted=(order,), warnings=(Warn(order.pod, "Preempted", order.reason),))
