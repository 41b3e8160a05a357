"""The solver against HiGHS, an independent exact solver, on clusters of hundreds of nodes."""

import random
from typing import Any, cast

import highspy
import pytest

from tests.placement.small import gang_of, node
from webhook.placement import Assignment, Node, Snapshot, place

Place = tuple[str, ...]


def cluster(dice: random.Random, count: int, slots: int) -> list[Node]:
    nodes: list[Node] = []
    block = 0
    while len(nodes) < count:
        for rack in range(dice.randint(2, 5)):
            busy = dice.random() < 0.4
            for host in range(dice.randint(4, 12)):
                free = slots if not busy and dice.random() < 0.7 else dice.randint(0, slots)
                nodes.append(node(f"n{len(nodes)}", (f"b{block}", f"r{rack}", f"h{host // 2}"), free))
        block += 1
    return nodes


def least(snapshot: Snapshot, wanted: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Domains used at each level, then leftover at each: the least, with those before held at theirs."""
    model: Any = cast(Any, highspy).Highs()
    model.silent()
    model.setOptionValue("mip_rel_gap", 0.0)
    model.setOptionValue("mip_abs_gap", 0.9)
    levels: list[dict[Place, Any]] = [{}, {}, {}, {}]
    rooms: list[dict[Place, int]] = [{}, {}, {}, {}]
    for state in snapshot.nodes.values():
        room = state.free["cpu"] // 1000
        if not room or state.path is None:
            continue
        above: Any = None
        for level in range(4):
            key = (*state.path, state.name)[: level + 2]
            rooms[level][key] = rooms[level].get(key, 0) + room
            if key not in levels[level]:
                used = levels[level][key] = model.addBinary()
                if above is not None:
                    model.addConstr(used <= above)
            above = levels[level][key]
    model.addConstr(sum(rooms[3][key] * used for key, used in levels[3].items()) >= wanted)
    totals = [sum(domains.values()) for domains in levels]
    totals += [sum(rooms[n][key] * used for key, used in levels[n].items()) for n in range(4)]
    found: list[int] = []
    for total in totals:
        model.minimize(total)
        found.append(round(model.getObjectiveValue()))
        model.addConstr(total <= found[-1] + 0.01)
    return tuple(found[:4]), tuple(found[4:])


@pytest.mark.parametrize("slots", [1, 3, 8])
@pytest.mark.parametrize("seed", range(4))
def test_domains_and_leftover_at_each_level_are_highs_s(seed: int, slots: int) -> None:
    dice = random.Random(100 * seed + slots)
    snapshot = Snapshot.build(cluster(dice, dice.randint(150, 400), slots), [])
    room = sum(state.free["cpu"] // 1000 for state in snapshot.nodes.values())
    wanted = dice.randint(room // 20, room * 2 // 3)
    found = place(gang_of(wanted), snapshot)
    assert isinstance(found, Assignment)
    assert found.proven
    assert (found.objective.domains, found.objective.leftover) == least(snapshot, wanted)


@pytest.mark.parametrize(("slots", "count", "part"), [(100, 1200, 2), (30, 1200, 3), (8, 1000, 2)])
def test_identical_pods_are_proven_where_a_search_needs_millions_of_steps(
    slots: int, count: int, part: int
) -> None:
    dice = random.Random(1)
    nodes: list[Node] = []
    block = 0
    while len(nodes) < count:
        for rack in range(dice.randint(4, 8)):
            for host in range(dice.randint(4, 10)):
                place_of_node = (f"b{block}", f"r{rack}", f"h{host // 2}")
                nodes.append(node(f"n{len(nodes)}", place_of_node, dice.randint(0, slots)))
        block += 1
    snapshot = Snapshot.build(nodes, [])
    wanted = sum(state.free["cpu"] // 1000 for state in snapshot.nodes.values()) // part
    found = place(gang_of(wanted), snapshot)
    assert isinstance(found, Assignment)
    assert found.proven
    assert (found.objective.domains, found.objective.leftover) == least(snapshot, wanted)
