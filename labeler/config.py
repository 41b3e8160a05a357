"""The labeler's configuration: which sources, in which order, and what their places are called.

::

    sources:                # the first that says something wins
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
from pathlib import Path
from typing import Final

from labeler.contract import keys
from labeler.documents import DocumentError, read_document

_FIELDS: Final = (
    "sources", "levels", "interval", "pci-group-level", "feature-file",
)  # fmt: skip
_LABEL_KEY: Final = re.compile(
    r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
)


class ConfigError(ValueError):
    """The configuration is wrong; the message names file and place."""


@dataclass(frozen=True)
class Config:
    """Sources with their options, and how labels are made; see the module's text."""

    sources: tuple[tuple[str, Mapping[str, object]], ...]
    levels: tuple[str, ...] = keys.PRERELEASE_TOPOLOGY
    interval_seconds: float = 60.0
    pci_group_level: int = 0
    feature_file: Path | None = None


def load_config(path: Path) -> Config:
    """Read and check a file. Raises ConfigError."""
    try:
        return parse_config(read_document(path), str(path))
    except DocumentError as error:
        raise ConfigError(str(error)) from error


def parse_config(document: object, where: str) -> Config:
    """Check a document; where opens every complaint. Raises ConfigError."""
    if not isinstance(document, Mapping):
        raise ConfigError(f"{where}: must be a mapping with the field sources")
    for name in document:
        if name not in _FIELDS:
            raise ConfigError(f"{where}: no field is called {name!r}; there are {', '.join(_FIELDS)}")
    file = document.get("feature-file")
    if file is not None and not (isinstance(file, str) and file.startswith("/")):
        raise ConfigError(f"{where}: feature-file: must be an absolute path, is {file!r}")
    return Config(
        feature_file=Path(file) if file else None,
        sources=_sources(document.get("sources"), f"{where}: sources"),
        levels=_levels(document.get("levels", list(keys.PRERELEASE_TOPOLOGY)), f"{where}: levels"),
        interval_seconds=_at_least(document.get("interval", 60), 1, f"{where}: interval"),
        pci_group_level=int(_at_least(document.get("pci-group-level", 0), 0, f"{where}: pci-group-level")),
    )


def _sources(value: object, where: str) -> tuple[tuple[str, Mapping[str, object]], ...]:
    if not isinstance(value, list) or not value:
        raise ConfigError(f"{where}: must be a list of at least one source")
    found: dict[str, Mapping[str, object]] = {}
    for item in value:
        name, options = (
            next(iter(item.items())) if isinstance(item, Mapping) and len(item) == 1 else (item, {})
        )
        if not isinstance(name, str) or not isinstance(options or {}, Mapping):
            raise ConfigError(f"{where}: {item!r} is neither a name nor one name with options")
        if name in found:
            raise ConfigError(f"{where}: {name} is there twice")
        found[name] = options or {}
    return tuple(found.items())


def _levels(value: object, where: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not value or len(set(map(str, value))) != len(value):
        raise ConfigError(f"{where}: must be a list of different label keys, coarsest first")
    for key in value:
        if not isinstance(key, str) or not _LABEL_KEY.fullmatch(key):
            raise ConfigError(f"{where}: {key!r} is no label key with a prefix")
    return tuple(value)


def _at_least(value: object, least: float, where: str) -> float:
    if not isinstance(value, (int, float)) or isinstance(value, bool) or value < least:
        raise ConfigError(f"{where}: must be a number from {least} up, is {value!r}")
    return value
