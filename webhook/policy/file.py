"""The policy file: YAML in, a Policy out, or every fault at once, each named by its path.

Unknown and repeated keys are faults, because a misspelt key would silently mean its default.
"""

import re
from collections.abc import Callable
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final

import yaml

from labeler.contract import keys
from webhook.policy.values import (
    ANY_NAMESPACE,
    DEFAULT_EXCLUDED_NAMESPACES,
    DEFAULT_GPU_RESOURCES,
    DEFAULT_SCHEDULER_NAMES,
    LONGEST_MODEL_NAME,
    GpuModel,
    NamespaceRules,
    Policy,
    Tier,
    normal_model_name,
)
from webhook.text import one_line

API_VERSION: Final = "topogate.io/v1alpha1"
KIND: Final = "AdmissionPolicy"

_NAME: Final = r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_DNS: Final = r"(?=[^/]{1,253}(?:/|\Z))[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
_LABEL_VALUE: Final = re.compile(rf"({_NAME})?")
_QUALIFIED_NAME: Final = re.compile(rf"({_DNS}/)?{_NAME}")
_GATE_PREFIX: Final = re.compile(rf"({_DNS}/)?[A-Za-z0-9][-A-Za-z0-9_.]{{0,50}}")
_RESOURCE_PATTERN: Final = re.compile(r"[-A-Za-z0-9_.*?\[\]!]+/[-A-Za-z0-9_.*?\[\]!]+")
_DNS_NAME: Final = re.compile(_DNS)
_NAMESPACE_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_TIER_NAME: Final = re.compile(_NAME)
_LONGEST_PATH: Final = 200
_LONGEST_VALUE: Final = 80
_PATTERN_WORDS: Final = "resource name or pattern"


class PolicyError(Exception):
    """A policy file that cannot be used; `faults` has one line for each thing that is wrong."""

    def __init__(self, source: str, faults: list[str]) -> None:
        super().__init__("\n".join(f"{source}: {fault}" for fault in faults))
        self.faults = faults


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
    reader = _Reader()
    policy = _policy(document, reader)
    if reader.faults:
        raise PolicyError(source, reader.faults)
    return policy


def read_yaml(text: str | bytes, source: str) -> Any:
    """The one document of a YAML text. Raises PolicyError, with the line where that is known."""
    try:
        return yaml.load(text, _StrictLoader)
    except yaml.YAMLError as error:
        raise PolicyError(source, [_yaml_fault(error)]) from None
    except RecursionError:
        raise PolicyError(source, ["document: is nested too deeply"]) from None


class _StrictLoader(yaml.SafeLoader):
    """YAML's safe loader, but every trouble is an error with a line, and so is a key written twice."""

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        """Make the value of a node. Raises yaml.YAMLError, RecursionError."""
        try:
            return super().construct_object(node, deep)
        except (yaml.YAMLError, RecursionError):
            raise
        except Exception:  # noqa: BLE001 - PyYAML raises whatever its conversions do, and loses the place
            kind = node.tag.rpartition(":")[2]
            raise _fault_at(node, f"{_shown(node.value)} cannot be read as a YAML {kind}") from None


def _fault_at(node: yaml.Node, message: str) -> yaml.constructor.ConstructorError:
    return yaml.constructor.ConstructorError(None, None, message, node.start_mark)


def _unique_mapping(loader: _StrictLoader, node: yaml.MappingNode) -> dict[Any, Any]:
    seen: set[str] = set()
    for key, _ in node.value:
        if not isinstance(key, yaml.ScalarNode):
            raise _fault_at(key, "a key must be text; is this a template that was not rendered?")
        if key.value in seen:
            raise _fault_at(key, f"key {_shown(key.value)} is written twice")
        seen.add(key.value)
    loader.flatten_mapping(node)
    return loader.construct_mapping(node, deep=True)


_StrictLoader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _unique_mapping)


