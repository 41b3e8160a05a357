"""Unlike pods: whether they fit, and how close; planted packings beside HiGHS and a search for victims."""

import statistics
from collections.abc import Iterator
from typing import Final

from hack.benchmarks.placing.row import Rival, Row, answered, placed, timed
from hack.comparing.hostile import packed
from hack.comparing.packings import Packing, loose, planted
from webhook.placement import Assignment, Budget, Gang, Options, Snapshot, Usage, place, victims

PATIENCE: Final = 5.0
"""Seconds that HiGHS has for one packing."""

SEEDS: Final = 4


def kinds(repeats: int, quick: bool) -> Iterator[Row]:
    """So many kinds on nodes of several sizes, none of them full."""
    for nodes, count, each in (
        (1000, 3, 130), (500, 2, 100), (500, 10, 20), (500, 20, 20), (500, 50, 20), (5000, 10, 40),
        (5000, 50, 20), (5000, 20, 100),
    ):  # fmt: skip
        gang, snapshot = packed(loose(nodes, count, each, 0))
        infos = [state.node for state in snapshot.nodes.values()]
        seconds, found = placed(gang, infos, repeats)
        what = f"{count} kinds, {count * each} pods, {nodes} nodes"
        yield Row("unlike", what, seconds, answer=answered(found))
    gang, snapshot = packed(loose(1000, 3, 130, 0))
    yield _victims(snapshot, gang)


def _victims(snapshot: Snapshot, gang: Gang) -> Row:
    """Three kinds again, on nodes that pods of lower priority fill."""
    full = {
        name: (Usage(dict(state.free), name=f"u-{name}", priority=-1),)
        for name, state in snapshot.nodes.items()
    }
    budget = Budget(4 * Options().bound)
    begun = snapshot.with_usages(full)
    taken, found = timed(victims.find, gang, begun, Options(), lambda use: True, budget)
    told = "none found" if found is None else f"{len(found.names)} victims: {found.assignment.spread}"
    answer = f"{told}{', bound reached' if budget.exhausted else ''}"
    return Row("unlike", "3 kinds, 390 pods, 1000 full nodes, victims looked for", (taken,), answer=answer)


def packings(repeats: int, quick: bool) -> Iterator[Row]:
    """Nodes that pods fill, or lack one cpu for: decided or not."""
    for nodes, count, slack in (
        (6, 3, 0), (6, 3, -1), (10, 4, 0), (10, 4, -1), (20, 6, 0), (20, 6, -1), (20, 8, 1), (50, 8, 0),
        (50, 8, -1),
    ):  # fmt: skip
        drawn = [planted(nodes, count, slack, seed) for seed in range(SEEDS)]
        spare = {0: "full", -1: "1 cpu too few"}.get(slack, f"up to {slack} spare")
        yield _packing_row(f"{nodes} nodes, {count} kinds, {spare}", drawn)
    yield _packing_row("500 nodes, 3 kinds, full", [planted(500, 3, 0, 0)])
    yield _packing_row("500 nodes, 50 kinds of 20, loose", [loose(500, 50, 20, 0)])


def _packing_row(what: str, drawn: list[Packing]) -> Row:
    from hack.comparing.highs import packs  # loaded for these rows alone

    seconds, ours, theirs = [], [], []
    highs = []
    for packing in drawn:
        gang, snapshot = packed(packing)
        taken, found = timed(place, gang, snapshot)
        seconds.append(taken)
        ours.append(True if isinstance(found, Assignment) else False if found.proven else None)
        taken, fits = timed(packs, packing, PATIENCE)
        highs.append(taken)
        theirs.append(fits)
        assert None in (ours[-1], fits) or ours[-1] == fits, f"{what}: ours {ours[-1]}, HiGHS {fits}"
    rival = Rival("HiGHS", statistics.median(highs), f"at most {max(highs):.1f} s: {_decided(theirs)}")
    return Row("packings", what, tuple(seconds), answer=_decided(ours), rivals=(rival,))


def _decided(answers: list[bool | None]) -> str:
    counts = {"fit": answers.count(True), "do not fit": answers.count(False), "open": answers.count(None)}
    return f"of {len(answers)} " + ", ".join(f"{count} {what}" for what, count in counts.items() if count)
