"""Random preemptions: which gangs are left half dead, and with how many GPUs, by topogate and without it.

A real kube-scheduler and real controllers, simulated nodes, in cells of four that only the cell's own pods
may use. Each cell is filled with gangs of low priority (Jobs), then a gang of high priority comes. Once it
runs and nothing moves any more, every gang is counted that has some of its pods on nodes, not all. Without
topogate kube-scheduler preempts pod by pod; with it the pods are gated. The same seed draws the same gangs.
"""

import argparse
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, Final

from hack.local import nodes
from hack.local.access import ClusterError
from hack.local.build import announce
from hack.local.cluster import Cluster
from hack.local.install import Installation, system_node
from hack.local.nodes import SimulatedNode
from hack.soaks.sweepers import make_namespace, start_sweepers
from labeler.contract import keys
from webhook.kube.client import ApiError

CELL: Final = "bench.topogate.io/cell"
GPUS: Final = "nvidia.com/gpu"
CELL_NODES: Final = 4
NODE_GPUS: Final = 8
STILL_SECONDS: Final = 8.0
"""Nothing has moved for so long since the high gangs run: then what is half dead stays so."""
WAIT_SECONDS: Final = 400.0
_NAMESPACE: Final = "bench-preemption"
_JOBS: Final = f"/apis/batch/v1/namespaces/{_NAMESPACE}/jobs"
_PODS: Final = f"/api/v1/namespaces/{_NAMESPACE}/pods"

Json = dict[str, Any]


@dataclass(frozen=True)
class DrawnGang:
    """A gang: pods of so many GPUs each, in a cell."""

    name: str
    cell: str
    pods: int
    gpus: int
    priority: str


@dataclass
class LeftPartlyRunning:
    """What was left once the high gangs ran. moved: seconds until nothing moved any more, of each round."""

    preemptions: int = 0
    not_placed: int = 0
    partly_running: int = 0
    gpus_lost: int = 0
    evicted: int = 0
    gpus: int = 0
    moved: list[float] = field(default_factory=list)


def draw(cell: str, dice: random.Random) -> tuple[list[DrawnGang], DrawnGang]:
    """The gangs that fill a cell, and the one that comes then."""
    gpus = dice.choice((4, 8))
    slots = CELL_NODES * NODE_GPUS // gpus
    low: list[DrawnGang] = []
    while slots:
        size = min(slots, dice.randint(1, 5))
        tier = dice.choice(("gpu-low-priority", "gpu-medium-priority"))
        low.append(DrawnGang(f"{cell}-low-{len(low)}", cell, size, gpus, tier))
        slots -= size
    high = DrawnGang(f"{cell}-high", cell, dice.randint(1, 3), dice.choice((gpus, 8)), "gpu-high-priority")
    return low, high


def job(gang: DrawnGang, *, gated: bool) -> Json:
    """The Job of a gang."""
    spec: Json = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 1,
        "priorityClassName": gang.priority,
        "nodeSelector": {CELL: gang.cell},
        "containers": [{"name": "c", "image": "x", "resources": {"limits": {GPUS: gang.gpus}}}],
    }
    if gated:
        spec["schedulingGates"] = [{"name": keys.GATE}]
    return {
        "metadata": {"name": gang.name},
        "spec": {
            "completionMode": "Indexed",
            "completions": gang.pods,
            "parallelism": gang.pods,
            "backoffLimit": 1000,
            "template": {"spec": spec},
        },
    }


