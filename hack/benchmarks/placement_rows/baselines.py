"""Gangs on new clusters, on clusters in use and on full ones, each beside a simple placer in the same run.

Each gang is asked once more after a first answer, so that the caches of the snapshot are warm. Identical pods
are measured beside a plain greedy, all others beside first-fit in single domains. Single pods are asked
again after the pod before has taken its place.
"""

import random
import statistics
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Final

from hack.benchmarks.placement_rows import instances
from hack.benchmarks.placement_rows.row import Row, answered, timed
from hack.comparing.different_pods import different_pods
from hack.comparing.first_fit import FirstFit
from hack.comparing.greedy import place_greedily
from labeler.contract import keys
from webhook.placement import (
    Card,
    CardRequest,
    Gang,
    Member,
    NodeInfo,
    Options,
    PodClass,
    Snapshot,
    check,
    place,
)
from webhook.placement.model import Assignment, NoFit, vector

BLOCK, SUBBLOCK = 160, 16
"""Nodes of each."""

SLOWEST: Final = 5.0
"""Seconds after which a simple placer is not measured again."""


def _pod(gpus: int, cpu: int = 1000) -> PodClass:
    return PodClass(vector({"cpu": cpu, "pods": 1, instances.GPU: gpus}))


def _gang(*parts: tuple[int, PodClass]) -> Gang:
    kinds = [kind for count, kind in parts for _ in range(count)]
    return Gang("g", tuple(Member(f"p{rank}", rank, kind) for rank, kind in enumerate(kinds)))


GANGS: Final[dict[str, Gang]] = {
    "1 pod of 1 GPU": _gang((1, _pod(1))),
    "16 pods of 8 GPUs": _gang((16, _pod(8))),
    "8 pods of 8 GPUs and a launcher": _gang((8, _pod(8)), (1, instances.LAUNCHER)),
    "1000 pods of 1 GPU": _gang((1000, _pod(1))),
    "128 pods of 1 GPU, 32 of 4": _gang((128, _pod(1)), (32, _pod(4))),
    "600 pods of 1 GPU, 100 of 4": _gang((600, _pod(1)), (100, _pod(4))),
    "10 servers of 10 CPUs, 60 pods of 1 GPU": _gang((10, _pod(0, 10_000)), (60, _pod(1))),
}

CLUSTERS: Final[Mapping[str, tuple[int, float]]] = {
    "4800 equal nodes": (4800, 0),
    "5000 nodes, the last block smaller": (5000, 0),
    "16000 equal nodes": (16_000, 0),
    "20000 equal nodes": (20_000, 0),
    "5000 nodes, 60 % in use": (5000, 0.6),
    "5000 nodes, 98 % in use": (5000, 0.98),
    "100000 equal nodes": (100_000, 0),
    "100000 nodes, 60 % in use": (100_000, 0.6),
}
"""Clusters by name: nodes, and the share of them on which all GPUs are in use, or half of the GPUs."""

DIFFERENT: Final = {60: 5000, 200: 5000, 500: 20_000}
"""Sizes of gangs of different pods, and the nodes of the clusters for each: first-fit is slow."""

QUICK: Final = 20_000
"""The most nodes of a quick run."""

POD_NODES: Final = 1000
"""Nodes of the clusters for single pods."""


def rows(repeats: int, quick: bool) -> Iterator[Row]:
    """Each gang on each cluster, then single pods."""
    for cluster, (nodes, busy) in CLUSTERS.items():
        if quick and nodes > QUICK:
            continue
        snapshot = Snapshot.build(nodes_of(nodes, busy), [])
        different = {
            f"{count} different pods": replace(different_pods(count, 0, None), name="g")
            for count, on_nodes in DIFFERENT.items()
            if on_nodes == nodes
        }
        for what, gang in (GANGS | different).items():
            yield _row(f"{cluster}, {what}", gang, snapshot, repeats)
    for what, pod in PODS.items():
        yield _pod_after_pod(what, pod, repeats)


