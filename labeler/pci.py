"""What sysfs has of a card's PCI device: the labeler and the allocator must read it the same way.

A card that one of them leaves out and the other counts would be planned and then refused, again and again.
Sources: Documentation/ABI/testing/sysfs-driver-* of Linux, and the drivers i915, xe and amdgpu themselves.
"""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from labeler.models import AMD, INTEL, NVIDIA, is_discrete

DRIVERS: Final = {INTEL: ("i915", "xe"), AMD: ("amdgpu",), NVIDIA: ("nvidia",)}
"""Of each vendor id the drivers under which a card can compute. nouveau, radeon and vfio-pci are not."""

DRM_DRIVERS: Final = (*DRIVERS[INTEL], *DRIVERS[AMD])
"""Those that make a drm card of each device that works. NVIDIA's does so only with a further module."""

SCREEN_DRIVERS: Final = frozenset(
    {
        "ast", "bochs-drm", "cirrus", "cirrus-qemu", "gma500", "hibmc-drm", "hyperv_drm", "mgag200", "qxl",
        "sm750fb", "vboxvideo", "virtio-pci", "vmwgfx",
    }
)  # fmt: skip
"""Drivers for the screens of hypervisors and management controllers: no GPUs, though some can render."""

_CARD: Final = re.compile(r"card[0-9]+")
_TILE: Final = re.compile(r"tile[0-9]+")
_GT: Final = re.compile(r"gt[0-9]+")
_PROCESSORS_OWN_BUS: Final = re.compile(r"[0-9a-f]{4,}:00:[0-9a-f]{2}\.[0-9]")
_INTELS_OWN_GPU: Final = re.compile(r"[0-9a-f]{4,}:00:02\.0")
_OTHER_DISPLAY: Final = "0x0380"
_ACCELERATOR: Final = "0x12"


def is_integrated(device: Path) -> bool:
    """Whether a GPU is part of the processor, by its PCI device.

    A card with memory of its own is discrete, and so is one whose id says so: in a guest it may sit on any
    bus. Only of a GPU that no driver and no list knows does the bus decide.
    """
    vendor, model = read(device / "vendor"), read(device / "device")
    if vendor not in (INTEL, AMD) or is_discrete(vendor, model):
        return False
    kind = read(device / "class")
    if vendor == AMD:
        return read(device / "mem_info_vram_vendor") in ("", "unknown") and not kind.startswith(_ACCELERATOR)
    if vram_bytes(device) or any(number(card / "lmem_total_bytes") for card in _cards(device)):
        return False
    address = device.resolve().name
    if not _PROCESSORS_OWN_BUS.fullmatch(address):
        return False
    return bool(_INTELS_OWN_GPU.fullmatch(address)) or not kind.startswith(_OTHER_DISPLAY)


def count_tiles(card: Path, device: Path) -> int:
    """Tiles of an Intel card by its drm and PCI device, at least 1. Raises OSError if they cannot be listed.

    i915 shows a GT a tile, and for integrated GPUs from Meteor Lake on one more, which is for media alone; xe
    shows tiles. A card that were taken for one of a single tile would get no mask for the tiles of a plan.
    """
    if is_integrated(device):
        return 1
    gts = (card / "gt").iterdir() if (card / "gt").exists() else ()
    return max(1, _matching(gts, _GT) + _matching(device.iterdir(), _TILE))


def vram_bytes(device: Path) -> int:
    """Local memory of all tiles as the driver xe reports it, 0 where it does not."""
    return sum(
        number(tile / "physical_vram_size_bytes") or 0
        for tile in entries(device)
        if _TILE.fullmatch(tile.name)
    )


def shared_out(device: Path) -> str:
    """Why no container is to use a GPU as a whole: its parts serve in its place. "" for one that is whole.

    NVIDIA's driver for vGPU hosts gives GPUs to virtual machines: by virtual functions or mediated devices.
    https://docs.nvidia.com/vgpu/latest/grid-vgpu-user-guide/
    """
    functions = read(device / "sriov_numvfs") or "0"
    if functions != "0":
        return f"it is an SR-IOV physical function with {functions} virtual functions in use"
    if read(device / "vendor") == NVIDIA and (device / "mdev_supported_types").is_dir():
        return "its driver divides it among virtual machines (vGPU)"
    return ""


def is_for_guests(device: Path) -> bool:
    """Whether a device is a part of a GPU that its host's driver can only give to a virtual machine.

    So is a virtual function of NVIDIA's, which the driver of a vGPU host holds as it holds a GPU. Those of
    Intel and AMD are GPUs of their own under i915, xe and amdgpu.
    """
    return read(device / "vendor") == NVIDIA and (device / "physfn").exists()


def bus_problem(device: Path) -> str:
    """Why a card cannot be used, "" if nothing is known against it.

    One that has fallen off the bus reads as ones; one that sleeps is not woken to be asked. Only its ids are
    read: with a buffer, root would read all 4096 bytes of it from the card, word by word. The ids of a
    virtual function always read as ones, so its physical function is asked (pci_device_is_present in Linux).
    """
    state = device / "power" / "runtime_status"
    physical = device / "physfn"
    config = (physical if physical.exists() else device) / "config"
    try:
        if not config.exists() or (state.exists() and state.read_text().strip() == "suspended"):
            return ""
        with config.open("rb", buffering=0) as file:
            head = file.read(4)
    except OSError as error:
        return f"its configuration cannot be read: {error.strerror}"
    return "it does not answer on its bus" if head == b"\xff" * 4 else ""


def read(path: Path) -> str:
    """A file of one short line, in lower case; "" where there is none or it cannot be read."""
    try:
        return path.read_text(encoding="ascii", errors="replace").strip().lower()
    except OSError:
        return ""


def number(path: Path) -> int | None:
    """A file with one number of any base; None where it is missing, unreadable or below zero."""
    try:
        found = int(read(path), 0)
    except ValueError:
        return None
    return found if found >= 0 else None


def count(folder: Path, pattern: re.Pattern[str]) -> int:
    """How many entries of a folder have such a name; 0 without the folder."""
    return _matching(entries(folder), pattern)


def entries(folder: Path) -> list[Path]:
    """What a folder holds; nothing where it cannot be read."""
    try:
        return list(folder.iterdir())
    except OSError:
        return []


def _matching(found: Iterable[Path], pattern: re.Pattern[str]) -> int:
    return sum(1 for entry in found if pattern.fullmatch(entry.name))


def _cards(device: Path) -> list[Path]:
    return [entry for entry in entries(device / "drm") if _CARD.fullmatch(entry.name)]
