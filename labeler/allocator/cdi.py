"""The cards described for container runtimes (Container Device Interface 0.5), where that is asked for.

One file of one vendor and class; its devices are named as in device ids.
https://github.com/cncf-tags/container-device-interface/blob/main/SPEC.md
"""

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from labeler.allocator.values import LocalCard

KIND: Final = "topogate.io/gpu"
_VERSION: Final = "0.5.0"


def qualified(card: LocalCard) -> str:
    """The name by which a container asks for a card."""
    return f"{KIND}={card.label}"


def describe(cards: Iterable[LocalCard]) -> str:
    """The file's text."""
    devices = [
        {
            "name": card.label,
            "containerEdits": {
                "deviceNodes": [{"path": node} for node in card.nodes],
                "mounts": [
                    {"hostPath": link, "containerPath": link, "options": ["ro", "bind"]}
                    for link in card.links
                ],
            },
        }
        for card in cards
    ]
    return json.dumps({"cdiVersion": _VERSION, "kind": KIND, "devices": devices}, indent=1) + "\n"


def keep(folder: Path, cards: Iterable[LocalCard]) -> str:
    """Write the file if it is to change; returns why it cannot be written, "" if it stands there."""
    try:
        _write(folder, cards)
    except OSError as error:
        return f"the cards cannot be described in {folder}: {error.strerror}; mount it as a writable hostPath"
    return ""


def _write(folder: Path, cards: Iterable[LocalCard]) -> None:
    """Replace the file as a whole."""
    target = folder / "topogate-gpu.json"
    text = describe(cards)
    if target.is_file() and target.read_text() == text:
        return
    partial = folder / f".topogate-gpu-{os.getpid()}"
    partial.write_text(text)
    partial.rename(target)
