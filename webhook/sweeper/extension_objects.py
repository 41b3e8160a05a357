"""The API objects of one extension: those that it watches and writes, and its record.

Writes are guarded: only the leader writes, a bounded number in a pass, and failed writes are retried after a
growing pause. Nothing is queued here: a hook orders a write again as long as it is needed.

A record is a ConfigMap with the state of an extension that outlives every process. It is part of the
installation and never created here. It has a lowest interval between writes, and is written only by a process
that has read it; if another client has written it since, such as an operator who resets it, its contents are
taken over.
"""

import hashlib
import json
import logging
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Final

from labeler.contract import keys
from webhook.kube.client import MERGE_PATCH, ApiError
from webhook.kube.state_config_map import NAMESPACE, StateConfigMap, path_of
from webhook.sweeper.context import Pass, Retries, failing_last
from webhook.sweeper.decide.orders import NO_HURRY
from webhook.sweeper.decide.retries import Key, Write
from webhook.sweeper.extension import (
    Extension,
    ObjectWrite,
    RecordSpec,
    WriteResult,
)
from webhook.sweeper.observe.watches import Verb

MOST_WRITES: Final = 200
"""Of one extension in one pass: releases must not wait for long."""

logger = logging.getLogger(__name__)


class ExtensionObjects:
    """What one extension reads and writes."""

    def __init__(self, surroundings: Pass, extension: Extension) -> None:
        self._pass = surroundings
        self._extension = extension
        self._collections = [each for each in extension.collections if not each.is_lazy]

    def stop(self) -> None:
        """End the watches."""
        if self._collections:
            self._pass.cache.watches.drop(self._collections)

    def current(self) -> dict[Hashable, Mapping[str, Any]]:
        """The collections that have been read completely, and owners, see View.objects."""
        found: dict[Hashable, Mapping[str, Any]] = {}
        if self._collections:
            found.update(self._pass.cache.watches.read(self._collections, wait_seconds=0.0))
        for each in self._extension.owners:
            owners = self._pass.cache.owners.all_of(each.name)
            if owners is not None:
                found[each] = owners
        return found

    def write(self, writes: Sequence[ObjectWrite], retries: Retries) -> tuple[list[WriteResult], float]:
        """Make these writes; returns their results, and the seconds after which a pass is due."""
        left, deadline = MOST_WRITES, self._pass.clock() + self._pass.settings.pass_seconds
        stuck: set[str] = set()

        def make(write: ObjectWrite) -> WriteResult:
            nonlocal left
            result = _before(write, retries)
            is_left_out = write.group in stuck or not left or self._pass.clock() >= deadline
            if not result.retry_seconds and not is_left_out and self._pass.may_act():
                left -= 1
                result = self._write(write, retries)
            if write.group and not result.is_done:
                stuck.add(write.group)
            return result

        due = retries.round_robin(writes, _namespace_of)
        results = failing_last(map, due, _namespace_of, make, lambda each: bool(each.error))
        return results, min((each.due_seconds for each in results), default=NO_HURRY)

    def _write(self, write: ObjectWrite, retries: Retries) -> WriteResult:
        what = f"verb={write.verb} kind={write.collection.kind} object={_where(write)}"
        target = f"extension={self._extension.name} {what}"
        key = _key(write)
        self._pass.heartbeat()
        try:
            self._send(write)
        except ApiError as error:
            self._pass.metrics.errors.labels(str(error.status)).inc()
            logger.warning("write_failed %s reason=%r error=%r", target, write.reason, str(error))
            if error.is_for_now:
                retries.failed((Write.NAMESPACE, write.namespace))
            return WriteResult(write, False, str(error), retries.failed(key, error).seconds)
        retries.over(key)
        logger.info("write_done %s reason=%r", target, write.reason)
        return WriteResult(write, True)

    def _send(self, write: ObjectWrite) -> None:
        """Make one write, and remember it until the watch shows it. Raises ApiError."""
        copy = self._pass.cache.watches.copy_of(write.collection)
        path = write.collection.path_in(write.namespace, write.name)
        match write.verb:
            case Verb.CREATE:
                copy.answered(self._create(write))
            case Verb.PATCH:
                body = {**write.body, "metadata": {**write.body.get("metadata", {}), "uid": write.uid}}
                copy.answered(self._pass.api.request("PATCH", path, body=body, content_type=MERGE_PATCH))
            case Verb.DELETE:
                options = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": write.uid}}
                try:
                    self._pass.api.request("DELETE", path, body=options)
                except ApiError as error:
                    if error.status not in (404, 409):  # gone, or another object by now
                        raise
                copy.removed(_where(write), write.uid)

    def _create(self, write: ObjectWrite) -> bytes:
        """The created object, by this try or an earlier one. Raises ApiError."""
        kind = {"apiVersion": write.collection.api_version, "kind": write.collection.kind}
        labels = {**write.body["metadata"].get("labels", {}), keys.DIGEST_LABEL: _digest(write.body)}
        body = {**kind, **write.body, "metadata": {**write.body["metadata"], "labels": labels}}
        try:
            return self._pass.api.request("POST", write.collection.path_in(write.namespace), body=body)
        except ApiError as error:
            if error.status != 409:
                raise
            answer = self._pass.api.request("GET", write.collection.path_in(write.namespace, write.name))
            there = json.loads(answer)["metadata"]
            if there.get("labels", {}) != labels or there.get("deletionTimestamp"):
                raise
            return answer


