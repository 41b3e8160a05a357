"""What the choice of nodes does to a whole cluster: the default, the headroom score, kube-scheduler's score.

Tasks of one worker come and go on simulated nodes, in simulated time. Each policy gets the same tasks in the
same order: first come, first served, and a task that does not fit waits without holding up the others.
"default" is topogate's best fit; "headroom" its mode of that name (the node with the best score of cpu,
memory and GPUs, 0 to 100); "kube-scheduler" adds its LeastAllocated and BalancedAllocation scores over cpu
and memory, as its default profile does, which does not look at GPUs. No clock is read: a seed has one answer.
"""

import argparse
import heapq
import random
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from labeler.contract import keys
from webhook.placement import (
    Assignment,
    Gang,
    Member,
    Mode,
    NodeInfo,
    Options,
    PodClass,
    Snapshot,
    Usage,
    place,
    vector,
)

GPU = "nvidia.com/gpu"
GIB = 2**30
CPU, MEMORY, GPUS = 96_000, 1024 * GIB, 8
SIZES = ((1, 45), (2, 20), (4, 20), (8, 15))
"""GPUs of a task, and how many in a hundred tasks ask for so many."""


@dataclass(frozen=True)
class SimulatedTask:
    """When it comes, how long it runs (simulated minutes), and what it asks for."""

    number: int
    comes: float
    runs: float
    kind: PodClass

    @property
    def gpus(self) -> int:
        return dict(self.kind.requests)[GPU]


@dataclass
class PolicyOutcome:
    """Of one policy. used: share of GPUs in use, weighted by time, while tasks still come."""

    used: float = 0.0
    waited: int = 0
    waits: list[float] = field(default_factory=list)
    whole: float = 0.0
    whole_waits: list[float] = field(default_factory=list)


Choice = Callable[[SimulatedTask, Snapshot], str | None]


def tasks(count: int, load: float, nodes: int, seed: int) -> list[SimulatedTask]:
    """Tasks that would keep a share `load` of all GPUs busy if none ever waited."""
    dice = random.Random(seed)
    sizes = [size for size, share in SIZES for _ in range(share)]
    mean = statistics.mean(sizes) * 60.0
    between = mean / (load * nodes * GPUS)
    made, now = [], 0.0
    for number in range(count):
        now += dice.expovariate(1 / between)
        gpus = dice.choice(sizes)
        cpu = gpus * dice.choice((2_000, 4_000, 8_000, 12_000))
        memory = gpus * dice.choice((16, 32, 64, 128)) * GIB
        kind = PodClass(vector({"cpu": cpu, "memory": memory, "pods": 1, GPU: gpus}))
        made.append(SimulatedTask(number, now, dice.expovariate(1 / 60.0), kind))
    return made


def cluster(count: int) -> list[NodeInfo]:
    """Equal nodes, eight a subblock, four subblocks a block."""
    amounts = {"cpu": CPU, "memory": MEMORY, "pods": 110, GPU: GPUS}
    return [
        NodeInfo(
            f"n{number:03}",
            dict(zip(keys.GCE_TOPOLOGY, (f"b{number // 32}", f"s{number // 8}", f"h{number}"), strict=True)),
            allocatable=amounts,
        )
        for number in range(count)
    ]


def fitting(task: SimulatedTask, snapshot: Snapshot) -> list[str]:
    """Nodes with capacity, by name."""
    need = task.kind.requests
    return [
        name
        for name, state in sorted(snapshot.nodes.items())
        if all(state.free.get(resource, 0) >= amount for resource, amount in need)
    ]


def by_default(task: SimulatedTask, snapshot: Snapshot, options: Options | None = None) -> str | None:
    """The placement core's answer."""
    found = place(Gang(f"t{task.number}", (Member("m", 0, task.kind),)), snapshot, options)
    return found.placed[0].node if isinstance(found, Assignment) else None


def by_headroom(task: SimulatedTask, snapshot: Snapshot) -> str | None:
    """The placement core's answer in its mode headroom."""
    return by_default(task, snapshot, Options(mode=Mode.HEADROOM))


