"""Amounts as people write them, converted to Kubernetes quantities: 16gi is 16Gi, 16gb is 16G. Pure.

The definition of GPUTask refuses most of what is not understood here, with the same sentences.
"""

import re
from typing import Final

_MEMORY: Final = re.compile(
    r"([0-9]{1,9}(?:\.[0-9]{1,3})?)(?:([KkGgTtPp]|M)|([KkMmGgTtPp])(?:([Ii])[Bb]?|[Bb]))"
)
_BYTES: Final = re.compile(r"[0-9]{7,18}")
_CPU: Final = re.compile(r"[0-9]{1,6}(\.[0-9]{1,3})?|[0-9]{1,9}m")
_GPUS: Final = re.compile(r"[1-9][0-9]{0,3}")


class SpellingError(ValueError):
    """An amount that is not understood; the message says how to write it."""


def memory(written: str | int) -> str:
    """Bytes as a quantity. Raises SpellingError."""
    text = str(written)
    match = _MEMORY.fullmatch(text)
    if match is not None:
        number, plain, unit, binary = match.groups()
        letter = (plain or unit).upper()
        return number + (f"{letter}i" if binary else letter.replace("K", "k"))
    if _BYTES.fullmatch(text):
        return text
    raise SpellingError(f"memory {_shown(text)}: write a number with a unit, as 16Gi, 512Mi or 16G")


def cpu(written: str | int) -> str:
    """Processors as a quantity. Raises SpellingError."""
    text = str(written)
    if not _CPU.fullmatch(text):
        raise SpellingError(f"cpu {_shown(text)}: write a number of processors, as 8, 0.5 or 500m")
    return text


def gpus(written: str | int) -> int:
    """A number of GPUs. Raises SpellingError."""
    text = str(written)
    if not _GPUS.fullmatch(text):
        raise SpellingError(f"gpu-amount {_shown(text)}: write a whole number of GPUs from 1 to 9999")
    return int(text)


def _shown(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:37] + "...")
