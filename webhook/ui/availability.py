"""Free capacity by model, and nodes out of use, for the page's first screen. Pure."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

import msgspec

from webhook.placement.stranded_gpus import stranded_words
from webhook.ui.picture import EXCLUDED, FREE, NodeTile, Shown, lineage

UPPER_LEVELS: Final = 2
"""The levels, coarsest first, whose domain with most free GPUs is named."""

MOST_TROUBLED: Final = 50
"""The most nodes that are named with their problem; the others are counted."""

OTHER_CAUSES: Final = "other causes"
MOST_CAUSES: Final = 8


class FreestDomain(Shown, frozen=True):
    """The domain of a level with most GPUs of one model on wholly free nodes."""

    id: str
    gpus: int


class ModelCapacity(Shown, frozen=True):
    """The GPUs of one model ("" if no label names it) on nodes that take pods; a MIG profile is a model.

    gpus: including those in use on other nodes, see NodeTile.gpus_by_model.
    free: neither used nor reserved; whole: free ones on wholly free nodes; freest: for each level, coarsest
    first, the domain with most of `whole`; [] without wholly free nodes. stranded: in words, free capacity
    that the next pod cannot use, "" without any; see placement.stranded_gpus.
    """

    model: str
    gpus: int
    free: int
    whole: int
    freest: list[FreestDomain]
    stranded: str = ""


class TroubledNode(Shown, frozen=True):
    """A node that takes no pods, or that gangs avoid. why: the cause, in words."""

    name: str
    domain: str
    is_excluded: bool
    why: str


class Troubles(Shown, frozen=True):
    """excluded: nodes by cause; avoided: the number of avoided nodes; nodes: of both, avoided ones first."""

    excluded: dict[str, int] = msgspec.field(default_factory=dict)
    avoided: int = 0
    nodes: list[TroubledNode] = msgspec.field(default_factory=list)


@dataclass
class _ModelSum:
    gpus: int = 0
    free: int = 0
    whole: int = 0
    by_domain: Counter[str] = field(default_factory=Counter)
    stranded: Counter[str] = field(default_factory=Counter)


def capacity_by_model(
    tiles: Collection[NodeTile], stranded: Mapping[str, Counter[str]] | None = None
) -> list[ModelCapacity]:
    """The capacity of each model, the model with most GPUs first.

    stranded: by node, see placement.stranded_gpus; on nodes with several models it counts for the first.
    """
    sums: dict[str, _ModelSum] = {}
    for tile in tiles:
        for model, (gpus, used) in tile.gpus_by_model.items():
            total = sums.setdefault(model, _ModelSum())
            total.gpus += gpus
            if not tile.reserved_for:
                total.free += gpus - used
            if tile.state == FREE:
                total.whole += gpus
                total.by_domain[tile.domain] += gpus
    _add_stranded(sums, tiles, stranded or {})
    rows = [
        ModelCapacity(
            model,
            total.gpus,
            total.free,
            total.whole,
            _freest(total.by_domain),
            stranded_words(total.stranded),
        )
        for model, total in sums.items()
        if total.gpus
    ]
    return sorted(rows, key=lambda row: (-row.gpus, row.model))


def _add_stranded(
    sums: dict[str, _ModelSum], tiles: Iterable[NodeTile], stranded: Mapping[str, Counter[str]]
) -> None:
    for tile in tiles:
        models = [*tile.gpus_by_model]
        if models and not tile.reserved_for:
            sums[models[0]].stranded.update(stranded.get(tile.name, Counter()))


def _freest(by_lowest: Counter[str]) -> list[FreestDomain]:
    """For each level the domain with most GPUs, from the sums of the lowest domains."""
    levels: list[Counter[str]] = [Counter() for _ in range(UPPER_LEVELS)]
    for domain, gpus in by_lowest.items():
        for level, ancestor in zip(levels, lineage(domain), strict=False):
            level[ancestor] += gpus
    return [FreestDomain(*max(level.items(), key=lambda item: item[1])) for level in levels if level]


def find_troubles(tiles: Collection[NodeTile]) -> Troubles:
    """The nodes that take no pods, and those that gangs avoid."""
    excluded = Counter(tile.cause for tile in tiles if tile.state == EXCLUDED)
    shown = dict(excluded.most_common(MOST_CAUSES))
    if others := excluded.total() - sum(shown.values()):
        shown[OTHER_CAUSES] = others
    avoided = [tile for tile in tiles if tile.avoided]
    out_of_use = (tile for tile in tiles if tile.state == EXCLUDED and not tile.avoided)
    named = [*avoided, *out_of_use][:MOST_TROUBLED]
    nodes = [
        TroubledNode(tile.name, tile.domain, tile.state == EXCLUDED, tile.avoided or tile.cause)
        for tile in named
    ]
    return Troubles(shown, len(avoided), nodes)
