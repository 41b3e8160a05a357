"""When pods are released and bound, as one watch of the API server shows it, and what that cost in CPU."""

import contextlib
import os
import statistics
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec

from webhook.kube.client import Api, ApiError

WAIT_SECONDS: Final = 180.0


class _SeenMetadata(msgspec.Struct, rename="camel"):
    uid: str = ""
    resource_version: str = ""


class _SeenSpec(msgspec.Struct, rename="camel"):
    node_name: str = ""
    scheduling_gates: list[msgspec.Raw] = []


class _Object(msgspec.Struct):
    metadata: _SeenMetadata = msgspec.field(default_factory=_SeenMetadata)
    spec: _SeenSpec = msgspec.field(default_factory=_SeenSpec)


class _Event(msgspec.Struct):
    type: str
    object: _Object


@dataclass
class Observer:
    """When each pod of a namespace was first seen without gates, and first seen bound: by one watch."""

    api: Api
    namespace: str
    released: dict[str, float] = field(default_factory=dict)
    bound: dict[str, float] = field(default_factory=dict)
    reopened: int = 0
    _changed: threading.Condition = field(default_factory=threading.Condition)

    @contextlib.contextmanager
    def watching(self) -> Iterator["Observer"]:
        """Watch from now on."""
        path = f"/api/v1/namespaces/{self.namespace}/pods"
        query = {"watch": "1", "timeoutSeconds": "3600"}
        query["resourceVersion"] = self.api.json("GET", path)["metadata"]["resourceVersion"]
        stopping = threading.Event()
        open_stream = [self.api.stream(path, query=query, timeout_seconds=3600)]

        def read() -> None:
            decoder = msgspec.json.Decoder(_Event)
            while not stopping.is_set():
                with contextlib.suppress(ApiError), open_stream[0] as stream:
                    for line in stream:
                        pod = decoder.decode(line).object
                        query["resourceVersion"] = pod.metadata.resource_version
                        self._see(pod)
                if not stopping.is_set():  # the API server ends the watch of who reads too slowly
                    self.reopened += 1
                    open_stream[0] = self.api.stream(path, query=query, timeout_seconds=3600)

        thread = threading.Thread(target=read, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            stopping.set()
            open_stream[0].cut()
            thread.join(10)

    def _see(self, pod: _Object) -> None:
        now = time.perf_counter()
        with self._changed:
            if not pod.spec.scheduling_gates:
                self.released.setdefault(pod.metadata.uid, now)
            if pod.spec.node_name:
                self.bound.setdefault(pod.metadata.uid, now)
            self._changed.notify_all()

    def wait(self, times: dict[str, float], count: int) -> None:
        """Wait until `times` (released or bound) has so many. Raises TimeoutError."""
        with self._changed:
            if not self._changed.wait_for(lambda: len(times) >= count, WAIT_SECONDS):
                raise TimeoutError(
                    f"{len(times)} of {count} pods after {WAIT_SECONDS:.0f} s, {self.reopened} watches"
                )


@dataclass(frozen=True)
class ObservedRun:
    """One measurement: seconds from the signal to the last pod, and pods a second from first to last.

    cpu: milliseconds of CPU a pod, by program, until the last pod.
    """

    seconds: float
    rate: float
    cpu: Mapping[str, float]

    @classmethod
    def of(cls, begun: float, times: Sequence[float], cpu: Mapping[str, float]) -> "ObservedRun":
        """begun: the signal; times: when each pod was seen; cpu: seconds used since the signal."""
        rate = (len(times) - 1) / max(1e-9, max(times) - min(times))
        used = {name: 1e3 * seconds / len(times) for name, seconds in cpu.items()}
        return cls(max(times) - begun, rate, used)

    def __str__(self) -> str:
        cpu = ", ".join(f"{name} {used:.2f}" for name, used in self.cpu.items())
        return f"{self.seconds:.1f} s, {self.rate:.0f} pods/s, CPU ms a pod: {cpu}"


def cpu_seconds(pid: int) -> float:
    """CPU time that a process has used so far, user and system."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def spread(values: Sequence[float], digits: int = 0) -> str:
    """Median, lowest and highest, for a table."""
    middle, low, high = statistics.median(values), min(values), max(values)
    return f"{middle:.{digits}f} ({low:.{digits}f} to {high:.{digits}f})"
