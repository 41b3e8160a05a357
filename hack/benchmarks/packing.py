"""Whether unlike pods fit at all: the searches of the placement core beside OR-Tools' CP-SAT, same instances.

Ours is placement as it is, by its bound; the rival is the packing alone, without a model of topology. CP-SAT
is no dependency: pip install "ortools>=9.15,<10" for its half. Times are CPU seconds of this process.
"""

import argparse
import importlib.util
import resource
import statistics
import sys
import time
from collections.abc import Callable, Iterable
from typing import TypeVar

from hack.benchmarks.placing.row import timed
from hack.comparing.carded import cp_sat as cp_sat_cards
from hack.comparing.carded import planted_cards
from hack.comparing.hostile import packed
from hack.comparing.packings import Packing, cp_sat, loose, planted
from webhook.placement import Assignment, Gang, Options, Snapshot, check, place

Given = TypeVar("Given")

CARDED = ((4, 4, 0), (6, 4, 2), (10, 6, 0), (10, 6, 2), (20, 6, 0), (20, 8, 2), (20, 10, 2), (20, 12, 3))
"""Nodes, kinds, and cpu and memory to spare, of gangs that want cards."""


def ours(packing: Packing) -> bool | None:
    """Whether all pods fit, by the placement core; None: not decided."""
    return decided(packed(packing))


def decided(instance: tuple[Gang, Snapshot]) -> bool | None:
    """The same of a gang."""
    asked, snapshot = instance
    found = place(asked, snapshot, Options())
    if isinstance(found, Assignment):
        assert not check(found, asked, snapshot)
        return True
    return False if found.proven else None


def measured(name: str, what: str, packings: Iterable[Given], decide: Callable[[Given], bool | None]) -> None:
    """One line: how many were decided, and the CPU that it took."""
    seconds, answers = [], []
    for packing in packings:
        taken, answer = timed(decide, packing)
        seconds.append(taken)
        answers.append(answer)
    print(
        f"{name:32} {what:7} fit {answers.count(True)}, do not {answers.count(False)}, "
        f"open {answers.count(None)}; CPU {statistics.median(seconds):.3f} s, at most {max(seconds):.3f} s",
        flush=True,
    )


def main(argv: list[str] | None = None) -> int:
    """Print the measurements."""
    parser = argparse.ArgumentParser(prog="hack/bench packing", description=__doc__)
    parser.add_argument("--instances", type=int, default=6, help="of each kind")
    parser.add_argument("--steps", type=float, default=1.0, help="deterministic seconds of CP-SAT")
    args = parser.parse_args(argv)
    seeds = range(args.instances)
    kinds = {
        f"{nodes} nodes, {kinds} kinds, {what}": [planted(nodes, kinds, slack, seed) for seed in seeds]
        for nodes, kinds in ((6, 3), (10, 4), (20, 6), (50, 8), (500, 3))
        for what, slack in (("full", 0), ("1 too few", -1))
    }
    kinds["12 nodes, 8 kinds, 1 spare"] = [planted(12, 8, 1, seed) for seed in seeds]
    kinds["24 nodes, 12 kinds, 3 spare"] = [planted(24, 12, 3, seed) for seed in seeds]
    kinds["20 nodes, 12 kinds, 1 spare"] = [planted(20, 12, 1, seed) for seed in seeds]
    kinds["50 nodes, 12 kinds, 1 spare"] = [planted(50, 12, 1, seed) for seed in seeds]
    kinds["500 nodes, 3 kinds of 130"] = [loose(500, 3, 130, seed) for seed in seeds]
    kinds["500 nodes, 50 kinds of 20"] = [loose(500, 50, 20, seed) for seed in seeds]
    rival = importlib.util.find_spec("ortools") is not None
    for name, packings in kinds.items():
        measured(name, "ours", packings, ours)
    carded = {
        f"{nodes} nodes, {some} kinds, {slack} spare, cards": [
            planted_cards(nodes, some, slack, seed) for seed in seeds
        ]
        for nodes, some, slack in CARDED
    }
    for name, gangs in carded.items():
        measured(name, "ours", gangs, decided)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(f"memory of this process so far: {memory} MB")
    if not rival:
        print('CP-SAT is not installed: pip install "ortools>=9.15,<10"')
        return 0
    start = time.process_time()
    importlib.import_module("ortools.sat.python.cp_model")
    print(f"loading CP-SAT, once in a process: {time.process_time() - start:.2f} s")
    for name, packings in kinds.items():
        measured(name, "CP-SAT", packings, lambda packing: cp_sat(packing, args.steps))
    for name, gangs in carded.items():
        measured(name, "CP-SAT", gangs, lambda gang: cp_sat_cards(*gang, args.steps))
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(f"memory of this process so far: {memory} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
