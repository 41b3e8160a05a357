"""The policy file: YAML in, a Policy out, or every fault at once, each named by its path.

Unknown and repeated keys are faults, because a misspelt key would silently mean its default.
"""

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

from labeler.contract import keys
from webhook.policy.document import ABSENT, DocumentReader, PolicyError, read_yaml, shown
from webhook.policy.fair import read_fair_order
from webhook.policy.fields import (
    CLASS_PATTERN,
    CLASS_WORDS,
    DNS_NAME,
    GATE_PREFIX,
    LABEL_VALUE,
    NAMESPACE_NAME,
    QUALIFIED_NAME,
    RESOURCE_PATTERN,
    RESOURCE_WORDS,
    SHORT_NAME,
)
from webhook.policy.reference import (
    DEFAULT_EXCLUDED_NAMESPACES,
    DEFAULT_GPU_RESOURCES,
    DEFAULT_SCHEDULER_NAMES,
    EACH,
    EACH_NAMESPACE,
    known_fields,
)
from webhook.policy.values import (
    ANY_NAMESPACE,
    EVERY_CLASS,
    LONGEST_MODEL_NAME,
    GpuModel,
    NamespaceRules,
    Policy,
    Tier,
    normal_model_name,
)

API_VERSION: Final = "topogate.io/v1alpha1"
KIND: Final = "AdmissionPolicy"


def load_policy(path: Path) -> Policy:
    """Read a policy file. Raises PolicyError, also if the file cannot be read."""
    try:
        text = path.read_bytes()
    except OSError as error:
        raise PolicyError(str(path), [f"cannot be read: {error.strerror}"]) from None
    return parse_policy(text, str(path))


def parse_policy(text: str | bytes, source: str = "policy") -> Policy:
    """Read a policy's text. Raises PolicyError."""
    document = read_yaml(text, source)
    reader = DocumentReader()
    policy = _policy(document, reader)
    if reader.faults:
        raise PolicyError(source, reader.faults)
    return policy


_NATIVE_GANGS: Final = ("adopt", "leave")
_BINDS: Final = ("pinned", "podgroup", "nominated")


def _policy(document: Any, reader: DocumentReader) -> Policy:
    root = _fields(document, reader)
    tiers = _tiers(root.get("tiers", ABSENT), reader)
    models = _models(root.get("gpuModels", ABSENT), reader)

    names = partial(_names, root, reader)
    resources = names("gpuResources", DEFAULT_GPU_RESOURCES, RESOURCE_PATTERN, RESOURCE_WORDS, "resource")
    levels = names("topologyLevels", keys.LEVEL_NAMES, SHORT_NAME, "level name", "level")
    schedulers = names("schedulerNames", DEFAULT_SCHEDULER_NAMES, DNS_NAME, "scheduler's name", "scheduler")
    excluded = reader.texts(
        root.get("excludedNamespaces", ABSENT), "excludedNamespaces", NAMESPACE_NAME, "namespace name"
    )
    bind = _choice(root, "bind", _BINDS, reader)
    claims, classes = _claims(root.get("resourceClaims", False), reader)
    gate, prefix = _gate(root, reader)
    return Policy(
        gate=gate,
        gate_prefix=prefix,
        gpu_resources=resources,
        gpu_models=models,
        tiers=tiers,
        namespaces=_namespaces(root.get("namespaces", ABSENT), tiers, models, reader),
        excluded_namespaces=frozenset((*DEFAULT_EXCLUDED_NAMESPACES, *excluded)),
        topology_levels=levels,
        scheduler_names=schedulers,
        resource_claims=claims,
        device_classes=classes,
        keep_managed_fields=_truth(root, "keepManagedFields", reader),
        adopts_native_gangs=_choice(root, "nativeGangs", _NATIVE_GANGS, reader) == "adopt",
        binds_by_pod_group=bind != "pinned",
        nominates_nodes=bind == "nominated",
        fair_order=read_fair_order(
            root.get("fairOrder", ABSENT),
            reader,
            QUALIFIED_NAME,
            _finder(models),
            [item.name for item in models],
        ),
    )


def _fields(document: Any, reader: DocumentReader) -> dict[str, Any]:
    """The document's fields by name, once it is known to be a policy."""
    if document is None or document == {}:
        reader.fault("", f"is empty; start with apiVersion: {API_VERSION} and kind: {KIND}")
        return {}
    root = reader.mapping(document, "", known_fields())
    for key, wanted in (("apiVersion", API_VERSION), ("kind", KIND)) if root else ():
        if root.get(key) != wanted:
            reader.fault(key, f"must be {wanted}, not {shown(root.get(key))}")
    return root


