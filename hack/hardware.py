"""hack/hardware: tries topogate's reading of NVIDIA GPUs on this machine, and prints what to send back.

Nothing is changed on the machine, and nothing is sent anywhere. Serial numbers and UUIDs are not printed.
"""

import argparse
import json
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from labeler.allocator.nvlinks import NvLinks, handles_of, library, links_of
from labeler.allocator.values import LocalCard, device_id
from labeler.allocator.vendors import Places
from labeler.allocator.vendors.nvidia import Nvidia
from labeler.models import model_name
from labeler.nvidia_driver import information
from labeler.pci import read
from labeler.version import version

_NVIDIA: Final = "0x10de"
_DISPLAY: Final = "0x03"
_SIZES: Final = (1, 2, 4, 8)


def main(argv: Sequence[str] | None = None) -> int:
    """Print the report; returns 0, or 1 where something disagrees, or 2 without a GPU."""
    arguments = _parser().parse_args(argv)
    places = Places(arguments.sys, arguments.dev, arguments.proc)
    found = report(places, library())
    print(json.dumps(found, indent=2))
    if not found["gpus"]:
        print(
            "hack/hardware: no NVIDIA GPU is on this machine's PCI bus; run it where one is.", file=sys.stderr
        )
        return 2
    for fault in found["faults"]:
        print(f"FAULT: {fault}", file=sys.stderr)
    print("Please send the JSON above back, as an issue with the form `A fault`, even if there is no fault.",
          file=sys.stderr)  # fmt: skip
    return 1 if found["faults"] else 0


def report(places: Places, nvml: Any) -> dict[str, Any]:
    """What topogate makes of the machine's GPUs, beside what the driver says. nvml: None without."""
    gpus = [_gpu(places, address) for address in _addresses(places)]
    vendor = Nvidia(places, NvLinks(nvml))
    cards = vendor.cards()
    labels, complaint = _labels()
    links, link_fault = _links(nvml, [card.pci_address for card in cards])
    found = {
        "topogate": version(),
        "gpus": gpus,
        "labels": labels,
        "cards": [
            {"number": card.number, "address": card.pci_address, "problem": _hidden(card, card.problem)}
            for card in cards
        ],
        "links": links,
        "chosen": _chosen(vendor, [card for card in cards if not card.problem]),
        "nvidia-smi topo -m": _output("nvidia-smi", "topo", "-m"),
        "driver": _output(
            "nvidia-smi", "--query-gpu=driver_version,mig.mode.current", "--format=csv,noheader"
        ),
    }
    return found | {"faults": [*_faults(gpus, cards), *filter(None, (complaint, link_fault))]}


def _addresses(places: Places) -> list[str]:
    """The PCI addresses of NVIDIA's display controllers."""
    return [
        each.name
        for each in sorted((places.sys / "bus/pci/devices").glob("*"))
        if read(each / "vendor") == _NVIDIA and read(each / "class").startswith(_DISPLAY)
    ]


def _gpu(places: Places, address: str) -> dict[str, Any]:
    device = places.sys / "bus/pci/devices" / address
    own = information(places.proc, address).get("Model", "")
    return {
        "address": address,
        "device": read(device / "device"),
        "subsystem": read(device / "subsystem_device"),
        "numa node": read(device / "numa_node"),
        "driver's name": own,
        "name by id": model_name(_NVIDIA, read(device / "device")),
        "name in labels": model_name(_NVIDIA, read(device / "device"), own),
    }


def _labels() -> tuple[dict[str, str], str]:
    """What the labeler's source `udev` would write here, and what is wrong with that."""
    program = str(Path(sys.executable).parent / "topogate-labeler")
    command = [program, "--source=udev", "--dry-run", "--node-name=hardware"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    written = [
        line.partition("=") for line in result.stdout.splitlines() if not line.startswith("annotation ")
    ]
    if not written:
        return {}, f"topogate-labeler --source=udev --dry-run has no label: {result.stderr.strip()[-300:]}"
    return {key: value for key, _, value in written}, ""


def _links(nvml: Any, addresses: Sequence[str]) -> tuple[dict[str, int], str]:
    """How many NVLinks join two GPUs, and why that is not known."""
    if nvml is None:
        return (
            {},
            "NVIDIA's library is not installed: pip install nvidia-ml-py in the environment of hack/env",
        )
    try:
        nvml.nvmlInit()
        try:
            found = links_of(nvml, handles_of(nvml), addresses)
        finally:
            nvml.nvmlShutdown()
    except nvml.NVMLError as error:
        return {}, f"NVLinks cannot be looked at: {error}"
    return {" ".join(sorted(pair)): count for pair, count in found.items()}, ""


def _chosen(vendor: Nvidia, cards: Sequence[LocalCard]) -> dict[str, list[int]]:
    """Which cards a container of so many GPUs gets while all are free."""
    numbers = {device_id(card, 0): card.number for card in cards}
    return {
        str(size): sorted(numbers[each] for each in vendor.default(cards, list(numbers), [], size, {}))
        for size in _SIZES
        if size <= len(cards)
    }


def _faults(gpus: Sequence[Mapping[str, Any]], cards: Sequence[LocalCard]) -> list[str]:
    """What does not agree with what the driver says."""
    listed = {card.pci_address for card in cards}
    faults = [
        f"{gpu['address']}: the driver holds no such GPU" for gpu in gpus if gpu["address"] not in listed
    ]
    faults += [f"{gpu['address']}: no name is known" for gpu in gpus if not gpu["name in labels"]]
    faults += [f"{card.pci_address}: {_hidden(card, card.problem)}" for card in cards if card.problem]
    return faults


def _hidden(card: LocalCard, text: str) -> str:
    return text.replace(card.label, f"card {card.number}")


def _output(*command: str) -> str:
    """What a program says, "" where it is not installed."""
    if not shutil.which(command[0]):
        return ""
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="hack/hardware", description=__doc__)
    for name in ("sys", "dev", "proc"):
        parser.add_argument(f"--{name}", type=Path, default=Path(f"/{name}"), help=argparse.SUPPRESS)
    return parser


if __name__ == "__main__":
    sys.exit(main())
