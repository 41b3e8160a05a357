"""GPUs from the kernel's drm and PCI devices, through udev; hot-plug from its events.

A GPU is a card whose drm device hangs on its PCI device, under a driver that computes: of the known vendors
i915, xe, amdgpu and nvidia, of others any that renders and is no screen of a hypervisor or a management
controller, and whatever the operator names. What a label of the Intel GPU device plugin's labeler (0.24 to
0.32) depends on is read as there: card numbers from ``cardN``, tiles from ``gt/gt*`` (i915) or
``device/tile*`` (xe), memory from ``lmem_total_bytes`` for each tile. Here, one unreadable card never
hides the others, and xe's memory is known. NVIDIA's driver makes drm devices only with a module that compute
nodes often do without: its GPUs are also found as PCI devices that the driver holds.
"""

import logging
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import chain
from pathlib import Path
from threading import Event
from typing import Any, Final

import pyudev

from labeler.facts import NO_CARD, Facts, Gpu, SourceError
from labeler.models import AMD, INTEL, NVIDIA, former_name, model_name, vendor_name
from labeler.nvidia_driver import driver_problem, has_mig_instances, reports, start_problem
from labeler.pci import (
    DRIVERS,
    DRM_DRIVERS,
    SCREEN_DRIVERS,
    bus_problem,
    count,
    count_tiles,
    is_for_guests,
    is_integrated,
    read,
    shared_out,
    vram_bytes,
)
from labeler.sources import Context, OptionError, Options
from labeler.wedged_gpus import WedgedGpus

log: Final = logging.getLogger(__name__)

_CARD: Final = re.compile(r"card(0|[1-9][0-9]*)")
_RENDER: Final = re.compile(r"renderD[0-9]+")
_DRIVER: Final = re.compile(r"[A-Za-z0-9][-A-Za-z0-9_]*")
_POLL_SECONDS: Final = 0.5
_SETTLE_SECONDS: Final = 1.0
_CLASSES: Final = ("0x03", "0x12")
"""PCI classes of displays and of processing accelerators."""
_HABANA: Final = "0x1da3"
_ACCELERATORS: Final = {"0x1000": "gaudi", "0x1010": "gaudi", "0x1020": "gaudi2", "0x1060": "gaudi3"}
"""Habana's devices by id: seen, but neither counted as GPUs nor handed out here."""
OPTIONS: Final = (
    "events", "memory-override-bytes", "memory-reserved-bytes", "ignore-integrated", "drivers", "proc",
)  # fmt: skip


class _Unusable(Exception):
    """This card cannot be described; the message has the reason."""


def create(options: Options, context: Context) -> "UdevSource":
    """Source with the options of UdevSource, spelled with dashes, and ``proc``, for tests."""
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
        _drivers(options.get("drivers", [])),
        Path(str(options.get("proc", "/proc"))),
    )


def _bytes(options: Options, name: str) -> int:
    value = options.get(name, 0)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise OptionError(f"source udev: {name} must be a number of bytes, is {value!r}")
    return value


def _drivers(value: object) -> tuple[str, ...]:
    names = value if isinstance(value, list) else [None]
    if not all(isinstance(name, str) and _DRIVER.fullmatch(name) for name in names):
        raise OptionError(f"source udev: drivers must be a list of kernel drivers' names, is {value!r}")
    return tuple(names)


