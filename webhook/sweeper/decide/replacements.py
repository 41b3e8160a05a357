"""Which waiting pods only replace lost ones of their gang. Pure.

Such pods return to nodes that are reserved for others since, where nothing else fits, and may use spare nodes
(see decide.node_rules).
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from webhook.identity_cache import changed_keys
from webhook.kube.objects import Pod
from webhook.kube.placements import Placement
from webhook.sweeper.observe.gangs import PodGang
from webhook.sweeper.observe.view import View

Amounts = tuple[tuple[tuple[str, str | int | float], ...], ...]
"""Requests and limits of each container, as they are written: a controller writes the same each time."""


@dataclass(frozen=True)
class Replacements:
    """The requests of the pods of each plan, remembered after the pods are gone.

    Without that memory, all of a gang count as asking for what the existing pods ask for, if these ask for
    the same. asked: by Placement, as "namespace/name", how many of its pods have asked for what, of
    those that were ever seen there. placements: those that were seen last.
    """

    asked: Mapping[str, Counter[Amounts]] = field(default_factory=dict)
    placements: Mapping[str, Placement] = field(default_factory=dict)

    def after(self, view: View) -> "Replacements":
        """With the plans that have changed. Their pods that are gone since are not forgotten."""
        changed = changed_keys(self.placements, view.placements)
        if not changed:
            return self
        found = {key: each for key, each in self.asked.items() if key in view.placements}
        for key in changed & view.placements.keys():
            if view.placements[key].spec.pods:
                asked = Counter(map(_amounts, view.pods_of(view.placements[key])))
                found[key] = max(asked, found.get(key, asked), key=Counter.total)
        return Replacements(found, view.placements)

    def fill_up(self, gang: PodGang, waiting: Iterable[Pod], view: View) -> bool:
        """Whether the waiting pods only replace lost ones: the gang has no more pods, and asks for no more.

        False for a gang without an existing pod: it starts like a new one.
        """
        key = gang.key.placement_key
        plan, known = view.placements.get(key), self.asked.get(key)
        if plan is None or known is None or not gang.released:
            return False
        # The later pods of a gang in stages are no replacements: it never had them.
        size = len(plan.spec.pods) if gang.staged else max(plan.spec.size, len(plan.spec.pods))
        if len(gang.pods) > size:
            return False
        asked = _asked_by(size, known)
        named = {each.uid for each in plan.spec.pods}
        there = Counter(_amounts(pod) for pod in gang.released if pod.metadata.uid in named)
        wanted = Counter(_amounts(pod) for pod in waiting)
        return all(there[each] + number <= asked.get(each, 0) for each, number in wanted.items())


def _asked_by(size: int, known: Counter[Amounts]) -> Mapping[Amounts, int]:
    """Of all `size` pods: an unseen pod counts as asking for what all others ask for."""
    return dict.fromkeys(known, size) if len(known) == 1 and known.total() < size else known


def _amounts(pod: Pod) -> Amounts:
    return tuple(
        tuple(sorted(amounts.items()))
        for container in (*pod.spec.containers, *pod.spec.init_containers)
        for amounts in (container.resources.requests, container.resources.limits)
    )
