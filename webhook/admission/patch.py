"""JSON Patch (RFC 6902), built so that it always applies.

`add` creates a member or replaces it, and `remove` is used only for what is there. Missing parents are
created first, and there is never a `test`: if a patch does not apply, the API server refuses the pod with 500
even where the webhook's failurePolicy is Ignore.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import msgspec


class Operation(msgspec.Struct, frozen=True):
    """One operation; `value` is anything that JSON can carry. A `remove` has null there, which is ignored."""

    path: str
    value: Any
    op: str = "add"


@lru_cache(maxsize=1024)
def pointer(*parts: str) -> str:
    """A JSON Pointer (RFC 6901) to a member; keys may contain "/" and "~"."""
    return "".join("/" + part.replace("~", "~0").replace("/", "~1") for part in parts)


def put_member(parent: tuple[str, ...], name: str, value: Any) -> Operation:
    """Create or replace one member of an existing object."""
    return Operation(path=pointer(*parent, name), value=value)


def remove(*parts: str) -> Operation:
    """Remove a member of an object, or an item of a list, that is there."""
    return Operation(path=pointer(*parts), value=None, op="remove")


def put_members(
    parent: tuple[str, ...], there: Mapping[str, str] | None, wanted: Mapping[str, str]
) -> list[Operation]:
    """Make a map contain `wanted` too; `there` is its content now, None if the map itself is missing."""
    missing = {key: value for key, value in wanted.items() if not there or there.get(key) != value}
    if not missing:
        return []
    if there is None:
        return [Operation(path=pointer(*parent), value=missing)]
    return [put_member(parent, key, value) for key, value in missing.items()]


def append(parent: tuple[str, ...], there: Sequence[object] | None, value: Any) -> Operation:
    """Append one value to a list; `there` is None if the list itself is missing."""
    if there is None:
        return Operation(path=pointer(*parent), value=[value])
    return Operation(path=pointer(*parent, "-"), value=value)


def encode(operations: Sequence[Operation]) -> bytes:
    """The patch as JSON text."""
    return msgspec.json.encode(operations)
