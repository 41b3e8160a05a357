"""What a release costs kube-apiserver, beside a binding of a pod without gates.

On one real control plane, a few pods of each kind alternately, many times over: pods are created; those
without gates are bound, gated ones released by the sweeper's own code under its ServiceAccount, with its
guards in force; then these are bound as well, and a kubelet's status is written; a life is all of these.
Gated pods have lost their managedFields as the webhook saw them, lose them by the release (the webhook was
away), or keep them. All other programs are paused. Printed is the CPU of kube-apiserver for each pod, and
what it allocated for it, by Go's own count, which does not depend on what else the machine does.
"""

import argparse
import re
import statistics
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final, TypeVar

import msgspec

from hack.local import controlplane, nodes
from hack.local.build import announce
from hack.observing.loaded_cluster import CLIENTS, Loaded
from hack.observing.observer import cpu_seconds
from webhook.kube.client import STRATEGIC_MERGE_PATCH, Api
from webhook.kube.objects import ObjectList, Pod
from webhook.kube.plan_pods import PlannedPod
from webhook.sweeper.apply.release import Outcome, Releaser

_TOKEN: Final = "/api/v1/namespaces/topogate-system/serviceaccounts/sweeper/token"
_ALLOCATED: Final = re.compile(r"^go_memstats_alloc_bytes_total (\S+)$", re.MULTILINE)
_RUNNING: Final = {
    "phase": "Running",
    "startTime": "2026-01-01T00:00:00Z",
    "podIP": "10.0.0.1",
    "conditions": [
        {"type": kind, "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
        for kind in ("Initialized", "Ready", "ContainersReady", "PodReadyToStartContainers")
    ],
}
BINDING: Final = "binding"
_PLAIN_LIFE: Final = "life without gates"
RELEASES: Final = {"": True, ", emptied by it": True, ", managedFields kept": False}
"""What a release is called, and whether it empties managedFields; before the first one the webhook did."""
Work = Callable[[Sequence[Pod]], object]
P = TypeVar("P")


@dataclass(frozen=True)
class WriteCost:
    """Of one pod: CPU in milliseconds, and kilobytes allocated."""

    cpu: float
    allocated: float


class Writes(Loaded):
    """Bindings, releases and statuses alternately."""

    def run(self) -> dict[str, list[WriteCost]]:
        """Of each kind of write, what it cost, by round."""
        self.installation.programs["sweeper"].stop()
        releasers = {name: self._releaser(forgets=forgets) for name, forgets in RELEASES.items()}
        found: dict[str, list[WriteCost]] = {}
        with self.cluster.paused("kube-scheduler"), ThreadPoolExecutor(CLIENTS) as pool:

            def bind(pods: Sequence[Pod]) -> None:
                list(pool.map(self._bind, pods))

            def note(pods: Sequence[Pod]) -> None:
                list(pool.map(self._note, pods))

            for number in range(self.options.rounds):
                kinds = [BINDING, *releasers]
                first = number % len(kinds)
                for kind in kinds[first:] + kinds[:first]:
                    gang = kinds.index(kind)
                    after = "" if kind == BINDING else f" after release{kind}"
                    pods, cost = self._made(gang, gated=kind != BINDING, is_served=kind == "")
                    found.setdefault(f"creation{after.replace('after', 'before')}", []).append(cost)
                    if kind != BINDING:
                        cost = self._cost(self._releasing(releasers[kind]), pods)
                        found.setdefault(f"release{kind}", []).append(cost)
                    found.setdefault(f"{BINDING}{after}", []).append(self._cost(bind, pods))
                    found.setdefault(f"status{after}", []).append(self._cost(note, pods))
                self.clear()
                announce(
                    f"Round {number + 1}: " + ", ".join(f"{x}: {y[-1].cpu:.1f} ms" for x, y in found.items())
                )
        for releaser in releasers.values():
            releaser.close()
        return found

    def _releaser(self, *, forgets: bool) -> Releaser:
        """The sweeper's own, under its ServiceAccount."""
        token = self.api.json("POST", _TOKEN, body={"kind": "TokenRequest", "spec": {}})["status"]["token"]
        kubeconfig = self.cluster.folder / "bench.kubeconfig"
        ports = self.cluster.ports
        controlplane.write_kubeconfig(kubeconfig, self.cluster.folder, ports.apiserver, {"token": token})
        client = Api.connect(kubeconfig, user_agent="topogate-bench")
        return Releaser(client, threading.Event(), lambda: True, forgets_managers=forgets)

    def _made(self, gang: int, *, gated: bool, is_served: bool) -> tuple[list[Pod], WriteCost]:
        """The created pods, and the cost of that. is_served: whether the webhook is asked about them."""
        namespace = self.namespace if is_served else self.unserved
        bodies = [self.pod(gang, index, gated=gated) for index in range(self.options.pods)]
        cost = self._cost(lambda some: self.create(some, namespace), bodies)
        text = self.api.request("GET", f"/api/v1/namespaces/{namespace}/pods")
        time.sleep(0.5)
        pods = msgspec.json.decode(text, type=ObjectList[Pod]).items
        return [pod for pod in pods if pod.metadata.name.split("-")[1] == str(gang)], cost

    def _cost(self, work: Callable[[Sequence[P]], object], pods: Sequence[P]) -> WriteCost:
        server = self.cluster.running["kube-apiserver"].pid
        scrapes = [self._allocated(), self._allocated()]
        before = cpu_seconds(server)
        work(pods)
        time.sleep(0.2)  # the watches show it
        cpu = cpu_seconds(server) - before
        of_a_scrape = scrapes[1] - scrapes[0]
        allocated = self._allocated() - scrapes[1] - of_a_scrape
        return WriteCost(1e3 * cpu / len(pods), allocated / 1e3 / len(pods))

    def _allocated(self) -> float:
        found = _ALLOCATED.search(self.api.request("GET", "/metrics").decode())
        assert found is not None
        return float(found[1])

    # --- writes ---------------------------------------------------------------------------------

    def _path(self, pod: Pod) -> str:
        return f"/api/v1/namespaces/{pod.metadata.namespace}/pods/{pod.metadata.name}"

    def _node(self, pod: Pod) -> str:
        grid = nodes.grid(nodes.Shape(self.options.nodes, 1, 1))
        return grid[int(pod.metadata.name.split("-")[2]) % len(grid)].name

    def _bind(self, pod: Pod) -> None:
        """As kube-scheduler does, but in JSON."""
        target = {"apiVersion": "v1", "kind": "Node", "name": self._node(pod)}
        metadata = {"name": pod.metadata.name, "uid": pod.metadata.uid}
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target}
        self.api.request("POST", f"{self._path(pod)}/binding", body=body)

    def _releasing(self, releaser: Releaser) -> Work:
        def release(pods: Sequence[Pod]) -> None:
            pairs = [(pod, PlannedPod(pod.metadata.name, pod.metadata.uid, self._node(pod))) for pod in pods]
            done = releaser.release(pairs)
            assert all(each.outcome is Outcome.RELEASED for each in done), done[0]

        return release

    def _note(self, pod: Pod) -> None:
        """As a kubelet does when containers run."""
        body = {"status": _RUNNING}
        path = f"{self._path(pod)}/status"
        self.api.request("PATCH", path, body=body, content_type=STRATEGIC_MERGE_PATCH)


