"""What a soak prints of its faults: what, when, who led then, and the pods in the sweepers' logs."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final

from hack.local.kubelet import Program
from hack.soaks.sweepers import leader_at, lines_of

LINES: Final = 12
"""Of the logs, that are shown with a fault."""
AFTER: Final = timedelta(seconds=5)
"""What was logged so long after a fault may be of it."""
DETAILED: Final = 10
"""Faults that are printed with what the logs have of them."""

_NAME: Final = re.compile(r"\b[a-z]+(?:-[a-z]+)*-\d+(?:-[a-z0-9]+)*\b")
"""How gangs and pods of a soak are called: "job-12", "job-12-0-x7k2p"."""
_NODE: Final = re.compile(r"\b(?:node-b\d+-s\d+-h\d+|pool-\d+)\b")


@dataclass
class Faults:
    """Faults with when they were found. judges: what each has found so far."""

    checkers: Mapping[str, Callable[[], Sequence[str]]]
    found: list[tuple[str, str]] = field(default_factory=list)
    _counts: Counter[str] = field(default_factory=Counter)

    def look(self) -> list[str]:
        """Take in what has been found since; returns it."""
        new = []
        for name, faults in self.checkers.items():
            found_faults = list(faults())
            new += found_faults[self._counts[name] :]
            self._counts[name] = len(found_faults)
        self.found += [(f"{datetime.now(UTC):%T}", fault) for fault in new]
        return new


def detailed(faults: Sequence[tuple[str, str]], sweepers: Iterable[Program]) -> list[str]:
    """The faults as sentences, the first ones with who led then and what the sweepers' logs say of the pods.

    faults: when each was found, and what it is. One that begins with a time was at that time.
    """
    lines = lines_of(sweepers) if faults else []
    found_faults = []
    for number, (found, fault) in enumerate(faults):
        begins = re.match(r"\d\d:\d\d:\d\d", fault)
        at = begins.group() if begins else found
        message = fault if begins else f"{found} or before: {fault}"
        if number < DETAILED:
            until = f"{datetime.strptime(at, '%H:%M:%S') + AFTER:%T}"
            own = [line for line in lines if line.at <= until and any(n in line.text for n in _names(fault))]
            shown = [f"\n    {line.of}: {line.text[:400]}" for line in own[-LINES:]]
            message += f"\n  at {at} {leader_at(lines, at)}" + "".join(
                shown or ["; no line of the logs names it"]
            )
        found_faults.append(message)
    return found_faults


def _names(fault: str) -> set[str]:
    """By what the logs are searched: gangs and pods; where a fault names none, nodes."""
    nodes = set(_NODE.findall(fault))
    names = set(_NAME.findall(_NODE.sub("", fault)))
    return names | {"-".join(name.split("-")[:2]) for name in names} or nodes
