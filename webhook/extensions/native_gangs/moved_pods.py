"""Pods that kube-scheduler has bound to another node than they were nominated to. Pure.

Their Placement is corrected, and their owners are notified. Where a pod may be, its affinity says, which
keeps the level that its gang requires; see nominations.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from labeler.contract.event_reasons import EventReason
from webhook.kube.objects import Pod
from webhook.kube.placements import Placement
from webhook.sweeper.extension import CorrectedPlan, PodEvent
from webhook.sweeper.observe.plans import nominated_node
from webhook.sweeper.observe.pods import Sort
from webhook.sweeper.observe.view import View

MOST_EVENTS: Final = 20
"""Of one pass; no more owners are notified of the pods that moved in it."""


def corrected_plans(view: View) -> tuple[Sequence[CorrectedPlan], Sequence[PodEvent]]:
    """The Placements with the nodes on which moved pods are, and the Events on these pods."""
    moved = _moved(view)
    if not moved:
        return (), ()
    plans, events = [], list[PodEvent]()
    for placement in view.placements.values():
        if nodes := _nodes(placement, moved):
            entries = [replace(each, node=nodes.get(each.uid, each.node)) for each in placement.spec.pods]
            plans.append(CorrectedPlan(placement, replace(placement.spec, pods=entries)))
            events += [_event(moved[uid]) for uid in nodes]
    return tuple(plans), tuple(events[:MOST_EVENTS])


def _moved(view: View) -> Mapping[str, Pod]:
    """By uid."""
    bound = (pod for pod in view.index.of[Sort.OF_A_POD_GROUP].values() if pod.spec.node_name)
    return {
        pod.metadata.uid: pod
        for pod in bound
        if nominated_node(pod) not in (None, pod.spec.node_name) and view.is_ours(pod)
    }


def _nodes(placement: Placement, moved: Mapping[str, Pod]) -> Mapping[str, str]:
    """uid -> node of those of its moved pods of which it says otherwise."""
    found = {}
    for each in placement.spec.pods:
        pod = moved.get(each.uid)
        if pod is None or pod.metadata.namespace != placement.metadata.namespace:
            continue
        if pod.spec.node_name != each.node:
            found[each.uid] = pod.spec.node_name
    return found


def _event(pod: Pod) -> PodEvent:
    note = (
        f"bound to {pod.spec.node_name}, not to {nominated_node(pod)} as planned: that node was taken, or "
        "kube-scheduler tried the gang several times; the Placement is corrected. Set bind: podgroup in the "
        "policy for gangs that are to keep their nodes"
    )
    return PodEvent(pod, EventReason.BOUND_ELSEWHERE, note)
