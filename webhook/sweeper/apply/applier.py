"""Carry orders out: one write of a plan, then one guarded patch for each of its pods.

The process may end at any point here. A written plan is carried out by the next pass of any leader; an
unwritten one has no effect.
"""

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Final

from labeler.contract.event_reasons import EventReason
from webhook.kube import placements
from webhook.kube.client import JSON_PATCH, ApiError
from webhook.kube.objects import Pod
from webhook.kube.paths import pod_path
from webhook.placement import check
from webhook.sweeper.apply import patches
from webhook.sweeper.apply.evictions import Evictor
from webhook.sweeper.apply.release import Outcome, Release, Releaser
from webhook.sweeper.context import Pass, Retries, answered, failing_last
from webhook.sweeper.decide import plan
from webhook.sweeper.decide.orders import (
    Cause,
    Delay,
    Done,
    FailedRelease,
    GangOutcome,
    ModelLabelOrder,
    NewPlan,
    Orders,
    Pair,
    ReadBack,
    cause_of,
)
from webhook.sweeper.decide.refusing_nodes import ApiRefusal
from webhook.sweeper.decide.retries import FIRST_SECONDS, Key, RetryTable, Write
from webhook.sweeper.observe.gangs import OWN_ERROR, GangKey, key_of
from webhook.sweeper.observe.snapshotter import Snapshotter
from webhook.sweeper.observe.view import View

_PARALLEL_PLANS: Final = 8
_UNDONE: Final = "undone"


