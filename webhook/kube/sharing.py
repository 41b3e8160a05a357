"""Equal parts of objects are kept once: the pods of a Job differ in little but their names.

Only for values that nobody changes once they are decoded. What is remembered is bounded in number and in
size, whatever the objects say; forgetting it costs memory, never correctness. Safe for use by many threads.
"""

from typing import Any, Final, TypeVar

import msgspec

MOST: Final = 8192
"""Parts remembered at once. Lists of the API server come in the order of namespaces and names, so that those
that are alike come one after the other."""

LARGEST: Final = 2048
"""Bytes of a part that is still remembered; characters of a text."""

T = TypeVar("T")
_texts: Final[dict[str, str]] = {}
_parts: Final[dict[tuple[str, bytes], Any]] = {}
_encoder: Final = msgspec.msgpack.Encoder()


def text(value: str) -> str:
    """The same text, and the same object each time."""
    known = _texts.get(value)
    if known is not None:
        return known
    if len(value) <= LARGEST:
        if len(_texts) >= MOST:
            _texts.clear()
        _texts[value] = value
    return value


def texts(values: dict[str, str]) -> dict[str, str]:
    """A map of its own with texts that are shared: maps of labels differ, their keys and values seldom."""
    return {text(key): text(value) for key, value in values.items()}


def part(kind: str, value: T) -> T:
    """An equal object, the same one each time; kind tells values of one type that look alike apart."""
    try:
        encoded = _encoder.encode(value)
    except (OverflowError, ValueError):  # an integer of more than 64 bits: rare, and so not worth sharing
        return value
    known: T | None = _parts.get((kind, encoded))
    if known is not None:
        return known
    if len(encoded) <= LARGEST:
        if len(_parts) >= MOST:
            _parts.clear()
        _parts[kind, encoded] = value
    return value
