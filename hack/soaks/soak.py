"""hack/soak: hundreds of gangs, and everything that can go wrong, on a real control plane.

Gangs of many kinds come and end (load.py). Pods, nodes, the API server and the leading sweeper get into
trouble (trouble.py). A tenant with the rights of `edit` writes whatever may hurt (hostile.py). What must hold
at each moment is checked on every look at the cluster (checks.py).

Then all of it stops: every gang must be whole within a minute, and run to its end. The seed decides what is
done, not the exact moment at which the cluster sees it.
"""

import argparse
import logging
import random
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from hack.local import claims, native_gangs, nodes
from hack.local.build import announce
from hack.local.cluster import Cluster
from hack.local.install import Installation
from hack.local.kubelet import Program
from hack.local.pods import GPUS, Json
from hack.soaks import ending, sweepers
from hack.soaks.checks import Checks, listed
from hack.soaks.hostile import Drawing
from hack.soaks.load import FOREIGN, OURS, Load
from hack.soaks.tenant import Tenant, admit
from hack.soaks.trouble import COUNTED, Trouble
from labeler.contract import keys
from webhook.kube.client import ApiError

HOSTILE: Final = "soak-hostile"
SHAPE: Final = nodes.Shape(nodes=30, blocks=3, subblocks=2, gpus=8, intel=6)
LOOK_SECONDS: Final = 0.25
PARTIAL_SECONDS: Final = 120.0
"""For so long a gang may run partially among faults."""
MOST_PATIENT: Final = 150.0
"""One of the long gangs runs for so long: else what is left of it ends before that is reported."""
MOST_FAULTS: Final = 20
"""After so many a soak ends early."""


