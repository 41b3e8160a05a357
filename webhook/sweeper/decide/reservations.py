"""Nodes that a gang holds which does not fit and has waited long, so that smaller ones do not starve it.

A reservation ends: one that has not helped within half an hour is let go for as long, because what stands in
the gang's way may never end, and the nodes that it holds are needed.
"""

import logging
import time
from collections.abc import Callable, Set
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from webhook.placement import Snapshot, victims
from webhook.sweeper.decide.question import GangQuestion
from webhook.sweeper.observe.gangs import GangKey, PodGang
from webhook.sweeper.observe.view import View
from webhook.sweeper.settings import Settings

RESERVATION_SECONDS: Final = 1800.0
"""How long a reservation lasts, and how long its gang then goes without."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Held:
    """nodes: none while the gang goes without. since: by the clock."""

    nodes: frozenset[str]
    since: float


class Reservations:
    """What each gang holds; losing it only delays."""

    def __init__(self, settings: Settings, clock: Callable[[], float] = time.monotonic) -> None:
        """Nothing is held yet."""
        self._settings = settings
        self._clock = clock
        self._held: dict[GangKey, _Held] = {}

    def of(self, key: GangKey) -> frozenset[str]:
        """The nodes that a gang holds."""
        held = self._held.get(key)
        return held.nodes if held else frozenset()

    def drop(self, key: GangKey) -> None:
        """The gang has found its place."""
        self._held.pop(key, None)

    def keep_only(self, living: Set[GangKey]) -> None:
        """Other gangs are gone."""
        self._held = {key: held for key, held in self._held.items() if key in living}

    def hold(self, gang: PodGang, asked: GangQuestion, snapshot: Snapshot, view: View) -> None:
        """The gang does not fit now: give it the nodes that are easiest to become free for it, in time."""
        now = self._clock()
        held = self._held.get(gang.key)
        if held is not None and now - held.since < RESERVATION_SECONDS:
            if not held.nodes or all(name in snapshot.nodes for name in held.nodes):
                return
        elif held is not None and held.nodes:
            logger.info("lets_go gang=%s nodes=%d", gang.key, len(held.nodes))
            self._held[gang.key] = _Held(frozenset(), now)
            return
        if _age_seconds(gang) < self._settings.reserve_seconds:
            return
        stays = view.lasting | view.endless
        found = victims.find(asked.gang, snapshot, self._settings.options, lambda use: use.name not in stays)
        self._held.pop(gang.key, None)
        if found is not None:
            self._held[gang.key] = _Held(found.nodes, now)
            logger.info("reserves gang=%s nodes=%d", gang.key, len(found.nodes))


def _age_seconds(gang: PodGang) -> float:
    try:
        created = datetime.fromisoformat(gang.created)
    except ValueError:
        return 0.0
    return (datetime.now(UTC) - created).total_seconds()
