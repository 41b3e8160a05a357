"""A value longer than a label is split into continuation labels: key, key2, key3, ...

The rule is the one that readers of these labels expect byte for byte (``SplitAtLastAlphaNum`` of the Intel
GPU device plugin 0.26 to 0.32): a chunk ends at its last letter or digit, and every later chunk opens with
"Z". A cut may fall inside a number, so the first label alone can name a card that does not exist.
"""

from collections.abc import Mapping
from typing import Final

from labeler.contract.errors import ContractError

MAX_VALUE: Final = 63
"""Longest label value, in characters (Kubernetes)."""

CONTINUATION: Final = "Z"
"""First character of every chunk but the first; it is no part of the value."""

_ALPHANUMERIC: Final = frozenset("0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")


def split_value(value: str) -> tuple[str, ...]:
    """Cut a value into chunks of at most 63 characters, without loss; a value that fits is one chunk.

    Raises ContractError when a stretch of the value has no letter or digit to end a chunk at.
    """
    limit, prefix, rest = MAX_VALUE, "", value
    chunks = []
    while len(rest) > limit:
        end = next((i for i in range(limit, 0, -1) if rest[i - 1] in _ALPHANUMERIC), 0)
        if end == 0:
            raise ContractError(f"cannot be split into labels, no letter or digit in {rest[:limit]!r}")
        chunks.append(prefix + rest[:end])
        rest = rest[end:]
        limit, prefix = MAX_VALUE - len(CONTINUATION), CONTINUATION
    chunks.append(prefix + rest)
    return tuple(chunks)


def split_label(key: str, value: str) -> dict[str, str]:
    """The label and its continuations (key2, key3, ...) that together hold a value."""
    return {
        f"{key}{number}" if number > 1 else key: chunk
        for number, chunk in enumerate(split_value(value), start=1)
    }


def join_label(labels: Mapping[str, str], key: str) -> str | None:
    """The value that a label and its continuations hold together; None without the first label.

    Raises ContractError when a continuation does not open with "Z": then a writer older than plugin 0.26,
    or two writers, made these labels, and no part of the value can be believed.
    """
    if key not in labels:
        return None
    parts = [labels[key]]
    number = 2
    while (chunk := labels.get(f"{key}{number}")) is not None:
        if not chunk.startswith(CONTINUATION):
            raise ContractError(f"label {key}{number}: {chunk!r} continues {key} but does not open with 'Z'")
        parts.append(chunk[len(CONTINUATION) :])
        number += 1
    return "".join(parts)
