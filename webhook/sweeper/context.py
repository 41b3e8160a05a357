"""The surroundings of all steps of a pass, and when and in which order it writes."""

import threading
import time
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, TypeVar

from labeler.contract.event_reasons import EventReason
from webhook.configuration.settings import Settings
from webhook.grouping import round_robin
from webhook.kube.client import Api, ApiError
from webhook.kube.objects import Node, Pod
from webhook.policy.values import Policy
from webhook.sweeper.decide.retries import Key, RetryTable, Write
from webhook.sweeper.extension import Switch
from webhook.sweeper.metrics import Metrics
from webhook.sweeper.observe.cache import ClusterCache

T = TypeVar("T")
R = TypeVar("R")


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

    def failed(self, key: Key, error: ApiError | None = None, asked: float = 0.0, text: str = "") -> Retry:
        """It has failed. error: the API server's answer, or asked: the seconds that it asks to wait.

        text: returned by `error`, instead of the answer.
        """
        text = text or ("" if error is None else str(error))
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

    def forget(self, write: Write, living: Container[object]) -> None:
        """Forget such writes but for these objects: the others are gone."""
        with self._lock:
            for key in [key for key in self._waits if key[0] is write and key[1] not in living]:
                del self._waits[key]

    def round_robin(self, items: Iterable[T], namespace_of: Callable[[T], str]) -> list[T]:
        """One of each namespace before a second one of any; where a write has failed, after the others."""
        return round_robin(
            items, namespace_of, lambda each: self.position((Write.NAMESPACE, namespace_of(each)))
        )


# --- namespaces share the time of a pass --------------------------------------------------------------
# A webhook of one namespace may take seconds for each write, or refuse it: no other namespace waits for that.


class Run(Protocol):
    """Calls a function for each of these items: `map`, or that of a thread pool."""

    def __call__(self, work: Callable[[T], R], items: Iterable[T], /) -> Iterator[R]: ...


def failing_last(
    run: Run,
    items: Sequence[T],
    namespace_of: Callable[[T], str],
    work: Callable[[T], R],
    has_failed: Callable[[R], bool],
) -> list[R]:
    """The results of work on each item; once one of a namespace has failed, its others come after all."""
    failing = set[str]()

    def first(item: T) -> R | None:
        namespace = namespace_of(item)
        if namespace in failing:
            return None
        result = work(item)
        if has_failed(result):
            failing.add(namespace)
        return result

    results = list(run(first, items))
    late = [item for item, result in zip(items, results, strict=True) if result is None]
    return [*(each for each in results if each is not None), *run(work, late)]
