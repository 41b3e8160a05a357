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


def fewest_domains(snapshot: Snapshot, wanted: int) -> tuple[int, ...]:
    """Blocks, subblocks, hosts and nodes: each level's minimum, with those above held at theirs."""
    model: Any = cast(Any, highspy).Highs()
    model.silent()
    model.setOptionValue("mip_rel_gap", 0.0)
    model.setOptionValue("mip_abs_gap", 0.9)
    levels: list[dict[Place, Any]] = [{}, {}, {}, {}]
    held: Any = 0
    for state in snapshot.nodes.values():
        room = state.free["cpu"] // 1000
        if not room or state.path is None:
            continue
        above: Any = None
        for level in range(4):
            key = (*state.path, state.name)[: level + 2]
            if key not in levels[level]:
                used = levels[level][key] = model.addBinary()
                if above is not None:
                    model.addConstr(used <= above)
            above = levels[level][key]
        held = held + room * above
    model.addConstr(held >= wanted)
    fewest: list[int] = []
    for domains in levels:
        total = sum(domains.values())
        model.minimize(total)
        fewest.append(round(model.getObjectiveValue()))
        model.addConstr(total <= fewest[-1] + 0.01)
    return tuple(fewest)


@pytest.mark.parametrize("slots", [1, 3, 8])
@pytest.mark.parametrize("seed", range(4))
def test_the_number_of_domains_at_each_level_is_highs_s(seed: int, slots: int) -> None:
    dice = random.Random(100 * seed + slots)
    snapshot = Snapshot.build(cluster(dice, dice.randint(150, 400), slots), [])
    room = sum(state.free["cpu"] // 1000 for state in snapshot.nodes.values())
    wanted = dice.randint(room // 20, room * 2 // 3)
    found = place(gang_of(wanted), snapshot)
    assert isinstance(found, Assignment)
    assert found.proven
    assert found.objective.domains == fewest_domains(snapshot, wanted)
