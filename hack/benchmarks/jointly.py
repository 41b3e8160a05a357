"""Gangs of one pass: each placed for itself in its turn, beside each sparing the two that come next."""

import random
import statistics
import time
from collections.abc import Sequence

from labeler.contract import keys
from webhook.placement import (
    Assignment,
    Budget,
    Gang,
    Member,
    NodeInfo,
    Options,
    PodClass,
    Snapshot,
    place,
    vector,
)
from webhook.placement.ahead import sparing

GPU = "nvidia.com/gpu"
GANGS = 6
AHEAD = 2


def cluster(dice: random.Random) -> Snapshot:
    """One or two blocks of three racks of three to six nodes, of whose eight GPUs some are used."""
    nodes: list[NodeInfo] = []
    for block in range(dice.choice((1, 2))):
        for rack in range(3):
            for _ in range(dice.randint(3, 6)):
                name = f"n{len(nodes)}"
                labels = dict(zip(keys.GCE_TOPOLOGY, (f"b{block}", f"r{rack}", name), strict=True))
                amounts = {GPU: dice.choice((1, 2, 4, 8, 8)), "pods": 110}
                nodes.append(NodeInfo(name, labels, allocatable=amounts))
    return Snapshot.build(nodes, [])


def gang(dice: random.Random, name: str) -> Gang:
    """Up to eight pods of one to eight GPUs, half of them in one rack or on one host."""
    kind = PodClass(vector({GPU: dice.choice((1, 1, 2, 4, 8)), "pods": 1}))
    members = tuple(Member(f"{name}-{rank}", rank, kind) for rank in range(dice.randint(1, 8)))
    return Gang(name, members, required_level=dice.choice((None, None, "subblock", "host")))


def in_turn(gangs: Sequence[Gang], snapshot: Snapshot, ahead: int) -> list[tuple[bool, tuple[int, ...]]]:
    """Of each gang whether it has no place, and the domains that it uses."""
    values = []
    for number, each in enumerate(gangs):
        answer = place(each, snapshot)
        if isinstance(answer, Assignment):
            later = gangs[number + 1 : number + 1 + ahead]
            answer = sparing(each, answer, later, snapshot, Options(), Budget(10**7))
            values.append((False, answer.objective.domains))
            snapshot = snapshot.assume(answer, each)
        else:
            values.append((True, ()))
    return values


def row(instances: int) -> str:
    """How often looking ahead helps, and what it takes."""
    better = worse = more = fewer = 0
    seconds: dict[int, list[float]] = {0: [], AHEAD: []}
    for seed in range(instances):
        dice = random.Random(seed)
        snapshot = cluster(dice)
        gangs = [gang(dice, f"g{number}") for number in range(GANGS)]
        found = {}
        for ahead, taken in seconds.items():
            start = time.process_time()
            found[ahead] = in_turn(gangs, snapshot, ahead)
            taken.append(time.process_time() - start)
        better += found[AHEAD] < found[0]
        worse += found[AHEAD] > found[0]
        unplaced = [sum(waits for waits, _ in values) for values in found.values()]
        more += unplaced[1] < unplaced[0]
        fewer += unplaced[1] > unplaced[0]
    plain, looking = map(statistics.median, seconds.values())
    return (
        f"jointly: of {instances} passes of {GANGS} unlike gangs, sparing the next {AHEAD} makes the first "
        f"that differs better in {better} and worse in {worse}; more gangs find a place in {more}, fewer in "
        f"{fewer}; "
        f"{looking / plain:.1f} times the CPU"
    )
