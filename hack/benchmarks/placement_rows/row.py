"""One row of the table: what was asked, what it took, and what came out."""

import gc
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ParamSpec, TypeVar

from webhook.placement import Assignment, Gang, NodeInfo, NoFit, Snapshot, Usage, check, place
from webhook.sweeper.process import seldom_collected


@dataclass(frozen=True, slots=True)
class Row:
    """seconds: of CPU from a new snapshot to the answer, one for each repeat; changed: the same of a snapshot
    in which one block changed; beside: how many times as long as as many identical pods took, 0 for unknown.
    note: what else there is to say, or all there is where no single gang was placed.
    """

    group: str
    what: str
    seconds: tuple[float, ...] = ()
    changed: tuple[float, ...] = ()
    answer: str = ""
    beside: float = 0
    note: str = ""

    def line(self) -> str:
        """For a terminal."""
        parts = [span(self.seconds) if self.seconds else ""]
        parts += [f"one block changed {span(self.changed)}" if self.changed else ""]
        parts += [f"{self.beside:.2f} of identical pods" if self.beside else "", self.answer, self.note]
        return f"{self.group:10} {self.what}: {'; '.join(filter(None, parts))}"


def span(seconds: Sequence[float]) -> str:
    """Median and range."""
    middle = statistics.median(seconds)
    if len(seconds) == 1:
        return _amount(middle)
    return f"{_amount(middle)} ({_amount(min(seconds))} to {_amount(max(seconds))})"


def _amount(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1e3:.{0 if seconds >= 0.1 else 1}f} ms"


Found = TypeVar("Found")
Asked = ParamSpec("Asked")


def timed(work: Callable[Asked, Found], *args: Asked.args, **options: Asked.kwargs) -> tuple[float, Found]:
    """CPU seconds that a call takes, and its result. The collector runs as seldom as in a leader."""
    gc.collect()
    with seldom_collected():
        start = time.process_time()
        result = work(*args, **options)
        return time.process_time() - start, result


def answered(found: Assignment | NoFit) -> str:
    """What came out, in words."""
    if isinstance(found, NoFit):
        return "no place, proven" if found.proven else "not decided within the bound"
    return f"{'optimum' if found.proven else 'not proven'}: {found.spread}"


@dataclass(frozen=True, slots=True)
class Rounds:
    """seconds, changed: see Row. found: the last answer."""

    seconds: tuple[float, ...]
    changed: tuple[float, ...]
    found: Assignment | NoFit


def again(gang: Gang, nodes: Sequence[NodeInfo]) -> tuple[float, float, Assignment | NoFit]:
    """CPU seconds for the gang on a new snapshot, and on the next one, once a pod appeared in one block."""
    before = Snapshot.build(nodes, [])
    first, found = timed(place, gang, before)
    if isinstance(found, Assignment):
        assert not check(found, gang, before)
    later = Snapshot.build(nodes, [(nodes[-1].name, Usage({"cpu": 1000, "pods": 1}))], previous=before)
    return first, timed(place, gang, later)[0], found


def alternated(asked: Mapping[str, Gang], nodes: Sequence[NodeInfo], repeats: int) -> dict[str, Rounds]:
    """Each gang placed as `again` does, by its name; all of them once before any of them again."""
    rounds = [{name: again(gang, nodes) for name, gang in asked.items()} for _ in range(repeats)]
    found = {}
    for name in asked:
        seconds, changed, answers = zip(*(one[name] for one in rounds), strict=True)
        found[name] = Rounds(seconds, changed, answers[-1])
    return found
