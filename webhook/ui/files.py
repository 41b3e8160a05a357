"""Reads the operator's files for the page and for the map in the terminal."""

from pathlib import Path

from webhook.policy.document import PolicyError
from webhook.policy.file import load_policy
from webhook.policy.values import Policy
from webhook.scheduling.gpus import MODEL_LABELS, Counting
from webhook.sweeper.settings import Settings, SettingsError, load


class FilesError(Exception):
    """A file cannot be used; the message names it and what is wrong."""


def counting(policy: Policy) -> Counting:
    """The resources that count as GPUs, and the labels with their model, by the operator's policy."""
    catalogue = dict.fromkeys(key for model in policy.gpu_models for key in model.labels)
    return Counting(tuple(policy.gpu_resources), tuple(dict.fromkeys((*MODEL_LABELS, *catalogue))))


def read_files(config: Path | None, policy: Path | None) -> tuple[Settings, Policy]:
    """The sweeper's settings and admission's policy, or their defaults. Raises FilesError."""
    try:
        return load(config) if config else Settings(), load_policy(policy) if policy else Policy()
    except (SettingsError, PolicyError) as error:
        raise FilesError(str(error)) from None
