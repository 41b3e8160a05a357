"""Gangs made to keep placement busy, and clusters for them: its bound of steps is tried on them."""

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from hack.comparing.clusters import fragmented
from hack.comparing.packings import RESOURCES, Packing, loose, planted
from labeler.contract import keys
from webhook.placement import (
    Anchor,
    Card,
    CardRequest,
    Gang,
    Member,
    Mode,
    NodeInfo,
    Options,
    PodClass,
    Slice,
    Snapshot,
    Spread,
    Usage,
    vector,
)

PLUGIN: Final = "gpu.intel.com/i915"
GPU: Final = "nvidia.com/gpu"
Instance = tuple[Gang, Snapshot, Options]


def cards(dice: random.Random) -> tuple[Card, ...]:
    """Cards with tiles, on two NUMA nodes, most of them linked to the next."""
    count = dice.choice((2, 4, 8))
    return tuple(
        Card(
            f"card{number}",
            {PLUGIN: 10, "m": dice.choice((997, 1000))},
            dice.choice((0, 2, 4)),
            numa=number % 2,
            links=((0, f"card{(number + 1) % count}", 1),) if dice.random() < 0.7 else (),
        )
        for number in range(count)
    )


def hostile_cluster(
    dice: random.Random, carded: bool, sizes: tuple[int, ...] = (4, 20, 100, 300)
) -> Snapshot:
    """Nodes of sizes that nothing divides, half of them in use. sizes: numbers of nodes to draw from."""
    made, usage = [], []
    for number in range(dice.choice(sizes)):
        place_labels = (f"b{number // 100}", f"r{number // 10}", f"h{number // 2}")
        amounts = {"cpu": dice.choice((8000, 9973, 96000)), "memory": dice.choice((64, 61, 97)), "pods": 110}
        amounts |= {"gpu": dice.choice((0, 8, 7)), PLUGIN: 80, "m": 8000}
        labels = dict(zip(keys.GCE_TOPOLOGY, place_labels, strict=True))
        node = NodeInfo(f"n{number}", labels, allocatable=amounts, cards=cards(dice) if carded else ())
        made.append(node)
        if dice.random() < 0.5:
            taken = {c.name: {PLUGIN: dice.randint(0, 9), "m": dice.randint(0, 900)} for c in node.cards}
            usage.append(
                (node.name, Usage({"cpu": dice.randint(0, 8000), "pods": 1}, taken, name=f"u{number}"))
            )
    return Snapshot.build(made, usage)


def hostile_kind(dice: random.Random, carded: bool) -> PodClass:
    """Coprime sizes, cards with links, tiles and NUMA nodes."""
    amounts = {"cpu": dice.choice((997, 1000, 3001, 100)), "memory": dice.choice((1, 3, 7, 0)), "pods": 1}
    cards = tuple(
        CardRequest(
            dice.choice((1, 1, 2)),
            ((PLUGIN, dice.choice((1, 3, 4))), ("m", dice.choice((97, 101, 331, 450)))),
            dice.choice((0, 0, 1)),
        )
        for _ in range(dice.choice((1, 2, 3, 5)) if carded and dice.random() < 0.8 else 0)
    )
    single_numa, linked = dice.random() < 0.3, dice.random() < 0.2
    requests = vector(amounts | {"gpu": dice.choice((0, 1, 3))})
    return PodClass(requests, cards=cards, single_numa=single_numa, linked=linked)


def hostile_gang(
    dice: random.Random, snapshot: Snapshot, carded: bool, sizes: tuple[int, ...] = (5, 20, 60, 200)
) -> Gang:
    """Up to 40 kinds of pods, some with slices, anchors or a required level."""
    kinds = [hostile_kind(dice, carded) for _ in range(dice.choice((1, 2, 3, 6, 12, 40)))]
    size = dice.choice(sizes)
    members = (
        Member(f"p{n}", n, dice.choice(kinds) if dice.random() < 0.7 else kinds[0]) for n in range(size)
    )
    level, number = dice.choice(("block", "subblock", "host")), dice.choice((2, 3, 7))
    slices = (Slice(level, number),) if dice.random() < 0.2 else ()
    ranks = [None if slices else dice.randint(0, size) for _ in range(20)]  # else they would break slices
    anchors = [Anchor(dice.choice(sorted(snapshot.nodes)), rank) for rank in ranks]
    return Gang(
        "g",
        tuple(members),
        required_level=dice.choice((None, None, "block", "subblock")),
        slices=slices,
        anchors=tuple(anchors) if dice.random() < 0.4 else (),
    )


def packed(packing: Packing) -> tuple[Gang, Snapshot]:
    """A packing as a gang: racks of 16 nodes in blocks of 100."""
    nodes = []
    for number, free in enumerate(packing.free):
        place_labels = (f"b{number // 100}", f"r{number // 16}", f"h{number}")
        labels = dict(zip(keys.GCE_TOPOLOGY, place_labels, strict=True))
        amounts = dict(zip(RESOURCES, free, strict=True)) | {"pods": 110}
        nodes.append(NodeInfo(f"n{number}", labels, allocatable=amounts))
    members = []
    for kind, (size, count) in enumerate(zip(packing.sizes, packing.counts, strict=True)):
        pod_class = PodClass(vector(dict(zip(RESOURCES, size, strict=True)) | {"pods": 1}))
        members += [Member(f"p{kind}-{number}", None, pod_class) for number in range(count)]
    return Gang("g", tuple(members)), Snapshot.build(nodes, [])


