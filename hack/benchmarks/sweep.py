"""What the sweeper costs beside kube-scheduler, on one real control plane and in one run.

1. Pods released a second, kube-scheduler held still, against the rate at which kube-scheduler binds as
   many pods of the same kind without gates.
2. From the moment when the last gang is complete to the last pod bound, with both at work, against
   kube-scheduler alone with as many waiting pods.
3. With --memory: resident memory, and the time from start to the first plan, with many bound pods.

kwok and the controllers are held still throughout, so that nothing else uses the cores; topogate runs
under its own ServiceAccount, with its guards in force. Absolute figures belong to the machine.
"""

import argparse
import contextlib
import re
import statistics
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

from hack.local import nodes
from hack.local.build import say
from hack.local.cluster import Cluster
from hack.local.install import Installation, system_node
from hack.local.kubelet import Program
from hack.local.nodes import SimulatedNode
from hack.observing.observer import WAIT_SECONDS, Observer, Run, cpu_seconds
from labeler.contract import keys
from tests.support import create_namespace
from webhook.kube.client import JSON_PATCH, ApiError

GPUS: Final = "nvidia.com/gpu"
CLIENTS: Final = 8
GUARDS: Final = ("topogate-pods",)
_BINDINGS: Final = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"


class Bench:
    """A cluster with simulated nodes, and what is measured on it."""

    def __init__(self, cluster: Cluster, options: argparse.Namespace) -> None:
        """The cluster is fresh; set_up() makes the rest."""
        self.cluster = cluster
        self.options = options
        self.api = cluster.api()
        self.installation = Installation(cluster)
        self.namespace = ""
        self.total = options.gangs * options.pods

    @contextlib.contextmanager
    def set_up(self) -> Iterator[None]:
        """Install topogate, hold kwok and the controllers still, register the nodes."""
        options = self.options
        nodes.register(self.api, [system_node()], labelled=False)
        self.installation.apply()
        for name in GUARDS if options.without_guards else ():
            self.api.request("DELETE", f"{_BINDINGS}/{name}")
        self.installation.start(("sweeper",))
        self.namespace = create_namespace(self.cluster)
        with contextlib.ExitStack() as stack:
            # Held still before there are nodes: kwok would renew a Lease for each of them, and the
            # controllers would call nodes without a Lease dead.
            for program in ("kwok", "kube-controller-manager"):
                stack.enter_context(self.cluster.paused(program))
            stack.callback(self.installation.stop)
            shape = nodes.Shape(options.nodes, options.blocks, options.subblocks)
            began = time.perf_counter()
            grid = nodes.grid(shape)
            nodes.register(self.api, grid)
            self._untaint([node.name for node in grid])
            say(f"Registered {len(grid)} nodes in {time.perf_counter() - began:.0f} s.")
            yield

    def _untaint(self, names: Sequence[str]) -> None:
        """The API server taints every new node as not ready, which the controllers would undo."""

        def untaint(name: str) -> None:
            body = [{"op": "remove", "path": "/spec/taints"}]
            self.api.request("PATCH", f"/api/v1/nodes/{name}", body=body, content_type=JSON_PATCH)

        with ThreadPoolExecutor(CLIENTS) as pool:
            list(pool.map(untaint, names))

    def cpu(self) -> dict[str, float]:
        """CPU seconds that each program has used so far, user and system."""
        programs = dict(self.cluster.running)
        sweeper = self.installation.programs["sweeper"].process
        if sweeper is not None:
            programs["sweeper"] = sweeper
        names = ("etcd", "kube-apiserver", "kube-scheduler", "sweeper")
        there = [name for name in names if name in programs and programs[name].alive]
        return {name: cpu_seconds(programs[name].pid) for name in there}

    def since(self, before: Mapping[str, float]) -> dict[str, float]:
        """CPU seconds that each program has used since."""
        return {name: seconds - before[name] for name, seconds in self.cpu().items() if name in before}

    # --- pods -----------------------------------------------------------------------------------

    def pod(self, gang: int, index: int, *, gated: bool, node: str = "", gpus: int = 8) -> dict[str, Any]:
        """A worker of a gang, with about as much beside the point as real ones have."""
        environment = [{"name": f"VARIABLE_{number}", "value": "x" * 24} for number in range(16)]
        spec: dict[str, Any] = {
            "terminationGracePeriodSeconds": 0,
            "containers": [
                {
                    "name": "main",
                    "image": "registry.example.com/train:1",
                    "command": ["torchrun", "train.py"],
                    "env": environment,
                    "resources": {"limits": {GPUS: gpus} if gpus else {}},
                }
            ],
        }
        annotations = {}
        if gated:
            spec["schedulingGates"] = [{"name": keys.GATE}]
            annotations = {
                keys.GANG_ANNOTATION: f"gang-{gang}",
                keys.GANG_SIZE_ANNOTATION: str(self.options.pods),
            }
        if node:
            spec["nodeName"] = node
        return {
            "metadata": {
                "name": f"{'gated' if gated else 'plain'}-{gang}-{index}",
                "annotations": annotations,
                "labels": {"app": "train", "example.com/worker": str(index)},
            },
            "spec": spec,
        }

    def create(self, pods: Sequence[dict[str, Any]]) -> None:
        """Create pods from several clients."""
        path = f"/api/v1/namespaces/{self.namespace}/pods"

        def post(pod: dict[str, Any]) -> None:
            self.api.request("POST", path, body=pod, timeout_seconds=60)

        with ThreadPoolExecutor(CLIENTS) as pool:
            list(pool.map(post, pods))

    def members(self, *, gated: bool) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """All pods but the last of each gang, and those last ones, which make the gangs complete."""
        early, last = [], []
        for gang in range(self.options.gangs):
            pods = [self.pod(gang, index, gated=gated) for index in range(self.options.pods)]
            early += pods[:-1]
            last += pods[-1:]
        return early, last

    def clear(self) -> None:
        """Remove all pods and wait until the sweeper has removed the plans."""
        path = f"/api/v1/namespaces/{self.namespace}/pods"
        deadline = time.monotonic() + WAIT_SECONDS
        while self.api.json("GET", path, query={"limit": "1"})["items"]:
            with contextlib.suppress(ApiError):  # it may take longer than one request may
                self.api.request("DELETE", path, query={"gracePeriodSeconds": "0"}, timeout_seconds=120)
            if time.monotonic() > deadline:
                raise TimeoutError("pods do not go away")
        placements = f"/apis/topogate.io/v1alpha1/namespaces/{self.namespace}/placements"
        self.cluster.wait_for(
            "the plans to be gone", lambda: not self.api.json("GET", placements)["items"], 120
        )
        time.sleep(2)

    # --- parts 1 and 2 --------------------------------------------------------------------------

    def scheduler_alone(self) -> Run:
        """kube-scheduler binds pods that wait, without topogate; the signal is SIGCONT."""
        with self._without_sweeper(), Observer(self.api, self.namespace).watching() as observer:
            with self.cluster.paused("kube-scheduler"):
                early, last = self.members(gated=False)
                self.create(early + last)
                used, begun = self.cpu(), time.perf_counter()
            observer.wait(observer.bound, self.total)
            return Run.of(begun, list(observer.bound.values()), self.since(used))

    @contextlib.contextmanager
    def _without_sweeper(self) -> Iterator[None]:
        program = self.installation.programs["sweeper"]
        program.stop()
        try:
            yield
        finally:
            before = program.log.read_text().count(" synced ")
            program.start()
            self.cluster.wait_for(
                "the sweeper to lead", lambda: program.log.read_text().count(" synced ") > before
            )

    def release_alone(self) -> Run:
        """The sweeper plans and releases; the signal is the creation of each gang's last pod."""
        with (
            self.cluster.paused("kube-scheduler"),
            Observer(self.api, self.namespace).watching() as observer,
        ):
            early, last = self.members(gated=True)
            self.create(early)
            time.sleep(2)
            used, begun = self.cpu(), time.perf_counter()
            self.create(last)
            observer.wait(observer.released, self.total)
            return Run.of(begun, list(observer.released.values()), self.since(used))

    def both(self) -> tuple[Run, Run]:
        """Both at work: the runs of releases and of bindings, from the same signal."""
        with Observer(self.api, self.namespace).watching() as observer:
            early, last = self.members(gated=True)
            self.create(early)
            time.sleep(2)
            used, begun = self.cpu(), time.perf_counter()
            self.create(last)
            observer.wait(observer.bound, self.total)
            cpu = self.since(used)
            return (
                Run.of(begun, list(observer.released.values()), cpu),
                Run.of(begun, list(observer.bound.values()), cpu),
            )

    def compare(self) -> None:
        """Parts 1 and 2, in turns."""
        options = self.options
        found: dict[str, list[Run]] = {
            name: [] for name in ("scheduler", "release", "with: released", "with")
        }
        for number in range(options.rounds):
            found["scheduler"].append(self.scheduler_alone())
            self.clear()
            found["release"].append(self.release_alone())
            self.clear()
            released, bound = self.both()
            found["with: released"].append(released)
            found["with"].append(bound)
            self.clear()
            for name, runs in found.items():
                say(f"  round {number + 1}: {name}: {runs[-1]}")
        self._print(found)

    def _print(self, found: Mapping[str, Sequence[Run]]) -> None:
        options = self.options
        alone, release, both = found["scheduler"], found["release"], found["with"]
        pairs = list(zip(alone, release, both, strict=True))
        table = {
            "1. Pods a second from the first to the last, as one watch sees them": {
                "kube-scheduler binds, no gates": _spread([run.rate for run in alone]),
                "sweeper releases, scheduler held still": _spread([run.rate for run in release]),
                "release / bind": _spread([b.rate / a.rate for a, b, _ in pairs], 2),
                "release / bind, counted from the signal": _spread(
                    [a.seconds / b.seconds for a, b, _ in pairs], 2
                ),
                "from complete gangs to the last release": _spread([run.seconds for run in release], 1)
                + " s",
            },
            "2. Seconds from the signal (gangs complete; scheduler let go) to the last pod bound": {
                "kube-scheduler alone, no gates": _spread([run.seconds for run in alone], 1),
                "topogate and kube-scheduler": _spread([run.seconds for run in both], 1),
                "with / without": _spread([c.seconds / a.seconds for a, _, c in pairs], 2),
            },
            "CPU, milliseconds a pod (counts no other work on this machine)": {
                f"{name}: {program}": _spread([run.cpu[program] for run in runs], 2)
                for name, runs in (("bind", alone), ("release", release), ("with", both))
                for program in runs[0].cpu
            },
        }
        print(f"\n{options.gangs} gangs of {options.pods} pods with 8 GPUs each, {options.nodes} nodes,")
        print(
            f"{options.rounds} rounds in turns: medians (lowest to highest). kwok and controllers held still."
        )
        for title, lines in table.items():
            print(title)
            for name, value in lines.items():
                print(f"   {name:42}{value}")

    # --- part 3 ---------------------------------------------------------------------------------

    def memory(self) -> None:
        """Fill the nodes with bound pods, start the sweeper, and see how long and how large."""
        options = self.options
        program = self.installation.programs["sweeper"]
        program.stop()
        grid = nodes.grid(nodes.Shape(options.nodes, options.blocks, options.subblocks))
        began = time.perf_counter()
        with self.cluster.paused("kube-scheduler"):
            self.create(
                [
                    self.pod(options.gangs + 1, index, gated=False, node=grid[index % len(grid)].name, gpus=0)
                    for index in range(options.bound_pods)
                ]
            )
            say(f"Created {options.bound_pods} bound pods in {time.perf_counter() - began:.0f} s.")
            self.create([self.pod(0, index, gated=True) for index in range(options.pods)])
            path = f"/apis/topogate.io/v1alpha1/namespaces/{self.namespace}/placements"
            figures = [self._start(program, path)]
            time.sleep(options.rest)
            process = program.process
            assert process is not None
            resident, peak = _memory(process.pid)
            phases = self._passes(program, grid)
        print(f"\n3. The sweeper with {options.nodes} nodes and {options.bound_pods} bound pods")
        print(
            f"   from its start to its first plan ({options.pods} pods) in the API server: {figures[0]:.1f} s"
        )
        print(
            f"   resident after {options.rest:g} s: {resident:.0f} MB, at most: {peak:.0f} MB (VmRSS, VmHWM)"
        )
        print(f"   a pass that finds nothing to do: {phases}")
        print("   " + "\n   ".join(_phases(program.log)))

    def _passes(self, program: Program, grid: Sequence[SimulatedNode]) -> str:
        """Milliseconds of each phase of a pass, mean over those that pods of others cause."""
        before = _pass_seconds(int(program.more[-1]))
        for index in range(20):
            gang = self.options.gangs + 2
            self.create([self.pod(gang, index, gated=False, node=grid[index].name, gpus=0)])
            time.sleep(0.3)
        after = _pass_seconds(int(program.more[-1]))
        means = {
            phase: 1e3 * (seconds - before[phase][0]) / max(1, count - before[phase][1])
            for phase, (seconds, count) in after.items()
        }
        return ", ".join(f"{phase} {mean:.1f} ms" for phase, mean in means.items())

    def _start(self, program: Program, path: str) -> float:
        begun = time.perf_counter()
        program.start()
        deadline = time.monotonic() + WAIT_SECONDS
        while not self.api.json("GET", path)["items"]:
            if time.monotonic() > deadline:
                raise TimeoutError(f"no plan; see {program.log}")
            time.sleep(0.05)
        return time.perf_counter() - begun


