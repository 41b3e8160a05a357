"""GPUTasks in a soak: people start, change and end some, while the programs behind them are killed.

Of two task controllers and the webhook one after the other is killed as nobody can prepare for, and started
again. In the end the Jobs are those of the tasks that live, each status is true, and no rank has ever run
twice at once. The tasks have nodes of their own: what a broken node fails would count as their own failure.
"""

import contextlib
import random
import signal
import time
from collections import Counter
from typing import Final

from hack.local.cluster import Cluster
from hack.local.install import SYSTEM, Installation
from hack.local.kubelet import Program
from hack.local.nodes import PoolNode
from hack.soaks.overlaps import Overlaps, watched
from hack.soaks.plan import SHAPE
from hack.soaks.sweepers import start_replicas
from hack.soaks.users import Users
from labeler.contract import keys
from webhook.kube.client import ApiError

NAMESPACE: Final = "soak-tasks"
POOL: Final = "local.topogate.io/tasks"
NODES: Final = tuple(
    PoolNode(f"tasks-{number}", (f"b{number % SHAPE.blocks}", "s0", f"tasks{number}"), False, 8, POOL)
    for number in range(12)
)
"""In the blocks that there are: one of their own would be a domain that rules on others' pods count."""
_READY_SECONDS: Final = 120.0


class Tasks:
    """The people, the programs behind their tasks, and what must be true in the end."""

    def __init__(self, cluster: Cluster, users: Users, kills: random.Random, done: Counter[str]) -> None:
        """users: of NAMESPACE. kills: decides which program is killed; done: counts it."""
        self._cluster = cluster
        self._api = cluster.api()
        self._kills = kills
        self._done = done
        self._stack = contextlib.ExitStack()
        self._overlaps = Overlaps()
        self.programs: dict[str, Program] = {}
        """Those that are killed."""
        self.users = users

    def set_up(self, installation: Installation) -> None:
        """Start the webhook and two task controllers, register the nodes, and watch the namespace."""
        installation.start(("certs", "webhook"))
        self.programs["webhook"] = installation.programs["webhook"]
        for number, program in enumerate(start_replicas(installation, "tasks", 2), start=1):
            self.programs[f"tasks {number}"] = program
        for node in NODES:
            self._api.request("POST", "/api/v1/nodes", body=node.manifest(node.topology_labels))
        self._cluster.make_namespace(NAMESPACE, {keys.INJECTION_LABEL: keys.INJECTION_ENABLED})
        self._overlaps = self._stack.enter_context(watched(self._api, NAMESPACE, _READY_SECONDS))

    def kill(self) -> None:
        """Kill one program; leaders of the task controller are looked for, since the other stands by."""
        leader = self._leader()
        name = leader if leader and self._kills.random() < 0.4 else self._kills.choice(sorted(self.programs))
        self._done[f"killed {name.split()[0]}{' (leads)' if name == leader else ''}"] += 1
        program = self.programs[name]
        if program.process is not None:
            program.process.send(signal.SIGKILL)
        program.start()

    def _leader(self) -> str:
        path = f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM}/leases/topogate-tasks"
        try:
            holder = self._api.json("GET", path)["spec"].get("holderIdentity") or ""
        except ApiError:
            return ""
        for name, program in self.programs.items():
            if program.process is not None and holder.endswith(f"_{program.process.pid}"):
                return name
        return ""

    def faults(self) -> list[str]:
        """Pods of one rank that have run under two Jobs at once."""
        return self._overlaps.found

    def untrue(self, seconds: float) -> list[str]:
        """Everything must come true and stay so; returns what does not within so long."""
        deadline, times_true = time.monotonic() + seconds, 0
        while True:
            wrong = self.users.faults()
            times_true = 0 if wrong else times_true + 1
            if times_true == 3:
                return []
            if time.monotonic() > deadline:
                return wrong or ["what is true of the tasks does not stay so"]
            time.sleep(0.5)

    def stop(self) -> None:
        """Stop watching, and the programs."""
        self._stack.close()
        for program in self.programs.values():
            program.stop()
