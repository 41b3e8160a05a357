"""The operator's files that the page and the terminal's map read, and what they make of them."""

from pathlib import Path
from typing import Final

from labeler.contract import keys
from webhook.policy.file import PolicyError, load_policy
from webhook.policy.values import Policy
from webhook.sweeper.settings import Settings, SettingsError, load
from webhook.ui.picture import Counting

MODEL_LABELS: Final = (
    keys.GPU_MODEL_LABEL,
    "nvidia.com/gpu.product",
    "gpu.intel.com/product",
    "amd.com/gpu.product-name",
    "cloud.google.com/gke-accelerator",
    "falldio.com/gpu",
)
"""Node labels that name a model, beside those of the policy's catalogue; the first that is there counts."""


class FilesError(Exception):
    """A file cannot be used; the message names it and what is wrong."""


def counting(policy: Policy) -> Counting:
    """What counts as a GPU, and which labels name its model, by the operator's policy."""
    catalogue = dict.fromkeys(key for model in policy.gpu_models for key in model.labels)
    return Counting(tuple(policy.gpu_resources), tuple(dict.fromkeys((*MODEL_LABELS, *catalogue))))


def read_files(config: Path | None, policy: Path | None) -> tuple[Settings, Policy]:
    """The sweeper's settings and admission's policy, or their defaults. Raises FilesError."""
    try:
        return Settings(**(load(config) if config else {})), load_policy(policy) if policy else Policy()
    except (SettingsError, PolicyError) as error:
        raise FilesError(str(error)) from None
