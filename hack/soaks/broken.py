"""Nodes whose GPUs are broken for all of a soak, and which nodes the sweeper avoids.

True at every moment is that no good node is avoided, as no pod fails there, and that no more than a share of
the nodes is. The report says how many of the broken ones have been avoided.
"""

import contextlib
import random
from collections.abc import Collection
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from hack.local.faults import EXIT, NOT_ADMITTED, BrokenNodes
from webhook.extensions.node_health.avoided_nodes import EVERYBODY, NAME, avoided
from webhook.kube.client import Api, ApiError
from webhook.kube.state_config_map import path_of

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


class BrokenGpus:
    """Breaks nodes, and judges by the sweeper's own ConfigMap what it makes of them."""

    def __init__(self, api: Api, nodes: Collection[str], count: int, choices: random.Random) -> None:
        """nodes: those that may be broken; count: of all nodes that have such GPUs."""
        self._api = api
        self._most = max(1, int(count * float(RULES["share"])))
        names = choices.sample(sorted(nodes), COUNT)
        self.kubelets = BrokenNodes(api, names, choices.choice((EXIT, NOT_ADMITTED)))
        self.names = frozenset(names)
        self._avoided: set[str] = set()
        self.faults: list[str] = []

    def look(self) -> None:
        """Judge what is avoided now."""
        with contextlib.suppress(ApiError, msgspec.MsgspecError):
            data = self._api.json("GET", path_of(NAME)).get("data") or {}
            now = avoided(data)
            self._avoided |= {each.node for each in now}
            for by in {each.by for each in now}:
                names = {each.node for each in now if each.by in (by, EVERYBODY)}
                self._check("all" if by == EVERYBODY else f"namespace {by}", names)

    def _check(self, by: str, names: set[str]) -> None:
        if good := names - self.names:
            self._report(f"{by} avoids {sorted(good)}, where no pod has failed")
        if len(names) > self._most:
            self._report(f"{by} avoids {len(names)} nodes, more than {self._most}")

    def _report(self, fault: str) -> None:
        if not any(described.endswith(fault) for described in self.faults):
            self.faults.append(f"{datetime.now(UTC):%T}: {fault}")

    @property
    def found(self) -> int:
        """How many of the nodes have been avoided."""
        return len(self._avoided & self.names)

    @property
    def summary(self) -> str:
        """What was done and seen."""
        failed = [node for node, _ in self.kubelets.failed]
        described = ", ".join(
            f"{name} ({failed.count(name)} pods failed, {'' if name in self._avoided else 'not '}avoided)"
            for name in sorted(self.names)
        )
        return f"Broken nodes: {described}"