def print_table(found: Mapping[str, Sequence[WriteCost]], of: str) -> None:
    """Medians, and ratios to the write `of` in the same round."""
    print(f"{'':46}{'CPU':>9}{'of it':>24}{'allocated':>13}{'of it':>9}   (of: {of})")
    for name, costs in found.items():
        pairs = list(zip(costs, found[of], strict=True))
        ratios = [one.cpu / base.cpu for one, base in pairs]
        low, middle, high = min(ratios), statistics.median(ratios), max(ratios)
        allocated = statistics.median(one.allocated / base.allocated for one, base in pairs)
        cpu = statistics.median(one.cpu for one in costs)
        print(
            f"{name:46}{cpu:6.2f} ms{middle:9.2f} ({low:.2f} to {high:.2f})"
            f"{statistics.median(one.allocated for one in costs):10.0f} kB{allocated:9.2f}"
        )


def lives(found: Mapping[str, Sequence[WriteCost]]) -> dict[str, list[WriteCost]]:
    """Of each kind of pod what all of its writes cost together, by round; a kubelet writes more statuses."""
    plain = [found["creation"], found[BINDING], found["status"]]
    released = {
        f"life{kind}": [
            found[f"{write}{kind}"]
            for write in (
                "creation before release",
                "release",
                "binding after release",
                "status after release",
            )
        ]
        for kind in RELEASES
    }
    return {
        name: [
            WriteCost(sum(each.cpu for each in costs), sum(each.allocated for each in costs))
            for costs in zip(*writes, strict=True)
        ]
        for name, writes in ({_PLAIN_LIFE: plain} | released).items()
    }


def main(argv: list[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="hack/bench release", description=__doc__)
    parser.add_argument("--pods", type=int, default=100, help="of each kind and round (%(default)s)")
    parser.add_argument("--rounds", type=int, default=6)
    parser.set_defaults(nodes=100, blocks=1, subblocks=1, gangs=1)
    options = parser.parse_args(argv)
    with Writes.fresh(options) as bench:
        found = bench.run()
    print_table(found, of=BINDING)
    print_table(lives(found), of=_PLAIN_LIFE)
    return 0


if __name__ == "__main__":
    sys.exit(main())
