"""What the sweeper costs beside kube-scheduler, on one real control plane and in one run.

1. Pods released a second, kube-scheduler paused, against the rate at which kube-scheduler binds as
   many pods of the same kind without gates.
2. From the moment when the last gang is complete to the last pod bound, with both at work, against
   kube-scheduler alone with as many waiting pods. CPU is counted from the creation of the first pod.
3. With --bind: gangs of several sizes that require a block, from complete to all bound, by each way of
   binding: pinned and podgroup (binding.mode), and kube-scheduler alone with PodGroups of its own.

kwok and the controllers are paused throughout, so that nothing else uses the cores; topogate runs
under its own ServiceAccount, with its guards in force. Absolute figures belong to the machine.
"""

import argparse
import contextlib
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from hack.local import native_gangs
from hack.local.build import announce
from hack.observing.loaded_cluster import Loaded
from hack.observing.observer import ObservedRun, Observer, spread
from labeler.contract import keys
from webhook.workloads.pod_group_names import bind_group_name

SIZES: Final = (16, 128, 1000)
"""Pods of the gangs of part 3."""


class Bench(Loaded):
    """What is measured on a loaded cluster."""

    # --- parts 1 and 2 --------------------------------------------------------------------------

    def scheduler_alone(self) -> ObservedRun:
        """kube-scheduler binds pods that wait, without topogate; the signal is SIGCONT."""
        with self._without_sweeper(), Observer(self.api, self.namespace).watching() as observer:
            with self.cluster.paused("kube-scheduler"):
                early, last = self.members(gated=False)
                used = self.cpu()
                self.create(early + last)
                begun = time.perf_counter()
            observer.wait(observer.bound, self.total)
            return ObservedRun.of(begun, list(observer.bound.values()), self.since(used))

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

    def release_alone(self) -> ObservedRun:
        """The sweeper plans and releases; the signal is the creation of each gang's last pod."""
        with (
            self.cluster.paused("kube-scheduler"),
            Observer(self.api, self.namespace).watching() as observer,
        ):
            used, begun = self._complete(*self.members(gated=True))
            observer.wait(observer.released, self.total)
            return ObservedRun.of(begun, list(observer.released.values()), self.since(used))

    def both(self) -> tuple[ObservedRun, ObservedRun]:
        """Both at work: the runs of releases and of bindings, from the same signal."""
        with Observer(self.api, self.namespace).watching() as observer:
            used, begun = self._complete(*self.members(gated=True))
            observer.wait(observer.bound, self.total)
            cpu = self.since(used)
            return (
                ObservedRun.of(begun, list(observer.released.values()), cpu),
                ObservedRun.of(begun, list(observer.bound.values()), cpu),
            )

    def _complete(
        self, early: Sequence[dict[str, Any]], last: Sequence[dict[str, Any]]
    ) -> tuple[dict[str, float], float]:
        """Create gangs, their last pods a while later; the CPU used before all, and when these come."""
        used = self.cpu()
        self.create(early)
        time.sleep(2)
        begun = time.perf_counter()
        self.create(last)
        return used, begun

    def compare(self) -> None:
        """Parts 1 and 2, alternately."""
        options = self.options
        found: dict[str, list[ObservedRun]] = {
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
                announce(f"  round {number + 1}: {name}: {runs[-1]}")
        self._print(found)

    def _print(self, found: Mapping[str, Sequence[ObservedRun]]) -> None:
        options = self.options
        alone, release, both = found["scheduler"], found["release"], found["with"]
        pairs = list(zip(alone, release, both, strict=True))
        table = {
            "1. Pods a second from the first to the last, as one watch sees them": {
                "kube-scheduler binds, no gates": spread([run.rate for run in alone]),
                "sweeper releases, scheduler held still": spread([run.rate for run in release]),
                "release / bind": spread([b.rate / a.rate for a, b, _ in pairs], 2),
                "release / bind, counted from the signal": spread(
                    [a.seconds / b.seconds for a, b, _ in pairs], 2
                ),
                "from complete gangs to the last release": spread([run.seconds for run in release], 1) + " s",
            },
            "2. Seconds from the signal (gangs complete; scheduler let go) to the last pod bound": {
                "kube-scheduler alone, no gates": spread([run.seconds for run in alone], 1),
                "topogate and kube-scheduler": spread([run.seconds for run in both], 1),
                "with / without": spread([c.seconds / a.seconds for a, _, c in pairs], 2),
                "with topogate, to the last release": spread(
                    [run.seconds for run in found["with: released"]], 1
                ),
            },
            "CPU from creation, milliseconds a pod (counts no other work on this machine)": {
                "kube-apiserver: with / without": spread(
                    [c.cpu["kube-apiserver"] / a.cpu["kube-apiserver"] for a, _, c in pairs], 2
                ),
            }
            | {
                f"{name}: {program}": spread([run.cpu[program] for run in runs], 2)
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

    def bind(self) -> None:
        """Each way of binding with gangs of each size, alternately."""
        ways = ("pinned", "podgroup", "native", "native, no topology")
        found: dict[tuple[int, str], list[ObservedRun]] = {
            (size, mode): [] for size in SIZES for mode in ways
        }
        for number, (size, mode) in enumerate([*found] * self.options.rounds):
            found[size, mode].append(self._bound(self._members(mode, number, size)))
            announce(f"  {size} pods, {mode}: {found[size, mode][-1]}")
            self.clear()
        print(f"\n3. Gangs of pods with 8 GPUs each that require one of {self.options.blocks} blocks, on")
        print(f"   {self.options.nodes} nodes, rounds in turns: medians (range), CPU in ms a pod")
        columns = ("s to all bound", "pods/s", "API server CPU", "kube-scheduler and sweeper CPU")
        print(f"   {'':26}" + "".join(f"{each:22}" for each in columns))
        for (size, mode), runs in found.items():
            cells = (
                spread([run.seconds for run in runs], 1),
                spread([run.rate for run in runs]),
                spread([run.cpu["kube-apiserver"] for run in runs], 2),
                spread([run.cpu["kube-scheduler"] + run.cpu["sweeper"] for run in runs], 2),
            )
            print(f"   {size:>5} {mode:20}" + "".join(f"{each:22}" for each in cells))

    def _bound(self, pods: Sequence[dict[str, Any]]) -> ObservedRun:
        """From the creation of the gang's last pod to the last one bound."""
        with Observer(self.api, self.namespace).watching() as observer:
            used, begun = self._complete(pods[:-1], pods[-1:])
            observer.wait(observer.bound, len(pods))
            return ObservedRun.of(begun, list(observer.bound.values()), self.since(used))

    def _members(self, mode: str, gang: int, size: int) -> list[dict[str, Any]]:
        """The pods of a gang, which name a PodGroup as admission would (podgroup) or their author (native).

        gang: a number that no other has, since a PodGroup outlives its gang while the controllers are paused.
        """
        name = ""
        if mode.startswith("native"):
            name, group = f"native-{gang}", native_gangs.pod_group(self.api, f"native-{gang}", size)
            if mode == "native":
                group["spec"]["schedulingConstraints"] = {"topology": [{"key": keys.PRERELEASE_TOPOLOGY[0]}]}
            self.api.request("POST", native_gangs.path(self.api, self.namespace), body=group)
        pods = [self.pod(gang, index, gated=not name) for index in range(size)]
        for pod in pods:
            annotations = pod["metadata"]["annotations"]
            if not name:
                annotations[keys.GANG_SIZE_ANNOTATION] = str(size)
                annotations[keys.REQUIRED_TOPOLOGY_ANNOTATION] = "block"
            if mode == "podgroup":
                own = bind_group_name({}, annotations, "", "default-scheduler")
                pod["spec"]["schedulingGroup"] = {"podGroupName": own}
            elif name:
                pod["spec"]["schedulingGroup"] = {"podGroupName": name}
        return pods


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
    add("--bind", action="store_true", help="only the part on ways of binding")
    options = parser.parse_args(argv)
    if options.bind and options.nodes < options.blocks * max(SIZES):
        parser.error(f"a gang of {max(SIZES)} pods needs a node for each pod in one block")
    if not options.bind and options.gangs * options.pods > options.nodes:
        parser.error(f"{options.gangs} gangs of {options.pods} pods need a node for each pod")
    with Bench.fresh(options, "pods" if options.bind else "") as bench:
        (bench.bind if options.bind else bench.compare)()
    return 0


if __name__ == "__main__":
    sys.exit(main())
