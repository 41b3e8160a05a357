"""Workers with few minority pods, in slices, beside anchors, spread: each beside as many identical pods.

The rival is HiGHS where its program says the same: the fewest blocks, subblocks and nodes, in that order.
"""

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from hack.benchmarks.placing import instances
from hack.benchmarks.placing.row import Baseline, Row, alternated, answered, timed
from labeler.contract import keys
from webhook.placement import Anchor, Assignment, Gang, NodeInfo, Slice, Spread

PATIENCE: Final = 15.0
"""Seconds that HiGHS has for one instance."""

BASELINE_NODES: Final = 5000


@dataclass(frozen=True, slots=True)
class _Asked:
    """A gang, and how HiGHS is asked for the same (see highs.fewest_domains); None: not asked."""

    what: str
    gang: Gang
    baseline: Mapping[str, Any] | None = field(default=None)


def leaders(repeats: int, quick: bool) -> Iterator[Row]:
    """One leader that asks for other resources, or eight minority pods of three classes."""
    for nodes, workers in _sized([(5000, 127), (5000, 255), (5000, 999)], [(100_000, 9999)], quick):
        for slots in (8, 1) if workers > 255 else (8,):
            # a node of one slot holds no leader of two GPUs beside a worker: HiGHS counts slots
            baseline = {"leader": 2} if slots == 8 else None
            one = instances.gang(workers, slots, [instances.LEADER])
            many = instances.gang(workers, slots, instances.MINORITY)
            anchored = replace(many, anchors=(Anchor(_anchor(instances.cluster(nodes, slots)).name),))
            asked = [
                _Asked("one leader", one, baseline),
                _Asked("8 odd pods of 3 classes", many),
                _Asked("8 odd pods of 3 classes, beside an anchor", anchored),
            ]
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
            anchor = _anchor(made)
            one = replace(pairs, anchors=(Anchor(anchor.name),))
            path = tuple(anchor.labels[key] for key in keys.GCE_TOPOLOGY)
            paid = frozenset(path[:length] for length in (1, 2, 3))
            asked = [
                _Asked("slices of 2 in a subblock", pairs, {"slices": 2}),
                _Asked("slices of 2, beside an anchor", one, {"slices": 2, "paid": paid}),
            ]
            if workers != 2000:
                nested = replace(pairs, slices=(Slice("block", 40), Slice("subblock", 4)))
                led = replace(
                    instances.gang(workers, slots, [instances.LEADER]), slices=(Slice("subblock", 4),)
                )
                minority = replace(instances.gang(workers, slots, instances.MINORITY), slices=led.slices)
                asked += [
                    _Asked("slices of 40 in a block, 4 in a subblock", nested),
                    _Asked("slices of 4, and a leader", led),
                    _Asked("slices of 4, and 8 odd pods of 3 classes", minority),
                    _Asked(
                        "slices of 4, and 8 odd pods of 3 classes, beside an anchor",
                        replace(minority, anchors=one.anchors),
                    ),
                ]
            yield from _rows("slices", nodes, slots, workers, repeats, asked)
    for nodes in (5000,) if quick else (5000, 100_000):
        anchors = tuple(Anchor(each.name) for each in instances.cluster(nodes, 8)[:4000])
        grown = replace(instances.gang(4000, 8), slices=(Slice("subblock", 2),), anchors=anchors)
        minority = replace(instances.gang(3992, 8, instances.MINORITY), anchors=anchors)
        asked = [_Asked("slices of 2, 4000 anchors", grown), _Asked("8 odd pods, 4000 anchors", minority)]
        yield from _rows("slices", nodes, 8, 4000, repeats, asked)


def spread(repeats: int, quick: bool) -> Iterator[Row]:
    """Evenly, and at most so many in a domain."""
    for nodes, workers in _sized([(5000, 1000)], [(100_000, 10_000)], quick):
        for slots in (8, 1):
            homogeneous = instances.gang(workers, slots)
            blocks = {each.labels[keys.GCE_TOPOLOGY[0]] for each in instances.cluster(nodes, slots)}
            most = -(-3 * workers // len(blocks))
            asked = [_Asked("evenly over the blocks", replace(homogeneous, spread=Spread("block")))]
            asked += [_Asked("evenly over the subblocks", replace(homogeneous, spread=Spread("subblock")))]
            for level, cap in (("block", most), ("block", 2 * most), ("host", 2)):
                gang = replace(homogeneous, spread=Spread(level, cap))
                baseline = {"most": cap} if level == "block" else None
                asked.append(_Asked(f"at most {cap} in a {level}", gang, baseline))
            yield from _rows("spread", nodes, slots, workers, repeats, asked)


def _sized(few: list[tuple[int, int]], large: list[tuple[int, int]], quick: bool) -> list[tuple[int, int]]:
    return few if quick else few + large


def _rows(
    group: str, nodes: int, slots: int, workers: int, repeats: int, asked: list[_Asked]
) -> Iterator[Row]:
    made = instances.cluster(nodes, slots)
    where = f"{workers} workers, {nodes} nodes of {slots}"
    asked = [_Asked("identical", instances.gang(workers, slots)), *asked]
    answers = alternated({each.what: (each.gang, None) for each in asked}, made, repeats)
    plain = statistics.median(answers["identical"].seconds)
    for each in asked:
        seconds, found = answers[each.what].seconds, answers[each.what].found
        beside = statistics.median(seconds) / plain
        baselines: tuple[Baseline, ...] = ()
        if each.baseline is not None and nodes <= BASELINE_NODES:
            baselines = (_highs(made, slots, workers, each.baseline, found),)
        yield Row(
            group,
            f"{where}, {each.what}",
            seconds,
            answers[each.what].changed,
            answered(found),
            beside,
            baselines,
        )


def _highs(made: Any, slots: int, workers: int, rules: Mapping[str, Any], found: object) -> Baseline:
    from hack.comparing.highs import fewest_domains  # loaded for these rows alone

    leaves = instances.leaves_of(made, slots)
    taken, fewest = timed(fewest_domains, leaves, workers, PATIENCE, **rules)
    assert isinstance(found, Assignment)
    blocks, subblocks, _, nodes = found.objective.domains
    ours = (blocks, subblocks, nodes)
    if fewest.proven:
        assert not found.proven or ours == fewest.domains, f"HiGHS finds {fewest.domains}, not {ours}"
        return Baseline("HiGHS", taken, instances.described(fewest.domains))
    names = ("blocks", "subblocks", "nodes")
    proven = ", ".join(f"{count} {name}" for name, count in zip(names, fewest.domains, strict=False))
    return Baseline("HiGHS", taken, f"proves {proven or 'nothing'} in {PATIENCE:.0f} s")
