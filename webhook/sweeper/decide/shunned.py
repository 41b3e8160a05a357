"""Nodes that a gang passes over though it may use them: bad ones, and spare ones. Pure.

`hard` are out of the question. `steps` are passed over as long as there is other room: first all of a step,
then all of the next.
"""

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

MOST_TOLD: Final = 10
_NAMED: Final = 3


@dataclass(frozen=True)
class Shunned:
    """What one gang passes over. why: of each bad node a sentence. spares: how many nodes are kept free.

    models: node -> GPU model, of the nodes in why.
    """

    hard: frozenset[str] = frozenset()
    steps: tuple[frozenset[str], ...] = ()
    why: Mapping[str, str] = field(default_factory=dict)
    models: Mapping[str, str] = field(default_factory=dict)
    spares: int = 0

    def passed_over(self, nodes: Set[str], models: Set[str]) -> dict[str, str]:
        """The bad nodes that a plan for these nodes, of these models, did without, and why; at most ten."""
        there = (name for name in self.why if name not in nodes and self.models.get(name, "") in models)
        return {name: self.why[name] for name in sorted(there)[:MOST_TOLD]}

    @property
    def told(self) -> str:
        """What a gang is told that waits, as far as these nodes may keep it waiting; "" if they do not."""
        bad = {name: self.why[name] for name in sorted(self.why) if name in self.hard}
        parts = []
        if bad:
            parts.append(told_of(bad))
        if self.spares:
            nodes = "1 free node is" if self.spares == 1 else f"{self.spares} free nodes are"
            parts.append(f"{nodes} kept for replacements of failed pods")
        return "; ".join(parts)


NONE: Final = Shunned()


def why_bad(gangs: int, at: int, cause: str) -> str:
    """Why a node is bad, without a word of whose pods: who reads it may know nothing of other namespaces.

    at: the last failure, in seconds since 1970.
    """
    failed = "1 gang" if gangs == 1 else f"{gangs} gangs"
    when = datetime.fromtimestamp(at, UTC)
    return f"pods of {failed} failed there and ran elsewhere, last at {when:%Y-%m-%d %H:%M:%SZ} by {cause}"


def told_of(avoided: Mapping[str, str]) -> str:
    """A sentence on nodes that were avoided, and why."""
    named = [f"{name} ({why})" for name, why in sorted(avoided.items())]
    more = f" and {len(named) - _NAMED} more" if len(named) > _NAMED else ""
    nodes = "node" if len(named) == 1 else "nodes"
    return f"avoids the {nodes} {', '.join(named[:_NAMED])}{more}"


def steps_of(*sets: Iterable[str]) -> tuple[frozenset[str], ...]:
    """All of these passed over, then all but the last, and so on; each set is dearer than those after it."""
    found: list[frozenset[str]] = []
    for number in range(len(sets), 0, -1):
        step = frozenset(name for each in sets[:number] for name in each)
        if step and step not in found:
            found.append(step)
    return tuple(found)
