"""Sweepers that die at a chosen write, in this process and against the real API server.

Dead is dead: from the chosen moment on no request of that sweeper is sent any more. What other threads
had already sent still arrives, as with a killed process.
"""

import contextlib
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from webhook.configuration.settings import Settings
from webhook.extensions.known import SWITCHES
from webhook.kube.client import Api, ApiError
from webhook.policy.values import Policy
from webhook.sweeper.context import Announcer, Pass, Silent
from webhook.sweeper.observe.cache import ClusterCache
from webhook.sweeper.sweep import Sweeper

SILENT: Final = Silent()
BEFORE: Final = "before"
AFTER: Final = "after"

_NAMED: Final = re.compile(r"/namespaces/[^/]+/(pods|placements)/(.+?)(-[0-9a-z]+)?(/status|/eviction)?$")

_BESIDE_PASSES: Final = ("informer ", "owner existence")
"""The names of threads for which nobody waits: nobody would catch their death."""


class Killed(BaseException):
    """The sweeper has been killed. No Exception, so that no handler can mistake it for a refusal."""


@dataclass(frozen=True)
class Death:
    """When to die: right before or right after the write of this name."""

    moment: str
    write: str

    def __str__(self) -> str:
        return f"{self.moment} {self.write}"


def deaths_at(writes: Sequence[str]) -> list[Death]:
    """One before each write, where all is as right after the write before it, and one after the last."""
    return [*(Death(BEFORE, write) for write in writes), Death(AFTER, writes[-1])]


class MortalApi(Api):
    """Notes every write by a name that is the same in every run, and dies where it is asked to."""

    death: Death | None = None
    _lock: threading.Lock
    _seen: Counter[str]

    def prepare(self, death: Death | None) -> None:
        """Begin a life."""
        self.death = death
        self.dead = threading.Event()
        self.writes: list[str] = []
        self._lock = threading.Lock()
        self._seen = Counter()

    def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes | object | None = None,
        content_type: str = "application/json",
        accept: str = "application/json",
        timeout_seconds: float = 10.0,
    ) -> bytes:
        """As Api.request. Raises Killed at the chosen write and ever after."""
        if self.dead.is_set():
            if threading.current_thread().name.startswith(_BESIDE_PASSES):
                raise ApiError(0, "Killed", "a thread of the killed process goes on until it is stopped")
            raise Killed
        name = self._note(method, path, body)
        here = self.death is not None and name == self.death.write
        if here and self.death is not None and self.death.moment == BEFORE:
            self.dead.set()
            raise Killed
        answer = super().request(
            method, path, query=query, body=body, content_type=content_type, accept=accept,
            timeout_seconds=timeout_seconds,
        )  # fmt: skip
        if here:
            self.dead.set()
        if self.dead.is_set() and name:  # the write has arrived, and nobody gets the answer
            raise Killed
        return answer

    def _note(self, method: str, path: str, body: Any) -> str:
        """The write's name, "" for a read. The n-th write of one kind to one object has its number."""
        if method == "GET":
            return ""
        name = name_of(method, path, body)
        with self._lock:
            self._seen[name] += 1
            name = f"{name} #{self._seen[name]}"
            self.writes.append(name)
        return name


def name_of(method: str, path: str, body: Any) -> str:
    """A write without what differs from run to run: namespaces and generated ends of names."""
    if method == "POST" and path.endswith("/placements"):
        return f"POST placement {str(body['metadata']['name']).rpartition('-')[0]}"
    match = _NAMED.search(path)
    if match is None:
        return f"{method} {path}"
    kind = "status of" if match[4] == "/status" else match[1].removesuffix("s")
    return f"{method} {kind} {match[2]}"


@contextlib.contextmanager
def living(
    api: MortalApi, settings: Settings, policy: Policy | None = None, announcer: Announcer = SILENT
) -> Iterator[Callable[[], float]]:
    """A sweeper with a cache of its own; yields one pass of it. Nothing of it stays behind."""
    cache, stopping = ClusterCache(api, settings.gate_prefix), threading.Event()
    surroundings = Pass(
        api, cache, settings, announcer=announcer, stopping=stopping, policy=lambda: policy,
        extensions=SWITCHES,
    )  # fmt: skip
    sweeper = Sweeper(surroundings)
    cache.start()
    try:
        deadline = time.monotonic() + 90
        while not cache.synced:
            assert time.monotonic() < deadline, "the caches are not complete"
            time.sleep(0.01)

        def one_pass() -> float:
            cache.changed.wait(0.1)
            cache.changed.clear()
            return sweeper.sweep()

        yield one_pass
    finally:
        stopping.set()
        sweeper.close()
        cache.stop()
        api.close()


def sweep_until(api: MortalApi, settings: Settings, is_done: Callable[[], bool], seconds: float) -> bool:
    """Sweep until it is done; returns False if the sweeper died before. Raises TimeoutError."""
    deadline = time.monotonic() + seconds
    try:
        with living(api, settings) as one_pass:
            while not is_done():
                one_pass()
                if time.monotonic() > deadline:
                    raise TimeoutError(f"not done after {seconds:.0f} s; it wrote {api.writes}")
    except Killed:
        return False
    return True
