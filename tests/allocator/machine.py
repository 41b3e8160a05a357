"""A machine with played cards: the kubelet's device manager and the allocator in a mount namespace of theirs.

The device manager is the kubelet's own code (hack/controlplane/devicemanager.go), with its sockets where the
kubelet has them. Both programs may be killed and started again at any moment; the files that they keep stay,
until the namespace ends with the process that holds it. It needs root, for the namespace alone.
"""

import contextlib
import json
import os
import re
import signal
import stat
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from hack.local import processes
from hack.local.build import DEVICE_MANAGER, ROOT, programs
from hack.local.cluster import Cluster
from hack.local.controlplane import free_port
from hack.local.processes import Started

NODE: Final = "bare-0"
KUBELET: Final = "/var/lib/kubelet"
_HOLD: Final = [
    "unshare", "--mount", "--fork", "--kill-child",
    "sh", "-c", f"mkdir -p {KUBELET} && mount -t tmpfs tmpfs {KUBELET} && echo ready && exec sleep infinity",
]  # fmt: skip


def lacking() -> str:
    """Why no such machine can be made here, "" if it can."""
    if os.geteuid() != 0:
        return "the kubelet's device manager needs root here, for a mount namespace of its own"
    if DEVICE_MANAGER not in programs().commands:
        return f"{programs().origin} has no {DEVICE_MANAGER}"
    return ""


@dataclass(frozen=True)
class MachineCard:
    """An Intel card of a played machine. bus: its PCI bus, by which Level Zero counts."""

    number: int
    tiles: int
    bus: int
    driver: str = "i915"

    @property
    def nodes(self) -> set[str]:
        """Its device files."""
        return {f"/dev/dri/card{self.number}", f"/dev/dri/renderD{128 + self.number}"}


