"""Gangs of two and more roles: topogate beside first-fit-decreasing, and beside another revision of itself.

Nine gangs on fragmented clusters of 500, 5,000 and 20,000 nodes, and the questions that single packings are
lost on: levels, 100,000 nodes, pods that all differ on an empty cluster, and cards of nodes that all differ.
Answers are blocks/subblocks/nodes; times are CPU seconds of this process from the snapshot to the answer.
"""

import argparse
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final

import msgspec

from hack.benchmarks.placement_rows import instances
from hack.benchmarks.placement_rows.row import timed
from hack.comparing import several_roles
from hack.comparing.first_fit import FirstFit
from hack.comparing.revisions import output_at
from webhook.placement import Assignment, Gang, NoFit, Snapshot, place

SIZES: Final = (500, 5000, 20_000)
LARGE: Final = 100_000
_HETEROGENEOUS: Final = (
    (5000, 16, "block"), (5000, 10, "block"), (400, 60, "block"), (400, 60, None), (5000, 60, None),
)  # fmt: skip
"""Nodes, pods that all differ, and the level that they require."""


@dataclass(frozen=True, slots=True)
class RoleAnswer:
    """What one placer found for one gang. domains: blocks, subblocks, nodes; () without a place."""

    what: str
    domains: tuple[int, ...]
    proven: bool
    seconds: float

    def __str__(self) -> str:
        found = "/".join(map(str, self.domains)) or "no place"
        return f"{found}{', proven' if self.proven else ''} ({self.seconds:.2f} s)"


def questions(quick: bool) -> Iterator[tuple[str, Gang, Callable[[], Snapshot]]]:
    """What is asked, and the cluster, which is made when it is needed."""
    for nodes in SIZES[:2] if quick else SIZES:
        for name, gang in several_roles.ROLES.items():
            yield f"{name}, {nodes} nodes", gang, lambda nodes=nodes: _fragmented(nodes)  # type: ignore[misc]
    two = several_roles.ROLES["128 A + 32 B"]
    required = replace(two, required_level="block")
    yield "128 A + 32 B, required block, 5000 nodes", required, lambda: _fragmented(5000)
    if not quick:
        yield f"128 A + 32 B, {LARGE} nodes", two, lambda: _fragmented(LARGE)
    for nodes, pods, level in _HETEROGENEOUS:
        for seed in range(3):
            what = f"{pods} pods that differ, required {level}, {nodes} empty nodes, seed {seed}"
            gang = several_roles.different_pods(pods, seed, level)
            yield what, gang, lambda nodes=nodes: several_roles.empty(nodes)  # type: ignore[misc]
    for nodes in (32, 100, 400):
        yield (
            f"32 pods on 3 + 2 cards of a NUMA node, {nodes} nodes",
            several_roles.numa_pods(32),
            (
                lambda nodes=nodes: several_roles.different_cards(nodes)  # type: ignore[misc]
            ),
        )


def _fragmented(nodes: int) -> Snapshot:
    return Snapshot.build(instances.cluster(nodes, 8), [])


def ours(quick: bool) -> Iterator[RoleAnswer]:
    """topogate's answers."""
    for what, gang, cluster in questions(quick):
        snapshot = cluster()
        seconds, found = timed(place, gang, snapshot)
        yield RoleAnswer(what, _described(found), found.proven, seconds)


def _described(found: Assignment | NoFit | None) -> tuple[int, ...]:
    if not isinstance(found, Assignment):
        return ()
    blocks, subblocks, _, nodes = found.objective.domains
    return blocks, subblocks, nodes


def _first_fit(quick: bool) -> Iterator[RoleAnswer]:
    for what, gang, cluster in questions(quick):
        seconds, found = timed(FirstFit(gang, cluster()).place)
        yield RoleAnswer(what, _described(found), False, seconds)


def main(argv: list[str] | None = None) -> int:
    """Print the table; the status is 1 if a gang is placed in more domains than by first-fit."""
    parser = argparse.ArgumentParser(prog="hack/bench roles", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="neither 20,000 nor 100,000 nodes")
    parser.add_argument("--against", metavar="REVISION", help="ask topogate as it was at this commit as well")
    parser.add_argument("--json", action="store_true", help="topogate's answers alone, one JSON object each")
    args = parser.parse_args(argv)
    if args.json:
        for answer in ours(args.quick):
            print(msgspec.json.encode(answer).decode(), flush=True)
        return 0
    before: list[RoleAnswer] = []
    if args.against:
        lines = output_at(
            args.against, "hack.benchmarks.roles", ["--json", *(["--quick"] if args.quick else [])]
        )
        before = [msgspec.json.decode(line, type=RoleAnswer) for line in lines.splitlines()]
    losses = 0
    for number, (mine, simple) in enumerate(zip(ours(args.quick), _first_fit(args.quick), strict=True)):
        is_loss = bool(simple.domains) and not (mine.domains and mine.domains <= simple.domains)
        losses += is_loss
        old = f"; {args.against} {before[number]}" if before else ""
        print(f"{'LOSS  ' if is_loss else ''}{mine.what}: {mine}; first-fit {simple}{old}", flush=True)
    print(f"{losses} gangs in more domains than by first-fit")
    return 1 if losses else 0


if __name__ == "__main__":
    sys.exit(main())
