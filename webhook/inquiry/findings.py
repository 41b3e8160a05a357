"""What a check of `topogate doctor` finds."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

from webhook.kube.client import Api

SYSTEM: Final = "topogate-system"
REAPPLY: Final = "Apply manifests/overlays/default."


class State(StrEnum):
    """How a check ended."""

    WELL = "well"
    ODD = "odd"
    ILL = "ill"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Finding:
    """What a check found. remedy: what to do, "" if nothing."""

    check: str
    state: State
    sentence: str
    remedy: str = ""


Check = Callable[[Api, datetime], Iterator[Finding]]


def found(state: State, sentence: str, remedy: str = "") -> Finding:
    """A finding of the running check, whose name is added later."""
    return Finding("", state, sentence, remedy)


def some(names: list[str]) -> str:
    """The first few of them, as text."""
    return ", ".join(names[:3]) + (" ..." if len(names) > 3 else "")