def _yaml_fault(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
    return where + (getattr(error, "problem", None) or str(error)).replace("\n", " ")


_ABSENT: Final = object()
"""For a key that is not there. One without a value is a fault: it would silently mean the default."""


class _Reader:
    """Takes values out of a document by path and collects what is wrong with them."""

    def __init__(self) -> None:
        self.faults: list[str] = []

    def fault(self, path: str, message: str) -> None:
        where = one_line(path)[:_LONGEST_PATH] or "document"
        self.faults.append(f"{where}: {message}")

    def mapping(self, value: Any, path: str, known: tuple[str, ...] | None) -> dict[str, Any]:
        """A mapping with text keys; `known` are the keys that it may have, None for any."""
        if value is _ABSENT:
            return {}
        if not isinstance(value, dict):
            self.fault(path, f"must be a mapping, not {_kind(value)}{_instead(value, '{}')}")
            return {}
        for key in value:
            if not isinstance(key, str):
                self.fault(path, f"key {_shown(key)} must be text; quote it")
            elif known is not None and key not in known:
                near = get_close_matches(key, known, n=1)
                hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(known)}"
                self.fault(f"{path}.{key}" if path else key, f"unknown key; {hint}")
        return {key: item for key, item in value.items() if isinstance(key, str)}

    def items(self, value: Any, path: str) -> list[tuple[str, Any]]:
        """A list, as pairs of each item's path and the item."""
        if value is _ABSENT:
            return []
        if not isinstance(value, list):
            self.fault(path, f"must be a list, not {_kind(value)}{_instead(value, '[]')}")
            return []
        return [(f"{path}[{index}]", item) for index, item in enumerate(value)]

    def text(self, value: Any, path: str, pattern: re.Pattern[str] | None = None, what: str = "") -> str:
        """A text, "" if it is wrong; `pattern` must match the whole, `what` says what it is then."""
        if value is _ABSENT:
            self.fault(path, "is missing")
            return ""
        if not isinstance(value, str):
            self.fault(
                path, f"must be text, not {_kind(value)}" + ("; quote it" if value is not None else "")
            )
            return ""
        if pattern is None and not value.strip():
            self.fault(path, "is empty")
        if pattern is not None and not pattern.fullmatch(value):
            self.fault(path, f"{_shown(value)} is no {what}")
            return ""
        return value

    def texts(
        self, value: Any, path: str, pattern: re.Pattern[str] | None = None, what: str = ""
    ) -> tuple[str, ...]:
        """A list of texts without repetition."""
        found: list[str] = []
        for item_path, item in self.items(value, path):
            text = self.text(item, item_path, pattern, what)
            if text in found:
                self.fault(item_path, f"{_shown(text)} is there twice")
            elif text:
                found.append(text)
        return tuple(found)

    def one_of(self, value: Any, path: str, known: list[str], what: str) -> str:
        """A name that is defined elsewhere in the file, "" if absent or wrong."""
        if value is _ABSENT:
            return ""
        name = self.text(value, path)
        if name and name not in known:
            self.fault(path, f"no {what} {_shown(name)}; known are {', '.join(known) or 'none'}")
            return ""
        return name


