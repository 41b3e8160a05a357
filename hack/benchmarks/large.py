"""What a very large cluster costs the sweeper: memory, the time to its first plan, and one pass of each kind.

65,000 nodes of 8 GPUs in blocks of 500, on 440 of which 200,000 pods run, half of them in gangs of 100 that
were placed before, as JSON through the real decoder and cache. The API server is played in this process
(hack/observing/synthetic_api.py), so making the objects counts with the times, and writes cost next to
nothing: how fast pods are released is measured by `hack/bench sweep`. A pass with a gang of 1,000 whole
nodes plans and releases it; 10,000 pods that wait are 100 gangs of 100, each to lie in one block, of which
none has capacity. Times are of the clock.
"""

import argparse
import itertools
import logging
import resource
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from hack.local import nodes
from hack.observing.synthetic_api import PODS, PlayedApi
from labeler.contract import keys
from webhook.configuration.settings import Settings
from webhook.extensions.known import SWITCHES
from webhook.kube import placements
from webhook.kube.placements import PlacementSpec
from webhook.kube.plan_pods import PlannedPod
from webhook.sweeper.context import Pass
from webhook.sweeper.observe.cache import NODES, ClusterCache
from webhook.sweeper.observe.membership import GangKey
from webhook.sweeper.process import lasting, seldom_collected
from webhook.sweeper.sweep import Sweeper

BLOCK: Final = 500
BOUND_GANG: Final = 100
FREE: Final = 60
"""Nodes of a block on which nothing runs."""
FULL: Final = 4
"""Pods of one or two GPUs that surely fit on a node; those that come on top have none."""
GPUS: Final = "nvidia.com/gpu"
NAMESPACE: Final = "bench"


def pod(
    name: str,
    gpus: int,
    node: str = "",
    gang: str = "",
    size: int = 0,
    level: str = "",
    namespace: str = NAMESPACE,
) -> dict[str, Any]:
    """A pod with about as much beside the point as real ones have: bound to a node, or gated."""
    environment = [{"name": f"VARIABLE_{number}", "value": "x" * 24} for number in range(16)]
    bound = {"nodeName": node} if node else {"schedulingGates": [{"name": keys.GATE}]}
    annotations = {keys.GANG_ANNOTATION: gang, keys.GANG_SIZE_ANNOTATION: str(size)} if gang else {}
    if level:
        annotations[keys.REQUIRED_TOPOLOGY_ANNOTATION] = level
    return {
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": f"00000000-0000-4000-8000-{name}",
            "resourceVersion": "1",
            "creationTimestamp": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "labels": {"app": "train", "example.com/worker": name},
            "annotations": annotations,
        },
        "spec": {
            **bound,
            "schedulerName": "default-scheduler",
            "priority": 0,
            "containers": [
                {
                    "name": "main",
                    "image": "registry.example.com/train:1",
                    "command": ["torchrun", "train.py"],
                    "env": environment,
                    "resources": {"limits": {GPUS: str(gpus)}, "requests": {GPUS: str(gpus), "cpu": "4"}},
                }
            ],
        },
        "status": {"phase": "Running" if node else "Pending"},
    }


def gated(gang: str, size: int, level: str = "") -> list[dict[str, Any]]:
    """A complete gang of gated pods that want whole nodes."""
    return [pod(f"{gang}-{rank}", 8, gang=gang, size=size, level=level) for rank in range(size)]


