"""Namespaces for a cluster with a real node: processes, mounts and network devices in them end with them.

One process holds them (`unshare`); when it ends, however it ends, the kernel kills every process inside,
and nothing is left to unmount or to delete. It needs root.
"""

import contextlib
import ctypes
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_CLONE_NEWNS: Final = 0x00020000
_CLONE_NEWPID: Final = 0x20000000
_CLONE_NEWNET: Final = 0x40000000

HOLD: Final = [
    "unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc",
    # The first process of a pid namespace inherits orphans; with SIGCHLD ignored the kernel reaps them.
    "sh", "-c", "trap '' CHLD; echo ready; exec sleep infinity",
]  # fmt: skip
"""The command of the process that makes the namespaces and holds them; it says "ready"."""


@dataclass(frozen=True)
class Namespaces:
    """The namespaces that the process `holder` (a process id) has made."""

    holder: int

    @contextlib.contextmanager
    def children_within(self) -> Iterator[None]:
        """Processes that this thread starts meanwhile belong to the pid namespace."""
        own = os.open("/proc/thread-self/ns/pid", os.O_RDONLY)
        try:
            _enter(f"/proc/{self.holder}/ns/pid_for_children", _CLONE_NEWPID)
            try:
                yield
            finally:
                _set(own, _CLONE_NEWPID)
        finally:
            os.close(own)

    def enter_network(self) -> None:
        """Move this process into the network namespace. It must have no other threads' sockets to lose."""
        _enter(f"/proc/{self.holder}/ns/net", _CLONE_NEWNET)

    def enter_mounts(self) -> None:
        """Move this process, which must be single-threaded, into the mount namespace."""
        _enter(f"/proc/{self.holder}/ns/mnt", _CLONE_NEWNS)

    def run(
        self, *command: str, stdin: str | None = None, check: bool = True, seconds: float = 60
    ) -> subprocess.CompletedProcess[str]:
        """Run a command inside all of them. Raises OSError with its words if `check` and it fails."""
        enter = ["nsenter", f"--target={self.holder}", "--mount", "--net", f"--pid={self._pid}", "--"]
        result = subprocess.run(
            [*enter, *command],
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
            timeout=seconds,
        )
        if check and result.returncode:
            output = (result.stderr or result.stdout).strip()[-2000:]
            raise OSError(f"{' '.join(command)[:200]} ended with {result.returncode}: {output}")
        return result

    def path(self, inside: str) -> Path:
        """Where a file of the mount namespace is seen from outside."""
        return Path(f"/proc/{self.holder}/root") / inside.lstrip("/")

    @property
    def _pid(self) -> str:
        return f"/proc/{self.holder}/ns/pid_for_children"


def _enter(path: str, kind: int) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        _set(descriptor, kind)
    finally:
        os.close(descriptor)


def _set(descriptor: int, kind: int) -> None:
    # os.setns is there from Python 3.12 on.
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(descriptor, kind):
        number = ctypes.get_errno()
        raise OSError(number, f"setns: {os.strerror(number)}")