class Applier:
    """Writes plans, releases pods and has them evicted."""

    def __init__(
        self,
        surroundings: Pass,
        snapshotter: Snapshotter,
        annotations: Callable[[], Mapping[str, Mapping[str, str]]] = dict,
    ) -> None:
        """snapshotter: reads the cluster again where it has changed since a plan was made. annotations:
        further ones of a gang's pods, by its Placement.
        """
        self._annotations = annotations
        self._pass = surroundings
        self._snapshotter = snapshotter
        self._releaser = Releaser(
            surroundings.api,
            surroundings.stopping,
            surroundings.may_act,
            surroundings.settings.gate_prefix,
            forgets_managers=not surroundings.settings.keep_managed_fields,
        )
        self._pool = ThreadPoolExecutor(_PARALLEL_PLANS, thread_name_prefix="plan")
        self._fresh_lock = threading.Lock()
        self._retries = Retries(surroundings, RetryTable())
        self._gang_of: Callable[[Pod], GangKey] = key_of
        """Both of the pass that is carried out."""

    def close(self) -> None:
        """End the threads."""
        self._releaser.close()
        self._pool.shutdown(cancel_futures=True)

    def apply(self, orders: Orders, view: View, retries: Retries) -> Done:
        """Carry the orders of a pass out; a defect in one kind of them does not stop the others.

        Releases come first, as evictions may take as long as a pass. Plans of a gang are left to the next
        pass where the API server has just refused a release of it.
        """
        self._retries, self._gang_of = retries, view.gang_of
        done: list[Done] = []

        def place(orders: Orders, view: View) -> list[Done]:
            return self._place(orders, view, {refusal.gang for each in done for refusal in each.refused})

        for carry_out in (self._finish, self._evict, self._label, place):
            try:
                done += carry_out(orders, view)
            except Exception:  # what came of them is unknown
                logger.exception("apply_failed step=%s", carry_out.__name__)
                done.append(Done(failed=True))
        together = Done.together(done)
        for gang in {refusal.gang for refusal in together.refused}:
            retries.failed((Write.GANG, gang))
        return together

    def _finish(self, orders: Orders, view: View) -> list[Done]:
        found = self._read_back(orders.reads)
        return [*found, self._release(orders.releases)] if orders.releases else found

    def _evict(self, orders: Orders, view: View) -> list[Done]:
        return Evictor(self._retries, self._snapshotter.owners).evict_all(orders.evictions, view)

    def _label(self, orders: Orders, view: View) -> list[Done]:
        return ModelLabelWriter(self._retries, self._pool, view.gang_of).write_all(orders.model_label_orders)

    def _place(self, orders: Orders, view: View, refused: Set[GangKey]) -> list[Done]:
        """Several plans at once, each checked against the changes since; some may no longer fit."""
        plans = [each for each in orders.plans if each.gang.key not in refused]
        deadline = self._pass.clock() + self._pass.settings.pass_seconds

        def write(order: NewPlan) -> Done:
            return self._carry_out(order, view, deadline)

        due = self._retries.round_robin(plans, _namespace_of_plan)
        found = failing_last(self._pool.map, due, _namespace_of_plan, write, lambda done: not done.placed)
        return found if len(plans) == len(orders.plans) else [*found, Done(failed=True)]

    # --- plans ----------------------------------------------------------------------------------

    def _carry_out(self, order: NewPlan, view: View, deadline: float) -> Done:
        gang = order.gang
        key = Write.PLAN, gang.key.placement_key
        try:
            self._pass.heartbeat()
            if waits := self._retries.seconds_left(key):
                return Done(again_seconds=waits)  # the result of the last try still counts
            if not self._pass.may_act():
                return Done()
            if self._pass.clock() >= deadline:
                return Done(failed=True)
            if outcome := self._write_if_it_holds(order, view):
                return Done(outcomes=(outcome,))
            self._pass.metrics.placed.inc()
            logger.info(
                "gang_placed gang=%s pods=%d spread=%r proven=%s",
                gang.key, len(order.entries), order.spread, order.answer.proven,
            )  # fmt: skip
            self._retries.over(key)
            return Done.together([self._release(order.now), Done(placed=(order,))])
        except ApiError as error:
            self._pass.metrics.errors.labels(str(error.status)).inc()
            refusal = (GangOutcome(gang, f"not committed in this pass: {error}", Cause.PLAN_REFUSED),)
            if error.is_for_now:
                self._retries.failed((Write.NAMESPACE, gang.key.namespace))
                return Done(outcomes=refusal, again_seconds=self._retries.failed(key, error).seconds)
            # Orders that would be refused for good take time in each pass.
            refused = (ApiRefusal(gang.key),) if error.status != 409 else ()
            self._retries.over(key)
            return Done(outcomes=refusal, refused=refused, failed=True)
        except Exception:  # one bad gang never stops the others
            logger.exception("plan_failed gang=%s", gang.key)
            return Done(
                outcomes=(GangOutcome(gang, OWN_ERROR, Cause.INTERNAL_ERROR),),
                refused=(ApiRefusal(gang.key),),
            )

    def _write_if_it_holds(self, order: NewPlan, view: View) -> GangOutcome | None:
        """Check by the newest that is known, then write; returns why it does not hold, None if it does."""
        lost = next(filter(None, map(self._snapshotter.owners(), order.pods.values())), None)
        if lost is not None:
            return GangOutcome(order.gang, lost.sentence, cause_of(lost))
        if self._pass.cache.usage_version == order.usage_version:
            self._write(order, view)  # the only changes are those of this pass
            return None
        with self._fresh_lock:  # the next plan is checked with this one
            fault = self._fault(order, view)
            if not fault:
                self._write(order, view)
                return None
        self._pass.cache.changed.set()
        return GangOutcome(
            order.gang, f"planned again, since the cluster changed: {fault}", Cause.CLUSTER_CHANGED
        )

    def _fault(self, order: NewPlan, before: View) -> str:
        view = plan.without_given_up(self._snapshotter.view(), before)
        present = {pod.metadata.uid for pod in view.gated}
        for uid, pod in order.pods.items():
            if uid not in present:
                return f"pod {pod.metadata.name} no longer waits, or was deleted"
        if order.preempts:
            return ""  # the pods in the way are still there, as they must be
        snapshot = self._snapshotter.snapshot(view)
        for asked, answer in order.steps:
            if problems := check(answer, asked.gang, snapshot):
                return problems[0]
            snapshot = snapshot.assume(answer, asked.gang)
        return ""

    def _write(self, order: NewPlan, view: View) -> None:
        """Make the plan durable."""
        gang = order.gang
        before = view.placements.get(gang.key.placement_key)
        spec = plan.plan_spec(
            gang,
            before,
            list(order.entries),
            order.later_pod_nodes,
            proven=order.answer.proven,
            preempts=order.preempts,
            domains=order.domains,
            victims=order.victims,
            avoided=order.avoided,
            usable_nodes=view.usable_count,
            moves=order.moves,
        )
        written = placements.write_plan(self._pass.api, before, plan.plan_metadata(gang), spec)
        self._pass.cache.written(written)

    # --- releases -------------------------------------------------------------------------------

    def _release(self, pairs: Iterable[Pair]) -> Done:
        all_ = [(pair, self._retries.seconds_left((Write.RELEASE, pair[1].uid))) for pair in pairs]
        done = [Done(again_seconds=waits) for _, waits in all_ if waits]
        pairs = tuple(pair for pair, waits in all_ if not waits)
        pods = {planned.uid: pod for pod, planned in pairs}
        self._pass.cache.expect({planned.uid: planned.node for _, planned in pairs})
        deferred = []
        annotations = self._annotations_of(pods.values())
        for release in self._releaser.release(pairs, annotations, self._position):
            self._pass.metrics.releases.labels(release.outcome).inc()
            if release.outcome is Outcome.FAILED:
                deferred.append(release)
            done.append(self._after_release(pods[release.planned.uid], release))
        if deferred:
            first = deferred[0].planned
            logger.warning(
                "releases_deferred pods=%d first=%s/%s node=%s detail=%r",
                len(deferred), pods[first.uid].metadata.namespace, first.name, first.node, deferred[0].detail,
            )  # fmt: skip
        return Done.together(done)

    def _after_release(self, pod: Pod, release: Release) -> Done:
        if release.outcome is Outcome.FAILED:
            return self._again(pod, release)  # no event is certain to follow, so a pass is due
        self._retries.over((Write.RELEASE, release.planned.uid))
        if release.outcome is Outcome.REFUSED:
            refused = _refused(pod, self._gang_of(pod), release)
            return replace(refused, failed_releases=_of_cards(pod, release))
        # Whatever the last attempt was answered, one before may arrive still.
        unconfirmed = _of_cards(pod, release) if release.unconfirmed_seconds else ()
        # A webhook may have undone the release; and a proxy may answer so for a deleted pod.
        released = (release.planned,) if release.outcome is Outcome.RELEASED else ()
        return Done(released=released, failed_releases=unconfirmed)

    def _position(self, pod: Pod) -> tuple[float, ...]:
        """By which pods are released where not all can be: failed ones, and their namespaces, come last."""
        metadata = pod.metadata
        return self._retries.position((Write.NAMESPACE, metadata.namespace), (Write.RELEASE, metadata.uid))

    def _read_back(self, reads: Sequence[ReadBack]) -> list[Done]:
        """Read the pods of unconfirmed releases, and of those answered as done that do not show.

        Pods that could not be read take no time from the others: they are read less and less often.
        """
        waits = {
            each.planned.uid: self._retries.seconds_left((Write.READ, each.planned.uid)) for each in reads
        }
        due = {each.planned.uid: each for each in reads if not waits[each.planned.uid]}
        done = [Done(again_seconds=seconds) for seconds in waits.values() if seconds]
        for release in self._releaser.read_back((each.pod, each.planned) for each in due.values()):
            done.append(self._after_reading(due[release.planned.uid], release))
        return done

    def _after_reading(self, read: ReadBack, release: Release) -> Done:
        pair = read.pod, read.planned
        if release.outcome is Outcome.RELEASED:
            return Done(released=(release.planned,))
        is_gated = release.outcome is Outcome.FAILED and not release.answer
        if is_gated and not read.is_done:
            return Done(failed_releases=(FailedRelease(pair, is_read=True),))
        again = self._retries.failed((Write.READ, release.planned.uid))
        done = Done(again_seconds=again.seconds)
        if is_gated:
            return self._undone(read, done)
        if release.outcome is Outcome.GONE or read.is_done:
            return done  # the watch will show it
        unread = FailedRelease(pair, unconfirmed_seconds=again.seconds, is_read=True)
        return replace(done, failed_releases=(unread,))

    def _undone(self, read: ReadBack, done: Done) -> Done:
        pod, planned = read.pod, read.planned
        logger.warning("release_undone pod=%s/%s node=%s", pod.metadata.namespace, planned.name, planned.node)
        note = (
            "not released: the API server accepted the patch, but the pod is still gated. Check whether a "
            f"webhook restores the gate; retried at least every {self._pass.settings.interval_seconds:g} s"
        )
        gang = self._gang_of(pod)
        delay = Delay(gang, pod, EventReason.RELEASE_DEFERRED, _UNDONE, note)
        failed = FailedRelease((pod, planned))
        return replace(done, failed_releases=(failed,), delays=(delay,))

    def _again(self, pod: Pod, release: Release) -> Done:
        if not release.is_tried:
            return Done(failed=True)  # failed ones come last: else they might take all the time
        self._retries.failed((Write.NAMESPACE, pod.metadata.namespace))
        again = self._retries.failed((Write.RELEASE, release.planned.uid), asked=release.retry_after)
        failed = _of_cards(pod, release)
        # Others may be released to its node before it is tried again.
        due = min(again.seconds, FIRST_SECONDS) if failed else again.seconds
        delays = (self._delay(pod, release),) if release.answer and again.stays else ()
        return Done(again_seconds=due, delays=delays, failed_releases=failed)

    def _delay(self, pod: Pod, release: Release) -> Delay:
        seconds = self._pass.settings.interval_seconds
        note = (
            f"not released yet: {release.answer}; retried at least every {seconds:g} s, and its capacity "
            "stays reserved. Check the webhooks and the API server"
        )
        gang = self._gang_of(pod)
        return Delay(gang, pod, EventReason.RELEASE_DEFERRED, str(release.status), note)

    def _annotations_of(self, pods: Iterable[Pod]) -> dict[str, Mapping[str, str]]:
        """By uid, further annotations for pods."""
        annotations = self._annotations()
        found = {pod.metadata.uid: self._gang_of(pod).placement_key for pod in pods if annotations}
        return {uid: annotations[name] for uid, name in found.items() if name in annotations}


