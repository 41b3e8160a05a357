"""GPUs from the kernel's drm and PCI devices, through udev; hot-plug from its events.

What counts and how it is read follows the labeler of the Intel GPU device plugin (0.24 to 0.32) where a label
of its depends on it: card numbers from ``cardN``, tiles from ``gt/gt*`` (i915) or ``device/tile*`` (xe),
memory from ``lmem_total_bytes`` for each tile. Unlike there, one unreadable card never hides the others.
NVIDIA's driver makes drm devices only with a module that compute nodes often do without: its GPUs are also
found as PCI devices that the driver holds.
"""

import logging
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event
from typing import Any, Final

import pyudev

from labeler.facts import NO_CARD, Facts, Gpu, SourceError
from labeler.models import VENDORS, model_name, vendor_name
from labeler.pci import INTEGRATED, bus_problem
from labeler.sources import Context, OptionError, Options, check_options

log: Final = logging.getLogger(__name__)

_CARD: Final = re.compile(r"card(0|[1-9][0-9]*)")
_TILE: Final = re.compile(r"tile[0-9]+")
_GT: Final = re.compile(r"gt[0-9]+")
_RENDER: Final = re.compile(r"renderD[0-9]+")
_POLL_SECONDS: Final = 0.5
_SETTLE_SECONDS: Final = 1.0
_DISPLAY_CLASS: Final = b"0x03"
_OPTIONS: Final = ("events", "memory-override-bytes", "memory-reserved-bytes", "ignore-integrated")


class _Unusable(Exception):
    """This card cannot be described; the message says why."""


def create(options: Options, context: Context) -> "UdevSource":
    """Source with the options of UdevSource, spelled with dashes."""
    check_options("udev", options, _OPTIONS)
    events = options.get("events", "kernel")
    if events not in ("kernel", "udev"):
        raise OptionError(f"source udev: events must be kernel or udev, is {events!r}")
    ignore = options.get("ignore-integrated", False)
    if not isinstance(ignore, bool):
        raise OptionError(f"source udev: ignore-integrated must be true or false, is {ignore!r}")
    return UdevSource(
        str(events),
        _bytes(options, "memory-override-bytes"),
        _bytes(options, "memory-reserved-bytes"),
        ignore,
    )


def _bytes(options: Options, name: str) -> int:
    value = options.get(name, 0)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise OptionError(f"source udev: {name} must be a number of bytes, is {value!r}")
    return value


class UdevSource:
    """The GPUs of this machine.

    events: "kernel" hears the kernel itself, which reaches a pod in a network namespace of its own; "udev"
    hears udevd, which does not. memory_override: bytes of a card whose driver does not tell its memory;
    memory_reserved: bytes of each card that are left out. ignore_integrated: leave out integrated GPUs.
    """

    def __init__(
        self,
        events: str = "kernel",
        memory_override: int = 0,
        memory_reserved: int = 0,
        ignore_integrated: bool = False,
    ) -> None:
        self._events = events
        self._memory_override = memory_override
        self._memory_reserved = memory_reserved
        self._ignore_integrated = ignore_integrated
        self._complaints: set[str] = set()

    def discover(self) -> Facts:
        """All GPUs, those that must not be used marked as skipped. Raises SourceError if udev fails whole."""
        try:
            devices = _candidates(pyudev.Context())
        except (OSError, ImportError) as error:
            raise SourceError(f"the machine's devices cannot be listed: {error}") from error
        complaints: set[str] = set()
        gpus = []
        for device in devices:
            try:
                gpu = self._gpu(device) if device.subsystem == "drm" else _without_card(device)
            except (_Unusable, OSError, ValueError, pyudev.DeviceNotFoundError) as error:
                complaints.add(f"{device.sys_name} is left out: {error}")
                continue
            if gpu is not None:
                gpus.append(gpu)
                if gpu.skipped:
                    complaints.add(f"{device.sys_name} is left out: {gpu.skipped}")
        for complaint in sorted(complaints - self._complaints):
            log.warning("%s", complaint)
        self._complaints = complaints
        return Facts(gpus=tuple(gpus))

    def watch(self, changed: Callable[[], None], stop: Event) -> None:
        """Report every such event, and once more when they have settled: udev's own data comes after them."""
        report_at: float | None = None
        for heard in self._heard(stop):
            now = time.monotonic()
            if heard:
                changed()
                report_at = now + _SETTLE_SECONDS
            elif report_at is not None and now >= report_at:
                report_at = None
                changed()

    def _heard(self, stop: Event) -> Iterator[bool]:
        """Whether something was heard, several times a second; lost events count as one."""
        try:
            monitor = pyudev.Monitor.from_netlink(pyudev.Context(), source=self._events)
            monitor.filter_by("drm")
            monitor.filter_by("pci")
            monitor.start()
        except (OSError, ImportError) as error:
            log.warning("no device events, changes are found at the next interval: %s", error)
            return
        yield True  # what happened since it was last looked, and before this listened
        while not stop.is_set():
            try:
                yield monitor.poll(timeout=_POLL_SECONDS) is not None
            except OSError as error:
                log.warning("device events were lost: %s", error)
                stop.wait(_POLL_SECONDS)
                yield True

    def _gpu(self, device: Any) -> Gpu | None:
        """One card; None for what is no GPU (a management controller's screen) or not wanted."""
        pci = device.find_parent("pci")
        if pci is None:
            return None
        vendor_id = _hex_id(pci, "vendor")
        if vendor_id not in VENDORS and not _has(Path(pci.sys_path) / "drm", _RENDER):
            return None
        device_id = _hex_id(pci, "device")
        integrated = vendor_name(vendor_id) == "intel" and bool(INTEGRATED.fullmatch(pci.sys_name))
        if integrated and self._ignore_integrated:
            return None
        tiles = max(1, _count(Path(device.sys_path) / "gt", _GT) + _count(Path(pci.sys_path), _TILE))
        return Gpu(
            card=int(device.sys_name.removeprefix("card")),
            vendor=vendor_name(vendor_id),
            model=model_name(vendor_id, device_id, pci.properties.get("ID_MODEL_FROM_DATABASE")),
            driver=pci.driver or "",
            device_id=device_id,
            numa_node=_number(pci, "numa_node", base=10),
            tiles=tiles,
            memory_bytes=self._memory(device, pci, tiles),
            integrated=integrated,
            pci_path=_pci_path(device.sys_path),
            skipped=_why_skipped(device, pci),
        )

    def _memory(self, device: Any, pci: Any, tiles: int) -> int:
        """Bytes of the whole card: i915 tells those of a tile, amdgpu those of the card, others nothing."""
        of_tile = _number(device, "lmem_total_bytes")
        total = of_tile * tiles if of_tile is not None else _number(pci, "mem_info_vram_total")
        if total is None:
            return self._memory_override
        return max(0, total - self._memory_reserved)


