"""The role of a pod within its gang, as its controller writes it and users name it. Pure."""

import re
from typing import Final

from webhook.kube.objects import Pod
from webhook.workloads import marks
from webhook.workloads.ranks import mark

_NUMBERED: Final = re.compile(r"(?:-[0-9]+)+(?:-[bcdfghjklmnpqrstvwxz2456789]{5})?$")
"""The end of generated pod names: numbers, and then perhaps random letters."""


def role_of(pod: Pod) -> str:
    """A JobSet's replicated job, a Kubeflow replica type, a Ray group, leader or worker of a LeaderWorkerSet.

    For other pods it is the common part of their names; "" for a name without a number.
    """
    for key in marks.ROLE_KEYS:
        if role := mark(pod, key):
            return role if key == marks.REPLICATED_JOB_LABEL else role.lower()
    if mark(pod, marks.RAY_NODE_TYPE) == marks.RAY_HEAD:
        return marks.RAY_HEAD
    if group := mark(pod, marks.RAY_GROUP):
        return group
    if index := mark(pod, marks.WORKER_INDEX):
        return "leader" if index == "0" else "worker"
    found = _NUMBERED.search(pod.metadata.name)
    return pod.metadata.name[: found.start()] if found else ""
