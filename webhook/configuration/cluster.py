"""The configuration of a running cluster, from its ConfigMap."""

from collections.abc import Mapping
from typing import Any, Final

from labeler.contract import keys as labels
from webhook.configuration.document import ConfigurationError, read_yaml
from webhook.configuration.file import Configuration
from webhook.configuration.migrate import parse_files
from webhook.kube.client import Api, ApiError
from webhook.placement import Topology
from webhook.text import sentence_list

NAME: Final = "topogate-configuration"
KEY: Final = "configuration.yaml"
_OLD_NAME: Final = "topogate-policy"
"""In version 0.1; its other file, the sweeper's settings, had no name of its own."""
LABELER: Final = "labeler"
_KEYS: Final = {NAME: KEY, _OLD_NAME: "policy.yaml", LABELER: "labeler.yaml"}
"""By the ConfigMap of a program's file, the key of its text."""
_FOLDER: Final = "/api/v1/namespaces/topogate-system/configmaps"


def path_of(name: str = NAME) -> str:
    """The path of the ConfigMap."""
    return f"{_FOLDER}/{name}"


def read_configuration(api: Api) -> Configuration:
    """The configuration of the cluster. Raises ApiError, ConfigurationError."""
    try:
        return of_config_map(api.json("GET", path_of()))
    except ApiError as error:
        if error.status != 404:
            raise
        try:
            return of_config_map(api.json("GET", path_of(_OLD_NAME)))
        except ApiError as other:
            raise (error if other.status == 404 else other) from None


def read_if_allowed(api: Api) -> Configuration | None:
    """The same, None if it may not be read or does not exist."""
    try:
        return read_configuration(api)
    except ApiError as error:
        if error.status not in (401, 403, 404):
            raise
        return None


def identity(document: Mapping[str, Any]) -> tuple[str, str]:
    """The identity of an object: kind and name."""
    metadata = document.get("metadata")
    name = metadata.get("name") if isinstance(metadata, Mapping) else None
    return str(document.get("kind")), str(name)


def is_configuration(document: Mapping[str, Any]) -> bool:
    """Whether an object is the ConfigMap with the configuration."""
    return identity(document) in (("ConfigMap", NAME), ("ConfigMap", _OLD_NAME))


def is_labeler_file(document: Mapping[str, Any]) -> bool:
    """Whether an object is the ConfigMap with the labeler's own file."""
    return identity(document) == ("ConfigMap", LABELER)


def of_config_map(document: Mapping[str, Any]) -> Configuration:
    """The configuration in a ConfigMap. Raises ConfigurationError."""
    return parse_files([(f"the ConfigMap {identity(document)[1]}", text_of(document))])


def text_of(document: Mapping[str, Any]) -> str:
    """The text of a program's file in a ConfigMap. Raises ConfigurationError if there is none."""
    name, data = identity(document)[1], document.get("data")
    key = _KEYS.get(name, KEY)
    text = data.get(key) if isinstance(data, Mapping) else None
    if not isinstance(text, str):
        raise ConfigurationError(f"the ConfigMap {name}", [f"data: has no {key} with a text"])
    return text


def labeler_levels(document: Mapping[str, Any]) -> list[str]:
    """The label keys that the labeler writes, by its ConfigMap. Raises ConfigurationError."""
    own = read_yaml(text_of(document), f"the ConfigMap {LABELER}")
    levels = own.get("levels") if isinstance(own, dict) else None
    return [str(each) for each in levels] if isinstance(levels, list) else list(labels.PRERELEASE_TOPOLOGY)


def level_faults(topology: Topology, written: list[str]) -> list[str]:
    """What is wrong if the labeler writes these label keys: a family must have all of them."""
    if any(set(written) <= set(family) for family in topology.families):
        return []
    return [
        f"levels: the labeler writes {sentence_list(written)}, and no family of topology.levels has these "
        "labels: pods would not be placed by them"
    ]
