"""Gangs that admission held for claims which turn out to be on no GPU. Pure.

Which DeviceClasses a claim names stands in claims and templates, which may come later than the pod, so
admission gates every pod with claims. Where the policy names the classes that are GPUs, it is decided here.
"""

import logging
from collections.abc import Sequence
from dataclasses import replace

from labeler.contract import keys
from webhook.devices import extended
from webhook.devices.supply import Supply
from webhook.kube.objects import Pod
from webhook.policy.values import Policy
from webhook.sweeper.observe.gangs import PodGang

logger = logging.getLogger(__name__)


def release_without_placement(gangs: Sequence[PodGang], supply: Supply, policy: Policy) -> list[PodGang]:
    """The gangs; those of which no pod asks for a GPU as gangs of CPU-only pods that wait for nobody.

    A pod that asks for topogate by a wish, or by a gate of its manifest, stays what it is.
    """
    return [_of_cpu_pods(gang) if _is_free(gang, supply, policy) else gang for gang in gangs]


def _is_free(gang: PodGang, supply: Supply, policy: Policy) -> bool:
    try:
        return all(_is_of_other_classes(pod, supply, policy) for pod in (*gang.pods, *gang.later))
    except Exception:  # what is wrong with one gang stops no other
        logger.exception("release_without_placement_failed gang=%s", gang.key)
        return False


def _of_cpu_pods(gang: PodGang) -> PodGang:
    return replace(gang, cpu_pods=frozenset(pod.metadata.uid for pod in gang.pods), alone=True)


def _is_of_other_classes(pod: Pod, supply: Supply, policy: Policy) -> bool:
    if not pod.spec.resource_claims or any(extended.resources_of(pod.spec)):
        return False
    if not keys.WISH_ANNOTATIONS.isdisjoint(pod.metadata.annotations):
        return False
    if any(policy.serves_gate(each.name) and each.name != policy.gate for each in pod.spec.scheduling_gates):
        return False
    names = supply.class_names(pod)
    return names is not None and not any(map(policy.is_gpu_class, names))
