"""The configuration's lists with names of their own: tiers, GPU models, and what applies in a namespace."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from webhook.configuration.document import ABSENT, DocumentReader, shown
from webhook.configuration.value_kinds import (
    DNS_NAME,
    LABEL_VALUE,
    NAMESPACE_NAME,
    QUALIFIED_NAME,
    RESOURCE_PATTERN,
    RESOURCE_WORDS,
    SHORT_NAME,
    Schema,
    ValueKind,
    mapping,
    text,
    text_schema,
    texts,
)
from webhook.policy.values import (
    LONGEST_MODEL_NAME,
    GpuModel,
    NamespaceRules,
    Tier,
    normal_model_name,
)


@dataclass(frozen=True)
class Field:
    """A field that each item of a list may have. meaning: for docs; required: whether it must."""

    kind: ValueKind
    meaning: str
    required: bool = False


Fields = Mapping[str, Field]

_CLASS: Final = re.compile(rf"(?!system-){DNS_NAME.pattern}")
_CLASS_SCHEMA: Final[Schema] = {"allOf": [text_schema(DNS_NAME), {"not": {"pattern": "^system-"}}]}
TIER_FIELDS: Final[Fields] = {
    "name": Field(text(SHORT_NAME, "tier name"), "what users write; required", required=True),
    "priorityClassName": Field(
        text(
            _CLASS, "name of a PriorityClass; those of system- are for the cluster's own pods", _CLASS_SCHEMA
        ),
        "the PriorityClass that pods of the tier get; required",
        required=True,
    ),
}
_MODEL_NAME: Final = re.compile(rf"(?=.*[^\W_])[\s\S]{{1,{LONGEST_MODEL_NAME}}}")
_MODEL_WORDS: Final = f"name of a GPU model (at most {LONGEST_MODEL_NAME} characters, some letters or digits)"
_MODEL_SCHEMA: Final[Schema] = {"type": "string", "pattern": r"[\p{L}\p{N}]", "maxLength": LONGEST_MODEL_NAME}
_LABELS: Final = mapping(
    text(LABEL_VALUE, "label value (at most 63 of A-Z a-z 0-9 - _ .)"),
    "label keys",
    text(QUALIFIED_NAME, "label key"),
    some=True,
)
MODEL_FIELDS: Final[Fields] = {
    "name": Field(
        text(_MODEL_NAME, _MODEL_WORDS, _MODEL_SCHEMA),
        "required; case, blanks and punctuation do not matter to users",
        required=True,
    ),
    "aliases": Field(texts(_MODEL_NAME, _MODEL_WORDS, _MODEL_SCHEMA), "other names of the model"),
    "labels": Field(
        _LABELS,
        "what nodes with this model carry; they become the pod's nodeSelector; required",
        required=True,
    ),
    "resources": Field(
        texts(RESOURCE_PATTERN, RESOURCE_WORDS),
        "the only GPU resources (names or patterns) that a pod on this model may ask for; without it any",
    ),
}
_ANY_TEXT: Final = text(re.compile(r"[\s\S]+"), "name")
NAMESPACE_FIELDS: Final[Fields] = {
    "defaultTier": Field(_ANY_TEXT, "of pods that name none"),
    "maximumTier": Field(
        _ANY_TEXT,
        "a GPU pod of a higher priority than this tier's class has is refused, whatever its class is called",
    ),
    "defaultModel": Field(_ANY_TEXT, "the model or alias of pods that name none"),
}


def _item(fields: Fields) -> ValueKind:
    """The kind of an item with these fields, read as a mapping of those that it has."""

    def read(value: Any, path: str, reader: DocumentReader) -> dict[str, Any]:
        given = reader.mapping(value, path, tuple(fields))
        for name, field in fields.items():
            if field.required and name not in given:
                reader.fault(f"{path}.{name}", "is missing")
        return {
            name: field.kind.read(given[name], f"{path}.{name}", reader)
            for name, field in fields.items()
            if name in given
        }

    schema: Schema = {
        "type": "object",
        "additionalProperties": False,
        "properties": {
            name: each.kind.schema | {"description": each.meaning} for name, each in fields.items()
        },
        "required": [name for name, each in fields.items() if each.required],
    }
    return ValueKind("an item", read, schema)


def _list_of(fields: Fields, build: Callable[[list[dict[str, Any]], str, DocumentReader], Any]) -> ValueKind:
    """The kind of a list of such items. build: of the items that were read, their path, and the reader."""
    item = _item(fields)

    def read(value: Any, path: str, reader: DocumentReader) -> Any:
        items = [item.read(each, where, reader) for where, each in reader.items(value, path)]
        return build(items, path, reader)

    return ValueKind("a list", read, {"type": "array", "items": item.schema}, list)


# --- tiers and models ---------------------------------------------------------------------------------


def _tiers(items: list[dict[str, Any]], path: str, reader: DocumentReader) -> tuple[Tier, ...]:
    tiers = tuple(Tier(each.get("name", ""), each.get("priorityClassName", "")) for each in items)
    for index, tier in enumerate(tiers):
        if tier.name and tier.name in (each.name for each in tiers[:index]):
            reader.fault(f"{path}[{index}].name", f"tier {tier.name!r} occurs twice")
        own = tier.priority_class_name
        if own and own in (each.priority_class_name for each in tiers[:index]):
            reader.fault(
                f"{path}[{index}].priorityClassName", f"{own!r} is already the class of another tier"
            )
    return tiers


TIERS: Final = _list_of(TIER_FIELDS, _tiers)


def _models(items: list[dict[str, Any]], path: str, reader: DocumentReader) -> tuple[GpuModel, ...]:
    models: list[GpuModel] = []
    taken: dict[str, str] = {}
    for index, item in enumerate(items):
        model = GpuModel(
            item.get("name", ""), item.get("labels", {}), item.get("aliases", ()), item.get("resources", ())
        )
        for key, name in (("name", model.name), *(("aliases", each) for each in model.aliases)):
            normal = normal_model_name(name)
            if normal and normal in taken:
                reader.fault(
                    f"{path}[{index}].{key}", f"{shown(name)} is the same name as {shown(taken[normal])}"
                )
            taken[normal] = name
        models.append(model)
    return tuple(models)


MODELS: Final = _list_of(MODEL_FIELDS, _models)


def model_finder(models: tuple[GpuModel, ...]) -> Callable[[str], str | None]:
    """The catalogue's name of a model, by name or alias in any spelling."""
    names = {normal_model_name(name): m.name for m in models for name in (m.name, *m.aliases)}
    return lambda name: names.get(normal_model_name(name))


