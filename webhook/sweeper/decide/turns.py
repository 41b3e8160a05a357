"""Whose turn it is on a node with cards: one pod is released at a time, the next when that one is bound.

The device plugin hands cards to the pending pod with the lowest gas-ts, whichever pod kubelet has admitted:
so kubelet must see them one after the other, in that order.
"""

from collections.abc import Iterable, Set

from labeler.contract import keys
from webhook.kube.planned import PlannedPod
from webhook.sweeper.decide.expectations import Expectations
from webhook.sweeper.decide.orders import Pair
from webhook.sweeper.observe.view import View


class Turns:
    """The nodes on which a pod with cards is under way, in one pass."""

    def __init__(self, view: View, expectations: Expectations, unrepairable: Set[str] = frozenset()) -> None:
        """unrepairable: uids of released pods that will not be bound and that nobody makes again."""
        self._taken = {
            node
            for pod in view.under_way
            if keys.GAS_TIMESTAMP_ANNOTATION in pod.metadata.annotations
            and not pod.spec.node_name
            and not pod.spec.scheduling_gates  # what others hold may stay so for long
            and pod.metadata.uid not in unrepairable
            and (node := view.occupied(pod)) is not None
        }
        self._taken |= {
            planned.node
            for uid, planned in view.planned.items()
            if uid in expectations and planned.annotations
        }

    def take(self, pairs: Iterable[Pair]) -> tuple[Pair, ...]:
        """Those whose turn it is, in the order of their gas-ts; they have it from now on."""
        chosen = []
        for pod, planned in sorted(pairs, key=lambda pair: _timestamp(pair[1])):
            if planned.annotations:
                if planned.node in self._taken:
                    continue
                self._taken.add(planned.node)
            chosen.append((pod, planned))
        return tuple(chosen)


def _timestamp(planned: PlannedPod) -> str:
    return planned.annotations.get(keys.GAS_TIMESTAMP_ANNOTATION, "")
