"""What the manifests ship: the configuration and its PriorityClasses, for questions without a cluster."""

from functools import cache
from pathlib import Path
from typing import Final

import msgspec
import yaml

from webhook.configuration.file import Configuration, parse
from webhook.kube.objects import PriorityClass

_HERE: Final = Path(__file__).parent


@cache
def shipped_configuration() -> Configuration:
    """The configuration of manifests/base."""
    return parse((_HERE / "shipped-configuration.yaml").read_bytes())


@cache
def shipped_classes() -> dict[str, PriorityClass]:
    """The PriorityClasses of manifests/base by name."""
    documents = yaml.safe_load_all((_HERE / "shipped-priorityclasses.yaml").read_text())
    classes = [msgspec.convert(each, PriorityClass) for each in documents]
    return {each.metadata.name: each for each in classes}
