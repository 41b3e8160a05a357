"""Records Events on gangs in the background: each once, then as a series with a count.

Events are best effort. A write may be late or fail; a failed one is counted and dropped. Placements and logs
have the same facts.
"""

import hashlib
import logging
import queue
import re
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from webhook.kube.client import MERGE_PATCH, Api, ApiError
from webhook.kube.lease import micro_time
from webhook.kube.objects import Metadata, OwnerReference

NORMAL: Final = "Normal"
WARNING: Final = "Warning"

NOTE_BYTES: Final = 1024
"""The API server's limit for an Event's note."""

REPEAT_SECONDS: Final = 600.0
"""The shortest time between two writes of the same Event."""

OBJECT_NOTES: Final = 20
"""The most different notes for one object within REPEAT_SECONDS: a note with changing numbers is a new one
each time."""

_RANDOM: Final = re.compile(
    r"(?<=-)[bcdfghjklmnpqrstvwxz2456789]{5}(?![\w-])"
    r"|\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b"
)
"""Random parts of notes: the end of a generated name (from k8s.io/apimachinery/pkg/util/rand), and a UID. A
controller retries a refused pod with another name."""

_QUEUED: Final = 256
_REMEMBERED: Final = 4096
_TIMEOUT_SECONDS: Final = 5.0

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Reference:
    """The object that an Event is about."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str

    @classmethod
    def of(cls, api_version: str, kind: str, metadata: Metadata) -> "Reference":
        """The reference to an object: of("v1", "Pod", pod.metadata)."""
        return cls(api_version, kind, metadata.namespace, metadata.name, metadata.uid)

    @classmethod
    def owner(cls, owner: OwnerReference, namespace: str) -> "Reference":
        """The reference to the owner of an object in `namespace`."""
        return cls(owner.api_version, owner.kind, namespace, owner.name, owner.uid)

    def to_json(self) -> dict[str, str]:
        """As an ObjectReference."""
        fields = {
            "apiVersion": self.api_version,
            "kind": self.kind,
            "namespace": self.namespace,
            "name": self.name,
            "uid": self.uid,
        }
        return {key: value for key, value in fields.items() if value}


@dataclass
class _Series:
    """A repeated Event. count: how often it occurred; written_at: when it was last written."""

    body: dict[str, Any]
    path: str = ""
    count: int = 0
    last: str = ""
    written_at: float = float("-inf")
    queued: bool = False


class Recorder:
    """Writes Events in its own thread. Thread-safe."""

    def __init__(
        self, api: Api, component: str, instance: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """component: the reporting controller, e.g. "topogate.io/sweeper"; instance: its pod's name."""
        self._api = api
        self._component = component
        self._instance = instance[:128]
        self._clock = clock
        self._lock = threading.Lock()
        self._series: OrderedDict[tuple[str, str, str], _Series] = OrderedDict()
        self._begun: OrderedDict[str, deque[float]] = OrderedDict()
        self._queue: queue.Queue[_Series | None] = queue.Queue(_QUEUED)
        self._dropped = 0
        self._thread = threading.Thread(target=self._run, name="events", daemon=True)
        self._started = False

    @property
    def dropped(self) -> int:
        """How many Events were dropped: the API server was slow or refused, or there were too many."""
        return self._dropped

    def start(self) -> None:
        """Start writing; until then Events wait in a bounded queue."""
        self._started = True
        self._thread.start()

    def close(self, timeout_seconds: float = 2.0) -> None:
        """Write the queued Events for at most this long, and stop."""
        try:
            self._queue.put(None, timeout=timeout_seconds)
        except queue.Full:
            return
        if self._started:
            self._thread.join(timeout_seconds)

    def event(
        self,
        regarding: Reference,
        reason: str,
        action: str,
        note: str,
        *,
        kind: str = NORMAL,
        related: Reference | None = None,
    ) -> None:
        """Record an Event about an object, and return at once; a recent one is only counted.

        Notes that differ only in random names are the same. reason: in PascalCase ("GangWaits"); action:
        likewise, what was done or attempted; note: a sentence for users, cut at 1 KiB. kind: NORMAL or
        WARNING.
        """
        note = shortened(note)
        # A pod's author may write any uid as its owner's, so count it within the namespace alone.
        about = f"{regarding.namespace}/{regarding.uid or f'{regarding.kind}/{regarding.name}'}"
        key = (about, reason, _RANDOM.sub("*", note))
        with self._lock:
            series = self._series.get(key)
            if series is None:
                if not self._may_begin(key[0]):
                    self._dropped += 1
                    return
                series = _Series(self._body(regarding, reason, action, note, kind, related))
                self._series[key] = series
            self._series.move_to_end(key)
            while len(self._series) > _REMEMBERED:
                self._series.popitem(last=False)
            series.count += 1
            series.last = micro_time()
            if series.queued or self._clock() - series.written_at < REPEAT_SECONDS:
                return
            try:
                self._queue.put_nowait(series)
                series.queued = True
            except queue.Full:
                self._dropped += 1

    def _may_begin(self, about: str) -> bool:
        """Whether this object may get one more note, which is then counted."""
        now = self._clock()
        begun = self._begun.setdefault(about, deque(maxlen=OBJECT_NOTES))
        self._begun.move_to_end(about)
        while len(self._begun) > _REMEMBERED:
            self._begun.popitem(last=False)
        if len(begun) == OBJECT_NOTES and now - begun[0] < REPEAT_SECONDS:
            return False
        begun.append(now)
        return True

    def _body(
        self,
        regarding: Reference,
        reason: str,
        action: str,
        note: str,
        kind: str,
        related: Reference | None,
    ) -> dict[str, Any]:
        now = micro_time()
        unique = hashlib.sha256(f"{regarding}\0{reason}\0{note}\0{now}\0{self._instance}".encode())
        body: dict[str, Any] = {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {
                # A retry after a lost answer has the same name as the first attempt.
                "name": f"{regarding.name[:200]}.{unique.hexdigest()[:16]}",
                # The API server requires this namespace for Events of cluster-scoped objects.
                "namespace": regarding.namespace or "default",
            },
            "eventTime": now,
            "type": kind,
            "reason": reason[:128],
            "action": action[:128],
            "note": note,
            "regarding": regarding.to_json(),
            "reportingController": self._component,
            "reportingInstance": self._instance,
        }
        if related is not None:
            body["related"] = related.to_json()
        return body

    # --- the thread -----------------------------------------------------------------------------

    def _run(self) -> None:
        while (series := self._queue.get()) is not None:
            try:
                self._write(series)
            except ApiError as error:
                self._drop(series, error)
            except Exception:  # a defect must not end the thread
                self._dropped += 1
                logger.exception("event_failed")
            finally:
                with self._lock:
                    series.queued = False

    def _drop(self, series: _Series, error: ApiError) -> None:
        with self._lock:
            self._dropped += 1
            if not error.is_transient:
                series.written_at = self._clock()  # a retry would be refused too
        logger.warning("event_dropped reason=%s error=%r", series.body["reason"], str(error))

    def _write(self, series: _Series) -> None:
        with self._lock:
            count, last = series.count, series.last
        if series.path and not self._continue(series, count, last):
            with self._lock:  # it has expired, as Events do after an hour: start a new series
                series.path, series.count = "", 1
            series.body = {**series.body, "eventTime": last}
        if not series.path:
            self._create(series)
        with self._lock:
            series.written_at = self._clock()

    def _continue(self, series: _Series, count: int, last: str) -> bool:
        """Update the count; returns False if the Event no longer exists."""
        try:
            self._api.request(
                "PATCH",
                series.path,
                body={"series": {"count": count, "lastObservedTime": last}},
                content_type=MERGE_PATCH,
                timeout_seconds=_TIMEOUT_SECONDS,
            )
        except ApiError as error:
            if error.status == 404:
                return False
            raise
        return True

    def _create(self, series: _Series) -> None:
        metadata = series.body["metadata"]
        collection = f"/apis/events.k8s.io/v1/namespaces/{metadata['namespace']}/events"
        try:
            self._api.request("POST", collection, body=series.body, timeout_seconds=_TIMEOUT_SECONDS)
        except ApiError as error:
            if error.reason != "AlreadyExists":
                raise
        series.path = f"{collection}/{metadata['name']}"


def shortened(text: str, most: int = NOTE_BYTES) -> str:
    """A text cut to so many bytes, by default the API server's limit; a cut text ends in an ellipsis."""
    if 4 * len(text) <= most or len(encoded := text.encode(errors="replace")) <= most:
        return text
    return encoded[: most - len("…".encode())].decode(errors="ignore") + "…"