def _namespace_of(write: ObjectWrite) -> str:
    return write.namespace


def _digest(body: Mapping[str, Any]) -> str:
    """Distinguishes an object that an earlier try has created from another one of its name and labels."""
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()[:32]


def _key(write: ObjectWrite) -> Key:
    """The key of the wait after a failure: one object, not the next one of its name."""
    path = write.collection.path_in(write.namespace, write.name)
    return Write.OBJECT, f"{write.verb} {path} {write.uid}"


def _before(write: ObjectWrite, retries: Retries) -> WriteResult:
    """The state of a write, with its wait. Raises ValueError for a verb that is not declared."""
    if write.verb not in write.collection.verbs:
        raise ValueError(f"{write.verb} {write.collection.kind} is not a verb that it declares")
    seconds = retries.seconds_left(_key(write))
    return WriteResult(write, False, retries.error(_key(write)) if seconds else "", seconds)


def _where(write: ObjectWrite) -> str:
    """ "namespace/name", or "name" where there are no namespaces."""
    return f"{write.namespace}/{write.name}" if write.namespace else write.name


# --- records ------------------------------------------------------------------------------------------


TIMEOUT_SECONDS: Final = 3.0
"""For each request: a pass waits for it."""
MISSING_SECONDS: Final = 60.0
"""A missing record is looked for again after this long."""


class RecordStore:
    """Reads and writes one record. A failure is logged once, and retried later.

    is_pending: the API server has not answered yet with its contents, or that it does not exist.
    """

    def __init__(self, surroundings: Pass, spec: RecordSpec) -> None:
        self._pass = surroundings
        self._spec = spec
        self._clock = surroundings.clock
        self._map = StateConfigMap(surroundings.api, path_of(spec.name), timeout_seconds=TIMEOUT_SECONDS)
        self._write_at = 0.0
        self._read_at = 0.0
        self._complaint = ""
        self._data: Mapping[str, str] = {}
        self._was_missing = False
        self.is_pending = True

    def read(self) -> Mapping[str, str] | None:
        """Its data if they are new, else None.

        They are new once it was read, and again if another client has written since. An empty one in the
        place of a deleted one is not new, so the known state is written into it.
        """
        if self._map.version or self._clock() < self._read_at:
            return None
        try:
            self._data = self._map.read()
        except ApiError as error:
            is_missing = error.status in (403, 404)
            self.is_pending = not is_missing
            self._was_missing = self._was_missing or is_missing  # no answer says nothing of that
            self._read_at = self._clock() + (MISSING_SECONDS if is_missing else self._spec.seconds)
            self._complain(f"it cannot be read: {error}")
            return None
        if not self._spec.is_written_at_once:
            self._write_at = self._clock() + self._spec.seconds
        was_missing, self._was_missing = self._was_missing, False
        self.is_pending = False
        return None if was_missing and not self._data else self._data

    @property
    def may_write(self) -> bool:
        """Whether it is time to write, it has been read, and this process leads."""
        return bool(self._map.version) and self._clock() >= self._write_at and self._pass.may_act()

    def write(self, data: Mapping[str, str]) -> bool:
        """Write these keys, if they are news and it may be written now; returns whether that was done."""
        if not self.may_write or {**self._data, **data} == self._data:
            return False
        self._write_at = self._clock() + self._spec.seconds
        try:
            self._map.write(data)
        except ApiError as error:
            if error.status in (404, 409):
                self._map.version, self._read_at = "", 0.0
                self.is_pending = True
                self._was_missing = self._was_missing or error.status == 404
            if error.status != 409:
                self._complain(f"it cannot be written: {error}")
            return False
        self._data = {**self._data, **data}
        self._complaint = ""
        return True

    def _complain(self, complaint: str) -> None:
        if complaint != self._complaint:
            self._complaint = complaint
            logger.warning(
                "record_not_saved configmap=%s/%s reason=%r", NAMESPACE, self._spec.name, complaint
            )
