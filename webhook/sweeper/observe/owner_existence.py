"""Whether the controllers of pods still exist, as the API server answers; see lost_owners for what follows.

A live copy that lacks a controller proves nothing: the watch may be late, or the kind may not be watched. So
the API server is asked for that object, beside the passes. Until it has answered, the controller is
unconfirmed. A kind that is not served, or that may not be read, counts as one that exists; but a controller
that was seen is gone once no version of its kind is served: its definition is deleted. When a waiting pod
is deleted, its controller is unconfirmed again: that may be the first pod of a deleted controller.
"""

import functools
import logging
import math
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, replace
from typing import Final

import msgspec

from webhook.kube.client import METADATA_ONLY, Api, ApiError
from webhook.kube.decoding import decoded
from webhook.kube.discovery import ServedResource, resources_by_kind, versions_of
from webhook.kube.informer import pause_seconds
from webhook.kube.objects import Metadata, OwnerReference, Pod
from webhook.kube.struct import Struct
from webhook.sweeper.observe.lost_owners import SO, OwnerState, lost_above, lost_by, owner_of
from webhook.sweeper.observe.membership import LostOwner
from webhook.text import printable


class _MetadataOnly(Struct, frozen=True):
    metadata: Metadata


_decoder: Final = msgspec.json.Decoder(_MetadataOnly)


@dataclass(frozen=True)
class _Answer:
    """The last answer of the API server, UNCONFIRMED without any, and the failures since.

    at: when it came. used_at: when a pass last needed it.
    """

    found: Metadata | OwnerState
    at: float
    used_at: float
    failures: int = 0

    def is_due(self, now: float, current_seconds: float) -> bool:
        """Whether to ask again: a controller that existed may be deleted; a uid never comes back."""
        if self.found in (OwnerState.UNREADABLE, OwnerState.UNDEFINED):
            return now - self.at >= max(_UNREADABLE_SECONDS, current_seconds)
        return self.found is not OwnerState.ABSENT and now - self.at >= current_seconds


_Key = tuple[str, OwnerReference]
"""Namespace and reference: not the uid alone, as any user may write it beside a name that does not exist."""

_ANSWER_SECONDS: Final = 2.0
"""A request may take so long. All questions wait for one that hangs, as one through a conversion webhook."""
_CURRENT_SECONDS: Final = 10.0
"""For so long an answer that a controller exists is current; then it is asked for again."""
_UNREADABLE_SECONDS: Final = 180.0
_ANSWERS_PER_SECOND: Final = 10
"""No more are asked for again: each namespace has an equal part of them, and with many controllers in it,
answers about these are current for longer."""
_REPORT_SECONDS: Final = 1.0
"""While more questions wait, other answers are reported as often as this."""
_UNUSED_SECONDS: Final = 120.0
"""Answers that no pass needed for so long are forgotten."""
_PATIENCE: Final = 3
"""After so many failures a controller counts as unreadable: of a CustomResourceDefinition whose conversion
webhook is away, no object can ever be read."""
_MOST_API_VERSIONS: Final = 256
"""Any user may name API versions; of more than these the oldest are discovered again."""

_NO_SUCH_OBJECT: Final = "NotFound"
"""The reason of a 404 about an object. A path that is served no more, such as a former version of a kind, is
answered without a Status."""

_API_VERSION: Final = re.compile(r"(?:[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?/)?[a-z0-9]{1,63}")
_NAME: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._:-]{0,251}[A-Za-z0-9])?")
"""Other references are not asked about, since they become a part of a path, and any user may write them."""

logger = logging.getLogger(__name__)


