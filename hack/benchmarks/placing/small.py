"""Small instances, of which brute force knows the optimum, or which other placers may get wrong."""

import random
import statistics
from collections import Counter
from collections.abc import Iterator
from typing import Final

from hack.benchmarks.placing import instances
from hack.benchmarks.placing.row import Rival, Row, timed
from hack.comparing.rivals import best_fit, window
from labeler.contract import keys
from tests.placement import brute
from webhook.placement import (
    Assignment,
    Gang,
    Member,
    NodeInfo,
    NoFit,
    PlacementError,
    PodClass,
    Slice,
    Snapshot,
    check,
    place,
    vector,
)

BRUTE_FORCE: Final = 300
RIVALS: Final = 2000


def rows(repeats: int, quick: bool) -> Iterator[Row]:
    """How often each finds the optimum."""
    yield _brute_force(BRUTE_FORCE // 3 if quick else BRUTE_FORCE)
    yield _others(RIVALS // 4 if quick else RIVALS)


def _brute_force(count: int) -> Row:
    """Up to three kinds, required levels and slices, on up to twelve nodes."""
    dice = random.Random(11)
    ours: list[float] = []
    theirs: list[float] = []
    best = none = 0
    while len(ours) < count:
        gang, snapshot = _drawn(dice)
        try:
            taken, found = timed(place, gang, snapshot)
        except PlacementError:
            continue
        slow, known = timed(brute.best, gang, snapshot)
        ours.append(taken)
        theirs.append(slow)
        if isinstance(found, NoFit):
            right = known is None and found.proven
            none += right
        else:
            right = found.proven and found.objective == known
        best += right
    rival = Rival("brute force", statistics.median(theirs), f"at most {max(theirs):.1f} s")
    answer = f"optimum, or rightly no place ({none}), in {best} of {count}"
    return Row("small", "up to 3 kinds, 6 pods, 12 nodes", tuple(ours), answer=answer, rivals=(rival,))


def _drawn(dice: random.Random) -> tuple[Gang, Snapshot]:
    nodes: list[NodeInfo] = []
    for block in range(2):
        for rack in range(dice.randint(1, 2)):
            for _ in range(dice.randint(1, 3)):
                name = f"n{len(nodes)}"
                labels = dict(zip(keys.GCE_TOPOLOGY, (f"b{block}", f"r{rack}", name), strict=True))
                amounts = {"cpu": dice.randint(1, 4), "memory": dice.randint(1, 6), "pods": 110}
                nodes.append(NodeInfo(name, labels, allocatable=amounts))
    kinds = [
        PodClass(vector({"cpu": dice.randint(1, 3), "memory": dice.randint(0, 3), "pods": 1}))
        for _ in range(dice.randint(1, 3))
    ]
    drawn = [dice.choice(kinds) for _ in range(dice.randint(2, 6))]
    often = Counter(drawn)
    drawn.sort(key=lambda kind: -often[kind])  # brute force takes the first kind for the workers
    members = tuple(Member(f"p{n}", n, kind) for n, kind in enumerate(drawn))
    slices = (Slice(dice.choice(("block", "subblock")), 2),) if dice.random() < 0.3 else ()
    required = dice.choice((None, None, "block")) if not slices else None
    return Gang("g", members, required_level=required, slices=slices), Snapshot.build(nodes, [])


def _others(count: int) -> Row:
    """How often a rival uses more blocks, subblocks or hosts than the optimum, on fragmented clusters."""
    dice = random.Random(7)
    worse = {"greedy": 0, "window": 0}
    tried = {"greedy": 0, "window": 0}
    taken: dict[str, float] = dict.fromkeys(worse, 0.0)
    seconds = []
    for _ in range(count):
        slots = dice.choice((1, 8))
        made: list[NodeInfo] = []
        for block in range(dice.randint(2, 3)):
            for rack in range(dice.randint(2, 4)):
                for _ in range(dice.randint(2, 4)):
                    free = dice.choice((0, 0, 1, 1, 1)) if slots == 1 else dice.choice((0, 0, 1, 2, 4, 8, 8))
                    made.append(instances.node(len(made), f"b{block}", f"r{rack}", free, slots))
        leaves = instances.leaves_of(made, slots)
        asked = instances.gang(dice.randint(2, max(2, sum(leaf.room for leaf in leaves))), slots)
        snapshot = Snapshot.build(made, [])
        own, found = timed(place, asked, snapshot)
        seconds.append(own)
        if not isinstance(found, Assignment):
            continue
        assert not check(found, asked, snapshot)
        for name, rival in (("greedy", best_fit), ("window", window)):
            if name == "window" and slots != 1:
                continue
            time, chosen = timed(rival, leaves, len(asked.members))
            taken[name] += time
            tried[name] += 1
            fewest = found.objective.domains[:3]
            assert chosen is None or instances.domains(chosen) >= fewest, "a rival beats the optimum"
            worse[name] += chosen is None or instances.domains(chosen) > fewest
    rivals = tuple(
        Rival(name, taken[name] / tried[name], f"misses it in {times} of {tried[name]} "
              f"({100 * times / tried[name]:.1f} %), never better")
        for name, times in worse.items()
    )  # fmt: skip
    return Row("small", "identical pods, 12 to 48 nodes", tuple(seconds), answer="optimum", rivals=rivals)
