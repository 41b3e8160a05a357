"""Fills the cluster of a soak with gangs that run for long, and sends more important ones after them.

Some of these are placed by topogate, which makes whole gangs go; pods of others are placed by kube-scheduler,
which makes single pods go and leaves halves.
"""

import random
from collections import Counter
from collections.abc import Collection
from typing import Final

from hack.soaks.crowd import OURS, UNFINISHED, Crowd
from hack.soaks.reader import PODS
from hack.soaks.takes import GPUS
from webhook.kube.client import Api

LOW: Final = ""
"""No class: kube-scheduler takes the least important pods first, and is to take these."""
HIGH: Final = "gpu-high-priority"
WHOLE: Final = 8
"""GPUs of a node: what each pod of these asks for."""
_SECONDS: Final = (20.0, 35.0)
_FOREIGN_SECONDS: Final = (10.0, 15.0)
"""Long enough that the pod that was evicted finds no place before its gang is given up."""
_FOREIGN: Final = 3
_MOST_FREE: Final = 8
"""So many nodes that are free are filled by pods of others as well, so that the next of them preempt."""
MOST_PATIENT: Final = 150.0
"""Longer than any gang may run partially: else what is left of one ends before that is reported."""
_FEW: Final = 16
"""No more long gangs come while so many of their pods have not ended."""


class Waves:
    """Posts wave after wave: long gangs, then pods of others that preempt some, then a gang that does."""

    def __init__(
        self,
        api: Api,
        crowd: Crowd,
        nodes: Collection[str],
        patient: float,
        choices: random.Random,
        done: Counter[str],
    ) -> None:
        """nodes: those to fill. patient: for so many seconds one gang of each wave runs."""
        self._patient = patient
        self._api = api
        self._crowd = crowd
        self._nodes = frozenset(nodes)
        self._random = choices
        self._done = done
        self._waves = 0

    def something(self) -> None:
        """The next wave. Raises ApiError."""
        wave = (self._fill, self._foreign, self._urgent)[self._waves % 3]
        self._waves += 1
        wave()

    def _fill(self) -> None:
        pods = self._api.json("GET", f"/api/v1/namespaces/{OURS}/pods", query=UNFINISHED)["items"]
        if sum(pod["metadata"].get("labels", {}).get("soak") == "long" for pod in pods) >= _FEW:
            return
        left = len(self._nodes)
        while left > 0:
            size = self._random.choice((3, 5, 6, 8))
            is_patient = left == len(self._nodes)
            left -= size
            self._done["long"] += 1
            self._crowd.post_job(
                f"long-{self._done['long']}",
                size,
                {GPUS: WHOLE},
                labels={"soak": "long"},
                spec={"priorityClassName": LOW},
                seconds=max(self._patient, _SECONDS[0]) if is_patient else self._random.uniform(*_SECONDS),
            )

    def _urgent(self) -> None:
        self._done["preempting"] += 1
        name, size = f"preempting-{self._done['preempting']}", self._random.choice((4, 6, 8))
        self._crowd.post_job(name, size, {GPUS: WHOLE}, spec={"priorityClassName": HIGH})

    def _foreign(self) -> None:
        pods = self._api.json("GET", PODS, query=UNFINISHED)["items"]
        free = len(self._nodes - {pod["spec"].get("nodeName") for pod in pods})
        for _ in range(_FOREIGN + (free if free <= _MOST_FREE else 0)):
            self._done["foreign preempting"] += 1
            name = f"foreign-preempting-{self._done['foreign preempting']}"
            self._crowd.post_foreign(name, WHOLE, HIGH, self._random.uniform(*_FOREIGN_SECONDS))