def _policy(document: Any, reader: _Reader) -> Policy:
    if document is None or document == {}:
        reader.fault("", f"is empty; start with apiVersion: {API_VERSION} and kind: {KIND}")
        document = {}
    fields = ("apiVersion", "kind", "gate", "gatePrefix", "gpuResources", "gpuModels", "tiers", "namespaces")
    root = reader.mapping(document, "", (*fields, "excludedNamespaces", "topologyLevels", "schedulerNames"))
    if root:
        for key, wanted in (("apiVersion", API_VERSION), ("kind", KIND)):
            if root.get(key) != wanted:
                reader.fault(key, f"must be {wanted}, not {_shown(root.get(key))}")
    tiers = _tiers(root.get("tiers", _ABSENT), reader)
    models = _models(root.get("gpuModels", _ABSENT), reader)

    def or_default(
        key: str, default: tuple[str, ...], pattern: re.Pattern[str], what: str
    ) -> tuple[str, ...]:
        return reader.texts(root[key], key, pattern, what) if key in root else default

    resources = or_default("gpuResources", DEFAULT_GPU_RESOURCES, _RESOURCE_PATTERN, _PATTERN_WORDS)
    if not resources:
        reader.fault("gpuResources", "must name at least one resource")
    levels = or_default("topologyLevels", keys.LEVEL_NAMES, _TIER_NAME, "level name")
    if not levels:
        reader.fault("topologyLevels", "must name at least one level")
    schedulers = or_default("schedulerNames", DEFAULT_SCHEDULER_NAMES, _DNS_NAME, "scheduler's name")
    if not schedulers:
        reader.fault("schedulerNames", "must name at least one scheduler")
    excluded = reader.texts(
        root.get("excludedNamespaces", _ABSENT), "excludedNamespaces", _NAMESPACE_NAME, "namespace name"
    )
    gate, prefix = _gate(root, reader)
    return Policy(
        gate=gate,
        gate_prefix=prefix,
        gpu_resources=resources,
        gpu_models=models,
        tiers=tiers,
        namespaces=_namespaces(root.get("namespaces", _ABSENT), tiers, models, reader),
        excluded_namespaces=frozenset((*DEFAULT_EXCLUDED_NAMESPACES, *excluded)),
        topology_levels=levels,
        scheduler_names=schedulers,
    )


def _gate(root: dict[str, Any], reader: _Reader) -> tuple[str, str]:
    """gate: the one that pods are given; gatePrefix: of the gates that the sweeper serves (its --gate)."""
    given = root.get("gatePrefix", keys.GATE_PREFIX)
    prefix = reader.text(given, "gatePrefix", _GATE_PREFIX, "beginning of a gate's name")
    if "gate" not in root:
        return prefix + keys.GATE.removeprefix(keys.GATE_PREFIX), prefix
    gate = reader.text(root["gate"], "gate", _QUALIFIED_NAME, "qualified name")
    if gate and prefix and not gate.startswith(prefix):
        reader.fault(
            "gate", f"{_shown(gate)} must start with {prefix} (gatePrefix): no sweeper removes another"
        )
    return gate, prefix


def _tiers(value: Any, reader: _Reader) -> tuple[Tier, ...]:
    tiers: list[Tier] = []
    for path, item in reader.items(value, "tiers"):
        fields = reader.mapping(item, path, ("name", "priorityClassName"))
        name = reader.text(fields.get("name", _ABSENT), f"{path}.name", _TIER_NAME, "tier name")
        class_path = f"{path}.priorityClassName"
        class_name = reader.text(
            fields.get("priorityClassName", _ABSENT), class_path, _DNS_NAME, "object name"
        )
        if class_name.startswith("system-"):
            reader.fault(class_path, f"{class_name!r} is for the cluster's own pods")
        if name and any(tier.name == name for tier in tiers):
            reader.fault(f"{path}.name", f"tier {name!r} is there twice")
        if class_name and any(tier.priority_class_name == class_name for tier in tiers):
            reader.fault(class_path, f"{class_name!r} already stands for another tier")
        tiers.append(Tier(name, class_name))
    return tuple(tiers)


