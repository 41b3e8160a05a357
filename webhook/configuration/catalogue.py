"""The configuration's lists with names of their own: tiers, GPU models, and what applies in a namespace."""

import re
from collections.abc import Callable
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
    text_schema,
)
from webhook.policy.values import (
    ANY_NAMESPACE,
    LONGEST_MODEL_NAME,
    GpuModel,
    NamespaceRules,
    Tier,
    normal_model_name,
)

Fields = dict[str, str]
"""The fields that each item of a list has, with the meaning of each."""

TIER_FIELDS: Final[Fields] = {
    "name": "what users write; required",
    "priorityClassName": "the PriorityClass that pods of the tier get; required",
}
MODEL_FIELDS: Final[Fields] = {
    "name": "required; case, blanks and punctuation do not matter to users",
    "aliases": "other names of the model",
    "labels": "what nodes with this model carry; they become the pod's nodeSelector; required",
    "resources": "the only GPU resources (names or patterns) that a pod on this model may ask for; "
    "without it any",
}
NAMESPACE_FIELDS: Final[Fields] = {
    "defaultTier": "of pods that name none",
    "maximumTier": "a GPU pod of a higher priority than this tier's class has is refused, whatever its class "
    "is called",
    "defaultModel": "the model or alias of pods that name none",
}

_TEXT: Final[Schema] = {"type": "string", "minLength": 1}
_TEXTS: Final[Schema] = {"type": "array", "items": _TEXT, "uniqueItems": True}


def _item(fields: Fields, *required: str, **special: Schema) -> Schema:
    """The schema of an item with these fields."""
    properties = {name: special.get(name, _TEXT) | {"description": fields[name]} for name in fields}
    schema: Schema = {"type": "object", "additionalProperties": False, "properties": properties}
    return schema | ({"required": list(required)} if required else {})


# --- tiers --------------------------------------------------------------------------------------------


def _read_tiers(value: Any, where: str, reader: DocumentReader) -> tuple[Tier, ...]:
    tiers: list[Tier] = []
    for path, item in reader.items(value, where):
        fields = reader.mapping(item, path, tuple(TIER_FIELDS))
        name = reader.text(fields.get("name", ABSENT), f"{path}.name", SHORT_NAME, "tier name")
        class_path = f"{path}.priorityClassName"
        class_name = reader.text(fields.get("priorityClassName", ABSENT), class_path, DNS_NAME, "object name")
        if class_name.startswith("system-"):
            reader.fault(class_path, f"{class_name!r} is for the cluster's own pods")
        if name and any(tier.name == name for tier in tiers):
            reader.fault(f"{path}.name", f"tier {name!r} occurs twice")
        if class_name and any(tier.priority_class_name == class_name for tier in tiers):
            reader.fault(class_path, f"{class_name!r} is already the class of another tier")
        tiers.append(Tier(name, class_name))
    return tuple(tiers)


TIERS: Final = ValueKind(
    "a list",
    _read_tiers,
    {
        "type": "array",
        "items": _item(
            TIER_FIELDS,
            *TIER_FIELDS,
            name=text_schema(SHORT_NAME),
            priorityClassName=text_schema(DNS_NAME) | {"not": {"pattern": "^system-"}},
        ),
    },
    lambda tiers: [{"name": each.name, "priorityClassName": each.priority_class_name} for each in tiers],
)


# --- models -------------------------------------------------------------------------------------------


def _read_models(value: Any, where: str, reader: DocumentReader) -> tuple[GpuModel, ...]:
    models: list[GpuModel] = []
    taken: dict[str, str] = {}
    for path, item in reader.items(value, where):
        fields = reader.mapping(item, path, tuple(MODEL_FIELDS))
        name = reader.text(fields.get("name", ABSENT), f"{path}.name")
        aliases = reader.texts(fields.get("aliases", ABSENT), f"{path}.aliases")
        named = [(f"{path}.name", name)] if name else []
        for name_path, text in [*named, *((f"{path}.aliases", alias) for alias in aliases)]:
            normal = normal_model_name(text)
            if len(text) > LONGEST_MODEL_NAME:
                reader.fault(name_path, f"{shown(text)} has more than {LONGEST_MODEL_NAME} characters")
            elif text.strip() and not normal:
                reader.fault(name_path, f"{shown(text)} has neither letters nor digits")
            elif normal in taken:
                reader.fault(name_path, f"{shown(text)} is the same name as {shown(taken[normal])}")
            taken[normal] = text
        resources = reader.texts(
            fields.get("resources", ABSENT), f"{path}.resources", RESOURCE_PATTERN, RESOURCE_WORDS
        )
        labels = _labels(fields.get("labels", ABSENT), f"{path}.labels", reader)
        models.append(GpuModel(name, labels, aliases, resources))
    return tuple(models)


