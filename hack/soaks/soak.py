"""hack/soak: hundreds of gangs, and everything that can go wrong, on a real control plane.

Jobs, elastic and exclusive ones, ones with rules on their pods and ones with claims on devices among them,
sets whose pods come in stages, bare pods that call themselves a gang, pods that share Intel cards and pods of
others come and end. Long gangs fill the cluster, and more important ones preempt them. Nodes are cordoned,
fail, go and come back. Pods are deleted, the API server restarts, and of two sweepers the leader is killed. A
tenant with the rights of `edit` writes whatever may hurt. Gangs of one priority come by their age, or in a
fair order. They are bound as one, or pod by pod.

Invariants are checked throughout (see ledger.py). In the end the disturbances stop. Every gang must then run
to its end, beside what the hostile tenant has left. The seed decides what is done, not the exact moment at
which the cluster sees it.
"""

import argparse
import logging
import random
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Final

from hack.local import native_gangs, nodes
from hack.local.build import announce
from hack.local.cluster import Cluster
from hack.local.install import Installation
from hack.local.kubelet import Program
from hack.soaks import claims, ending
from hack.soaks.audit import audit_lines
from hack.soaks.crowd import FOREIGN, OURS, Crowd
from hack.soaks.hostile import Drawing
from hack.soaks.ledger import Ledger
from hack.soaks.passes import defects, long_steps
from hack.soaks.plan import FEATURES, HOSTILE, PINNED, SETTINGS, SHAPE, Plan
from hack.soaks.reader import WATCHED, LedgerReader
from hack.soaks.report import Faults, detailed
from hack.soaks.summary import tried
from hack.soaks.sweepers import lines_of, set_bind, start_sweepers
from hack.soaks.tenant import Tenant, admit
from hack.soaks.trouble import Trouble
from hack.soaks.waves import MOST_PATIENT, Waves
from labeler.contract import keys
from webhook.kube.client import ApiError

MOST_FAULTS: Final = 20
"""After so many a soak ends early."""
MOST_SHOWN: Final = 40
LONG_AWAY: Final = 10.0
"""The API server starts in a few seconds, but on a machine that is busy with other work."""


