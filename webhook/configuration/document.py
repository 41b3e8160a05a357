"""Strict reading of an operator's YAML. A repeated key is a fault: one of the two would be without effect."""

from collections.abc import Callable
from typing import Any, Final

import yaml

_LONGEST_VALUE: Final = 80


class ConfigurationError(Exception):
    """A configuration that cannot be used; `faults` has one line for each thing that is wrong."""

    def __init__(self, source: str, faults: list[str]) -> None:
        super().__init__("\n".join(f"{source}: {fault}" for fault in faults))
        self.faults = faults


def read_yaml(text: str | bytes, source: str) -> Any:
    """The one document of a YAML text. Raises ConfigurationError, with the line where that is known."""
    return _read(text, source, yaml.load)


def read_documents(text: str | bytes, source: str) -> list[Any]:
    """The documents of a YAML text, as of several manifests. Raises ConfigurationError."""
    found: list[Any] = _read(text, source, lambda given, loader: list(yaml.load_all(given, loader)))
    return found


def _read(text: str | bytes, source: str, load: Callable[[str | bytes, type[yaml.SafeLoader]], Any]) -> Any:
    try:
        return load(text, _StrictLoader)
    except yaml.YAMLError as error:
        raise ConfigurationError(source, [_yaml_fault(error)]) from None
    except RecursionError:
        raise ConfigurationError(source, ["document: is nested too deeply"]) from None


_MOST_KEYS: Final = 10_000


class _StrictLoader(yaml.SafeLoader):
    """YAML's safe loader, but every problem is an error with a line, also a repeated key."""

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        """Construct the value of a node. Raises yaml.YAMLError, RecursionError."""
        try:
            return super().construct_object(node, deep)
        except (yaml.YAMLError, RecursionError):
            raise
        except Exception:  # noqa: BLE001 - PyYAML raises what its conversions raise, and loses the place
            kind = node.tag.rpartition(":")[2]
            raise _fault_at(node, f"{shown(node.value)} cannot be read as a YAML {kind}") from None

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        """Take in what merge keys (<<) name. Raises yaml.YAMLError if that becomes too much."""
        super().flatten_mapping(node)
        if len(node.value) > _MOST_KEYS:  # merged maps of merged maps grow exponentially
            raise _fault_at(node, f"has more than {_MOST_KEYS:,} keys")


def _fault_at(node: yaml.Node, message: str) -> yaml.constructor.ConstructorError:
    return yaml.constructor.ConstructorError(None, None, message, node.start_mark)


def _unique_mapping(loader: _StrictLoader, node: yaml.MappingNode) -> dict[Any, Any]:
    seen: set[str] = set()
    for key, _ in node.value:
        if not isinstance(key, yaml.ScalarNode):
            raise _fault_at(key, "a key must be text; is this a template that was not rendered?")
        if key.value in seen:
            raise _fault_at(key, f"key {shown(key.value)} is written twice")
        seen.add(key.value)
    loader.flatten_mapping(node)
    return loader.construct_mapping(node, deep=True)


_StrictLoader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _unique_mapping)


def _yaml_fault(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
    problem = getattr(error, "problem", None) or str(error)
    if problem.startswith("but "):  # the sentence begins in the context
        problem = f"{getattr(error, 'context', '')}, {problem}"
    return where + problem.replace("\n", " ")


def shown(value: Any) -> str:
    """A value in a fault's sentence; a long or structured one is only described."""
    if isinstance(value, str):
        return repr(value if len(value) <= _LONGEST_VALUE else value[:_LONGEST_VALUE] + "...")
    is_short = isinstance(value, float) or (isinstance(value, int) and abs(value) < 10**20)
    return str(value).lower() if is_short else kind_of(value)


def kind_of(value: Any) -> str:
    """The type of a YAML value, in words of YAML."""
    names = {dict: "a mapping", list: "a list", str: "text", bool: "true or false", type(None): "nothing"}
    return names.get(type(value), "a number" if isinstance(value, int | float) else type(value).__name__)
