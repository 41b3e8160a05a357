"""Intel's GPUs: ``gpu.intel.com/i915``, ``/xe`` by the card's driver, and their ``_monitoring``.

Cards, device files and what is skipped are found as Intel's device plugin 0.32 finds them: ``cardN`` and
``renderDM`` of one PCI device, no SR-IOV physical function whose virtual functions are in use.
"""

import re
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from labeler.allocator import cdi
from labeler.allocator.choose import default_devices
from labeler.allocator.masks import environment
from labeler.allocator.values import Edits, LocalCard, LocalContainer
from labeler.allocator.vendors import Places
from labeler.contract import keys
from labeler.models import INTEL
from labeler.pci import bus_problem, count_tiles, entries, is_integrated, read, shared_out

_CARD: Final = re.compile(r"card(0|[1-9][0-9]*)")
_NODE: Final = re.compile(r"(card|renderD)(0|[1-9][0-9]*)")
_RESOURCES: Final = {"i915": keys.I915, "xe": keys.XE}


def create(places: Places) -> "Intel":
    """This machine's Intel GPUs."""
    return Intel(places)


class Intel:
    """The vendor."""

    resources: tuple[str, ...] = (keys.I915, keys.XE)
    monitoring: Mapping[str, str] = {keys.I915_MONITORING: keys.I915, keys.XE_MONITORING: keys.XE}
    has_plans = True
    describes_cdi = True

    def __init__(self, places: Places) -> None:
        self._places = places

    def cards(self) -> tuple[LocalCard, ...]:
        """Every card, by number; what cannot be read of one hides no card."""
        folder = self._places.sys / "class" / "drm"
        if not folder.is_dir():
            return ()
        found = []
        for entry in folder.iterdir():
            match = _CARD.fullmatch(entry.name)
            card = self._card(entry, int(match[1])) if match else None
            if card is not None:
                found.append(card)
        return tuple(sorted(found, key=lambda card: card.number))

    def competitors(self, resource: str) -> tuple[str, ...]:
        """Intel's own plugin names its sockets after the resource."""
        return (resource.replace("/", "-") + ".sock",)

    def default(
        self,
        cards: Iterable[LocalCard],
        available: Iterable[str],
        must_include: Iterable[str],
        size: int,
        taken: Mapping[str, int],
    ) -> list[str]:
        """Different cards, from the highest number down."""
        return default_devices(available, must_include, size, taken)

    def edits(
        self,
        given: Mapping[LocalCard, tuple[int, ...]],
        visible: Iterable[LocalCard],
        container: LocalContainer | None,
        use_cdi: bool = False,
    ) -> Edits:
        """The cards' device files and paths by PCI address, and the mask for Level Zero."""
        own = (container.hierarchy, container.masked) if container else (None, False)
        mask = environment(given, visible, *own)
        if use_cdi:
            return Edits(environment=mask, cdi=tuple(cdi.qualified(card) for card in given))
        return Edits(
            environment=mask,
            nodes=tuple(node for card in given for node in card.nodes),
            links=tuple(link for card in given for link in card.links),
        )

    def _card(self, entry: Path, number: int) -> LocalCard | None:
        device = entry / "device"
        if read(device / "vendor") != INTEL:
            return None
        resource = _RESOURCES.get((device / "driver").resolve().name)
        if resource is None or shared_out(device):
            return None
        if self._places.ignore_integrated and is_integrated(device):
            return None
        names = sorted(each.name for each in entries(device / "drm") if _NODE.fullmatch(each.name))
        address = device.resolve().name
        by_path = [
            f"/dev/dri/by-path/pci-{address}-{'card' if name.startswith('card') else 'render'}"
            for name in names
        ]
        tiles, problem = self._tiles(entry, device)
        return LocalCard(
            number=number,
            resource=resource,
            nodes=tuple(f"/dev/dri/{name}" for name in names),
            links=tuple(link for link in by_path if self._seen(link).is_symlink()),
            pci_address=address,
            tiles=tiles,
            problem=problem or self._problem(device, names),
        )

    def _tiles(self, entry: Path, device: Path) -> tuple[int, str]:
        """How many it has, and why that is not known."""
        try:
            return count_tiles(entry, device), ""
        except OSError as error:
            return 1, f"its tiles cannot be counted: {error.strerror}"

    def _problem(self, device: Path, names: list[str]) -> str:
        if not names:
            return "its device files cannot be listed"
        for name in names:
            path = self._seen(f"/dev/dri/{name}")
            try:
                if not stat.S_ISCHR(path.stat().st_mode):
                    return f"{name} is no device file"
            except OSError as error:
                return f"its device file {name} cannot be looked at: {error.strerror}"
        return bus_problem(device)

    def _seen(self, path: str) -> Path:
        """Where this process sees a path below the node's /dev."""
        return self._places.dev / path.removeprefix("/dev/")