def _namespace_of_plan(order: NewPlan) -> str:
    return order.gang.key.namespace


def _of_cards(pod: Pod, release: Release) -> tuple[FailedRelease, ...]:
    """A failed release for the release queue: on nodes without cards there is none."""
    planned = release.planned
    failed = FailedRelease((pod, planned), release.unconfirmed_seconds)
    return (failed,) if planned.annotations else ()


def _refused(pod: Pod, gang: GangKey, release: Release) -> Done:
    planned = release.planned
    logger.warning(
        "release_refused pod=%s/%s node=%s detail=%r",
        pod.metadata.namespace, planned.name, planned.node, release.detail,
    )  # fmt: skip
    refusal = ApiRefusal(gang, planned.node if release.depends_on_node else "")
    note = f"not released to {planned.node}: {release.detail}"
    delay = Delay(gang, pod, EventReason.RELEASE_REFUSED, f"{planned.node} {release.status}", note)
    return Done(refused=(refusal,), delays=(delay,))


# --- labels of GPU models -----------------------------------------------------------------------------
# A bounded number in a pass, failed ones last: else these might take all the time of each pass.

MOST_LABELS: Final = 500
"""Pods that are given labels in one pass: each is a write, and the pass is everybody's."""

logger = logging.getLogger(__name__)


