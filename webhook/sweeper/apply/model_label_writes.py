"""Give pods the labels of their GPU model: a bounded number in a pass, last those whose labels failed.

Else so many of them might take all the room in each pass.
"""

import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Final

from labeler.contract.event_reasons import EventReason
from webhook.kube.client import JSON_PATCH, ApiError
from webhook.kube.paths import pod_path
from webhook.sweeper.apply import patches
from webhook.sweeper.apply.retry import Retries, answered
from webhook.sweeper.decide.backoff import ApiRefusal, Key, Write
from webhook.sweeper.decide.orders import Delay, Done, ModelLabelOrder
from webhook.sweeper.observe.gangs import key_of

MOST_LABELS: Final = 500
"""Pods that are given labels in one pass: each is a write, and the pass is everybody's."""

logger = logging.getLogger(__name__)


class ModelLabelWriter:
    """Writes the labels of one step."""

    def __init__(self, retries: Retries, pool: ThreadPoolExecutor) -> None:
        """pool: in which pods are written side by side."""
        self._pass = retries.surroundings
        self._retries = retries
        self._pool = pool

    def write_all(self, orders: Sequence[ModelLabelOrder]) -> list[Done]:
        """Several at once, for as long as a pass may last; the next one sees which pods still lack theirs."""
        deadline = self._pass.clock() + self._pass.settings.pass_seconds
        waits = [(order, self._retries.seconds_left(_key(order))) for order in orders]
        due = [order for order, seconds in waits if not seconds]
        due.sort(key=lambda order: self._retries.deferrals.position(_key(order)))
        done = [Done(again_seconds=seconds) for _, seconds in waits if seconds]
        if len(due) > MOST_LABELS:
            done.append(Done(failed=True))
        return done + list(self._pool.map(lambda each: self._write(each, deadline), due[:MOST_LABELS]))

    def _write(self, order: ModelLabelOrder, deadline: float) -> Done:
        metadata = order.pod.metadata
        if not self._pass.may_act() or self._pass.clock() >= deadline:
            return Done(failed=True)
        self._pass.heartbeat()
        try:
            body = patches.model_labels_patch(order.pod, order.labels)
            self._pass.api.request("PATCH", pod_path(order.pod), body=body, content_type=JSON_PATCH)
        except ApiError as error:
            return self._not_written(order, error)
        logger.info("steered pod=%s/%s labels=%r", metadata.namespace, metadata.name, dict(order.labels))
        return Done(labelled=(order.pod,), over=(_key(order),))

    def _not_written(self, order: ModelLabelOrder, error: ApiError) -> Done:
        again = self._retries.again(_key(order))
        done = Done(again_seconds=again.seconds, deferred=(again.deferred,))
        if error.status in (404, 409, 422) and not again.stays:
            return done  # what is gone or another by now looks so once
        gang = key_of(order.pod, self._pass.settings.owner_rules)
        retry = f"tried again, every {self._pass.settings.interval_seconds:g} s at least"
        if error.is_for_now:
            note = f"not given the labels of its GPU model yet; {retry}: {answered(error)}"
            delay = Delay(gang, order.pod, EventReason.LABELS_DEFERRED, str(error.status), note)
            return replace(done, delays=(delay,) if again.stays else ())
        # It makes no pass due, but each pass would be refused.
        note = f"not given the labels of its GPU model; {retry}: {error}"
        delay = Delay(gang, order.pod, EventReason.LABELS_REFUSED, str(error.status), note)
        return Done(refused=(ApiRefusal(gang),), delays=(delay,), deferred=(again.deferred,))


def _key(order: ModelLabelOrder) -> Key:
    return Write.LABELS, order.pod.metadata.uid
