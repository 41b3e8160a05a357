"""Random realistic gangs, each placed by topogate and by a simple first-fit-decreasing: where topogate loses.

Prints each gang of which topogate's answer is worse in the documented order down to the leftover, or not
there, with the seed that draws it again, and how many CPU seconds each placer took. Exits with 1 if any is.
"""

import argparse
import sys
import time
from collections import Counter

from hack.comparing.losses import compare
from hack.comparing.realistic_gangs import drawn


def main(argv: list[str] | None = None) -> int:
    """Print the losses and the totals."""
    parser = argparse.ArgumentParser(prog="hack/bench floor", description=__doc__)
    parser.add_argument("--draws", type=int, default=2000, metavar="N", help="gangs to draw (2000)")
    parser.add_argument(
        "--seed", type=int, default=0, metavar="S", help="the first seed; the others follow (0)"
    )
    parser.add_argument("--nodes", type=int, default=20_000, metavar="N", help="nodes at most (20000)")
    args = parser.parse_args(argv)
    counts: Counter[str] = Counter()
    start = time.process_time()
    for seed in range(args.seed, args.seed + args.draws):
        found = compare(drawn(seed, args.nodes))
        if found.loss:
            counts["lost"] += 1
            print(f"seed {seed}: {found.loss}", flush=True)
        elif found.ours is None:
            counts["placed by neither"] += 1
        else:
            counts["equal" if found.ours == found.floor else "better"] += 1
            counts["proven"] += found.proven
    summary = ", ".join(f"{count} {what}" for what, count in sorted(counts.items()))
    print(f"{args.draws} gangs from seed {args.seed}: {summary}; {time.process_time() - start:.0f} s of CPU")
    return 1 if counts["lost"] else 0


if __name__ == "__main__":
    sys.exit(main())
