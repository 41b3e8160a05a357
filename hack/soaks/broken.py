"""Nodes whose GPUs are broken for all of a soak, and whether the sweeper finds out which they are.

True at every moment is that no good node is avoided, as no pod fails there, and that no more than a share of
the nodes is. In the end a node where many gangs have failed must have been avoided at some time.
"""

import contextlib
import random
from collections.abc import Collection
from typing import Any, Final

import msgspec

from hack.local.faults import EXIT, NOT_ADMITTED, BrokenNodes
from webhook.kube.client import Api, ApiError
from webhook.sweeper.apply.failure_log import PATH, avoided

RULES: Final[dict[str, Any]] = {
    "failures": 2,
    "soon_seconds": 60,
    "outlive_seconds": 1,
    "avoid_seconds": 15,
    "keep_seconds": 90,
    "share": 0.1,
}
"""Short, so that a node is avoided and tried again within minutes."""

COUNT: Final = 2
MANY: Final = 12
"""Pods that failed on a node, after which it must have been avoided: of few, several may be one gang's, or of
gangs that have failed on both nodes."""


class BrokenGpus:
    """Breaks nodes, and judges by the sweeper's own ConfigMap what it makes of them."""

    def __init__(self, api: Api, nodes: Collection[str], count: int, choices: random.Random) -> None:
        """nodes: those that may be broken; count: of all nodes."""
        self._api = api
        self._most = max(1, int(count * float(RULES["share"])))
        names = choices.sample(sorted(nodes), COUNT)
        self.kubelets = BrokenNodes(api, names, choices.choice((EXIT, NOT_ADMITTED)))
        self._names = frozenset(names)
        self._avoided: set[str] = set()
        self._told: list[str] = []

    def look(self) -> None:
        """Judge what is avoided now."""
        with contextlib.suppress(ApiError, msgspec.MsgspecError):
            data = self._api.json("GET", PATH).get("data") or {}
            now = avoided(data)
            self._avoided |= {each.node for each in now}
            for by in {each.by for each in now}:
                names = {each.node for each in now if each.by in (by, "all")}
                self._judge(by, names)

    def _judge(self, by: str, names: set[str]) -> None:
        if good := names - self._names:
            self._say(f"{by} avoids {sorted(good)}, where no pod has failed")
        if len(names) > self._most:
            self._say(f"{by} avoids {len(names)} nodes, more than {self._most}")

    def _say(self, fault: str) -> None:
        if fault not in self._told:
            self._told.append(fault)

    @property
    def faults(self) -> list[str]:
        """What was wrong, as sentences."""
        failed = [node for node, _ in self.kubelets.failed]
        missed = [
            f"{failed.count(name)} pods failed on {name}, and it was never avoided"
            for name in sorted(self._names - self._avoided)
            if failed.count(name) >= MANY
        ]
        return self._told + missed

    @property
    def summary(self) -> str:
        """What was done and seen."""
        count = len(self.kubelets.failed)
        avoided = sorted(self._avoided) or "none"
        return f"{count} pods failed on the broken nodes {sorted(self._names)}; avoided: {avoided}"
