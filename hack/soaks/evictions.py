"""Whom the sweeper evicts: for a gang of higher priority, or with what others have left of its own gang.

Who evicted a pod stands in the audit log alone. Whose plan names it as a victim, how important both are, and
whether its gang had lost a pod to preemption, is seen on the watches.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from hack.soaks.losses import SWEEPER
from hack.soaks.takes import preempted
from labeler.contract import keys
from webhook.workloads import marks

Json = dict[str, Any]
Gang = tuple[str, str]
Name = tuple[str, str]
"""Namespace and name."""

_CREATED: Final = 201


@dataclass
class Evictions:
    """Follows the pods and the plans; the ledger feeds it.

    for_others: pods evicted for a gang of higher priority; of_halves: with what was left of their own gang.
    """

    for_others: int = 0
    of_halves: int = 0
    _priority: dict[str, int] = field(default_factory=dict)
    _known: dict[Name, tuple[str, Gang]] = field(default_factory=dict)
    _lost: dict[Gang, set[str]] = field(default_factory=dict)
    _wanted_by: dict[str, set[str]] = field(default_factory=dict)

    def plan(self, placement: Json) -> None:
        """A version of a Placement."""
        spec = placement.get("spec", {})
        planned = {entry["uid"] for entry in spec.get("pods", [])}
        for group in spec.get("victims", []):
            for uid in group.get("pods", []):
                self._wanted_by.setdefault(uid, set()).update(planned)

    def pod(self, pod: Json) -> None:
        """A version of a pod."""
        metadata = pod["metadata"]
        uid, name = metadata["uid"], (metadata["namespace"], metadata["name"])
        self._priority[uid] = pod["spec"].get("priority", 0)
        _, gang = self._known[name] = uid, _gang_of(metadata)
        if preempted(pod):
            self._lost.setdefault(gang, set()).add(uid)

    def faults(self, audit: Iterable[str]) -> list[str]:
        """What the sweeper evicted for no such reason; audit: the lines of the API server's log."""
        found = []
        for line in audit:
            entry = json.loads(line)
            of = entry.get("objectRef", {})
            name = (of.get("namespace", ""), of.get("name", ""))
            if (
                (entry["verb"], of.get("resource"), of.get("subresource")) != ("create", "pods", "eviction")
                or entry["user"]["username"] != SWEEPER
                or entry.get("responseStatus", {}).get("code") != _CREATED
                or name not in self._known
            ):
                continue
            uid, gang = self._known[name]
            mine = self._priority[uid]
            if any(self._priority.get(other, 0) > mine for other in self._wanted_by.get(uid, ())):
                self.for_others += 1
            elif self._lost.get(gang, set()) - {uid}:
                self.of_halves += 1
            else:
                at = entry.get("requestReceivedTimestamp", "")[11:19]
                found.append(
                    f"{at}: the sweeper evicted {'/'.join(name)} of {gang[1]}, of priority {mine}: no plan "
                    "of a higher one names it, and its gang had lost no pod to others"
                )
        return found


def _gang_of(metadata: Json) -> Gang:
    """What stands for its gang: what its author calls it, its JobSet, or its controller."""
    owners = (each["uid"] for each in metadata.get("ownerReferences", ()) if each.get("controller"))
    said = (metadata.get("annotations") or {}).get(keys.GANG_ANNOTATION)
    job_set = (metadata.get("labels") or {}).get(marks.JOBSET_NAME_LABEL)
    return metadata["namespace"], str(said or job_set or next(owners, metadata["name"]))
