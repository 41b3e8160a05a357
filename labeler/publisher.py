"""Writes what is wanted to the labeler's own Node: the difference alone, and nothing when there is none.

Who owns a label: the annotation ``labeler.topogate.io/owned-labels`` lists the keys that a labeler wrote,
and it is written in the same patch as they are. A label that is listed and no longer wanted is removed; one
that is not listed is never removed, and neither is one outside our prefixes, whatever is listed. A
label that another writer keeps changing is reported by an Event of the Node, and written less and less
often.
"""

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from labeler.api import NodeApi, NodeApiError
from labeler.contention import Contention, Loss
from labeler.contract import keys
from labeler.contract.event_reasons import EventReason
from labeler.labels import Wanted

log: Final = logging.getLogger(__name__)

OWN_LABEL_PREFIXES: Final = (keys.INTEL_PREFIX, keys.GPU_PREFIX, keys.FALLDIO_GPU)
"""Beside the topology keys that are configured, the only labels that are ever written or removed."""


@dataclass(frozen=True)
class LabelChange:
    """Labels and annotations to set, or to remove where the value is None."""

    labels: Mapping[str, str | None] = field(default_factory=dict)
    annotations: Mapping[str, str | None] = field(default_factory=dict)

    def __bool__(self) -> bool:
        """Whether there is anything to write."""
        return bool(self.labels or self.annotations)


class NodePublisher:
    """Publishes to one Node through the API server."""

    def __init__(self, api: NodeApi, levels: Sequence[str], contention: Contention | None = None) -> None:
        """levels: the topology's label keys, which are ours beside the fixed prefixes."""
        self._api = api
        self._levels = tuple(levels)
        self._contention = contention or Contention()

    def publish(self, want: Wanted) -> LabelChange:
        """Bring the Node to what is wanted; returns what was written. Raises NodeApiError."""
        metadata = self._api.metadata()
        for loss in self._contention.update(metadata, want.labels):
            self._warn(loss)
        deferred = self._contention.deferred()
        change = without(difference(metadata, want, self._levels), deferred)
        if not change:
            log.debug("nothing changed, nothing written")
            self._contention.note_written(want.labels, deferred)
            return change
        body: dict[str, Any] = {"labels": change.labels, "annotations": change.annotations}
        if "uid" in metadata:
            body["uid"] = metadata["uid"]  # refused if the Node was replaced since it was read
        self._api.patch({"metadata": {name: value for name, value in body.items() if value}})
        self._contention.note_written(want.labels, deferred)
        log.info("wrote %s", describe(change))
        return change

    def _warn(self, loss: Loss) -> None:
        log.warning("%s", loss)
        try:
            self._api.warn(EventReason.LABEL_CONTESTED, str(loss))
        except NodeApiError as error:
            log.warning("the Event of it was not taken: %s", error)


def difference(metadata: Mapping[str, Any], want: Wanted, levels: Sequence[str]) -> LabelChange:
    """What to change on a Node with this metadata (pure)."""
    labels: Mapping[str, str] = metadata.get("labels") or {}
    annotations: Mapping[str, str] = metadata.get("annotations") or {}
    owned = owned_keys(annotations.get(keys.OWNED_LABELS_ANNOTATION, ""), levels)
    unchanged = {key for key in owned & labels.keys() if key.startswith(want.unknown)} - want.labels.keys()
    foreign = [
        key for key, value in want.labels.items() if labels.get(key, value) != value and key not in owned
    ]
    if foreign:
        log.warning("taking over labels that somebody else wrote: %s", ", ".join(sorted(foreign)))
    set_labels: dict[str, str | None] = {k: v for k, v in want.labels.items() if labels.get(k) != v}
    stale = (owned & labels.keys()) - want.labels.keys() - unchanged
    now_owned = ",".join(sorted(unchanged | want.labels.keys()))
    want_notes = dict(want.annotations) | ({keys.OWNED_LABELS_ANNOTATION: now_owned} if now_owned else {})
    set_notes: dict[str, str | None] = {k: v for k, v in want_notes.items() if annotations.get(k) != v}
    return LabelChange(
        labels=set_labels | dict.fromkeys(sorted(stale)),
        annotations=set_notes | dict.fromkeys(_stale_notes(annotations, want_notes, want, levels)),
    )


def without(change: LabelChange, deferred: Collection[str]) -> LabelChange:
    """A change but for the labels that are not to be written yet (pure)."""
    labels = {key: value for key, value in change.labels.items() if key not in deferred}
    return LabelChange(labels, change.annotations)


def owned_keys(text: str, levels: Sequence[str]) -> set[str]:
    """The keys of an owned-labels annotation, without any that a labeler never writes."""
    return {
        key for key in filter(None, text.split(",")) if key in levels or key.startswith(OWN_LABEL_PREFIXES)
    }


def _stale_notes(
    annotations: Mapping[str, str], want: Mapping[str, str], wanted: Wanted, levels: Sequence[str]
) -> list[str]:
    """Our own annotations that no longer hold, but for those of which nothing is known now."""
    stale = {key for key in annotations if key.startswith(keys.LABELER_PREFIX)} - want.keys()
    if keys.LABELER_PREFIX in wanted.unknown:
        stale &= {keys.OWNED_LABELS_ANNOTATION, keys.ORIGINAL_VALUES_ANNOTATION}
    if set(levels) & set(wanted.unknown):
        stale -= {keys.ORIGINAL_VALUES_ANNOTATION}
    return sorted(stale)


def describe(change: LabelChange) -> str:
    """One line for the log."""
    parts = []
    for what, values in (("labels", change.labels), ("annotations", change.annotations)):
        parts += [f"{key}={value}" for key, value in sorted(values.items()) if value is not None]
        removed = [key for key, value in sorted(values.items()) if value is None]
        if removed:
            parts.append(f"without {what} {', '.join(removed)}")
    return " ".join(parts)
