"""A configuration's text in, a Configuration out, or every fault at once, each named by its path.

Unknown and repeated keys are faults, because a misspelt key would silently mean its default.
"""

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from operator import attrgetter
from pathlib import Path
from typing import Any, Final

from labeler.contract import keys as labels
from webhook.configuration.catalogue import (
    MODEL_FIELDS,
    NAMESPACE_FIELDS,
    TIER_FIELDS,
    Fields,
    resolved_rules,
)
from webhook.configuration.document import ConfigurationError, DocumentReader, read_yaml, shown
from webhook.configuration.fair_weights import resolved_order
from webhook.configuration.keys import (
    API_VERSION,
    KEYS,
    KIND,
    NOMINATED,
    NOMINATED_NOTE,
    Bind,
    NativeGangs,
    OptionKey,
)
from webhook.configuration.settings import Settings
from webhook.configuration.value_kinds import Schema
from webhook.policy.fair import FairOrder
from webhook.policy.values import DEFAULT_EXCLUDED_NAMESPACES, EVERY_CLASS, Policy
from webhook.scheduling.gpus import Counting

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Configuration:
    """What the operator wants: of admission and the task controller, and of the sweeper."""

    policy: Policy = field(default_factory=Policy)
    settings: Settings = field(default_factory=Settings)

    @property
    def counting(self) -> Counting:
        """The resources that count as GPUs, and the labels with their model, those of the catalogue too."""
        of_sweeper = self.settings.counting
        catalogue = (key for model in self.policy.gpu_models for key in model.labels)
        return replace(of_sweeper, model_labels=tuple(dict.fromkeys((*of_sweeper.model_labels, *catalogue))))


def load(path: Path) -> Configuration:
    """Read a file. Raises ConfigurationError, also if it cannot be read."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ConfigurationError(str(path), [f"cannot be read: {error.strerror}"]) from None
    return parse(content, str(path))


def parse(content: str | bytes, source: str = "configuration") -> Configuration:
    """Read a file's content. Raises ConfigurationError, each line of which begins with the source."""
    return from_document(read_yaml(content, source), source)


def from_document(document: Any, source: str) -> Configuration:
    """Read a document. Raises ConfigurationError."""
    reader = DocumentReader()
    found = _values(document, reader)
    configuration = _build(found, reader)
    if reader.faults:
        raise ConfigurationError(source, reader.faults)
    return configuration


# --- reading ------------------------------------------------------------------------------------------

_SECTIONS: Final = tuple(dict.fromkeys(each.path.partition(".")[0] for each in KEYS if "." in each.path))
_TOP: Final = ("apiVersion", "kind", *dict.fromkeys(each.path.partition(".")[0] for each in KEYS))


def _values(document: Any, reader: DocumentReader) -> dict[str, Any]:
    """The values of the keys that are given, by path; a section that is given is there itself."""
    if document is None or document == {}:
        reader.fault("", f"is empty; start with apiVersion: {API_VERSION} and kind: {KIND}")
        return {}
    root = reader.mapping(document, "", _TOP)
    for name, wanted in (("apiVersion", API_VERSION), ("kind", KIND)) if root else ():
        if root.get(name) != wanted:
            reader.fault(name, f"must be {wanted}, not {shown(root.get(name))}")
    given = dict(root)
    for section in (each for each in _SECTIONS if each in root):
        names = tuple(each.path.partition(".")[2] for each in KEYS if each.path.startswith(f"{section}."))
        for name, value in reader.mapping(root[section], section, names).items():
            given[f"{section}.{name}"] = value
    if given.get("binding.mode") == NOMINATED:
        logger.warning("old_configuration note=%r", NOMINATED_NOTE)
        given["binding.mode"] = Bind.PODGROUP
    read = {
        each.path: each.kind.read(given[each.path], each.path, reader) for each in KEYS if each.path in given
    }
    return read | ({"fairOrder": True} if "fairOrder" in root else {})


def _build(found: Mapping[str, Any], reader: DocumentReader) -> Configuration:
    settings: dict[str, Any] = {}
    policy: dict[str, Any] = {}
    for each in KEYS:
        if each.path not in found:
            continue
        if each.settings:
            settings[each.settings] = found[each.path]
        if each.policy:
            policy[each.policy] = found[each.path]
    return Configuration(_policy(policy, found, reader), _settings(settings, found, reader))


