"""Hostile gangs at full size: pods pinned one by one, spread, in slices, with minority pods, with cards."""

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from hack.comparing.clusters import fragmented
from hack.comparing.hostile import GPU, Instance, cards, hostile_kind
from labeler.contract import keys
from webhook.placement import (
    Anchor,
    Gang,
    Member,
    Mode,
    NodeInfo,
    Options,
    PodClass,
    Requirement,
    Rules,
    Slice,
    Snapshot,
    Spread,
    Term,
    Usage,
    vector,
)

WORKER: Final = PodClass(vector({"cpu": 1000, "pods": 1, GPU: 1}))
OTHERS: Final = tuple(
    PodClass(vector({"cpu": cpu, "pods": 1, GPU: gpus})) for cpu, gpus in ((4000, 2), (48_000, 0), (7000, 1))
)
HUGE: Final = 20
"""One draw in so many is of a cluster of 100,000 nodes."""


def large_cluster(dice: random.Random, size: int, busy: float = 0.0) -> Snapshot:
    """Partly used nodes of slots that differ; busy: the share of nodes on which a pod stands as well."""
    slots = dice.choice((1, 7, 8, 64))
    spots = fragmented(dice, size, slots, subblocks=(2, 24), nodes=(2, 24), whole=dice.choice((0.1, 0.9)))
    hosts = dice.choice((1, 1, 2))
    made, usage = [], []
    for number, spot in enumerate(spots):
        place = (f"b{spot.block}", f"r{spot.subblock}", f"h{spot.number // hosts}")
        amounts = {"cpu": 96_000 + 1000 * dice.randint(0, 9), "memory": 2**30, "pods": 110, GPU: spot.free}
        labels = dict(zip(keys.GCE_TOPOLOGY, place, strict=True)) | {keys.HOSTNAME_LABEL: f"n{number}"}
        made.append(NodeInfo(f"n{number}", labels, allocatable=amounts))
        if dice.random() < busy and spot.free:
            taken = {"cpu": 1000, "pods": 1, GPU: dice.randint(1, spot.free)}
            gang = f"u{dice.randrange(size // 8)}" if dice.random() < 0.5 else ""
            used = Usage(taken, name=f"u{number}", uid=f"u{number}", gang=gang, priority=dice.randint(0, 3))
            usage.append((f"n{number}", used))
    return Snapshot.build(made, usage)


def _size(dice: random.Random) -> int:
    return 100_000 if not dice.randrange(HUGE) else dice.choice((2000, 5000, 20_000))


