"""The mix of the GPU pods of a cluster: those that are on its nodes, and those that wait. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from itertools import chain, groupby
from typing import Final

from labeler.contract import keys
from webhook.identity_cache import changed_keys
from webhook.placement import Mix, MixClass, PodClass, Snapshot, Usage, vector
from webhook.placement.eligibility import LabelValues, label_values
from webhook.placement.mix import MOST_AMOUNT, MOST_CLASSES, WHOLE
from webhook.placement.snapshot import Block, NodeState, Path
from webhook.scheduling.gpus import Counting

Counts = Counter[MixClass]
"""The pods of each class, whose own count is 0."""

DEFAULT_GPUS: Final = (1, 2, 4, 8)
"""GPUs of the pods of a cluster without GPU pods, as many pods of each number."""

PARTS: Final = 4096
"""About the sum of the counts of a mix."""


@dataclass(frozen=True)
class RunningClasses:
    """How many pods of each class are on the nodes of these blocks."""

    blocks: Mapping[Path, Block] = field(default_factory=dict)
    counts: Counts = field(default_factory=Counts)

    def after(self, blocks: Mapping[Path, Block], counting: Counting) -> "RunningClasses":
        """The same for other blocks; only pods of nodes whose state is another are looked at."""
        changed = changed_keys(self.blocks, blocks)
        if not changed:
            return self
        before, now = (
            {state for key in changed & each.keys() for state in each[key].states}
            for each in (self.blocks, blocks)
        )
        return RunningClasses(blocks, self.counts + _more(before, now, counting))


NO_POD: Final = RunningClasses()


def mix_of(snapshot: Snapshot, waiting: Counts, counting: Counting, known: RunningClasses = NO_POD) -> Mix:
    """The mix of the pods on the nodes of a snapshot and of waiting ones; the default mix without any.

    waiting: see counts_of; not negative. known: what is counted already.
    """
    counts = known.after(snapshot.blocks, counting).counts + waiting
    mix = mix_of_counts(counts) if counts else _default_mix(_gpu_resources(snapshot, counting))
    if not mix.classes:
        return mix
    # Numpy takes a tenth of a second to load, so it is imported on the first use.
    from webhook.placement.usable_gpus import weighted

    return weighted(mix, snapshot)


def counts_of(pods: Iterable[PodClass], counting: Counting) -> Counts:
    """How many of these pods are of each class; the class of equal ones in succession is found once."""
    counts = Counts()
    for pod, equal in groupby(pods):
        if (found := class_of(pod, counting)) is not None:
            counts[found] += sum(1 for _ in equal)
    return counts


def class_of(pod: PodClass, counting: Counting) -> MixClass | None:
    """The class of a pod; None if it requests no GPU, or more than any node has."""
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


def _more(before: Set[NodeState], now: Set[NodeState], counting: Counting) -> Counts:
    """How many more pods of each class are on nodes in these states; below 0 for fewer."""
    number = Counter(id(usage) for state in now - before for usage in state.usages)
    number.subtract(id(usage) for state in before - now for usage in state.usages)
    more = Counts()
    for usage in chain.from_iterable(state.usages for state in before ^ now):
        difference = number.pop(id(usage), 0)
        if difference and (found := _class_of_usage(usage, counting)) is not None:
            more[found] += difference
    return more


def _class_of_usage(usage: Usage, counting: Counting) -> MixClass | None:
    unmanaged = [each for each in usage.unmanaged if each.count > 0]
    of_cards = [vector(amounts) for amounts in usage.cards.values()] + [each.per_card for each in unmanaged]
    cards = len(usage.cards) + sum(each.count for each in unmanaged)
    return _class(vector(usage.requests), cards, max(of_cards, default=()), usage.labels, counting)


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
        return _if_possible(MixClass(requests, cards * share, 0, "", cards, per_card, models))
    amounts = dict(requests)
    names = counting.names(amounts)
    if not names:
        return None
    return _if_possible(MixClass(requests, WHOLE * amounts[names[0]], 0, names[0], models=models))


def _if_possible(found: MixClass) -> MixClass | None:
    """None for a pod that no node can run: its amounts would overflow the integers that others' are in."""
    amounts = (amount for _, amount in (*found.requests, *found.per_card))
    return found if max(PARTS * found.thousandths, found.cards, *amounts) <= MOST_AMOUNT else None


def _gpu_resources(snapshot: Snapshot, counting: Counting) -> Sequence[str]:
    """The resources of its nodes that are GPUs."""
    allocatable = {name for state in snapshot.nodes.values() for name in state.node.allocatable}
    return counting.names(sorted(allocatable))


def _default_mix(resources: Iterable[str]) -> Mix:
    """Some pods of each size, of each resource that is GPUs."""
    return Mix(tuple([
        MixClass(((name, gpus),), gpus * WHOLE, 1, name) for name in resources for gpus in DEFAULT_GPUS
    ]))  # fmt: skip
