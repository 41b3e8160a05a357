"""Whether PodDisruptionBudgets allow the eviction of several pods together. Pure.

Source of the rules: the API server's registry/core/pod/storage/eviction.go.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from typing import Final

from webhook.kube.disruption_budgets import ALWAYS_ALLOW, PodDisruptionBudget
from webhook.kube.objects import Pod
from webhook.placement.eligibility import label_holds
from webhook.scheduling.antiaffinity import requirements_of

MOST: Final = 64
"""The most budgets that are read per namespace. Users may create more, and the API server enforces all."""
_UNPROTECTED: Final = ("Pending", "Succeeded", "Failed")
"""The phases of pods that are evicted whatever budgets select them."""


class Budgets:
    """The budgets of one pass, minus the evictions decided since; an immutable value."""

    def __init__(self, budgets: Iterable[PodDisruptionBudget] = (), *, is_read: bool = True) -> None:
        """is_read: whether all budgets are known. Until then they may protect any pod."""
        self._is_read = is_read
        self._by_namespace: dict[str, list[PodDisruptionBudget]] = {}
        self._taken: Mapping[str, int] = {}
        for each in sorted(budgets, key=lambda budget: budget.metadata.name):
            own = self._by_namespace.setdefault(each.metadata.namespace, [])
            if len(own) < MOST:
                own.append(each)

    def why_not(self, pods: Sequence[Pod]) -> str:
        """The budget that forbids the eviction of these pods of one namespace, as a sentence; "" if none
        does. The eviction API refuses pods that several budgets select.
        """
        if pods and not self._is_read:
            return "the PodDisruptionBudgets have not been read"
        seen = set[str]()
        for budget, selected in self._selected(pods):
            count, uids = _number_counted(budget, selected), {pod.metadata.uid for pod in selected}
            if not seen.isdisjoint(uids):
                return (
                    "several PodDisruptionBudgets select one of its pods, which the eviction API then refuses"
                )
            seen |= uids
            allowed = max(0, budget.status.disruptions_allowed - self._taken.get(budget.metadata.uid, 0))
            if count > allowed:
                return f"PodDisruptionBudget {budget.metadata.name} allows {allowed} of {count} evictions now"
        return ""

    def selecting(self, pods: Sequence[Pod]) -> set[str]:
        """The uids of the budgets that select any of these pods of one namespace."""
        return {budget.metadata.uid for budget, _ in self._selected(pods)}

    def without(self, pods: Sequence[Pod]) -> "Budgets":
        """The budgets after the eviction of these pods."""
        taken = dict(self._taken)
        for budget, selected in self._selected(pods):
            uid = budget.metadata.uid
            taken[uid] = taken.get(uid, 0) + _number_counted(budget, selected)
        left = copy(self)
        left._taken = taken
        return left

    def _selected(self, pods: Sequence[Pod]) -> Iterator[tuple[PodDisruptionBudget, list[Pod]]]:
        """The budgets that select any of the pods, and those that they select and may protect."""
        pods = [
            pod
            for pod in pods
            if pod.status.phase not in _UNPROTECTED and not pod.metadata.deletion_timestamp
        ]
        for budget in self._by_namespace.get(pods[0].metadata.namespace, ()) if pods else ():
            if budget.spec.selector is None:
                continue
            wanted = requirements_of(budget.spec.selector)
            found = [pod for pod in pods if all(label_holds(each, pod.metadata.labels) for each in wanted)]
            if found:
                yield budget, found


def _number_counted(budget: PodDisruptionBudget, selected: Sequence[Pod]) -> int:
    """How many of these evictions the budget must allow: unready pods are no part of its healthy ones."""
    status = budget.status
    is_met = status.current_healthy >= status.desired_healthy > 0
    if is_met or budget.spec.unhealthy_pod_eviction_policy == ALWAYS_ALLOW:
        return sum(not pod.status.is_unready for pod in selected)
    return len(selected)
