"""Labels of the Node that another writer keeps changing: who, how often, and when each is next to be written.

The first change is undone at once: it may be a mistake. After each further one the labeler waits
longer, so that two writers do not fill the API server with patches of one Node. A label that stays as
written for a while is no longer contested.
"""

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

OWN_MANAGER: Final = "topogate-labeler"
FIRST_PAUSE_SECONDS: Final = 60.0
LONGEST_PAUSE_SECONDS: Final = 3600.0
SETTLED_SECONDS: Final = 7200.0
"""Longer than the longest pause: two writers that meet once an hour still contend."""


@dataclass
class _Label:
    """One label as it was last written. losses: how often it was changed since without having stayed."""

    value: str
    written_at: float
    losses: int = 0
    retry_at: float = 0.0
    is_lost: bool = False


@dataclass(frozen=True)
class Loss:
    """A label that another writer has changed since it was written. manager: who, "" if it is not known."""

    key: str
    wanted: str
    found: str
    manager: str
    losses: int
    pause_seconds: float

    def __str__(self) -> str:
        """A sentence for the node's operator."""
        who = f"{self.manager!r}" if self.manager else "another writer"
        found = f"set to {self.found!r}" if self.found else "removed"
        often = "once" if self.losses == 1 else f"{self.losses} times"
        then = f"in {self.pause_seconds:.0f} s" if self.pause_seconds else "now"
        return (
            f"label {self.key}, which the labeler writes as {self.wanted!r}, was {found} by {who} "
            f"({often}); it is written again {then}. Stop the other writer, or leave the label "
            "to it: take its source out of the labeler's configuration."
        )


class Contention:
    """What is known of one Node's labels. Used by the loop; its numbers are read by other threads."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._labels: dict[str, _Label] = {}
        self.total_losses = 0

    @property
    def contested(self) -> int:
        """How many labels another writer keeps changing."""
        return sum(label.losses > 0 for label in list(self._labels.values()))

    def update(self, metadata: Mapping[str, Any], wanted: Mapping[str, str]) -> tuple[Loss, ...]:
        """Compare a Node with what was written; the labels that were changed since by another."""
        labels = metadata.get("labels") or {}
        now = self._clock()
        for key in self._labels.keys() - wanted.keys():
            del self._labels[key]
        losses = []
        for key, label in self._labels.items():
            if labels.get(key, "") in (label.value, wanted[key]):
                label.is_lost = False
                if now - label.written_at > SETTLED_SECONDS:
                    label.losses = 0
            elif not label.is_lost:
                losses.append(self._lose(key, label, labels.get(key, ""), _manager(metadata, key), now))
        return tuple(losses)

    def deferred(self) -> frozenset[str]:
        """The labels that are not to be written yet."""
        now = self._clock()
        return frozenset(k for k, label in self._labels.items() if label.is_lost and now < label.retry_at)

    def note_written(self, wanted: Mapping[str, str], deferred: Collection[str]) -> None:
        """The Node carries these labels now, but for the deferred ones."""
        now = self._clock()
        for key, value in wanted.items():
            if key in deferred:
                continue
            label = self._labels.setdefault(key, _Label(value, now))
            if label.is_lost or label.value != value:
                label.value, label.written_at, label.is_lost = value, now, False

    def _lose(self, key: str, label: _Label, found: str, manager: str, now: float) -> Loss:
        label.losses += 1
        label.is_lost = True
        self.total_losses += 1
        doublings = min(label.losses - 2, 10)
        pause = min(LONGEST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2**doublings) if label.losses > 1 else 0.0
        label.retry_at = now + pause
        return Loss(key, label.value, found, manager, label.losses, pause)


def _manager(metadata: Mapping[str, Any], key: str) -> str:
    """Who manages a label by the Node's managedFields, other than the labeler itself."""
    for entry in metadata.get("managedFields") or ():
        fields = ((entry.get("fieldsV1") or {}).get("f:metadata") or {}).get("f:labels") or {}
        if f"f:{key}" in fields and entry.get("manager") != OWN_MANAGER:
            return str(entry.get("manager") or "")
    return ""
