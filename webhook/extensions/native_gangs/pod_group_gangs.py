"""The extension for gangs of Kubernetes' own PodGroups, with its Events and messages. Pure."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

import msgspec

from labeler.contract import keys
from labeler.contract.event_reasons import EventReason
from webhook.extensions.native_gangs.adopt import complete_gangs, pods_not_tried
from webhook.extensions.native_gangs.group_constraints import excluded_by_label
from webhook.extensions.native_gangs.own_pod_groups import (
    COLLECTIONS,
    GROUPS,
    BindGroup,
    GroupNeed,
    NativeMemory,
    foreign_groups,
    group_events,
    group_writes,
    hold_releases,
    invalid_plans,
    needs,
    overlooked_needs,
    patience_left,
    patient_needs,
)
from webhook.kube.objects import Pod
from webhook.policy.values import Policy
from webhook.scheduling.antiaffinity import NamespaceLabels
from webhook.sweeper.decide.admission_followup import is_opted_out, is_served
from webhook.sweeper.decide.node_rules import NodeRules
from webhook.sweeper.extension import (
    EndOrders,
    Extension,
    Gauges,
    HookInput,
    ObjectEvent,
    PlanCheck,
)
from webhook.sweeper.metrics import GaugeSpec
from webhook.sweeper.observe.gangs import GangKey, PodGang
from webhook.sweeper.observe.pods import PodTrait
from webhook.sweeper.observe.view import View
from webhook.text import counted
from webhook.workloads.native_gangs import NativePodGroup
from webhook.workloads.pod_group_names import native_group_of

# --- gangs that are left to kube-scheduler ------------------------------------------------------------
# kube-scheduler does not read topogate's annotations, so the topology request of such a gang has no effect.
# These gangs are counted, and their owners get an Event.

LEFT: Final = GaugeSpec(
    "topogate_ignored_topology_requests",
    "Pods whose topology request has no effect, since gangs.native: leave leaves them to kube-scheduler.",
)

MOST_EVENTS: Final = 20
"""The most Events of one pass; the others follow in later passes."""

REQUESTS: Final = (
    keys.REQUIRED_TOPOLOGY_ANNOTATION,
    keys.PREFERRED_TOPOLOGY_ANNOTATION,
    keys.SLICE_TOPOLOGY_ANNOTATION,
    keys.SPREAD_TOPOLOGY_ANNOTATION,
)


def report_left(given: HookInput, memory: NativeMemory) -> tuple[EndOrders, NativeMemory]:
    """Notify each owner once, and count the pods."""
    if given.policy is None or given.namespaces is None:
        return EndOrders(), memory
    there = _ungated(given.view) if not given.policy.adopts_native_gangs else ()
    left = by_gang(there, given.policy, given.namespaces, given.view.gang_of)
    notified = memory.left & left.keys()
    news = [key for key in sorted(left) if key not in notified][:MOST_EVENTS]
    events = tuple(
        ObjectEvent(left[key][0], EventReason.LEFT_TO_KUBE_SCHEDULER, _note(left[key][0])) for key in news
    )
    gauges: Gauges = {LEFT.name: {(): float(sum(map(len, left.values())))}}
    return EndOrders(gauges=gauges, events=events), replace(memory, left=notified | frozenset(news))


def _ungated(view: View) -> Iterator[Pod]:
    others = view.index.of[PodTrait.OTHER]
    for uid, pod in view.index.of[PodTrait.OF_A_POD_GROUP].items():
        if uid in others and not view.is_ours(pod):
            yield pod


def by_gang(
    pods: Iterable[Pod], policy: Policy, labels: NamespaceLabels, gang_of: Callable[[Pod], GangKey]
) -> Mapping[GangKey, list[Pod]]:
    """The pods whose topology request has no effect, by gang. labels: of namespaces, by name."""
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
        f"{request_of(pod)} has no effect: the configuration leaves pods of Kubernetes' own PodGroups to "
        "kube-scheduler (gangs.native: leave), so that topogate neither gates nor places them. Ask your "
        "administrator for gangs.native: adopt, or remove the annotation"
    )


# --- topogate explain ---------------------------------------------------------------------------------
# Lines on gangs whose pods have a plan and wait for their PodGroup.

_EVENT: Final = "if that lasts, see the Event PodGroupMissing of its pods"


def explain(given: HookInput, gang: PodGang) -> Iterator[str]:
    """A line for each PodGroup that pods of the gang wait for; none without the right to read PodGroups."""
    groups = GROUPS.of(given.view)
    if groups is None:
        return
    for need in needs(given.view):
        is_taken = foreign_groups(
            [need.name], need.namespace, given.view
        )  # a fault of the gang, reported as such
        if given.view.gang_of(need.first) != gang.key or is_taken:
            continue
        if why := _why_unmet(need, groups.get(need.key)):
            yield f"Its pods wait for PodGroup {need.name}, by which they are bound as one: {why}."


def _why_unmet(need: GroupNeed, group: NativePodGroup | None) -> str:
    """Why the PodGroup does not fit the plan, "" if it does."""
    if need.is_short:
        missing = need.min_count - need.there
        are = counted(missing, "planned pod is", "planned pods are")
        return f"{are} deleted, or without a free node, of {need.min_count} that are needed"
    if group is None:
        return f"the sweeper has not created it yet; {_EVENT}"
    if need.is_met_by(msgspec.convert(msgspec.to_builtins(group), BindGroup)):
        return ""
    return f"the existing one does not fit the plan, and the sweeper has not replaced it yet; {_EVENT}"


# --- the hooks ----------------------------------------------------------------------------------------


class NativeGangsExtension(Extension):
    """Places gangs of PodGroups by their rules, and writes the PodGroups that plans need."""

    name = "native_gangs"
    memory = NativeMemory()
    collections = COLLECTIONS
    owners = (GROUPS,)
    gauges = (LEFT,)

    def after_pass(self, given: HookInput, memory: NativeMemory) -> tuple[EndOrders, NativeMemory]:
        """Write the PodGroups that plans need; report gangs that wait for theirs or are left alone."""
        orders, memory = report_left(given, memory)
        view, settings = given.view, given.settings
        wanted, memory = patient_needs(needs(view), view, settings, memory)
        wanted, memory = overlooked_needs(wanted, view, settings, memory)
        events, memory = group_events(view, wanted, given.written, memory)
        orders = replace(
            orders,
            writes=group_writes(view, wanted),
            events=(*orders.events, *events),
            due_seconds=patience_left(memory, view, settings),
        )
        return orders, memory

    def check_plans(self, given: HookInput) -> PlanCheck:
        """Keep pods gated whose PodGroup is missing; drop plans that kube-scheduler would not carry out."""
        view, why_not = given.view, pods_not_tried(given.view)
        invalid = invalid_plans(view, given.sent) | why_not.keys()
        return PlanCheck(hold_releases(view) | why_not.keys(), invalid, why_not)

    def complete_gangs(self, given: HookInput) -> Sequence[PodGang]:
        """The gangs, with the constraints of their PodGroups."""
        return complete_gangs(given)

    def exclude_nodes(self, given: HookInput, memory: NativeMemory) -> tuple[NodeRules, NativeMemory]:
        """Exclude nodes where kube-scheduler would not bind the pods of a PodGroup."""
        return excluded_by_label(given), memory

    def explain(self, given: HookInput, gang: PodGang) -> Iterator[str]:
        """The PodGroups that the gang's pods wait for."""
        return explain(given, gang)


NATIVE_GANGS: Final = NativeGangsExtension()
