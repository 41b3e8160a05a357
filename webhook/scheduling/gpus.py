"""What counts as a GPU, and which of a node's labels names the model of its GPUs. Pure."""

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
"""Node labels that name a model; the first that is there counts. Names that operators chose themselves come
first, as users ask for those; then what the labeler writes, spelled alike for all vendors; then the vendors'
own; a cloud's name of a machine type tells least of the GPU."""


DEVICES: Final = "GPUs by claims"
"""What nodes have, and pods take, of devices whose DeviceClass counts as one of GPUs."""

DEFAULT_GPU_CLASSES: Final = ("*gpu*",)


@dataclass(frozen=True)
class Counting:
    """Which resources are GPUs (names or shell patterns), and which labels may name their model."""

    resources: tuple[str, ...]
    model_labels: tuple[str, ...] = MODEL_LABELS

    def gpus(self, amounts: Mapping[str, int] | Iterable[tuple[str, int]]) -> int:
        """The GPUs among amounts of resources."""
        pairs = amounts.items() if isinstance(amounts, Mapping) else amounts
        return sum(amount for name, amount in pairs if name == DEVICES or _is_one_of(name, self.resources))

    def names(self, amounts: Iterable[str]) -> tuple[str, ...]:
        """Those of these resources that are GPUs."""
        return _chosen(tuple(amounts), self.resources)

    def model(self, labels: Mapping[str, str]) -> str:
        """The model of a node's GPUs, "" if no label tells."""
        return next((labels[key] for key in self.model_labels if labels.get(key)), "")


@lru_cache(maxsize=4096)
def _is_one_of(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


@lru_cache(maxsize=4096)
def _chosen(names: tuple[str, ...], patterns: tuple[str, ...]) -> tuple[str, ...]:
    """Nodes of one kind offer the same resources in the same order."""
    return tuple(name for name in names if name == DEVICES or _is_one_of(name, patterns))
