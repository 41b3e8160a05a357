"""Facts from a file, for bare metal and for simulated nodes.

Either one file for many nodes, one entry a node (YAML or JSON), where an entry is a path or a mapping::

    node-1: /cluster-a/rack-3/host-17
    node-2:
      topology: [cluster-a, rack-3, host-18]
      cards: 8                  # or a list of card numbers
      model: Max_1550
      vendor: intel             # the default
      tiles-per-card: 2
      memory-bytes-per-card: 68719476736
      numa: {0: [0, 1, 2, 3], 1: [4, 5, 6, 7]}

or a file of this node alone, whose whole content is its path.
"""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from threading import Event
from typing import Final

from labeler.documents import DocumentError, read_document, unknown_key
from labeler.facts import Facts, Gpu, SourceError
from labeler.sources import Context, OptionError, Options

_FIELDS: Final = (
    "topology", "cards", "model", "vendor", "tiles-per-card", "memory-bytes-per-card", "numa",
)  # fmt: skip
_NEED_CARDS: Final = _FIELDS[2:]
_VENDOR: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,30}[a-z0-9])?")
_WATCH_SECONDS: Final = 2.0
_MOST_CARDS: Final = 1024

OPTIONS: Final = ("path",)


def create(options: Options, context: Context) -> "FileSource":
    """Source with the option ``path``."""
    path = options.get("path")
    if not isinstance(path, str) or not path:
        raise OptionError("source file: the option path must name the facts file")
    return FileSource(Path(path), context.node_name)


class FileSource:
    """One node's entry of a facts file; changes of the file are noticed within seconds."""

    def __init__(self, path: Path, node_name: str) -> None:
        self._path = path
        self._node_name = node_name
        self._seen: tuple[int, int, int] | None = None

    def discover(self) -> Facts:
        """Read the file again. Raises SourceError naming file and place for anything it cannot mean."""
        self._seen = _state(self._path)  # first: what is written while it is read is a change
        try:
            document = read_document(self._path)
        except DocumentError as error:
            raise SourceError(str(error)) from error
        if isinstance(document, str):
            return Facts(topology=_place(document, str(self._path)))
        if not isinstance(document, Mapping):
            raise SourceError(f"{self._path}: must map node names to facts, or be one path")
        if self._node_name not in document:
            raise SourceError(
                f"{self._path}: no entry for node {self._node_name} among {len(document)} nodes"
            )
        return parse_entry(document[self._node_name], f"{self._path}: {self._node_name}")

    def watch(self, changed: Callable[[], None], stop: Event) -> None:
        """Look at the file every two seconds (a ConfigMap is swapped by a link, which stat follows)."""
        while not stop.wait(_WATCH_SECONDS):
            if (now := _state(self._path)) != self._seen:
                self._seen = now
                changed()


def _state(path: Path) -> tuple[int, int, int] | None:
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_size, stat.st_ino


def parse_entry(entry: object, where: str) -> Facts:
    """Facts of one entry; where (file and node) opens every complaint."""
    if isinstance(entry, (str, list)):
        return Facts(topology=_place(entry, where))
    if not isinstance(entry, Mapping):
        raise SourceError(f"{where}: must be a path or a mapping, is {entry!r}")
    for name in entry:
        if name not in _FIELDS:
            raise SourceError(f"{where}.{name}: {unknown_key(name, _FIELDS)}")
    topology = _place(entry["topology"], f"{where}.topology") if "topology" in entry else None
    if "cards" in entry:
        return Facts(topology=topology, gpus=_gpus(entry, where))
    for name in _NEED_CARDS:
        if name in entry:
            raise SourceError(f"{where}.{name}: says something of cards, but there is no field cards")
    return Facts(topology=topology)


def _place(value: object, where: str) -> tuple[str, ...]:
    if isinstance(value, str):
        levels = value.strip().removeprefix("/").split("/")
    elif isinstance(value, list) and all(isinstance(level, str) for level in value):
        levels = value
    else:
        raise SourceError(f"{where}: must be a path like /cluster/rack/host or a list of texts, is {value!r}")
    if not levels or not all(levels):
        raise SourceError(f"{where}: has an empty level in {value!r}")
    return tuple(levels)


def _gpus(entry: Mapping[str, object], where: str) -> tuple[Gpu, ...]:
    cards = _cards(entry["cards"], f"{where}.cards")
    numa_node_of = _numa(entry.get("numa", {}), cards, f"{where}.numa")
    model = _text(entry.get("model", ""), f"{where}.model")
    vendor = _text(entry.get("vendor", "intel"), f"{where}.vendor")
    if not _VENDOR.fullmatch(vendor):
        raise SourceError(f"{where}.vendor: must be a word in lower case such as nvidia, is {vendor!r}")
    tiles = _number(entry.get("tiles-per-card", 1), 1, f"{where}.tiles-per-card")
    memory = _number(entry.get("memory-bytes-per-card", 0), 0, f"{where}.memory-bytes-per-card")
    return tuple(
        Gpu(card, vendor, model, numa_node=numa_node_of.get(card), tiles=tiles, memory_bytes=memory)
        for card in cards
    )


def _cards(value: object, where: str) -> tuple[int, ...]:
    if isinstance(value, list):
        cards = tuple(_number(card, 0, where) for card in value)
        if len(set(cards)) != len(cards):
            raise SourceError(f"{where}: names a card twice: {value!r}")
        return tuple(sorted(cards))
    count = _number(value, 0, where)
    if count > _MOST_CARDS:
        raise SourceError(f"{where}: {count} cards in one node; at most {_MOST_CARDS} are believed")
    return tuple(range(count))


def _numa(value: object, cards: tuple[int, ...], where: str) -> dict[int, int]:
    if not isinstance(value, Mapping):
        raise SourceError(f"{where}: must map NUMA nodes to lists of cards, is {value!r}")
    node_of: dict[int, int] = {}
    for node, members in value.items():
        number = int(node) if isinstance(node, str) and node.isdecimal() else node  # keys of JSON are texts
        numa_node = _number(number, 0, where)
        for card in _cards(members if isinstance(members, list) else [members], f"{where}.{node}"):
            if card not in cards or card in node_of:
                raise SourceError(f"{where}.{node}: card {card} is not a card of this node, or named twice")
            node_of[card] = numa_node
    return node_of


def _number(value: object, least: int, where: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise SourceError(f"{where}: must be a whole number from {least} up, is {value!r}")
    return value


def _text(value: object, where: str) -> str:
    if not isinstance(value, str):
        raise SourceError(f"{where}: must be a text, is {value!r}")
    return value
