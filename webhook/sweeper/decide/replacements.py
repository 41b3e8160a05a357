"""Whether pods that wait replace pods that their gang has lost, asking for what those asked for. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from webhook.kube.objects import Pod
from webhook.kube.placements import Placement
from webhook.sweeper.observe.gangs import PodGang
from webhook.sweeper.observe.view import View, identity

Amounts = tuple[tuple[tuple[str, str | int | float], ...], ...]
"""Requests and limits of each container, as they are written: a controller writes the same each time."""


class _Planned(NamedTuple):
    plan: Placement
    asked: Counter[Amounts]


@dataclass(frozen=True)
class Replacements:
    """What the pods of each plan ask for, remembered for when they are gone.

    Without that memory, all of a gang is taken to have asked for what those ask that are left, if these ask
    for the same. plans: by Placement, as "namespace/name".
    """

    plans: Mapping[str, _Planned] = field(default_factory=dict)

    def after(self, view: View) -> "Replacements":
        """With the plans that have changed. Pods of theirs that are gone since are not forgotten."""
        known = {key: each for key, each in self.plans.items() if key in view.placements}
        changed = {
            key: plan
            for key, plan in view.placements.items()
            if plan.spec.pods and (key not in known or known[key].plan is not plan)
        }
        if not changed and len(known) == len(self.plans):
            return self
        named = {(plan.metadata.namespace, each.uid) for plan in changed.values() for each in plan.spec.pods}
        found = (view.by_uid[uid] for _, uid in named if uid in view.by_uid)
        asked = {identity(pod): _amounts(pod) for pod in found if identity(pod) in named}
        for key, plan in changed.items():
            ids = ((plan.metadata.namespace, each.uid) for each in plan.spec.pods)
            there = Counter(asked[each] for each in ids if each in asked)
            before = known.get(key)
            if before is not None and there.total() < before.asked.total():
                there = before.asked
            known[key] = _Planned(plan, there)
        return Replacements(known)

    def fill_up(self, gang: PodGang, waiting: Iterable[Pod], view: View) -> bool:
        """Whether the waiting pods only fill up what the gang had."""
        key = gang.key.placement_key
        plan, known = view.placements.get(key), self.plans.get(key)
        if plan is None or known is None or not gang.released:
            return False
        # Of a gang that comes in stages the later ones are no replacements: it never had them.
        size = len(plan.spec.pods) if gang.staged else max(plan.spec.size, len(plan.spec.pods))
        if len(gang.pods) > size:
            return False
        asked: Mapping[Amounts, int] = known.asked
        if len(known.asked) == 1 and known.asked.total() < size:
            asked = dict.fromkeys(known.asked, size)
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
