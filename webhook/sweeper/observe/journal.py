"""What has become of pods since somebody looked last: so a pass need not look at all of them."""

import threading
from collections.abc import Mapping

from webhook.kube.objects import Pod


class Journal:
    """Pods that have come, changed or gone, by uid, until they are taken. Safe for use by many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._changes: dict[str, Pod | None] = {}

    def begin(self, pods: Mapping[str, Pod]) -> None:
        """Take in those that are there already; what has been noted since counts more."""
        with self._lock:
            for pod in pods.values():
                self._changes.setdefault(pod.metadata.uid, pod)

    def note(self, before: Pod | None, after: Pod | None) -> None:
        """Take in a change; before: None of a new pod, after: None of one that is gone."""
        with self._lock:
            # Deleted and made again under its name, while nobody looked.
            if before is not None and (after is None or after.metadata.uid != before.metadata.uid):
                self._changes[before.metadata.uid] = None
            if after is not None:
                self._changes[after.metadata.uid] = after

    def take(self) -> Mapping[str, Pod | None]:
        """What each pod has become since the last time, None of one that is gone."""
        with self._lock:
            changes, self._changes = self._changes, {}
        return changes
