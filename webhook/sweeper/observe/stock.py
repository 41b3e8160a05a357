"""What GPUs there are and how they lie, in sums for the metrics: by model, by level. Pure.

A block's sums stay for as long as the block does, so a pass adds up only what has changed since the last.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Final

from webhook.placement import Snapshot
from webhook.placement.snapshot import Block, NodeState, place_of
from webhook.scheduling.gpu_counts import NodeGpus, node_gpus, used_gpus
from webhook.scheduling.gpus import Counting

FREE: Final = "free"
USED: Final = "used"
EXCLUDED: Final = "excluded"
"""Of a GPU on a node that takes no pods, used or not."""

PARTLY: Final = "partly"
FULL: Final = "full"
"""Of a domain, beside FREE: some or all of its GPUs are used."""

NODE: Final = "node"
MOST_MODELS: Final = 32
OTHER: Final = "other"
"""What models beyond MOST_MODELS are called: node labels must not make series without end."""


@dataclass
class _Domain:
    """Sums over the nodes of one domain that take pods. whole: model -> GPUs on wholly free nodes."""

    gpus: int = 0
    used: int = 0
    whole: dict[str, int] = field(default_factory=dict)

    def add(self, other: "_Domain") -> None:
        """Count another's in."""
        self.gpus += other.gpus
        self.used += other.used
        for model, count in other.whole.items():
            self.whole[model] = self.whole.get(model, 0) + count


@dataclass(frozen=True)
class _BlockStock:
    """One block's sums, per level from the block down to the node."""

    gpus: Mapping[tuple[str, str], int]
    largest: tuple[Mapping[str, int], ...]
    domains: tuple[Mapping[str, int], ...]
    unplaced: int


@dataclass(frozen=True)
class Stock:
    """The cluster's GPUs. levels: names, coarsest first, and the node.

    gpus: (model, FREE or USED or EXCLUDED) -> GPUs. largest: (level, model) -> GPUs on wholly free nodes of
    the one domain that has most of them: the largest gang of whole nodes that fits there.
    domains: (level, FREE or PARTLY or FULL) -> domains. unplaced: GPU nodes without topology labels.
    """

    levels: tuple[str, ...]
    gpus: Mapping[tuple[str, str], int]
    largest: Mapping[tuple[str, str], int]
    domains: Mapping[tuple[str, str], int]
    unplaced: int


def take_stock(snapshot: Snapshot, counting: Counting) -> Stock:
    """The sums of a snapshot; costs a few microseconds a node of each block that is new."""
    levels = (*snapshot.topology.level_names, NODE)
    blocks = [_of_block(block, len(levels) - 1, counting) for block in snapshot.blocks.values()]
    shown = _shown({model for own in blocks for model, _ in own.gpus})
    gpus: Counter[tuple[str, str]] = Counter()
    domains: Counter[tuple[str, str]] = Counter()
    for own in blocks:
        for (model, state), count in own.gpus.items():
            gpus[shown[model], state] += count
        for level, by_use in zip(levels, own.domains, strict=True):
            domains.update({(level, state): count for state, count in by_use.items()})
    unplaced = sum(own.unplaced for own in blocks)
    return Stock(levels, gpus, _largest_of(blocks, levels, shown), domains, unplaced)


def _shown(models: Set[str]) -> Mapping[str, str]:
    """What each model is called."""
    return {model: model if number < MOST_MODELS else OTHER for number, model in enumerate(sorted(models))}


def _largest_of(
    blocks: Iterable[_BlockStock], levels: Sequence[str], shown: Mapping[str, str]
) -> Mapping[tuple[str, str], int]:
    """See Stock.largest. shown: what each model is called."""
    largest: dict[tuple[str, str], int] = {}
    for own in blocks:
        for level, by_model in zip(levels, own.largest, strict=True):
            for model, count in by_model.items():
                key = level, shown[model]
                largest[key] = max(count, largest.get(key, 0))
    return largest


def _of_block(block: Block, levels: int, counting: Counting) -> _BlockStock:
    known: _BlockStock | None = block.cache.get(counting)
    if known is None:
        known = block.cache[counting] = _added_up(block.states, levels, counting)
    return known


def _added_up(states: Iterable[NodeState], levels: int, counting: Counting) -> _BlockStock:
    gpus: Counter[tuple[str, str]] = Counter()
    domains: list[dict[tuple[str, ...], _Domain]] = [{} for _ in range(levels)]
    nodes: list[_Domain] = []
    unplaced = 0
    for state in states:
        found = node_gpus(state.node, counting)
        if not found:
            continue
        unplaced += state.path is None
        own = _of_node(state, found, gpus)
        if own is None:
            continue
        nodes.append(own)
        place = place_of(state, levels)
        for level, known in enumerate(domains):
            known.setdefault(place[: level + 2], _Domain()).add(own)
    each_level = [*(list(known.values()) for known in domains), nodes]
    return _BlockStock(gpus, tuple(map(_largest, each_level)), tuple(map(_by_use, each_level)), unplaced)


def _of_node(state: NodeState, found: Iterable[NodeGpus], gpus: Counter[tuple[str, str]]) -> _Domain | None:
    """A node's sums, None if it takes no pods; its GPUs are added to `gpus` in any case."""
    node = state.node
    if node.problem or node.unschedulable or not node.ready:
        for each in found:
            gpus[each.model, EXCLUDED] += each.gpus
        return None
    own = _Domain()
    for each in found:
        used = used_gpus(state, each)
        gpus[each.model, USED] += used
        gpus[each.model, FREE] += each.gpus - used
        own.add(_Domain(each.gpus, used, {each.model: each.gpus}))
    return replace(own, whole={}) if own.used else own


def _largest(domains: Iterable[_Domain]) -> dict[str, int]:
    found: dict[str, int] = {}
    for domain in domains:
        for model, count in domain.whole.items():
            found[model] = max(count, found.get(model, 0))
    return found


def _by_use(domains: Iterable[_Domain]) -> dict[str, int]:
    found = {FREE: 0, PARTLY: 0, FULL: 0}
    for domain in domains:
        found[FULL if domain.used >= domain.gpus else PARTLY if domain.used else FREE] += 1
    return found
