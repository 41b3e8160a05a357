"""Samples of the last hours: GPUs used by model, waiting pods and their ages, and fragmentation.

The page's process keeps them in memory: it needs no Prometheus, and a restart begins without samples.
"""

import math
import threading
from collections import deque
from collections.abc import Sequence
from datetime import datetime
from typing import Final

from webhook.ui.gang_rows import GangRow
from webhook.ui.picture import Picture, Shown

EVERY_SECONDS: Final = 10.0
HOURS: Final = 6
_MOST: Final = int(HOURS * 3600 / EVERY_SECONDS)


class Sample(Shown, frozen=True):
    """One moment. at: seconds since 1970; gpus, used: by model ("" if no label names it).

    waiting: pods; p50, p95: percentiles of their waiting time, in seconds. fragmentation: the share of the
    free GPUs outside of the top-level domain with most free GPUs; 0 if all are in one domain.
    """

    at: float
    gpus: dict[str, int]
    used: dict[str, int]
    waiting: int
    p50: float
    p95: float
    fragmentation: float


def sample(at: float, picture: Picture, gangs: Sequence[GangRow]) -> Sample:
    """The sample of one picture."""
    gpus: dict[str, int] = {}
    used: dict[str, int] = {}
    for tile in picture.nodes.values():
        for model, (there, taken) in tile.gpus_by_model.items():
            gpus[model] = gpus.get(model, 0) + there
            used[model] = used.get(model, 0) + taken
    ages = sorted(_age(at, row) for row in gangs for _ in range(row.waiting))
    free = [tile.gpus - tile.used - tile.waiting for tile in picture.domains if tile.level == 0]
    total = sum(max(0, each) for each in free)
    apart = 1 - max(free) / total if total > 0 else 0.0
    return Sample(at, gpus, used, len(ages), percentile(ages, 0.5), percentile(ages, 0.95), round(apart, 4))


def percentile(ordered: Sequence[float], share: float) -> float:
    """The percentile of sorted values by nearest rank, 0 without values. share: 0.95 for p95."""
    if not ordered:
        return 0.0
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def _age(at: float, row: GangRow) -> float:
    try:
        return max(0.0, at - datetime.fromisoformat(row.created).timestamp())
    except ValueError:
        return 0.0


class History:
    """Samples of the last hours, oldest first. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._samples: deque[Sample] = deque(maxlen=_MOST)

    def add(self, new: Sample) -> None:
        """Add a sample, unless the last one is younger than EVERY_SECONDS."""
        with self._lock:
            if not self._samples or new.at - self._samples[-1].at >= EVERY_SECONDS:
                self._samples.append(new)

    def samples(self) -> list[Sample]:
        """All samples."""
        with self._lock:
            return list(self._samples)