def nodes_of(count: int, busy: float) -> list[NodeInfo]:
    """Nodes of equal blocks; busy: the share of them in use, see CLUSTERS."""
    dice = random.Random(count)
    made = []
    for number in range(count):
        free = dice.choice((0, 0, 4)) if dice.random() < busy else 8
        node = instances.node(number, f"b{number // BLOCK}", f"r{number // SUBBLOCK}", free, 8)
        made.append(replace(node, allocatable={**node.allocatable, "cpu": 12_000 * free}))
    return made


def _on_cards(*requests: CardRequest, linked: bool = False) -> PodClass:
    """A pod of one container a request, on cards."""
    sums: Counter[str] = Counter({"cpu": 1000, "pods": 1})
    for request in requests:
        sums.update({resource: request.count * amount for resource, amount in request.per_card})
    return PodClass(vector(sums), cards=requests, linked=linked)


WHOLE: Final = vector({keys.I915: 10, keys.MILLICORES: 1000})
SHARE: Final = vector({keys.I915: 1, keys.MILLICORES: 300})
PODS: Final[Mapping[str, PodClass]] = {
    "1 GPU": _pod(1),
    "8 GPUs": _pod(8),
    "a share of a card": _on_cards(CardRequest(1, SHARE)),
    "two cards": _on_cards(CardRequest(2, WHOLE)),
    "two containers on shares": _on_cards(CardRequest(1, SHARE), CardRequest(1, SHARE)),
    "two linked cards": _on_cards(CardRequest(2, WHOLE), linked=True),
}
"""Single pods by what they request."""


def _pod_after_pod(what: str, pod: PodClass, repeats: int) -> Row:
    """Pods that are placed one after another on nodes of eight GPUs or of eight cards."""
    cards = tuple(
        Card(f"card{n}", dict(WHOLE), numa=n // 4, links=((0, f"card{n ^ 1}", 0),), tiles=1) for n in range(8)
    )
    made = nodes_of(POD_NODES, 0.3)
    if pod.wants_cards:
        amounts = {resource: 8 * amount for resource, amount in WHOLE}
        made = [replace(each, allocatable={**each.allocatable, **amounts}, cards=cards) for each in made]
    snapshot = Snapshot.build(made, [])
    seconds = []
    for number in range(3 + 10 * repeats):
        gang = Gang(f"g{number}", (Member(f"g{number}", None, pod),))
        took, found = timed(place, gang, snapshot)
        assert isinstance(found, Assignment)
        seconds.append(took)
        snapshot = snapshot.assume(found, gang)
    return Row("baselines", f"{POD_NODES} nodes, one pod after another, {what}", tuple(seconds[3:]))


def _row(what: str, gang: Gang, snapshot: Snapshot, repeats: int) -> Row:
    found = _placed(gang, snapshot)
    assert isinstance(found, NoFit) or not check(found, gang, snapshot)
    baseline = _baseline(gang)
    seconds: list[float] = []
    others: list[float] = []
    for _ in range(repeats):
        seconds.append(timed(_placed, gang, snapshot)[0])
        if not others or max(others) < SLOWEST:
            others.append(timed(baseline, gang, snapshot)[0])
    name = "a plain greedy" if baseline is place_greedily else "first-fit"
    note = f"{statistics.median(seconds) / statistics.median(others):.2f} of {name}"
    return Row("baselines", what, tuple(seconds), answer=answered(found), note=note)


def _placed(gang: Gang, snapshot: Snapshot) -> Assignment | NoFit:
    return place(gang, snapshot, Options())


def _baseline(gang: Gang) -> Callable[[Gang, Snapshot], object]:
    return place_greedily if len({member.pod_class for member in gang.members}) == 1 else _first_fit


def _first_fit(gang: Gang, snapshot: Snapshot) -> object:
    return FirstFit(gang, snapshot).place()
