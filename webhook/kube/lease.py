"""Leader election by a Lease.

A leader stops leading `renew_seconds` after it *sent* its last successful renewal. A candidate takes a Lease
only after its whole duration has passed since the candidate last *saw it change*. Each process measures this
by its own clock, so clocks only have to run at the same rate.

The answer to a write may be lost, or be a conflict with that very write. So a Lease that reads as this
process wrote it was written by it, and it leads from the time at which it sent that write.

A Lease does not fence writes: a write in flight when leadership ends still arrives, so writes have guards of
their own. A Lease that is deleted before other candidates saw it does not protect its holder. So one deletion
by hand is harmless to processes that have read the Lease before, but several in a row may not be.
"""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Protocol

import msgspec

from webhook.kube.client import ApiError
from webhook.kube.jitter import jitter
from webhook.kube.struct import Struct

_LEAST_SECONDS: Final = 0.05
"""The least time-out of a request; with less time left, it is not sent."""

logger = logging.getLogger(__name__)


class Requests(Protocol):
    """The calls to the API server that an election needs; `client.Api` has them."""

    def json(self, method: str, path: str, **options: Any) -> Any:
        """One call with body and timeout_seconds; returns the decoded answer. Raises ApiError."""


class _LeaseSpec(Struct, frozen=True, omit_defaults=True):
    """The fields that an election reads; one that cannot be read counts as not set."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


@dataclass(frozen=True)
class _Record:
    """A Lease: its whole body, so that a write loses no field, and its decoded spec.

    wrong: the fields that topogate would not have written; they are repaired by the next write.
    """

    body: dict[str, Any]
    spec: _LeaseSpec
    wrong: tuple[str, ...] = ()

    @classmethod
    def of(cls, body: dict[str, Any]) -> "_Record":
        """Read a Lease; any client may have edited it."""
        found = body.get("spec")
        fields = found if isinstance(found, dict) else {}
        known, wrong = dict[str, Any](), [] if found is None or fields is found else ["spec"]
        for name, kind in _FIELDS.items():
            try:
                known[name] = msgspec.convert(fields.get(name), kind)
            except msgspec.ValidationError:
                wrong.append(name)
        if not 0 <= (known.get("leaseTransitions") or 0) < _MOST_TRANSITIONS:
            wrong.append("leaseTransitions")
            known["leaseTransitions"] = None
        if not 0 <= (known.get("leaseDurationSeconds") or 0) <= _LONGEST_SECONDS:
            wrong.append("leaseDurationSeconds")
            known["leaseDurationSeconds"] = None
        return cls({**body, "spec": fields}, msgspec.convert(known, _LeaseSpec), tuple(wrong))


_FIELDS: Final = {field.encode_name: field.type for field in msgspec.structs.fields(_LeaseSpec)}
_MOST_TRANSITIONS: Final = 2**31 - 1
"""The API server stores no more."""
_LONGEST_SECONDS: Final = 3600
"""No candidate waits for longer: with a longer duration in the Lease, nobody might lead for ever."""


@dataclass(frozen=True)
class LeaseTimes:
    """The times of an election. Raises ValueError if they are unsafe.

    lease_seconds: how long candidates wait for a silent leader, in whole seconds, an hour at most.
    renew_seconds: how long a leader leads without a successful renewal.
    retry_seconds: from the start of one attempt to the next.
    request_seconds: the time-out of one request; 5 s as in client-go, so that a leader keeps leading while
    the API server takes 4 s for each answer.
    """

    lease_seconds: float = 15
    renew_seconds: float = 10
    retry_seconds: float = 2
    request_seconds: float = 5

    def __post_init__(self) -> None:
        longest, least = sorted((self.retry_seconds, self.request_seconds), reverse=True)
        is_safe = self.lease_seconds > self.renew_seconds >= 2 * longest and least > 0
        if not is_safe or self.lease_seconds not in range(_LONGEST_SECONDS + 1):
            raise ValueError(
                f"lease_seconds ({self.lease_seconds}) must be a whole number of at most {_LONGEST_SECONDS}, "
                f"and above renew_seconds ({self.renew_seconds}), and that at least twice retry_seconds "
                f"({self.retry_seconds}) and request_seconds ({self.request_seconds}), which are above 0"
            )


class Elector:
    """Takes part in the election of a leader, in its own thread."""

    def __init__(
        self,
        api: Requests,
        namespace: str,
        name: str,
        identity: str,
        times: LeaseTimes = LeaseTimes(),
        *,
        on_change: Callable[[bool], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """The election begins with start().

        identity: the displayed name of this process; a restarted container with the same name still waits
        for its earlier Lease to expire. on_change gets each new value of is_leader, in this elector's thread
        or in the one that stops it.
        """
        self._api = api
        self._collection = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self._name = name
        self._identity = identity
        self._times = times
        self._on_change = on_change
        self._clock = clock
        self._leads_until = float("-inf")
        self._notified = False
        self._mine: _Record | None = None
        self._acquired = ""
        self._unanswered: tuple[tuple[float, _LeaseSpec], ...] = ()
        self._wrong: tuple[str, ...] = ()
        self._observed: _LeaseSpec | None = None
        self._free_at = float("-inf")
        self._trouble: tuple[float, str] | None = (clock(), "it has not been read yet")
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"lease {namespace}/{name}", daemon=True)

    @property
    def is_leader(self) -> bool:
        """Whether this process may act now. Cheap; call it right before each write."""
        return self._clock() < self._leads_until

    @property
    def holder(self) -> str:
        """The last known holder of the Lease, "" if it had none."""
        return (self._observed.holder_identity or "") if self._observed else ""

    @property
    def trouble(self) -> str:
        """Why the leader is unknown; "" unless all attempts have failed for the duration of a Lease."""
        if self._trouble is None or self._clock() - self._trouble[0] < self._times.lease_seconds:
            return ""
        return f"lease {self._name}: {self._trouble[1]}"

    def start(self) -> None:
        """Start taking part."""
        self._thread.start()

    def release(self) -> None:
        """Stop leading and release the Lease for the next leader; call it after the last write."""
        self.stop()
        try:
            record = self._read()
            if record is not None and self._is_mine(record.spec):
                # The API server does not accept a duration of 0.
                self._write(record, _LeaseSpec(holder_identity="", lease_duration_seconds=1))
                logger.info("lease_released name=%s", self._name)
        except ApiError as error:
            logger.warning("lease_not_released name=%s error=%r", self._name, str(error))

    def stop(self) -> None:
        """Stop taking part and leading, without releasing the Lease: the others wait until it expires."""
        self._stop.set()
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join()
        self._leads_until = float("-inf")
        self._notify()

    # --- the thread -----------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._stop.is_set():
            wait = self.step()
            self._stop.wait(wait)

    def step(self) -> float:
        """One attempt to acquire or renew the Lease; returns the seconds until the next. Never raises."""
        began = self._clock()
        try:
            self._attempt()
            self._trouble = None
        except ApiError as error:
            self._fails(str(error))
            if error.status == 409:
                self._mine = None  # another client wrote: read it before the next attempt
            logger.warning("lease_failed name=%s leader=%s error=%r", self._name, self.is_leader, str(error))
        except Exception:  # a bug must not end the thread; leadership then ends by the clock
            self._mine = None
            self._fails("an error of its own; see the log")
            logger.exception("lease_failed name=%s", self._name)
        self._notify()
        return self._pause(began)

    def _fails(self, why: str) -> None:
        self._trouble = (self._trouble[0] if self._trouble else self._clock(), why)

    def _pause(self, began: float) -> float:
        now = self._clock()
        if now < self._leads_until:
            # Wake up in time to report the end of leadership.
            return max(0.0, min(began + self._times.retry_seconds, self._leads_until) - now)
        # With jitter, candidates that attempted at the same moment diverge.
        return max(0.0, began + self._times.retry_seconds * jitter(1.0, 1.2) - now)

    def _attempt(self) -> None:
        if self._mine is not None:
            try:
                self._take(self._mine)
                return
            except ApiError as error:
                if error.status not in (404, 409):
                    raise
                self._mine = None
        record = self._read_back()
        if self._is_free(record):
            self._take_or_read_back(record)

    def _is_free(self, record: _Record | None) -> bool:
        """Whether this process may write itself into the Lease; if another one leads, it does not."""
        if record is None:
            # Deleted by hand: its holder may not know yet. A Lease that never existed is free.
            return self.is_leader or self._clock() >= self._free_at
        if self._is_mine(record.spec):
            return True
        self._leads_until = float("-inf")
        return self._clock() >= self._free_at

    def _take_or_read_back(self, record: _Record | None) -> None:
        try:
            self._take(record)
        except ApiError as error:
            # A leader has no time to read; its next attempt does.
            if self.is_leader or not (error.is_transient or error.status == 409):
                raise
            self._read_back()
            if not self.is_leader:
                raise

    def _read_back(self) -> _Record | None:
        """Read the Lease. Where it is as this process wrote it without an answer, the write has succeeded."""
        record = self._read()
        self._observe(record)
        for sent, spec in self._unanswered:
            if record is not None and record.spec == spec:
                self._mine, self._acquired = record, spec.acquire_time or ""
                self._leads_until = max(self._leads_until, sent + self._times.renew_seconds)
        return record

    def _observe(self, record: _Record | None) -> None:
        """Record when a Lease was first seen to change or to be gone: its duration counts from then."""
        spec = record.spec if record else None
        if spec == self._observed:
            return
        last = spec or self._observed or _LeaseSpec()
        self._observed = spec
        self._free_at = self._clock() + (last.lease_duration_seconds or self._times.lease_seconds)
        if spec is not None and not spec.holder_identity:
            self._free_at = float("-inf")

    def _is_mine(self, spec: _LeaseSpec) -> bool:
        # The time of acquisition distinguishes this process from an earlier one with the same name.
        return (
            spec.holder_identity == self._identity
            and spec.acquire_time == self._acquired
            and bool(self._acquired)
        )

    def _take(self, record: _Record | None) -> None:
        """Write this process into the Lease; leadership counts from just before the request is sent."""
        sent = self._clock()
        now = micro_time()
        transitions = (record.spec.lease_transitions or 0) if record else 0
        if record is None or not self._is_mine(record.spec):
            self._acquired = now
            transitions += record is not None
        spec = _LeaseSpec(
            holder_identity=self._identity,
            lease_duration_seconds=int(self._times.lease_seconds),
            acquire_time=self._acquired,
            renew_time=now,
            lease_transitions=transitions,
        )
        recent = (each for each in self._unanswered if sent - each[0] < self._times.lease_seconds)
        self._unanswered = (*recent, (sent, spec))
        self._mine = self._write(record, spec)
        self._unanswered = ()
        self._leads_until = sent + self._times.renew_seconds
        self._observe(self._mine)

    # --- requests -------------------------------------------------------------------------------

    def _read(self) -> _Record | None:
        try:
            path = f"{self._collection}/{self._name}"
            record = _Record.of(self._api.json("GET", path, timeout_seconds=self._time()))
        except ApiError as error:
            if error.status == 404:
                return None
            raise
        if record.wrong and record.wrong != self._wrong:
            logger.warning("lease_edited name=%s unreadable=%s", self._name, ", ".join(record.wrong))
        self._wrong = record.wrong
        return record

    def _write(self, record: _Record | None, spec: _LeaseSpec) -> _Record:
        if record is None:
            body = {
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": {"name": self._name},
                "spec": msgspec.to_builtins(spec),
            }
            answer = self._api.json("POST", self._collection, body=body, timeout_seconds=self._time())
        else:
            # With the resourceVersion of the read: refused if another client wrote meanwhile.
            body = {**record.body, "spec": {**record.body["spec"], **msgspec.to_builtins(spec)}}
            path = f"{self._collection}/{self._name}"
            answer = self._api.json("PUT", path, body=body, timeout_seconds=self._time())
        written = _Record.of(answer)
        if (written.spec.holder_identity or "") != (spec.holder_identity or ""):
            raise ApiError(0, "Unreadable", f"the answer to a write of lease {self._name} is not that lease")
        return written

    def _time(self) -> float:
        """The time-out of a request: it ends before leadership does, to report that in time."""
        remaining = self._leads_until - self._clock()
        if remaining <= 0:
            return self._times.request_seconds
        if remaining < _LEAST_SECONDS:
            raise ApiError(0, "TooLate", f"no time left to renew lease {self._name}")
        return min(self._times.request_seconds, remaining)

    def _notify(self) -> None:
        now = self.is_leader
        if now == self._notified:
            return
        self._notified = now
        logger.info("leader_%s name=%s identity=%s", "began" if now else "ended", self._name, self._identity)
        if self._on_change is not None:
            try:
                self._on_change(now)
            except Exception:
                logger.exception("lease_callback_failed name=%s", self._name)


def micro_time() -> str:
    """The current time as the API's MicroTime: RFC 3339 in UTC with exactly six decimals."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
