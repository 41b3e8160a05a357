"""Names of common GPUs by PCI id, for nodes without udev's hardware database.

The names are those between brackets of the public PCI ID list (2023.04.10), so that a node with the database
and one without call the same card the same; ids that are newer than that list are not here.
"""

import re
from typing import Final

VENDORS: Final = {"0x8086": "intel", "0x10de": "nvidia", "0x1002": "amd"}

_NAMES: Final = {
    "0x8086": {
        "0x0bd5": "Data Center GPU Max 1550",
        "0x0bd6": "Data Center GPU Max 1550",
        "0x0bd7": "Data Center GPU Max 1350",
        "0x0bd9": "Data Center GPU Max 1100",
        "0x0bda": "Data Center GPU Max 1100",
        "0x0bdb": "Data Center GPU Max 1100",
        "0x4905": "Iris Xe MAX Graphics",
        "0x4907": "Server GPU SG-18M",
        "0x4908": "Iris Xe Graphics",
        "0x56a0": "Arc A770",
        "0x56a1": "Arc A750",
        "0x56a5": "Arc A380",
        "0x56a6": "Arc A310",
        "0x56c0": "Data Center GPU Flex 170",
        "0x56c1": "Data Center GPU Flex 140",
    },
    "0x10de": {
        "0x15f8": "Tesla P100 PCIe 16GB",
        "0x1db1": "Tesla V100 SXM2 16GB",
        "0x1db4": "Tesla V100 PCIe 16GB",
        "0x1db5": "Tesla V100 SXM2 32GB",
        "0x1db6": "Tesla V100 PCIe 32GB",
        "0x1eb8": "Tesla T4",
        "0x20b0": "A100 SXM4 40GB",
        "0x20b2": "A100 SXM4 80GB",
        "0x20b5": "A100 PCIe 80GB",
        "0x20f1": "A100 PCIe 40GB",
        "0x2235": "A40",
        "0x2236": "A10",
        "0x2324": "H800",
        "0x2330": "H100 SXM5 80GB",
        "0x2331": "H100 PCIe",
        "0x26b5": "L40",
        "0x27b8": "L4",
    },
    "0x1002": {
        "0x738c": "Instinct MI100",
        "0x7408": "Instinct MI250X",
        "0x740c": "Instinct MI250X/MI250",
        "0x740f": "Instinct MI210",
    },
}
_IN_BRACKETS: Final = re.compile(r"\[(.+)\]\s*$")


def vendor_name(vendor_id: str) -> str:
    """A name for a PCI vendor id ("0x8086"): "intel", or the id's digits where we know none."""
    return VENDORS.get(vendor_id, f"pci-{vendor_id.removeprefix('0x')}")


def model_name(vendor_id: str, device_id: str, from_database: str | None) -> str:
    """A GPU's name: of the hardware database if it has one, else of the table, else vendor and device id."""
    if from_database:
        match = _IN_BRACKETS.search(from_database)
        return match[1] if match else from_database.strip()
    known = _NAMES.get(vendor_id, {}).get(device_id)
    return known or f"{vendor_name(vendor_id)}-{device_id.removeprefix('0x')}"