class OwnerExistence:
    """Asks the API server for controllers, in its own thread. Safe for use by many threads.

    Namespaces are served in turn, so that the questions of one do not delay those of others. An API version
    that does not answer gets one question at a time, after those about others.
    """

    def __init__(
        self,
        api: Api,
        live: Callable[[str, OwnerReference], Metadata | None],
        on_change: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
        is_leaving: Callable[[str], bool] = lambda namespace: False,
    ) -> None:
        """Prepare; start() begins.

        live: looks up a name in the live copies, whatever its uid. on_change: called, in the thread, when
        there are other answers. is_leaving: whether a namespace is being deleted.
        """
        self._is_leaving = is_leaving
        self._api = api
        self._live = live
        self._on_change = on_change
        self._clock = clock
        self._lock = threading.Lock()
        self._answers: dict[_Key, _Answer] = {}
        self._asked_again = Counter[str]()
        self._failing = dict[str, int]()
        self._reported_at = -math.inf
        self._wanted: dict[str, dict[_Key, OwnerReference]] = {}
        self._doubted: set[_Key] = set()
        self._kinds: dict[str, tuple[float, Mapping[str, ServedResource]]] = {}
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="owner existence", daemon=True)

    def start(self) -> None:
        """Begin to answer."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread; an answer that it waits for is not awaited."""
        self._stopping.set()
        self._wake.set()

    def lookup(self) -> Callable[[Pod], LostOwner | None]:
        """Looks pods up as lost_owner does; one controller is looked up once.

        The pods of a namespace that is being deleted are lost, too.
        """
        known: dict[tuple[str, OwnerReference | None], LostOwner | None] = {}
        is_leaving = functools.cache(self._is_leaving)

        def lost(pod: Pod) -> LostOwner | None:
            namespace, reference = pod.metadata.namespace, owner_of(pod.metadata)
            if is_leaving(namespace):
                return LostOwner(f"its namespace is being deleted, {SO}")
            key = namespace, reference
            if key not in known:
                known[key] = lost_above(namespace, reference, self.find)
            return lost_by(pod, reference, known[key])

        return lost

    def on_pod(self, before: Pod | None, after: Pod | None) -> None:
        """Doubt the owner of a waiting pod that is deleted, whatever is known of it."""
        reference = owner_of(before.metadata) if before is not None else None
        if before is None or reference is None or not before.spec.scheduling_gates:
            return
        is_deleted = after is None or bool(after.metadata.deletion_timestamp)
        if not is_deleted or before.metadata.deletion_timestamp:
            return
        namespace = before.metadata.namespace
        with self._lock:
            self._doubted.add((namespace, reference))
            self._want(namespace, reference)

    def find(self, namespace: str, reference: OwnerReference) -> Metadata | OwnerState:
        """The object, by a live copy or by the last answer; what is not known is asked for."""
        key, now = (namespace, reference), self._clock()
        live = self._live(namespace, reference)
        with self._lock:
            known = self._answers.get(key)
            if known is not None:
                self._answers[key] = replace(known, used_at=now)
                if known.found is OwnerState.ABSENT:
                    return known.found  # the live copy may be late
            if key in self._doubted:
                self._want(namespace, reference)
                return OwnerState.UNCONFIRMED
            if live is not None and live.uid == reference.uid:
                return live
            if known is None or known.is_due(now, self._current_seconds(namespace)):
                self._want(namespace, reference)
            return known.found if known is not None else OwnerState.UNCONFIRMED

    def _want(self, namespace: str, reference: OwnerReference) -> None:
        """Have the API server asked; the lock is taken."""
        self._wanted.setdefault(namespace, {})[namespace, reference] = reference
        self._wake.set()

    def _current_seconds(self, namespace: str) -> float:
        """How long answers about controllers in a namespace are current."""
        share = _ANSWERS_PER_SECOND / max(1, len(self._asked_again))
        return max(_CURRENT_SECONDS, self._asked_again[namespace] / share)

    # --- the thread -----------------------------------------------------------------------------

    def _run(self) -> None:
        retry_at: dict[str, float] = {}
        while not self._stopping.is_set():
            due = min(retry_at.values(), default=None)
            self._wake.wait(None if due is None else max(0.0, due - self._clock()))
            self._wake.clear()
            now = self._clock()
            retry_at = {version: at for version, at in retry_at.items() if at > now}
            try:
                failures = self.answer_all(retry_at.keys())
            except Exception:  # a defect must not end the thread: pods would wait for ever
                logger.exception("owner_lookup_failed")
                self._stopping.wait(pause_seconds(1))
                self._on_change()  # the next pass asks again
                continue
            for version, count in failures.items():
                retry_at[version] = self._clock() + pause_seconds(count)

    def answer_all(self, paused: Set[str] = frozenset()) -> Mapping[str, int]:
        """Ask for all that is wanted, each namespace in turn, but for paused API versions.

        Returns the API versions that did not answer, each with its failures in a row. They are not asked
        again before the next call, and what was wanted of them is wanted then.
        """
        failed, left, is_changed = set[str](), list[_Key](), False
        while not self._stopping.is_set() and (batch := self._take()):
            for key in batch:
                is_changed |= self._is_answered(key, paused, failed, left)
                if is_changed and self._clock() - self._reported_at >= _REPORT_SECONDS:
                    self._report()
                    is_changed = False
        self._forget_unused(left)
        if is_changed:
            self._report()
        self._failing = {each: count for each, count in self._failing.items() if each in failed | paused}
        return {version: self._failing[version] for version in failed}

    def _is_answered(self, key: _Key, paused: Set[str], failed: set[str], left: list[_Key]) -> bool:
        """Ask one question; returns whether the answer is another. Adds to `failed`, and to what is left."""
        if key[1].api_version in paused:
            left.append(key)
            return False
        is_doubted, before, answer = self._ask(key, failed)
        if answer.failures:
            failed.add(key[1].api_version)
        if 0 < answer.failures <= _PATIENCE:
            left.append(key)
        earlier = before.found if before is not None else OwnerState.UNCONFIRMED
        return _differs(earlier, answer.found) or (is_doubted and not answer.failures)

    def _forget_unused(self, left: Iterable[_Key]) -> None:
        """Forget old answers, and want what is left of the questions."""
        with self._lock:
            since = self._clock() - _UNUSED_SECONDS
            self._answers = {key: each for key, each in self._answers.items() if each.used_at >= since}
            answers = self._answers.items()
            self._asked_again = Counter(
                key[0] for key, each in answers if each.found is not OwnerState.ABSENT
            )
            for key in left:
                self._wanted.setdefault(key[0], {})[key] = key[1]

    def _report(self) -> None:
        self._reported_at = self._clock()
        self._on_change()

    def _take(self) -> list[_Key]:
        """One question of each namespace, those about API versions that have not answered last."""
        with self._lock:
            found = [
                (namespace, wanted.pop(next(iter(wanted)))) for namespace, wanted in self._wanted.items()
            ]
            self._wanted = {namespace: wanted for namespace, wanted in self._wanted.items() if wanted}
        return sorted(found, key=lambda each: self._failing.get(each[1].api_version, 0))

    def _ask(self, key: _Key, failed: Set[str]) -> tuple[bool, _Answer | None, _Answer]:
        """Whether there was doubt, the last answer, and the new one. failed: API versions not to ask."""
        namespace, reference = key
        version = reference.api_version
        found: Metadata | OwnerState | None = None
        with self._lock:  # before the question: who is deleted meanwhile raises the next one
            is_doubted = key in self._doubted
            self._doubted.discard(key)
            known = self._answers.get(key)
        try:
            if version not in failed:
                asked = self._asked(namespace, reference)
                is_gone = asked is OwnerState.UNREADABLE and self._is_undefined(known, reference)
                found = OwnerState.UNDEFINED if is_gone else asked
                self._failing.pop(version, None)
        except ApiError as error:
            self._failing[version] = self._failing.get(version, 0) + 1
            logger.warning(
                "owner_unconfirmed owner=%s/%s error=%r", namespace, printable(reference.name), str(error)
            )
        now = self._clock()
        with self._lock:
            before = self._answers.get(key)
            answer = _Answer(found, now, now) if found is not None else _after_failure(before, now)
            self._answers[key] = answer
            if is_doubted and 0 < answer.failures <= _PATIENCE:
                self._doubted.add(key)
        return is_doubted, before, answer

    def _asked(self, namespace: str, reference: OwnerReference) -> Metadata | OwnerState:
        """The answer of the API server. Raises ApiError if it may answer later."""
        version, name = reference.api_version, reference.name
        if not _API_VERSION.fullmatch(version) or not _NAME.fullmatch(name):
            return OwnerState.UNREADABLE
        try:
            resource = self._resource(version, reference.kind)
            if resource is None:
                return OwnerState.UNREADABLE
            within = f"/namespaces/{namespace}" if resource.namespaced else ""
            path = f"{_root(version)}{within}/{resource.name}/{name}"
            body = self._api.request("GET", path, accept=METADATA_ONLY, timeout_seconds=_ANSWER_SECONDS)
        except ApiError as error:
            if error.status == 404 and error.reason == _NO_SUCH_OBJECT:
                return OwnerState.ABSENT
            if error.is_for_now:
                raise
            return OwnerState.UNREADABLE
        return _found(body, reference.uid)

    def _is_undefined(self, known: _Answer | None, reference: OwnerReference) -> bool:
        """Whether a controller existed by its last answer, and no version of its kind is served now.

        Raises ApiError: an API server that cannot list versions proves nothing.
        """
        group, slash, _ = reference.api_version.partition("/")
        never_seen = OwnerState.UNCONFIRMED, OwnerState.UNREADABLE, OwnerState.ABSENT
        if not slash or known is None or known.found in never_seen:
            return False
        versions = versions_of(self._api, group, _ANSWER_SECONDS)
        for version in versions:
            self._kinds.pop(version, None)
        return all(self._resource(version, reference.kind) is None for version in versions)

    def _resource(self, version: str, kind: str) -> ServedResource | None:
        """The resource of a kind, None where it is not served. Raises ApiError."""
        now = self._clock()
        at, found = self._kinds.get(version, (-_UNREADABLE_SECONDS, {}))
        if now - at >= _UNREADABLE_SECONDS:
            found = resources_by_kind(self._api, _root(version), _ANSWER_SECONDS)
            self._kinds.pop(version, None)
            self._kinds[version] = now, found
            if len(self._kinds) > _MOST_API_VERSIONS:
                del self._kinds[next(iter(self._kinds))]
        return found.get(kind)


