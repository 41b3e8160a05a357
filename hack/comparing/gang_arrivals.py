"""Gangs that come and go on a cluster of equal nodes: a random sequence, and what a placer makes of it."""

import heapq
import math
import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

NODES: Final = 1024
GPUS: Final = 8
"""GPUs of a node."""

SUBBLOCK: Final = 16
BLOCK: Final = 128
"""Nodes of a subblock and of a block."""

LARGE: Final = (2, 2, 4, 4, 4, 8, 8, 8, 16, 16, 32, 12, 24, 6)
"""Pods of eight GPUs of a usual training job."""


class Role(NamedTuple):
    """Identical pods of a gang, each with so many GPUs."""

    pods: int
    gpus: int


class ArrivingGang(NamedTuple):
    """A gang that arrives. required: "subblock", "block" or "". lasts: in arrivals of others."""

    number: int
    roles: tuple[Role, ...]
    required: str
    lasts: float

    @property
    def gpus(self) -> int:
        """GPUs of all pods."""
        return sum(role.pods * role.gpus for role in self.roles)

    @property
    def is_gang(self) -> bool:
        """Whether it has several pods."""
        return sum(role.pods for role in self.roles) > 1


Taken = Counter[int]
"""GPUs taken on each node, by number."""


def arrivals(seed: int, count: int, load: float) -> list[ArrivingGang]:
    """Jobs whose GPUs, while they run, are so large a part of the cluster on average."""
    dice = random.Random(seed)
    drawn = [_drawn(dice) for _ in range(count)]
    needs = [sum(role.pods * role.gpus for role in roles) for roles in drawn]
    mean = load * NODES * GPUS * count / sum(needs)
    jobs = []
    for number, (roles, need) in enumerate(zip(drawn, needs, strict=True)):
        required = ""
        if sum(role.pods for role in roles) > 1 and dice.random() < 0.4:
            required = "subblock" if need <= SUBBLOCK * GPUS * 3 / 4 else "block"
        jobs.append(ArrivingGang(number, roles, required, mean * math.exp(dice.gauss(-0.5, 1.0))))
    return jobs


def _drawn(dice: random.Random) -> tuple[Role, ...]:
    kind = dice.random()
    if kind < 0.3:
        return (Role(1, dice.choice((1, 1, 2, 4))),)
    if kind < 0.45:
        return (Role(1, GPUS),)
    if kind < 0.6:
        return (Role(dice.choice((2, 4, 8, 16, 3, 6, 12)), dice.choice((1, 2, 4))),)
    if kind < 0.93:
        return (Role(dice.choice(LARGE), GPUS),)
    if kind < 0.96:
        return (Role(dice.choice((64, 96, 128)), GPUS),)
    sizes = (4, 8, 16)
    return Role(dice.choice(sizes), dice.choice((4, 2))), Role(dice.choice(sizes), dice.choice((1, 8)))


@dataclass
class Fleet:
    """The free GPUs of each node, and their sums over subblocks and blocks."""

    free: list[int] = field(default_factory=lambda: [GPUS] * NODES)

    def change(self, taken: Taken, sign: int) -> None:
        """Take GPUs (-1), or give them back (1)."""
        for node, gpus in taken.items():
            self.free[node] += sign * gpus
            assert 0 <= self.free[node] <= GPUS

    def sums(self, size: int) -> list[int]:
        """The free GPUs of each domain of so many nodes."""
        return [sum(self.free[start : start + size]) for start in range(0, NODES, size)]


@dataclass
class Totals:
    """Sums over the arrivals that count."""

    arrivals: int = 0
    rejected: int = 0
    subblocks: int = 0
    """Completely free subblocks after each arrival."""
    in_use: int = 0
    gangs: int = 0
    spread: list[int] = field(default_factory=lambda: [0, 0, 0])
    """Blocks, subblocks and nodes of placed gangs of several pods."""

    def add(self, fleet: Fleet, job: ArrivingGang, taken: Taken | None) -> None:
        """Count one arrival."""
        self.arrivals += 1
        self.subblocks += sum(free == SUBBLOCK * GPUS for free in fleet.sums(SUBBLOCK))
        self.in_use += NODES * GPUS - sum(fleet.free)
        self.rejected += taken is None
        if taken is not None and job.is_gang:
            self.gangs += 1
            numbers = [len({node // size for node in taken}) for size in (BLOCK, SUBBLOCK, 1)]
            self.spread = [one + more for one, more in zip(self.spread, numbers, strict=True)]

    def line(self, runs: int) -> str:
        """The means in words."""
        blocks, subblocks, nodes = (each / self.gangs for each in self.spread)
        return (
            f"rejected {self.rejected / runs:.1f}, free subblocks {self.subblocks / self.arrivals:.2f}, "
            f"in use {100 * self.in_use / self.arrivals / NODES / GPUS:.1f} %; a gang has "
            f"{blocks:.3f} blocks, {subblocks:.3f} subblocks, {nodes:.2f} nodes"
        )


class Placer(Protocol):
    """Places jobs on a fleet, and learns of their end."""

    def place(self, fleet: Fleet, job: ArrivingGang) -> Taken | None:
        """The GPUs that the job gets; None rejects it."""

    def end(self, job: ArrivingGang) -> None:
        """A job has ended."""


def run(placer: Placer, jobs: Iterable[ArrivingGang], warm_up: int, totals: Totals) -> None:
    """Let all jobs arrive; count those after the warm-up."""
    fleet = Fleet()
    running: list[tuple[float, int, ArrivingGang, Taken]] = []
    for now, job in enumerate(jobs):
        while running and running[0][0] <= now:
            _, _, done, freed = heapq.heappop(running)
            fleet.change(freed, 1)
            placer.end(done)
        taken = placer.place(fleet, job)
        if taken is not None:
            fleet.change(taken, -1)
            heapq.heappush(running, (now + job.lasts, now, job, taken))
        if now >= warm_up:
            totals.add(fleet, job, taken)
