"""A cost is one integer made of fields, the most important highest, so that costs add up and compare.

The fields are the domains used at each level, the leftover at each level, the finest first, the headroom
penalty and, where pods have preferences, the preference penalty (see model.Objective).

Penalties choose between nodes that are equal otherwise: headroom first, then preferences. The preference
penalty adds up the points that kube-scheduler's scores of a node lack, times their default weights:
PreferNoSchedule taints (3), preferred node affinity (2), topology spread with ScheduleAnyway (2), and
preferred pod affinity and anti-affinity (2). Each score is 0 to 100, scaled over all nodes of the snapshot.
Pods are counted as they are before the gang is placed.

Source: kube-scheduler's plugins TaintToleration, NodeAffinity, PodTopologySpread and InterPodAffinity.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final

from webhook.placement.eligibility import Toleration, is_synthetic, term_holds, tolerated
from webhook.placement.model import Objective, Options, PodClass, Preferences
from webhook.placement.snapshot import Block, NodeState, Snapshot

COUNT_BITS = 32
SLOT_BITS = 64
SCORE_BITS = 64
MOST_UNLIKED = 900
"""The largest preference penalty of a node; see the module's text."""


class Costs:
    """Packs and unpacks the fields of a cost for a topology of `levels` label levels and the node below."""

    def __init__(self, levels: int, ties: int = 0) -> None:
        """levels: number of label levels, without the node. ties: bits of the preferences, the lowest."""
        self._of_nodes: dict[tuple[int, int], int] = {}
        self.ties = ties
        self.most_penalty = 100 if not ties else (100 << ties) + MOST_UNLIKED
        """The largest penalty of a node, for headroom and preferences together."""
        self.depth = levels + 1
        self.leftover = [SCORE_BITS + SLOT_BITS * level for level in range(self.depth)]
        """The first bits. That of nodes counts most: else a gang opens a free subblock in a fuller block."""
        first = SCORE_BITS + SLOT_BITS * self.depth
        self.domains = [first + COUNT_BITS * (self.depth - 1 - level) for level in range(self.depth)]

    def of_domain(self, level: int, free_slots: int) -> int:
        """Cost of using one domain of a level that has capacity for so many pods."""
        return (1 << self.domains[level]) + (free_slots << self.leftover[level])

    def of_levels(self, top: int, bottom: int, free_slots: int) -> int:
        """Cost of using a domain that stands for all these levels."""
        return sum(self.of_domain(level, free_slots) for level in range(top, bottom + 1))

    def of_node(self, top: int, free_slots: int) -> int:
        """Cost of using a node that stands for all levels from `top` down, without its headroom penalty."""
        cost = self._of_nodes.get((top, free_slots))
        if cost is None:
            cost = self._of_nodes[top, free_slots] = self.of_levels(top, self.depth - 1, free_slots)
        return cost

    def objective(self, cost: int) -> Objective:
        """The fields of a cost."""
        return Objective(
            tuple(cost >> shift & (1 << COUNT_BITS) - 1 for shift in self.domains),
            0,
            tuple(cost >> shift & (1 << SLOT_BITS) - 1 for shift in reversed(self.leftover)),
            (cost & (1 << SCORE_BITS) - 1) >> self.ties,
            cost & (1 << self.ties) - 1,
        )


WEIGHTS: Final = {"taints": 3, "node affinity": 2, "spread": 2, "pod affinity": 2}
"""Together they make a penalty of at most MOST_UNLIKED."""

_SOFT: Final = "PreferNoSchedule"


class Ranking:
    """The preference penalties of all nodes for a pod class.

    key: with the class it determines the penalties as long as the nodes' states stay the same. It is None
    where other pods affect them too.
    """

    def __init__(self, pod_class: PodClass, snapshot: Snapshot) -> None:
        preferences, tolerations = pod_class.preferred, pod_class.rules.tolerations
        states = [state for block in snapshot.blocks.values() for state in block.states]
        taints = _of_blocks(snapshot, ("soft taints", tolerations), lambda s: _taints(s, tolerations))
        liked = _of_blocks(snapshot, ("preferred", preferences.terms), lambda s: _liked(s, preferences))
        total = [0] * len(states)
        for each in filter(None, _lacking(states, preferences, taints, liked)):
            total = [one + other for one, other in zip(total, each, strict=True)]
        self.penalties = {state.name: each for state, each in zip(states, total, strict=True)}
        is_lasting = not (preferences.spread or preferences.near)
        scales = max(taints, default=0), max(liked, default=0)
        self.key = (preferences.terms, scales) if is_lasting else None

    def __bool__(self) -> bool:
        """Whether the penalties of any two nodes differ."""
        return len(set(self.penalties.values())) > 1


def ranking(pod_class: PodClass, snapshot: Snapshot) -> Ranking | None:
    """The ranking of nodes by the pods' preferences; None where all nodes are equal, the usual case."""
    if _SOFT not in snapshot.facts:
        snapshot.facts[_SOFT] = any(map(_has_soft_taints, snapshot.blocks.values()))
    if not pod_class.preferred and not snapshot.facts[_SOFT]:
        return None
    return Ranking(pod_class, snapshot) or None


def _has_soft_taints(block: Block) -> bool:
    has: bool = block.worked_out(
        _SOFT, lambda: any(t.effect == _SOFT for s in block.states for t in s.node.taints)
    )
    return has


