"""Which of two nodes a pod would rather have where all else is equal: what kube-scheduler scores nodes by.

The penalty of a node adds up what kube-scheduler's scores of it lack, times their default weights: for taints
that are only to be avoided (PreferNoSchedule, 3), preferred node affinity (2), topology spread that need not
be kept (ScheduleAnyway, 2), and preferred pod affinity and anti-affinity (2). Each is 0 to 100, on a scale
that all nodes of the snapshot make. Pods are counted as they stand before the gang is placed.

Source: kube-scheduler's plugins TaintToleration, NodeAffinity, PodTopologySpread and InterPodAffinity.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from webhook.placement.eligibility import Toleration, term_holds, tolerated
from webhook.placement.model import PodClass, Preferences
from webhook.placement.snapshot import Block, NodeState, Snapshot

WEIGHTS: Final = {"taints": 3, "node affinity": 2, "spread": 2, "pod affinity": 2}
"""Together they make a penalty of costs.MOST_UNLIKED at most."""

_SOFT: Final = "PreferNoSchedule"


class Ranking:
    """The penalties of all nodes for a class of pods.

    key: with the class all that decides them, for as long as the nodes' own states are the same; None where
    pods decide as well, which come and go.
    """

    def __init__(self, pod_class: PodClass, snapshot: Snapshot) -> None:
        wishes, tolerations = pod_class.preferred, pod_class.rules.tolerations
        states = [state for block in snapshot.blocks.values() for state in block.states]
        taints = _of_blocks(snapshot, ("soft taints", tolerations), lambda s: _taints(s, tolerations))
        liked = _of_blocks(snapshot, ("preferred", wishes.terms), lambda s: _liked(s, wishes))
        lacking = {
            "taints": [WEIGHTS["taints"] * 100 * count // max(taints) for count in taints]
            if any(taints)
            else [],
            "node affinity": [WEIGHTS["node affinity"] * _left(100 * each // max(liked)) for each in liked]
            if any(liked)
            else [],
            "spread": [WEIGHTS["spread"] * _left(each) for each in _spread(states, wishes)],
            "pod affinity": [WEIGHTS["pod affinity"] * _left(each) for each in _near(states, wishes)],
        }
        total = [0] * len(states)
        for each in lacking.values():
            total = [one + other for one, other in zip(total, each, strict=True)] if each else total
        self.penalties = {state.name: each for state, each in zip(states, total, strict=True)}
        is_lasting = not (wishes.spread or wishes.near)
        scales = max(taints, default=0), max(liked, default=0)
        self.key = (wishes.terms, scales) if is_lasting else None

    def __bool__(self) -> bool:
        """Whether any node is better than another."""
        return len(set(self.penalties.values())) > 1


def ranking(pod_class: PodClass, snapshot: Snapshot) -> Ranking | None:
    """What the pods would rather have; None where all nodes are alike to them, which is soon told of most."""
    if not pod_class.preferred and not any(map(_has_soft_taints, snapshot.blocks.values())):
        return None
    return Ranking(pod_class, snapshot) or None


def _has_soft_taints(block: Block) -> bool:
    has: bool = block.worked_out(
        _SOFT, lambda: any(t.effect == _SOFT for s in block.states for t in s.node.taints)
    )
    return has


def _of_blocks(snapshot: Snapshot, key: object, worth: Callable[[NodeState], int]) -> list[int]:
    """Something of every node, kept with its block."""
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


def _liked(state: NodeState, wishes: Preferences) -> int:
    labels, name = state.node.labels, state.name
    return sum(weight for weight, term in wishes.terms if term_holds(term, name, labels))


def _spread(states: Sequence[NodeState], wishes: Preferences) -> list[int]:
    """The scores for spread: the fewer pods are in its domains, the better a node."""
    if not wishes.spread:
        return []
    found: list[int | None] = [0] * len(states)
    crowds = [0.0] * len(states)
    for each in wishes.spread:
        held = dict(each.counts)
        values = [state.node.labels.get(each.key) for state in states]
        weight = math.log(len({value for value in values if value is not None}) + 2)
        for number, value in enumerate(values):
            if value is None:  # kube-scheduler leaves such nodes out
                found[number] = None
            else:
                crowds[number] += held.get(value, 0) * weight + each.max_skew - 1
    whole = [round(crowd) for crowd, known in zip(crowds, found, strict=True) if known is not None]
    most, least = max(whole, default=0), min(whole, default=0)
    return [
        0 if known is None else 100 * (most + least - round(crowd)) // most if most else 100
        for crowd, known in zip(crowds, found, strict=True)
    ]


def _near(states: Sequence[NodeState], wishes: Preferences) -> list[int]:
    """The scores for pods that are near."""
    if not wishes.near:
        return []
    tables = [(each.key, dict(each.counts)) for each in wishes.near]
    sums = [sum(held.get(s.node.labels.get(key, ""), 0) for key, held in tables) for s in states]
    most, least = max(sums), min(sums)
    return [100 * (each - least) // (most - least) if most > least else 0 for each in sums]
