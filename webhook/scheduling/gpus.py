"""The resources that count as GPUs, and the node labels that name the model of GPUs. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Final

from labeler.contract import keys

MODEL_LABELS: Final = (
    "falldio.com/gpu",
    keys.GPU_MODEL_LABEL,
    "nvidia.com/gpu.product",
    "amd.com/gpu.product-name",
    "gpu.intel.com/product",
    "cloud.google.com/gke-accelerator",
)
"""Node labels that name a model; the first one present counts. Names that operators chose come first, since
users select by those. Then come the labeler's names, which have one spelling for all vendors, and then the
vendors' own. A cloud's machine type, which says least about the GPU, comes last."""


DEVICES: Final = "GPUs by claims"
"""The synthetic resource for devices whose DeviceClass counts as GPUs."""

DEFAULT_GPU_CLASSES: Final = ("*gpu*",)


@dataclass(frozen=True)
class Counting:
    """The resources that are GPUs (names or shell patterns), and the labels that may name their model."""

    resources: tuple[str, ...]
    model_labels: tuple[str, ...] = MODEL_LABELS

    def gpus(self, amounts: Mapping[str, int] | Iterable[tuple[str, int]]) -> int:
        """The GPUs among amounts of resources."""
        pairs = amounts.items() if isinstance(amounts, Mapping) else amounts
        return sum(amount for name, amount in pairs if name == DEVICES or _is_one_of(name, self.resources))

    def names(self, amounts: Iterable[str]) -> tuple[str, ...]:
        """The resources among these that are GPUs."""
        return _chosen(tuple(amounts), self.resources)

    def model(self, labels: Mapping[str, str]) -> str:
        """The model of a node's GPUs, "" if no label names it."""
        return next((labels[key] for key in self.model_labels if labels.get(key)), "")


@lru_cache(maxsize=4096)
def _is_one_of(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


@lru_cache(maxsize=4096)
def _chosen(names: tuple[str, ...], patterns: tuple[str, ...]) -> tuple[str, ...]:
    """The names that match a pattern, cached, since similar nodes list the same resources in one order."""
    return tuple(name for name in names if name == DEVICES or _is_one_of(name, patterns))