def _found(body: bytes, uid: str) -> Metadata | OwnerState:
    """The metadata in an answer; UNREADABLE for what its authors may have written there."""
    try:
        found = decoded(_decoder, body).metadata
    except msgspec.DecodeError:
        return OwnerState.UNREADABLE
    return found if found.uid == uid else OwnerState.ABSENT


def _after_failure(before: _Answer | None, now: float) -> _Answer:
    """What is known after a question that got no answer: it is asked again."""
    if before is None:
        return _Answer(OwnerState.UNCONFIRMED, -math.inf, now, 1)
    failures = before.failures + 1
    if before.found is OwnerState.UNCONFIRMED and failures > _PATIENCE:
        return _Answer(OwnerState.UNREADABLE, now, now)
    return replace(before, at=-math.inf, used_at=now, failures=failures)


def _root(version: str) -> str:
    return f"/apis/{version}" if "/" in version else f"/api/{version}"


def _differs(before: Metadata | OwnerState, after: Metadata | OwnerState) -> bool:
    """Whether a pod may be lost by one of them and not by the other."""
    if isinstance(before, OwnerState) or isinstance(after, OwnerState):
        return before is not after
    are_leaving = before.deletion_timestamp, after.deletion_timestamp
    return are_leaving[0] != are_leaving[1] or owner_of(before) != owner_of(after)
