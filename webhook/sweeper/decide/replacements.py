"""Which waiting pods only replace lost ones of their gang. Pure.

Such pods return to nodes that are reserved for others since, where nothing else fits, and may use spare nodes
(see decide.node_rules).
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from webhook.kube.objects import Pod
from webhook.kube.placements import Placement
from webhook.sweeper.observe.gangs import PodGang
from webhook.sweeper.observe.view import View

Amounts = tuple[tuple[tuple[str, str | int | float], ...], ...]
"""Requests and limits of each container, as they are written: a controller writes the same each time."""


class _Planned(NamedTuple):
    """asked: how many of the plan's pods have asked for what, of those that were ever seen there."""

    plan: Placement
    asked: Counter[Amounts]

    def asked_by(self, size: int) -> Mapping[Amounts, int]:
        """The same for all `size` pods: an unseen pod counts as asking for what all others ask for."""
        if len(self.asked) == 1 and self.asked.total() < size:
            return dict.fromkeys(self.asked, size)
        return self.asked


@dataclass(frozen=True)
class Replacements:
    """The requests of the pods of each plan, remembered after the pods are gone.

    Without that memory, all of a gang count as asking for what the existing pods ask for, if these ask for
    the same. plans: by Placement, as "namespace/name".
    """

    plans: Mapping[str, _Planned] = field(default_factory=dict)

    def after(self, view: View) -> "Replacements":
        """With the plans that have changed. Their pods that are gone since are not forgotten."""
        known = {key: each for key, each in self.plans.items() if key in view.placements}
        changed = {
            key: plan
            for key, plan in view.placements.items()
            if plan.spec.pods and (key not in known or known[key].plan is not plan)
        }
        if not changed and len(known) == len(self.plans):
            return self
        for key, plan in changed.items():
            asked = Counter(map(_amounts, view.pods_of(plan)))
            before = known.get(key)
            if before is not None and asked.total() < before.asked.total():
                asked = before.asked
            known[key] = _Planned(plan, asked)
        return Replacements(known)

    def fill_up(self, gang: PodGang, waiting: Iterable[Pod], view: View) -> bool:
        """Whether the waiting pods only replace lost ones: the gang has no more pods, and asks for no more.

        False for a gang without an existing pod: it starts like a new one.
        """
        key = gang.key.placement_key
        plan, known = view.placements.get(key), self.plans.get(key)
        if plan is None or known is None or not gang.released:
            return False
        # The later pods of a gang in stages are no replacements: it never had them.
        size = len(plan.spec.pods) if gang.staged else max(plan.spec.size, len(plan.spec.pods))
        if len(gang.pods) > size:
            return False
        asked = known.asked_by(size)
        named = {each.uid for each in plan.spec.pods}
        there = Counter(_amounts(pod) for pod in gang.released if pod.metadata.uid in named)
        wanted = Counter(_amounts(pod) for pod in waiting)
        return all(there[each] + number <= asked.get(each, 0) for each, number in wanted.items())


def _amounts(pod: Pod) -> Amounts:
    return tuple(
        tuple(sorted(amounts.items()))
        for container in (*pod.spec.containers, *pod.spec.init_containers)
        for amounts in (container.resources.requests, container.resources.limits)
    )
