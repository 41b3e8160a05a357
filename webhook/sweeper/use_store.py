"""The ConfigMap in which decayed use stands, so that the next leader goes on from it.

It is part of the installation and made by nobody here. Written at most once a minute, and only by whoever has
read it; if somebody else has written since, as an operator who forgives a debt, that is taken over.
"""

import logging
import time
from collections.abc import Callable
from typing import Final

from webhook.fairness.book import Book
from webhook.fairness.record import KEY, NAME, Record, RecordError, decode, encode
from webhook.kube.client import ApiError
from webhook.kube.kept_map import NAMESPACE, KeptMap, path_of
from webhook.policy.fair import FairOrder
from webhook.sweeper.context import Pass

PATH: Final = path_of(NAME)
SECONDS: Final = 60.0
"""Between two writes, and between two attempts after one that failed."""

TIMEOUT_SECONDS: Final = 3.0
"""For each request: a pass waits for it."""

logger = logging.getLogger(__name__)


class UseStore:
    """Reads and writes what was used. What fails is said once, and tried again a minute later."""

    def __init__(self, surroundings: Pass, now: Callable[[], float] = time.time) -> None:
        """now: seconds since 1970."""
        self._pass = surroundings
        self._clock = surroundings.clock
        self._now = now
        self._map = KeptMap(surroundings.api, PATH, timeout_seconds=TIMEOUT_SECONDS)
        self._write_at = 0.0
        self._read_at = 0.0
        self._complaint = ""

    @property
    def is_due(self) -> bool:
        """Whether it is to be read: it has not been, or somebody else has written since."""
        return not self._map.version and self._clock() >= self._read_at

    def read(self) -> Record | None:
        """What was written down; None where nothing was, or where it cannot be had now."""
        self._read_at = self._clock() + SECONDS
        try:
            text = self._map.read().get(KEY)
        except ApiError as error:
            self._complain(f"it cannot be read: {error}")
            return None
        self._write_at = self._clock() + SECONDS
        if not text:
            return None
        try:
            record = decode(text)
        except RecordError as error:
            self._complain(f"what stands there is not heeded and will be replaced: {error}")
            return None
        logger.info("use_taken_over accounts=%d seconds_old=%.0f", len(record.use), self._now() - record.at)
        return record

    def write(self, book: Book, fair: FairOrder) -> None:
        """Write use as of now, if that is due and this process leads."""
        if not self._map.version or self._clock() < self._write_at or not self._pass.may_act():
            return
        self._write_at = self._clock() + SECONDS
        try:
            self._map.write({KEY: encode(book.use, self._now(), fair, book.rates)})
        except ApiError as error:
            if error.status in (404, 409):
                self._map.version, self._read_at = "", 0.0
            if error.status != 409:
                self._complain(f"it cannot be written: {error}")
            return
        self._complaint = ""
        self._pass.metrics.fair_written.set(self._now())

    def _complain(self, complaint: str) -> None:
        if complaint != self._complaint:
            self._complaint = complaint
            logger.warning("use_not_kept configmap=%s/%s reason=%r", NAMESPACE, NAME, complaint)
