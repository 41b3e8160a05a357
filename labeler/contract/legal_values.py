"""Text from outside made into legal label values: the same text gives the same value everywhere."""

import re
from hashlib import sha256
from typing import Final

from labeler.contract.split import MAX_VALUE

_LEGAL_VALUE: Final = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?")
_ILLEGAL_RUN: Final = re.compile(r"[^A-Za-z0-9_.]+")
_HASH_DIGITS: Final = 32


def is_legal_value(value: str) -> bool:
    """Whether Kubernetes takes a text as a label value."""
    return len(value) <= MAX_VALUE and _LEGAL_VALUE.fullmatch(value) is not None


def legal_value(text: str) -> str:
    """The text itself where it is legal, else "x" and 32 hexadecimal digits of its SHA-256.

    For identifiers: different texts keep different values, which is all that closeness needs.
    """
    if is_legal_value(text):
        return text
    return "x" + sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_HASH_DIGITS]


def readable_value(text: str, longest: int = MAX_VALUE) -> str:
    """The text with runs of illegal characters as one "-" ("Arc A770" -> "Arc-A770"); hashed if too long.

    For names that people type. Two names that differ in such characters alone become one.
    """
    value = _ILLEGAL_RUN.sub("-", text).strip("-_.")
    return value if value and len(value) <= longest else legal_value(text + "\0")[:longest]
