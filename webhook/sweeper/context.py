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
from webhook.sweeper.decide.backoff import Deferral, Deferrals, Key
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

    deferred: tuple[Key, Deferral]
    seconds: float
    stays: bool


@dataclass(frozen=True)
class Retries:
    """The writes deferred when the step began. Safe for use by many threads: new failures are in Done."""

    surroundings: Pass
    deferrals: Deferrals

    def seconds_left(self, key: Key) -> float:
        """How much longer a write is not to be tried; 0 if it may be."""
        return self.deferrals.seconds_left(key, self.surroundings.clock())

    def again(self, key: Key) -> Retry:
        """It has failed: no wait is longer than a pass happens that often whatever changes."""
        longest, now = self.surroundings.settings.interval_seconds, self.surroundings.clock()
        deferral = Deferral.after(self.deferrals.by_key.get(key), now, longest)
        return Retry((key, deferral), deferral.until - now, deferral.is_repeated(longest))
