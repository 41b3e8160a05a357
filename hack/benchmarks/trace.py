"""What placement leaves for later pods: a cluster that fills by a trace, and gangs that come and go.

Fills Alibaba's GPU cluster of 2023 by its own trace: the GPUs that topogate, best fit and FGD allocate.

Pods arrive in random order until they ask for 130 % of the GPUs, and none ends. Prints, for each placer, the
percentage of GPUs that are allocated when 90, 100 and 130 % have arrived, the pods placed, and the CPU time
for each.

With --gangs: 1,000 gangs arrive at 1,024 nodes and end, of which the last 700 count, at two loads. Prints,
for each placer, the means of gangs rejected, of free subblocks, and of the domains that a gang has.

With --moves: 300 gangs arrive after 300 others, and those that do not fit wait. Prints how long gangs of
more than 64 GPUs wait, and the GPU hours lost by moved gangs: without moves, by topogate, and by KAI's rule.
"""

import argparse
import itertools
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Final

from hack.comparing import node_scores
from hack.comparing.gang_arrivals import Placer as GangPlacer
from hack.comparing.gang_arrivals import Totals, run
from hack.comparing.gang_arrivals import arrivals as gang_arrivals
from hack.comparing.gang_placers import Simple, Topogate, first_fit, kueue, tight_fit
from hack.comparing.gang_queue import GangQueue, WaitTotals
from hack.comparing.move_rules import MOVE_RULES, is_movable
from hack.comparing.trace import NODES, PODS, TraceNode, TracePod, arrivals, read_nodes, read_pods
from hack.comparing.trace_placer import placed_by_topogate

PERCENT: Final = (90, 100, 130)

LOADS: Final = (0.9, 1.3)
"""GPUs of the gangs that run if none is rejected, as a part of the cluster."""

WARM_UP: Final = 300
COUNTED: Final = 700
"""Arrivals before those that count, and those that count."""

WAITING_LOADS: Final = (0.8, 0.9, 0.95)
MOVABLE_PERCENT: Final = (30, 100)
AFTERWARDS: Final = 150
"""Arrivals after those that count, in which the last of these may find their place."""

Placer = Callable[[list[TracePod], list[TraceNode]], Iterator[bool]]


def main(argv: list[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="hack/bench trace", description=__doc__)
    parser.add_argument("--nodes", type=Path, default=NODES, metavar="FILE", help="the published list")
    parser.add_argument(
        "--pods", type=Path, action="append", metavar="FILE", help="the published list, may be given again"
    )
    parser.add_argument("--seeds", type=int, default=1, metavar="N", help="orders of the pods (1)")
    parser.add_argument("--first-seed", type=int, default=42, metavar="S", help="the first seed (42)")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="take each N-th node alone (1)")
    parser.add_argument("--placer", action="append", choices=[*_PLACERS], help="only these placers")
    parser.add_argument("--gangs", action="store_true", help="gangs that come and go, instead of the trace")
    parser.add_argument("--moves", action="store_true", help="gangs that wait, and those moved for them")
    args = parser.parse_args(argv)
    seeds = range(args.first_seed, args.first_seed + args.seeds)
    if args.gangs:
        return _gangs(seeds)
    if args.moves:
        return _waiting_gangs(seeds)
    nodes = read_nodes(args.nodes.resolve(), args.every)
    for path in args.pods or [PODS]:
        for name in args.placer or _PLACERS:
            print(f"{path.stem} {name}: {_filled(path.resolve(), nodes, args, _PLACERS[name])}", flush=True)
    return 0


def _gangs(seeds: range) -> int:
    """Print the rows of gangs that come and go."""
    for load in LOADS:
        for name, make in _GANG_PLACERS.items():
            totals = Totals()
            start = time.process_time()
            for seed in seeds:
                run(make(), gang_arrivals(seed, WARM_UP + COUNTED, load), WARM_UP, totals)
            milliseconds = (time.process_time() - start) / len(seeds) / (WARM_UP + COUNTED) * 1e3
            print(f"load {load} {name}: {totals.line(len(seeds))}; {milliseconds:.2f} ms each", flush=True)
    return 0


def _waiting_gangs(seeds: range) -> int:
    """Print the rows of gangs that wait."""
    counted = range(WARM_UP, 2 * WARM_UP)
    rules = [(0, ("none", None)), *itertools.product(MOVABLE_PERCENT, MOVE_RULES.items())]
    for load in WAITING_LOADS:
        for percent, (name, rule) in rules:
            waits = WaitTotals()
            for seed in seeds:
                queue = GangQueue(rule, partial(is_movable, seed, percent), counted, waits)
                queue.run(gang_arrivals(seed, 2 * WARM_UP + AFTERWARDS, load))
            print(f"load {load}, {percent} % movable, {name}: {waits.line(len(seeds))}", flush=True)
    return 0


def _filled(path: Path, nodes: list[TraceNode], args: argparse.Namespace, placer: Placer) -> str:
    """The row of one placer: means over the seeds."""
    pods = read_pods(path)
    sums, seconds = [0.0] * (len(PERCENT) + 2), 0.0
    for seed in range(args.first_seed, args.first_seed + args.seeds):
        arriving = arrivals(pods, nodes, seed, PERCENT[-1])
        start = time.process_time()
        placed = list(placer(arriving, nodes))
        seconds += time.process_time() - start
        row = (*_percentages(arriving, placed, nodes), sum(placed), len(placed))
        sums = [one + more for one, more in zip(sums, row, strict=True)]
    *shares, done, every = (value / args.seeds for value in sums)
    each = ", ".join(f"{share:.2f} at {at} %" for share, at in zip(shares, PERCENT, strict=True))
    return f"{each}; {done:.0f} of {every:.0f} pods, {seconds / args.seeds / every * 1e3:.2f} ms a pod"


def _percentages(
    arriving: Iterable[TracePod], placed: Iterable[bool], nodes: Iterable[TraceNode]
) -> list[float]:
    """The percentage of GPUs allocated at each point of PERCENT."""
    every = sum(sum(node.cards) for node in nodes)
    points = iter(PERCENT)
    point, come, used = next(points), 0, 0
    found = []
    for pod, is_placed in zip(arriving, placed, strict=True):
        come += pod.thousandths
        used += pod.thousandths * is_placed
        if 100 * come >= point * every:
            found.append(100 * used / every)
            point = next(points, 10**9)
    return found


def _best_fit(arriving: list[TracePod], nodes: list[TraceNode]) -> Iterator[bool]:
    return node_scores.allocated(arriving, nodes, node_scores.best_fit)


def _fgd(arriving: list[TracePod], nodes: list[TraceNode]) -> Iterator[bool]:
    return node_scores.allocated(arriving, nodes, node_scores.fgd(arriving))


_PLACERS: Final[dict[str, Placer]] = {"topogate": placed_by_topogate, "best-fit": _best_fit, "fgd": _fgd}
_GANG_PLACERS: Final[dict[str, Callable[[], GangPlacer]]] = {
    "topogate": Topogate,
    "first-fit": partial(Simple, first_fit),
    "tight-fit": partial(Simple, tight_fit),
    "kueue": partial(Simple, kueue),
}

if __name__ == "__main__":
    sys.exit(main())
