"""Gangs of Kubernetes' own PodGroups: the extension."""

from dataclasses import dataclass, field, replace
from typing import Final

from webhook.extensions.native_gangs.adopt import complete_gangs
from webhook.extensions.native_gangs.bind import (
    COLLECTIONS,
    GROUPS,
    BindMemory,
    group_events,
    group_writes,
    hold_releases,
)
from webhook.extensions.native_gangs.left import LEFT, LeftMemory, report_left
from webhook.sweeper.extension import EndOrders, Extension, PassEnd


@dataclass(frozen=True)
class NativeMemory:
    """What owners have been told."""

    left: LeftMemory = field(default_factory=LeftMemory)
    bind: BindMemory = field(default_factory=BindMemory)


def after_pass(given: PassEnd, memory: NativeMemory) -> tuple[EndOrders, NativeMemory]:
    """Make the PodGroups that plans need; tell of gangs that wait for theirs, and of those left alone."""
    orders, of_left = report_left(given, memory.left)
    events, of_bind = group_events(given.view, given.written, memory.bind)
    orders = replace(orders, writes=group_writes(given.view), events=(*orders.events, *events))
    return orders, NativeMemory(of_left, of_bind)


NATIVE_GANGS: Final = Extension(
    "native_gangs",
    memory=NativeMemory(),
    collections=COLLECTIONS,
    owners=(GROUPS,),
    gauges=(LEFT,),
    hold_releases=hold_releases,
    complete_gangs=complete_gangs,
    after_pass=after_pass,
)
