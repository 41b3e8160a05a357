"""Best fit and FGD, the baselines of `hack/bench trace`: a pod gets the node with the least score.

FGD (fragmentation gradient descent) minimises the rise of the GPUs that the next pod, drawn from the trace,
could not use on the node. Source: Q. Weng et al. (USENIX ATC 2023), see trace.py. Ties, and scores that are
nearly equal, are decided by best fit.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Final

from hack.comparing.trace import WHOLE, TraceNode, TracePod

COVERED: Final = 0.95
"""The share of the pods of the trace that FGD's classes cover, the most frequent first."""

NEARLY: Final = 5.0
"""Thousandths of a card by which the emptiest node is worse than a full one."""

Score = Callable[[TracePod, TraceNode, TraceNode], float]
"""Of a pod, a node, and the node with the pod."""


def after(pod: TracePod, node: TraceNode) -> Iterator[TraceNode]:
    """The node with the pod on it, for each distinct choice of a shared card; none if it does not fit."""
    cpu, memory = node.cpu - pod.cpu, node.memory - pod.memory
    serving = [free for free in node.cards if free >= pod.share]
    if cpu < 0 or memory < 0 or len(serving) < pod.cards or (pod.models and node.model not in pod.models):
        return
    for taken in sorted(set(serving)) if pod.cards == 1 else [WHOLE]:
        cards = list(node.cards)
        for _ in range(pod.cards):
            cards.remove(taken)
            cards.append(taken - pod.share)
        yield TraceNode(cpu, memory, tuple(sorted(cards)), node.model)


def best_fit(pod: TracePod, node: TraceNode, later: TraceNode) -> float:
    """The CPU and the cards that stay free, as shares of a large node."""
    return later.cpu / 128_000 + sum(later.cards) / 8 / WHOLE


def fgd(pods: Iterable[TracePod]) -> Score:
    """FGD's score for a trace."""
    counts = Counter((p.cpu, p.memory, p.cards, p.share) for p in pods)
    classes, covered = [], 0
    for each, count in counts.most_common():
        classes.append((*each, count))
        covered += count
        if covered > COVERED * counts.total():
            break

    @cache
    def unusable(node: TraceNode) -> float:
        total, found = sum(node.cards), 0
        for cpu, memory, cards, share, count in classes:
            serving = [free for free in node.cards if free >= share]
            is_served = cards and cpu <= node.cpu and memory <= node.memory and len(serving) >= cards
            found += count * (total - sum(serving) if is_served else total)
        return found / covered

    return lambda pod, node, later: unusable(later) - unusable(node) + NEARLY * best_fit(pod, node, later)


def allocated(arriving: Iterable[TracePod], nodes: Iterable[TraceNode], score: Score) -> Iterator[bool]:
    """Whether each pod is placed, in order of arrival."""
    states = Counter(TraceNode(n.cpu, n.memory, tuple(sorted(n.cards)), n.model) for n in nodes)
    known: dict[TracePod, dict[TraceNode, tuple[float, TraceNode] | None]] = defaultdict(dict)
    for pod in arriving:
        best: tuple[float, TraceNode, TraceNode] | None = None
        mine = known[pod]
        for node in states:
            if node not in mine:
                mine[node] = min(
                    ((score(pod, node, later), later) for later in after(pod, node)), default=None
                )
            found = mine[node]
            if found is not None and (best is None or found[0] < best[0]):
                best = (found[0], node, found[1])
        yield best is not None
        if best is not None:
            _, node, later = best
            states[later] += 1
            states[node] -= 1
            if not states[node]:
                del states[node]
