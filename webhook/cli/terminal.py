"""Output of a command to the person at the terminal.

Names, annotations and messages of an API server are written by others: a line break or an escape sequence in
them would forge lines or move the cursor. Each line is printed as one line of plain text.
"""

import os
import sys
from collections.abc import Sequence

from webhook.text import printable


def print_line(line: str) -> None:
    """Print a line of the result, on standard output."""
    print(printable(line))


def complain(line: str) -> None:
    """Print an error, warning or hint, on standard error."""
    print(printable(line), file=sys.stderr)


def is_terminal() -> bool:
    """Whether standard output is a terminal; it is None where a shell has closed it."""
    return sys.stdout is not None and sys.stdout.isatty()


def columns() -> int:
    """The width of the terminal on standard output; 0 where it is none, as in a pipe."""
    if not is_terminal():
        return 0
    written = os.environ.get("COLUMNS", "")
    if written.isdecimal():
        return int(written)
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns
    except (OSError, ValueError):
        return 0


def is_coloured() -> bool:
    """Whether colours are shown: on a terminal, unless NO_COLOR is set (https://no-color.org)."""
    return is_terminal() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def fitted(line: str, width: int) -> str:
    """A line of at most this many characters, with "..." where it was cut; 0: unchanged."""
    return line if not width or len(line) <= width else (line[: max(0, width - 3)] + "...")[:width]


def table(rows: Sequence[Sequence[str]], *, is_full_width: bool = False) -> str:
    """Rows in columns, the first one is the heading; cut to the width of a terminal unless is_full_width."""
    plain = [[printable(text) for text in row] for row in rows]
    widths = [max(len(row[column]) for row in plain) for column in range(len(plain[0]))]
    lines = ("   ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)) for row in plain)
    most = 0 if is_full_width else columns()
    return "\n".join(fitted(line.rstrip(), most) for line in lines)
