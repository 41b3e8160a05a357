"""The headroom score of nodes for one gang: what stays free, on one scale for all candidates."""

from collections.abc import Callable, Sequence

from webhook.placement.model import Options, PodClass
from webhook.placement.preferences import Ranking
from webhook.placement.snapshot import NodeState
from webhook.placement.synthetic import is_synthetic


class Score:
    """The headroom score of nodes, 0 to 100.

    It is the weighted mean, over the resources, of the amount that stays free after one pod of the class, in
    hundredths of the largest allocatable amount that any node of the snapshot has. So a large node that is
    half free scores above a small one that is wholly free. Weights are the operator's (Options.weights, by
    default cpu and memory with 1 each); extended resources that the class asks for count with 1 unless given
    another weight. Resources that no node has do not count. Where the pods have preferences, what a node
    lacks of them stands below its penalty, in bits of its own.
    """

    def __init__(
        self,
        pod_class: PodClass,
        options: Options,
        largest: Callable[[str], int],
        ranking: Ranking | None = None,
        ties: int = 0,
    ) -> None:
        """largest: the largest allocatable amount of a resource on any node of the snapshot. ties: bits."""
        wanted = dict(pod_class.requests)
        weights = {r: 1 for r in wanted if "/" in r and not is_synthetic(r)} | dict(options.weights)
        most = {r: largest(r) for r, weight in weights.items() if weight > 0}
        self.parts = tuple((r, weights[r], wanted.get(r, 0), most[r]) for r in sorted(most) if most[r] > 0)
        self.most_allocated = options.most_allocated
        self.ranking, self.ties = ranking, ties
        self.key = (self.parts, self.most_allocated, ties, ranking and ranking.key)
        self._total = sum(weight for _, weight, _, _ in self.parts)

    def penalty(self, state: NodeState) -> int:
        """100 minus the score; the score itself where the most allocated node is wanted."""
        parts = 0
        for resource, weight, need, most in self.parts:
            left = state.free.get(resource, 0) - need
            if left > 0:
                parts += weight * min(100, 100 * left // most)
        score = parts // self._total if self._total else 0
        penalty = score if self.most_allocated else 100 - score
        return penalty if self.ranking is None else penalty << self.ties | self.ranking.penalties[state.name]

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
        found = scores if self.most_allocated else [100 - score for score in scores]
        if self.ranking is None:
            return found
        unliked = self.ranking.penalties
        return [each << self.ties | unliked[state.name] for each, state in zip(found, states, strict=True)]