class UdevSource:
    """The GPUs of this machine.

    events: "kernel" listens to the kernel itself, which reaches a pod in a network namespace of its own;
    "udev" listens to udevd, which does not. memory_override: bytes of a discrete card whose driver does not
    report its memory; memory_reserved: bytes of each card that are left out. ignore_integrated: leave out
    integrated GPUs. drivers: further kernel drivers whose devices are GPUs. proc: where /proc is.
    """

    def __init__(
        self,
        events: str = "kernel",
        memory_override: int = 0,
        memory_reserved: int = 0,
        ignore_integrated: bool = False,
        drivers: tuple[str, ...] = (),
        proc: Path = Path("/proc"),
    ) -> None:
        self._events = events
        self._memory_override = memory_override
        self._memory_reserved = memory_reserved
        self._ignore_integrated = ignore_integrated
        self._drivers = drivers
        self._proc = proc
        self._complaints: set[str] = set()
        self._wedged = WedgedGpus()

    def discover(self) -> Facts:
        """All GPUs, those that must not be used marked as skipped. Raises SourceError if udev fails whole."""
        try:
            context = pyudev.Context()
            devices = self._candidates(context)
            accelerators = _accelerators(context)
            from_nvidia = reports(self._proc)
        except (OSError, ImportError) as error:
            raise SourceError(f"the machine's devices cannot be listed: {error}") from error
        complaints: set[str] = set()
        gpus, broken = [], []
        for device in devices:
            try:
                gpu = self._gpu(device, from_nvidia)
            except (_Unusable, OSError, ValueError, pyudev.DeviceNotFoundError) as error:
                complaints.add(f"{device.sys_name} is left out: {error}")
                broken.append(f"{device.sys_name}: {error}")
                continue
            if gpu is None:
                continue
            gpus.append(gpu)
            if gpu.skipped:
                complaints.add(f"{device.sys_name} is left out: {gpu.skipped}")
            if gpu.broken:
                card = "" if gpu.card == NO_CARD else f" ({device.sys_name})"
                broken.append(f"{gpu.address}{card}: {gpu.skipped}")
        for complaint in sorted(complaints - self._complaints):
            log.warning("%s", complaint)
        self._complaints = complaints
        return Facts(gpus=tuple(gpus), broken=tuple(broken), accelerators=accelerators)

    def watch(self, changed: Callable[[], None], stop: Event) -> None:
        """Report every such event, and once more when they have settled: udev's own data comes after them."""
        report_at: float | None = None
        for event_seen in self._events_seen(stop):
            now = time.monotonic()
            if event_seen:
                changed()
                report_at = now + _SETTLE_SECONDS
            elif report_at is not None and now >= report_at:
                report_at = None
                changed()

    def _events_seen(self, stop: Event) -> Iterator[bool]:
        """Whether there was an event, several times a second; lost events count as one."""
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
                event = monitor.poll(timeout=_POLL_SECONDS)
                if event is not None:
                    self._wedged.update(
                        str(event.sys_path), str(event.action), event.properties.get("WEDGED")
                    )
                yield event is not None
            except OSError as error:
                log.warning("device events were lost: %s", error)
                stop.wait(_POLL_SECONDS)
                yield True

    def _candidates(self, context: Any) -> list[Any]:
        """Cards in the order of a directory listing, no connectors or render nodes, then GPUs without one."""
        drm = sorted(context.list_devices(subsystem="drm"), key=lambda device: str(device.sys_name))
        cards = [device for device in drm if _CARD.fullmatch(device.sys_name)]
        with_card = {card.sys_path.rpartition("/drm/")[0] for card in cards}
        pci = sorted(context.list_devices(subsystem="pci"), key=lambda device: str(device.sys_path))
        return cards + [
            device
            for device in pci
            if device.driver in (*chain(*DRIVERS.values()), *self._drivers)
            and device.sys_path not in with_card
            and read(Path(device.sys_path) / "class").startswith(_CLASSES)
        ]

    def _gpu(self, device: Any, from_nvidia: Mapping[str, Mapping[str, str]]) -> Gpu | None:
        """A GPU by its card, or by its PCI device where it has none; None for what is no GPU, or unwanted.

        from_nvidia: what NVIDIA's driver reports of each of its GPUs.
        """
        pci = device.parent if device.subsystem == "drm" else device
        if pci is None or pci.subsystem != "pci":
            return None  # a screen that the firmware left, or a part of a GPU
        vendor_id = _hex_id(pci, "vendor")
        if not self._computes(vendor_id, pci.driver or "", Path(pci.sys_path)):
            return None
        integrated = is_integrated(Path(pci.sys_path))
        if integrated and self._ignore_integrated:
            return None
        if vendor_id == NVIDIA:
            reported = from_nvidia.get(pci.sys_name, {})
            failed = start_problem(from_nvidia, pci.sys_name)
            return self._describe(device, pci, reported.get("Model", ""), reported, failed)
        gpu = self._describe(device, pci, _text(pci, "product_name"), {})
        if vendor_id != AMD:
            return replace(gpu, integrated=integrated)
        return replace(
            gpu,
            integrated=integrated,
            compute_partition=_text(pci, "current_compute_partition"),
            memory_partition=_text(pci, "current_memory_partition"),
        )

    def _describe(
        self, device: Any, pci: Any, driver_name: str, reported: Mapping[str, str], failed: str = ""
    ) -> Gpu:
        """What is reported of every vendor's GPU.

        reported: by NVIDIA's driver, of it. failed: why it cannot be used, unless it has another fault.
        """
        vendor_id, device_id = _hex_id(pci, "vendor"), _hex_id(pci, "device")
        from_database = pci.properties.get("ID_MODEL_FROM_DATABASE")
        shared, problem = shared_out(Path(pci.sys_path)), _problem(device, pci, reported)
        problem = problem or failed or self._wedged.problem(pci.sys_name)
        is_card = device.subsystem == "drm"
        tiles = count_tiles(Path(device.sys_path), Path(pci.sys_path)) if vendor_id == INTEL else 1
        return Gpu(
            card=int(device.sys_name.removeprefix("card")) if is_card else NO_CARD,
            vendor=vendor_name(vendor_id),
            model=model_name(vendor_id, device_id, driver_name, from_database),
            driver=pci.driver or "",
            device_id=device_id,
            numa_node=_number(pci, "numa_node", base=10),
            tiles=tiles,
            memory_bytes=self._memory(device, pci, tiles) if is_card else 0,
            pci_path=_pci_path(device.sys_path),
            skipped=shared or problem,
            broken=bool(problem) and not shared,
            address=pci.sys_name,
            former_model=former_name(vendor_id, device_id, from_database),
            split_by_mig=has_mig_instances(self._proc, reported),
        )

    def _computes(self, vendor_id: str, driver: str, folder: Path) -> bool:
        """Whether a device of this vendor is a GPU under this driver, and neither a screen nor a guest's."""
        if driver in self._drivers:
            return True
        if vendor_id in DRIVERS:
            return driver in DRIVERS[vendor_id] and not is_for_guests(folder)
        return driver not in SCREEN_DRIVERS and count(folder / "drm", _RENDER) > 0

    def _memory(self, device: Any, pci: Any, tiles: int) -> int:
        """Bytes of the whole card: i915 reports one tile, xe each tile, amdgpu the card."""
        of_tile = _number(device, "lmem_total_bytes")
        total = of_tile * tiles if of_tile is not None else vram_bytes(Path(pci.sys_path))
        total = total or _number(pci, "mem_info_vram_total") or 0
        if not total:
            return 0 if is_integrated(Path(pci.sys_path)) else self._memory_override
        return max(0, total - self._memory_reserved)