def _phases(log: Path) -> list[str]:
    """Of the last life in a log: the lines that tell when what was done."""
    lines = log.read_text().splitlines()
    starts = [number for number, line in enumerate(lines) if "started server=" in line]
    words = ("started ", "leader_began", "synced ", "placed ")
    return [line for line in lines[starts[-1] if starts else 0 :] if any(word in line for word in words)]


def _pass_seconds(port: int) -> dict[str, tuple[float, int]]:
    """Of each phase: seconds in all, and how often."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    found = re.findall(r'^topogate_pass_seconds_(sum|count)\{phase="(\w+)"\} (\S+)$', text, re.MULTILINE)
    values = {(kind, phase): float(value) for kind, phase, value in found}
    return {
        phase: (values["sum", phase], int(values["count", phase])) for kind, phase in values if kind == "sum"
    }


def _memory(pid: int) -> tuple[float, float]:
    """Resident and highest resident memory of a process in MB (10^6 bytes)."""
    status = Path(f"/proc/{pid}/status").read_text()
    values = dict(re.findall(r"^(VmRSS|VmHWM):\s+(\d+) kB", status, re.MULTILINE))
    return int(values["VmRSS"]) * 1024 / 1e6, int(values["VmHWM"]) * 1024 / 1e6


def _spread(values: Sequence[float], digits: int = 0) -> str:
    middle, low, high = statistics.median(values), min(values), max(values)
    return f"{middle:.{digits}f} ({low:.{digits}f} to {high:.{digits}f})"


def main(argv: list[str] | None = None) -> int:
    """Run what is asked for; returns the exit status."""
    parser = argparse.ArgumentParser(prog="hack/bench sweep", description=__doc__.split("\n")[0])
    add = parser.add_argument
    add("--nodes", type=int, default=5000)
    add("--blocks", type=int, default=25)
    add("--subblocks", type=int, default=10, help="subblocks of each block")
    add("--gangs", type=int, default=3)
    add("--pods", type=int, default=1000, help="pods of each gang")
    add("--rounds", type=int, default=1)
    add("--memory", action="store_true", help="only the part on memory and start")
    add("--bound-pods", type=int, default=50_000, help="pods that are there in the part on memory")
    add("--without-guards", action="store_true", help="to tell what the admission policies on pods cost")
    add("--rest", type=float, default=30.0, help="seconds before memory is read")
    add("--log", type=Path, help="where to copy the sweeper's log to")
    options = parser.parse_args(argv)
    if options.gangs * options.pods > options.nodes:
        parser.error(f"{options.gangs} gangs of {options.pods} pods need a node for each pod")
    with tempfile.TemporaryDirectory() as folder:
        cluster = Cluster.up(Path(folder) / "cluster", tied=True)
        bench = Bench(cluster, options)
        try:
            with bench.set_up():
                if options.memory:
                    bench.memory()
                else:
                    bench.compare()
        finally:
            if options.log and "sweeper" in bench.installation.programs:
                options.log.write_bytes(bench.installation.programs["sweeper"].log.read_bytes())
            cluster.down()
    return 0


if __name__ == "__main__":
    sys.exit(main())