# --- namespaces ---------------------------------------------------------------------------------------

_RULES: Final = mapping(
    _item(NAMESPACE_FIELDS),
    "namespaces",
    text(re.compile(rf"\*|{NAMESPACE_NAME.pattern}"), 'namespace name; "*" stands for all others'),
)


def _read_rules(value: Any, path: str, reader: DocumentReader) -> dict[str, NamespaceRules]:
    return {
        namespace: NamespaceRules(*(item.get(name) or "" for name in NAMESPACE_FIELDS))
        for namespace, item in _RULES.read(value, path, reader).items()
    }


NAMESPACE_RULES: Final = ValueKind("a mapping by namespace", _read_rules, _RULES.schema, dict)


def resolved_rules(
    rules: dict[str, NamespaceRules],
    where: str,
    tiers: tuple[Tier, ...],
    models: tuple[GpuModel, ...],
    reader: DocumentReader,
) -> dict[str, NamespaceRules]:
    """The rules with the names of tiers and models that are defined; others are faults."""
    tier_names = [tier.name for tier in tiers]
    model_names = [model.name for model in models]
    find = model_finder(models)
    found = {}
    for namespace, each in rules.items():
        path = f"{where}.{namespace}"
        default = _defined(each.default_tier, f"{path}.defaultTier", tier_names, "tier", reader)
        maximum = _defined(each.maximum_tier, f"{path}.maximumTier", tier_names, "tier", reader)
        if default and maximum and tier_names.index(default) > tier_names.index(maximum):
            reader.fault(f"{path}.defaultTier", f"{default!r} is above maximumTier {maximum!r}")
        model = find(each.default_gpu_model) or each.default_gpu_model
        model = _defined(model, f"{path}.defaultModel", model_names, "GPU model", reader)
        found[namespace] = NamespaceRules(default, maximum, model)
    return found


def _defined(name: str, path: str, known: list[str], what: str, reader: DocumentReader) -> str:
    return reader.one_of(name or ABSENT, path, known, what)
