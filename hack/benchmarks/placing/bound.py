"""Gangs made to keep placement busy: what the bound of steps is in CPU time, family by family."""

import random
from collections.abc import Iterator
from typing import Final

from hack.benchmarks.placing import instances
from hack.benchmarks.placing.row import Row, timed
from hack.comparing.hostile import FAMILIES
from webhook.placement import Assignment, Budget, Gang, NoFit, Options, PlacementError, Snapshot, check, place

INSTANCES: Final = 10
"""Of each family."""


def rows(repeats: int, quick: bool) -> Iterator[Row]:
    """The worst and the median, and what was not decided; and identical pods, for the machine's speed."""
    made, gang = instances.cluster(5000, 8), instances.gang(1000, 8)
    reference = min(timed(place, gang, Snapshot.build(made, []))[0] for _ in range(5))
    most = 0
    for family, draw in FAMILIES.items():
        seconds, steps = [], []
        answers: dict[str, int] = {}
        for seed in range(INSTANCES // 3 if quick else INSTANCES):
            asked, snapshot, options = draw(random.Random(f"{family}/{seed}"))
            budget = Budget(10**9)
            taken, answer = timed(_told, asked, snapshot, options, budget)
            seconds.append(taken)
            steps.append(budget.spent)
            answers[answer] = answers.get(answer, 0) + 1
        most = max(most, *steps)
        told = ", ".join(f"{count} {answer}" for answer, count in sorted(answers.items()))
        note = f"worst {max(seconds):.2f} s, {max(seconds) / reference:.0f} times 1000 identical pods"
        what = f"{len(seconds)} hostile gangs: {family}"
        yield Row("bound", what, tuple(seconds), answer=told, note=note)
    yield Row("bound", "all of them", note=f"at most {most} steps, beside a bound of {Options().bound}")
    yield Row("bound", "1000 identical pods, 5000 nodes of 8", (reference,))


def _told(asked: Gang, snapshot: Snapshot, options: Options, budget: Budget) -> str:
    try:
        found = place(asked, snapshot, options, budget)
    except PlacementError:
        return "refused"
    if isinstance(found, NoFit):
        return "no place" if found.proven else "not decided"
    assert isinstance(found, Assignment)
    assert not check(found, asked, snapshot)
    return "optimum" if found.proven else "placed, not proven"
