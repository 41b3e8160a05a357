"""The headroom score of nodes for one gang: what stays free, on one scale for all candidates."""

from collections.abc import Callable, Sequence

from webhook.placement.model import Options, PodClass
from webhook.placement.snapshot import NodeState
from webhook.placement.synthetic import is_synthetic


class Score:
    """The headroom score of nodes, 0 to 100.

    It is the weighted mean, over the resources, of the amount that stays free after one pod of the class, in
    hundredths of the largest allocatable amount that any node of the snapshot has. So a large node that is
    half free scores above a small one that is wholly free. Weights are the operator's (Options.weights, by
    default cpu and memory with 1 each); extended resources that the class asks for count with 1 unless given
    another weight. Resources that no node has do not count.
    """

    def __init__(self, pod_class: PodClass, options: Options, largest: Callable[[str], int]) -> None:
        """largest: the largest allocatable amount of a resource on any node of the snapshot."""
        wanted = dict(pod_class.requests)
        weights = {r: 1 for r in wanted if "/" in r and not is_synthetic(r)} | dict(options.weights)
        most = {r: largest(r) for r, weight in weights.items() if weight > 0}
        self.parts = tuple((r, weights[r], wanted.get(r, 0), most[r]) for r in sorted(most) if most[r] > 0)
        self.most_allocated = options.most_allocated
        self.key = (self.parts, self.most_allocated)
        self._total = sum(weight for _, weight, _, _ in self.parts)

    def penalty(self, state: NodeState) -> int:
        """100 minus the score; the score itself where the most allocated node is wanted."""
        parts = 0
        for resource, weight, need, most in self.parts:
            left = state.free.get(resource, 0) - need
            if left > 0:
                parts += weight * min(100, 100 * left // most)
        score = parts // self._total if self._total else 0
        return score if self.most_allocated else 100 - score

    def penalties(self, states: Sequence[NodeState]) -> list[int]:
        """The penalty of each of many nodes: `penalty`, resource by resource, which is faster."""
        sums = [0] * len(states)
        for resource, weight, need, most in self.parts:
            sums = [
                total + weight * min(100, 100 * left // most)
                if (left := state.free.get(resource, 0) - need) > 0
                else total
                for total, state in zip(sums, states, strict=True)
            ]
        scores = [total // self._total for total in sums] if self._total else sums
        return scores if self.most_allocated else [100 - score for score in scores]
