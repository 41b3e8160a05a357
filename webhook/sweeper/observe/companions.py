"""Pods of a gang that ask for no GPU while others do: launchers, drivers, leaders on CPUs. Pure.

Such a companion waits for the others and goes beside them, but decides nothing about their places: often it
may not run on their nodes at all, for want of a toleration. One that names a level, slices or a domain of its
own is a member like the others.
"""

from collections.abc import Sequence
from typing import Final

from labeler.contract import keys
from webhook.kube.objects import Pod
from webhook.sweeper.observe.membership import exclusive_over
from webhook.workloads import marks
from webhook.workloads.shape import asks_for_devices

_OWN_WISHES: Final = frozenset(
    {
        keys.REQUIRED_TOPOLOGY_ANNOTATION,
        keys.PREFERRED_TOPOLOGY_ANNOTATION,
        keys.SLICE_TOPOLOGY_ANNOTATION,
        keys.SPREAD_TOPOLOGY_ANNOTATION,
    }
)


def companions(pods: Sequence[Pod], others_come: bool) -> frozenset[str]:
    """uids of those of a gang's pods that go beside its others.

    others_come: whether pods that ask for extended resources are yet to be made, and planned. Where no pod of
    the gang asks for any, these are the pods that were held back for what they are part of alone; pods of
    which an author says more, or wrote the gate, are a gang of their own right.
    """
    plain = [pod for pod in pods if not asks_for_devices(pod.spec)]
    if not plain:
        return frozenset()
    if others_come or len(plain) < len(pods):
        return frozenset(
            pod.metadata.uid
            for pod in plain
            if _OWN_WISHES.isdisjoint(pod.metadata.annotations) and not exclusive_over(pod)
        )
    return frozenset(pod.metadata.uid for pod in plain if _held_for_its_labels(pod))


def _held_for_its_labels(pod: Pod) -> bool:
    """Whether admission gated it though it asks for nothing of ours, see decide.goes_beside."""
    metadata = pod.metadata
    return (
        any(gate.name.endswith(keys.GATE_NAME) for gate in pod.spec.scheduling_gates)
        and keys.WISH_ANNOTATIONS.isdisjoint(metadata.annotations)
        and not metadata.labels.keys().isdisjoint(marks.COMPANION_LABELS)
    )
