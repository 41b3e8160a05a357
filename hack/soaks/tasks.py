"""hack/soak-tasks: hundreds of GPUTasks, while the programs behind them are killed, on a real control plane.

Users create, suspend, resume, restart, reprioritise and delete tasks and their Jobs at random; of two task
controllers and two sweepers, and the webhook, one after the other is killed as nobody can prepare for, and
started again. When that is over, the Jobs are those of the tasks that live, each status is true, and no rank
has ever run twice at once. The seed decides what is done, not the moment at which the cluster sees it.
"""

import argparse
import random
import signal
import sys
import time
from collections import Counter
from dataclasses import dataclass
from typing import Final

from hack.local import nodes
from hack.local.build import say
from hack.local.cluster import Cluster, ClusterError
from hack.local.install import SYSTEM, Installation, system_node
from hack.local.kubelet import Program
from hack.soaks import runs
from hack.soaks.overlaps import watched
from hack.soaks.users import Users
from labeler.contract import keys
from webhook.kube.client import ApiError

NAMESPACE: Final = "soak-tasks"
SHAPE: Final = nodes.Shape(nodes=12, blocks=2, subblocks=2, gpus=8, intel=0)
_READY_SECONDS: Final = 120.0


@dataclass(frozen=True)
class TaskPlan:
    """What a soak does: so many tasks, so many of them at once, a death every so many seconds."""

    tasks: int
    seed: int
    live: int = 60
    kill_every: float = 6.0
    end_seconds: float = 240.0


class TaskSoak:
    """One run on a cluster that is fresh."""

    def __init__(self, cluster: Cluster, plan: TaskPlan) -> None:
        self.cluster = cluster
        self.plan = plan
        self.api = cluster.api()
        self.done: Counter[str] = Counter()
        self.programs: dict[str, Program] = {}
        # Each with choices of its own, so that neither's timing changes what the other does.
        self.kills = random.Random(f"kills {plan.seed}")
        self.users = Users(
            self.api, NAMESPACE, plan.tasks, plan.live, random.Random(f"users {plan.seed}"), self.done
        )

    def run(self) -> list[str]:
        """Do it all; returns what was wrong, as sentences. Raises ClusterError."""
        self.set_up()
        try:
            with watched(self.api, NAMESPACE, _READY_SECONDS) as overlaps:
                self._disturb()
                say(f"  No more disturbances: {dict(sorted(self.done.items()))}")
                wrong = self._wait_for_the_truth()
                return [*overlaps.found, *wrong]
        finally:
            for program in self.programs.values():
                program.stop()

    def set_up(self) -> None:
        """Install topogate with two sweepers and two task controllers; register the nodes."""
        nodes.register(self.api, [system_node()], labelled=False)
        installation = Installation(self.cluster)
        installation.apply()
        installation.start(("certs", "webhook"))
        self.programs["webhook"] = installation.programs["webhook"]
        for component in ("sweeper", "tasks"):
            for number, program in enumerate(runs.start_replicas(installation, component, 2), start=1):
                self.programs[f"{component} {number}"] = program
        nodes.register(self.api, nodes.grid(SHAPE))
        runs.make_namespace(self.cluster, NAMESPACE, {keys.INJECTION_LABEL: keys.INJECTION_ENABLED})

    # --- the middle -----------------------------------------------------------------------------

    def _disturb(self) -> None:
        last = told = time.monotonic()
        while self.done["create"] < self.plan.tasks:
            now = time.monotonic()
            if now - last >= self.plan.kill_every:
                last = now
                self._kill()
            if now - told >= 15.0:
                told = now
                live, deaths = len(self.users.wishes), self._deaths()
                say(f"  {self.done['create']} tasks made, {live} live, {deaths} deaths")
            self.users.act()
            time.sleep(0.05)

    def _deaths(self) -> int:
        return sum(count for what, count in self.done.items() if what.startswith("killed "))

    def _kill(self) -> None:
        """Kill one program; leaders of the task controller are looked for, since most others stand by."""
        names = sorted(self.programs)
        leader = self._leader_of_tasks()
        name = leader if leader and self.kills.random() < 0.4 else self.kills.choice(names)
        self.done[f"killed {name.split()[0]}{' (leads)' if name == leader else ''}"] += 1
        program = self.programs[name]
        if program.process is not None:
            program.process.send(signal.SIGKILL)
        program.start()

    def _leader_of_tasks(self) -> str:
        path = f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM}/leases/topogate-tasks"
        try:
            holder = self.api.json("GET", path)["spec"].get("holderIdentity") or ""
        except ApiError:
            return ""
        for name, program in self.programs.items():
            if program.process is not None and holder.endswith(f"_{program.process.pid}"):
                return name
        return ""

    # --- the end --------------------------------------------------------------------------------

    def _wait_for_the_truth(self) -> list[str]:
        """Everything must come true and stay so; returns what does not."""
        deadline, true = time.monotonic() + self.plan.end_seconds, 0
        while True:
            wrong = self.users.faults()
            true = 0 if wrong else true + 1
            if true == 3:
                return []
            if time.monotonic() > deadline:
                return wrong or ["what is true does not stay so"]
            time.sleep(0.5)


def main(argv: list[str] | None = None) -> int:
    """Run hack/soak-tasks; returns the exit status."""
    parser = argparse.ArgumentParser(prog="hack/soak-tasks", description=__doc__.split("\n")[0])
    parser.add_argument("--tasks", type=int, default=500)
    runs.add_options(parser)
    options = parser.parse_args(argv)
    seed = runs.seed_of(options)
    say(f"Seed {seed}, {options.tasks} tasks.")
    began = time.monotonic()
    with Cluster.fresh() as cluster:
        soak = TaskSoak(cluster, TaskPlan(options.tasks, seed))
        try:
            faults = soak.run()
        finally:
            runs.keep_logs(options.logs, cluster)
    say(f"Done in {time.monotonic() - began:.0f} s: {dict(sorted(soak.done.items()))}")
    return runs.verdict(faults, seed)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except ClusterError as error:
        sys.exit(f"hack/soak-tasks: {error}")
