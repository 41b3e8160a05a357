"""hack/soak: hundreds of gangs, and everything that can go wrong, on a real control plane.

Jobs, elastic and exclusive ones, ones with rules on their pods and ones with claims on devices among them,
sets whose pods come in stages, bare pods that call themselves a gang, pods that share Intel cards and pods of
others come and end; nodes are cordoned, fail, go and come back; pods are deleted; the API server restarts; of
two sweepers the leader is killed; a tenant with the rights of `edit` writes whatever may hurt; gangs of
one priority come by their age, or in a fair order. Invariants are checked throughout (see ledger.py). In the
end the disturbances stop, and then every gang must run to its end, beside what the hostile tenant has left.
The seed decides what is done, not the exact moment at which the cluster sees it.
"""

import argparse
import contextlib
import random
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import yaml

from hack.local import autoscaler, nodes
from hack.local.build import ROOT, say
from hack.local.cluster import Cluster
from hack.local.install import Installation, system_node
from hack.local.kubelet import Program
from hack.soaks import claims, runs
from hack.soaks.broken import RULES, BrokenGpus
from hack.soaks.crowd import FOREIGN, OURS, UNFINISHED, Crowd
from hack.soaks.held import bounds
from hack.soaks.hostile import Drawing
from hack.soaks.ledger import Ledger
from hack.soaks.passes import long_steps
from hack.soaks.reader import PLACEMENTS, PODS, LedgerReader
from hack.soaks.scaling import CHOICES, POOL_NODES, Scaling
from hack.soaks.spreads import Spreads
from hack.soaks.tenant import Tenant, admit
from hack.soaks.trouble import Trouble
from labeler.contract import keys
from webhook.kube.client import Api, ApiError
from webhook.kube.devices import CLAIMS

HOSTILE: Final = "soak-hostile"
SHAPE: Final = nodes.Shape(nodes=30, blocks=3, subblocks=2, gpus=8, intel=6)
SETTINGS: Final = {
    "settle_seconds": 0.5,
    "patience_seconds": 4,
    "interval_seconds": 2,
    "bind_seconds": 12,
    "not_ready_seconds": 4,
    "rollback_seconds": 15,
    "reserve_seconds": 3,
    "reserve_hold_seconds": 6,
    "reserve_share": 0.5,
    "abandon_seconds": 20,
    "broken_seconds": 3,
}
"""Short, so that everything that takes patience in life happens within minutes."""


@dataclass(frozen=True)
class Plan:
    """What a soak does. Times in seconds; crowd: the most unfinished pods before new gangs wait.

    end_seconds: more than the five minutes for which a controller awaits pods that it believes to have made
    (ExpectationsTimeout in pkg/controller), which it may after a restart of the API server.
    """

    seconds: float
    seed: int
    crowd: int = 100
    disturb_every: float = 1.0
    hostile_every: float = 0.5
    scale_every: float = 6.0
    restart_every: float = 60.0
    kill_every: float = 25.0
    end_seconds: float = 360.0
    scale_up: bool = False
    """Whether gangs come that need nodes which an autoscaler, a stand-in, makes on request and removes."""
    broken_nodes: bool = False
    """Whether pods fail on some nodes as long as there are disturbances."""

    @property
    def fair_order(self) -> dict[str, Any] | None:
        """Of the policy, in two of three soaks: short, so that turns move and gangs are overdue."""
        weights = {OURS: 2.0, "soak-*": 1.0}
        drawn = random.Random(f"fair order {self.seed}").choice((None, {}, {"weights": weights}))
        return None if drawn is None else {"halfLife": "30s", "maximumWait": "20s"} | drawn