class Machine:
    """One node's device manager and allocator. Use it as a context manager."""

    def __init__(self, cluster: Cluster, folder: Path, cards: Sequence[MachineCard], *arguments: str) -> None:
        """folder: takes the cards' files and the logs. arguments: further ones of the allocator."""
        self._cluster = cluster
        self._folder = folder
        self._cards = tuple(cards)
        self._arguments = arguments
        self._holder: subprocess.Popen[bytes] | None = None
        self._manager: subprocess.Popen[str] | None = None
        self._asking = threading.Lock()
        self.allocator: Started | None = None
        self.port = free_port()

    def __enter__(self) -> "Machine":
        """Make the namespace and the cards; nothing is started yet."""
        for card in self._cards:
            plug(self._folder, card)
        self._holder = subprocess.Popen(_HOLD, stdout=subprocess.PIPE)
        assert self._holder.stdout is not None, "asked for"
        if self._holder.stdout.readline() != b"ready\n":
            raise OSError("no mount namespace could be made")
        return self

    def __exit__(self, *_: object) -> None:
        """End both programs and the namespace."""
        self.kill_allocator()
        self.kill_manager()
        if self._holder is not None:
            self._holder.kill()
            self._holder.wait()
            _close(self._holder)

    # --- the kubelet's side ------------------------------------------------------------------------

    def start_manager(self, known: Sequence[Mapping[str, Any]] = ()) -> None:
        """Start the device manager (again); known: the pods that it had before."""
        command = self._inside(programs().commands[DEVICE_MANAGER])
        with (self._folder / "device-manager.log").open("a") as log:
            self._manager = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, bufsize=1
            )
        for pod in known:
            self.ask({"known": pod})

    def kill_manager(self) -> None:
        """SIGKILL, at whatever it is doing."""
        manager = self._manager
        if manager is not None:
            _kill_tree(manager.pid)
            manager.wait()
            with self._asking:  # each caller has its answer, or knows that there is none
                _close(manager)

    def ask(self, order: Mapping[str, Any]) -> dict[str, Any]:
        """One order to the device manager. Raises ManagerGoneError if it ended over it."""
        with self._asking:
            manager = self._manager
            assert manager is not None, "it was started"
            assert manager.stdin is not None, "asked for"
            assert manager.stdout is not None, "asked for"
            try:
                manager.stdin.write(json.dumps(order) + "\n")
                manager.stdin.flush()
                line = manager.stdout.readline()
            except (OSError, ValueError):  # ValueError: closed by who killed it
                line = ""
        if not line:
            raise ManagerGoneError
        answer: dict[str, Any] = json.loads(line)
        return answer

    # --- the allocator ---------------------------------------------------------------------------------

    def start_allocator(self) -> None:
        """Start it (again); does not wait until it is registered."""
        token = self._folder / "token"
        if not token.exists():
            token.write_text("")
        self.allocator = processes.start(
            self._inside(
                [
                    sys.executable, "-m", "labeler.allocator.main", f"--node-name={NODE}",
                    f"--sys={self._folder / 'sys'}", f"--dev={self._folder / 'dev'}",
                    f"--server={self._cluster.server}", f"--ca-file={self._cluster.certificate_authority}",
                    f"--token-file={token}", f"--health-port={self.port}", *self._arguments,
                ]
            ),
            self._folder / "allocator.log",
            tied=True,
        )  # fmt: skip

    def kill_allocator(self) -> None:
        """SIGKILL, at whatever it is doing."""
        if self.allocator is not None:
            _kill_tree(self.allocator.pid)
            processes.stop(self.allocator)
            self.allocator = None

    def devices(self, resource: str) -> int:
        """How many healthy devices of a resource the kubelet would report to the API server."""
        return int(self.ask({"capacity": True}).get("allocatable", {}).get(resource, 0))

    def resident_bytes(self, what: str = "VmRSS") -> int:
        """The allocator's memory: VmRSS now, VmHWM at most."""
        assert self.allocator is not None, "it runs"
        text = Path(f"/proc/{_leaf(self.allocator.pid)}/status").read_text()
        found = re.search(rf"^{what}:\s+(\d+) kB", text, re.MULTILINE)
        assert found is not None, "the kernel tells"
        return int(found[1]) * 1024

    def metrics(self) -> str:
        """What it counts."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=5) as answer:
            return str(answer.read().decode())

    def _inside(self, command: Sequence[str]) -> list[str]:
        assert self._holder is not None, "entered"
        holder = _leaf(self._holder.pid)
        return ["nsenter", f"--target={holder}", "--mount", f"--wd={ROOT}", "--", *command]


class ManagerGoneError(Exception):
    """The device manager was killed while it was asked."""


def plug(folder: Path, card: MachineCard) -> None:
    """Add a card's files, as the kernel shows them, below folder/sys and folder/dev."""
    address = f"0000:{card.bus:02x}:00.0"
    pci = folder / "sys" / "devices" / "pci0000:00" / address
    drm = pci / "drm" / f"card{card.number}"
    (pci / "drm" / f"renderD{128 + card.number}").mkdir(parents=True)
    for tile in range(card.tiles):
        (drm / "gt" / f"gt{tile}").mkdir(parents=True)
    drm.mkdir(parents=True, exist_ok=True)
    (pci / "vendor").write_text("0x8086\n")
    driver = folder / "sys" / "bus" / "pci" / "drivers" / card.driver
    driver.mkdir(parents=True, exist_ok=True)
    (pci / "driver").symlink_to(driver)
    (drm / "device").symlink_to(pci)
    classes = folder / "sys" / "class" / "drm"
    classes.mkdir(parents=True, exist_ok=True)
    (classes / drm.name).symlink_to(drm)
    (folder / "dev" / "dri").mkdir(parents=True, exist_ok=True)
    for node in card.nodes:
        os.mknod(folder / node.lstrip("/"), stat.S_IFCHR | 0o666, os.makedev(1, 3))


def unplug(folder: Path, card: MachineCard) -> None:
    """Take a card out: its device files and its entry of the class vanish, as when its driver releases it."""
    for node in card.nodes:
        (folder / node.lstrip("/")).unlink()
    (folder / "sys" / "class" / "drm" / f"card{card.number}").unlink()


def _leaf(pid: int) -> int:
    """The process at the end of a line of wrappers (unshare forks, nsenter does not)."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return _leaf(int(children[0])) if children else pid


def _close(process: subprocess.Popen[Any]) -> None:
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()


def _kill_tree(pid: int) -> None:
    try:
        leaf = _leaf(pid)
        os.kill(leaf, signal.SIGKILL)
        if leaf != pid:
            os.kill(pid, signal.SIGKILL)
    except (ProcessLookupError, FileNotFoundError):
        return
