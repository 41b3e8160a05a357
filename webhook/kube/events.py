"""Events for people: what became of a gang, said once and then counted, never at the cost of the caller.

An Event here is a courtesy. Writing one may be late or fail, and then it is counted and dropped; the
facts themselves are in Placements and logs.
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
"""The same is written at most this often."""

OBJECT_NOTES: Final = 20
"""So many different notes are written for one object within REPEAT_SECONDS: a sentence with changing
figures in it is a new one each time."""

_RANDOM: Final = re.compile(
    r"(?<=-)[bcdfghjklmnpqrstvwxz2456789]{5}(?![\w-])"
    r"|\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b"
)
"""What the API server draws at random: the end of a generated name (with the letters and digits of
k8s.io/apimachinery/pkg/util/rand), and a UID. A controller that is refused retries under another name."""

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
        """An object whose metadata are at hand: of("v1", "Pod", pod.metadata)."""
        return cls(api_version, kind, metadata.namespace, metadata.name, metadata.uid)

    @classmethod
    def owner(cls, owner: OwnerReference, namespace: str) -> "Reference":
        """The owner of an object in `namespace`."""
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
    """One thing that is said again and again. count: how often; written_at: when it was last written."""

    body: dict[str, Any]
    path: str = ""
    count: int = 0
    last: str = ""
    written_at: float = float("-inf")
    queued: bool = False


class Recorder:
    """Writes Events in a thread of its own. Safe for use by many threads."""

    def __init__(
        self, api: Api, component: str, instance: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """component: who reports, e.g. "topogate.io/sweeper"; instance: which of them, the pod's name."""
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
        """How many Events were not written: the API server was slow or refused, or there were too many."""
        return self._dropped

    def start(self) -> None:
        """Begin to write; until then Events wait in a queue of limited length."""
        self._started = True
        self._thread.start()

    def close(self, timeout_seconds: float = 2.0) -> None:
        """Write what is queued, for at most this long, and end."""
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
        """Say something about an object. Returns at once; what was said lately is only counted.

        Notes that differ by random names alone are the same. reason: why, in PascalCase, for machines
        ("GangWaits"); action: what was done or tried, likewise; note: a sentence for people, cut at 1 KiB.
        kind: NORMAL or WARNING.
        """
        note = shortened(note)
        # The author of a pod writes its owner's uid, which may be anybody's: it counts in that namespace.
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
        """Whether one more note about this object is not too much; remembers that it was begun."""
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
                # A second try after a lost answer meets the first under the same name.
                "name": f"{regarding.name[:200]}.{unique.hexdigest()[:16]}",
                # Events of objects without a namespace live here; the API server takes no other.
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
                series.written_at = self._clock()  # the same would be refused again
        logger.warning("event_dropped reason=%s error=%r", series.body["reason"], str(error))

    def _write(self, series: _Series) -> None:
        with self._lock:
            count, last = series.count, series.last
        if series.path and not self._continue(series, count, last):
            with self._lock:  # it has expired, as Events do after an hour: begin again
                series.path, series.count = "", 1
            series.body = {**series.body, "eventTime": last}
        if not series.path:
            self._create(series)
        with self._lock:
            series.written_at = self._clock()

    def _continue(self, series: _Series, count: int, last: str) -> bool:
        """Bring the count up to date; returns False if the Event is no longer there."""
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
    """At most so many bytes of a text, by default the API server's limit; a cut one ends in an ellipsis."""
    if 4 * len(text) <= most or len(encoded := text.encode(errors="replace")) <= most:
        return text
    return encoded[: most - len("…".encode())].decode(errors="ignore") + "…"