class Soak:
    """One run on a cluster that is fresh."""

    def __init__(self, cluster: Cluster, plan: Plan) -> None:
        self.cluster = cluster
        self.plan = plan
        self.api = cluster.api()
        self.done: Counter[str] = Counter()
        self.installation = Installation(cluster, components=("scale-up",) if plan.scale_up else ())
        self.grid = {node.name: node for node in nodes.grid(SHAPE)}
        made = POOL_NODES if plan.scale_up else 0
        self.held = bounds(SETTINGS, len(self.grid) + made + 1)
        names = frozenset({OURS, FOREIGN, HOSTILE})
        self.ledger = Ledger(
            names, hostile=frozenset({HOSTILE}), held=self.held, spreads=Spreads(SHAPE.blocks)
        )
        watched = (PLACEMENTS, PODS, CLAIMS)
        self.readers = [LedgerReader(cluster.api(), path, self.ledger) for path in watched]
        self.sweepers: list[Program] = []
        self.told = 0
        # Each with choices of its own, so that neither's timing changes what the other does.
        self.crowd = Crowd(self.api, plan.crowd, random.Random(f"crowd {plan.seed}"), self.done)
        choices = random.Random(f"scaling {plan.seed}")
        self.scaling = Scaling(self.api, self.crowd, choices, self.done) if plan.scale_up else None
        choices = random.Random(f"trouble {plan.seed}")
        self.trouble = Trouble(cluster, self.grid, self.sweepers, choices, self.done)
        self.ledger.losses.is_sound = self.trouble.is_sound
        with_gpus = [node.name for node in self.grid.values() if not node.intel]
        choices = random.Random(f"broken {plan.seed}")
        broken = BrokenGpus(self.api, with_gpus, len(self.grid) + made + 1, choices)
        self.broken = broken if plan.broken_nodes else None
        choices = random.Random(f"hostile {plan.seed}")
        drawing = Drawing(choices, list(self.grid), [f"job-{number}" for number in range(50)])
        self.tenant = Tenant(self.api, HOSTILE, drawing, choices)

    def run(self) -> list[str]:
        """Do it all; returns what was wrong, as sentences. Raises ClusterError."""
        self.set_up()
        try:
            with self.broken.kubelets if self.broken is not None else contextlib.nullcontext():
                self._disturb()
            say(f"  No more disturbances: {dict(sorted(self.done.items()))}")
            self.trouble.make_good()
            if self.scaling is not None:
                self.scaling.make_good()
            unfinished = self._wait_for_the_end()
            if self.scaling is not None and not unfinished:
                unfinished = self.scaling.left(20.0)
            time.sleep(1.0)
            self.ledger.settle()
            audit = self.cluster.log("audit").read_text().splitlines()
            return (
                self.ledger.faults
                + self.held.faults
                + self.ledger.domains.faults
                + self.ledger.spreads.faults
                + (self.broken.faults if self.broken is not None else [])
                + self.ledger.halves.faults
                + self.ledger.given.faults
                + self.ledger.losses.faults(audit)
                + long_steps(self.sweepers)
                + unfinished
            )
        finally:
            if self.scaling is not None:
                self.scaling.standin.stop()
            for reader in self.readers:
                reader.stopping.set()
            for program in self.sweepers:
                program.stop()

    # --- the beginning --------------------------------------------------------------------------

    def set_up(self) -> None:
        """Install topogate with two sweepers and short times; register the nodes."""
        nodes.register(self.api, [system_node()], labelled=False)
        settings: dict[str, Any] = dict(SETTINGS)
        if self.scaling is not None:
            autoscaler.define(self.api)
            settings |= {"scale_up": CHOICES}
        if self.broken is not None:
            settings |= {"bad_nodes": RULES}
        self.installation.apply()
        if self.scaling is not None:
            self.scaling.standin.start()
        self.sweepers += start_sweepers(self.installation, settings, 2, self.plan.fair_order)
        nodes.register(self.api, self.grid.values())
        for name in (OURS, FOREIGN, HOSTILE):
            labels = {keys.INJECTION_LABEL: keys.INJECTION_ENABLED} if name == HOSTILE else {}
            runs.make_namespace(self.cluster, name, labels)
        admit(self.api, HOSTILE)
        claims.publish(self.api, OURS, self.grid)
        for reader in self.readers:
            reader.start()

    # --- the middle -----------------------------------------------------------------------------

    def _disturb(self) -> None:
        begun = time.monotonic()
        periods = {
            "disturb": self.plan.disturb_every,
            "restart": self.plan.restart_every,
            "kill": self.plan.kill_every,
            "say": 15.0,
            "hostile": self.plan.hostile_every,
        }
        actions: dict[str, Callable[[], None]] = {
            "disturb": self.trouble.something,
            "restart": self._restart,
            "kill": self._kill,
            "say": self._say,
            "hostile": self.tenant.act,
        }
        if self.scaling is not None:
            periods["scale"], actions["scale"] = self.plan.scale_every, self.scaling.something
        last = dict.fromkeys(periods, begun)
        # The first restart and the first death come half a period in: a short run has them as well.
        last["restart"] -= self.plan.restart_every / 2
        last["kill"] -= self.plan.kill_every / 2
        while (now := time.monotonic()) < begun + self.plan.seconds:
            for name, period in periods.items():
                if now - last[name] >= period:
                    last[name] = now
                    self._try(name, actions[name])
            self._try("undo", self.trouble.end_what_is_due)
            if self.scaling is not None:
                self._try("scale down", self.scaling.end_what_is_due)
            self._try("create", self.crowd.create)
            if self.broken is not None:
                self.broken.look()
            self.ledger.look_at_held()
            self.ledger.look_at_halves()
            if len(self.ledger.faults) > 20:
                return
            time.sleep(0.1)

    def _try(self, name: str, action: Callable[[], None]) -> None:
        """What the API server refuses is no fault of anybody's: pods go, nodes are not there."""
        try:
            action()
        except ApiError as error:
            self.done[f"refused: {name} {error.status}"] += 1

    def _restart(self) -> None:
        self.trouble.restart_api_server()
        self.ledger.look_at_held(anew=True)

    def _kill(self) -> None:
        self.trouble.kill_leader()
        self.ledger.look_at_held(anew=True)

    def _say(self) -> None:
        for fault in self.ledger.faults[self.told :]:
            say(f"  FAULT at {datetime.now(UTC):%H:%M:%S} or before: {fault}")
        self.told = len(self.ledger.faults)
        say(
            f"  {self.done['gangs']} gangs, {self.ledger.released} releases, {self.ledger.bound} bindings, "
            f"{len(self.ledger.takes)} pods on nodes, {len(self.ledger.faults)} faults"
        )

    # --- the end --------------------------------------------------------------------------------

    def _wait_for_the_end(self) -> list[str]:
        """All pods must run to their end; returns those that do not."""
        deadline = time.monotonic() + self.plan.end_seconds
        while True:
            left = self.api.json("GET", PODS, query=UNFINISHED)["items"]
            left = [pod for pod in left if pod["metadata"]["namespace"] in (OURS, FOREIGN)]
            if not left:
                return []
            self.crowd.end_staged()
            self.ledger.look_at_halves()
            for pod in left:
                self._bury(pod)
            if time.monotonic() > deadline:
                return [_why(pod, self.api) for pod in left]
            time.sleep(0.5)

    def _bury(self, pod: dict[str, Any]) -> None:
        """Remove a pod that goes on terminating: the simulated kubelet of a node that came back under its
        old name does not know it, as with a machine that was replaced; there an administrator does this."""
        since = pod["metadata"].get("deletionTimestamp")
        if since and datetime.now(UTC) - datetime.fromisoformat(since) > timedelta(seconds=10):
            self.done["buried"] += 1
            path = f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"
            with contextlib.suppress(ApiError):
                self.api.request("DELETE", path, query={"gracePeriodSeconds": "0"})


