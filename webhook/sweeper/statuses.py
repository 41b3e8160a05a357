"""Write what is told of gangs into Placements: what differs, one by one, for as long as a pass may last.

A Placement that cannot be written keeps no other from being written; it is said once why.
"""

import logging
from collections.abc import Callable, Mapping, Sequence

from webhook.kube import placements
from webhook.kube.client import ApiError
from webhook.kube.placements import Placement, PlacementStatus
from webhook.sweeper.context import Pass
from webhook.sweeper.decide import plan
from webhook.sweeper.observe.gangs import PodGang

logger = logging.getLogger(__name__)


class StatusWriter:
    """Writes for one pass, for as long as that may last from now on.

    missed: the first Placement for which it had no time, or "". first: where the next pass is to begin, or
    "". failed: by Placement ("namespace/name"), what kind of error has been logged.
    """

    def __init__(self, surroundings: Pass, failed: Mapping[str, str]) -> None:
        self._pass = surroundings
        self._deadline = surroundings.clock() + surroundings.settings.pass_seconds
        self._is_away = False
        self.failed = dict(failed)
        self.missed = self.first = ""

    def write(self, placement: Placement, status: PlacementStatus) -> None:
        """Write a status that differs."""
        if status == placement.status:
            return

        def write() -> None:
            self._pass.cache.written(placements.write_status(self._pass.api, placement, status))

        self._try(placement, write)

    def create(self, gang: PodGang, status: PlacementStatus) -> None:
        """Write a Placement without a plan, which says why the gang waits."""

        def create() -> None:
            spec = plan.plan_spec(gang, None, [])
            made = placements.write_plan(self._pass.api, None, plan.plan_metadata(gang), spec)
            self._pass.cache.written(made)
            self._pass.cache.written(placements.write_status(self._pass.api, made, status))

        self._attempt(gang.key.placement_key, create, expected=(409,))

    def remove(self, placement: Placement) -> None:
        """Remove a Placement whose gang is gone."""

        def remove() -> None:
            placements.delete(self._pass.api, placement)
            self._pass.cache.forgotten(placement)

        self._try(placement, remove)

    def _try(self, placement: Placement, action: Callable[[], None]) -> None:
        # Gone, or written since: then the watch will show it.
        if self._attempt(placement.key, action, expected=(404, 409)):
            self._pass.cache.forgotten(placement)

    def _attempt(self, name: str, write: Callable[[], None], expected: Sequence[int]) -> bool:
        """Write for one gang; returns whether the API server refused in an expected way (HTTP status).

        Any other failure is said once until it is another. Once the API server is away nothing more is tried
        in this pass: each try would wait as long. The next one begins behind that Placement, as it may be
        away for its namespace alone.
        """
        if not self._has_time(name) or not self._pass.may_act():
            return False
        self._pass.heartbeat()
        try:
            write()
        except ApiError as error:
            if error.status in expected:
                return True
            self._is_away = not error.status
            self._pass.metrics.errors.labels(str(error.status)).inc()
            # Not told apart by the message: it has ports, versions and times in it.
            if self._is_news(name, f"{error.status} {error.reason}"):
                logger.warning("status_failed placement=%s error=%r", name, str(error))
        except Exception as error:  # the other gangs are still to be told of
            if self._is_news(name, type(error).__name__):
                logger.exception("status_failed placement=%s error=%r", name, error)
        else:
            self.failed.pop(name, None)
        return False

    def _has_time(self, name: str) -> bool:
        """Whether a pass has time left, and the API server is there; notes the first that has to wait."""
        if self._pass.clock() >= self._deadline:
            self.missed = self.missed or name
        if not self.missed and not self._is_away:
            return True
        self.first = self.first or name
        return False

    def _is_news(self, name: str, kind: str) -> bool:
        before, self.failed[name] = self.failed.get(name), kind
        return before != kind
