"""What must hold of exclusive Jobs at every moment: each is in one block, where no other of them is."""

from dataclasses import dataclass, field
from typing import Any, Final

from labeler.contract import keys
from webhook.workloads import marks

OVER: Final = keys.PRERELEASE_TOPOLOGY[0]
"""The label of whose domains Jobs of a soak want one each: the block."""


@dataclass
class Domains:
    """Where pods of exclusive Jobs are, or are sent to; faults: sentences. The ledger feeds it."""

    faults: list[str] = field(default_factory=list)
    seen: int = 0
    _places: dict[str, tuple[str, str]] = field(default_factory=dict)

    def pod(self, pod: dict[str, Any], node: str) -> None:
        """A version of a pod. node: where it counts, "" if it is gone or waits."""
        metadata = pod["metadata"]
        if metadata.get("annotations", {}).get(marks.JOBSET_EXCLUSIVE) != OVER:
            return
        before = self._places.pop(metadata["uid"], None)
        if not node:
            return
        job, block = metadata["labels"][marks.JOB_NAME_LABEL], node.split("-")[1]
        self._places[metadata["uid"]] = job, block
        if before == (job, block):
            return
        self.seen += 1
        for other, its_block in self._places.values():
            if other == job and its_block != block:
                self.faults.append(
                    f"{metadata['name']} is in {block}, others of its exclusive Job in {its_block}"
                )
            if other != job and its_block == block:
                self.faults.append(f"{metadata['name']} is in {block}, where the exclusive Job {other} is")
