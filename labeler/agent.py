"""The loop: ask every source, merge their facts, publish; again when a source notices a change or time is up.

A source that fails is logged and keeps its last facts, but for those that came with the failure. While one
has failed and never gave all its facts, labels of kinds without facts stay on the node as they are: not
knowing is not knowing that there is nothing.
"""

import logging
import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final, Protocol

from labeler.api import NodeApiError
from labeler.contract import keys
from labeler.facts import Facts, SourceError, merge
from labeler.labels import Wanted, wanted
from labeler.publisher import LabelChange
from labeler.sources import Source

log: Final = logging.getLogger(__name__)

FOLD_SECONDS: Final = 0.3
"""Quiet time after an event before it is acted on, so that a storm of events causes one update."""
FOLD_AT_MOST_SECONDS: Final = 1.0
FIRST_RETRY_SECONDS: Final = 1.0
LAST_RETRY_SECONDS: Final = 30.0
_LONGEST_PROBLEM: Final = 1000
"""Characters: a metadata server decides what is in a problem's text."""

_random: Final = random.SystemRandom()  # nodes that start together must not ask together


class Output(Protocol):
    """Where labels are written."""

    def publish(self, want: Wanted) -> LabelChange:
        """Make it so; returns what had to be changed. Raises NodeApiError or OSError."""


class Agent:
    """One node's sources and one output."""

    def __init__(
        self,
        sources: Mapping[str, Source],
        output: Output,
        levels: Sequence[str] = keys.PRERELEASE_TOPOLOGY,
        pci_group_level: int = 0,
        falldio: bool = False,
    ) -> None:
        """sources: by name, the one that wins first."""
        self._sources = dict(sources)
        self._output = output
        self._levels = tuple(levels)
        self._pci_group_level = pci_group_level
        self._falldio = falldio
        self._last_facts: dict[str, Facts] = {}
        self._complete: set[str] = set()  # sources that have once given all their facts
        self._wake = threading.Event()
        self._stop = threading.Event()
        self.failed: Mapping[str, str] = {}
        """Sources that failed when they were last asked, and why."""

    def stop(self) -> None:
        """End run() soon; callable from a signal handler."""
        self._stop.set()
        self._wake.set()

    def discover(self) -> Wanted:
        """Ask every source. Returns the labels that the node should carry."""
        failed: dict[str, str] = {}
        for name, source in self._sources.items():
            try:
                self._last_facts[name] = self._checked(source.discover())
                self._complete.add(name)
            except SourceError as error:
                failed[name] = self._note_failure(name, error, error.facts)
            except Exception as error:  # a fault of one source must not cost the node the others' labels
                log.debug("source %s", name, exc_info=True)
                failed[name] = self._note_failure(name, repr(error), Facts())
        self.failed = failed
        merged = merge(self._last_facts[name] for name in self._sources)
        unknown = unknown_prefixes(merged, self._levels) if self._sources.keys() - self._complete else ()
        return wanted(merged, self._levels, self._pci_group_level, unknown, falldio=self._falldio)

    def _note_failure(self, name: str, error: object, facts: Facts) -> str:
        """Log it, once until it changes, and keep the source's last facts but for these."""
        self._last_facts[name] = merge((facts, self._last_facts.get(name, Facts())))
        problem = str(error)
        if len(problem) > _LONGEST_PROBLEM:
            problem = problem[:_LONGEST_PROBLEM] + "..."
        repeated = self.failed.get(name) == problem
        log.log(logging.DEBUG if repeated else logging.WARNING, "source %s: %s", name, problem)
        return problem

    def _checked(self, facts: Facts) -> Facts:
        """The facts themselves. Raises SourceError, with the others, for a place of the wrong depth."""
        try:
            wanted(facts, self._levels, self._pci_group_level)
        except SourceError as error:
            raise SourceError(str(error), replace(facts, topology=None)) from error
        return facts

    def once(self) -> LabelChange:
        """Discover and publish once. Raises what the output raises."""
        return self._output.publish(self.discover())

    def run(self, interval_seconds: float, heartbeat: Callable[[str], None] = lambda problem: None) -> None:
        """Keep the node right until stop() is called; the interval is spread by a tenth either way.

        heartbeat is called after every update with what went wrong, "" if nothing did.
        """
        for name, source in self._sources.items():
            threading.Thread(
                target=source.watch, args=(self._wake.set, self._stop), name=f"watch {name}", daemon=True
            ).start()
        retry = FIRST_RETRY_SECONDS
        while not self._stop.is_set():
            self._wake.clear()
            try:
                self.once()
                heartbeat("")
                retry, pause = FIRST_RETRY_SECONDS, interval_seconds * _random.uniform(0.9, 1.1)
            except (NodeApiError, OSError) as error:
                asked = getattr(error, "retry_after", None) or 0.0
                pause = max(asked, retry) * _random.uniform(1.0, 1.5)
                retry = min(2 * retry, LAST_RETRY_SECONDS)
                heartbeat(str(error))
                log.warning("not published, next try in %.1f s: %s", pause, error)
            if self._wake.wait(pause):
                self._fold()

    def _fold(self) -> None:
        """Wait until a storm of events has passed, though not for ever."""
        deadline = time.monotonic() + FOLD_AT_MOST_SECONDS
        while time.monotonic() < deadline:
            self._wake.clear()
            if self._stop.is_set() or not self._wake.wait(FOLD_SECONDS):
                return


def unknown_prefixes(facts: Facts, levels: Sequence[str]) -> tuple[str, ...]:
    """Key prefixes that these facts, which only some of the sources gave, do not cover."""
    unknown: tuple[str, ...] = (keys.LABELER_PREFIX,)  # each source adds to the node's identity
    if facts.topology is None:
        unknown += tuple(levels)
    if facts.gpus is None:
        unknown += (keys.INTEL_PREFIX, keys.GPU_PREFIX, keys.FALLDIO_GPU)
    return unknown
