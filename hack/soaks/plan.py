"""What a soak does, on which cluster, and how patient its sweepers are."""

import random
from dataclasses import dataclass
from typing import Any, Final

from hack.local import nodes
from hack.soaks.crowd import OURS

PINNED: Final = "pinned"
POD_GROUP: Final = "podgroup"
"""The values of binding.mode."""

HOSTILE: Final = "soak-hostile"
SHAPE: Final = nodes.Shape(nodes=30, blocks=3, subblocks=2, gpus=8, intel=6)
SETTINGS: Final[dict[str, float]] = {
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

FEATURES: Final = ("podgroup", "preemption")
"""What can be left out: gangs that are bound as one, in half of the soaks; gangs that fill the cluster and
others that preempt them."""


@dataclass(frozen=True)
class Plan:
    """What a soak does. Times in seconds.

    crowd: the most unfinished pods, beside the hostile tenant's, before new gangs wait.
    end_seconds: more than the five minutes for which a controller awaits pods that it believes to have made
    (ExpectationsTimeout in pkg/controller), which it may after a restart of the API server.
    lead_seconds: for so long the first leader lives, and others as long or some times that.
    without: of the FEATURES.
    """

    seconds: float
    seed: int
    crowd: int = 80
    disturb_every: float = 1.0
    hostile_every: float = 0.5
    fill_every: float = 8.0
    restart_every: float = 60.0
    lead_seconds: float = 12.0
    end_seconds: float = 360.0
    without: frozenset[str] = frozenset()

    def has(self, feature: str) -> bool:
        """Whether one of the FEATURES is drawn."""
        return feature not in self.without

    def choices(self, whose: str) -> random.Random:
        """Choices of its own for each part, so that no part's timing changes what another does."""
        return random.Random(f"{whose} {self.seed}")

    @property
    def bind(self) -> str:
        """binding.mode: in half of the soaks gangs are bound as one."""
        return self.choices("bind").choice((PINNED, POD_GROUP)) if self.has("podgroup") else PINNED

    @property
    def fair_order(self) -> dict[str, Any] | None:
        """fairOrder, in two of three soaks: short, so that positions change and gangs are overdue."""
        weights = {OURS: 2.0, "soak-*": 1.0}
        drawn = self.choices("fair order").choice((None, {}, {"weights": weights}))
        return None if drawn is None else {"halfLife": "30s", "maximumWait": "20s"} | drawn
