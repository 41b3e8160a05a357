"""What the manifests ship: the policy and its PriorityClasses, for questions without a cluster."""

from functools import cache
from pathlib import Path
from typing import Final

import msgspec
import yaml

from webhook.kube.objects import PriorityClass
from webhook.policy.file import load_policy
from webhook.policy.values import Policy

_HERE: Final = Path(__file__).parent


@cache
def shipped_policy() -> Policy:
    """The policy of manifests/base."""
    return load_policy(_HERE / "shipped-policy.yaml")


@cache
def shipped_classes() -> dict[str, PriorityClass]:
    """The PriorityClasses of manifests/base by name."""
    documents = yaml.safe_load_all((_HERE / "shipped-priorityclasses.yaml").read_text())
    classes = [msgspec.convert(each, PriorityClass) for each in documents]
    return {each.metadata.name: each for each in classes}
