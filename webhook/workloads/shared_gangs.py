"""Pods in a gang that is not theirs, as where a template was copied, and pods in none, with a size. Pure.

Several controllers may rightly make one gang, such as a launcher and its workers. The size that is stated is
then that of all of them.
"""

from collections.abc import Iterable
from typing import Final

from labeler.contract import keys
from webhook.kube.objects import Pod
from webhook.text import few

_TEMPLATE_HASH: Final = "pod-template-hash"


def controller_name(pod: Pod, kind: str, name: str) -> str:
    """ "Kind/name" of a controller, as its user wrote it: the Deployment of a ReplicaSet."""
    suffix = f"-{pod.metadata.labels.get(_TEMPLATE_HASH, '')}"
    if kind == "ReplicaSet" and name.endswith(suffix):
        return f"Deployment/{name.removesuffix(suffix)}"
    return f"{kind}/{name}"


def why_alone(size: int | None) -> str:
    """The sentence on a gang's size that is stated on a pod of no gang, as on a replica; "" without one."""
    if size in (None, 1):
        return ""
    stated, name = f"{keys.GANG_SIZE_ANNOTATION} {size}", keys.GANG_ANNOTATION
    return f"{stated} has no effect: such pods are placed one by one; name their gang by {name}"


def why_wrongly_shared(size: int | None, pods: int, controllers: Iterable[str]) -> str:
    """The sentence on a gang that has more pods than its size, or several controllers and no size; else "".

    size: as it is stated for the gang. pods: how many its controllers create, or have created.
    """
    names = sorted(set(controllers))
    if size is not None and pods > size:
        of = f" of {few(names)}" if len(names) > 1 else ""
        remedy = f"give each gang a {keys.GANG_ANNOTATION} of its own, or correct the size"
        return f"{keys.GANG_SIZE_ANNOTATION} is {size}, but more pods{of} are in this gang: {remedy}"
    if size is None and len(names) > 1:
        return (
            f"pods of {few(names)} are in this gang: state how many it has in all by "
            f"{keys.GANG_SIZE_ANNOTATION}, or give each gang a name of its own"
        )
    return ""