def _grown(dice: random.Random, carded: bool) -> Instance:
    sizes = (100, 300, 1000) if carded else (300, 1000, 5000)
    snapshot = hostile_cluster(dice, carded, sizes)
    return hostile_gang(dice, snapshot, carded, (60, 200, 1000, 2000)), snapshot, Options()


def _small(dice: random.Random) -> Instance:
    carded = dice.random() < 0.5
    snapshot = hostile_cluster(dice, carded)
    return hostile_gang(dice, snapshot, carded), snapshot, Options()


def _packing(dice: random.Random) -> Instance:
    nodes, seed = dice.choice((6, 20, 50, 200, 500, 2000)), dice.randrange(10**6)
    return *packed(
        planted(nodes, dice.choice((2, 3, 5, 8, 12, 30)), dice.choice((-1, 0, 1, 3)), seed)
    ), Options()


def _kinds(dice: random.Random) -> Instance:
    nodes, kinds = dice.choice((500, 2000, 5000)), dice.choice((2, 10, 50, 200, 450))
    return *packed(
        loose(nodes, kinds, max(1, dice.choice((200, 1000, 2000)) // kinds), dice.randrange(10**6))
    ), Options()


def _homogeneous(dice: random.Random) -> Instance:
    """Identical pods, mostly, in every shape that there is: minority pods, slices, caps, anchors, modes."""
    size, slots = dice.choice((300, 2000, 5000)), dice.choice((1, 7, 8, 64))
    spots = fragmented(dice, size, slots, subblocks=(2, 24), nodes=(2, 24), whole=dice.choice((0.1, 0.9)))
    made = [
        NodeInfo(
            f"n{number}",
            dict(zip(keys.GCE_TOPOLOGY, (f"b{s.block}", f"r{s.subblock}", f"h{s.number // 2}"), strict=True)),
            allocatable={
                "cpu": 96_000 + 1000 * dice.randint(0, 9),
                "memory": 2**30,
                "pods": 110,
                GPU: s.free,
            },
        )
        for number, s in enumerate(spots)
    ]
    total = sum(node.allocatable[GPU] for node in made)
    count = min(5000, max(6, int(total * dice.choice((0.01, 0.1, 0.3, 0.6, 0.99, 1.01))))) // 6 * 6
    kind = PodClass(vector({"cpu": 1000, "pods": 1, GPU: 1}))
    members = [Member(f"p{rank}", rank, kind) for rank in range(count)]
    gang = Gang("g", tuple(members), required_level=dice.choice((None, None, "block")))
    shape = dice.choice(("plain", "odd", "slices", "nested", "sliced odd", "spread", "cap"))
    if shape in ("odd", "sliced odd"):
        others = [
            PodClass(vector({"cpu": c, "pods": 1, GPU: g})) for c, g in ((4000, 2), (48_000, 0), (7000, 1))
        ]
        minority = [Member(f"o{n}", count + n, dice.choice(others)) for n in range(dice.randint(1, 8))]
        gang = replace(gang, members=(*gang.members, *minority))
    if shape in ("slices", "sliced odd"):
        gang = replace(
            gang, slices=(Slice(dice.choice(("block", "subblock", "host")), dice.choice((2, 3, 6))),)
        )
    if shape == "nested":
        gang = replace(gang, slices=(Slice("block", 6), Slice(dice.choice(("subblock", "host")), 2)))
    if shape in ("spread", "cap"):
        level = dice.choice(("block", "subblock", "host"))
        gang = replace(
            gang,
            required_level=None,
            spread=Spread(level, dice.choice((1, 2, 7, 40, 300)) if shape == "cap" else None),
        )
    if dice.random() < 0.3:
        names = [dice.choice(made).name for _ in range(dice.choice((1, 30, 1000)))]
        ranks = [None if gang.slices else count + 10 + n for n in range(len(names))]
        anchors = tuple(map(Anchor, names, ranks))  # with ranks they would break slices
        gang = replace(gang, anchors=anchors, required_level=None)
    return gang, Snapshot.build(made, []), Options(mode=dice.choice((Mode.BEST_FIT, Mode.BEST_FIT, *Mode)))


def _other_mode(dice: random.Random) -> Instance:
    gang, snapshot, _ = dice.choice((_packing, _kinds, _small))(dice)
    return gang, snapshot, Options(mode=Mode.HEADROOM)


FAMILIES: Final[dict[str, Callable[[random.Random], Instance]]] = {
    "small": _small,
    "cards": lambda dice: _grown(dice, True),
    "large": lambda dice: _grown(dice, False),
    "full nodes": _packing,
    "many kinds": _kinds,
    "mostly alike": _homogeneous,
    "other modes": _other_mode,
}
"""Families of instances: each draws one."""
