"""Release planned pods: in parallel, each by one guarded patch, with a defined outcome for each refusal."""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

import msgspec

from labeler.contract import keys
from webhook.grouping import grouped, round_robin
from webhook.kube.client import JSON_PATCH, METADATA_ONLY, Api, ApiError
from webhook.kube.objects import Pod
from webhook.kube.paths import pod_path
from webhook.kube.plan_pods import PlannedPod
from webhook.scheduling.podrules import needs_release_order
from webhook.sweeper.apply import patches
from webhook.sweeper.context import answered, failing_last
from webhook.sweeper.observe.plans import is_gated, pinned_node

PARALLEL: Final = 8
"""More does not make a small API server faster (measured: 8 threads 341-452 pods/s, 16 threads 414)."""

_ATTEMPTS: Final = 5
_LONGEST_WAIT_SECONDS: Final = 5.0
"""However long the API server asks to wait: the pass is everybody's, and the next one tries again."""
_TOGETHER_SECONDS: Final = 20.0
"""After this long no further attempt is begun, for the same reason."""
_SLOW_SECONDS: Final = 5.0
"""An attempt that fails after so long is the last one of its pass: the next one would take as long."""
_SERVER_SECONDS: Final = 8
"""The time limit for the API server: shorter than we wait for the answer, so that it is not done later."""
LOST_SECONDS: Final = 120.0
"""How long a request without an answer may still arrive: TCP repeats the data of an ended connection for
about 100 s."""
_ANSWERED_SECONDS: Final = 30.0
"""How long a release may still arrive after an answer that does not say that it was refused: etcd may have it
still, and gives it up after some 7 s; a proxy answers before the API server's time is over."""
_LOOK_AGAIN: Final = (404, 409, 422)
"""A guard failed, or the object has changed: it is read again before that is judged. A webhook of others may
also answer so for an existing pod."""
Line = list[tuple[Pod, PlannedPod]]
"""Pods that are released one after the other, with their entries in plans."""

logger = logging.getLogger(__name__)
_decoder: Final = msgspec.json.Decoder(Pod)


class Outcome(StrEnum):
    """The outcome of one release."""

    RELEASED = "released"
    GONE = "gone"
    """The pod, or the pod with this uid, is no longer there."""
    REFUSED = "refused"
    """The API server will not have it so; the same again would be refused again."""
    FAILED = "failed"
    """Not now; a later pass tries again, after its backoff."""


@dataclass(frozen=True)
class Release:
    """The outcome for one pod; detail is a sentence where it was not released.

    depends_on_node: whether a refusal may be for the node's sake; a missing right never is.
    """

    planned: PlannedPod
    outcome: Outcome
    detail: str = ""
    depends_on_node: bool = True
    answer: str = ""
    """The API server's answer, where the release failed for now and may succeed later."""
    status: int = 0
    """The HTTP status of that answer, 0 if there was none."""
    retry_after: float = 0.0
    """Seconds that the API server asks to wait."""
    is_tried: bool = True
    """False where there was no time to ask."""
    unconfirmed_seconds: float = 0.0
    """How much longer it may still arrive though it failed; 0 if it is known that it did not and will not."""


@dataclass
class _Attempts:
    """The attempts to release one pod.

    pod: as it was last read. also: annotations that are written with the release. objection: the API server's
    answer to a release that empties managedFields, "" where it refused none. detail, status, answer,
    retry_after: of the last error, see Release. unconfirmed_until: until when (time.monotonic) some attempt
    may still arrive.
    """

    pod: Pod
    planned: PlannedPod
    also: dict[str, str]
    objection: str = ""
    detail: str = ""
    status: int = 0
    answer: str = ""
    retry_after: float = 0.0
    unconfirmed_until: float = float("-inf")

    def note(self, error: ApiError) -> None:
        """The API server has given this error."""
        self.detail, self.status, self.answer = str(error), error.status, answered(error)
        self.retry_after = error.retry_after or 0.0

    def note_failed_write(self, error: ApiError) -> None:
        """The same of a release; unless it is known to be unwritten, it may arrive still."""
        self.note(error)
        if not error.is_unwritten:
            seconds = _ANSWERED_SECONDS if error.status else LOST_SECONDS
            self.unconfirmed_until = max(self.unconfirmed_until, time.monotonic() + seconds)

    def failed(self, detail: str = "", *, is_tried: bool = True) -> Release:
        """The outcome where none has succeeded, for now. detail: reported where there was no error."""
        return Release(
            self.planned, Outcome.FAILED, self.detail or detail, answer=self.answer, status=self.status,
            retry_after=self.retry_after, is_tried=is_tried,
        )  # fmt: skip

    def refused(self, *, depends_on_node: bool = True) -> Release:
        """The outcome where the API server would refuse the same again."""
        return Release(self.planned, Outcome.REFUSED, self.detail, depends_on_node, status=self.status)

    def with_unconfirmed(self, release: Release) -> Release:
        """The outcome, with how much longer an attempt may still arrive."""
        return replace(release, unconfirmed_seconds=max(0.0, self.unconfirmed_until - time.monotonic()))


