"""Makes JSON readable that decoders refuse, without recursion: too many levels, or no valid Unicode. Pure.

The API server accepts 10,000 levels if a resource preserves unknown fields. Decoders recurse even over
skipped fields, so one such object would make its whole collection unreadable. So would one with half of a
surrogate pair or with bytes that are no UTF-8: the API server stores the parameters of a ResourceClaim as
they come.
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


_ESCAPE: Final = re.compile(
    r"(\\\\|\\u[dD][89aAbB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})|\\u[dD][89a-fA-F][0-9a-fA-F]{2}"
)
"""An escaped backslash or a surrogate pair, which stay; or a half of a pair."""


def valid_unicode(text: bytes) -> bytes:
    """The document with U+FFFD for each byte and each half of a surrogate pair that is no character."""
    valid = text.decode("utf-8", errors="replace")
    return _ESCAPE.sub(lambda found: found[1] or r"\ufffd", valid).encode()


def readable(text: bytes) -> bytes:
    """The document as decoders read it, if they read JSON of its form at all."""
    return shallow(valid_unicode(text))
