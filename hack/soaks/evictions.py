"""Whom the sweeper evicts: for a gang of higher priority, or with what others have left of its own gang.

Who evicted a pod stands in the audit log alone. Whose plan names it as a victim, how important both are, and
where its gang has lost pods, is seen on the watches. What is left of a gang may go if the others were
preempted, or if more important pods were where it had lost some.
"""

from collections.abc import Iterable, Set
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from hack.soaks.audit import taken_by_sweeper
from hack.soaks.takes import has_ended, preempted
from labeler.contract import keys
from webhook.workloads import marks

Json = dict[str, Any]
Gang = tuple[str, str]
"""Namespace, and what stands for the gang there."""

_PREEMPTED: Final = "preempted"
"""Stands for the node of a lost pod, which then does not matter."""


class _SeenPod(NamedTuple):
    """What a pod is."""

    gang: Gang
    priority: int


@dataclass
class Evictions:
    """Follows the pods and the plans; the ledger feeds it.

    for_others: pods evicted for a gang of higher priority; of_halves: with what was left of their own gang.
    """

    for_others: int = 0
    of_partial_gangs: int = 0
    _pods: dict[str, _SeenPod] = field(default_factory=dict)
    _named: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    _lost: dict[Gang, dict[str, str]] = field(default_factory=dict)
    _there: dict[str, dict[str, int]] = field(default_factory=dict)
    """By node, the priorities of the pods that are there, by uid."""
    _highest_since: dict[str, int] = field(default_factory=dict)
    """By the uid of a pod that was lost, the highest priority of those on its node since then."""
    _lost_on: dict[str, list[str]] = field(default_factory=dict)
    _wanted_by: dict[str, set[str]] = field(default_factory=dict)

    def plan(self, placement: Json) -> None:
        """A version of a Placement."""
        spec = placement.get("spec", {})
        planned = {entry["uid"] for entry in spec.get("pods", [])}
        for group in spec.get("victims", []):
            for uid in group.get("pods", []):
                self._wanted_by.setdefault(uid, set()).update(planned)

    def pod(self, kind: str, pod: Json) -> None:
        """A version of a pod."""
        metadata, spec = pod["metadata"], pod["spec"]
        uid, node, gang = metadata["uid"], spec.get("nodeName", ""), _gang_of(metadata)
        if uid not in self._pods:
            # In a set of pods a name comes again.
            self._named.setdefault((metadata["namespace"], metadata["name"]), []).append(uid)
        seen = self._pods[uid] = _SeenPod(gang, spec.get("priority", 0))
        self._stand(uid, node, seen.priority, is_gone=kind == "DELETED" or has_ended(pod))
        phase = pod.get("status", {}).get("phase")
        if preempted(pod):
            self._lost.setdefault(gang, {})[uid] = _PREEMPTED
        elif node and phase != "Succeeded" and (kind == "DELETED" or "deletionTimestamp" in metadata):
            lost = self._lost.setdefault(gang, {})
            if uid not in lost:
                lost[uid] = node
                self._lost_on.setdefault(node, []).append(uid)
                self._highest_since[uid] = max(self._there.get(node, {}).values(), default=seen.priority)

    def keep_only(self, uids: Set[str]) -> None:
        """The pods that there are, after a gap: the end of others was not reported."""
        for there in self._there.values():
            for uid in there.keys() - uids:
                del there[uid]

    def _stand(self, uid: str, node: str, priority: int, *, is_gone: bool) -> None:
        """The pod is on the node, or no longer."""
        there = self._there.setdefault(node, {}) if node else {}
        if is_gone:
            there.pop(uid, None)
        elif node and uid not in there:
            there[uid] = priority
            for lost in self._lost_on.get(node, ()):
                self._highest_since[lost] = max(priority, self._highest_since[lost])

    def faults(self, audit: Iterable[str]) -> list[str]:
        """What the sweeper evicted for no such reason; audit: the lines of the API server's log."""
        found = []
        for name, at in taken_by_sweeper(audit, evicted=True):
            if name not in self._named:
                continue
            uids = self._named[name]
            seen = self._pods[uids[-1]]
            if any(self._is_victim(uid) for uid in uids):
                self.for_others += 1
            elif any(self._is_left_over(uid) for uid in uids):
                self.of_partial_gangs += 1
            else:
                found.append(
                    f"{at}: the sweeper evicted {'/'.join(name)} of {seen.gang[1]} ({seen.priority}): "
                    "no plan of a higher priority names it, and its gang had lost no pod to others"
                )
        return found

    def _is_victim(self, uid: str) -> bool:
        mine = self._pods[uid].priority
        wanted_by = (self._pods.get(other) for other in self._wanted_by.get(uid, ()))
        return any(other is not None and other.priority > mine for other in wanted_by)

    def _is_left_over(self, uid: str) -> bool:
        seen = self._pods[uid]
        lost = [each for each in self._lost.get(seen.gang, {}).items() if each[0] != uid]
        return any(
            where == _PREEMPTED or self._highest_since.get(other, seen.priority) > seen.priority
            for other, where in lost
        )


def _gang_of(metadata: Json) -> Gang:
    """What stands for its gang: what its author calls it, its JobSet, or its controller."""
    owners = (each["uid"] for each in metadata.get("ownerReferences", ()) if each.get("controller"))
    gang_name = (metadata.get("annotations") or {}).get(keys.GANG_ANNOTATION)
    job_set = (metadata.get("labels") or {}).get(marks.JOBSET_NAME_LABEL)
    return metadata["namespace"], str(gang_name or job_set or next(owners, metadata["name"]))
