"""A sweeper that is killed right before or after a chosen write, and the choice of these.

`python -m hack.soaks.dying_sweeper ARGUMENTS...` is topogate-sweeper. It dies as the variable DEATH says:
"after 2 PATCH pods" is once the API server has answered its second patch of a pod.
"""

import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Collection
from dataclasses import replace
from typing import Any, Final

from hack.local.controlplane import free_port
from hack.local.install import SYSTEM, Installation
from hack.soaks.short_times import shorten_times
from hack.soaks.sweepers import with_settings
from webhook.kube.client import Api
from webhook.sweeper.main import main

DEATH: Final = "TOPOGATE_DEATH"
MOMENTS: Final = ("before", "after")
WRITES: Final = (
    "POST placements",
    "PATCH placements",
    "PATCH placements/status",
    "DELETE placements",
    "PATCH pods",
    "DELETE pods",
    "POST pods/eviction",
    "POST events",
)
REPLACING: Final = ("PATCH podgroups", "DELETE podgroups")
"""Writes that replace a PodGroup which does not fit."""
OF_POD_GROUPS: Final = ("POST podgroups", *REPLACING)
"""Writes of a sweeper that binds gangs as one, beside the others."""

LIFE_SECONDS: Final = 7.0
"""After so long it is killed at whatever moment, as its write has not come."""
REPAIRS: Final = ("DELETE pods",)
"""Writes that need a longer life: a sweeper counts bind_seconds of each pod from its own start."""
REPAIR_SECONDS: Final = 30.0
"""The same for these."""
BY_ITSELF: Final = "by itself"
"""What is counted where one has ended otherwise."""
_MOST: Final = 2
_KILLED: Final = "killed at its write"
"""What a log says last of a life that has ended as it was to."""
_SYNCED: Final = " synced "
"""What it says when the first pass begins."""


def kind_of(method: str, path: str) -> str:
    """A write without its object: "PATCH placements/status"."""
    parts = path.split("?")[0].strip("/").split("/")
    parts = parts[2:] if parts[0] == "api" else parts[3:]
    if parts[:1] == ["namespaces"] and len(parts) > 2:
        parts = parts[2:]
    return f"{method} {'/'.join([parts[0], *parts[2:]])}" if parts else method


def life_seconds(write: str) -> float:
    """After so long a life ends at whatever moment that was to end at this write."""
    return REPAIR_SECONDS if write in REPAIRS else LIFE_SECONDS


class DyingSweeper:
    """One life after the other, each with a death of its own; the deaths are drawn like cards of a deck."""

    def __init__(
        self,
        installation: Installation,
        choices: random.Random,
        writes: Collection[str],
        settings: dict[str, Any] | None = None,
    ) -> None:
        """settings: of each life, see short_times. done: deaths by their name."""
        first = installation.program_of(SYSTEM, {"app.kubernetes.io/component": "sweeper"})
        log = installation.cluster.log("sweeper-1")
        self.program = with_settings(replace(first, log=log), settings or {}, __name__)
        metrics = ("--metrics-address", "127.0.0.1", "--metrics-port", str(free_port()))
        self._arguments = ("--no-leader-election", *metrics)
        self._random, self._writes = choices, sorted(writes)
        self._deck: list[str] = []
        self._death, self._synced = "", 0
        self._since: float | None = None
        self.done: Counter[str] = Counter()

    @property
    def all_deaths(self) -> list[str]:
        """Every death that is drawn."""
        return [f"{moment} {write}" for write in self._writes for moment in MOMENTS]

    @property
    def awaits(self) -> str:
        """The write at which this life is to end, "" if at none."""
        return self._death.partition(" ")[2]

    def start(self, *, forever: bool = False) -> None:
        """Begin a life. forever: without a death."""
        if not self._deck:
            self._deck = self.all_deaths
            self._random.shuffle(self._deck)
        self._death = "" if forever else self._deck.pop()
        moment, _, write = self._death.partition(" ")
        number = self._random.randint(1, _MOST)
        self.program.environment[DEATH] = f"{moment} {number} {write}" if write else ""
        self._synced = self._log.count(_SYNCED)
        self.program.start(*self._arguments)
        self._since = None

    def look(self) -> None:
        """Begin the next life where one has ended, and end one that has lasted for long."""
        process = self.program.process
        if process is not None and process.alive:
            # A start takes long on a busy machine: a life counts from the first pass.
            if self._since is None and self._log.count(_SYNCED) > self._synced:
                self._since = time.monotonic()
            if self._since is None or time.monotonic() - self._since < life_seconds(self.awaits):
                return
            process.send(signal.SIGKILL)
            self.done["at another moment"] += 1
        else:
            self.done[self._death if self._was_killed() else BY_ITSELF] += 1
        self.start()

    def _was_killed(self) -> bool:
        return self._log.rstrip().endswith(_KILLED)

    @property
    def _log(self) -> str:
        return self.program.log.read_text(errors="replace") if self.program.log.exists() else ""


def _install(death: str) -> None:
    """Have this process die."""
    moment, number, write = death.split(" ", 2)
    left, request = int(number), Api.request

    def dying(api: Api, method: str, path: str, **options: Any) -> bytes:
        nonlocal left
        if kind_of(method, path) != write:
            return request(api, method, path, **options)
        left -= 1
        if left == 0 and moment == MOMENTS[0]:
            _die()
        answer = request(api, method, path, **options)
        if left <= 0:
            _die()
        return answer

    Api.request = dying  # type: ignore[assignment, method-assign]


def _die() -> None:
    os.write(2, f"{_KILLED}\n".encode())
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    if os.environ.get(DEATH):
        _install(os.environ[DEATH])
    shorten_times()
    sys.exit(main())
