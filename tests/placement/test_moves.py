"""Which gangs are moved so that another fits: held against trying every set of gangs and every place."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.placement.small import gang_of, snapshot_of
from webhook.placement import Assignment, Budget, Gang, Options, Snapshot, Usage, place
from webhook.placement.moves import Cost, Moves, MoveSearch, cost_of
from webhook.placement.victims import Unit

TREE: Final = {"b1": {"r1": {"a": 1, "b": 1}, "r2": {"c": 1, "d": 1}}, "b2": {"r3": {"e": 1, "f": 1, "g": 1}}}
BLOCK: Final = {name: block for block, racks in TREE.items() for rack in racks.values() for name in rack}
RACK: Final = {name: rack for racks in TREE.values() for rack, hosts in racks.items() for name in hosts}
NODES: Final = tuple(BLOCK)
DOMAIN: Final = {None: dict.fromkeys(NODES, ""), "block": BLOCK, "subblock": RACK}


def domains_of(nodes: Sequence[str]) -> tuple[int, ...]:
    return len({BLOCK.get(each) for each in nodes}), len({RACK.get(each) for each in nodes}), len(nodes)


@dataclass(frozen=True)
class SmallGang:
    """A gang of pods that fill a node each."""

    gang: Gang
    nodes: tuple[str, ...] = ()
    lost: float = 0.0
    unit: Unit = field(default_factory=lambda: Unit("", 0, frozenset()))

    @classmethod
    def on(cls, name: str, nodes: Sequence[str], level: str | None = None, lost: float = 0.0) -> "SmallGang":
        pods = frozenset(f"{name}-{node}" for node in nodes)
        gang = replace(gang_of(len(nodes), required_level=level), name=name)
        return cls(gang, tuple(nodes), lost, Unit(name, 0, pods))

    @property
    def most_domains(self) -> tuple[int, ...]:
        return (*domains_of(self.nodes), len(self.nodes))

    def may_lie_on(self, nodes: Sequence[str]) -> bool:
        """Its blocks and subblocks are no more than now."""
        pairs = zip(domains_of(nodes), domains_of(self.nodes), strict=True)
        return not self.nodes or all(new <= now for new, now in pairs)

    def layouts(self, free: Sequence[str]) -> Iterator[tuple[str, ...]]:
        """All of its places on these nodes."""
        domain = DOMAIN[self.gang.required_level]
        for nodes in itertools.combinations(free, len(self.gang.members)):
            if len({domain[each] for each in nodes}) == 1 and self.may_lie_on(nodes):
                yield nodes


def cluster(gangs: Sequence[SmallGang]) -> Snapshot:
    use = {"cpu": 1000, "pods": 1}
    pods = [(node, f"{each.unit.name}-{node}") for each in gangs for node in each.nodes]
    return snapshot_of(TREE, [(node, Usage(use, name=uid, uid=uid)) for node, uid in pods])


def search(
    asking: SmallGang, gangs: Sequence[SmallGang], movable: Sequence[SmallGang]
) -> MoveSearch[SmallGang]:
    return MoveSearch(asking.gang, cluster(gangs), movable, Options(), Budget(10**9))


def fits(asking: SmallGang, gangs: Sequence[SmallGang]) -> bool:
    return isinstance(place(asking.gang, cluster(gangs)), Assignment)


def all_fit(gangs: Sequence[SmallGang], free: Sequence[str]) -> bool:
    if not gangs:
        return True
    return any(
        all_fit(gangs[1:], [each for each in free if each not in nodes]) for nodes in gangs[0].layouts(free)
    )


def cheapest(asking: SmallGang, gangs: Sequence[SmallGang], movable: Sequence[SmallGang]) -> Cost | None:
    """The cost of the cheapest set of gangs, by trying all sets and all places."""
    used = {node for each in gangs for node in each.nodes}
    free = [node for node in NODES if node not in used]
    costs = [
        cost_of(moved)
        for count in range(1, len(movable) + 1)
        for moved in itertools.combinations(movable, count)
        for nodes in asking.layouts([*free, *(node for each in moved for node in each.nodes)])
        if all_fit(moved, [node for node in free if node not in nodes])
    ]
    return min(costs, default=None)


def of(found: Moves[SmallGang] | None) -> dict[str, set[str]]:
    assert found is not None
    return {moved.unit.name: set(answer.nodes.values()) for moved, answer in found.places}


LEVELS: Final = st.sampled_from([None, "block", "subblock"])


@st.composite
def clusters(draw: st.DrawFn) -> tuple[SmallGang, list[SmallGang], list[SmallGang]]:
    """A gang that needs a domain, gangs on nodes, and those of them that may be moved."""
    left = list(draw(st.permutations(NODES)))
    gangs: list[SmallGang] = []
    for number in range(draw(st.integers(1, 4))):
        size = min(draw(st.integers(1, 2)), len(left))
        nodes, left = left[:size], left[size:]
        if nodes:
            lost = float(draw(st.integers(0, 2)))
            gangs.append(SmallGang.on(f"g{number}", nodes, draw(LEVELS), lost))
    movable = [each for each in gangs if draw(st.booleans())]
    asking = SmallGang(gang_of(draw(st.integers(1, 3)), required_level=draw(LEVELS.filter(bool))))
    return asking, gangs, movable


def check(found: Moves[SmallGang], gangs: Sequence[SmallGang], movable: Sequence[SmallGang]) -> None:
    """All gangs have places that they may use, on nodes that are free before anything is moved."""
    used = {node for each in gangs for node in each.nodes}
    moved = [each for each in movable if each.unit.name in of(found)]
    asked = set(found.assignment.nodes.values())
    assert asked <= {*NODES} - used | {node for each in moved for node in each.nodes}
    new = [node for nodes in of(found).values() for node in nodes]
    assert len(set(new)) == len(new), "no two gangs are moved to one node"
    assert not used & {*new}, "it is free before anything is moved"
    assert not asked & {*new}
    assert all(any(each.layouts(sorted(of(found)[each.unit.name]))) for each in moved)


@pytest.mark.promise("O418")
@settings(deadline=None, max_examples=150, derandomize=True)
@given(clusters())
def test_a_set_is_found_if_one_exists_and_none_is_cheaper(
    drawn: tuple[SmallGang, list[SmallGang], list[SmallGang]],
) -> None:
    asking, gangs, movable = drawn
    if fits(asking, gangs):
        return
    found = search(asking, gangs, movable).run(len(movable))
    assert (found.cost if found is not None else None) == cheapest(asking, gangs, movable)
    if found is not None:
        check(found, gangs, movable)


@pytest.mark.promise("O418")
def test_gangs_leave_a_domain_one_by_one_where_there_are_too_many_sets() -> None:
    """The first 15 have no other place, so millions of sets fail before one of the others alone."""
    names, free = [f"n{number:02}" for number in range(34)], [f"m{number}" for number in range(9)]
    tree = {"b1": {"r1": dict.fromkeys(names, 1)}, "b2": {"r2": dict.fromkeys(free, 1)}}
    gangs = [SmallGang.on(f"g{node}", [node]) for node in names[:30]]
    gangs[:15] = [replace(each, gang=gang_of(2)) for each in gangs[:15]]
    pods = [(each.nodes[0], next(iter(each.unit.pods))) for each in gangs]
    use = {"cpu": 1000, "pods": 1}
    snapshot = snapshot_of(tree, [(node, Usage(use, name=uid, uid=uid)) for node, uid in pods])
    asking = gang_of(12, required_level="block")
    found = MoveSearch(asking, snapshot, gangs, Options(), Budget(10**9)).run(10)
    assert found is not None
    moved = {each.nodes[0]: set(answer.nodes.values()) for each, answer in found.places}
    assert len(moved) == 8
    assert moved.keys() <= set(names[15:])
    assert set(found.assignment.nodes.values()) == {*moved, *names[30:]}
    assert {node for nodes in moved.values() for node in nodes} <= set(free)


def test_the_gang_with_the_fewest_pods_is_moved_and_of_these_the_one_that_has_run_least() -> None:
    gangs = [
        SmallGang.on("large", ["a", "b"], lost=0),
        SmallGang.on("old", ["c"], lost=9),
        SmallGang.on("young", ["e"], lost=1),
    ]
    asking = SmallGang(gang_of(3, required_level="block"))
    assert of(search(asking, gangs, gangs).run(9)) == {"young": {"d"}}
    assert of(search(asking, gangs, gangs[:1]).run(9)) == {"large": {"f", "g"}}


def test_a_gang_without_another_place_is_not_moved() -> None:
    pair = SmallGang.on("pair", ["a", "b"], "subblock")
    others = [SmallGang.on("x", ["c"]), SmallGang.on("y", ["e"])]
    asking = SmallGang(gang_of(2, required_level="subblock"))
    assert fits(asking, [pair, *others])
    three = SmallGang(gang_of(4, required_level="block"))
    assert search(three, [pair, *others], [pair, *others]).run(9) is None


def test_no_more_gangs_are_moved_than_may_be() -> None:
    gangs = [SmallGang.on("x", ["a"]), SmallGang.on("y", ["c"])]
    asking = SmallGang(gang_of(4, required_level="block"))
    assert search(asking, gangs, gangs).run(1) is None
    assert of(search(asking, gangs, gangs).run(2)).keys() == {"x", "y"}