class Soak:
    """One run on a cluster that is fresh. bind: the value of binding.mode."""

    def __init__(self, cluster: Cluster, seconds: float, seed: int, bind: str) -> None:
        self.cluster, self.seconds, self.seed = cluster, seconds, seed
        self.api = cluster.api()
        self.done: Counter[str] = Counter()
        self.checks = Checks(frozenset({OURS}), frozenset({HOSTILE}))
        self.sweepers: list[Program] = []
        self._installation = Installation(cluster)
        self._grid = nodes.grid(SHAPE)
        with_gpus = [node.name for node in self._grid if not node.intel]
        patient = min(MOST_PATIENT, seconds / 4)
        self.load = Load(self.api, with_gpus, patient, self._choices("load"), self.done)
        self.trouble = Trouble(cluster, self._grid, self.sweepers, self._choices("trouble"), self.done)
        names = [node.name for node in self._grid]
        drawing = Drawing(self._choices("hostile"), names, [f"job-{number}" for number in range(50)])
        self.tenant = Tenant(self.api, HOSTILE, drawing, self._choices("tenant"))
        self._pods: list[Json] = []
        # Without both, admission and sweeper would leave pods with claims to kube-scheduler, by their rules.
        claimed = {"deviceClasses": [claims.CLASS], "resources": [GPUS, keys.I915, claims.RESOURCE]}
        self._configuration: dict[str, dict[str, Any]] = {"binding": {"mode": bind}, "gpus": claimed}
        if self._choices("fair order").random() < 0.5:
            self._configuration["fairOrder"] = {"halfLife": "30s", "maximumWait": "20s"}

    def _choices(self, whose: str) -> random.Random:
        """Choices of its own for each part, so that no part's timing changes what another does."""
        return random.Random(f"{whose} {self.seed}")

    def run(self) -> list[str]:
        """Do it all; returns what was wrong, as sentences. Raises ClusterError."""
        try:
            self._set_up()
            self._disturb()
            if len(self.checks.faults) >= MOST_FAULTS:
                return self.checks.faults
            announce(f"  {datetime.now(UTC):%T}: no more disturbances")
            self.trouble.end_all()
            self.checks.begin_quiet()
            left = ending.wait_for_end(self.api, self._look, self.tenant.leave, self.done)
            return [*self.checks.faults, *left, *sweepers.defects(self.sweepers)]
        finally:
            self._installation.stop()
            for program in self.sweepers:
                program.stop()

    def _set_up(self) -> None:
        """Install topogate with two sweepers and short times; register the nodes."""
        self._installation.set_up()
        sweepers.configure(self.api, self._configuration)
        self.sweepers += sweepers.start_sweepers(self._installation, 2)
        nodes.register(self.api, self._grid)
        self._installation.start(("certs", "webhook"))
        # Pods of the soak gate themselves. By admission they are of PodGroups as well.
        admitted = (HOSTILE, OURS) if self.cluster.native_gangs else (HOSTILE,)
        for name in (OURS, FOREIGN, HOSTILE):
            labels = {keys.INJECTION_LABEL: keys.INJECTION_ENABLED} if name in admitted else {}
            self.cluster.make_namespace(name, labels)
        admit(self.api, HOSTILE)
        self.load.publish_devices(self._grid)

    def _disturb(self) -> None:
        began = time.monotonic()
        actions: dict[str, tuple[float, Callable[[], None]]] = {
            "undo": (0.0, self.trouble.end_what_is_due),
            "create": (0.0, lambda: self.load.create(self._pods)),
            "hostile": (0.5, self.tenant.act),
            "pods and nodes": (1.0, lambda: self.trouble.make("pods and nodes")),
            "report": (15.0, self._report),
            "leader": (40.0, lambda: self.trouble.make("leader")),
            "API server": (50.0, lambda: self.trouble.make("API server")),
        }
        # Half a period in, so that a short run has what comes seldom.
        due = {name: began + period / 2 for name, (period, _) in actions.items()}
        while time.monotonic() < began + self.seconds and len(self.checks.faults) < MOST_FAULTS:
            self._try("look", lambda: self._look(PARTIAL_SECONDS))
            for name, (period, action) in actions.items():
                if time.monotonic() >= due[name]:
                    self._try(name, action)
                    # From its end: where the API server takes long to start it is there as long as ever.
                    due[name] = time.monotonic() + period
            time.sleep(LOOK_SECONDS)

    def _look(self, patience: float) -> list[Json]:
        """Check the cluster as it is; returns the pods. Raises ApiError."""
        self.trouble.revive()
        self.load.end_staged()
        before = len(self.checks.faults)
        self._pods, placements = listed(self.api, (OURS, FOREIGN, HOSTILE))
        self.checks.look(self._pods, placements, time.monotonic(), patience)
        for fault in self.checks.faults[before:]:
            announce(f"  FAULT: {fault}")
        return self._pods

    def _try(self, name: str, action: Callable[[], object]) -> None:
        """What the API server refuses is no fault of a program: pods are deleted, nodes are not there."""
        try:
            action()
        except ApiError as error:
            self.done[f"refused: {name} {error.status}"] += 1

    def _report(self) -> None:
        gangs = sum(self.done[kind] for kind in self.load.kinds)
        faults = len(self.checks.faults)
        announce(f"  {gangs} gangs, {len(self.checks.released)} pods released, {faults} faults")

    def summary(self) -> list[str]:
        """What was done, and what never was."""
        kinds = [*self.load.kinds, *COUNTED]
        never = [kind for kind in kinds if not self.done[kind]]
        return [
            *([f"NOT TRIED: {', '.join(never)}."] if never else []),
            f"Configuration: {self._configuration}.",
            f"Done: {', '.join(f'{name} {count}' for name, count in self.done.items() if count)}.",
            f"Checked: {len(self.checks.released)} pods released, {self.checks.stamped} bound with cards.",
            f"No gang ran partially for more than {self.checks.longest_before:.0f} s among disturbances, and "
            f"{self.checks.longest:.0f} s after them.",
            f"The hostile tenant did {dict(self.tenant.done)}; refused: {dict(self.tenant.refused)}.",
        ]


def main(argv: list[str] | None = None) -> int:
    """Run hack/soak; returns the exit status."""
    parser = argparse.ArgumentParser(prog="hack/soak", description=__doc__.split("\n")[0])
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=None, help="repeat the choices of an earlier run")
    parser.add_argument("--logs", type=Path, help="where to copy all programs' logs to")
    options = parser.parse_args(argv)
    seed = random.SystemRandom().randrange(10**6) if options.seed is None else options.seed
    announce(f"Seed {seed}, {options.minutes:g} minutes.")
    logging.getLogger("webhook.kube").setLevel(logging.ERROR)  # watches end with each API server
    is_grouped = native_gangs.can_be_on() and random.Random(f"bind {seed}").random() < 0.5
    with Cluster.fresh("pods" if is_grouped else "") as cluster:
        soak = Soak(cluster, options.minutes * 60, seed, "podgroup" if is_grouped else "pinned")
        try:
            faults = soak.run()
        finally:
            if options.logs is not None:
                shutil.copytree(cluster.folder / "logs", options.logs, dirs_exist_ok=True)
    for line in soak.summary():
        announce(line)
    for fault in faults:
        print(f"FAULT: {fault}")
    print(f"{len(faults) or 'No'} faults; seed {seed}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
