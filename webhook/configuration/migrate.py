"""The two files of version 0.1, admission's policy and the sweeper's settings, as one configuration.

Programs of this version still read them, with a warning; `topogate config migrate` writes the new file.
"""

import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from labeler.contract import keys as labels
from webhook.configuration.document import ConfigurationError, read_yaml
from webhook.configuration.file import Configuration, from_document
from webhook.configuration.keys import API_VERSION, KIND, NOMINATED, NOMINATED_NOTE, Bind
from webhook.configuration.value_kinds import duration_text
from webhook.text import sentence_list

Document = dict[str, Any]
logger = logging.getLogger(__name__)
OLD_KIND: Final = "AdmissionPolicy"

_POLICY: Final = {
    "gatePrefix": "gatePrefix",
    "gpuResources": "gpus.resources",
    "tiers": "tiers",
    "gpuModels": "models",
    "namespaces": "namespaces.rules",
    "excludedNamespaces": "namespaces.excluded",
    "schedulerNames": "schedulerNames",
    "resourceClaims": "gpus.deviceClasses",
    "keepManagedFields": "admission.keepManagedFields",
    "nativeGangs": "gangs.native",
    "bind": "binding.mode",
    "fairOrder": "fairOrder",
}
_SETTINGS: Final = {
    "gate_prefix": "gatePrefix",
    "settle_seconds": "gangs.settle",
    "patience_seconds": "gangs.patience",
    "bind_seconds": "binding.timeout",
    "abandon_seconds": "repair.abandonAfter",
    "reserve_seconds": "reservations.after",
    "reserve_hold_seconds": "reservations.duration",
    "reserve_share": "reservations.share",
    "go_on_with_fewer": "gangs.startWithFewer",
    "repair": "repair.enabled",
    "repair_owners": "repair.owners",
    "schedulers": "schedulerNames",
    "preempt": "preemption.enabled",
    "keep_managed_fields": "admission.keepManagedFields",
    "ignored_namespaces": "namespaces.excluded",
    "gpu_resources": "gpus.resources",
    "gpu_device_classes": "gpus.deviceClasses",
    "model_label": "gpus.modelLabel",
    "gang_labels": "gangs.labels",
    "gang_owners": "gangs.owners",
    "loose_owners": "gangs.looseOwners",
    "bad_nodes.avoid": "nodeHealth.avoid",
    "bad_nodes.failures": "nodeHealth.failures",
    "bad_nodes.avoid_seconds": "nodeHealth.avoidFor",
    "bad_nodes.share": "nodeHealth.share",
    "spare_nodes.per_block": "spareNodes.perBlock",
    "spare_nodes.if_nothing_else_fits": "spareNodes.lastResort",
    "scale_up.provisioning_class": "scaleUp.provisioningClass",
    "scale_up.parameters": "scaleUp.parameters",
    "scale_up.requests": "scaleUp.requests",
    "scale_up.pods": "scaleUp.pods",
    "levels": "topology.levels",
    "mode": "placement.mode",
    "weights": "placement.weights",
    "most_allocated": "placement.mostAllocated",
}
_DROPPED: Final = {
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
"""Settings that are no more, each with what now is always so."""
_NESTED: Final = ("bad_nodes", "spare_nodes", "scale_up")
_DAYS: Final = re.compile(r"([0-9.]+)d")


def is_old(document: Any) -> bool:
    """Whether a document is one of the two files of version 0.1."""
    if not isinstance(document, dict):
        return False
    return document.get("kind") == OLD_KIND or ("kind" not in document and "apiVersion" not in document)


def migrate(files: Iterable[tuple[str, str | bytes]]) -> tuple[Document, list[str]]:
    """One configuration from old files, each with its name, and a sentence for each thing that was changed.

    Values that are wrong go over unchanged, so that the reader of the new file reports them. Raises
    ConfigurationError for a file that cannot be read, or is none of the two.
    """
    return _migrated((source, read_yaml(content, source)) for source, content in files)


def _migrated(documents: Iterable[tuple[str, Any]]) -> tuple[Document, list[str]]:
    new: Document = {"apiVersion": API_VERSION, "kind": KIND}
    notes: list[str] = []
    # What both set, the policy decides.
    for source, document in sorted(documents, key=lambda each: not _is_policy(each[1])):
        if document is None:
            continue
        if not is_old(document):
            raise ConfigurationError(source, ["is neither an AdmissionPolicy nor a file of sweeper settings"])
        take = _take_policy if _is_policy(document) else _take_settings
        found: list[str] = []
        take(document, new, found.append)
        notes += (f"{source}: {note}" for note in found)
    return new, notes


def load_files(paths: Sequence[Path]) -> Configuration:
    """The configuration of one file, or of the two files of version 0.1; without files the defaults.

    Raises ConfigurationError.
    """
    return parse_files(contents(paths)) if paths else Configuration()


def contents(paths: Sequence[Path]) -> list[tuple[str, bytes]]:
    """The files' names and bytes. Raises ConfigurationError."""
    found = []
    for path in paths:
        try:
            found.append((str(path), path.read_bytes()))
        except OSError as error:
            raise ConfigurationError(str(path), [f"cannot be read: {error.strerror}"]) from None
    return found


def parse_files(files: Sequence[tuple[str, str | bytes]]) -> Configuration:
    """The configuration of one file, or of old ones, which are reported in the log.

    Raises ConfigurationError.
    """
    documents = [(source, read_yaml(content, source)) for source, content in files]
    if not any(is_old(document) for _, document in documents):
        if len(files) > 1:
            raise ConfigurationError(
                files[1][0], ["is a second configuration; there is one for the whole cluster"]
            )
        source, document = documents[0]
        return from_document(document, source)
    names = " ".join(source for source, _ in files)
    new, notes = _migrated(documents)
    logger.warning("old_configuration files=%r run=%r", names, f"topogate config migrate {names}")
    for note in notes:
        logger.warning("old_configuration note=%r", note)
    return from_document(new, names)


def _is_policy(document: Any) -> bool:
    return isinstance(document, dict) and document.get("kind") == OLD_KIND


def _take_policy(old: Mapping[str, Any], new: Document, note: Callable[[str], None]) -> None:
    for name, value in old.items():
        if name in ("apiVersion", "kind"):
            continue
        if name == "gate":
            wanted = str(old.get("gatePrefix", labels.GATE_PREFIX)) + "topogate"
            if value != wanted:
                note(f"gate: {value} is dropped; pods get the gate {wanted}")
        elif name == "topologyLevels":
            if value != list(labels.LEVEL_NAMES):
                note(f"topologyLevels: {_listed(value)} is dropped; topology.levels names the levels")
        elif name == "bind" and value == NOMINATED:
            note(NOMINATED_NOTE)
            _put(new, _POLICY[name], Bind.PODGROUP.value, note, name)
        else:
            _put(new, _POLICY.get(name, name), _policy_value(name, value), note, name)


def _policy_value(name: str, value: Any) -> Any:
    """A field's value as the new file has it."""
    if name == "resourceClaims" and isinstance(value, bool):
        return ["*"] if value else []
    if name == "namespaces" and isinstance(value, dict):
        return {each: _renamed(rules, "defaultGpuModel", "defaultModel") for each, rules in value.items()}
    if name == "fairOrder" and isinstance(value, dict):
        return {each: _hours(given) for each, given in value.items()}
    return value


def _renamed(rules: Any, old: str, new: str) -> Any:
    return (
        {new if key == old else key: value for key, value in rules.items()}
        if isinstance(rules, dict)
        else rules
    )


def _hours(value: Any) -> Any:
    """A duration without days: Kubernetes' durations have none."""
    days = _DAYS.fullmatch(value) if isinstance(value, str) else None
    return duration_text(float(days[1]) * 86400) if days else value


def _take_settings(old: Mapping[str, Any], new: Document, note: Callable[[str], None]) -> None:
    flat: dict[str, Any] = {}
    for name, value in old.items():
        if name in _NESTED and isinstance(value, dict):
            flat |= {f"{name}.{below}": each for below, each in value.items()}
        else:
            flat[name] = value
    for name, value in flat.items():
        if name in _DROPPED:
            note(f"{name} is dropped: {_DROPPED[name]}")
            continue
        is_time = name.endswith("_seconds") and type(value) in (int, float)
        _put(new, _SETTINGS.get(name, name), duration_text(value) if is_time else value, note, name)


def _put(new: Document, path: str, value: Any, note: Callable[[str], None], name: str) -> None:
    """Set a key of the new document, unless the other file has set it already."""
    section, _, below = path.partition(".")
    where = new.setdefault(section, {}) if below else new
    key = below or section
    if key not in where:
        where[key] = value
    elif where[key] != value and not (path == "gpus.deviceClasses" and not where[key]):
        note(f"{name} is dropped: the policy sets {path} to {_listed(where[key])}")


def _listed(value: Any) -> str:
    return sentence_list([str(each) for each in value]) if isinstance(value, list) else str(value)
