"""The mix of the GPU pods of a cluster: those that are on its nodes, and those that wait. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Final

from labeler.contract import keys
from webhook.placement import Mix, MixClass, PodClass, Snapshot, Usage, vector
from webhook.placement.eligibility import LabelValues, label_values
from webhook.placement.mix import MOST_CLASSES, WHOLE
from webhook.placement.snapshot import Block, NodeState, Path
from webhook.scheduling.gpus import Counting

Counts = Counter[MixClass]
"""The pods of each class, whose own count is 0."""

DEFAULT_GPUS: Final = (1, 2, 4, 8)
"""GPUs of the pods of a cluster without GPU pods, as many pods of each number."""

PARTS: Final = 4096
"""About the sum of the counts of a mix."""


def mix_of(snapshot: Snapshot, waiting: Counts, counting: Counting) -> Mix:
    """The mix of the pods on the nodes of a snapshot and of waiting ones; the default mix without any.

    waiting: see counts_of; not negative.
    """
    counts = running(snapshot.blocks, counting) + waiting
    mix = mix_of_counts(counts) if counts else _default_mix(_gpu_resources(snapshot, counting))
    if not mix.classes:
        return mix
    # Numpy takes a tenth of a second to load, so it is imported on the first use.
    from webhook.placement.usable_gpus import weighted

    return weighted(mix, snapshot)


def counts_of(pods: Iterable[PodClass], counting: Counting) -> Counts:
    """How many of these pods are of each class."""
    return Counts(filter(None, (class_of(pod, counting) for pod in pods)))


def running(blocks: Mapping[Path, Block], counting: Counting) -> Counts:
    """The pods on the nodes of these blocks."""
    counts = Counts()
    for block in blocks.values():
        counts.update(_in_block(block, counting))
    return counts


def class_of(pod: PodClass, counting: Counting) -> MixClass | None:
    """The class of a pod; None if it requests no GPU."""
    asked = [request for request in pod.cards if request.count]
    cards = sum(request.count for request in asked)
    per_card = max((each.per_card for each in asked), default=())
    return _class(pod.requests, cards, per_card, label_values(pod.rules), counting)


def mix_of_counts(counts: Mapping[MixClass, int]) -> Mix:
    """The MOST_CLASSES classes whose pods have the most GPUs; their counts are parts of PARTS.

    Pods of the others count as the most similar class, by their models and the GPUs that a pod takes. The
    parts are rounded to two binary digits, so that most passes have the same mix.
    """
    order = sorted(counts, key=lambda each: (-counts[each] * each.thousandths, _sort_key(each)))
    largest = order[:MOST_CLASSES]
    sums = {each: counts[each] for each in largest}
    for rare in order[MOST_CLASSES:]:
        similar = [each for each in largest if each.resource == rare.resource] or largest
        similar = [each for each in similar if each.models == rare.models] or similar
        sums[min(similar, key=lambda each: abs(each.thousandths - rare.thousandths))] += counts[rare]
    total = sum(sums.values())
    parts = {each: max(1, _rounded(PARTS * count // total)) for each, count in sums.items()}
    return Mix(tuple([replace(each, count=parts[each]) for each in sorted(parts, key=_sort_key)]))


def _rounded(number: int) -> int:
    """The number without all but its first two binary digits."""
    zeros = max(0, number.bit_length() - 2)
    return number >> zeros << zeros


def _sort_key(each: MixClass) -> tuple[object, ...]:
    return each.requests, each.per_card, each.cards, each.models


def _in_block(block: Block, counting: Counting) -> Counts:
    """The pods on the nodes of a block, cached with it."""
    key = "mix", counting
    if key not in block.cache:
        block.keep(key, Counts(chain.from_iterable(_on_node(state, key) for state in block.states)))
    known: Counts = block.cache[key]
    return known


def _on_node(state: NodeState, key: tuple[str, Counting]) -> list[MixClass]:
    """The classes of the pods on a node, cached with it."""
    if key not in state.notes:
        classes = (_class_of_usage(usage, key[1]) for usage in state.usages)
        state.note(key, [each for each in classes if each is not None])
    known: list[MixClass] = state.notes[key]
    return known


def _class_of_usage(usage: Usage, counting: Counting) -> MixClass | None:
    cards = [vector(amounts) for amounts in usage.cards.values()]
    cards += [each.per_card for each in usage.unmanaged for _ in range(each.count)]
    return _class(vector(usage.requests), len(cards), max(cards, default=()), usage.labels, counting)


def _class(
    requests: tuple[tuple[str, int], ...],
    cards: int,
    per_card: tuple[tuple[str, int], ...],
    labels: LabelValues,
    counting: Counting,
) -> MixClass | None:
    models = tuple([each for each in labels if each[0] in counting.model_labels])
    if cards:
        share = min(WHOLE, dict(per_card).get(keys.MILLICORES, WHOLE))
        return MixClass(requests, cards * share, 0, "", cards, per_card, models)
    amounts = dict(requests)
    names = counting.names(amounts)
    return MixClass(requests, WHOLE * amounts[names[0]], 0, names[0], models=models) if names else None


def _gpu_resources(snapshot: Snapshot, counting: Counting) -> Sequence[str]:
    """The resources of its nodes that are GPUs."""
    allocatable = {name for state in snapshot.nodes.values() for name in state.node.allocatable}
    return counting.names(sorted(allocatable))


def _default_mix(resources: Iterable[str]) -> Mix:
    """Some pods of each size, of each resource that is GPUs."""
    return Mix(tuple([
        MixClass(((name, gpus),), gpus * WHOLE, 1, name) for name in resources for gpus in DEFAULT_GPUS
    ]))  # fmt: skip