class Releaser:
    """A bounded pool of releases."""

    def __init__(
        self,
        api: Api,
        stopping: threading.Event,
        may_act: Callable[[], bool],
        prefix: str = keys.GATE_PREFIX,
        *,
        forgets_managers: bool = False,
    ) -> None:
        """stopping ends the waits; may_act is asked before every write (another may lead by now).

        forgets_managers: whether releases empty managedFields; see patches.forgetting_patch.
        """
        self._forgets_managers = forgets_managers
        self._keeping: set[str] = set()
        """Namespaces in which something refuses releases that empty managedFields."""
        self._api = api
        self._stopping = stopping
        self._may_act = may_act
        self._prefix = prefix
        self._pool = ThreadPoolExecutor(PARALLEL, thread_name_prefix="release")

    def release(
        self,
        pairs: Iterable[tuple[Pod, PlannedPod]],
        annotations: Mapping[str, Mapping[str, str]] | None = None,
        position: Callable[[Pod], tuple[float, ...]] = lambda _: (),
    ) -> list[Release]:
        """Release pods as planned; pods of one node in the order given, since their cards depend on it.

        Pods of a namespace with rules on one another keep their order too, in which kube-scheduler accepts
        them. annotations: by uid, further ones of pods. position: of a pod; nodes with lower ones come first,
        since failed ones might otherwise take all the time. Namespaces are served round robin, and one where
        a release has failed comes after the others: what fails there, such as a webhook, delays none of them.
        """
        also = annotations or {}
        by_node = grouped(
            (
                (pod.metadata.namespace, "") if needs_release_order(pod.spec) else ("", planned.node),
                (pod, planned),
            )
            for pod, planned in pairs
        )
        lines = round_robin(by_node.values(), _namespace_of, lambda own: min(position(pod) for pod, _ in own))
        deadline = time.monotonic() + _TOGETHER_SECONDS

        def release(own: Line) -> list[Release]:
            return self._release_in_order(own, deadline, also)

        results = failing_last(self._pool.map, lines, _namespace_of, release, _has_failed)
        return [release for found in results for release in found]

    def read_back(self, pairs: Iterable[tuple[Pod, PlannedPod]]) -> list[Release]:
        """The outcomes of releases, as read from the pods: FAILED, without an answer, for those that are
        still gated, and with an answer where a pod could not be read.

        Pods for which there was no time are left out.
        """
        deadline = time.monotonic() + _TOGETHER_SECONDS
        found = self._pool.map(lambda pair: self._read_pod(pair[0], pair[1], deadline), pairs)
        return [release for release in found if release is not None]

    def _read_pod(self, pod: Pod, planned: PlannedPod, deadline: float) -> Release | None:
        if self._stopping.is_set() or time.monotonic() > deadline:
            return None
        try:
            fresh = self._read(pod_path(pod))
        except ApiError as error:
            return Release(planned, Outcome.FAILED, str(error), answer=answered(error), status=error.status)
        return self._ended(fresh, planned, "") or Release(planned, Outcome.FAILED, "found gated")

    def _ended(self, fresh: Pod | None, planned: PlannedPod, detail: str) -> Release | None:
        """The outcome where the pod is gone or released by now, None where it is still to be released."""
        if fresh is None or fresh.metadata.uid != planned.uid:
            return Release(planned, Outcome.GONE, detail)
        if is_gated(fresh, self._prefix):
            return None
        # An earlier try of ours did arrive, perhaps by an earlier plan.
        is_there = (pinned_node(fresh) or "") == planned.node
        return Release(planned, Outcome.RELEASED if is_there else Outcome.GONE, detail)

    def close(self) -> None:
        """Wait for the releases under way and end the threads."""
        self._pool.shutdown(cancel_futures=True)

    def _release_in_order(
        self, pairs: list[tuple[Pod, PlannedPod]], deadline: float, also: Mapping[str, Mapping[str, str]]
    ) -> list[Release]:
        found = []
        for pod, planned in pairs:
            # Of a plan only the annotations that give cards are written.
            cards = {key: text for key, text in planned.annotations.items() if key in keys.GAS_ANNOTATIONS}
            own = {**cards, **also.get(planned.uid, {})}
            found.append(self._release(_Attempts(pod, planned, own), deadline))
        return found

    def _release(self, attempts: _Attempts, deadline: float) -> Release:
        release, planned = None, attempts.planned
        for number in range(_ATTEMPTS):
            if self._stopping.is_set() or not self._may_act():
                release = Release(planned, Outcome.FAILED, "the sweeper is stopping, or no longer leads")
            elif time.monotonic() > deadline:
                release = attempts.failed("no time left in this pass", is_tried=number > 0)
            else:
                release = self._attempt(attempts, number)
            if release is not None:
                break
        return attempts.with_unconfirmed(release or attempts.failed())

    def _attempt(self, attempts: _Attempts, number: int) -> Release | None:
        """The outcome of an attempt, None if there is to be another."""
        begun = time.monotonic()
        pod = attempts.pod
        # Tried once: no release is to fail for it, whatever else guards the cluster.
        forgets = number == 0 and self._forgets(pod)
        try:
            node = attempts.planned.node
            patch = patches.release_patch(pod, node, attempts.also, self._prefix)
            self._send(pod_path(pod), [*patch, *(patches.forgetting_patch(pod) if forgets else ())])
        except patches.UnpinnableError as error:
            return Release(attempts.planned, Outcome.REFUSED, str(error))
        except ApiError as error:
            attempts.note_failed_write(error)
            if error.status in _LOOK_AGAIN:
                return self._look_again(attempts, number, forgets=forgets)
            if error.is_for_now:  # also a 401: it concerns the server or our token, not pod and node
                if time.monotonic() - begun >= _SLOW_SECONDS:
                    return attempts.failed()
                self._wait(error, number)
                return None
            if not forgets:
                return attempts.refused(depends_on_node=error.status != 403)
            attempts.objection = attempts.detail
            return None
        if attempts.objection:
            self._keep_managers(pod.metadata.namespace, attempts.objection)
        return Release(attempts.planned, Outcome.RELEASED)

    def _look_again(self, attempts: _Attempts, number: int, *, forgets: bool) -> Release | None:
        """Read a pod that has changed, as the API server answers; None if it is to be retried."""
        try:
            fresh = self._read(pod_path(attempts.pod))
        except ApiError as error:
            attempts.note(error)
            self._wait(error, number)
            return None
        if ended := self._ended(fresh, attempts.planned, attempts.detail):
            return ended
        assert fresh is not None
        if _is_the_same(fresh, attempts.pod):
            if not forgets:
                return attempts.refused()
            attempts.objection = attempts.detail
        attempts.pod = fresh
        return None

    def _wait(self, error: ApiError, attempt: int) -> None:
        """Before the next attempt: as long as the API server asks, else longer each time."""
        asked = error.retry_after or 0.2 * 2**attempt
        if attempt + 1 < _ATTEMPTS:
            self._stopping.wait(min(_LONGEST_WAIT_SECONDS, asked))

    def _forgets(self, pod: Pod) -> bool:
        return self._forgets_managers and pod.metadata.namespace not in self._keeping

    def _keep_managers(self, namespace: str, objection: str) -> None:
        """Do not send again what is refused in a namespace: the same release without it has succeeded.

        Other namespaces may have no such policy, or tenants guards of their own: each is tried by itself.
        """
        if namespace not in self._keeping:
            self._keeping.add(namespace)
            logger.warning("managed_fields_kept namespace=%s reason=%r", namespace, objection)

    def _send(self, path: str, patch: list[patches.Operation]) -> bytes:
        """Patch a pod, as cheaply for the API server as can be asked; its metadata. Raises ApiError."""
        # Validation would only warn of unknown fields, and the patch has none.
        lax = {"fieldValidation": "Ignore", "timeout": f"{_SERVER_SECONDS}s"}
        return self._api.request(
            "PATCH", path, query=lax, body=patch, content_type=JSON_PATCH, accept=METADATA_ONLY
        )

    def _read(self, path: str) -> Pod | None:
        """The current pod, None if it is gone. Raises ApiError."""
        try:
            text = self._api.request("GET", path)
        except ApiError as error:
            if error.status == 404:
                return None
            raise
        try:
            return _decoder.decode(text)
        except ValueError as error:  # it must stop no other release
            raise self._api.unreadable("GET", path, text) from error


def _namespace_of(own: Line) -> str:
    return own[0][0].metadata.namespace


def _has_failed(found: Iterable[Release]) -> bool:
    return any(each.outcome is Outcome.FAILED for each in found)


def _is_the_same(fresh: Pod, pod: Pod) -> bool:
    """Whether the pod is unchanged, so that the same patch would be refused again."""
    ours, theirs = pod.metadata, fresh.metadata
    is_unwritten = ours.resource_version == theirs.resource_version
    return is_unwritten and fresh.spec == pod.spec and ours.annotations == theirs.annotations
