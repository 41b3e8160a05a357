"""Strict reading of an operator's YAML: its values by path, and every fault with its place.

A key that is repeated, unknown or without a value is a fault: otherwise it would silently mean something
else.
"""

import re
from difflib import get_close_matches
from typing import Any, Final

import yaml

from webhook.text import one_line

_LONGEST_PATH: Final = 200
_LONGEST_VALUE: Final = 80


class ConfigurationError(Exception):
    """A configuration that cannot be used; `faults` has one line for each thing that is wrong."""

    def __init__(self, source: str, faults: list[str]) -> None:
        super().__init__("\n".join(f"{source}: {fault}" for fault in faults))
        self.faults = faults


def read_yaml(text: str | bytes, source: str) -> Any:
    """The one document of a YAML text. Raises ConfigurationError, with the line where that is known."""
    try:
        return yaml.load(text, _StrictLoader)
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
    return where + (getattr(error, "problem", None) or str(error)).replace("\n", " ")


ABSENT: Final = object()
"""For a missing key. A key without a value is a fault: it would silently mean the default."""


class DocumentReader:
    """Takes values out of a document by path and collects what is wrong with them."""

    def __init__(self) -> None:
        self.faults: list[str] = []

    def fault(self, path: str, message: str) -> None:
        where = one_line(path)[:_LONGEST_PATH] or "document"
        self.faults.append(f"{where}: {message}")

    def mapping(self, value: Any, path: str, known: tuple[str, ...] | None) -> dict[str, Any]:
        """A mapping with text keys; `known` are its possible keys, None for any."""
        if value is ABSENT:
            return {}
        if not isinstance(value, dict):
            self.fault(path, f"must be a mapping, not {_kind(value)}{_instead(value, '{}')}")
            return {}
        for key in value:
            if not isinstance(key, str):
                self.fault(path, f"key {shown(key)} must be text; quote it")
            elif known is not None and key not in known:
                near = get_close_matches(key, known, n=1)
                hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(known)}"
                self.fault(f"{path}.{key}" if path else key, f"unknown key; {hint}")
        return {key: item for key, item in value.items() if isinstance(key, str)}

    def items(self, value: Any, path: str) -> list[tuple[str, Any]]:
        """A list, as pairs of each item's path and the item."""
        if value is ABSENT:
            return []
        if not isinstance(value, list):
            self.fault(path, f"must be a list, not {_kind(value)}{_instead(value, '[]')}")
            return []
        return [(f"{path}[{index}]", item) for index, item in enumerate(value)]

    def text(self, value: Any, path: str, pattern: re.Pattern[str] | None = None, what: str = "") -> str:
        """A text, "" if it is wrong; `pattern` must match it as a whole, `what` names such texts."""
        if value is ABSENT:
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
            article = "an" if what.startswith(tuple("aeio")) else "a"
            self.fault(path, f"{shown(value)} is not {article} {what}")
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
                self.fault(item_path, f"{shown(text)} occurs twice")
            elif text:
                found.append(text)
        return tuple(found)

    def one_of(self, value: Any, path: str, known: list[str], what: str) -> str:
        """A name that is defined elsewhere in the file, "" if absent or wrong."""
        if value is ABSENT:
            return ""
        name = self.text(value, path)
        if name and name not in known:
            self.fault(path, f"no {what} {shown(name)}; known are {', '.join(known) or 'none'}")
            return ""
        return name


def _instead(value: Any, empty: str) -> str:
    return f"; leave the key out, or write {empty}" if value is None else ""


def shown(value: Any) -> str:
    """A value in a fault's sentence; a long or structured one is only described."""
    if isinstance(value, str):
        return repr(value if len(value) <= _LONGEST_VALUE else value[:_LONGEST_VALUE] + "...")
    is_short = isinstance(value, float | type(None)) or (isinstance(value, int) and abs(value) < 10**20)
    return repr(value) if is_short else _kind(value)


def _kind(value: Any) -> str:
    """The type of a YAML value, in words of YAML."""
    names = {dict: "a mapping", list: "a list", str: "text", bool: "true or false", type(None): "nothing"}
    return names.get(type(value), "a number" if isinstance(value, int | float) else type(value).__name__)
