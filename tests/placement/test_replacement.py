"""Pods that return to a gang whose others are placed: slices stay whole, ranks stay near their neighbours.

Held against trying every node for every member.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product

import pytest

from tests.placement.brute import domain, fits, slots_of
from tests.placement.small import gang_of, node, placed, pod_class
from webhook.placement import (
    Anchor,
    Assignment,
    Gang,
    Member,
    Options,
    Slice,
    Snapshot,
    Usage,
    check,
    place,
)
from webhook.placement.snapshot import NodeState

LEVELS = ("block", "subblock", "host", "node")
POD = Usage(dict(pod_class().requests))
Value = tuple[tuple[int, ...], tuple[int, ...]]
Ranked = list[tuple[NodeState, int]]


def layouts(gang: Gang, snapshot: Snapshot) -> Iterator[tuple[Value, Ranked]]:
    """Domains and leftover of each assignment of identical pods that keeps the rules, and where ranks go."""
    states = [state for state in snapshot.nodes.values() if slots_of(pod_class(), state)]
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
        leftover.append(sum(slots_of(pod_class(), s) for s in states if domain(s, level) in new))
    return tuple(domains), tuple(reversed(leftover))


def torn(dice: random.Random, slices: tuple[Slice, ...]) -> tuple[Gang, Snapshot] | None:
    """A gang that has lost pods, on a cluster with free slots here and there; None: no such luck."""
    nodes = [
        node(f"n{n}", (f"b{dice.randint(0, 1)}", f"s{dice.randint(0, 1)}", f"h{dice.randint(0, 2)}"), cpu)
        for n, cpu in enumerate(dice.choices((1, 2, 2, 3, 4), k=dice.randint(3, 5)))
    ]
    size = slices[0].size if slices else 1
    whole = gang_of(size * dice.randint(1, 6 // size), slices=slices)
    first = place(whole, Snapshot.build(nodes, []))
    if not isinstance(first, Assignment):
        return None
    down = dice.choice(sorted(set(first.nodes.values())))
    lost = [m for m in whole.members if first.nodes[m.name] == down or dice.random() < 0.2][:4]
    remaining = tuple(Anchor(first.nodes[m.name], m.rank) for m in whole.members if m not in lost)
    gang = replace(whole, members=tuple(lost), anchors=remaining, excluded_nodes=frozenset({down}))
    return gang, Snapshot.build(nodes, [(anchor.node, POD) for anchor in remaining])


SLICES = {
    "hosts of two": (Slice("host", 2),),
    "subblocks of two": (Slice("subblock", 2),),
    "subblocks of three": (Slice("subblock", 3),),
    "blocks of four, hosts of two": (Slice("block", 4), Slice("host", 2)),
    "blocks of four, subblocks of two": (Slice("block", 4), Slice("subblock", 2)),
}


@pytest.mark.parametrize("slices", SLICES.values(), ids=SLICES)
@pytest.mark.parametrize("seed", range(2))
def test_lost_pods_return_to_the_best_place_that_keeps_slices_whole(
    slices: tuple[Slice, ...], seed: int
) -> None:
    dice = random.Random(seed)
    for _ in range(40):
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


def test_one_lost_pod_of_each_of_many_slices_returns_although_each_slice_is_a_kind_of_its_own() -> None:
    """For each kind only its own block is looked at, not each of so many nodes."""
    nodes = [node(f"n{n}", (f"b{n // 10}", f"s{n // 5}", f"h{n}"), 1) for n in range(1000)]
    slices = (Slice("subblock", 3),)
    whole = gang_of(300, slices=slices)
    on = {member.name: nodes[rank // 3 * 5 + rank % 3].name for rank, member in enumerate(whole.members)}
    lost, remaining = whole.members[::3], [member for member in whole.members if (member.rank or 0) % 3]
    anchors = tuple(Anchor(on[member.name], member.rank) for member in remaining)
    snapshot = Snapshot.build(nodes, [(anchor.node, POD) for anchor in anchors])
    asked = replace(whole, members=lost, anchors=anchors)
    found = placed(asked, snapshot, Options(bound=50_000))
    racks = {each.name: each.labels["cloud.google.com/gce-topology-subblock"] for each in nodes}
    assert all(racks[name] == racks[on[member]] for member, name in found.nodes.items())


def test_a_lost_pod_returns_to_the_slice_on_its_own_node() -> None:
    nodes = [node(f"n{n}", ("b", "s", "h"), 2) for n in range(2)]
    gang = Gang(
        "g", (Member("lost", 3, pod_class()),), slices=(Slice("node", 2),), anchors=(Anchor("n1", 2),)
    )
    found = place(gang, Snapshot.build(nodes, [("n1", POD)]))
    assert isinstance(found, Assignment)
    assert found.nodes == {"lost": "n1"}


@pytest.mark.promise("O91")
@pytest.mark.parametrize(
    ("rank", "expected"), [(1, "a2"), (2, "a2"), (4, "b2")], ids=["between", "end", "start"]
)
def test_a_lost_pod_returns_beside_its_neighbours_by_rank(rank: int, expected: str) -> None:
    """Both blocks hold pods of the gang and have capacity; only the ranks distinguish them."""
    tree = {"b1": {"s": {"a1": 3, "a2": 8}}, "b2": {"s": {"b1": 3, "b2": 8}}}
    tree["b1" if expected == "a2" else "b2"]["s"][expected] = 4
    nodes = [
        node(host, (block, rack, host), cpu)
        for block, racks in tree.items()
        for rack, hosts in racks.items()
        for host, cpu in hosts.items()
    ]
    seats = {0: "a2", 1: "a2", 2: "a2", 3: "b2", 4: "b2", 5: "b2"}
    remaining = tuple(Anchor(name, other) for other, name in seats.items() if other != rank)
    gang = Gang("g", (Member("lost", rank, pod_class()),), anchors=remaining)
    found = place(gang, Snapshot.build(nodes, [(anchor.node, POD) for anchor in remaining]))
    assert isinstance(found, Assignment)
    assert found.nodes == {"lost": expected}


@pytest.mark.promise("O91")
@pytest.mark.parametrize("seed", range(6))
def test_lost_pods_return_as_near_to_their_neighbours_as_the_best_places_allow(seed: int) -> None:
    """The nearest level at which some best assignment has every member beside the nearest rank."""
    dice = random.Random(seed)
    differed = 0
    for _ in range(20):
        gang, snapshot = scattered(dice)
        every = list(layouts(gang, snapshot))
        found = place(gang, snapshot)
        if not isinstance(found, Assignment):
            assert not every
            continue
        best = min(value for value, _ in every)
        assert (found.objective.domains, found.objective.leftover) == best
        assert check(found, gang, snapshot) == []
        possible = [nearness(gang, snapshot, ranked) for value, ranked in every if value == best]
        mine = [(snapshot.nodes[found.nodes[m.name]], m.rank or 0) for m in gang.members]
        assert nearness(gang, snapshot, mine) == max(possible)
        differed += min(possible) < max(possible)
    assert differed


def scattered(dice: random.Random) -> tuple[Gang, Snapshot]:
    """Six ranks along the topology, one to three of them lost, and a little capacity on each node."""
    names = [f"n{n}" for n in range(5)]
    seats = sorted(dice.choices(names, k=6))
    lost = dice.sample(range(6), dice.randint(1, 3))
    remaining = tuple(Anchor(name, rank) for rank, name in enumerate(seats) if rank not in lost)
    slots = {name: dice.choice((0, 1, 2)) + sum(a.node == name for a in remaining) for name in names}
    nodes = [
        node(name, (f"b{number // 3}", f"s{number // 2}", f"h{dice.randint(0, 1)}"), slots[name])
        for number, name in enumerate(names)
    ]
    gang = Gang("g", tuple(Member(f"p{rank}", rank, pod_class()) for rank in sorted(lost)), anchors=remaining)
    return gang, Snapshot.build(nodes, [(anchor.node, POD) for anchor in remaining])


def nearness(gang: Gang, snapshot: Snapshot, ranked: Ranked) -> int:
    """The deepest level at which every pod shares a domain with the placed pod of the nearest rank; or -1."""

    def neighbour(rank: int) -> NodeState:
        nearest = min(gang.anchors, key=lambda a: (abs((a.rank or 0) - rank), a.rank or 0))
        return snapshot.nodes[nearest.node]

    shared = [
        level
        for level in range(len(LEVELS))
        if all(domain(state, level) == domain(neighbour(rank), level) for state, rank in ranked)
    ]
    return max(shared, default=-1)


@pytest.mark.parametrize(
    ("rows", "anchors", "new", "where"),
    [
        pytest.param(
            {"a": 8, "b": 5}, {"b": range(4)}, range(4, 13), {"b": [4], "a": range(5, 13)},
            id="the free node beside the placed ones takes the next rank",
        ),
        pytest.param(
            {"a": 5, "b": 8}, {"a": range(9, 13)}, range(9), {"a": [8], "b": range(8)},
            id="or the last one before them",
        ),
        pytest.param(
            {"a": 4, "b": 4}, {"a": range(2), "b": range(2, 4)}, range(4, 8), {"b": [4, 5], "a": [6, 7]},
            id="the nearest ranks first",
        ),
        pytest.param(
            {"a": 3, "b": 3}, {}, range(6), {"a": range(3), "b": range(3, 6)}, id="without any, by name",
        ),
    ],
)  # fmt: skip
def test_ranks_of_a_gang_that_grows_continue_where_its_placed_ranks_end(
    rows: dict[str, int],
    anchors: dict[str, Sequence[int]],
    new: range,
    where: dict[str, Sequence[int]],
) -> None:
    nodes = [
        node(f"{row}{n}", ("block", row, f"{row}{n}"), 1) for row, count in rows.items() for n in range(count)
    ]
    there = [
        Anchor(f"{row}{number}", rank) for row, ranks in anchors.items() for number, rank in enumerate(ranks)
    ]
    members = tuple(Member(f"p-{rank}", rank, pod_class()) for rank in new)
    snapshot = Snapshot.build(nodes, [(each.node, POD) for each in there])
    found = placed(Gang("g", members, anchors=tuple(there)), snapshot)
    rows_of = {rank: found.nodes[f"p-{rank}"][0] for rank in new}
    assert rows_of == {rank: row for row, ranks in where.items() for rank in ranks}
