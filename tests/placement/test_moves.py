"""Which gangs are moved so that another fits: held against trying every set of gangs and every place."""

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import le
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.placement.small import gang_of, snapshot_of
from webhook.placement import Assignment, Budget, Gang, Options, Snapshot, Usage, place
from webhook.placement.moves import Cost, Moves, MoveSearch, cost_of
from webhook.placement.victims import Unit

TREE: Final = {"b1": {"r1": "ab", "r2": "cd"}, "b2": {"r3": "efg"}}
BLOCK: Final = {name: block for block, racks in TREE.items() for rack in racks.values() for name in rack}
RACK: Final = {name: rack for racks in TREE.values() for rack, hosts in racks.items() for name in hosts}
NODES: Final = tuple(BLOCK)
DOMAIN: Final = {None: dict.fromkeys(NODES, ""), "block": BLOCK, "subblock": RACK}
ONE_EACH: Final = dict.fromkeys(NODES, 1)


@dataclass(frozen=True)
class SmallGang:
    """A gang of pods for one slot each. nodes: those of its pods."""

    gang: Gang
    nodes: tuple[str, ...] = ()
    lost: float = 0.0
    unit: Unit = field(default_factory=lambda: Unit("", 0, frozenset()))

    @classmethod
    def on(cls, name: str, nodes: Sequence[str], level: str | None = None, lost: float = 0.0) -> "SmallGang":
        pods = frozenset(f"{name}-{number}" for number in range(len(nodes)))
        gang = replace(gang_of(len(nodes), required_level=level), name=name)
        return cls(gang, tuple(nodes), lost, Unit(name, 0, pods))

    @property
    def most_domains(self) -> tuple[int, ...]:
        """Its blocks and subblocks, and one more node."""
        blocks, racks, nodes = domains_of(self.nodes)
        return blocks, racks, nodes + 1, nodes + 1

    def layouts(self, free: Mapping[str, int]) -> Iterator[Counter[str]]:
        """All of its places on these free slots: how many pods each node gets."""
        domain, some = DOMAIN[self.gang.required_level], [name for name in NODES if free.get(name, 0) > 0]
        for nodes in itertools.combinations_with_replacement(some, len(self.gang.members)):
            counts = Counter(nodes)
            is_near = not self.nodes or all(map(le, domains_of(nodes), self.most_domains))
            if is_near and counts <= Counter(free) and len({domain[each] for each in counts}) == 1:
                yield counts


def domains_of(nodes: Iterable[str]) -> tuple[int, ...]:
    used = set(nodes)
    return len({BLOCK.get(each) for each in used}), len({RACK.get(each) for each in used}), len(used)


def cluster(gangs: Sequence[SmallGang], slots: Mapping[str, int]) -> Snapshot:
    tree = {
        block: {rack: {name: slots.get(name, 0) for name in names} for rack, names in racks.items()}
        for block, racks in TREE.items()
    }
    pods = [(node, f"{each.unit.name}-{n}") for each in gangs for n, node in enumerate(each.nodes)]
    use = {"cpu": 1000, "pods": 1}
    return snapshot_of(tree, [(node, Usage(use, name=uid, uid=uid)) for node, uid in pods])


def search(
    asking: SmallGang,
    gangs: Sequence[SmallGang],
    movable: Sequence[SmallGang],
    slots: Mapping[str, int] = ONE_EACH,
) -> MoveSearch[SmallGang]:
    return MoveSearch(asking.gang, cluster(gangs, slots), movable, Options(), Budget(10**9))


def fits(asking: SmallGang, gangs: Sequence[SmallGang], slots: Mapping[str, int] = ONE_EACH) -> bool:
    return isinstance(place(asking.gang, cluster(gangs, slots)), Assignment)


def free_of(gangs: Iterable[SmallGang], slots: Mapping[str, int]) -> Counter[str]:
    return Counter(slots) - Counter(node for each in gangs for node in each.nodes)


def all_fit(gangs: Sequence[SmallGang], free: Counter[str]) -> bool:
    return not gangs or any(all_fit(gangs[1:], free - counts) for counts in gangs[0].layouts(free))