def start_sweepers(
    installation: Installation,
    settings: dict[str, Any],
    count: int = 1,
    fair_order: dict[str, Any] | None = None,
) -> list[Program]:
    """Sweepers with settings of their own, under the identity of the installed one; the caller stops them.

    fair_order: of their policy, which is the shipped one otherwise.
    """
    file = installation.cluster.folder / "soak.yaml"
    file.write_text(yaml.safe_dump(settings))
    arguments = ["--config", str(file)]
    if fair_order is not None:
        shipped = yaml.safe_load((ROOT / "manifests" / "base" / "policy.yaml").read_text())
        policy = yaml.safe_load(shipped["data"]["policy.yaml"]) | {"fairOrder": fair_order}
        own = installation.cluster.folder / "soak-policy.yaml"
        own.write_text(yaml.safe_dump(policy))
        arguments += ["--policy", str(own)]
    return runs.start_replicas(installation, "sweeper", count, *arguments)


def _why(pod: dict[str, Any], api: Api) -> str:
    spec, name = pod["spec"], pod["metadata"]["name"]
    events = api.json("GET", f"/api/v1/namespaces/{pod['metadata']['namespace']}/events")["items"]
    notes = [each["message"] for each in events if each["involvedObject"].get("name") == name]
    state = "is gated" if spec.get("schedulingGates") else f"is on {spec.get('nodeName') or 'no node'}"
    return f"{name} has not come to its end: it {state}, {pod['status'].get('phase')}; {notes[-3:]}"


def main(argv: list[str] | None = None) -> int:
    """Run hack/soak; returns the exit status."""
    parser = argparse.ArgumentParser(prog="hack/soak", description=__doc__.split("\n")[0])
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument(
        "--scale-up", action="store_true", help="an autoscaler makes and removes nodes as well"
    )
    parser.add_argument("--broken-nodes", action="store_true", help="on some nodes all pods fail as well")
    runs.add_options(parser, "sweepers")
    options = parser.parse_args(argv)
    seed = runs.seed_of(options)
    say(f"Seed {seed}, {options.minutes:g} minutes.")
    with runs.fresh_cluster() as cluster:
        soak = Soak(
            cluster,
            Plan(options.minutes * 60, seed, scale_up=options.scale_up, broken_nodes=options.broken_nodes),
        )
        try:
            faults = soak.run()
        finally:
            runs.keep_logs(options.logs, soak.sweepers)
    ledger = soak.ledger
    say(f"{ledger.given.judged} uses of claimed devices judged")
    say(f"{ledger.released} releases and {ledger.bound} bindings judged; order of cards not judged for")
    hostile = dict(sorted(soak.tenant.done.items()))
    say(soak.held.summary)
    if soak.broken is not None:
        say(soak.broken.summary)
    halves = ledger.halves
    say(f"{len(halves.preempted)} pods preempted; no gang half dead for more than {halves.longest:.0f} s")
    say(f"Order: {soak.plan.fair_order or 'by age'}")
    say(f"The hostile tenant did {hostile}; refused: {dict(soak.tenant.refused)}")
    say(f"{ledger.unjudged} of them, seen in a list after a restart. Done: {dict(sorted(soak.done.items()))}")
    return runs.verdict(faults, seed)


if __name__ == "__main__":
    sys.exit(main())
