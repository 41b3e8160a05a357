"""What a command says to the person at the terminal.

Names, annotations and an API server's words are written by others: a line break or an escape sequence in them
would forge lines or move the cursor, so a line is said as one line of plain text.
"""

import sys

from webhook.text import printable


def say(line: str) -> None:
    """Print a line of the result, on standard output."""
    print(printable(line))


def complain(line: str) -> None:
    """Print a line about what is wrong, on standard error."""
    print(printable(line), file=sys.stderr)
