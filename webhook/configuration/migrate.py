"""The two files of version 0.1, admission's policy and the sweeper's settings, as one configuration.

Programs of this version still read them, with a warning; `topogate config migrate` writes the new file.
"""

import logging
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from webhook.configuration.document import ConfigurationError, read_yaml
from webhook.configuration.file import SETTINGS, Configuration, from_document
from webhook.configuration.keys import API_VERSION, KIND
from webhook.configuration.schema import SCHEMA
from webhook.durations import duration_text
from webhook.text import sentence_list

Document = dict[str, Any]
logger = logging.getLogger(__name__)
OLD_KIND: Final = "AdmissionPolicy"
_NOT_OLD: Final = (
    "is neither an AdmissionPolicy nor a file of sweeper settings; pass no old files beside a configuration"
)
_SECOND: Final = "is a second configuration; there is one for the whole cluster"

_KEYS: Final = SETTINGS | {
    # of the policy
    "gpuResources": "gpus.resources",
    "gpuModels": "models",
    "namespaces": "namespaces.rules",
    "excludedNamespaces": "namespaces.excluded",
    "resourceClaims": "gpus.deviceClasses",
    "keepManagedFields": "admission.keepManagedFields",
    "nativeGangs": "gangs.native",
    "bind": "binding.mode",
    # of the settings
    "go_on_with_fewer": "gangs.startWithFewer",
    "schedulers": "schedulerNames",
    "ignored_namespaces": "namespaces.excluded",
    "levels": "topology.levels",
    "mode": "placement.mode",
    "weights": "placement.weights",
}
"""The new path of each key of the old files that has another name."""

_DROPPED: Final = {
    "gate": "pods get the gate that is gatePrefix with topogate after it",
    "topologyLevels": "topology.levels names the levels",
    "most_allocated": "of equal nodes, the one that loses the fewest GPUs is taken",
    "interval_seconds": "a pass happens at least every 30 seconds",
    "not_ready_seconds": "a node may be not ready for 60 seconds",
    "rollback_seconds": "a gang without nodes for its other pods is rolled back after 300 seconds",
    "pass_seconds": "a pass places gangs for 10 seconds",
    "evict_broken": "what is left of a gang below its minimum is always evicted",
    "broken_seconds": "what is left of a gang below its minimum is evicted after 30 seconds",
    "bound": "the work of one question is a million steps",
    "bad_nodes.soon_seconds": "a pod that ran for 600 seconds has not failed because of its node",
    "bad_nodes.outlive_seconds": "another pod must run for 10 seconds longer",
    "bad_nodes.keep_seconds": "a failure is forgotten after a day",
    "scale_up.after_seconds": "a gang asks after 5 seconds without nodes",
    "scale_up.retry_seconds": "a refused gang asks again after 60 seconds, then after twice as long",
    "scale_up.label_seconds": "a node may be without topology labels for 120 seconds",
}
"""What always holds instead of keys of the old files that are no more."""

_NESTED: Final = ("bad_nodes", "scale_up", "spare_nodes")


def is_old(document: Any) -> bool:
    """Whether a document is one of the two files of version 0.1."""
    if not isinstance(document, dict):
        return False
    # Of the keys of a configuration, settings had repair alone, which was true or false.
    new_keys = (key for key, value in document.items() if not isinstance(value, bool))
    return document.get("kind") == OLD_KIND or SCHEMA["properties"].keys().isdisjoint(new_keys)


def migrate(files: Iterable[tuple[str, str | bytes]]) -> tuple[Document, list[str]]:
    """One configuration from old files, each with its name, and a sentence for each thing that was changed.

    Values that are wrong go over unchanged, so that the reader of the new file reports them. Raises
    ConfigurationError for a file that cannot be read, or is none of the two.
    """
    documents = [(source, read_yaml(content, source)) for source, content in files]
    new: Document = {"apiVersion": API_VERSION, "kind": KIND}
    notes: list[str] = []
    for source, document in documents:
        if document is not None and not is_old(document):
            raise ConfigurationError(source, [_NOT_OLD])
    # What both set, the policy decides; it alone has a kind.
    for source, document in sorted(documents, key=lambda each: "kind" not in (each[1] or {})):
        for name, value in _flat(document or {}).items():
            note = _take(name, value, new)
            notes += [f"{source}: {name} is dropped: {note}"] if note else []
    return new, notes


