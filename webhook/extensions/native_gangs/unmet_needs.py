"""Gangs whose pods have a plan and wait for their PodGroup, for whoever asks. Pure."""

from collections.abc import Iterator
from typing import Final

import msgspec

from webhook.extensions.native_gangs.own_pod_groups import (
    GROUPS,
    BindGroup,
    GroupNeed,
    foreign_groups,
    needs,
)
from webhook.sweeper.extension import ExplainInput
from webhook.text import counted
from webhook.workloads.native_gangs import NativePodGroup

_EVENT: Final = "if that lasts, the Event PodGroupMissing of its pods says why"


def explain(given: ExplainInput) -> Iterator[str]:
    """A line for each PodGroup that holds pods of the gang; none where PodGroups may not be read."""
    groups = GROUPS.of(given.view)
    if groups is None:
        return
    for need in needs(given.view):
        is_taken = foreign_groups(
            [need.name], need.namespace, given.view
        )  # a fault of the gang, told as such
        if given.view.gang_of(need.first) != given.gang.key or is_taken:
            continue
        if why := _why_unmet(need, groups.get(need.key)):
            yield f"Its pods are held for PodGroup {need.name}, by which they are bound as one: {why}."


def _why_unmet(need: GroupNeed, group: NativePodGroup | None) -> str:
    """Why the PodGroup does not fit the plan, "" if it does."""
    if need.is_short:
        missing = need.min_count - need.there
        are = counted(missing, "planned pod is", "planned pods are")
        return f"{are} gone, or without a node that is free by now, of {need.min_count} that are needed"
    if group is None:
        return f"the sweeper has yet to create it; {_EVENT}"
    if need.is_met_by(msgspec.convert(msgspec.to_builtins(group), BindGroup)):
        return ""
    return f"the one that is there does not fit the plan, and the sweeper has yet to replace it; {_EVENT}"
