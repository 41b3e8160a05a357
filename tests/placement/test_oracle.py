"""The solver against HiGHS, an independent exact solver, on clusters of hundreds of nodes."""

import random
from collections.abc import Iterable
from typing import Any, cast

import highspy
import pytest

from hack.comparing.clusters import Spot, fragmented
from tests.placement.small import gang_of, node
from webhook.placement import Assignment, NodeInfo, Snapshot, place

Place = tuple[str, ...]


def nodes_of(spots: Iterable[Spot]) -> list[NodeInfo]:
    """Two nodes a host."""
    return [
        node(f"n{number}", (f"b{spot.block}", f"r{spot.subblock}", f"h{spot.number // 2}"), spot.free)
        for number, spot in enumerate(spots)
    ]


def least(snapshot: Snapshot, wanted: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Domains used at each level, then leftover at each: the least, with those before held at theirs."""
    model: Any = cast(Any, highspy).Highs()
    model.silent()
    model.setOptionValue("mip_rel_gap", 0.0)
    model.setOptionValue("mip_abs_gap", 0.9)
    levels: list[dict[Place, Any]] = [{}, {}, {}, {}]
    slots_at: list[dict[Place, int]] = [{}, {}, {}, {}]
    for state in snapshot.nodes.values():
        slots = state.free["cpu"] // 1000
        if not slots or state.path is None:
            continue
        above: Any = None
        for level in range(4):
            key = (*state.path, state.name)[: level + 2]
            slots_at[level][key] = slots_at[level].get(key, 0) + slots
            if key not in levels[level]:
                used = levels[level][key] = model.addBinary()
                if above is not None:
                    model.addConstr(used <= above)
            above = levels[level][key]
    model.addConstr(sum(slots_at[3][key] * used for key, used in levels[3].items()) >= wanted)
    totals = [sum(domains.values()) for domains in levels]
    totals += [sum(slots_at[n][key] * used for key, used in levels[n].items()) for n in reversed(range(4))]
    found: list[int] = []
    for total in totals:
        model.minimize(total)
        found.append(round(model.getObjectiveValue()))
        model.addConstr(total <= found[-1] + 0.01)
    return tuple(found[:4]), tuple(found[4:])


@pytest.mark.promise("I19")
@pytest.mark.parametrize("slots", [1, 3, 8])
@pytest.mark.parametrize("seed", range(2))
def test_domains_and_leftover_at_each_level_are_highs_s(seed: int, slots: int) -> None:
    dice = random.Random(100 * seed + slots)
    spots = fragmented(dice, dice.randint(150, 400), slots, subblocks=(2, 5), nodes=(4, 12), whole=0.7)
    snapshot = Snapshot.build(nodes_of(spots), [])
    capacity = sum(state.free["cpu"] // 1000 for state in snapshot.nodes.values())
    wanted = dice.randint(capacity // 20, capacity * 2 // 3)
    found = place(gang_of(wanted), snapshot)
    assert isinstance(found, Assignment)
    assert found.proven
    assert (found.objective.domains, found.objective.leftover) == least(snapshot, wanted)


@pytest.mark.parametrize(("slots", "count", "part"), [(100, 500, 2), (8, 500, 2)])
def test_identical_pods_are_proven_where_a_search_needs_millions_of_steps(
    slots: int, count: int, part: int
) -> None:
    spots = fragmented(random.Random(1), count, slots, subblocks=(4, 8), nodes=(4, 10), whole=0.0)
    snapshot = Snapshot.build(nodes_of(spots), [])
    wanted = sum(state.free["cpu"] // 1000 for state in snapshot.nodes.values()) // part
    found = place(gang_of(wanted), snapshot)
    assert isinstance(found, Assignment)
    assert found.proven
    assert (found.objective.domains, found.objective.leftover) == least(snapshot, wanted)
