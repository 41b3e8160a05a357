"""Labels through Node Feature Discovery: a feature file that NFD's worker reads, instead of writing the Node.

``key=value`` lines in ``/etc/kubernetes/node-feature-discovery/features.d/``. NFD labels the Node with
them; its master allows every namespace but kubernetes.io, unless ``denyLabelNs`` says otherwise. A
NodeFeatureRule makes extended resources of them (manifests/components/labeler-nfd). The file stays when the
labeler ends: without it, NFD takes the labels off the node, and with them what they select or make.
https://kubernetes-sigs.github.io/node-feature-discovery/stable/usage/customization-guide.html
"""

import logging
from pathlib import Path
from typing import Final

from labeler.labels import Wanted
from labeler.publisher import LabelChange, describe

log: Final = logging.getLogger(__name__)


class FeatureFile:
    """One file, replaced as a whole, and only when it changes. NFD writes no annotations."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def publish(self, want: Wanted) -> LabelChange:
        """Write the labels; lines of a kind of which nothing is known now stay. Raises OSError."""
        now = self._read()
        unchanged = {key: value for key, value in now.items() if key.startswith(want.unknown)}
        goal = unchanged | dict(want.labels)
        if now == goal and self._path.exists():
            return LabelChange()
        # A name that opens with a dot is not read by NFD, so nobody sees half a file.
        partial = self._path.with_name(f".{self._path.name}.partial")
        partial.write_text("".join(f"{key}={value}\n" for key, value in sorted(goal.items())))
        partial.replace(self._path)
        changed = {key: value for key, value in goal.items() if now.get(key) != value}
        change = LabelChange(labels=changed | dict.fromkeys(now.keys() - goal.keys()))
        log.info("wrote %s to %s", describe(change), self._path)
        return change

    def _read(self) -> dict[str, str]:
        try:
            lines = self._path.read_text().splitlines()
        except FileNotFoundError:
            return {}
        return {key: value for key, _, value in (line.partition("=") for line in lines if "=" in line)}
