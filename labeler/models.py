"""What a GPU's product is called: one name a product, the same on every node whatever runs there.

In this order: the table ``gpus.tsv``, which ``hack/models`` makes of the public PCI ID list; the driver's own
name; udev's hardware database; vendor and device id. A database or a driver that is newer than another node's
renames no product that the table lists.
"""

import re
from functools import lru_cache
from pathlib import Path
from typing import Final

INTEL: Final = "0x8086"
NVIDIA: Final = "0x10de"
AMD: Final = "0x1002"
VENDORS: Final = {INTEL: "intel", NVIDIA: "nvidia", AMD: "amd"}

_TABLE: Final = Path(__file__).with_name("gpus.tsv")
_IN_BRACKETS: Final = re.compile(r"\[(.+)\]\s*$")
_MAKER: Final = re.compile(r"^((NVIDIA|AMD|Intel(\(R\))?|HGX)\s+)+(?=\S)", re.IGNORECASE)
_SUFFIX: Final = re.compile(r"\s+(Lite Hash Rate|LHR|Rev\. ?\w+)$", re.IGNORECASE)
_SHARE: Final = re.compile(r"-[0-9]+[ABCQ](ME|NOME|MEALL|GFX)?$")
"""Ends the name of a virtual GPU that is a share of a card, as in "A100-40C"; those on MIG may name
extensions, as in "A100-1-5CME"."""

_NAMED_BEFORE: Final = {
    INTEL: frozenset(
        {
            "0x0bd5", "0x0bd6", "0x0bd7", "0x0bd9", "0x0bda", "0x0bdb", "0x4905", "0x4907", "0x4908",
            "0x56a0", "0x56a1", "0x56a5", "0x56a6", "0x56c0", "0x56c1",
        }
    ),
    NVIDIA: frozenset(
        {
            "0x15f8", "0x1db1", "0x1db4", "0x1db5", "0x1db6", "0x1eb8", "0x20b0", "0x20b2", "0x20b5",
            "0x20f1", "0x2235", "0x2236", "0x2324", "0x2330", "0x2331", "0x26b5", "0x27b8",
        }
    ),
    AMD: frozenset({"0x738c", "0x7408", "0x740c", "0x740f"}),
}  # fmt: skip
"""Devices that had the name of today before there was a table; for one release, as `former_name`."""


def vendor_name(vendor_id: str) -> str:
    """A name for a PCI vendor id ("0x8086"): "intel", or the id's digits where we know none."""
    return VENDORS.get(vendor_id, f"pci-{vendor_id.removeprefix('0x')}")


def model_name(
    vendor_id: str, device_id: str, from_driver: str = "", from_database: str | None = None
) -> str:
    """A GPU's name. from_driver: as its driver names it, "" if it does not.

    NVIDIA's driver has the word where one id stands for several products, or the GPU is a share of a card.
    """
    listed, own = _listed(vendor_id, device_id), product(without_maker(from_driver))
    asks_driver = vendor_id == NVIDIA and own and ("/" in listed or _SHARE.search(own))
    if listed and not asks_driver:
        return listed
    return own or listed or product(_bracketed(from_database)) or _by_ids(vendor_id, device_id)


def former_name(vendor_id: str, device_id: str, from_database: str | None) -> str:
    """What the GPU was called before the table came first; kept as a second label for one release."""
    if from_database:
        return _bracketed(from_database)
    known = device_id in _NAMED_BEFORE.get(vendor_id, ())
    return _listed(vendor_id, device_id) if known else _by_ids(vendor_id, device_id)


def is_discrete(vendor_id: str, device_id: str) -> bool:
    """Whether the table lists a device: it has no GPUs that are part of a processor."""
    return bool(_listed(vendor_id, device_id))


def without_maker(name: str) -> str:
    """A name as drivers report it ("NVIDIA L40S") without its maker; "" for no name."""
    text = _MAKER.sub("", name.strip())
    return "" if text == "Unknown" else text  # what NVIDIA's driver reports of a GPU that it has lost


def product(name: str) -> str:
    """A name without what distinguishes variants of one product."""
    text = name.strip()
    while (shorter := _SUFFIX.sub("", text)) != text:
        text = shorter
    return text.replace("Geforce", "GeForce")


def _bracketed(from_database: str | None) -> str:
    """The product of a database's "chip [product]", else all of it."""
    text = from_database or ""
    match = _IN_BRACKETS.search(text)
    return match[1] if match else text.strip()


def _by_ids(vendor_id: str, device_id: str) -> str:
    return f"{vendor_name(vendor_id)}-{device_id.removeprefix('0x')}"


@lru_cache(maxsize=64)
def _listed(vendor_id: str, device_id: str) -> str:
    """The table's name of a device, "" for none. The table is read again for each new id, and not cached."""
    wanted = f"{vendor_id.removeprefix('0x')}\t{device_id.removeprefix('0x')}\t"
    with _TABLE.open(encoding="ascii") as lines:
        return next((line.removeprefix(wanted).rstrip() for line in lines if line.startswith(wanted)), "")
