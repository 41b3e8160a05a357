"""Names of resources, and shell patterns over them, as conditions in CEL."""

import re
from collections.abc import Iterable
from fnmatch import fnmatchcase
from string import ascii_letters, digits
from typing import Final

_RESOURCE_CHARACTERS: Final = ascii_letters + digits + "-_./"


def matches(variable: str, patterns: Iterable[str]) -> list[str]:
    """Conditions, one of which is true if a resource name matches one of these shell patterns."""
    names, found = [], []
    for pattern in patterns:
        if not any(char in pattern for char in "*?["):
            names.append(pattern)
        elif pattern.endswith("*") and not any(char in pattern[:-1] for char in "*?["):
            found.append(f"{variable}.startsWith({text_of(pattern[:-1])})")
        else:
            found.append(f"{variable}.matches(r'{expression_of(pattern)}')")
    return ([f"{variable} in {list_of(names)}"] if names else []) + found


def expression_of(pattern: str) -> str:
    """A shell pattern over resource names as a regular expression of RE2 (and of Python)."""
    made, index = "^", 0
    while index < len(pattern):
        char = pattern[index]
        close = pattern.find("]", index + 3 if pattern[index + 1 : index + 2] == "!" else index + 2)
        if char == "*":
            made += ".*"
        elif char == "?":
            made += "."
        elif char == "[" and close != -1:
            # Spelt out: the two languages disagree on what a class may contain.
            chars = [each for each in _RESOURCE_CHARACTERS if fnmatchcase(each, pattern[index : close + 1])]
            made += "[" + "".join(map(re.escape, chars)) + "]" if chars else r"[^\s\S]"
            index = close
        else:
            made += re.escape(char)
        index += 1
    return made + "$"


def text_of(value: str) -> str:
    """A text in CEL. The policy's names have no quotes or backslashes."""
    return f"'{value}'"


def list_of(values: Iterable[str]) -> str:
    """A list of texts in CEL."""
    return "[" + ", ".join(map(text_of, values)) + "]"