class Soak:
    """One run on a cluster that is fresh."""

    def __init__(self, cluster: Cluster, plan: Plan) -> None:
        self.cluster = cluster
        self.plan = plan
        self.api = cluster.api()
        self.done: Counter[str] = Counter()
        self.bind = plan.bind if cluster.native_gangs else PINNED
        self.installation = Installation(cluster)
        self.grid = {node.name: node for node in nodes.grid(SHAPE)}
        with_gpus = [node.name for node in self.grid.values() if not node.intel]
        names = frozenset({OURS, FOREIGN, HOSTILE})
        self.ledger = Ledger(names, hostile=frozenset({HOSTILE}))
        self.readers = [LedgerReader(cluster.api(), path, self.ledger) for path in WATCHED]
        self.sweepers: list[Program] = []
        self.crowd = Crowd(self.api, plan.crowd, plan.choices("crowd"), self.done)
        self.waves = None
        if plan.has("preemption"):
            patient = min(MOST_PATIENT, plan.seconds / 4)
            choices = plan.choices("preemption")
            self.waves = Waves(self.api, self.crowd, with_gpus, patient, choices, self.done)
        self.trouble = Trouble(cluster, self.grid, self.sweepers, plan.choices("trouble"), self.done)
        self.ledger.losses.is_sound = self.trouble.is_sound
        choices = plan.choices("hostile")
        drawing = Drawing(choices, list(self.grid), [f"job-{number}" for number in range(50)])
        self.tenant = Tenant(self.api, HOSTILE, drawing, choices)
        self._leads, self._lead_seconds = plan.choices("leaders"), plan.lead_seconds
        self.faults = self._checkers()

    def _checkers(self) -> Faults:
        ledger = self.ledger
        return Faults(
            {
                "readers": lambda: [fault for reader in self.readers for fault in reader.faults],
                "ledger": lambda: ledger.faults,
                "partial gangs": lambda: ledger.partial.faults,
            }
        )

    def run(self) -> list[str]:
        """Do it all; returns what was wrong, as sentences. Raises ClusterError."""
        self.set_up()
        try:
            self._disturb()
            announce(f"  No more disturbances: {dict(sorted(self.done.items()))}")
            self.trouble.make_good()
            left = ending.unfinished(
                self.api, self.plan.end_seconds, self._meanwhile, self.done, self._add_nodes
            )
            self.done["Jobs without pods"] = ending.without_pods(self.api)
            time.sleep(1.0)
            self.ledger.settle()
            self.faults.look()
            audit = list(audit_lines(self.cluster.log("audit")))
            late = [*self.ledger.losses.faults(audit), *self._long_steps(), *left]
            late += defects(lines_of(self.sweepers))
            self.faults.checkers = {"the end": lambda: late}
            self.faults.look()
            return detailed(self.faults.found, self.sweepers)
        finally:
            self.installation.stop()
            for reader in self.readers:
                reader.stopping.set()
            for program in self.sweepers:
                program.stop()

    # --- the beginning --------------------------------------------------------------------------

    def set_up(self) -> None:
        """Install topogate with two sweepers and short times; register the nodes."""
        self.installation.set_up()
        set_bind(self.api, self.bind)
        self.sweepers += start_sweepers(self.installation, SETTINGS, 2, self.plan.fair_order)
        nodes.register(self.api, self.grid.values())
        self.installation.start(("certs", "webhook"))
        # Pods of the soak gate themselves. By admission they are of PodGroups as well.
        admitted = (HOSTILE,) if self.bind == PINNED else (HOSTILE, OURS)
        for name in (OURS, FOREIGN, HOSTILE):
            labels = {keys.INJECTION_LABEL: keys.INJECTION_ENABLED} if name in admitted else {}
            self.cluster.make_namespace(name, labels)
        admit(self.api, HOSTILE)
        claims.publish(self.api, OURS, self.grid)
        for reader in self.readers:
            reader.start()

    # --- the middle -----------------------------------------------------------------------------

    def _disturb(self) -> None:
        begun = time.monotonic()
        plan = self.plan
        actions: dict[str, tuple[float, Callable[[], None]]] = {
            "disturb": (plan.disturb_every, self.trouble.something),
            "restart": (plan.restart_every, self._restart),
            "kill": (1.0, self._kill),
            "say": (15.0, self._report),
            "hostile": (plan.hostile_every, self.tenant.act),
        }
        if self.waves is not None:
            actions["fill"] = plan.fill_every, self.waves.something
        for _ in range(self.crowd.kinds):
            self._try("create", self.crowd.create)
        last = dict.fromkeys(actions, begun)
        # What comes seldom begins half a period in: a short run has it as well.
        for name in {"restart", "fill"} & actions.keys():
            last[name] -= actions[name][0] / 2
        while (now := time.monotonic()) < begun + plan.seconds:
            for name, (period, action) in actions.items():
                if now - last[name] >= period:
                    self._try(name, action)
                    # From its end: where the API server takes long to start it is there as long as ever.
                    last[name] = time.monotonic()
            self._try("undo", self.trouble.end_what_is_due)
            self._try("create", self.crowd.create)
            self._meanwhile()
            if len(self.faults.found) > MOST_FAULTS:
                return
            time.sleep(0.1)

    def _meanwhile(self) -> None:
        """What happens until the last gang has ended."""
        self.crowd.end_staged()
        for name in self.trouble.revive():
            announce(f"  {name} ended by itself and was started again; see its log.")
        self.ledger.check_partial()
        for fault in self.faults.look():
            announce(f"  FAULT: {fault}")

    def _add_nodes(self) -> None:
        self.done["capacity made at the end"] += 1
        self._try("free capacity", self.tenant.add_nodes)

    def _try(self, name: str, action: Callable[[], None]) -> None:
        """What the API server refuses is no fault of a program: pods are deleted, nodes are not there."""
        try:
            action()
        except ApiError as error:
            self.done[f"refused: {name} {error.status}"] += 1

    def _long_steps(self) -> list[str]:
        return long_steps(self.sweepers, sum(seconds > LONG_AWAY for seconds in self.trouble.away))

    def _restart(self) -> None:
        self.trouble.restart_api_server()

    def _kill(self) -> None:
        if self.trouble.kill_leader(self._lead_seconds):
            # Some live so long that what takes patience comes to its end.
            self._lead_seconds = self.plan.lead_seconds * self._leads.choice((1, 1, 3, 5))

    def _report(self) -> None:
        announce(
            f"  {self.done['gangs']} gangs, {self.ledger.released} releases, {self.ledger.bound} bindings, "
            f"{len(self.ledger.takes)} pods on nodes, {len(self.faults.found)} faults"
        )


def main(argv: list[str] | None = None) -> int:
    """Run hack/soak; returns the exit status."""
    parser = argparse.ArgumentParser(prog="hack/soak", description=__doc__.split("\n")[0])
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--without", action="append", choices=FEATURES, default=[], help="leave this out")
    parser.add_argument("--seed", type=int, default=None, help="repeat the choices of an earlier run")
    parser.add_argument("--logs", type=Path, help="where to copy all programs' logs to")
    options = parser.parse_args(argv)
    seed = random.SystemRandom().randrange(10**6) if options.seed is None else options.seed
    announce(f"Seed {seed}, {options.minutes:g} minutes.")
    logging.getLogger("webhook.kube").setLevel(logging.ERROR)  # watches end with each API server
    plan = Plan(options.minutes * 60, seed, without=frozenset(options.without))
    with Cluster.fresh("pods" if plan.bind != PINNED and native_gangs.can_be_on() else "") as cluster:
        soak = Soak(cluster, plan)
        try:
            faults = soak.run()
        finally:
            if options.logs is not None:
                shutil.copytree(cluster.folder / "logs", options.logs, dirs_exist_ok=True)
    for line in tried(soak):
        announce(line)
    for fault in faults[:MOST_SHOWN]:
        print(f"FAULT: {fault}")
    print(f"{len(faults)} faults; seed {seed}" if faults else f"No fault; seed {seed}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
