"""No gang stays partially running: what was preempted is whole again in time, or has left its nodes.

That a pod was preempted its condition DisruptionTarget says. Judged are Jobs all of whose pods are needed.
"""

import time
from collections.abc import Callable, Set
from dataclasses import dataclass, field
from typing import Any, Final

from hack.soaks.takes import preempted
from labeler.contract import keys
from webhook.workloads import marks

PARTLY_SECONDS: Final = 120.0
"""For so long a gang may run partially, among killed leaders and restarts of the API server."""

Gang = tuple[str, str]
"""Namespace and name of a Job."""


@dataclass
class PartlyReleased:
    """Follows the pods; the ledger feeds it. faults: sentences. preempted: pods so far.

    A pod that has done its work is missed by nobody: a gang whose others have does not run partially.
    """

    clock: Callable[[], float] = time.monotonic
    faults: list[str] = field(default_factory=list)
    preempted: set[str] = field(default_factory=set)
    longest: float = 0.0
    _stands: dict[Gang, dict[str, tuple[str, str]]] = field(default_factory=dict)
    """Of each pod that has not ended its name, and its node or ""."""
    _done: dict[Gang, set[str]] = field(default_factory=dict)
    _most: dict[Gang, int] = field(default_factory=dict)
    _hit: set[Gang] = field(default_factory=set)
    _since: dict[Gang, float] = field(default_factory=dict)

    def pod(self, pod: dict[str, Any], *, gone: bool) -> None:
        """A version of a pod."""
        metadata = pod["metadata"]
        name = (metadata.get("labels") or {}).get(marks.JOB_NAME_LABEL)
        if not name or keys.GANG_MIN_SIZE_ANNOTATION in (metadata.get("annotations") or {}):
            return
        gang, uid = (metadata["namespace"], name), metadata["uid"]
        if preempted(pod):
            self.preempted.add(uid)
            self._hit.add(gang)
        if pod.get("status", {}).get("phase") == "Succeeded":
            self._done.setdefault(gang, set()).add(uid)
        pods = self._stands.setdefault(gang, {})
        pods.pop(uid, None)
        if not gone and not metadata.get("deletionTimestamp"):
            pods[uid] = metadata["name"], pod["spec"].get("nodeName", "")
        self._check(gang)

    def keep_only(self, uids: Set[str]) -> None:
        """The others are gone: a watch was interrupted, and then all that is there was listed."""
        for gang, pods in self._stands.items():
            # Whether those that stood have ended well nobody has seen: let them.
            self._done.setdefault(gang, set()).update(uid for uid, (_, node) in pods.items() if node)
            self._done[gang] -= uids
            self._stands[gang] = {uid: each for uid, each in pods.items() if uid in uids}
            self._check(gang)

    def _check(self, gang: Gang) -> None:
        stands = sum(bool(node) for _, node in self._stands[gang].values())
        there = stands + len(self._done.get(gang, ()))
        most = self._most[gang] = max(there, self._most.get(gang, 0))
        if there == most:
            self._hit.discard(gang)  # as many as ever: it is whole again
        if gang in self._hit and stands:
            self._since.setdefault(gang, self.clock())
        elif gang in self._since:
            self.longest = max(self.longest, self.clock() - self._since.pop(gang))

    def look(self) -> None:
        """Find those that have run partially for too long."""
        now = self.clock()
        for gang, since in list(self._since.items()):
            if now - since > PARTLY_SECONDS:
                pods = sorted(self._stands[gang].values())
                described = ", ".join(f"{name} ({node or 'waits'})" for name, node in pods)
                self.faults.append(
                    f"{'/'.join(gang)} has been half dead for {now - since:.0f} s, "
                    f"{sum(bool(node) for _, node in pods)} of {len(pods)} pods on nodes: {described}"
                )
                self._hit.discard(gang)
                del self._since[gang]
