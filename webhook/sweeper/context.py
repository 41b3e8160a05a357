"""The surroundings of all steps of a pass, and when its failed writes are retried."""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from labeler.contract.event_reasons import EventReason
from webhook.configuration.settings import Settings
from webhook.kube.client import Api, ApiError
from webhook.kube.objects import Node, Pod
from webhook.policy.values import Policy
from webhook.sweeper.decide.retries import Key, RetryTable
from webhook.sweeper.extension import Switch
from webhook.sweeper.metrics import Metrics
from webhook.sweeper.observe.cache import ClusterCache


class Announcer(Protocol):
    """The part of an event recorder that is used: Events for a pod and for the pod's controller."""

    def announce(self, pod: Pod, reason: EventReason, note: str) -> None:
        """reason: a word in PascalCase; note: a sentence."""

    def announce_on_node(self, node: Node, reason: EventReason, note: str) -> None:
        """The same about a node."""


class Silent:
    """Says nothing, for tests and for clusters that want no Events."""

    def announce(self, pod: Pod, reason: EventReason, note: str) -> None:
        """Say nothing."""

    def announce_on_node(self, node: Node, reason: EventReason, note: str) -> None:
        """Say nothing."""


@dataclass(frozen=True)
class Pass:
    """The surroundings of all passes of one leader.

    cache: live copies, which are complete. may_act: checked before each write, as another process may lead by
    now. stopping: ends waits inside a pass. clock: monotonic seconds. heartbeat: called inside a pass as it
    progresses. policy: of admission, None if unknown. extensions: optional features that may be on.
    """

    api: Api
    cache: ClusterCache
    settings: Settings
    metrics: Metrics = field(default_factory=Metrics)
    announcer: Announcer = field(default_factory=Silent)
    may_act: Callable[[], bool] = lambda: True
    stopping: threading.Event = field(default_factory=threading.Event)
    clock: Callable[[], float] = time.monotonic
    heartbeat: Callable[[], None] = lambda: None
    policy: Callable[[], Policy | None] = lambda: None
    extensions: Sequence[Switch] = ()


# --- writes that are tried again ----------------------------------------------------------------------


def answered(error: ApiError) -> str:
    """The answer of the API server as people read it."""
    return f"the API server answered {error.status}: {error}" if error.status else f"no answer: {error}"


class Retry(NamedTuple):
    """A write that has failed. seconds: after which a pass is due for it. stays: whether it fails again."""

    seconds: float
    stays: bool


class Retries:
    """The retry table while a pass carries orders out. Safe for use by many threads."""

    def __init__(self, surroundings: Pass, table: RetryTable) -> None:
        self.surroundings = surroundings
        self._longest = surroundings.settings.interval_seconds
        self._waits = dict(table.current(surroundings.clock(), self._longest).by_key)
        self._table = RetryTable(self._waits)
        self._lock = threading.Lock()

    @property
    def table(self) -> RetryTable:
        """As it is now."""
        with self._lock:
            return RetryTable(dict(self._waits))

    def seconds_left(self, key: Key) -> float:
        """How much longer a write is not to be tried; 0 if it may be."""
        return self._table.seconds_left(key, self.surroundings.clock())

    def position(self, *keys: Key) -> tuple[float, ...]:
        """A sort key where not all can be tried: by each of these, see RetryTable.position."""
        return tuple(map(self._table.position, keys))

    def error(self, key: Key) -> str:
        """The API server's last answer, "" if it has not failed."""
        return self._waits[key].error if key in self._waits else ""

    def failed(self, key: Key, error: ApiError | None = None, asked: float = 0.0) -> Retry:
        """It has failed. error: the API server's answer, or asked: the seconds that it asks to wait."""
        text = "" if error is None else str(error)
        asked = asked if error is None else error.retry_after or 0.0
        now = self.surroundings.clock()
        with self._lock:
            wait, stays = self._table.wait_after(key, now, self._longest, asked, text)
            self._waits[key] = wait
        return Retry(wait.until - now, stays)

    def over(self, key: Key) -> None:
        """It has succeeded, or is refused for good."""
        with self._lock:
            self._waits.pop(key, None)
