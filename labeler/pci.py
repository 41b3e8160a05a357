"""What a card's PCI device in sysfs tells: the labeler and the allocator must read it alike.

A card that one of them leaves out and the other counts would be planned and then refused, again and again.
"""

import re
from pathlib import Path
from typing import Final

INTEGRATED: Final = re.compile(r"[0-9a-f]{4,}:00:[0-9a-f]{2}\.[0-9]")
"""The address of an Intel GPU that is part of the processor: on bus 0."""


def bus_problem(device: Path) -> str:
    """Why a card cannot be used, "" if nothing is known against it.

    One that has fallen off the bus reads as ones; one that sleeps is not woken to be asked.
    """
    state, config = device / "power" / "runtime_status", device / "config"
    try:
        if not config.exists() or (state.exists() and state.read_text().strip() == "suspended"):
            return ""
        with config.open("rb") as file:
            head = file.read(4)
    except OSError as error:
        return f"its configuration cannot be read: {error.strerror}"
    return "it does not answer on its bus" if head == b"\xff" * 4 else ""