def _accelerators(context: Any) -> dict[str, int]:
    """How many there are of each accelerator that topogate only labels."""
    found: Counter[str] = Counter()
    for device in context.list_devices(subsystem="pci"):
        folder = Path(device.sys_path)
        if read(folder / "vendor") == _HABANA and (name := _ACCELERATORS.get(read(folder / "device"))):
            found[name] += 1
    return dict(found)


def _problem(device: Any, pci: Any, reported: Mapping[str, str]) -> str:
    """Why a GPU cannot be used, "" if nothing is known against it. reported: by NVIDIA's driver."""
    if device.subsystem == "drm" and device.device_node is None:
        return "it has no device node, so no container could open it"
    problem = bus_problem(Path(pci.sys_path)) or driver_problem(reported)
    if not problem and device.subsystem != "drm" and pci.driver in DRM_DRIVERS:
        return f"its driver {pci.driver} has made no card of it; the kernel's log says why"
    return problem


def _text(device: Any, name: str) -> str:
    """An attribute as a text of one line; "" where it is missing."""
    value = device.attributes.get(name)
    return value.decode(errors="replace").strip() if value is not None else ""


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


def _pci_path(sys_path: str) -> tuple[str, ...]:
    """The path's parts from the first that opens with "pci" on, as the device plugin groups cards."""
    parts = sys_path.split("/")
    start = next((i for i, part in enumerate(parts) if part.startswith("pci")), len(parts))
    return tuple(parts[start:])
