"""What placing a gang costs, and whether the answer is the optimum, on instances of several kinds.

Times include everything from the snapshot to the assignment: eligibility, capacities, search, ranks. "one
block changed" is the next gang after a pod appeared in one block. Times are CPU seconds of this process, so
that other work on the machine does not count, the median and in brackets the range; absolute figures belong
to the machine all the same, ratios are meant to be compared. Python's collector runs as seldom as in the
sweeper.
"""

import argparse
import importlib
import itertools
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from hack.benchmarks.placement_rows import baselines, bound, heterogeneous, homogeneous
from hack.benchmarks.placement_rows.row import Row, timed
from webhook.sweeper.process import seldom_collected

GROUPS: Final[Mapping[str, Callable[[int, bool], Iterator[Row]]]] = {
    "identical": homogeneous.sizes,
    "baselines": baselines.rows,
    "leaders": heterogeneous.leaders,
    "slices": heterogeneous.slices,
    "spread": heterogeneous.spread,
    "bound": bound.rows,
}


@seldom_collected()
def main(argv: list[str] | None = None) -> int:
    """Print the measurements."""
    parser = argparse.ArgumentParser(prog="hack/bench placement", description=__doc__)
    parser.add_argument(
        "--rows", action="append", choices=[*GROUPS], metavar="GROUP",
        help=f"only these groups of rows, may be given again: {', '.join(GROUPS)}",
    )  # fmt: skip
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="no 100,000 nodes, and fewer instances")
    args = parser.parse_args(argv)
    seconds, _ = timed(importlib.import_module, "webhook.placement.homogeneous.lattice")
    for group in args.rows or GROUPS:
        rows = GROUPS[group](args.repeats, args.quick)
        once = [Row(group, "loading numpy, once in a process", (seconds,))] if group == "identical" else []
        for row in itertools.chain(once, rows):
            print(row.line(), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
