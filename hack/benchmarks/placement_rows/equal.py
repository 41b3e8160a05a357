"""Clusters of equal nodes in equal blocks, as new ones are, beside simple placers in the same run.

Each gang is asked once more after a first answer, so that the caches of the snapshot are warm. Identical pods
are measured beside a plain greedy, all others beside first-fit in single domains.
"""

import statistics
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Final

from hack.benchmarks.placement_rows import instances
from hack.benchmarks.placement_rows.row import Row, answered, timed
from hack.comparing.different_pods import different_pods
from hack.comparing.first_fit import FirstFit
from hack.comparing.greedy import place_greedily
from webhook.placement import Gang, Member, NodeInfo, Options, PodClass, Snapshot, check, place
from webhook.placement.model import Assignment, NoFit, vector

BLOCK, SUBBLOCK = 160, 16
"""Nodes of each."""

SLOWEST: Final = 5.0
"""Seconds after which a simple placer is not measured again."""


def _pod(gpus: int, cpu: int = 1000) -> PodClass:
    return PodClass(vector({"cpu": cpu, "pods": 1, instances.GPU: gpus}))


def _gang(*parts: tuple[int, PodClass]) -> Gang:
    kinds = [kind for count, kind in parts for _ in range(count)]
    return Gang("g", tuple(Member(f"p{rank}", rank, kind) for rank, kind in enumerate(kinds)))


GANGS: Final[Mapping[str, Gang]] = {
    "1 pod of 1 GPU": _gang((1, _pod(1))),
    "16 pods of 8 GPUs": _gang((16, _pod(8))),
    "8 pods of 8 GPUs and a launcher": _gang((8, _pod(8)), (1, instances.LAUNCHER)),
    "1000 pods of 1 GPU": _gang((1000, _pod(1))),
    "128 pods of 1 GPU, 32 of 4": _gang((128, _pod(1)), (32, _pod(4))),
    "600 pods of 1 GPU, 100 of 4": _gang((600, _pod(1)), (100, _pod(4))),
    "10 servers of 10 CPUs, 60 pods of 1 GPU": _gang((10, _pod(0, 10_000)), (60, _pod(1))),
    "60 different pods": replace(different_pods(60, 0, None), name="g"),
    "500 different pods": replace(different_pods(500, 0, None), name="g"),
}


def rows(repeats: int, quick: bool) -> Iterator[Row]:
    """Each gang on clusters of several sizes."""
    for nodes in (4800, 20_000) if quick else (4800, 20_000, 100_000):
        snapshot = Snapshot.build(_cluster(nodes), [])
        for what, gang in GANGS.items():
            if nodes <= 20_000 or "different" not in what:
                yield _row(f"{nodes} equal nodes, {what}", gang, snapshot, repeats)


def _cluster(count: int) -> list[NodeInfo]:
    amounts = {"cpu": 96_000, "memory": 2**40, "pods": 110, instances.GPU: 8}
    made = (instances.node(n, f"b{n // BLOCK}", f"r{n // SUBBLOCK}", 8, 8) for n in range(count))
    return [replace(each, allocatable=amounts) for each in made]


def _row(what: str, gang: Gang, snapshot: Snapshot, repeats: int) -> Row:
    found = _placed(gang, snapshot)
    assert isinstance(found, NoFit) or not check(found, gang, snapshot)
    baseline = _baseline(gang)
    seconds: list[float] = []
    others: list[float] = []
    for _ in range(repeats):
        seconds.append(timed(_placed, gang, snapshot)[0])
        if not others or max(others) < SLOWEST:
            others.append(timed(baseline, gang, snapshot)[0])
    name = "a plain greedy" if baseline is place_greedily else "first-fit"
    note = f"{statistics.median(seconds) / statistics.median(others):.2f} of {name}"
    return Row("equal", what, tuple(seconds), answer=answered(found), note=note)


def _placed(gang: Gang, snapshot: Snapshot) -> Assignment | NoFit:
    return place(gang, snapshot, Options())


def _baseline(gang: Gang) -> Callable[[Gang, Snapshot], object]:
    return place_greedily if len({member.pod_class for member in gang.members}) == 1 else _first_fit


def _first_fit(gang: Gang, snapshot: Snapshot) -> object:
    return FirstFit(gang, snapshot).place()