def by_kube_scheduler(task: SimulatedTask, snapshot: Snapshot) -> str | None:
    """The best of LeastAllocated and BalancedAllocation, each 0 to 100 over cpu and memory, added."""
    need = dict(task.kind.requests)

    def score(name: str) -> float:
        state = snapshot.nodes[name]
        left = [
            (state.free[resource] - need[resource]) / most
            for resource, most in (("cpu", CPU), ("memory", MEMORY))
        ]
        least = sum(100 * share for share in left) / 2
        balanced = 100 * (1 - abs(left[0] - left[1]) / 2)
        return int(least) + int(balanced)

    return min(fitting(task, snapshot), key=lambda name: (-score(name), name), default=None)


POLICIES: dict[str, Choice] = {
    "default": by_default,
    "headroom": by_headroom,
    "kube-scheduler": by_kube_scheduler,
}


def simulate(asked: Sequence[SimulatedTask], nodes: Sequence[NodeInfo], choose: Choice) -> PolicyOutcome:
    """Let the tasks come and go under one policy."""
    outcome = PolicyOutcome()
    running: dict[int, tuple[str, SimulatedTask]] = {}
    ends: list[tuple[float, int]] = []
    waiting: list[SimulatedTask] = []
    snapshot = Snapshot.build(nodes, [])
    total, last, area, holes = len(nodes) * GPUS, 0.0, 0.0, 0.0
    coming = list(asked)
    horizon = asked[-1].comes
    while coming or waiting:
        now = min(coming[0].comes if coming else float("inf"), ends[0][0] if ends else float("inf"))
        if now <= horizon:
            area += (now - last) * sum(task.gpus for _, task in running.values())
            holes += (now - last) * sum(state.free.get(GPU, 0) == GPUS for state in snapshot.nodes.values())
            last = now
        if coming and coming[0].comes == now:
            waiting.append(coming.pop(0))
        else:
            _, number = heapq.heappop(ends)
            del running[number]
        left = []
        for task in waiting:
            usage = [
                (node, Usage(dict(pod_and_node.kind.requests))) for node, pod_and_node in running.values()
            ]
            snapshot = Snapshot.build(nodes, usage, previous=snapshot)
            node = choose(task, snapshot)
            if node is None:
                left.append(task)
                continue
            running[task.number] = (node, task)
            heapq.heappush(ends, (now + task.runs, task.number))
            outcome.waits.append(now - task.comes)
            outcome.waited += now > task.comes
            if task.gpus == GPUS:
                outcome.whole_waits.append(now - task.comes)
        waiting = left
    outcome.used = area / (horizon * total)
    outcome.whole = holes / horizon
    return outcome


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="hack/bench headroom", description=__doc__)
    parser.add_argument("--tasks", type=int, default=1000)
    parser.add_argument("--nodes", type=int, default=32)
    parser.add_argument("--load", type=float, nargs="*", default=[0.6, 0.8, 0.95], help="shares of all GPUs")
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    nodes = cluster(options.nodes)
    print(
        f"{options.tasks} tasks on {options.nodes} nodes of {GPUS} GPUs; medians over {options.seeds} seeds"
    )
    print(
        f"{'load':>5} {'policy':16} {'GPUs in use':>11} {'tasks that wait':>15} {'mean wait':>10} "
        f"{'of whole nodes':>14} {'nodes wholly free':>17}"
    )
    for load in options.load:
        for name, choose in POLICIES.items():
            found = [
                simulate(tasks(options.tasks, load, options.nodes, seed), nodes, choose)
                for seed in range(options.seeds)
            ]
            median = statistics.median
            print(
                f"{load:5.2f} {name:16} {median(o.used for o in found):11.1%} "
                f"{median(o.waited for o in found) / options.tasks:15.1%} "
                f"{median(statistics.mean(o.waits) for o in found):9.1f}m "
                f"{median(statistics.mean(o.whole_waits) for o in found):13.1f}m "
                f"{median(o.whole for o in found):17.1f}",
                flush=True,
            )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