def _candidates(context: Any) -> list[Any]:
    """Cards in the order of a directory listing (no connectors, no render nodes), then GPUs without one."""
    drm = sorted(context.list_devices(subsystem="drm"), key=lambda device: str(device.sys_name))
    cards = [device for device in drm if _CARD.fullmatch(device.sys_name)]
    with_card = {card.sys_path.rpartition("/drm/")[0] for card in cards}
    pci = sorted(context.list_devices(subsystem="pci"), key=lambda device: str(device.sys_path))
    return cards + [
        device
        for device in pci
        if device.driver == "nvidia"
        and device.sys_path not in with_card
        and (device.attributes.get("class") or b"").startswith(_DISPLAY_CLASS)
    ]


def _without_card(pci: Any) -> Gpu:
    """A GPU that is known by its PCI device alone."""
    vendor_id, device_id = _hex_id(pci, "vendor"), _hex_id(pci, "device")
    return Gpu(
        card=NO_CARD,
        vendor=vendor_name(vendor_id),
        model=model_name(vendor_id, device_id, pci.properties.get("ID_MODEL_FROM_DATABASE")),
        driver=pci.driver or "",
        device_id=device_id,
        numa_node=_number(pci, "numa_node", base=10),
        pci_path=_pci_path(pci.sys_path),
        skipped=_virtual_functions(pci),
    )


def _why_skipped(device: Any, pci: Any) -> str:
    if device.device_node is None:
        return "it has no device node, so no container could open it"
    return _virtual_functions(pci) or bus_problem(Path(pci.sys_path))


def _virtual_functions(pci: Any) -> str:
    functions = pci.attributes.get("sriov_numvfs")
    text = functions.decode(errors="replace").strip() if functions is not None else "0"
    return "" if text == "0" else f"it is an SR-IOV physical function with {text} virtual functions in use"


def _hex_id(device: Any, name: str) -> str:
    value = device.attributes.get(name)
    if value is None:
        raise _Unusable(f"{device.sys_path}/{name} cannot be read")
    text = value.decode("ascii", errors="replace").strip().lower()
    if not re.fullmatch(r"0x[0-9a-f]{4}", text):
        raise _Unusable(f"{device.sys_path}/{name} says {text!r}")
    return str(text)


def _number(device: Any, name: str, base: int = 0) -> int | None:
    """An attribute as a number; None where it is missing, unreadable or below zero."""
    value = device.attributes.get(name)
    try:
        number = int(value, base) if value is not None else -1
    except ValueError:
        return None
    return number if number >= 0 else None


def _count(folder: Path, pattern: re.Pattern[str]) -> int:
    try:
        return sum(1 for entry in folder.iterdir() if pattern.fullmatch(entry.name))
    except OSError:
        return 0


def _has(folder: Path, pattern: re.Pattern[str]) -> bool:
    return _count(folder, pattern) > 0


def _pci_path(sys_path: str) -> tuple[str, ...]:
    """The path's parts from the first that opens with "pci" on, as the device plugin groups cards."""
    parts = sys_path.split("/")
    start = next((i for i, part in enumerate(parts) if part.startswith("pci")), len(parts))
    return tuple(parts[start:])
