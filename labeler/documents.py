"""Reads YAML and JSON files strictly: a key that is written twice is an error, since one of both is lost."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any


class DocumentError(ValueError):
    """A file cannot be read or is neither YAML nor JSON; the message opens with its path."""


def read_document(path: Path) -> object:
    """What a file holds; JSON if it opens like JSON, which spares the memory of a YAML parser."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DocumentError(f"{path}: cannot be read: {error}") from error
    if text.lstrip().startswith(("{", '"')):
        try:
            return json.loads(text, object_pairs_hook=_without_repetition)
        except ValueError:
            pass  # YAML may open so, too
        except RecursionError as error:
            raise DocumentError(f"{path}: is nested too deeply") from error
    return _read_yaml(text, path)


def unknown_key(name: object, known: Sequence[str]) -> str:
    """The message for a key that nothing reads, with the key that its writer may have meant."""
    from difflib import get_close_matches  # for a fault alone: it costs memory on every node

    near = get_close_matches(str(name), known, n=1)
    return "unknown key; " + (
        f"did you mean {near[0]}?" if near else f"known are {', '.join(known) or 'none'}"
    )


def _read_yaml(text: str, path: Path) -> object:
    import yaml

    try:
        from yaml import CSafeLoader as SafeLoader  # several times faster, where libyaml is there
    except ImportError:
        from yaml import SafeLoader  # type: ignore[assignment]

    class Loader(SafeLoader):
        """SafeLoader that refuses repeated keys."""

        def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
            self.flatten_mapping(node)
            _without_repetition((self.construct_object(key, deep=True), None) for key, _ in node.value)
            return super().construct_mapping(node, deep)

    try:
        document: object = yaml.load(text, Loader)
    except (yaml.YAMLError, ValueError, TypeError, RecursionError) as error:
        raise DocumentError(f"{path}: is neither YAML nor JSON: {error}") from error
    return document


def _without_repetition(pairs: Iterable[tuple[Any, Any]]) -> dict[Any, Any]:
    found: dict[Any, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"key {key!r} is written twice")
        found[key] = value
    return found
