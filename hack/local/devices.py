"""GPU cards that a machine does not have, for its real node: sysfs entries and device nodes with their names.

The device nodes are those of /dev/null, so that what opens one does no harm. What reads sysfs in a
container must mount SYSFS from the node instead of /sys, and have the variable VERIFY set: libudev
refuses a sysfs that is none. Everything else is as with cards of flesh and blood.
"""

import os
import shutil
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hack.local.namespaces import Namespaces

SYSFS: Final = "/run/devices/sys"
"""Where the node has the entries, as a hostPath."""

VERIFY: Final = {"SYSTEMD_DEVICE_VERIFY_SYSFS": "0"}

_GIB: Final = 1024**3
_NULL: Final = os.makedev(1, 3)
_RENDER_FROM: Final = 128


@dataclass(frozen=True)
class PlayedCard:
    """An Intel card: cardN, its render node, its tiles and the memory of each of them (bytes)."""

    number: int
    tiles: int = 2
    tile_memory: int = 48 * _GIB
    numa_node: int = 0
    device: str = "0x0bd5"
    driver: str = "i915"

    @property
    def address(self) -> str:
        """Its PCI address."""
        return f"0000:{self.number + 3:02x}:00.0"

    @property
    def pci_path(self) -> str:
        """Its PCI device below /sys."""
        return f"devices/pci0000:00/0000:00:01.0/{self.address}"

    @property
    def render(self) -> str:
        """The name of its render node."""
        return f"renderD{_RENDER_FROM + self.number}"

    @property
    def nodes(self) -> tuple[str, str]:
        """Its device nodes."""
        return f"/dev/dri/card{self.number}", f"/dev/dri/{self.render}"


def plug(namespaces: Namespaces, cards: Iterable[PlayedCard]) -> None:
    """Add cards to the node."""
    sysfs = namespaces.path(SYSFS)
    for folder in ("bus/pci/devices", "bus/pci/drivers", "class/drm"):
        (sysfs / folder).mkdir(parents=True, exist_ok=True)
    namespaces.path("/dev/dri").mkdir(exist_ok=True)
    for card in cards:
        _write_pci(sysfs, card)
        _write_drm(sysfs, card, f"card{card.number}", {"lmem_total_bytes": str(card.tile_memory)})
        _write_drm(sysfs, card, card.render, {})
        for tile in range(card.tiles):
            _write(sysfs / card.pci_path / f"drm/card{card.number}/gt/gt{tile}/id", str(tile))
        for path in card.nodes:
            os.mknod(namespaces.path(path), stat.S_IFCHR | 0o666, _NULL)
            namespaces.path(path).chmod(0o666)  # the mask of this process does not count


def unplug(namespaces: Namespaces, cards: Iterable[PlayedCard]) -> None:
    """Remove cards from the node."""
    sysfs = namespaces.path(SYSFS)
    for card in cards:
        for path in card.nodes:
            namespaces.path(path).unlink(missing_ok=True)
        for link in (f"class/drm/card{card.number}", f"class/drm/{card.render}"):
            (sysfs / link).unlink(missing_ok=True)
        (sysfs / "bus/pci/devices" / card.address).unlink(missing_ok=True)
        shutil.rmtree(sysfs / card.pci_path, ignore_errors=True)


def _write_pci(sysfs: Path, card: PlayedCard) -> None:
    folder = sysfs / card.pci_path
    (sysfs / "bus/pci/drivers" / card.driver).mkdir(exist_ok=True)
    attributes = {
        "vendor": "0x8086",
        "device": card.device,
        "class": "0x038000",
        "numa_node": str(card.numa_node),
        "uevent": f"DRIVER={card.driver}\nPCI_SLOT_NAME={card.address}",
    }
    for name, value in attributes.items():
        _write(folder / name, value)
    _link(sysfs, folder / "subsystem", "bus/pci")
    _link(sysfs, folder / "driver", f"bus/pci/drivers/{card.driver}")
    _link(sysfs, sysfs / "bus/pci/devices" / card.address, card.pci_path)


def _write_drm(sysfs: Path, card: PlayedCard, name: str, attributes: dict[str, str]) -> None:
    folder = sysfs / card.pci_path / "drm" / name
    minor = card.number + (_RENDER_FROM if name == card.render else 0)
    own = {
        "uevent": f"MAJOR=226\nMINOR={minor}\nDEVNAME=dri/{name}\nDEVTYPE=drm_minor",
        "dev": f"226:{minor}",
    }
    for attribute, value in (own | attributes).items():
        _write(folder / attribute, value)
    _link(sysfs, folder / "subsystem", "class/drm")
    _link(sysfs, folder / "device", card.pci_path)
    _link(sysfs, sysfs / "class/drm" / name, f"{card.pci_path}/drm/{name}")


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text + "\n")


def _link(sysfs: Path, path: Path, target: str) -> None:
    path.symlink_to(os.path.relpath(sysfs / target, path.parent))
