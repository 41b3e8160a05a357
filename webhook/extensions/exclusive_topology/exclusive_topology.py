"""Topology domains that Jobs and groups have to themselves: the extension."""

from typing import Final

from webhook.extensions.exclusive_topology.domain_owners import lost_domains
from webhook.extensions.exclusive_topology.exclusive_gangs import divide_gang, explain
from webhook.sweeper.extension import Extension, PlanCheck, PlansInput


def check_plans(given: PlansInput) -> PlanCheck:
    """Drop the plans for domains that others have by now, as after their nodes were not ready for a while."""
    return PlanCheck(invalid=lost_domains(given.view, given.sent))


EXCLUSIVE_TOPOLOGY: Final = Extension(
    "exclusive_topology", check_plans=check_plans, divide_gang=divide_gang, explain=explain
)
