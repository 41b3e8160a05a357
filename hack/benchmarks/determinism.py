"""Random realistic gangs, placed in many processes with different hash seeds and threads: the same answers?

Prints the gangs of which two processes gave different answers, and exits with 1 if there is any.
"""

import argparse
import hashlib
import os
import subprocess
import sys
import time
from collections import defaultdict

from hack.comparing.realistic_gangs import drawn
from webhook.placement import place

_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "HIGHS_NUM_THREADS")


def main(argv: list[str] | None = None) -> int:
    """Ask in each process, and compare."""
    parser = argparse.ArgumentParser(prog="hack/bench determinism", description=__doc__)
    parser.add_argument("--processes", type=int, default=20, metavar="N", help="processes (20)")
    parser.add_argument("--draws", type=int, default=40, metavar="N", help="gangs (40)")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="the first gang's seed (0)")
    parser.add_argument("--nodes", type=int, default=2000, metavar="N", help="nodes at most (2000)")
    parser.add_argument("--one", action="store_true", help="print a digest of each answer, in this process")
    args = parser.parse_args(argv)
    seeds = range(args.seed, args.seed + args.draws)
    if args.one:
        for seed in seeds:
            print(seed, digest(seed, args.nodes))
        return 0
    start = time.perf_counter()
    answers: dict[str, set[str]] = defaultdict(set)
    for number in range(args.processes):
        for line in _asked(number, args):
            asked, answer = line.split()
            answers[asked].add(answer)
    differing = [asked for asked, found in answers.items() if len(found) > 1]
    for each in differing:
        print(f"seed {each}: {len(answers[each])} answers")
    took = time.perf_counter() - start
    print(
        f"{len(answers)} gangs in {args.processes} processes: "
        f"{len(differing)} with different answers; {took:.0f} s"
    )
    return 1 if differing or len(answers) < args.draws else 0


def digest(seed: int, nodes: int) -> str:
    """Of all that placement answers about a drawn gang: nodes, cards, objective, proof, sentence."""
    draw = drawn(seed, nodes)
    return hashlib.sha256(repr(place(draw.gang, draw.snapshot)).encode()).hexdigest()


def _asked(number: int, args: argparse.Namespace) -> list[str]:
    """What a process of its own answers. number: decides its hash seed and how many threads it may use."""
    threads = str((1, 2, 8, 64)[number % 4])
    env = os.environ | {"PYTHONHASHSEED": str(number * 7919)} | dict.fromkeys(_THREADS, threads)
    given = [f"--draws={args.draws}", f"--seed={args.seed}", f"--nodes={args.nodes}"]
    command = [sys.executable, "-m", "hack.benchmarks.determinism", "--one", *given]
    return subprocess.run(command, env=env, check=True, capture_output=True, text=True).stdout.splitlines()


if __name__ == "__main__":
    sys.exit(main())
