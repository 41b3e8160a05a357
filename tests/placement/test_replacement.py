"""Pods that return to a gang whose others are placed: slices stay whole, ranks stay near their neighbours.

Held against trying every node for every member.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product

import pytest

from tests.placement.brute import domain, fits, rooms
from tests.placement.small import gang_of, node, pod_class
from webhook.placement import Anchor, Assignment, Gang, Slice, Snapshot, Usage, check, place
from webhook.placement.snapshot import NodeState

LEVELS = ("block", "subblock", "host", "node")
POD = Usage(dict(pod_class().requests))
Value = tuple[tuple[int, ...], tuple[int, ...]]
Ranked = list[tuple[NodeState, int]]


def layouts(gang: Gang, snapshot: Snapshot) -> Iterator[tuple[Value, Ranked]]:
    """Domains and leftover of each assignment of identical pods that keeps the rules, and where ranks go."""
    states = [state for state in snapshot.nodes.values() if rooms(pod_class(), state)]
    states = [state for state in states if state.name not in gang.excluded_nodes]
    anchors = [(snapshot.nodes[a.node], a.rank or 0) for a in gang.anchors]
    for chosen in product(states, repeat=len(gang.members)):
        if any(not fits([pod_class()] * chosen.count(state), state) for state in chosen):
            continue
        ranked = [(state, m.rank or 0) for state, m in zip(chosen, gang.members, strict=True)]
        if all(_whole(part, anchors + ranked) for part in gang.slices):
            yield _value(states, chosen, [state for state, _ in anchors]), ranked


def _whole(part: Slice, ranked: Ranked) -> bool:
    places: dict[int, set[tuple[str, ...]]] = {}
    for state, rank in ranked:
        places.setdefault(rank // part.size, set()).add(domain(state, LEVELS.index(part.level)))
    return all(len(domains) == 1 for domains in places.values())


def _value(states: Sequence[NodeState], used: Sequence[NodeState], anchors: Sequence[NodeState]) -> Value:
    domains, leftover = [], []
    for level in range(len(LEVELS)):
        new = {domain(s, level) for s in used} - {domain(s, level) for s in anchors}
        domains.append(len(new))
        leftover.append(sum(rooms(pod_class(), s) for s in states if domain(s, level) in new))
    return tuple(domains), tuple(leftover)


def torn(dice: random.Random, slices: tuple[Slice, ...]) -> tuple[Gang, Snapshot] | None:
    """A gang some of whose pods were lost, on a cluster with room left here and there; None: no such luck."""
    nodes = [
        node(f"n{n}", (f"b{dice.randint(0, 1)}", f"s{dice.randint(0, 1)}", f"h{dice.randint(0, 2)}"), cpu)
        for n, cpu in enumerate(dice.choices((1, 2, 2, 3, 4), k=dice.randint(3, 6)))
    ]
    size = slices[0].size if slices else 1
    whole = gang_of(size * dice.randint(1, 6 // size), slices=slices)
    first = place(whole, Snapshot.build(nodes, []))
    if not isinstance(first, Assignment):
        return None
    down = dice.choice(sorted(set(first.nodes.values())))
    lost = [m for m in whole.members if first.nodes[m.name] == down or dice.random() < 0.2][:4]
    kept = tuple(Anchor(first.nodes[m.name], m.rank) for m in whole.members if m not in lost)
    gang = replace(whole, members=tuple(lost), anchors=kept, excluded_nodes=frozenset({down}))
    return gang, Snapshot.build(nodes, [(anchor.node, POD) for anchor in kept])


SLICES = {
    "hosts of two": (Slice("host", 2),),
    "subblocks of two": (Slice("subblock", 2),),
    "subblocks of three": (Slice("subblock", 3),),
    "blocks of four, hosts of two": (Slice("block", 4), Slice("host", 2)),
    "blocks of four, subblocks of two": (Slice("block", 4), Slice("subblock", 2)),
}


@pytest.mark.parametrize("slices", SLICES.values(), ids=SLICES)
@pytest.mark.parametrize("seed", range(6))
def test_lost_pods_return_to_the_best_place_that_keeps_slices_whole(
    slices: tuple[Slice, ...], seed: int
) -> None:
    dice = random.Random(seed)
    for _ in range(25):
        case = torn(dice, slices)
        if case is None:
            continue
        gang, snapshot = case
        best = min((value for value, _ in layouts(gang, snapshot)), default=None)
        found = place(gang, snapshot)
        if not isinstance(found, Assignment):
            assert best is None, f"missed {best}: {found.sentence}"
            continue
        assert check(found, gang, snapshot) == []
        assert (found.objective.domains, found.objective.leftover) == best
        assert found.proven
