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
from webhook.policy.values import EVERY_CLASS, Policy
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
    usual = Configuration(Policy(fair_order=FairOrder() if "fairOrder" in found else None))
    given = [each for each in KEYS if each.path in found]
    policy = _attributes(usual.policy, {each.policy: found[each.path] for each in given if each.policy})
    settings = _attributes(
        usual.settings, {each.settings: found[each.path] for each in given if each.settings}
    )
    return Configuration(
        _policy(replace(usual.policy, **policy), found, reader),
        _settings(replace(usual.settings, **settings), found, reader),
    )


def _attributes(usual: Policy | Settings, given: Mapping[str, Any]) -> dict[str, Any]:
    """The attributes that are given, of which some are attributes of attributes: "bad_nodes.share"."""
    values: dict[str, Any] = {}
    for path, value in given.items():
        name, _, below = path.partition(".")
        if below:
            values[name] = replace(values.get(name, getattr(usual, name)), **{below: value})
        else:
            is_set = isinstance(getattr(usual, name), frozenset)
            values[name] = frozenset(value) if is_set else value
    return values


def _settings(given: Settings, found: Mapping[str, Any], reader: DocumentReader) -> Settings:
    for each in sorted(given.gang_owners & given.loose_owners):
        reader.fault("gangs.looseOwners", f"{each} is in gangs.owners too")
    classes = frozenset(found.get("gpus.deviceClasses", ())) - {"*"}
    return replace(
        given,
        ignored_namespaces=given.ignored_namespaces | set(found.get("namespaces.excluded", ())),
        gpu_device_classes=classes or given.gpu_device_classes,
    )


def _policy(given: Policy, found: Mapping[str, Any], reader: DocumentReader) -> Policy:
    rules = resolved_rules(dict(given.namespaces), "namespaces.rules", given.tiers, given.gpu_models, reader)
    order = given.fair_order and resolved_order(given.fair_order, given.gpu_models, reader)
    classes = found.get("gpus.deviceClasses", ())
    levels = found["topology.levels"].level_names if "topology.levels" in found else given.topology_levels
    return replace(
        given,
        namespaces=rules,
        gate=given.gate_prefix + labels.GATE_NAME,
        topology_levels=levels,
        excluded_namespaces=given.excluded_namespaces | set(found.get("namespaces.excluded", ())),
        resource_claims=bool(classes),
        device_classes=EVERY_CLASS if "*" in classes or not classes else classes,
        adopts_native_gangs=found.get("gangs.native", NativeGangs.ADOPT) is NativeGangs.ADOPT,
        binds_by_pod_group=found.get("binding.mode", Bind.PINNED) is not Bind.PINNED,
        fair_order=order,
    )


# --- the table and the schema -------------------------------------------------------------------------

_USUAL: Final = Configuration(Policy(fair_order=FairOrder()))
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
        for name, item in fields.items():
            yield f"{prefix}{name}", "", None, f"{item.meaning[0].upper()}{item.meaning[1:]}."


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
