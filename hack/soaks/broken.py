"""Nodes whose GPUs are broken for all of a soak, and whether the sweeper finds out which they are.

True at every moment is that no good node is avoided, as no pod fails there, and that no more than a share of
the nodes is. And a node that enough gangs accuse must have been avoided at some time. That is counted here as
the sweeper counts: not failed pods, but gangs that failed on that one node and ran elsewhere. Pods that are
not recreated, or a gang of which pods failed on both nodes, say nothing of either.
"""

import contextlib
import random
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from hack.local.faults import EXIT, NOT_ADMITTED, BrokenNodes
from webhook.extensions.node_health.avoided_nodes import EVERYBODY, NAME, avoided
from webhook.kube.client import Api, ApiError
from webhook.kube.state_config_map import path_of
from webhook.workloads import marks

RULES: Final[dict[str, Any]] = {
    "failures": 2,
    "soon_seconds": 60,
    "outlive_seconds": 1,
    "avoid_seconds": 15,
    "keep_seconds": 300,
    "share": 0.15,
}
"""Short, so that a node is avoided and tried again within minutes. The share: of the 24 nodes of a soak that
have such GPUs some are always gone, and at a share of a tenth the bound would be one node below 20."""

COUNT: Final = 2
MANY: Final = 5
"""Gangs that accuse a node, which must have been avoided by then. By two of a namespace it is: but a leader
that dies forgets since when pods run."""
COUNTED_SECONDS: Final = 240.0
"""The younger ones of those that are kept."""
NOTICED_SECONDS: Final = 60.0
"""For so long a sweeper may be dead or away."""
PROVING_SECONDS: Final = 10.0
"""A pod that runs elsewhere for so long under one leader is seen to, also by one that has little time."""
_RENEWED_SECONDS: Final = 6.0
"""Who has not renewed its lease for so long is dead, or cannot work."""
_LEASE: Final = "/apis/coordination.k8s.io/v1/namespaces/topogate-system/leases/topogate-sweeper"

Gang = tuple[str, str]


@dataclass
class FailedGangs:
    """By node, the Jobs that accuse it: failed there alone, and ran well elsewhere. The ledger feeds it.

    nodes: those that are broken. That a pod ran counts as far as a leader could see it.
    """

    nodes: frozenset[str] = frozenset()
    clock: Callable[[], float] = time.monotonic
    _failed: dict[Gang, dict[str, float]] = field(default_factory=dict)
    _runs: dict[str, tuple[Gang, float]] = field(default_factory=dict)
    _ran: set[Gang] = field(default_factory=set)
    _leader: str = ""
    _led_since: float = 0.0

    def pod(self, pod: dict[str, Any]) -> None:
        """A version of a pod."""
        metadata, node = pod["metadata"], pod["spec"].get("nodeName", "")
        job = (metadata.get("labels") or {}).get(marks.JOB_NAME_LABEL)
        if not job or not node:
            return
        gang, phase = (metadata["namespace"], job), pod.get("status", {}).get("phase")
        is_leaving = "deletionTimestamp" in metadata
        if phase == "Running" and node not in self.nodes and not is_leaving:
            self._runs.setdefault(metadata["uid"], (gang, self.clock()))
        else:
            self._runs.pop(metadata["uid"], None)
        if phase == "Failed" and node in self.nodes and not is_leaving:
            self._failed.setdefault(gang, {}).setdefault(node, self.clock())

    def leads(self, who: str) -> None:
        """Who leads now, "" for nobody."""
        now = self.clock()
        if who != self._leader:
            self._leader, self._led_since = who, now
        if who:
            self._ran |= {
                gang
                for gang, since in list(self._runs.values())
                if now - max(since, self._led_since) >= PROVING_SECONDS
            }

    def of(self, node: str) -> list[tuple[float, str]]:
        """The Jobs that accuse a node, each with when it first failed there, the oldest first."""
        return sorted(
            (at[node], f"{namespace}/{job}")
            for (namespace, job), at in list(self._failed.items())
            if at.keys() == {node} and (namespace, job) in self._ran
        )


class BrokenGpus:
    """Breaks nodes, and judges by the sweeper's own ConfigMap what it makes of them."""

    def __init__(
        self,
        api: Api,
        nodes: Collection[str],
        count: int,
        choices: random.Random,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """nodes: those that may be broken; count: of all nodes that have such GPUs."""
        self._api = api
        self._clock = clock
        self._most = max(1, int(count * float(RULES["share"])))
        names = choices.sample(sorted(nodes), COUNT)
        self.kubelets = BrokenNodes(api, names, choices.choice((EXIT, NOT_ADMITTED)))
        self.names = frozenset(names)
        self.failed_gangs = FailedGangs(self.names, clock)
        self._avoided: set[str] = set()
        self._missed: set[str] = set()
        self._since: dict[str, float] = {}
        self.faults: list[str] = []

    def look(self) -> None:
        """Judge what is avoided now."""
        self.failed_gangs.leads(self._leader())
        with contextlib.suppress(ApiError, msgspec.MsgspecError):
            data = self._api.json("GET", path_of(NAME)).get("data") or {}
            now = avoided(data)
            self._avoided |= {each.node for each in now}
            for by in {each.by for each in now}:
                names = {each.node for each in now if each.by in (by, EVERYBODY)}
                self._check("all" if by == EVERYBODY else f"namespace {by}", names)
        for name in sorted(self.names - self._avoided - self._missed):
            self._check_missed(name)

    def _leader(self) -> str:
        """Who leads, "" for nobody that is known."""
        try:
            lease = self._api.json("GET", _LEASE)["spec"]
        except ApiError:
            return ""
        renewed = datetime.fromisoformat(lease["renewTime"])
        is_alive = (datetime.now(UTC) - renewed).total_seconds() < _RENEWED_SECONDS
        return str(lease.get("holderIdentity") or "") if is_alive else ""

    def _check(self, by: str, names: set[str]) -> None:
        if good := names - self.names:
            self._report(f"{by} avoids {sorted(good)}, where no pod has failed")
        if len(names) > self._most:
            self._report(f"{by} avoids {len(names)} nodes, more than {self._most}")

    def _check_missed(self, name: str) -> None:
        now = self._clock()
        against = [job for at, job in self.failed_gangs.of(name) if now - at < COUNTED_SECONDS]
        if len(against) < MANY:
            self._since.pop(name, None)
        elif now - self._since.setdefault(name, now) > NOTICED_SECONDS:
            self._missed.add(name)
            who = ", ".join(against)
            self._report(
                f"{len(against)} gangs failed on {name} and ran elsewhere, and it is not avoided: {who}"
            )

    def _report(self, fault: str) -> None:
        if not any(described.endswith(fault) for described in self.faults):
            self.faults.append(f"{datetime.now(UTC):%T}: {fault}")

    @property
    def with_failed_gangs(self) -> int:
        """How many gangs accuse one of the nodes."""
        return sum(len(self.failed_gangs.of(name)) for name in self.names)

    @property
    def found(self) -> int:
        """How many of the nodes have been avoided."""
        return len(self._avoided & self.names)

    @property
    def summary(self) -> str:
        """What was done and seen."""
        failed = [node for node, _ in self.kubelets.failed]
        described = ", ".join(
            f"{name} ({failed.count(name)} pods failed, {len(self.failed_gangs.of(name))} gangs accuse it, "
            f"{'avoided' if name in self._avoided else 'not avoided'})"
            for name in sorted(self.names)
        )
        return f"Broken nodes: {described}"
