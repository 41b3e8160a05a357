"""Workers with few minority pods, in slices, beside anchors, spread: each beside as many identical pods."""

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from hack.benchmarks.placement_rows import instances
from hack.benchmarks.placement_rows.row import Row, alternated, answered
from labeler.contract import keys
from webhook.placement import Anchor, Gang, NodeInfo, Slice, Spread


def leaders(repeats: int, quick: bool) -> Iterator[Row]:
    """One leader that asks for other resources, or eight minority pods of three classes."""
    for nodes, workers in _sized([(5000, 127), (5000, 255), (5000, 999)], [(100_000, 9999)], quick):
        for slots in (8, 1) if workers > 255 else (8,):
            one = instances.gang(workers, slots, [instances.LEADER])
            many = instances.gang(workers, slots, instances.MINORITY)
            anchored = replace(many, anchors=(Anchor(_anchor(instances.cluster(nodes, slots)).name),))
            asked = {
                "one leader": one,
                "8 odd pods of 3 classes": many,
                "8 odd pods of 3 classes, beside an anchor": anchored,
            }
            yield from _rows("leaders", nodes, slots, workers, repeats, asked)


def _anchor(made: Sequence[NodeInfo]) -> NodeInfo:
    """The first node that has GPUs."""
    return next(each for each in made if each.allocatable[instances.GPU])


def slices(repeats: int, quick: bool) -> Iterator[Row]:
    """Slices, nested ones, with a leader, beside anchors."""
    for nodes, workers in _sized([(5000, 1000), (5000, 2000)], [(100_000, 10_000)], quick):
        for slots in (8, 1) if workers != 2000 else (8,):
            pairs = replace(instances.gang(workers, slots), slices=(Slice("subblock", 2),))
            made = instances.cluster(nodes, slots)
            one = replace(pairs, anchors=(Anchor(_anchor(made).name),))
            asked = {"slices of 2 in a subblock": pairs, "slices of 2, beside an anchor": one}
            if workers != 2000:
                nested = replace(pairs, slices=(Slice("block", 40), Slice("subblock", 4)))
                led = replace(
                    instances.gang(workers, slots, [instances.LEADER]), slices=(Slice("subblock", 4),)
                )
                minority = replace(instances.gang(workers, slots, instances.MINORITY), slices=led.slices)
                anchored = replace(minority, anchors=one.anchors)
                asked |= {
                    "slices of 40 in a block, 4 in a subblock": nested,
                    "slices of 4, and a leader": led,
                    "slices of 4, and 8 odd pods of 3 classes": minority,
                    "slices of 4, and 8 odd pods of 3 classes, beside an anchor": anchored,
                }
            yield from _rows("slices", nodes, slots, workers, repeats, asked)
    for nodes in (5000,) if quick else (5000, 100_000):
        anchors = tuple(Anchor(each.name) for each in instances.cluster(nodes, 8)[:4000])
        grown = replace(instances.gang(4000, 8), slices=(Slice("subblock", 2),), anchors=anchors)
        minority = replace(instances.gang(3992, 8, instances.MINORITY), anchors=anchors)
        asked = {"slices of 2, 4000 anchors": grown, "8 odd pods, 4000 anchors": minority}
        yield from _rows("slices", nodes, 8, 4000, repeats, asked)


def spread(repeats: int, quick: bool) -> Iterator[Row]:
    """Evenly, and at most so many in a domain."""
    for nodes, workers in _sized([(5000, 1000)], [(100_000, 10_000)], quick):
        for slots in (8, 1):
            homogeneous = instances.gang(workers, slots)
            blocks = {each.labels[keys.GCE_TOPOLOGY[0]] for each in instances.cluster(nodes, slots)}
            most = -(-3 * workers // len(blocks))
            asked = {f"evenly over the {level}s": Spread(level) for level in ("block", "subblock")} | {
                f"at most {cap} in a {level}": Spread(level, cap)
                for level, cap in (("block", most), ("block", 2 * most), ("host", 2))
            }
            gangs = {what: replace(homogeneous, spread=spread) for what, spread in asked.items()}
            yield from _rows("spread", nodes, slots, workers, repeats, gangs)


def _sized(few: list[tuple[int, int]], large: list[tuple[int, int]], quick: bool) -> list[tuple[int, int]]:
    return few if quick else few + large


def _rows(
    group: str, nodes: int, slots: int, workers: int, repeats: int, asked: Mapping[str, Gang]
) -> Iterator[Row]:
    where = f"{workers} workers, {nodes} nodes of {slots}"
    gangs = {"identical": instances.gang(workers, slots), **asked}
    answers = alternated(gangs, instances.cluster(nodes, slots), repeats)
    plain = statistics.median(answers["identical"].seconds)
    for what, runs in answers.items():
        beside = statistics.median(runs.seconds) / plain
        yield Row(group, f"{where}, {what}", runs.seconds, runs.changed, answered(runs.found), beside)