class ModelLabelWriter:
    """Writes the labels of one step."""

    def __init__(self, retries: Retries, pool: ThreadPoolExecutor, gang_of: Callable[[Pod], GangKey]) -> None:
        """pool: in which pods are written side by side."""
        self._gang_of = gang_of
        self._pass = retries.surroundings
        self._retries = retries
        self._pool = pool

    def write_all(self, orders: Sequence[ModelLabelOrder]) -> list[Done]:
        """Several at once, for as long as a pass may last; the next one sees which pods still lack theirs."""
        deadline = self._pass.clock() + self._pass.settings.pass_seconds
        waits = [(order, self._retries.seconds_left(_key(order))) for order in orders]
        due = [order for order, seconds in waits if not seconds]
        due.sort(key=lambda order: self._retries.position(_key(order)))
        due = self._retries.round_robin(due, _namespace_of_pod)
        done = [Done(again_seconds=seconds) for _, seconds in waits if seconds]
        if len(due) > MOST_LABELS:
            done.append(Done(failed=True))

        def write(order: ModelLabelOrder) -> Done:
            return self._write(order, deadline)

        return done + failing_last(
            self._pool.map, due[:MOST_LABELS], _namespace_of_pod, write, lambda each: not each.labelled
        )

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
        logger.info(
            "model_labels_added pod=%s/%s labels=%r", metadata.namespace, metadata.name, dict(order.labels)
        )
        self._retries.over(_key(order))
        return Done(labelled=(order.pod,))

    def _not_written(self, order: ModelLabelOrder, error: ApiError) -> Done:
        again = self._retries.failed(_key(order), error)
        if error.is_for_now:
            self._retries.failed((Write.NAMESPACE, order.pod.metadata.namespace))
        done = Done(again_seconds=again.seconds)
        if error.status in (404, 409, 422) and not again.stays:
            return done  # a deleted or replaced pod gets such an answer
        gang = self._gang_of(order.pod)
        retry = f"retried at least every {self._pass.settings.interval_seconds:g} s"
        if error.is_for_now:
            note = f"without the labels of its GPU model so far; {retry}: {answered(error)}"
            delay = Delay(gang, order.pod, EventReason.LABELS_DEFERRED, str(error.status), note)
            return replace(done, delays=(delay,) if again.stays else ())
        # It makes no pass due, but each pass would be refused.
        note = f"without the labels of its GPU model; {retry}: {error}"
        delay = Delay(gang, order.pod, EventReason.LABELS_REFUSED, str(error.status), note)
        return Done(refused=(ApiRefusal(gang),), delays=(delay,))


def _namespace_of_pod(order: ModelLabelOrder) -> str:
    return order.pod.metadata.namespace


def _key(order: ModelLabelOrder) -> Key:
    return Write.LABELS, order.pod.metadata.uid
