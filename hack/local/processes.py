"""Start and stop programs by process id, so that none outlives its owner and none else is touched."""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from hack.local.namespaces import Namespaces

_PR_SET_PDEATHSIG: Final = 1
_children: dict[int, "subprocess.Popen[bytes]"] = {}
"""The processes that this one has started and not yet seen end."""


@dataclass(frozen=True)
class Started:
    """A process and when it began: the pair distinguishes it from a later process with the same id."""

    pid: int
    began: str

    @property
    def alive(self) -> bool:
        """Whether this very process still runs (a zombie does not)."""
        return _began(self.pid) == self.began

    def send(self, number: int) -> None:
        """Send a signal, if the process is still the same."""
        if self.alive:
            with contextlib.suppress(
                ProcessLookupError
            ):  # it ended in between, which is what signals are for
                os.kill(self.pid, number)


def start(
    command: list[str],
    log: Path,
    *,
    environment: dict[str, str] | None = None,
    tied: bool = False,
    within: Namespaces | None = None,
    network: bool = True,
    mounts: bool = False,
) -> Started:
    """Start a program in a session of its own, its output appended to `log`.

    tied: the kernel kills it when the thread that called this ends, also by SIGKILL (Linux; elsewhere
    the caller's own clean-up must do). A tied process may not be started from a short-lived thread.
    within: it ends with these namespaces. network: it is in their network; mounts: it sees their files.
    """
    tie = dies_with(0 if within else os.getpid())  # from inside a pid namespace nobody outside can be seen

    def prepare() -> None:
        if tied:
            tie()
        if within and network:
            within.enter_network()
        if within and mounts:
            within.enter_mounts()

    with contextlib.ExitStack() as stack:
        output = stack.enter_context(log.open("ab"))
        if within:
            stack.enter_context(within.children_within())
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            env=environment,
            preexec_fn=prepare if tied or within else None,
        )
    _children[process.pid] = process
    return started(process.pid)


def dies_with(parent: int) -> Callable[[], None]:
    """What a child does before its program, so that the kernel kills it with the parent's thread (Linux)."""

    def tie() -> None:
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != parent:  # the parent died before the line above
                os._exit(1)

    return tie


def open_tied(command: Sequence[str | Path], **options: Any) -> "subprocess.Popen[Any]":
    """As Popen, for a program that must not outlive this process, however it ends (Linux)."""
    return subprocess.Popen(command, preexec_fn=dies_with(os.getpid()), **options)


def pause(process: Started, *, seconds: float = 15.0) -> None:
    """Hold a process still; SIGCONT resumes it.

    The signal alone returns before the threads have seen it: on a busy machine a request was answered
    after it. Raises TimeoutError if a thread is still at work after so many seconds.
    """
    process.send(signal.SIGSTOP)
    deadline = time.monotonic() + seconds
    while process.alive and not _stands_still(process.pid):
        if time.monotonic() > deadline:
            raise TimeoutError(f"process {process.pid} went on for {seconds:g} s after SIGSTOP")
        time.sleep(0.002)


def _stands_still(pid: int) -> bool:
    """Whether each thread of a process is stopped; without /proc, whether that cannot be known."""
    if not Path("/proc/self").exists():
        return True
    states = set[str]()
    for thread in Path(f"/proc/{pid}/task").glob("*/stat"):
        with contextlib.suppress(OSError):  # the thread has ended
            states.add(_fields(thread)[0])
    return states <= set("TtZX")


def stop(process: Started, *, seconds: float = 15.0) -> bool:
    """Ask a process to end, wait, and kill it if it does not. Returns whether it ended by itself."""
    process.send(signal.SIGCONT)  # a paused program cannot act on SIGTERM
    process.send(signal.SIGTERM)
    if wait_ended(process, seconds):
        return True
    process.send(signal.SIGKILL)
    wait_ended(process, 5.0)
    return False


def wait_ended(process: Started, seconds: float) -> bool:
    """Wait until a process has ended."""
    deadline = time.monotonic() + seconds
    while process.alive:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def started(pid: int) -> Started:
    """A process that runs, also one that others have started."""
    return Started(pid, _began(pid))


def _began(pid: int) -> str:
    """Start time of a process as the system states it; "" if there is none, or only its remains."""
    try:
        fields = _fields(Path(f"/proc/{pid}/stat"))
    except OSError:
        return _began_by_ps(pid) if not Path("/proc/self").exists() else ""
    if fields[0] in "ZX":
        child = _children.pop(pid, None)
        if child is not None:
            child.wait()  # takes its exit status; the remains would stay otherwise
        return ""
    return fields[19]


def _fields(stat: Path) -> list[str]:
    """What /proc says of a process or a thread, from its state on."""
    return stat.read_text().rpartition(")")[2].split()


def _began_by_ps(pid: int) -> str:
    result = subprocess.run(
        ["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    return result.stdout.strip()
