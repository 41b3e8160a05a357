"""Gangs of Kubernetes' own PodGroups: the extension."""

from dataclasses import dataclass, field, replace
from typing import Final

from webhook.extensions.native_gangs.adopt import complete_gangs
from webhook.extensions.native_gangs.composites import COMPOSITES
from webhook.extensions.native_gangs.labels import excluded_by_label
from webhook.extensions.native_gangs.left import LEFT, LeftMemory, report_left
from webhook.extensions.native_gangs.moved_pods import corrected_plans
from webhook.extensions.native_gangs.nominations import nominations
from webhook.extensions.native_gangs.own_pod_groups import (
    COLLECTIONS,
    GROUPS,
    BindMemory,
    group_events,
    group_writes,
    hold_releases,
    invalid_plans,
    needs,
    patience_left,
    patient_needs,
)
from webhook.extensions.native_gangs.unmet_needs import explain
from webhook.sweeper.decide.node_exclusions import ExcludedNodes
from webhook.sweeper.extension import EndOrders, ExcludeInput, Extension, PassEnd, PlanCheck, PlansInput


@dataclass(frozen=True)
class NativeMemory:
    """What owners have been told."""

    left: LeftMemory = field(default_factory=LeftMemory)
    bind: BindMemory = field(default_factory=BindMemory)


def after_pass(given: PassEnd, memory: NativeMemory) -> tuple[EndOrders, NativeMemory]:
    """Make the PodGroups that plans need; tell of gangs that wait for theirs, and of those left alone."""
    orders, of_left = report_left(given, memory.left)
    now, settings = needs(given.view), given.settings
    released_first = nominations(given.view, now, settings.topology)
    wanted, of_bind = patient_needs(now, given.view, settings, memory.bind)
    events, of_bind = group_events(given.view, wanted, given.written, of_bind)
    plans, of_moved = corrected_plans(given.view)
    orders = replace(
        orders,
        writes=group_writes(given.view, [need for need in wanted if need.key not in released_first]),
        events=(*orders.events, *events, *of_moved),
        plans=plans,
        due_seconds=patience_left(of_bind, given.view, given.settings),
    )
    return orders, NativeMemory(of_left, of_bind)


def check_plans(given: PlansInput) -> PlanCheck:
    """Hold the pods whose PodGroup is not there yet, but for those that are nominated before it is made.

    What is planned of a gang that waits for others is dropped.
    """
    found = nominations(given.view, needs(given.view), given.settings.topology)
    nominated = {uid: within for pods in found.values() for uid, within in pods.items()}
    not_released = hold_releases(given.view) - nominated.keys()
    return PlanCheck(not_released, invalid_plans(given.view, given.sent), nominated)


def exclude_nodes(given: ExcludeInput, memory: NativeMemory) -> tuple[ExcludedNodes, NativeMemory]:
    """Keep the pods of PodGroups off nodes on which kube-scheduler would bind none of them."""
    return excluded_by_label(given), memory


NATIVE_GANGS: Final = Extension(
    "native_gangs",
    memory=NativeMemory(),
    collections=COLLECTIONS,
    owners=(GROUPS, COMPOSITES),
    gauges=(LEFT,),
    check_plans=check_plans,
    complete_gangs=complete_gangs,
    exclude_nodes=exclude_nodes,
    after_pass=after_pass,
    explain=explain,
)
