"""Free GPUs that the next pod of the mix cannot use, and what the node lacks for it.

They are the fragmentation by which places are chosen (see usable_gpus): for each class of the mix the free
GPUs on nodes and cards where a pod of it cannot run, on average over the pods of the mix. Shares of cards
that are in use count with what is free of them.
"""

from collections import Counter
from collections.abc import Callable
from typing import Final

from webhook.placement.capacity import takes_pods
from webhook.placement.mix import WHOLE
from webhook.placement.model import NodeInfo
from webhook.placement.snapshot import Snapshot

TOO_FEW: Final = "fewer than a pod requests"
SHARES: Final = "shares of cards"

Stranded = Counter[str]
"""Thousandths of GPUs by cause: the resource that the node lacks, TOO_FEW or SHARES."""


def stranded_gpus(
    snapshot: Snapshot, units_per_gpu: Callable[[NodeInfo, str], int] = lambda *_: 1
) -> dict[str, Stranded]:
    """By the name of each node that takes pods and has some.

    units_per_gpu: of a resource on a node, see scheduling.gpu_counts.
    """
    states = [each for each in snapshot.nodes.values() if takes_pods(each)]
    if not snapshot.mix.classes or not states:
        return {}
    # Numpy takes a tenth of a second to load, so it is imported on the first use.
    from webhook.placement.usable_gpus import of_mix

    resources, rows = of_mix(snapshot.mix).unusable(states, units_per_gpu)
    causes = (*resources, TOO_FEW, SHARES)
    found = {}
    for state, row in zip(states, rows, strict=True):
        if any(row):
            amounts = zip(causes, row, strict=True)
            found[state.name] = Counter({cause: amount for cause, amount in amounts if amount})
    return found


def stranded_words(causes: Stranded) -> str:
    """Such as "31 stranded: 22 lack cpu, 9 are shares of cards"; "" without any.

    Parts of a GPU are rounded.
    """
    counts = [(round(amount / WHOLE), cause) for cause, amount in causes.most_common()]
    parts = [
        f"{count} {'are' if cause in (TOO_FEW, SHARES) else 'lack'} {cause}"
        for count, cause in counts
        if count
    ]
    total = sum(count for count, _ in counts)
    return f"{total} stranded: {', '.join(parts)}" if parts else ""