def _lacking(
    states: Sequence[NodeState], preferences: Preferences, taints: Sequence[int], liked: Sequence[int]
) -> Iterator[list[int]]:
    """The points that each node lacks in each of kube-scheduler's scores, times its weight; [] if all equal.

    taints: for each node the soft taints that the pods do not tolerate. liked: the sum of the weights of the
    preferred terms that match it.
    """
    if any(taints):
        yield [WEIGHTS["taints"] * 100 * count // max(taints) for count in taints]
    if any(liked):
        yield [WEIGHTS["node affinity"] * _left(100 * each // max(liked)) for each in liked]
    yield [WEIGHTS["spread"] * _left(each) for each in _spread(states, preferences)]
    yield [WEIGHTS["pod affinity"] * _left(each) for each in _near(states, preferences)]


def _of_blocks(snapshot: Snapshot, key: object, worth: Callable[[NodeState], int]) -> list[int]:
    """A value of each node, cached with its block."""
    found: list[int] = []
    for block in snapshot.blocks.values():
        found += block.worked_out(key, partial(_worths, block, worth))
    return found


def _worths(block: Block, worth: Callable[[NodeState], int]) -> list[int]:
    return list(map(worth, block.states))


def _left(score: int) -> int:
    return 100 - score


def _taints(state: NodeState, tolerations: tuple[Toleration, ...]) -> int:
    return sum(each.effect == _SOFT and not tolerated(each, tolerations) for each in state.node.taints)


def _liked(state: NodeState, preferences: Preferences) -> int:
    labels, name = state.node.labels, state.name
    return sum(weight for weight, term in preferences.terms if term_holds(term, name, labels))


def _spread(states: Sequence[NodeState], preferences: Preferences) -> list[int]:
    """The scores for topology spread: a node with fewer pods in its domains scores higher."""
    if not preferences.spread:
        return []
    crowds = _crowds(states, preferences)
    known = [crowd for crowd in crowds if crowd is not None]
    most, least = max(known, default=0), min(known, default=0)
    return [0 if crowd is None else 100 * (most + least - crowd) // most if most else 100 for crowd in crowds]


def _crowds(states: Sequence[NodeState], preferences: Preferences) -> list[int | None]:
    """The weighted number of pods in each node's domains; None for nodes that lack one of the labels.

    kube-scheduler does not score these nodes.
    """
    is_known = [True] * len(states)
    crowds = [0.0] * len(states)
    for each in preferences.spread:
        pods_with = dict(each.counts)
        values = [state.node.labels.get(each.key) for state in states]
        weight = math.log(len({value for value in values if value is not None}) + 2)
        for number, value in enumerate(values):
            if value is None:
                is_known[number] = False
            else:
                crowds[number] += pods_with.get(value, 0) * weight + each.max_skew - 1
    return [round(crowd) if known else None for crowd, known in zip(crowds, is_known, strict=True)]


def _near(states: Sequence[NodeState], preferences: Preferences) -> list[int]:
    """The scores for preferred pod affinity and anti-affinity."""
    if not preferences.near:
        return []
    tables = [(each.key, dict(each.counts)) for each in preferences.near]
    sums = [sum(counts.get(s.node.labels.get(key, ""), 0) for key, counts in tables) for s in states]
    most, least = max(sums), min(sums)
    return [100 * (each - least) // (most - least) if most > least else 0 for each in sums]


class Score:
    """The headroom score of nodes, 0 to 100.

    For each resource it takes the amount that stays free after one pod of the class, in hundredths of the
    largest allocatable amount on any node. The score is the weighted mean over the resources. So a large node
    that is half free scores above a small node that is completely free.

    The operator sets the weights (Options.weights; by default cpu and memory with 1 each). Extended resources
    that the class requests count with 1 unless they have a weight. Resources that no node has do not count.
    Where the pods have preferences, the preference penalty takes the bits below the headroom penalty.
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
        self.ranking, self.ties = ranking, ties
        self.key = (self.parts, ties, ranking and ranking.key)
        self._total = sum(weight for _, weight, _, _ in self.parts)

    def penalty(self, state: NodeState) -> int:
        """100 minus the score, with the preferences."""
        parts = 0
        for resource, weight, need, most in self.parts:
            left = state.free.get(resource, 0) - need
            if left > 0:
                parts += weight * min(100, 100 * left // most)
        score = parts // self._total if self._total else 0
        penalty = 100 - score
        return penalty if self.ranking is None else penalty << self.ties | self.ranking.penalties[state.name]


WORD = 61
"""Most bits of a cost in a machine word: the sum of two costs and "unreachable" still fit."""


class PackedCost:
    """Some fields of a wide cost (see Costs), the most important first, in the widths that they need."""

    def __init__(self, fields: Sequence[tuple[int, int, int]]) -> None:
        """fields: (shift in the wide cost, bits there, bits needed)."""
        self.parts: list[tuple[int, int, int]] = []
        self.bits = 0
        for shift, wide, width in reversed(fields):
            self.parts.append((shift, (1 << wide) - 1, self.bits))
            self.bits += width
        self.fits = self.bits <= WORD
        self._known: dict[int, int] = {}

    def pack(self, cost: int) -> int:
        """The fields of a wide cost."""
        found = self._known.get(cost)
        if found is None:
            found = sum((cost >> shift & mask) << to for shift, mask, to in self.parts)
            self._known[cost] = found
        return found

    def unpack(self, packed: int) -> int:
        """The wide cost with these fields alone."""
        total = 0
        for shift, _, to in reversed(self.parts):  # the most important first
            total += (packed >> to) << shift
            packed &= (1 << to) - 1
        return total
