"""The API server's audit log: the only place that says who deleted or evicted a pod."""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

Name = tuple[str, str]
"""Namespace and name."""

SWEEPER: Final = "system:serviceaccount:topogate-system:sweeper"


def audit_lines(log: Path) -> Iterator[str]:
    """All lines of the API server's audit log, also of the parts that were put aside as it grew (100 MB)."""
    for file in (*sorted(log.parent.glob(f"{log.stem}-*{log.suffix}")), log):
        with file.open() as lines:
            yield from lines


def taken_by_sweeper(audit: Iterable[str], *, evicted: bool) -> Iterator[tuple[Name, str]]:
    """The pods that the sweeper evicted, or else deleted, with the time of day of each.

    audit: the log's lines; what was refused is left out.
    """
    call = ("create", "pods", 201) if evicted else ("delete", "pods", 200)
    for line in audit:
        entry = json.loads(line)
        of = entry.get("objectRef", {})
        code = entry.get("responseStatus", {}).get("code")
        is_such = (entry["verb"], of.get("resource"), code) == call
        is_such &= not evicted or of.get("subresource") == "eviction"
        if is_such and entry["user"]["username"] == SWEEPER:
            name = (of.get("namespace", ""), of.get("name", ""))
            yield name, entry.get("requestReceivedTimestamp", "")[11:19]