class PreemptionBench:
    """Rounds on one cluster."""

    def __init__(self, cluster: Cluster, cells: int) -> None:
        self.cluster, self.cells = cluster, [f"c{number}" for number in range(cells)]
        self.api = cluster.api()

    def set_up(self) -> None:
        """Install the manifests, and register the cells' nodes, each cell a block."""
        nodes.register(self.api, [system_node()], labelled=False)
        Installation(self.cluster).apply()
        make_namespace(self.cluster, _NAMESPACE, {})

        def create(cell: str) -> None:
            for number in range(CELL_NODES):
                node = SimulatedNode(f"{cell}-n{number}", (cell, "s", f"h{number}"), False, NODE_GPUS)
                body = node.manifest({**node.topology_labels, CELL: cell})
                self.api.request("POST", "/api/v1/nodes", body=body)

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(create, self.cells))

    def round(self, seed: str, found: LeftPartlyRunning, *, gated: bool) -> None:
        """Fill all cells, let the high gangs come, count, and clear."""
        dice = random.Random(seed)
        drawn = [draw(cell, dice) for cell in self.cells]
        low = [gang for gangs, _ in drawn for gang in gangs]
        high = [gang for _, gang in drawn]
        self._create(low, gated=gated)
        self._wait("the low gangs to run", lambda: self._all_run(low))
        before = {pod["metadata"]["uid"] for pod in self._bound()}
        began = time.monotonic()
        self._create(high, gated=gated)
        self._wait_still(high)
        found.moved.append(time.monotonic() - began - STILL_SECONDS)
        on = self._on_nodes()
        found.preemptions += len(high)
        found.not_placed += sum(on[gang.name] < gang.pods for gang in high)
        partly = [gang for gang in (*low, *high) if 0 < on[gang.name] < gang.pods]
        found.partly_running += len(partly)
        found.gpus_lost += sum(on[gang.name] * gang.gpus for gang in partly)
        found.evicted += len(before - {pod["metadata"]["uid"] for pod in self._bound()})
        found.gpus += len(self.cells) * CELL_NODES * NODE_GPUS
        self._clear()

    def _create(self, gangs: list[DrawnGang], *, gated: bool) -> None:
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda gang: self.api.request("POST", _JOBS, body=job(gang, gated=gated)), gangs))

    def _bound(self) -> Iterator[Json]:
        for pod in self.api.json("GET", _PODS)["items"]:
            stays = pod["spec"].get("nodeName") and not pod["metadata"].get("deletionTimestamp")
            if stays and pod["status"].get("phase") not in ("Succeeded", "Failed"):
                yield pod

    def _on_nodes(self) -> Counter[str]:
        """By gang, how many of its pods have a node and stay."""
        return Counter(pod["metadata"]["labels"]["job-name"] for pod in self._bound())

    def _wait(self, what: str, holds: Callable[[], bool]) -> None:
        """As Cluster.wait_for, which asks more often than so many pods can be read."""
        deadline = time.monotonic() + WAIT_SECONDS
        while not holds():
            if time.monotonic() > deadline:
                raise ClusterError(f"waited {WAIT_SECONDS:.0f} s in vain for {what}")
            time.sleep(0.5)

    def _all_run(self, gangs: list[DrawnGang]) -> bool:
        on = self._on_nodes()
        return all(on[gang.name] == gang.pods for gang in gangs)

    def _wait_still(self, high: list[DrawnGang]) -> None:
        """Until the high gangs run and no pod has come, gone or moved for some time."""
        last, since, deadline = None, time.monotonic(), time.monotonic() + WAIT_SECONDS
        while time.monotonic() < deadline:
            seen = {
                (
                    pod["metadata"]["uid"],
                    pod["spec"].get("nodeName"),
                    bool(pod["metadata"].get("deletionTimestamp")),
                )
                for pod in self.api.json("GET", _PODS)["items"]
            }
            if seen != last:
                last, since = seen, time.monotonic()
            elif time.monotonic() - since >= STILL_SECONDS and self._all_run(high):
                return
            time.sleep(0.5)

    def _clear(self) -> None:
        self._wait("all pods to be gone", self._is_clear)

    def _is_clear(self) -> bool:
        """Delete all Jobs that are left; tells whether all pods are gone."""
        query = {"propagationPolicy": "Background"}
        try:
            self.api.request("DELETE", _JOBS, query=query, timeout_seconds=WAIT_SECONDS)
        except ApiError as error:  # a loaded API server does not end with some hundred within its minute
            if error.status not in (0, 504):
                raise
        return not self.api.json("GET", _PODS)["items"]


def report(name: str, found: LeftPartlyRunning) -> None:
    """Print one way's figures."""
    share = 100 * found.gpus_lost / found.gpus
    moved = sorted(found.moved)
    print(
        f"{name:24}{found.preemptions:5} preemptions, {found.not_placed} not placed; "
        f"partially running gangs: {found.partly_running}, which hold {found.gpus_lost} of {found.gpus} GPUs "
        f"({share:.1f} %); pods lost: {found.evicted}; "
        f"still after {moved[len(moved) // 2]:.1f} s ({moved[0]:.1f} to {moved[-1]:.1f})"
    )


def main(argv: list[str] | None = None) -> int:
    """Run hack/bench preemption; returns the exit status: 1 if topogate left a gang half dead."""
    parser = argparse.ArgumentParser(prog="hack/bench preemption", description=__doc__.split("\n")[0])
    parser.add_argument("--preemptions", type=int, default=500)
    parser.add_argument("--cells", type=int, default=25, help="preemptions at once")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(argv)
    rounds = -(-options.preemptions // options.cells)
    alone, ours = LeftPartlyRunning(), LeftPartlyRunning()
    with Cluster.fresh() as cluster:
        bench = PreemptionBench(cluster, options.cells)
        bench.set_up()
        (sweeper,) = start_sweepers(Installation(cluster), {}, 1)
        for number in range(rounds):
            sweeper.stop()  # it would evict what kube-scheduler leaves half dead
            bench.round(f"{options.seed} {number}", alone, gated=False)
            sweeper.start()
            bench.round(f"{options.seed} {number}", ours, gated=True)
            for name, found in (("without topogate", alone), ("with it", ours)):
                announce(f"  round {number + 1}, {name}: {replace(found, moved=[])}")
        sweeper.stop()
    report("kube-scheduler alone", alone)
    report("with topogate", ours)
    return 1 if ours.partly_running else 0


if __name__ == "__main__":
    sys.exit(main())
