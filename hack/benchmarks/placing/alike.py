"""Identical pods: sizes of gang and cluster, modes, one gang after another."""

import statistics
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from hack.benchmarks.placing import instances
from hack.benchmarks.placing.row import Rival, Row, answered, in_turns, timed
from hack.comparing.rivals import Leaf, best_fit, window
from webhook.placement import Assignment, Mode, NodeInfo, Options, Snapshot, place

WINDOW_NODES: Final = 5000
"""The window takes minutes on more."""


def sizes(repeats: int, quick: bool) -> Iterator[Row]:
    """Cold, and after a pod appeared in one block."""
    asked = [(1000, 1, 100), (5000, 1, 128), (5000, 1, 1000), (5000, 8, 1000), (5000, 8, 5000)]
    if not quick:
        asked += [(100_000, 1, 1000), (100_000, 8, 1000), (100_000, 8, 10_000), (100_000, 1, 10_000)]
    for nodes, slots, pods in asked:
        made, gang = instances.cluster(nodes, slots), instances.gang(pods, slots)
        turns = in_turns({"": (gang, None)}, made, repeats)[""]
        rivals = []
        others: dict[str, _Placer] = (
            {"greedy": best_fit, "window": window} if slots == 1 else {"greedy": best_fit}
        )
        for name, other in others.items():
            if name == "window" and nodes > WINDOW_NODES:
                continue
            taken, chosen = timed(_rival, other, made, slots, pods)
            result = "no place" if chosen is None else instances.told(instances.domains(chosen))
            rivals.append(Rival(name, taken, result))
        what = f"{pods} pods, {nodes} nodes of {slots}"
        yield Row(
            "identical", what, turns.seconds, turns.changed, answered(turns.found), rivals=tuple(rivals)
        )


def equal(repeats: int, quick: bool) -> Iterator[Row]:
    """On an empty cluster of equal domains, where bounds tell none of them apart."""
    for pods, slots in ((2500, 1), (10_000, 8)):
        made, gang = instances.equal_cluster(10_000, slots), instances.gang(pods, slots)
        turns = in_turns({"": (gang, None)}, made, repeats)[""]
        what = f"{pods} pods, 10000 equal empty nodes of {slots}"
        yield Row("equal", what, turns.seconds, turns.changed, answered(turns.found))


_Placer = Callable[[Sequence[Leaf], int], list[Leaf] | None]


def _rival(placer: _Placer, nodes: Sequence[NodeInfo], slots: int, pods: int) -> list[Leaf] | None:
    return placer(instances.leaves_of(nodes, slots), pods)


def modes(repeats: int, quick: bool) -> Iterator[Row]:
    """The same gang in every mode."""
    made, gang = instances.cluster(5000, 8), instances.gang(1000, 8)
    answers = in_turns({mode: (gang, Options(mode=mode)) for mode in Mode}, made, repeats)
    plain = statistics.median(answers[Mode.BEST_FIT].seconds)
    for mode, turns in answers.items():
        beside = statistics.median(turns.seconds) / plain
        what = f"1000 pods, 5000 nodes of 8, mode {mode}"
        yield Row("modes", what, turns.seconds, turns.changed, answered(turns.found), beside)


def sequence(repeats: int, quick: bool) -> Iterator[Row]:
    """Gangs placed one after another, each seeing those before it."""
    snapshot = Snapshot.build(instances.cluster(5000, 8), [])
    seconds = []
    for number in range(64):
        gang = instances.gang(64, 8, name=f"g{number}")
        taken, found = timed(place, gang, snapshot)
        assert isinstance(found, Assignment)
        snapshot = snapshot.assume(found, gang)
        seconds.append(taken)
    late = statistics.median(seconds[-8:]) / statistics.median(seconds[1:9])
    first = f"the first {seconds[0] * 1e3:.1f} ms"
    note = f"64 gangs in turn, {first}; the last eight {late:.2f} of the second to ninth"
    yield Row("sequence", "64 pods, 5000 nodes of 8", tuple(seconds[1:]), note=note)
