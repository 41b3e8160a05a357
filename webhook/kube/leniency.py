"""Reads an object of which some fields cannot be read: without these fields. Pure.

Only for objects whose content decides little, so that a field that is left out does no harm. The API server
checks the fields of Kubernetes' own types, and the schema those of topogate's; an older or edited schema may
allow any JSON.
"""

import re
from typing import Any, Final, TypeVar

import msgspec

T = TypeVar("T")

_STEPS: Final = 8
"""So many fields are left out one by one; beyond that, all of a field of spec or status at once."""
_MOST_STEPS: Final = 64
_PATH: Final = re.compile(r" - at `(?:key in )?\$([^`]*)`$")
_PART: Final = re.compile(r"\.([A-Za-z0-9_]+)|\[([0-9]+)\]")


def without_unreadable(body: Any, struct: type[T]) -> tuple[T, list[str]]:
    """The object of a decoded document, and the paths that were left out.

    Raises msgspec.ValidationError if its metadata, or the whole, cannot be read.
    """
    left_out: list[str] = []
    while True:
        try:
            return msgspec.convert(body, struct), left_out
        except msgspec.ValidationError as error:
            found = _PATH.search(str(error))
            path = [name or int(number) for name, number in _parts(found[1] if found else "")]
            if len(left_out) >= _STEPS:
                path = path[:2]
            if not path or path[0] == "metadata" or len(left_out) >= _MOST_STEPS:
                raise
            _remove(body, path)
            left_out.append(".".join(map(str, path)))


def _parts(path: str) -> list[tuple[str, str]]:
    """The names and positions of a path, up to the first map whose key msgspec does not name."""
    return _PART.findall(path.partition("[...]")[0])


def _remove(body: Any, path: list[str | int]) -> None:
    for part in path[:-1]:
        body = body[part]
    del body[path[-1]]
