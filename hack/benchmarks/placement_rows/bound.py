"""Gangs made to keep placement busy: the CPU time of each beside its bound, a step being a microsecond.

The prices of steps are fitted to the CPU time of each engine on these gangs, above all on those that take
long. A family's steps are honest if the CPU time of a step is within a factor of HONEST of that of all gangs.
"""

import importlib
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from hack.benchmarks.placement_rows import instances
from hack.benchmarks.placement_rows.row import Row, timed
from hack.comparing.hostile import FAMILIES, Instance
from hack.comparing.hostile_large import LARGE_FAMILIES, preempting
from hack.comparing.realistic_gangs import drawn
from webhook.placement import (
    Assignment,
    Budget,
    Gang,
    NoFit,
    Options,
    PlacementError,
    Snapshot,
    check,
    place,
    victims,
)

INSTANCES: Final = 10
"""Of each family."""

WORST: Final = 10
"""Draws that are named."""

QUESTIONS: Final = 4
"""Bounds that the search for pods to preempt has for all its questions."""

HONEST: Final = 1.5
"""A step of a family takes at most so many times the CPU time of a step of all, and at least the inverse."""


def _realistic(dice: random.Random) -> Instance:
    draw = drawn(dice.randrange(10**6), 5000)
    return draw.gang, draw.snapshot, Options()


DRAWS: Final[Mapping[str, Callable[[random.Random], Instance]]] = {
    **FAMILIES,
    **{f"large, {family}": draw for family, draw in LARGE_FAMILIES.items()},
    "realistic": _realistic,
    "preemption": preempting,
}


@dataclass(frozen=True, slots=True)
class Draw:
    """One gang. times: CPU seconds for each of those that the bound stands for; steps: taken, beside it."""

    name: str
    seconds: float
    times: float
    steps: float
    answer: str


def rows(repeats: int, quick: bool) -> Iterator[Row]:
    """Each family's worst and median and what was not decided; of all the worst by name, and how many took
    more than twice the bound; and identical pods, for the machine's speed.
    """
    importlib.import_module("webhook.placement.heterogeneous.candidate_search")  # takes a fifth of a second
    made, gang = instances.cluster(5000, 8), instances.gang(1000, 8)
    reference = min(timed(place, gang, Snapshot.build(made, []))[0] for _ in range(5))
    every: list[Draw] = []
    charged: dict[str, float] = {}
    for family in DRAWS:
        found = [_drawn(family, seed) for seed in range(INSTANCES // 3 if quick else INSTANCES)]
        every += found
        answers = Counter(each.answer for each in found)
        described = ", ".join(f"{count} {answer}" for answer, count in sorted(answers.items()))
        charged[family] = _per_step(found)
        most = max(each.times for each in found)
        note = f"at most {most:.2f} of the bound; {charged[family]:.2f} microseconds a step"
        what = f"{len(found)} hostile gangs: {family}"
        yield Row("bound", what, tuple(each.seconds for each in found), answer=described, note=note)
    for each in sorted(every, key=lambda each: -each.times)[:WORST]:
        note = f"{each.times:.2f} of the bound, {each.steps:.2f} in steps"
        yield Row("bound", f"among the worst: {each.name}", (each.seconds,), answer=each.answer, note=note)
    beyond = sum(each.times > 2 for each in every)
    steps = max(each.steps for each in every)
    note = f"{beyond} of {len(every)} took over twice the bound; at most {steps:.2f} of it in steps"
    yield Row("bound", "all of them", note=note)
    mean = _per_step(every)
    far = [name for name, each in charged.items() if not mean / HONEST <= each <= mean * HONEST]
    note = f"{mean:.2f} microseconds a step; families beyond a factor of {HONEST}: {', '.join(far) or 'none'}"
    yield Row("bound", "whether steps are honest", note=note)
    yield Row("bound", "1000 identical pods, 5000 nodes of 8", (reference,))


def _per_step(draws: Sequence[Draw]) -> float:
    """Microseconds of CPU for each step that these gangs were charged."""
    return sum(each.times for each in draws) / sum(each.steps for each in draws)


def _drawn(family: str, seed: int) -> Draw:
    asked, snapshot, options = DRAWS[family](random.Random(f"{family}/{seed}"))
    budget = Budget(10**9)
    bound = options.bound
    if family == "preemption":
        bound *= QUESTIONS
        budget = Budget(bound)
        seconds, answer = timed(_preempted, asked, snapshot, options, budget)
    else:
        seconds, found = timed(_placed, asked, snapshot, options, budget)
        answer = _described(found, asked, snapshot)
    return Draw(f"{family}/{seed}", seconds, seconds * 1e6 / bound, budget.spent / bound, answer)


def _placed(
    asked: Gang, snapshot: Snapshot, options: Options, budget: Budget
) -> Assignment | NoFit | PlacementError:
    try:
        return place(asked, snapshot, options, budget)
    except PlacementError as refused:
        return refused


def _described(found: Assignment | NoFit | PlacementError, asked: Gang, snapshot: Snapshot) -> str:
    if isinstance(found, PlacementError):
        return "refused"
    if isinstance(found, NoFit):
        return "no place" if found.proven else "not decided"
    assert not check(found, asked, snapshot)
    return "optimum" if found.proven else "placed, not proven"


def _preempted(asked: Gang, snapshot: Snapshot, options: Options, budget: Budget) -> str:
    if victims_for(asked, snapshot, options, budget) is not None:
        return "victims found"
    return "not decided" if budget.exhausted else "no victims"


def victims_for(asked: Gang, snapshot: Snapshot, options: Options, budget: Budget) -> victims.Victims | None:
    """The pods of the two lowest priorities that make way for a gang."""
    units = victims.units_on(snapshot, lambda use: use.priority < 2)
    return victims.choose(asked, snapshot, options, units, budget=budget)
