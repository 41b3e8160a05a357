"""The labeler's configuration: which sources, in which order, and what their places are called.

::

    sources:                # the first that knows something wins
    - udev
    - file: {path: /etc/topogate/facts.yaml}
    levels:                 # label keys of the topology, coarsest first
    - topology.gke.io/cluster
    - topology.gke.io/rack
    - topology.gke.io/host
    interval: 60            # seconds between two looks without an event
    pci-group-level: 0      # PCI ancestors that the cards of one group share, 0 for no groups
    feature-file: /etc/...  # write an NFD feature file there, and not the Node
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Final

from labeler.contract import keys
from labeler.documents import DocumentError, read_document, unknown_key

_LABEL_KEY: Final = re.compile(
    r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
)


class ConfigError(ValueError):
    """The configuration is wrong; the message has a line for each fault, with file and place."""


@dataclass(frozen=True)
class Config:
    """Sources with their options, and how labels are made; see the module's text."""

    sources: tuple[tuple[str, Mapping[str, object]], ...]
    levels: tuple[str, ...] = keys.PRERELEASE_TOPOLOGY
    interval_seconds: float = 60.0
    pci_group_level: int = 0
    feature_file: Path | None = None


@dataclass(frozen=True)
class Key:
    """A key of the file, for docs: what it takes, its default (None for none) and what it means."""

    what: str
    default: object
    meaning: str


KEYS: Final[Mapping[str, Key]] = {
    "sources": Key("a list", None, "Where facts come from; of two that say the same, the first counts."),
    "levels": Key(
        "a list of label keys",
        Config.levels,
        "The labels of the topology, coarsest first.",
    ),
    "interval": Key(
        "a number of seconds from 1 up", Config.interval_seconds, "Time between two looks without an event."
    ),
    "pci-group-level": Key(
        "a number from 0 up",
        Config.pci_group_level,
        "How many PCI ancestors the cards of one group share; 0 for no groups.",
    ),
    "feature-file": Key(
        "an absolute path",
        None,
        "Where a feature file of Node Feature Discovery is written; the Node is not.",
    ),
}


def load_config(path: Path) -> Config:
    """Read and check a file. Raises ConfigError."""
    try:
        return parse_config(read_document(path), str(path))
    except DocumentError as error:
        raise ConfigError(str(error)) from error


def parse_config(document: object, where: str) -> Config:
    """Check a document; where opens the line of each fault. Raises ConfigError with all of them."""
    faults: list[str] = []
    given = document if isinstance(document, Mapping) else {}
    if given is not document:
        faults.append("document: must be a mapping with the key sources")
    faults += [f"{name}: {unknown_key(name, tuple(KEYS))}" for name in given if name not in KEYS]
    file = given.get("feature-file")
    if "feature-file" in given and not (isinstance(file, str) and file.startswith("/")):
        faults.append(f"feature-file: must be an absolute path, not {file!r}")
    config = Config(
        feature_file=Path(str(file)) if file else None,
        sources=_sources(given.get("sources"), faults),
        levels=_levels(given.get("levels", list(keys.PRERELEASE_TOPOLOGY)), faults),
        interval_seconds=_at_least(1, given.get("interval", 60), "interval", faults),
        pci_group_level=int(_at_least(0, given.get("pci-group-level", 0), "pci-group-level", faults)),
    )
    if faults:
        raise ConfigError("\n".join(f"{where}: {fault}" for fault in faults))
    return config


def _sources(value: object, faults: list[str]) -> tuple[tuple[str, Mapping[str, object]], ...]:
    if not isinstance(value, list) or not value:
        faults.append("sources: must be a list of at least one source")
        return ()
    found: dict[str, Mapping[str, object]] = {}
    for item in value:
        name, options = (
            next(iter(item.items())) if isinstance(item, Mapping) and len(item) == 1 else (item, {})
        )
        if not isinstance(name, str) or not isinstance(options or {}, Mapping):
            faults.append(f"sources: {item!r} is neither a name nor one name with options")
        elif name in found:
            faults.append(f"sources: {name} is listed twice; list each source once")
        else:
            found[name] = options or {}
    return tuple(found.items())


def _levels(value: object, faults: list[str]) -> tuple[str, ...]:
    if not isinstance(value, list) or not value or len(set(map(str, value))) != len(value):
        faults.append("levels: must be a list of different label keys, coarsest first")
        return ()
    for key in value:
        if not isinstance(key, str) or not _LABEL_KEY.fullmatch(key):
            faults.append(f"levels: {key!r} must be a label key with a prefix, such as example.com/rack")
    return tuple(value)


def _at_least(least: float, value: object, path: str, faults: list[str]) -> float:
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not least <= value < inf:
        faults.append(f"{path}: must be a number from {least} up, not {value!r}")
        return least
    return value
