"""Descriptions of GPUs as the kernel shows them, and a machine that has them (through umockdev)."""

import json
import queue
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from hack.local.processes import open_tied
from labeler.contract.label_codecs import decode_cards, decode_numa_map
from labeler.facts import NO_CARD

PLAYER: Final = Path(__file__).with_name("device_player.py")
ROOT: Final = Path(__file__).resolve().parents[2]
WRAPPER: Final = shutil.which("umockdev-wrapper")


@dataclass(frozen=True)
class Card:
    """One card of a machine.

    address: its PCI ancestors; None in attributes leaves a file out. binary: files of the PCI device, in hex.
    physical: the PCI address of the physical function that it is a virtual one of.
    below: a device between the PCI device and the drm one, as "virtio0". "" for driver: none is bound.
    reported: what the events of its drm device report beside.
    """

    number: int
    vendor: str = "0x8086"
    device: str = "0x56a0"
    driver: str = "i915"
    address: str = ""
    i915_tiles: int = 0
    xe_tiles: int = 0
    pci: Mapping[str, str | None] = field(default_factory=dict)
    drm: Mapping[str, str] = field(default_factory=dict)
    properties: dict[str, str] = field(default_factory=dict)
    binary: dict[str, str] = field(default_factory=dict)
    device_node: bool = True
    render_node: bool = False
    drm_card: bool = True
    below: str = ""
    physical: str = ""
    reported: dict[str, str] = field(default_factory=dict)

    @property
    def pci_path(self) -> str:
        """Its PCI device below /sys."""
        return f"/devices/{self.address or f'pci0000:00/0000:00:01.0/0000:{self.number + 3:02x}:00.0'}"

    @property
    def path(self) -> str:
        """Its drm device below /sys."""
        return f"{self._parent}/drm/card{self.number}"

    @property
    def _parent(self) -> str:
        return f"{self.pci_path}/{self.below}" if self.below else self.pci_path

    @property
    def text(self) -> str:
        """What umockdev is given, parent first."""
        attributes: dict[str, str | None] = {
            "vendor": self.vendor,
            "device": self.device,
            "class": "0x030200",
            **self.pci,
        }
        for tile in range(self.xe_tiles):
            attributes |= {f"tile{tile}/gt{2 * tile}/id": "0", f"tile{tile}/gt{2 * tile + 1}/id": "1"}
        drm = dict(self.drm) | {f"gt/gt{tile}/id": str(tile) for tile in range(self.i915_tiles)}
        lines = [
            f"P: {self.pci_path}",
            "E: SUBSYSTEM=pci",
            *([f"L: driver=../../../bus/pci/drivers/{self.driver}"] if self.driver else []),
        ]
        lines += [f"L: physfn=../{self.physical}"] if self.physical else []
        lines += [f"E: {key}={value}" for key, value in self.properties.items()]
        lines += [f"A: {key}={value}\\n" for key, value in attributes.items() if value is not None]
        lines += [f"H: {key}={value}" for key, value in self.binary.items()]
        if not self.drm_card:
            return "\n".join(lines) + "\n"
        if self.below:
            lines += ["", f"P: {self._parent}", "E: SUBSYSTEM=platform"]
        lines += ["", *self._drm_device(f"card{self.number}", drm)]
        if self.render_node:
            lines += ["", *self._drm_device(f"renderD{128 + self.number}", {})]
        lines += ["", f"P: {self.path}/card{self.number}-DP-1", "E: SUBSYSTEM=drm"]
        return "\n".join(lines) + "\n"

    def _drm_device(self, name: str, attributes: dict[str, str]) -> list[str]:
        lines = [f"P: {self._parent}/drm/{name}", "E: SUBSYSTEM=drm"]
        if self.device_node or not name.startswith("card"):
            lines[1:1] = [f"N: dri/{name}"]
            lines.append(f"E: DEVNAME=/dev/dri/{name}")
        lines += [f"E: {key}={value}" for key, value in self.reported.items()]
        return lines + [f"A: {key}={value}\\n" for key, value in attributes.items()]