def _models(value: Any, reader: _Reader) -> tuple[GpuModel, ...]:
    models: list[GpuModel] = []
    taken: dict[str, str] = {}
    for path, item in reader.items(value, "gpuModels"):
        fields = reader.mapping(item, path, ("name", "aliases", "labels", "resources"))
        name = reader.text(fields.get("name", _ABSENT), f"{path}.name")
        aliases = reader.texts(fields.get("aliases", _ABSENT), f"{path}.aliases")
        named = [(f"{path}.name", name)] if name else []
        for name_path, text in [*named, *((f"{path}.aliases", alias) for alias in aliases)]:
            normal = normal_model_name(text)
            if len(text) > LONGEST_MODEL_NAME:
                reader.fault(name_path, f"{_shown(text)} has more than {LONGEST_MODEL_NAME} characters")
            elif text.strip() and not normal:
                reader.fault(name_path, f"{_shown(text)} has neither letters nor digits")
            elif normal in taken:
                reader.fault(name_path, f"{_shown(text)} is the same name as {_shown(taken[normal])}")
            taken[normal] = text
        models.append(
            GpuModel(
                name=name,
                aliases=aliases,
                labels=_labels(fields.get("labels", _ABSENT), f"{path}.labels", reader),
                resources=reader.texts(
                    fields.get("resources", _ABSENT), f"{path}.resources", _RESOURCE_PATTERN, _PATTERN_WORDS
                ),
            )
        )
    return tuple(models)


def _labels(value: Any, path: str, reader: _Reader) -> dict[str, str]:
    labels = reader.mapping(value, path, None)
    if not labels:
        reader.fault(path, "must name at least one node label")
    for key, text in labels.items():
        if not _QUALIFIED_NAME.fullmatch(key):
            reader.fault(path, f"{_shown(key)} is no label key")
        reader.text(text, f"{path}[{key}]", _LABEL_VALUE, "label value (at most 63 of A-Z a-z 0-9 - _ .)")
    return {key: text for key, text in labels.items() if isinstance(text, str)}


def _namespaces(
    value: Any, tiers: tuple[Tier, ...], models: tuple[GpuModel, ...], reader: _Reader
) -> dict[str, NamespaceRules]:
    tier_names = [tier.name for tier in tiers]
    model_names = {normal_model_name(name): m.name for m in models for name in (m.name, *m.aliases)}
    find: Callable[[str], str | None] = lambda name: model_names.get(normal_model_name(name))  # noqa: E731
    rules: dict[str, NamespaceRules] = {}
    for namespace, item in reader.mapping(value, "namespaces", None).items():
        path = f"namespaces.{namespace}"
        if namespace != ANY_NAMESPACE and not _NAMESPACE_NAME.fullmatch(namespace):
            reader.fault(path, f'{_shown(namespace)} is no namespace name; "*" stands for all others')
        fields = reader.mapping(item, path, ("defaultTier", "maximumTier", "defaultGpuModel"))
        default = reader.one_of(fields.get("defaultTier", _ABSENT), f"{path}.defaultTier", tier_names, "tier")
        maximum = reader.one_of(fields.get("maximumTier", _ABSENT), f"{path}.maximumTier", tier_names, "tier")
        if default and maximum and tier_names.index(default) > tier_names.index(maximum):
            reader.fault(f"{path}.defaultTier", f"{default!r} is above maximumTier {maximum!r}")
        model = fields.get("defaultGpuModel", _ABSENT)
        if isinstance(model, str) and model:
            model = find(model) or model
        known = [item.name for item in models]
        model = reader.one_of(model, f"{path}.defaultGpuModel", known, "GPU model")
        rules[namespace] = NamespaceRules(default, maximum, model)
    return rules


def _instead(value: Any, empty: str) -> str:
    return f"; leave the key out, or write {empty}" if value is None else ""


def _shown(value: Any) -> str:
    """A value for a fault's sentence: what it is, if it is too long or no plain one."""
    if isinstance(value, str):
        return repr(value if len(value) <= _LONGEST_VALUE else value[:_LONGEST_VALUE] + "...")
    is_short = isinstance(value, float | type(None)) or (isinstance(value, int) and abs(value) < 10**20)
    return repr(value) if is_short else _kind(value)


def _kind(value: Any) -> str:
    """What a YAML value is, in the words of its writer."""
    names = {dict: "a mapping", list: "a list", str: "text", bool: "true or false", type(None): "nothing"}
    return names.get(type(value), "a number" if isinstance(value, int | float) else type(value).__name__)
