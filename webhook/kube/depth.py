"""JSON that is nested deeper than a decoder's stack allows, made shallow without recursion. Pure.

The API server takes 10,000 levels where a resource keeps unknown fields. Decoders recurse, also over what
they skip, so one such object would make its whole collection unreadable.
"""

import re
from typing import Final

LEVELS: Final = 200
"""How deep what is left may be. Kubernetes' own types stay far below."""

_TOKEN: Final = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[\]{}]', re.DOTALL)


def shallow(text: bytes, levels: int = LEVELS) -> bytes:
    """The same document with null for every list and mapping below so many levels; linear in its length."""
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
