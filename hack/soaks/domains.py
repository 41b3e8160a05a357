"""What must hold of exclusive Jobs at every moment: each is in one block, where no other of them is."""

from collections.abc import Set
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from labeler.contract import keys
from webhook.workloads import marks

OVER: Final = keys.PRERELEASE_TOPOLOGY[0]
"""The label of whose domains Jobs of a soak want one each: the block."""


class _Place(NamedTuple):
    job: str
    block: str
    description: str


@dataclass
class Domains:
    """Where pods of exclusive Jobs are, or are sent to; faults: sentences. The ledger feeds it.

    A pod on a node that was removed counts until it is gone: its kubelet may run it on.
    """

    faults: list[str] = field(default_factory=list)
    seen: int = 0
    _places: dict[str, _Place] = field(default_factory=dict)

    def pod(self, pod: dict[str, Any], node: str) -> None:
        """A version of a pod. node: where it counts, "" if it is gone or waits."""
        metadata = pod["metadata"]
        if metadata.get("annotations", {}).get(marks.JOBSET_EXCLUSIVE) != OVER:
            return
        before = self._places.pop(metadata["uid"], None)
        if not node:
            return
        state = "bound" if pod["spec"].get("nodeName") else "released"
        state += ", being deleted" if metadata.get("deletionTimestamp") else ""
        description = f"{metadata['name']} ({state}, {node}, version {metadata['resourceVersion']})"
        mine = self._places[metadata["uid"]] = _Place(
            metadata["labels"][marks.JOB_NAME_LABEL], node.split("-")[1], description
        )
        if before is not None and before[:2] == mine[:2]:
            return
        self.seen += 1
        at = datetime.now(UTC)
        for other in self._places.values():
            if other.job == mine.job and other.block != mine.block:
                self.faults.append(
                    f"{at:%T}: {description} is in another block than {other.description}, of its Job"
                )
            if other.job != mine.job and other.block == mine.block:
                self.faults.append(
                    f"{at:%T}: {description} is in the block of {other.description}, of another Job"
                )

    def keep_only(self, uids: Set[str]) -> None:
        """The others are gone: a watch was interrupted, and then all that is there was listed."""
        self._places = {uid: place for uid, place in self._places.items() if uid in uids}