def _workers(dice: random.Random, snapshot: Snapshot, multiple: int = 1) -> Gang:
    """Identical pods for a share of the cluster, at most 10,000."""
    slots = sum(state.free.get(GPU, 0) for state in snapshot.nodes.values())
    count = min(dice.choice((300, 1000, 5000, 10_000)), int(slots * dice.choice((0.1, 0.5, 0.9, 0.99, 1.01))))
    count = max(multiple, count // multiple * multiple)
    return Gang("g", tuple(Member(f"p{rank}", rank, WORKER) for rank in range(count)))


def _beside_others(dice: random.Random, gang: Gang, snapshot: Snapshot) -> Gang:
    names, count = [*snapshot.nodes], len(gang.members)
    chosen = [dice.choice(names) for _ in range(dice.choice((1, 30, 1000)))]
    ranks = [None if gang.slices else count + 10 + number for number in range(len(chosen))]
    anchors = tuple(map(Anchor, chosen, ranks))  # with ranks they would break slices
    return replace(gang, anchors=anchors)


def _spread(dice: random.Random) -> Instance:
    snapshot = large_cluster(dice, _size(dice))
    gang = _workers(dice, snapshot)
    level = dice.choice(("block", "subblock", "host"))
    spread = Spread(level, dice.choice((1, 2, 7, 40, 300, None, None, None)))
    gang = replace(gang, spread=spread, required_level=dice.choice((None, None, "block")))
    if level == "block":
        gang = replace(gang, required_level=None)
    if dice.random() < 0.4:
        gang = _beside_others(dice, replace(gang, required_level=None), snapshot)
    return gang, snapshot, Options(mode=dice.choice([*Mode]))


def _sliced(dice: random.Random) -> Instance:
    snapshot = large_cluster(dice, _size(dice))
    gang = _workers(dice, snapshot, 12)
    level, size = dice.choice(("block", "subblock", "host")), dice.choice((2, 3, 4, 6, 12))
    gang = replace(gang, slices=(Slice(level, size),))
    if dice.random() < 0.3:
        gang = replace(gang, slices=(Slice("block", 12), Slice(dice.choice(("subblock", "host")), 2)))
    if dice.random() < 0.5:
        gang = _with_minority(dice, gang)
    if dice.random() < 0.3:
        gang = _beside_others(dice, gang, snapshot)
    modes = (Mode.BEST_FIT, Mode.BEST_FIT, Mode.BEST_FIT, Mode.HEADROOM)
    return gang, snapshot, Options(mode=dice.choice(modes))


def _minority(dice: random.Random) -> Instance:
    snapshot = large_cluster(dice, _size(dice))
    gang = _with_minority(dice, _workers(dice, snapshot))
    if dice.random() < 0.3:
        gang = _beside_others(dice, gang, snapshot)
    return gang, snapshot, Options(mode=dice.choice((Mode.BEST_FIT, Mode.BEST_FIT, *Mode)))


def _with_minority(dice: random.Random, gang: Gang) -> Gang:
    count = len(gang.members)
    minority = [Member(f"o{n}", count + n, dice.choice(OTHERS)) for n in range(dice.randint(1, 9))]
    return replace(gang, members=(*gang.members, *minority))


def _identical(dice: random.Random) -> Instance:
    snapshot = large_cluster(dice, _size(dice))
    gang = _workers(dice, snapshot)
    gang = replace(gang, required_level=dice.choice((None, None, "block", "subblock")))
    if dice.random() < 0.4:
        gang = _beside_others(dice, replace(gang, required_level=None), snapshot)
    return gang, snapshot, Options(mode=dice.choice([*Mode]))


def _pinned(dice: random.Random) -> Instance:
    """Pods that may run on one node each, as those of a DaemonSet, or on a few."""
    snapshot = large_cluster(dice, dice.choice((2000, 5000, 8000, 20_000)))
    roomy = [name for name, state in snapshot.nodes.items() if state.free.get(GPU, 0)]
    count = min(len(roomy), dice.choice((50, 250, 400, 1000)))
    chosen = dice.sample(roomy, count)
    by_field, width = dice.random() < 0.5, dice.choice((1, 1, 1, 3))
    members = []
    for rank, name in enumerate(chosen):
        rules = pinned_to([name, *dice.sample(roomy, width - 1)], by_field=by_field and width == 1)
        members.append(Member(f"p{rank}", rank, replace(WORKER, rules=rules)))
    members += [Member(f"w{n}", count + n, WORKER) for n in range(dice.choice((0, 0, 100)))]
    modes = (Mode.BEST_FIT, Mode.BEST_FIT, *Mode)
    return Gang("g", tuple(members)), snapshot, Options(mode=dice.choice(modes))


def pinned_to(names: list[str], *, by_field: bool) -> Rules:
    """Node affinity to these nodes: by their names, or by the label of their hostnames."""
    if by_field:
        return Rules(affinity=(Term(fields=(Requirement("metadata.name", "In", (names[0],)),)),))
    return Rules(affinity=(Term(expressions=(Requirement(keys.HOSTNAME_LABEL, "In", tuple(names)),)),))


def _kinds(dice: random.Random) -> Instance:
    """Hundreds of kinds on thousands of nodes, many of the kinds of one pod."""
    snapshot = large_cluster(dice, dice.choice((5000, 20_000)))
    sizes = [997, 1000, 1009, 3001, 7919]
    kinds = [
        PodClass(vector({"cpu": dice.choice(sizes) + number, "pods": 1, GPU: dice.choice((0, 1, 3, 5))}))
        for number in range(dice.choice((2, 4, 12, 40, 100, 300)))
    ]
    members = [Member(f"p{n}", n, dice.choice(kinds)) for n in range(dice.choice((100, 500, 2000)))]
    gang = Gang("g", tuple(members), required_level=dice.choice((None, None, "block", "subblock")))
    return gang, snapshot, Options(mode=dice.choice((Mode.BEST_FIT, *Mode)))


def _linked(dice: random.Random) -> Instance:
    """Cards with links and NUMA nodes, all nodes different, and pods that ask for several of them."""
    made = []
    for number in range(dice.choice((100, 1000, 5000))):
        place = (f"b{number // 200}", f"r{number // 20}", f"h{number}")
        amounts = {"cpu": dice.choice((8000, 96_000)), "memory": 97, "pods": 110, "gpu": 8}
        amounts |= {"gpu.intel.com/i915": 80, "m": 8000}
        labels = dict(zip(keys.GCE_TOPOLOGY, place, strict=True))
        made.append(NodeInfo(f"n{number}", labels, allocatable=amounts, cards=cards(dice)))
    kinds = [
        replace(hostile_kind(dice, True), single_numa=dice.random() < 0.5, linked=dice.random() < 0.5)
        for _ in range(dice.choice((1, 1, 2, 6)))
    ]
    members = tuple(Member(f"p{n}", n, dice.choice(kinds)) for n in range(dice.choice((20, 200, 1000))))
    modes = (Mode.BEST_FIT, Mode.BEST_FIT, *Mode)
    return Gang("g", members), Snapshot.build(made, []), Options(mode=dice.choice(modes))


def preempting(dice: random.Random) -> Instance:
    """Clusters full of gangs and single pods of four priorities, and a gang that fits once some go."""
    snapshot = large_cluster(dice, dice.choice((300, 2000, 5000)), busy=0.9)
    gang = _workers(dice, snapshot)
    shape = dice.choice(("plain", "slices", "odd", "kinds"))
    if shape == "slices":
        gang = replace(gang, members=gang.members[: max(2, len(gang.members) // 2 * 2)])
        gang = replace(gang, slices=(Slice("subblock", 2),) if len(gang.members) % 2 == 0 else ())
    if shape == "odd":
        gang = _with_minority(dice, gang)
    if shape == "kinds":
        kinds = [WORKER, *OTHERS]
        gang = replace(gang, members=tuple(replace(m, pod_class=dice.choice(kinds)) for m in gang.members))
    return replace(gang, required_level=dice.choice((None, "block"))), snapshot, Options()


LARGE_FAMILIES: Final[dict[str, Callable[[random.Random], Instance]]] = {
    "identical": _identical,
    "spread": _spread,
    "slices": _sliced,
    "odd pods": _minority,
    "pinned": _pinned,
    "kinds of single pods": _kinds,
    "links and NUMA nodes": _linked,
}
"""Families of instances: each draws one."""
