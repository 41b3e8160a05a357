"""Evict pods: by deletion those that are placed again, by the eviction API those that make way for others.

The eviction API respects budgets, and the pod's own grace period.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Final

from labeler.contract.event_reasons import EventReason
from webhook.kube.client import Api, ApiError
from webhook.kube.objects import Pod
from webhook.kube.paths import pod_path
from webhook.sweeper.context import Retries, answered
from webhook.sweeper.decide.orders import NO_HURRY, Delay, Done, Eviction, EvictionCause, Warn
from webhook.sweeper.decide.retries import Key, Write
from webhook.sweeper.observe.gangs import GangKey
from webhook.sweeper.observe.membership import LostOwner, has_owners
from webhook.sweeper.observe.view import View

_ATTEMPTS: Final = 3
"""A pod that was written meanwhile is read again this many times."""

logger = logging.getLogger(__name__)


def delete_pod(api: Api, pod: Pod, *, may_run: bool = False) -> bool:
    """Delete a pod if it is unchanged. Returns False if it was replaced, or has a node.

    may_run: whether it may be deleted even if it runs. If not, its version guards a pod that was bound since:
    our copy may be behind. The version of a running pod changes at any moment, and when a gang is deleted as
    a whole no pod may be left behind for that: then the uid is enough.

    Raises ApiError, with the status 409 if the pod is written all the time.
    """
    path, uid = pod_path(pod), pod.metadata.uid
    version = "" if may_run else pod.metadata.resource_version
    try:
        for attempt in range(_ATTEMPTS):
            guard = {"uid": uid, "resourceVersion": version} if version else {"uid": uid}
            body = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": guard}
            try:
                api.request("DELETE", path, body=body)
                return True
            except ApiError as error:
                if error.status != 409 or attempt + 1 == _ATTEMPTS:
                    raise
            if not (version := _version_if_unbound(api, path, uid)):
                return False
    except ApiError as error:
        if error.status != 404:
            raise
    return True


def _version_if_unbound(api: Api, path: str, uid: str) -> str:
    """The version of the pod as it is now, "" if it is another or has a node. Raises ApiError."""
    pod = api.json("GET", path)
    is_same = pod["metadata"]["uid"] == uid and not pod["spec"].get("nodeName")
    return str(pod["metadata"]["resourceVersion"]) if is_same else ""


_ALL: Final[Key] = Write.EVICTIONS, ""
"""Of the retry table: all evictions of a pass."""

_EVENTS: Final[dict[str, EventReason]] = {EvictionCause.MOVED: EventReason.GANG_MOVED}
EVICTED: Final = "evicted"
REFUSED: Final = "refused"
FAILED: Final = "failed"


class Evictor:
    """Carries the evictions of one pass out."""

    def __init__(
        self, retries: Retries, owners: Callable[[], Callable[[Pod], LostOwner | None]] = lambda: has_owners
    ) -> None:
        """owners: returns LostOwners.of as of now."""
        self._owners = owners
        self._pass = retries.surroundings
        self._retries = retries
        self._longest = self._pass.settings.interval_seconds

    def evict_all(self, orders: Sequence[Eviction], view: View) -> list[Done]:
        """Evict gang after gang as long as a pass may last; the next pass checks the rest.

        A gang of which one pod is evicted is finished in this pass: the next one may find that the others are
        no longer in the way, and they would be left partially running. But once the time is over it ends with
        the first pod that is not evicted: each of thousands may take as long to be refused. After a pass that
        spent its time without an eviction, all evictions wait, longer each time, since everything else lacks
        this time.
        """
        if not orders:
            return []
        if waits := self._retries.seconds_left(_ALL):
            return [Done(deferred=tuple(orders), again_seconds=waits)]
        deadline = self._pass.clock() + self._pass.settings.pass_seconds
        orders, done = self._ordered(orders, view), list[Done]()
        for gang, together in groupby(orders, lambda order: view.gang_of(order.pod)):
            if self._pass.clock() >= deadline:
                return self._cut(orders, done)
            own = list(together)
            is_in_vain = self._is_in_vain(own)
            for order in own:
                self._pass.heartbeat()
                done.append(each := Done() if is_in_vain else self._evict(order, gang))
                if not each.evicted and each != Done() and self._pass.clock() >= deadline:
                    return self._cut(orders, done)
        return done

    def _is_in_vain(self, orders: Sequence[Eviction]) -> bool:
        """Whether pods for which a gang is evicted have lost their controller since that was decided."""
        # Shared by all orders of a plan.
        of_plans = {id(order.waiting): order.waiting for order in orders if order.waiting}
        if not of_plans:
            return False
        lost = self._owners()
        return any(lost(pod) is not None for waiting in of_plans.values() for pod in waiting)

    def _ordered(self, orders: Sequence[Eviction], view: View) -> list[Eviction]:
        """Gang by gang; those that might take all the time each time come last.

        So come those of namespaces and causes of which evictions have failed, and those with failed pods.
        """
        position = self._retries.position
        gangs = [list(own) for _, own in groupby(orders, lambda order: view.gang_of(order.pod))]
        gangs.sort(key=lambda own: (position(_group(own[0])), max(position(_key(order)) for order in own)))
        return [order for own in gangs for order in own]

    def _cut(self, orders: Sequence[Eviction], done: list[Done]) -> list[Done]:
        """There is no time for the rest of these orders."""
        left = tuple(orders[len(done) :])
        if any(each.evicted for each in done):
            self._retries.over(_ALL)
            return [*done, Done(failed=True, deferred=left)]
        done = [replace(each, again_seconds=NO_HURRY) for each in done]
        return [*done, Done(deferred=left, again_seconds=self._retries.failed(_ALL).seconds)]

    def _evict(self, order: Eviction, gang: GangKey) -> Done:
        if not self._pass.may_act():
            return Done()
        if waits := self._retries.seconds_left(_key(order)):
            return Done(deferred=(order,), again_seconds=waits)
        done = self._ask(order, gang) if order.for_others else self._delete(order, gang)
        if done.deferred or done.delays:
            self._retries.failed(_group(order))
        else:
            self._retries.over(_group(order))
        return done

    def _delete(self, order: Eviction, gang: GangKey) -> Done:
        pod = order.pod
        try:
            is_deleted = delete_pod(self._pass.api, pod, may_run=order.may_run)
        except ApiError as error:
            return self._not_deleted(order, gang, error)
        self._retries.over(_key(order))
        if not is_deleted:
            return Done(denied=(order,))  # the watch will show its current state
        self._pass.metrics.repairs.labels(order.cause).inc()
        _log(order)
        return Done(evicted=(order,), warnings=(Warn(pod, EventReason.EVICTED, order.description),))

    def _not_deleted(self, order: Eviction, gang: GangKey, error: ApiError) -> Done:
        metadata = order.pod.metadata
        logger.warning("evict_failed pod=%s/%s error=%r", metadata.namespace, metadata.name, str(error))
        if error.status == 409:
            return replace(self._again(order, gang, error), denied=(order,))
        if error.is_for_now:
            return self._again(order, gang, error)
        self._retries.failed(_key(order), error)  # it makes no pass due, but each would be refused
        return Done(denied=(order,), delays=(_refused(order, gang, error),))

    def _ask(self, order: Eviction, gang: GangKey) -> Done:
        """Request the eviction; a pod that a budget protects is tried again by a later pass.

        The uid guards a pod of the same name that was created since.
        """
        metadata = order.pod.metadata
        path = f"{pod_path(order.pod)}/eviction"
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": metadata.name, "namespace": metadata.namespace},
            "deleteOptions": {"preconditions": {"uid": metadata.uid}},
        }
        outcomes = self._pass.metrics.evictions
        try:
            self._pass.api.request("POST", path, body=body)
        except ApiError as error:
            if error.status in (404, 409):
                self._retries.over(_key(order))
                return Done()  # gone, or replaced by now: the watch will show it
            outcome = REFUSED if error.status == 429 else FAILED
            outcomes.labels(order.cause, outcome).inc()
            logger.warning(
                "eviction_%s pod=%s/%s error=%r", outcome, metadata.namespace, metadata.name, str(error)
            )
            again = self._again(order, gang, error)
            return again if error.is_for_now else replace(again, delays=(_refused(order, gang, error),))
        outcomes.labels(order.cause, EVICTED).inc()
        _log(order)
        self._retries.over(_key(order))
        reason = _EVENTS.get(order.cause, EventReason.PREEMPTED)
        warnings = [Warn(order.pod, reason, order.reason)]
        if order.for_waiting:
            warnings.append(Warn(order.waiting[0], reason, order.for_waiting))
        return Done(evicted=(order,), warnings=tuple(warnings))

    def _again(self, order: Eviction, gang: GangKey, error: ApiError) -> Done:
        """It stays due, and is reported once it stays deferred."""
        again = self._retries.failed(_key(order), error)
        note = f"not yet {order.description}; retried at least every {self._longest:g} s: {answered(error)}"
        delay = Delay(gang, order.pod, EventReason.EVICTION_DEFERRED, str(error.status), note)
        delays = (delay,) if again.stays else ()
        return Done(deferred=(order,), again_seconds=again.seconds, delays=delays)


def _key(order: Eviction) -> Key:
    return Write.EVICTION, order.pod.metadata.uid


def _group(order: Eviction) -> Key:
    """Evictions that may fail together, for example by a webhook or a budget."""
    return Write.EVICTIONS, (order.pod.metadata.namespace, order.cause)


def _refused(order: Eviction, gang: GangKey, error: ApiError) -> Delay:
    note = f"not {order.description}: {answered(error)}"
    return Delay(gang, order.pod, EventReason.EVICTION_REFUSED, str(error.status), note)


def _log(order: Eviction) -> None:
    metadata = order.pod.metadata
    logger.info(
        "evicted pod=%s/%s cause=%s reason=%r", metadata.namespace, metadata.name, order.cause, order.reason
    )