def _names(
    root: dict[str, Any],
    reader: DocumentReader,
    field: str,
    default: tuple[str, ...],
    pattern: re.Pattern[str],
    what: str,
    noun: str,
) -> tuple[str, ...]:
    """The names in a field that may be missing, but not empty."""
    found = reader.texts(root[field], field, pattern, what) if field in root else default
    if not found:
        reader.fault(field, f"must name at least one {noun}")
    return found


def _truth(root: dict[str, Any], field: str, reader: DocumentReader) -> bool:
    """A field that is true or false, and false if it is missing."""
    found = root.get(field, False)
    if not isinstance(found, bool):
        reader.fault(field, f"must be true or false, not {shown(found)}")
    return found is True


def _choice(root: dict[str, Any], name: str, choices: tuple[str, ...], reader: DocumentReader) -> str:
    """A field with one of a few words, of which the first is the default."""
    return reader.one_of(root.get(name, choices[0]), name, list(choices), "choice")


def _finder(models: tuple[GpuModel, ...]) -> Callable[[str], str | None]:
    """The catalogue's name of a model, by name or alias in any spelling."""
    names = {normal_model_name(name): m.name for m in models for name in (m.name, *m.aliases)}
    return lambda name: names.get(normal_model_name(name))


def _claims(value: Any, reader: DocumentReader) -> tuple[bool, tuple[str, ...]]:
    """resourceClaims: true, false, or the DeviceClasses that are GPUs."""
    if isinstance(value, bool):
        return value, EVERY_CLASS
    if not isinstance(value, list) or not value:
        reader.fault(
            "resourceClaims",
            f"must be true, false, or a list of DeviceClasses (names or patterns), not {shown(value)}",
        )
        return False, EVERY_CLASS
    return True, reader.texts(value, "resourceClaims", CLASS_PATTERN, CLASS_WORDS)


def _gate(root: dict[str, Any], reader: DocumentReader) -> tuple[str, str]:
    """gate: the one that pods get; gatePrefix: of the gates that the sweeper serves (its --gate)."""
    given = root.get("gatePrefix", keys.GATE_PREFIX)
    prefix = reader.text(given, "gatePrefix", GATE_PREFIX, "prefix of a gate's name")
    if "gate" not in root:
        return prefix + keys.GATE.removeprefix(keys.GATE_PREFIX), prefix
    gate = reader.text(root["gate"], "gate", QUALIFIED_NAME, "qualified name")
    if gate and prefix and not gate.startswith(prefix):
        reader.fault(
            "gate", f"{shown(gate)} must start with {prefix} (gatePrefix): no sweeper removes another"
        )
    return gate, prefix


def _tiers(value: Any, reader: DocumentReader) -> tuple[Tier, ...]:
    tiers: list[Tier] = []
    for path, item in reader.items(value, "tiers"):
        fields = reader.mapping(item, path, known_fields("tiers" + EACH))
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


def _models(value: Any, reader: DocumentReader) -> tuple[GpuModel, ...]:
    models: list[GpuModel] = []
    taken: dict[str, str] = {}
    for path, item in reader.items(value, "gpuModels"):
        fields = reader.mapping(item, path, known_fields("gpuModels" + EACH))
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
        models.append(
            GpuModel(
                name=name,
                aliases=aliases,
                labels=_labels(fields.get("labels", ABSENT), f"{path}.labels", reader),
                resources=reader.texts(
                    fields.get("resources", ABSENT), f"{path}.resources", RESOURCE_PATTERN, RESOURCE_WORDS
                ),
            )
        )
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


def _namespaces(
    value: Any, tiers: tuple[Tier, ...], models: tuple[GpuModel, ...], reader: DocumentReader
) -> dict[str, NamespaceRules]:
    tier_names = [tier.name for tier in tiers]
    find = _finder(models)
    rules: dict[str, NamespaceRules] = {}
    for namespace, item in reader.mapping(value, "namespaces", None).items():
        path = f"namespaces.{namespace}"
        if namespace != ANY_NAMESPACE and not NAMESPACE_NAME.fullmatch(namespace):
            reader.fault(path, f'{shown(namespace)} is not a namespace name; "*" stands for all others')
        fields = reader.mapping(item, path, known_fields(EACH_NAMESPACE))
        default = reader.one_of(fields.get("defaultTier", ABSENT), f"{path}.defaultTier", tier_names, "tier")
        maximum = reader.one_of(fields.get("maximumTier", ABSENT), f"{path}.maximumTier", tier_names, "tier")
        if default and maximum and tier_names.index(default) > tier_names.index(maximum):
            reader.fault(f"{path}.defaultTier", f"{default!r} is above maximumTier {maximum!r}")
        model = fields.get("defaultGpuModel", ABSENT)
        if isinstance(model, str) and model:
            model = find(model) or model
        known = [item.name for item in models]
        model = reader.one_of(model, f"{path}.defaultGpuModel", known, "GPU model")
        rules[namespace] = NamespaceRules(default, maximum, model)
    return rules
