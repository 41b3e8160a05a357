"""The mix: classes of the GPU pods that a cluster runs, each with the number of such pods."""

from dataclasses import dataclass, field
from typing import Any, Final

from webhook.placement.eligibility import LabelValues
from webhook.placement.model import Vector

MOST_CLASSES: Final = 64
"""The most classes of a mix; the work to value a node grows with them."""

WHOLE: Final = 1000
"""Thousandths of a GPU."""

MOST_AMOUNT: Final = 1 << 50
"""No node has more of a resource, in its unit. Arrays of 64-bit integers have no greater amounts."""


@dataclass(frozen=True, slots=True)
class MixClass:
    """Requests of similar pods, and their number.

    resource: the resource of which they request whole GPUs, "" for pods that request cards. thousandths: of
    GPUs that one pod takes. cards, per_card: the number of cards, and the amounts of each. models: the labels
    of a node's GPU model of which they require values.
    """

    requests: Vector
    thousandths: int
    count: int
    resource: str = ""
    cards: int = 0
    per_card: Vector = ()
    models: LabelValues = ()


@dataclass(frozen=True, slots=True)
class Mix:
    """The classes, at most MOST_CLASSES; without any, all places are equally good for the next pod.

    weights: how much each class counts in the choice of a node, see usable_gpus.weighted; () for the counts.
    notes: what is computed about them once, see usable_gpus.of_mix.
    """

    classes: tuple[MixClass, ...] = ()
    weights: tuple[int, ...] = ()
    notes: dict[str, Any] = field(default_factory=dict, compare=False, repr=False)


NO_MIX: Final = Mix()


def names_of(mix: Mix) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """The resources that the classes request, of nodes and of cards, and the keys of their model labels."""
    of_nodes = {name for each in mix.classes for name, _ in each.requests}
    of_cards = {name for each in mix.classes for name, _ in each.per_card}
    labels = {key for each in mix.classes for key, _ in each.models}
    return tuple(sorted(of_nodes)), tuple(sorted(of_cards)), tuple(sorted(labels))