class PlayedCluster:
    """A sweeper over a played cluster."""

    def __init__(self, count: int, bound: int) -> None:
        """count: nodes; bound: pods that run on them."""
        self.grid = nodes.grid(nodes.Shape(count, max(1, count // BLOCK), 10))
        self.bound = bound
        self.api = PlayedApi({NODES: self._nodes, PODS: self._bound_pods, placements.ALL: self._plans})
        self.early: list[dict[str, Any]] = []

    def _nodes(self) -> Iterator[dict[str, Any]]:
        for number, node in enumerate(self.grid):
            made = node.manifest(node.topology_labels)
            made["metadata"] |= {"uid": f"uid-{node.name}", "resourceVersion": str(number + 1)}
            yield made

    def _bound_pods(self) -> Iterator[dict[str, Any]]:
        taken = [node.name for number, node in enumerate(self.grid) if number % BLOCK >= FREE]
        for number in range(self.bound):
            team, gang = f"team-{number // BOUND_GANG % 50}", f"bound-{number // BOUND_GANG}"
            gang_of_pod = gang if number < self.bound // 2 else ""
            earlier, place = divmod(number, len(taken))
            gpus = 1 + number % 2 if earlier < FULL else 0
            yield pod(f"bound-{number}", gpus, taken[place], gang_of_pod, BOUND_GANG, namespace=team)
        yield from self.early

    def _plans(self) -> Iterator[dict[str, Any]]:
        """Of the gangs of the bound pods; what becomes of them is written in the first passes."""
        pods = itertools.islice(self._bound_pods(), self.bound // 2 // BOUND_GANG * BOUND_GANG)
        while gang := list(itertools.islice(pods, BOUND_GANG)):
            first = gang[0]["metadata"]
            name = first["annotations"][keys.GANG_ANNOTATION]
            key = GangKey(first["namespace"], "Gang", name, name)
            entries = [
                PlannedPod(each["metadata"]["name"], each["metadata"]["uid"], each["spec"]["nodeName"])
                for each in gang
            ]
            plan = PlacementSpec(gang=f"Gang/{name}", gang_id=name, size=BOUND_GANG, pods=entries)
            metadata = {"name": key.placement_name, "namespace": key.namespace}
            made = {
                "metadata": {**metadata, "uid": f"plan-{name}", "resourceVersion": "1"},
                "spec": plan.on_the_wire(),
            }
            self.api.written[placements.path(key.namespace, key.placement_name)] = made
            yield made

    def gang(self, name: str, size: int) -> list[dict[str, Any]]:
        """A complete gang of gated pods that want whole nodes, and will be released."""
        made = gated(name, size)
        for each in made:
            self.api.written[_path(each["metadata"]["name"])] = each
        return made

    @seldom_collected()
    def run(self, repeats: int) -> dict[str, str]:
        """All measurements of one cluster, by name."""
        free = sum(number % BLOCK < FREE for number in range(len(self.grid)))
        whole = min(1000, free // (repeats + 1))  # the first gang takes nodes as well
        self.early = self.gang("first", min(64, whole))
        began = time.perf_counter()
        cache = ClusterCache(self.api, keys.GATE_PREFIX)
        sweeper = Sweeper(Pass(self.api, cache, Settings(), stopping=threading.Event(), extensions=SWITCHES))
        try:
            with lasting():
                cache.start()
                while not cache.synced:
                    time.sleep(0.01)
                synced = time.perf_counter() - began
                sweeper.sweep()
            while not any("-first-" in path for path in self.api.written if "/placements/" in path):
                sweeper.sweep()
            found = {"read": f"{synced:.1f} s", "first plan": f"{time.perf_counter() - began:.1f} s"}
            self._settle(cache, sweeper)
            found["nothing to do"] = _spread([_seconds(sweeper.sweep) for _ in range(repeats)])
            found[f"a gang of {whole:,}"] = _spread(
                [self._placed(cache, sweeper, f"gang-{number}", whole) for number in range(repeats)]
            )
            for number in range(100):
                self._come(cache, gated(f"wait-{number}", 100, level="block"))
            sweeper.sweep()
            found["10,000 waiting, first"] = f"{_seconds(sweeper.sweep):.2f} s"
            found["10,000 waiting"] = _spread([_seconds(sweeper.sweep) for _ in range(repeats)])
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6
            found["resident"] = f"{_resident():.0f} MB, at most {peak:.0f} MB"
            return found
        finally:
            sweeper.close()
            cache.stop()

    def _come(self, cache: ClusterCache, made: list[dict[str, Any]]) -> None:
        """Create pods, and wait until the copy has them."""
        for each in made:
            self.api.show(PODS, each)
        last = f"{NAMESPACE}/{made[-1]['metadata']['name']}"
        while cache.pods.get(last) is None:
            time.sleep(0.01)

    def _settle(self, cache: ClusterCache, sweeper: Sweeper) -> None:
        """Pass until nothing comes of it any more."""
        while True:
            cache.changed.clear()
            sweeper.sweep()
            if not cache.changed.wait(1):
                return

    def _placed(self, cache: ClusterCache, sweeper: Sweeper, name: str, size: int) -> float:
        """Seconds of the pass that plans and releases a gang."""
        self._come(cache, self.gang(name, size))
        took = _seconds(sweeper.sweep)
        pods = [self.api.written[_path(f"{name}-{rank}")] for rank in range(size)]
        left = sum(bool(each["spec"].get("schedulingGates")) for each in pods)
        if left:
            raise SystemExit(f"{left} pods of {name} were not released in the pass")
        self._settle(cache, sweeper)
        return took


def _path(name: str) -> str:
    return f"/api/v1/namespaces/{NAMESPACE}/pods/{name}"


def _seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def _spread(seconds: Sequence[float]) -> str:
    low, middle, high = min(seconds), statistics.median(seconds), max(seconds)
    return f"{middle:.3f} s ({low:.3f} to {high:.3f})"


def _resident() -> float:
    """Of this process, now, in MB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1e6


def main(argv: list[str] | None = None) -> int:
    """Print the measurements."""
    parser = argparse.ArgumentParser(prog="hack/bench large", description=__doc__)
    parser.add_argument("--nodes", type=int, default=65_000)
    parser.add_argument("--pods", type=int, default=200_000, help="that run (%(default)s)")
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args(argv)
    logging.basicConfig(level=logging.ERROR)
    for name, value in PlayedCluster(options.nodes, options.pods).run(options.repeats).items():
        print(f"{name:24}{value}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
