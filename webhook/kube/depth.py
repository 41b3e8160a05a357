"""Cuts JSON that is nested deeper than a decoder's stack allows, without recursion. Pure.

The API server accepts 10,000 levels if a resource preserves unknown fields. Decoders recurse even over
skipped fields, so one such object would make its whole collection unreadable.
"""

import re
from typing import Final

LEVELS: Final = 200
"""The levels that remain. Kubernetes' own types have far fewer."""

_TOKEN: Final = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[\]{}]', re.DOTALL)


def shallow(text: bytes, levels: int = LEVELS) -> bytes:
    """The document with null for every list and mapping below so many levels. It takes linear time."""
    pieces: list[bytes] = []
    depth, begin = 0, 0
    for token in _TOKEN.finditer(text):
        bracket = token[0]
        if bracket in (b"{", b"["):
            depth += 1
            if depth == levels + 1:
                pieces += [text[begin : token.start()], b"null"]
        elif bracket in (b"}", b"]"):
            if depth == levels + 1:
                begin = token.end()
            depth -= 1
    if depth <= levels:
        pieces.append(text[begin:])
    return b"".join(pieces)