def _settings(given: Mapping[str, Any], found: Mapping[str, Any], reader: DocumentReader) -> Settings:
    usual = Settings()
    values: dict[str, Any] = {}
    for path, value in given.items():
        name, _, below = path.partition(".")
        if below:
            values[name] = replace(values.get(name, getattr(usual, name)), **{below: value})
        else:
            is_set = isinstance(getattr(usual, name), frozenset)
            values[name] = frozenset(value) if is_set else value
    if excluded := found.get("namespaces.excluded"):
        values["ignored_namespaces"] = usual.ignored_namespaces | set(excluded)
    classes = frozenset(found.get("gpus.deviceClasses", ())) - {"*"}
    if classes:
        values["gpu_device_classes"] = classes
    for each in sorted(values.get("gang_owners", frozenset()) & values.get("loose_owners", frozenset())):
        reader.fault("gangs.looseOwners", f"{each} is in gangs.owners too")
    return replace(usual, **values)


def _policy(given: dict[str, Any], found: Mapping[str, Any], reader: DocumentReader) -> Policy:
    models, tiers = given.get("gpu_models", ()), given.get("tiers", ())
    if "namespaces" in given:
        given["namespaces"] = resolved_rules(given["namespaces"], "namespaces.rules", tiers, models, reader)
    if "gate_prefix" in given:
        given["gate"] = given["gate_prefix"] + labels.GATE.removeprefix(labels.GATE_PREFIX)
    if "topology.levels" in found:
        given["topology_levels"] = found["topology.levels"].level_names
    if excluded := found.get("namespaces.excluded"):
        given["excluded_namespaces"] = frozenset((*DEFAULT_EXCLUDED_NAMESPACES, *excluded))
    if classes := found.get("gpus.deviceClasses"):
        given |= {"resource_claims": True, "device_classes": EVERY_CLASS if "*" in classes else classes}
    bind = found.get("binding.mode", Bind.PINNED)
    return Policy(
        **given,
        adopts_native_gangs=found.get("gangs.native", NativeGangs.ADOPT) is NativeGangs.ADOPT,
        binds_by_pod_group=bind is not Bind.PINNED,
        fair_order=_fair_order(found, models, reader),
    )


_FAIR: Final = {
    "fairOrder.halfLife": "half_life_seconds",
    "fairOrder.maximumWait": "maximum_wait_seconds",
    "fairOrder.accountLabel": "account_label",
    "fairOrder.weights": "weights",
    "fairOrder.modelCosts": "model_costs",
}


def _fair_order(found: Mapping[str, Any], models: Any, reader: DocumentReader) -> FairOrder | None:
    if "fairOrder" not in found:
        return None
    given = {name: found[path] for path, name in _FAIR.items() if path in found}
    return resolved_order(replace(FairOrder(), **given), models, reader)


# --- the table and the schema -------------------------------------------------------------------------

_USUAL: Final = Configuration()
_ITEMS: Final[dict[str, tuple[str, Fields]]] = {
    "models": ("models[].", MODEL_FIELDS),
    "tiers": ("tiers[].", TIER_FIELDS),
    "namespaces.rules": ("namespaces.rules.NAME.", NAMESPACE_FIELDS),
}


def default(key: OptionKey) -> Any:
    """The default of a key, as a document writes it; None for none."""
    target = f"policy.{key.policy}" if key.policy else f"settings.{key.settings}" if key.settings else ""
    return key.kind.document(attrgetter(target)(_USUAL)) if target else key.default


def rows() -> Iterator[tuple[str, str, Any, str]]:
    """For a table: each key's path, type, default and meaning, also those of the items of lists."""
    yield "apiVersion", f"`{API_VERSION}`", None, "The format; required."
    yield "kind", f"`{KIND}`", None, "Required."
    for each in KEYS:
        yield each.path, each.kind.what, default(each), each.meaning
        prefix, fields = _ITEMS.get(each.path, ("", {}))
        for name, meaning in fields.items():
            yield f"{prefix}{name}", "", None, f"{meaning[0].upper()}{meaning[1:]}."


def schema() -> Schema:
    """The JSON Schema of the document. It cannot say everything that `parse` checks."""
    properties: dict[str, Any] = {"apiVersion": {"const": API_VERSION}, "kind": {"const": KIND}}
    for each in KEYS:
        section, _, name = each.path.partition(".")
        described = each.kind.schema | {"description": each.meaning}
        if not name:
            properties[section] = described
            continue
        there = properties.setdefault(
            section, {"type": "object", "additionalProperties": False, "properties": {}}
        )
        there["properties"][name] = described
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": f"{KIND} of topogate ({API_VERSION})",
        "type": "object",
        "additionalProperties": False,
        "properties": properties,
    }