def _labels(value: Any, path: str, reader: DocumentReader) -> dict[str, str]:
    labels = reader.mapping(value, path, None)
    if not labels:
        reader.fault(path, "must name at least one node label")
    for key, text in labels.items():
        if not QUALIFIED_NAME.fullmatch(key):
            reader.fault(path, f"{shown(key)} is not a label key")
        reader.text(text, f"{path}[{key}]", LABEL_VALUE, "label value (at most 63 of A-Z a-z 0-9 - _ .)")
    return {key: text for key, text in labels.items() if isinstance(text, str)}


def _model_document(model: GpuModel) -> dict[str, Any]:
    written: dict[str, Any] = {"name": model.name, "aliases": list(model.aliases), "labels": model.labels}
    written["resources"] = list(model.resources)
    return {key: value for key, value in written.items() if value}


_LABELS: Final[Schema] = {
    "type": "object",
    "minProperties": 1,
    "propertyNames": text_schema(QUALIFIED_NAME),
    "additionalProperties": text_schema(LABEL_VALUE),
}
_RESOURCES: Final[Schema] = _TEXTS | {"items": text_schema(RESOURCE_PATTERN)}
_NAMES: Final[Schema] = _TEXTS | {"items": _TEXT | {"maxLength": LONGEST_MODEL_NAME}}
MODELS: Final = ValueKind(
    "a list",
    _read_models,
    {
        "type": "array",
        "items": _item(
            MODEL_FIELDS,
            "name",
            "labels",
            name=_NAMES["items"],
            aliases=_NAMES,
            labels=_LABELS,
            resources=_RESOURCES,
        ),
    },
    lambda models: [_model_document(each) for each in models],
)


def model_finder(models: tuple[GpuModel, ...]) -> Callable[[str], str | None]:
    """The catalogue's name of a model, by name or alias in any spelling."""
    names = {normal_model_name(name): m.name for m in models for name in (m.name, *m.aliases)}
    return lambda name: names.get(normal_model_name(name))


# --- namespaces ---------------------------------------------------------------------------------------


def _read_rules(value: Any, where: str, reader: DocumentReader) -> dict[str, NamespaceRules]:
    rules: dict[str, NamespaceRules] = {}
    for namespace, item in reader.mapping(value, where, None).items():
        path = f"{where}.{namespace}"
        if namespace != ANY_NAMESPACE and not NAMESPACE_NAME.fullmatch(namespace):
            reader.fault(path, f'{shown(namespace)} is not a namespace name; "*" stands for all others')
        fields = reader.mapping(item, path, tuple(NAMESPACE_FIELDS))
        given = (fields.get(name, ABSENT) for name in NAMESPACE_FIELDS)
        texts = [
            "" if each is ABSENT else reader.text(each, f"{path}.{name}")
            for name, each in zip(NAMESPACE_FIELDS, given, strict=True)
        ]
        rules[namespace] = NamespaceRules(*texts)
    return rules


NAMESPACE_RULES: Final = ValueKind(
    "a mapping by namespace",
    _read_rules,
    {
        "type": "object",
        "propertyNames": text_schema(re.compile(rf"\*|{NAMESPACE_NAME.pattern}")),
        "additionalProperties": _item(NAMESPACE_FIELDS),
    },
    lambda rules: {
        name: {
            key: value
            for key, value in zip(
                NAMESPACE_FIELDS, (each.default_tier, each.maximum_tier, each.default_gpu_model), strict=True
            )
            if value
        }
        for name, each in rules.items()
    },
)


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