def cheapest(
    asking: SmallGang, gangs: Sequence[SmallGang], movable: Sequence[SmallGang], slots: Mapping[str, int]
) -> Cost | None:
    """The cost of the cheapest set of gangs, by trying all sets and all places."""
    free = free_of(gangs, slots)
    sets = itertools.chain.from_iterable(
        itertools.combinations(movable, count) for count in range(1, len(movable) + 1)
    )
    for moved in sorted(sets, key=cost_of):
        vacated = Counter(node for each in moved for node in each.nodes)
        if any(all_fit(moved, free - counts) for counts in asking.layouts(free + vacated)):
            return cost_of(moved)
    return None


def of(found: Moves[SmallGang] | None) -> dict[str, set[str]]:
    assert found is not None
    return {moved.unit.name: set(answer.nodes.values()) for moved, answer in found.places}


@dataclass(frozen=True)
class Drawn:
    """A cluster with gangs on nodes, of which some may be moved, and a gang that waits."""

    asking: SmallGang
    gangs: list[SmallGang]
    movable: list[SmallGang]
    slots: dict[str, int]


@st.composite
def clusters(draw: st.DrawFn) -> Drawn:
    """Nodes with up to three slots each, nearly full."""
    slots = {name: draw(st.integers(1, 3)) for name in NODES}
    left = draw(st.permutations([*Counter(slots).elements()]))
    del left[: draw(st.integers(2, 6))]
    gangs: list[SmallGang] = []
    while left:
        size = draw(st.integers(1, 4))
        nodes, left = left[:size], left[size:]
        levels = [level for level in DOMAIN if len({DOMAIN[level][node] for node in nodes}) == 1]
        lost = float(draw(st.integers(0, 2)))
        gangs.append(SmallGang.on(f"g{len(gangs)}", nodes, draw(st.sampled_from(levels)), lost))
    movable = [each for each in gangs if draw(st.booleans())][:4]
    asking = SmallGang(gang_of(draw(st.integers(2, 5)), required_level=draw(st.sampled_from([*DOMAIN]))))
    return Drawn(asking, gangs, movable, slots)


def check(found: Moves[SmallGang], drawn: Drawn) -> None:
    """All gangs have places that they may use, on slots that are free before anything is moved."""
    free = free_of(drawn.gangs, drawn.slots)
    moved = [each for each in drawn.movable if each.unit.name in of(found)]
    asked = Counter(found.assignment.nodes.values())
    assert asked <= free + Counter(node for each in moved for node in each.nodes)
    new = {each.unit.name: Counter(answer.nodes.values()) for each, answer in found.places}
    assert sum(new.values(), Counter[str]()) <= free - asked
    assert all(any(each.layouts(new[each.unit.name])) for each in moved)


@pytest.mark.promise("O418")
@settings(deadline=None, max_examples=150, derandomize=True)
@given(clusters())
def test_a_set_is_found_if_one_exists_and_none_is_cheaper(drawn: Drawn) -> None:
    asking, gangs, movable, slots = drawn.asking, drawn.gangs, drawn.movable, drawn.slots
    if fits(asking, gangs, slots):
        return
    found = search(asking, gangs, movable, slots).run(len(movable))
    assert (found.cost if found is not None else None) == cheapest(asking, gangs, movable, slots)
    if found is not None:
        check(found, drawn)


@pytest.mark.promise("O418")
def test_a_node_is_shared_by_the_gang_that_waits_and_one_that_is_moved_for_it() -> None:
    """The best place leaves nothing on b, and none without b is large enough: it must get one pod less."""
    slots = {"a": 2, "b": 2, "c": 1, "d": 2, "e": 1, "f": 3, "g": 1}
    wide = SmallGang.on("wide", ["a", "e", "c", "d"])
    others = [SmallGang.on("x", ["a"]), SmallGang.on("y", ["f"])]
    asking = SmallGang(gang_of(5, required_level="block"))
    found = search(asking, [wide, *others], [wide], slots).run(9)
    assert found is not None
    check(found, Drawn(asking, [wide, *others], [wide], slots))


@pytest.mark.promise("O418")
def test_gangs_leave_a_domain_one_by_one_where_there_are_too_many_sets() -> None:
    """The first 15 have no other place, so millions of sets fail before one of the others alone."""
    names, free = [f"n{number:02}" for number in range(34)], [f"m{number}" for number in range(9)]
    tree = {"b1": {"r1": dict.fromkeys(names, 1)}, "b2": {"r2": dict.fromkeys(free, 1)}}
    gangs = [SmallGang.on(f"g{node}", [node]) for node in names[:30]]
    gangs[:15] = [replace(each, gang=gang_of(3)) for each in gangs[:15]]
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