class Machine:
    """A process of its own that sees these cards and runs the labeler's udev source on them."""

    def __init__(self, *cards: Card, **options: object) -> None:
        """options: of the udev source, with "_" for "-"; pci_group_level as in the configuration."""
        assert WRAPPER is not None
        spelled = {key.replace("_", "-"): value for key, value in options.items()}
        self._process = open_tied(
            [WRAPPER, sys.executable, str(PLAYER), json.dumps(spelled)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT)},
        )
        self._answers: queue.Queue[Any] = queue.Queue()
        self._complaints: list[str] = []
        self._readers = [
            threading.Thread(target=target, daemon=True)
            for target in (self._read_answers, self._read_complaints)
        ]
        for reader in self._readers:
            reader.start()
        for card in cards:
            self.add(card)

    def __enter__(self) -> Self:
        """The machine."""
        return self

    def __exit__(self, kind: type[BaseException] | None, _: object, __: TracebackType | None) -> None:
        """End the process."""
        self._end()

    def _end(self) -> None:
        assert self._process.stdin is not None
        if self._process.stdin.closed:
            return
        self._process.stdin.close()
        self._process.wait(90)
        for reader in self._readers:
            reader.join(90)
        for stream in (self._process.stdout, self._process.stderr):
            assert stream is not None
            stream.close()

    def add(self, card: Card) -> None:
        """Plug a card in; the kernel says so."""
        self._ask(do="add", text=card.text)

    def remove(self, card: Card) -> None:
        """Pull a card out; the kernel says so, first of its drm device and then of the PCI device."""
        for path in (card.path, card.pci_path):
            self._ask(do="remove", path=f"/sys{path}")

    def event(self, card: Card, action: str = "change") -> None:
        """The kernel says something of a card."""
        self._ask(do="event", path=f"/sys{card.path}", action=action)

    def labels(self) -> dict[str, str]:
        """The labels that the labeler would write now; their readers must find just what was discovered."""
        labels = dict(self._ask(do="look"))
        intel = [gpu for gpu in self.gpus() if gpu["vendor"] == "intel" and not gpu["skipped"]]
        used = [gpu for gpu in intel if gpu["card"] != NO_CARD]
        assert decode_cards(labels) == tuple(sorted(gpu["card"] for gpu in used))
        numa_nodes = {gpu["numa_node"] for gpu in used if (gpu["numa_node"] or 0) <= 32767} - {None}
        assert decode_numa_map(labels) == {
            node: tuple(sorted(gpu["card"] for gpu in used if gpu["numa_node"] == node))
            for node in sorted(numa_nodes)
        }
        return labels

    def annotations(self) -> dict[str, str]:
        """The annotations that the labeler would write now."""
        return dict(self._ask(do="notes"))

    def gpus(self) -> list[dict[str, Any]]:
        """The GPUs as the source describes them."""
        return list(self._ask(do="discover"))

    def opened(self) -> dict[str, int]:
        """How often the process has opened each file so far, by its path."""
        return dict(self._ask(do="opened"))

    def watch(self) -> None:
        """Start the labeler's loop."""
        self._send(do="watch")

    def published(self, seconds: float) -> dict[str, str] | None:
        """The next publication of the loop; None if there is none within this time."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            try:
                answer = self._answers.get(timeout=left)
            except queue.Empty:
                break
            if isinstance(answer, dict) and "published" in answer:
                return dict(answer["published"])
        return None

    @property
    def complaints(self) -> str:
        """All that the process wrote to standard error; ends it, so that nothing is still on its way."""
        self._end()
        return "".join(self._complaints)

    def _ask(self, **command: object) -> Any:
        self._send(**command)
        present = []
        while True:
            answer = self._answers.get(timeout=90)
            if isinstance(answer, dict) and "published" in answer:
                present.append(answer)
                continue
            for other in present:
                self._answers.put(other)
            if answer is None:
                raise AssertionError(f"the device player ended:\n{self.complaints}")
            return answer

    def _send(self, **command: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()

    def _read_answers(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._answers.put(json.loads(line))
        self._answers.put(None)

    def _read_complaints(self) -> None:
        assert self._process.stderr is not None
        self._complaints.extend(self._process.stderr)
