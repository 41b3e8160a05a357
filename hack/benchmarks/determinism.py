"""Gangs of each family, placed in many processes with different hash seeds and threads: the same answers?

The families are those of `hack/bench placement --rows bound`, with gangs of a few classes on clusters in use
and gangs of different pods. The checker checks each placement. Prints the gangs of which two processes gave
different answers, and those whose placement has faults, and exits with 1 if there is any.
"""

import argparse
import hashlib
import os
import random
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Final

from hack.benchmarks.placement_rows import baselines, bound, instances
from hack.comparing.different_pods import different_pods
from hack.comparing.hostile import Instance
from webhook.placement import Assignment, Budget, NoFit, Options, PlacementError, Snapshot, check, place

_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "HIGHS_NUM_THREADS")

_SIZES: Final = (30, 60, 200, 500)
"""Of gangs of different pods."""

FAULTY: Final = "faults"
"""Printed instead of a digest."""


def _few_classes(dice: random.Random) -> Instance:
    nodes = baselines.nodes_of(dice.choice((1000, 4800, 5000)), dice.choice((0, 0.3, 0.6)))
    return dice.choice([*baselines.GANGS.values()]), Snapshot.build(nodes, []), Options()


def _different(dice: random.Random) -> Instance:
    gang = different_pods(dice.choice(_SIZES), dice.randrange(1000), dice.choice((None, "block")))
    return gang, Snapshot.build(instances.cluster(dice.choice((1000, 5000)), 8), []), Options()


FAMILIES: Final[Mapping[str, Callable[[random.Random], Instance]]] = {
    **bound.DRAWS,
    "few classes": _few_classes,
    "different pods": _different,
}


def main(argv: list[str] | None = None) -> int:
    """Ask in each process, and compare."""
    parser = argparse.ArgumentParser(prog="hack/bench determinism", description=__doc__)
    parser.add_argument("--processes", type=int, default=20, metavar="N", help="processes (20)")
    parser.add_argument("--draws", type=int, default=3, metavar="N", help="gangs of each family (3)")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="the first gang's seed (0)")
    parser.add_argument("--one", action="store_true", help="print a digest of each answer, in this process")
    args = parser.parse_args(argv)
    asked = [(family, seed) for family in FAMILIES for seed in range(args.seed, args.seed + args.draws)]
    if args.one:
        for family, seed in asked:
            print(f"{family}/{seed}", digest(family, seed), sep="\t", flush=True)
        return 0
    start = time.perf_counter()
    answers: dict[str, set[str]] = defaultdict(set)
    for number in range(args.processes):
        for line in _asked(number, args):
            gang, answer = line.split("\t")
            answers[gang].add(answer)
    differing = [gang for gang, found in answers.items() if len(found) > 1 or FAULTY in found]
    for each in differing:
        print(f"{each}: {', '.join(sorted(answers[each]))}")
    took = time.perf_counter() - start
    print(
        f"{len(answers)} gangs in {args.processes} processes: "
        f"{len(differing)} with different or faulty answers; {took:.0f} s"
    )
    return 1 if differing or len(answers) < len(asked) else 0


def digest(family: str, seed: int) -> str:
    """Of all that placement answers about a drawn gang: nodes, cards, objective, proof, sentence, steps, and
    the pods that are evicted for it.
    """
    gang, snapshot, options = FAMILIES[family](random.Random(f"{family}/{seed}"))
    budget = Budget(options.bound)
    going: list[tuple[str, ...]] = []
    answer: Assignment | NoFit | PlacementError | None
    if family == "preemption":
        found = bound.victims_for(gang, snapshot, options, budget)
        if found is not None:
            # A set is printed in the order of its hashes.
            going = [each.pods for each in found.going]
            snapshot = snapshot.without(snapshot.nodes, lambda use: use.uid in found.pods)
        answer = None if found is None else found.assignment
    else:
        try:
            answer = place(gang, snapshot, options, budget)
        except PlacementError as refused:
            answer = refused
    if isinstance(answer, Assignment) and check(answer, gang, snapshot):
        return FAULTY
    return hashlib.sha256(repr((answer, going, budget.spent)).encode()).hexdigest()


def _asked(number: int, args: argparse.Namespace) -> list[str]:
    """What a process of its own answers. number: decides its hash seed and how many threads it may use."""
    threads = str((1, 2, 8, 64)[number % 4])
    env = os.environ | {"PYTHONHASHSEED": str(number * 7919)} | dict.fromkeys(_THREADS, threads)
    given = [f"--draws={args.draws}", f"--seed={args.seed}"]
    command = [sys.executable, "-m", "hack.benchmarks.determinism", "--one", *given]
    return subprocess.run(command, env=env, check=True, capture_output=True, text=True).stdout.splitlines()


if __name__ == "__main__":
    sys.exit(main())
