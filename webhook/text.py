"""What a user wrote, made safe to say back: one line, ASCII, short.

The API server drops warnings with control characters and cuts long ones.
"""

from collections.abc import Sequence
from typing import Final

_LONGEST_QUOTE: Final = 40
_LONGEST_LIST: Final = 30


LONGEST_LABEL_VALUE: Final = 63


def quote(value: str, longest: int = _LONGEST_QUOTE) -> str:
    """A value in quotation marks, with everything unprintable escaped and a long tail cut off."""
    cut = value if len(value) <= longest else value[: longest - 3] + "..."
    return '"' + one_line(cut).replace('"', "'") + '"'


def one_line(text: str) -> str:
    """A text with line breaks, other control characters and everything beyond ASCII escaped."""
    return text.encode("ascii", "backslashreplace").decode().translate(_ESCAPES)


def printable(text: str) -> str:
    """A text with line breaks and everything else escaped that a log or a terminal would obey, not show."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def sentence_list(items: Sequence[str], conjunction: str = "and") -> str:
    """ "a", "a and b", "a, b and c"; "nothing" if empty; the tail of a very long list is counted."""
    shown = list(items)
    if len(shown) > _LONGEST_LIST:
        shown = [*shown[:_LONGEST_LIST], f"{len(items) - _LONGEST_LIST} more"]
    if len(shown) < 2:
        return "".join(shown) or "nothing"
    return f"{', '.join(shown[:-1])} {conjunction} {shown[-1]}"


def few(names: Sequence[str], most: int = 3, unit: str = "") -> str:
    """ "a, b, c and 2 more": the first of these names, and how many others there are. unit: of the others."""
    left = len(names) - most
    more = counted(left, f"more {unit}") if unit else f"{left} more"
    return ", ".join(names[:most]) + (f" and {more}" if left > 0 else "")


def counted(count: int, one: str, many: str = "") -> str:
    """ "1 pod", "3 pods". many: the plural of `one`, if that is not with an s."""
    return f"{count} {one if count == 1 else many or one + 's'}"


def joined(*parts: str) -> str:
    """One sentence of the parts that are not empty; a full stop stays at its end alone."""
    shown = [part for part in parts if part]
    return "; ".join([*(part.removesuffix(".") for part in shown[:-1]), *shown[-1:]])


_ESCAPES: Final = {code: f"\\x{code:02x}" for code in (*range(32), 127)}