def _flat(old: Mapping[str, Any]) -> Document:
    """The keys of an old file; those of nested settings as bad_nodes.avoid."""
    flat: Document = {}
    for name, value in old.items():
        if name in _NESTED and isinstance(value, dict):
            flat |= {f"{name}.{below}": each for below, each in value.items()}
        elif name not in ("apiVersion", "kind"):
            flat[str(name)] = value
    return flat


def _take(name: str, value: Any, new: Document) -> str:
    """Set a key of the new document. Returns what was dropped instead, and why."""
    if name in _DROPPED:
        return _DROPPED[name]
    path = _KEYS.get(name, name)
    value, note = _value(name, value)
    section, _, below = path.partition(".")
    where = new.setdefault(section, {}) if below else new
    if not isinstance(where, dict):
        return ""  # the section itself is wrong, which the reader of the new file reports
    there = where.setdefault(below or section, value)
    if there != value and not (name == "gpu_device_classes" and not there):
        listed = sentence_list(list(map(str, there))) if isinstance(there, list) else there
        return f"the policy sets {path} to {listed}"
    return note


def _value(name: str, value: Any) -> tuple[Any, str]:
    """The value of an old key as the new file has it, and what holds now if that is something else."""
    match name, value:
        case "bind", "nominated":
            return "podgroup", "gangs are no longer nominated, but bound as with podgroup"
        case "mode", "keep-whole":
            return "best-fit", "gangs are placed as with best-fit, which leaves as much free"
        case "resourceClaims", bool():
            return (["*"] if value else []), ""
        case "namespaces", dict():
            return _with_new_names(value), ""
        case "fairOrder", dict():
            return _without_days(value), ""
    is_amount = name.endswith("_seconds") and type(value) in (int, float) and 0 <= value < math.inf
    return (duration_text(value) if is_amount else value), ""


def _with_new_names(namespaces: dict[str, Any]) -> Document:
    new = {"defaultGpuModel": "defaultModel"}
    found = {name: rules for name, rules in namespaces.items() if isinstance(rules, dict)}
    renamed = {name: {new.get(key, key): rules[key] for key in rules} for name, rules in found.items()}
    return namespaces | renamed


def _without_days(fair_order: dict[str, Any]) -> Document:
    """The fair order with hours in the place of days, which durations of Kubernetes do not have."""
    texts = {key: value for key, value in fair_order.items() if isinstance(value, str)}
    days = {key: re.fullmatch(r"([0-9]{1,5}(\.[0-9]+)?)d", text) for key, text in texts.items()}
    return fair_order | {key: duration_text(float(each[1]) * 86400) for key, each in days.items() if each}


# --- reading ------------------------------------------------------------------------------------------


def load_files(paths: Sequence[Path]) -> Configuration:
    """The configuration of one file, or of the two files of version 0.1; without files the defaults.

    Raises ConfigurationError.
    """
    return parse_files(contents(paths))


def contents(paths: Sequence[Path]) -> list[tuple[str, bytes]]:
    """The files' names and bytes. Raises ConfigurationError."""
    try:
        return [(str(path), path.read_bytes()) for path in paths]
    except OSError as error:
        raise ConfigurationError(str(error.filename), [f"cannot be read: {error.strerror}"]) from None


def parse_files(files: Sequence[tuple[str, str | bytes]]) -> Configuration:
    """The configuration of one file, or of old ones, which are reported in the log.

    Raises ConfigurationError.
    """
    documents = [(source, read_yaml(content, source)) for source, content in files]
    names = " ".join(source for source, _ in files)
    if any(is_old(document) for _, document in documents):
        new, notes = migrate(files)
        for note in (f"run topogate config migrate {names}", *notes):
            logger.warning("old_configuration note=%r", note)
        return from_document(new, names)
    if len(files) > 1:
        raise ConfigurationError(files[1][0], [_SECOND])
    return from_document(documents[0][1], names) if files else Configuration()
