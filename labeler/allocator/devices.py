"""The cards of this machine over time: read from time to time, and whenever the kernel reports a change.

A card that was seen stays listed for as long as the allocator runs, unhealthy while it is away: the kubelet
takes a device that is not listed any more for a healthy one in the status of the pods that hold it.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

import pyudev

from labeler.allocator.metrics import DEVICES
from labeler.allocator.values import LocalCard
from labeler.wedged_gpus import WedgedGpus

log: Final = logging.getLogger(__name__)

LOOK_SECONDS: Final = 5.0
_POLL_SECONDS: Final = 0.5
_GONE: Final = "it is gone"


class Inventory:
    """The cards; wakes all waiters when one changes."""

    def __init__(self, scan: Callable[[], tuple[LocalCard, ...]]) -> None:
        """scan: the cards as they are now. Nothing is scanned yet."""
        self._scan = scan
        self._cards: dict[str, LocalCard] = {}
        self.wedged = WedgedGpus()
        self._version = 0
        self._changed = threading.Condition()

    def look(self) -> None:
        """Scan once."""
        try:
            found = self._scan()
        except OSError as error:
            log.warning("the cards cannot be listed, what was known stays: %s", error)
            return
        with self._changed:
            cards = self._merged(found)
            if cards == self._cards:
                return
            _log_changes(self._cards, cards)
            self._cards = cards
            self._version += 1
            self._changed.notify_all()
        for resource in {card.resource for card in cards.values()}:
            own = [card for card in cards.values() if card.resource == resource]
            ill = sum(bool(card.problem) for card in own)
            DEVICES.labels(resource, "unhealthy").set(ill)
            DEVICES.labels(resource, "healthy").set(len(own) - ill)

    def _merged(self, found: Iterable[LocalCard]) -> dict[str, LocalCard]:
        """The cards that are there, and those that have vanished, marked as gone."""
        there = {
            card.label: replace(card, problem=card.problem or self.wedged.problem(card.pci_address))
            for card in map(self._with_its_name, found)
        }
        addresses = {card.pci_address for card in there.values()}
        gone = {
            label: replace(card, problem=card.problem or _GONE)
            for label, card in self._cards.items()
            if not (card.is_nameless and card.pci_address in addresses)  # it has a name now
        }
        return dict(sorted((gone | there).items(), key=lambda item: (item[1].number, item[0])))

    def _with_its_name(self, card: LocalCard) -> LocalCard:
        """A card whose driver no longer reports its name, under the name that it had."""
        if not card.is_nameless:
            return card
        had = [
            each
            for each in self._cards.values()
            if each.pci_address == card.pci_address and not each.is_nameless
        ]
        last = max(had, key=lambda each: each.problem != _GONE, default=card)
        return replace(card, name=last.name)

    def cards(self, resource: str | None = None) -> tuple[LocalCard, ...]:
        """The cards in the order of their numbers, of one resource or of all.

        A card of NVIDIA's may have the number of one that has vanished.
        """
        with self._changed:
            return tuple(card for card in self._cards.values() if resource in (None, card.resource))

    @property
    def version(self) -> int:
        """Another number after each change."""
        return self._version

    def wait(self, version: int, seconds: float) -> None:
        """Until the version is another one, or for so long."""
        with self._changed:
            self._changed.wait_for(lambda: self._version != version, seconds)

    def wake(self) -> None:
        """Wake all waiters."""
        with self._changed:
            self._version += 1
            self._changed.notify_all()

    def watch(self, stop: threading.Event) -> None:
        """Look every few seconds and after events of the kernel, until stopped."""
        monitor = _monitor()
        look_at = 0.0
        while not stop.is_set():
            if time.monotonic() >= look_at:
                self.look()
                look_at = time.monotonic() + LOOK_SECONDS
            if monitor is None:
                stop.wait(_POLL_SECONDS)
                continue
            try:
                event = monitor.poll(timeout=_POLL_SECONDS)
            except OSError as error:
                log.warning("device events were lost: %s", error)
                event, look_at = None, 0.0
            if event is not None:
                self.wedged.update(str(event.sys_path), str(event.action), event.properties.get("WEDGED"))
                look_at = min(look_at, time.monotonic() + _POLL_SECONDS)


def _log_changes(before: Mapping[str, LocalCard], after: Mapping[str, LocalCard]) -> None:
    for label, card in after.items():
        was = before.get(label)
        if card.problem and (was is None or was.problem != card.problem):
            log.warning("%s of %s is unhealthy: %s", label, card.resource, card.problem)
        elif not card.problem and (was is None or was.problem):
            log.info("%s of %s is healthy", label, card.resource)


def _monitor() -> Any:
    """Events of the kernel itself, which reach a pod in a network namespace of its own; None without."""
    try:
        monitor = pyudev.Monitor.from_netlink(pyudev.Context(), source="kernel")
        monitor.filter_by("drm")
        monitor.filter_by("pci")
        monitor.start()
    except (OSError, ImportError) as error:
        log.warning("no device events, changes are found every %.0f s: %s", LOOK_SECONDS, error)
        return None
    return monitor
