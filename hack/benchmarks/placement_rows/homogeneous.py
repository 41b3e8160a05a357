"""Identical pods: sizes of gang and cluster."""

from collections.abc import Iterator

from hack.benchmarks.placement_rows import instances
from hack.benchmarks.placement_rows.row import Row, alternated, answered


def sizes(repeats: int, quick: bool) -> Iterator[Row]:
    """Cold, and after a pod appeared in one block."""
    asked = [(1000, 1, 100), (5000, 1, 128), (5000, 1, 1000), (5000, 8, 1000), (5000, 8, 5000)]
    if not quick:
        asked += [(100_000, 1, 1000), (100_000, 8, 1000), (100_000, 8, 10_000), (100_000, 1, 10_000)]
    for nodes, slots, pods in asked:
        made, gang = instances.cluster(nodes, slots), instances.gang(pods, slots)
        runs = alternated({"": gang}, made, repeats)[""]
        what = f"{pods} pods, {nodes} nodes of {slots}"
        yield Row("identical", what, runs.seconds, runs.changed, answered(runs.found))
