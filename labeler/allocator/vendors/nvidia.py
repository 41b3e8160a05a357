"""NVIDIA's GPUs as whole cards, ``nvidia.com/gpu``, those that are close together for one container.

For node pools that NVIDIA's own device plugin leaves out. No annotation names these cards, so the choice is
made here: by NVLinks where NVIDIA's library can be asked (the extra ``nvidia`` of the package), else by the
PCI ancestors that two cards share. Libraries come into the container by NVIDIA's container runtime, which the
variable NVIDIA_VISIBLE_DEVICES names the cards, or by CDI as ``nvidia-ctk cdi generate`` describes them.
A card is unhealthy when it does not answer on its bus, when its driver excludes it or does not know its UUID,
when it is split into MIG instances, or when its device file is missing. Faults that only the library reports
(most Xids) are not seen.
"""

import stat
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from labeler.allocator.neighbours import closest, common_ancestors
from labeler.allocator.nvlinks import NvLinks, library
from labeler.allocator.values import Edits, LocalCard, LocalContainer, card_of, device_id
from labeler.allocator.vendors import Places
from labeler.contract import keys
from labeler.facts import NO_CARD
from labeler.nvidia_driver import driver_problem, has_mig_instances, information, uuid
from labeler.pci import bus_problem, is_for_guests, shared_out

VISIBLE_DEVICES: Final = "NVIDIA_VISIBLE_DEVICES"
_SHARED: Final = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset")
_NO_UUID: Final = (
    "its driver does not know its UUID: run nvidia-smi on the node, which starts cards that are not in use; "
    "a card that has none then has failed"
)
_A_LINK: Final = 100
"""A direct or switched NVLink counts for more than any number of PCI ancestors."""


def create(places: Places) -> "Nvidia":
    """This machine's NVIDIA GPUs."""
    return Nvidia(places, NvLinks(library()))


class Nvidia:
    """The vendor."""

    resources: tuple[str, ...] = (keys.NVIDIA_GPU,)
    monitoring: Mapping[str, str] = {}
    has_plans = False
    describes_cdi = False

    def __init__(self, places: Places, nvlinks: NvLinks) -> None:
        self._places = places
        self._nvlinks = nvlinks

    def cards(self) -> tuple[LocalCard, ...]:
        """Every GPU that the driver holds, by its minor number; what cannot be read of one hides no card.

        Those that it gives to virtual machines are none, as for the labeler.
        """
        folder = self._places.proc / "driver" / "nvidia" / "gpus"
        if not folder.is_dir():
            return ()
        found = [self._card(entry.name) for entry in folder.iterdir() if self._is_whole(entry.name)]
        return tuple(sorted(found, key=lambda card: card.number))

    def competitors(self, resource: str) -> tuple[str, ...]:
        """The socket of NVIDIA's own plugin."""
        return ("nvidia-gpu.sock",)

    def default(
        self,
        cards: Iterable[LocalCard],
        available: Iterable[str],
        must_include: Iterable[str],
        size: int,
        taken: Mapping[str, int],
    ) -> list[str]:
        """Whole cards that are close together."""
        by_label = {card.label: card for card in cards}
        links = self._nvlinks.now([card.pci_address for card in by_label.values()])

        def close(one: str, other: str) -> int:
            a, b = by_label[one], by_label[other]
            linked = _A_LINK * links.get(frozenset((a.pci_address, b.pci_address)), 0)
            return linked + common_ancestors(self._ancestors(a), self._ancestors(b))

        chosen = closest(
            (card_of(device) for device in available),
            (card_of(device) for device in must_include),
            size,
            close,
        )
        return [device_id(label, 0) for label in chosen]

    def edits(
        self,
        given: Mapping[LocalCard, tuple[int, ...]],
        visible: Iterable[LocalCard],
        container: LocalContainer | None,
        use_cdi: bool = False,
    ) -> Edits:
        """The cards' device files and those that all cards share, and their names for the runtime."""
        if use_cdi:  # as nvidia-ctk names them
            return Edits(cdi=tuple(f"{keys.NVIDIA_GPU}={card.label}" for card in given))
        shared = tuple(node for node in _SHARED if self._seen(node).exists())
        return Edits(
            environment={VISIBLE_DEVICES: ",".join(card.label for card in given)},
            nodes=(*(node for card in given for node in card.nodes), *shared),
        )

    def _card(self, address: str) -> LocalCard:
        reported = information(self._places.proc, address)
        minor = reported.get("Device Minor", "")
        nodes = (f"/dev/nvidia{minor}",) if minor.isdecimal() else ()
        return LocalCard(
            int(minor) if minor.isdecimal() else NO_CARD,
            keys.NVIDIA_GPU,
            nodes,
            pci_address=address,
            problem=self._problem(address, reported, nodes),
            name=uuid(reported) or address,
        )

    def _problem(self, address: str, reported: Mapping[str, str], nodes: tuple[str, ...]) -> str:
        """Why a card must not be handed out, the fault that explains others first."""
        problem = bus_problem(self._pci(address)) or driver_problem(reported)
        if problem:
            return problem
        if not uuid(reported):
            return _NO_UUID if reported else "its driver tells nothing of it"
        if has_mig_instances(self._places.proc, reported):
            return "it is split into MIG instances, which only NVIDIA's own plugin hands out"
        if not nodes:
            return "its driver does not tell its device file"
        try:
            mode = self._seen(nodes[0]).stat().st_mode
        except OSError as error:
            return f"its device file {nodes[0]} cannot be looked at: {error.strerror}"
        return "" if stat.S_ISCHR(mode) else f"{nodes[0]} is no device file"

    def _is_whole(self, address: str) -> bool:
        device = self._pci(address)
        return not shared_out(device) and not is_for_guests(device)

    def _pci(self, address: str) -> Path:
        return self._places.sys / "bus" / "pci" / "devices" / address

    def _ancestors(self, card: LocalCard) -> tuple[str, ...]:
        """The PCI devices above a card, from the root down."""
        path = self._pci(card.pci_address).resolve()
        return tuple(part for part in path.parent.parts if part.startswith("pci") or ":" in part)

    def _seen(self, path: str) -> Path:
        return self._places.dev / path.removeprefix("/dev/")
