"""Gangs with a topology request that the policy leaves to kube-scheduler: told to their owners, and counted.

kube-scheduler reads no annotation of ours, so that what such a gang asks for has no effect. Pure.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from labeler.contract import keys
from labeler.contract.event_reasons import EventReason
from webhook.kube.objects import Pod
from webhook.policy.values import Policy
from webhook.scheduling.antiaffinity import NamespaceLabels
from webhook.sweeper.decide.admission_followup import is_opted_out, is_served
from webhook.sweeper.extension import EndOrders, Gauges, PassEnd, PodEvent
from webhook.sweeper.metrics import GaugeSpec
from webhook.sweeper.observe.membership import GangKey
from webhook.sweeper.observe.pods import Sort
from webhook.sweeper.observe.view import View
from webhook.workloads.pod_group_names import native_group_of

LEFT: Final = GaugeSpec(
    "topogate_native_gang_pods_left",
    "Pods that name a topology, and that nativeGangs: leave leaves to kube-scheduler.",
)

MOST_EVENTS: Final = 20
"""Of one pass; the others follow in the next ones."""

REQUESTS: Final = (
    keys.REQUIRED_TOPOLOGY_ANNOTATION,
    keys.PREFERRED_TOPOLOGY_ANNOTATION,
    keys.SLICE_TOPOLOGY_ANNOTATION,
    keys.SPREAD_TOPOLOGY_ANNOTATION,
)


@dataclass(frozen=True)
class LeftMemory:
    """notified: the gangs whose owners have had the Event. A new process sends it again."""

    notified: frozenset[GangKey] = frozenset()


def report_left(given: PassEnd, memory: LeftMemory) -> tuple[EndOrders, LeftMemory]:
    """Tell each owner once, and count the pods."""
    if given.policy is None or given.namespaces is None:
        return EndOrders(), memory
    there = _ungated(given.view) if not given.policy.adopts_native_gangs else ()
    left = by_gang(there, given.policy, given.namespaces, given.view.gang_of)
    notified = memory.notified & left.keys()
    news = [key for key in sorted(left) if key not in notified][:MOST_EVENTS]
    events = tuple(
        PodEvent(left[key][0], EventReason.LEFT_TO_KUBE_SCHEDULER, _note(left[key][0])) for key in news
    )
    gauges: Gauges = {LEFT.name: {(): float(sum(map(len, left.values())))}}
    return EndOrders(gauges=gauges, events=events), LeftMemory(notified | frozenset(news))


def _ungated(view: View) -> Iterator[Pod]:
    others = view.index.of[Sort.OTHER]
    for uid, pod in view.index.of[Sort.OF_A_POD_GROUP].items():
        if uid in others and not view.is_ours(pod):
            yield pod


def by_gang(
    pods: Iterable[Pod], policy: Policy, labels: NamespaceLabels, gang_of: Callable[[Pod], GangKey]
) -> Mapping[GangKey, list[Pod]]:
    """Those of which the topology request has no effect. labels: of namespaces, by name."""
    found: dict[GangKey, list[Pod]] = {}
    for pod in pods:
        if request_of(pod) and is_served(pod.metadata.namespace, policy, labels) and not is_opted_out(pod):
            found.setdefault(gang_of(pod), []).append(pod)
    return found


def request_of(pod: Pod) -> str:
    """The first topology annotation of a pod of a PodGroup, "" if it has none."""
    there = pod.metadata.annotations
    return next((key for key in REQUESTS if key in there), "") if native_group_of(pod) else ""


def _note(pod: Pod) -> str:
    return (
        f"{request_of(pod)} has no effect: the policy leaves pods of Kubernetes' own PodGroups to "
        "kube-scheduler (nativeGangs: leave), so that topogate neither holds nor places them. Ask your "
        "administrator for nativeGangs: adopt, or remove the annotation"
    )
