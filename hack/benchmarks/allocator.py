"""The allocator under the kubelet's real device manager: time a container, memory, and not one wrong card.

Pods of one to three containers, with plans of cards and tiles and without, come and go, while either side or
both are killed at random; each container's device files and mask are checked against its annotation. It ends
with 1 if one of them saw another card or tile, or if pods that cannot be told apart were not refused.
"""

import argparse
import statistics
import sys
import tempfile
from pathlib import Path

from hack.allocating import run, site
from hack.allocating.machine import Machine, lacking
from hack.local.cluster import Cluster


def main() -> int:
    """Run it; returns 1 if anything was wrong, 2 if it cannot be run here."""
    parser = argparse.ArgumentParser(prog="hack/bench allocator", description=__doc__)
    parser.add_argument("--allocations", type=int, default=10_000, help="containers served (default: 10000)")
    parser.add_argument("--kill-every", type=int, default=40, metavar="PODS", help="mean pods between kills")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    if reason := lacking():
        print(f"hack/bench allocator: {reason}", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="topogate-allocator-") as name:
        count = measure(Path(name), options.allocations, options.kill_every, options.seed)
    report(count)
    return 1 if count.wrong else 0


def measure(folder: Path, allocations: int, kill_every: int, seed: int) -> run.Count:
    """A run on a control plane of its own in `folder`."""
    cluster = Cluster.up(folder / "cluster", tied=True)
    machine_folder = folder / "machine"
    machine_folder.mkdir()
    try:
        site.prepare(cluster, machine_folder / "token")
        with Machine(cluster, machine_folder, site.CARDS, f"--shares={site.SHARES}") as machine:
            running = run.AllocationRun(cluster, machine, seed)
            running.start()
            return running.many(allocations, kill_every)
    finally:
        cluster.down()


def report(count: run.Count) -> None:
    """What a person wants to know."""
    calls = sorted(count.seconds)
    print(f"containers served        {count.allocations}, {count.planned} of them by a plan")
    print(f"wrong cards or tiles     {len(count.wrong)}")
    for each in count.wrong[:20]:
        print(f"  {each}")
    print(f"pods refused             {count.refused}, of which ambiguous by intent {count.ambiguous_refused}")
    for reason, times in count.reasons.most_common():
        print(f"  {times:5} {reason}")
    kills = ", ".join(f"{victim} {times}" for victim, times in sorted(count.kills.items()))
    print(f"kills                    {kills or 'none'}; {count.interrupted} in the middle of an admission")
    again = count.registered_after
    print(f"registered again after   {statistics.median(again):.2f} s (at most {max(again):.2f} s)")
    print(
        f"time a container         {1000 * statistics.median(calls):.1f} ms, "
        f"99 of 100 within {1000 * calls[int(0.99 * len(calls))]:.0f} ms"
    )
    print(f"memory at most           {count.peak_bytes / 2**20:.1f} MiB resident")


if __name__ == "__main__":
    sys.exit(main())
