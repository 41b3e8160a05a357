"""Makes labeler/gpus.tsv from the PCI ID list: `hack/models FILE`.

The table has what data centres and work stations run: discrete GPUs of NVIDIA since Pascal, of AMD since
Vega and Polaris, and of Intel. Left out are what laptops and other machines have built in, samples, and chips
without the name of a product.
"""

import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from labeler.models import product, without_maker

TABLE: Final = Path(__file__).resolve().parents[1] / "labeler" / "gpus.tsv"
_CHIPS: Final = {
    "10de": re.compile(r"(GP|GV|TU|GA|AD|GH|GB)\d.*(?<!M)$"),
    "1002": re.compile(
        r"(Vega (10|12|20)\b|Arcturus|Aldebaran|Aqua Vanjaram|Navi|Polaris|Ellesmere|Baffin|Lexa)(?!.*Audio)"
    ),
    "8086": re.compile(r"DG[12]\b|SG1\b|ATS-M|Ponte Vecchio|Battlemage|Crescent Island"),
}
_NO_PRODUCT: Final = re.compile(
    r"\bMobile\b|Laptop|Embedded|Engineering Sample|Reserved|Initial|Audio|NVSwitch|DRIVE|Jetson|Generic"
    r"|Spark|\bSKU\b|\bPG\d{3}|Max-Q( Refresh| /|$)|Vega M |^(Intel|Arc Xe|Xe|Radeon) Graphics$|^Polaris\d+$"
    r"|^Skinny|88K|GH3$|GB10$|Desktop Device|^TS4 /",
    re.IGNORECASE,
)
_DEVICE: Final = re.compile(r"\t([0-9a-f]{4})  (\S.*?) \[(.+)\]\s*")
_VENDOR: Final = re.compile(r"([0-9a-f]{4})  ")
_VERSION: Final = re.compile(r"#\s+Version:\s*(\S+)")


def main(arguments: list[str]) -> int:
    """Write the table; 2 for a file that is no PCI ID list."""
    if len(arguments) != 1:
        print("usage: hack/models FILE, a pci.ids of the PCI ID Project", file=sys.stderr)
        return 2
    try:
        lines = Path(arguments[0]).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        print(f"hack/models: {arguments[0]} cannot be read: {error}", file=sys.stderr)
        return 2
    version = next((match[1] for match in map(_VERSION.match, lines) if match), "")
    rows = list(products(lines))
    if not version or not rows:
        print(f"hack/models: {arguments[0]} is no PCI ID list: it has no version or no GPUs", file=sys.stderr)
        return 2
    head = [
        f"# GPUs by PCI vendor and device id. Made by hack/models from the PCI ID list {version}",
        "# (https://pci-ids.ucw.cz, GPL-2.0-or-later or BSD-3-Clause). Do not edit.",
    ]
    TABLE.write_text("\n".join([*head, *("\t".join(row) for row in rows)]) + "\n", encoding="ascii")
    print(f"{TABLE.name}: {len(rows)} devices of the PCI ID list {version}")
    return 0


def products(lines: Iterable[str]) -> Iterator[tuple[str, str, str]]:
    """Vendor id, device id and product of each GPU of a PCI ID list that belongs in the table."""
    vendor = ""
    for line in lines:
        if (match := _VENDOR.match(line)) is not None:
            vendor = match[1]
        elif vendor in _CHIPS and (match := _DEVICE.fullmatch(line)) is not None:
            device, chip, name = match.groups()
            if _CHIPS[vendor].match(chip) and not _NO_PRODUCT.search(name):
                yield vendor, device, product(without_maker(name))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
