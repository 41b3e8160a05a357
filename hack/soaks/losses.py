"""Which running pods the sweeper deletes: none of a gang of which every pod runs, on nodes that are sound.

Who deleted a pod stands in the audit log alone; that all of its gang ran at that moment is seen on the watch.
Whatever made a gang lose pods (people, failing nodes, preemption) it is not whole then, and what the sweeper
does about it is its own affair.
"""

from collections.abc import Callable, Iterable, Set
from dataclasses import dataclass, field
from typing import Any

from hack.soaks.audit import Name, taken_by_sweeper
from labeler.contract import keys
from webhook.workloads import marks

Json = dict[str, Any]


@dataclass
class Losses:
    """Follows the pods. is_sound: whether nothing has been amiss with a node for some time.

    judged: pods that the sweeper deleted.
    """

    is_sound: Callable[[str], bool] = lambda _: True
    judged: int = 0
    _uids: dict[Name, str] = field(default_factory=dict)
    _again: set[Name] = field(default_factory=set)
    """Names that came again, as in sets of pods: the audit log does not say which pod it was."""
    _runs: dict[Name, tuple[str, bool]] = field(default_factory=dict)
    _whole: dict[Name, str] = field(default_factory=dict)

    def pod(self, kind: str, pod: Json) -> None:
        """A version of a pod, in the order of the watch."""
        metadata = pod["metadata"]
        name = (metadata["namespace"], metadata["name"])
        if self._uids.setdefault(name, metadata["uid"]) != metadata["uid"]:
            self._again.add(name)
        before = self._runs.pop(name, None)
        is_leaving = kind == "DELETED" or "deletionTimestamp" in metadata
        node = pod["spec"].get("nodeName", "")
        if is_leaving:
            if before and before[1] and self.is_sound(node) and self._all_run(name[0], before[0]):
                self._whole.setdefault(name, node)
        elif pod.get("status", {}).get("phase") not in ("Succeeded", "Failed"):
            self._runs[name] = _gang_of(metadata), _does_run(pod)

    def keep_only(self, names: Set[Name]) -> None:
        """The others are gone: a watch was interrupted, and then all that is there was listed."""
        self._runs = {name: each for name, each in self._runs.items() if name in names}

    def _all_run(self, namespace: str, gang: str) -> bool:
        """Whether those that are left of it run."""
        mates = [runs for (own, _), (of, runs) in self._runs.items() if (own, of) == (namespace, gang)]
        return all(mates)

    def faults(self, audit: Iterable[str]) -> list[str]:
        """What the sweeper deleted of gangs that ran; audit: the lines of the API server's log."""
        found = []
        for name, at in taken_by_sweeper(audit, evicted=False):
            self.judged += 1
            if name in self._whole and name not in self._again:
                found.append(
                    f"{at}: the sweeper deleted {'/'.join(name)} on {self._whole[name]}, "
                    "all of whose gang ran"
                )
        return found


def _gang_of(metadata: Json) -> str:
    texts = {**(metadata.get("labels") or {}), **(metadata.get("annotations") or {})}
    return str(texts.get(keys.GANG_ANNOTATION) or texts.get(marks.JOB_NAME_LABEL) or metadata["name"])


def _does_run(pod: Json) -> bool:
    status = pod.get("status", {})
    ready = [each["status"] for each in status.get("conditions", []) if each["type"] == "Ready"]
    return status.get("phase") == "Running" and ready == ["True"]
