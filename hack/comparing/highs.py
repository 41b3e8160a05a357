"""HiGHS, an exact solver of integer programs, on what placement is asked: the fewest domains."""

import time
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import highspy

Place = tuple[str, ...]


class Leaf(NamedTuple):
    """A node: its place from block to host, and how many pods it takes."""

    place: Place
    slots: int


class Fewest(NamedTuple):
    """Blocks, subblocks and nodes: the least of each with those before held at theirs. proven: whether all
    were; what was not reached in time is missing.
    """

    domains: tuple[int, ...]
    proven: bool


def _model(seconds: float) -> Any:
    model: Any = cast(Any, highspy).Highs()
    model.silent()
    for option, value in (("mip_rel_gap", 0.0), ("mip_abs_gap", 0.9), ("threads", 1), ("random_seed", 1)):
        model.setOptionValue(option, value)
    model.setOptionValue("time_limit", seconds)
    return model


def fewest_domains(
    leaves: Sequence[Leaf],
    wanted: int,
    seconds: float,
    *,
    leader: int = 0,
    slices: int = 1,
    most: int = 0,
    paid: frozenset[Place] = frozenset(),
) -> Fewest:
    """The fewest domains for so many workers of one slot, each node alone on its host.

    Nodes of a subblock with as many free slots are one variable. leader: slots of one more pod; slices:
    workers that share a subblock; most: workers in a block, 0 for any number; paid: domains that cost
    nothing.
    """
    model = _model(seconds)
    kinds = Counter((leaf.place[:2], leaf.slots) for leaf in leaves if leaf.slots)
    free = Counter((leaf.place[:2], leaf.slots) for leaf in leaves if leaf.slots and leaf.place in paid)
    blocks: dict[Place, Any] = {}
    subblocks: dict[Place, Any] = {}
    workers: dict[Place, Any] = {}
    slots: dict[Place, list[Any]] = {}
    nodes, leads = [], []
    for (place, slots_of_node), count in kinds.items():
        if place not in subblocks:
            if place[:1] not in blocks:
                blocks[place[:1]] = model.addBinary()
            subblocks[place] = model.addBinary()
            model.addConstr(subblocks[place] <= blocks[place[:1]])
            workers[place] = slices * model.addIntegral(0, wanted // slices)
            slots[place] = []
        used = model.addIntegral(0, count)
        model.addConstr(used <= count * subblocks[place])
        if known := free.get((place, slots_of_node)):
            beyond = model.addIntegral(0, count)
            model.addConstr(beyond >= used - known)
            nodes.append(beyond)
        else:
            nodes.append(used)
        taken = slots_of_node * used
        if leader and slots_of_node >= leader:
            leads.append(model.addBinary())
            model.addConstr(leads[-1] <= used)
            taken = taken - leader * leads[-1]
        slots[place].append(taken)
    for place, of_kind in slots.items():
        model.addConstr(workers[place] <= sum(of_kind))
    model.addConstr(sum(workers.values()) == wanted)
    if leader:
        model.addConstr(sum(leads) == 1)
    for block in blocks if most else ():
        model.addConstr(sum(slots for place, slots in workers.items() if place[:1] == block) <= most)
    levels = [
        sum(used for place, used in level.items() if place not in paid) for level in (blocks, subblocks)
    ]
    return _lexicographic(model, [*levels, sum(nodes)], seconds)


def _lexicographic(model: Any, totals: Sequence[Any], seconds: float) -> Fewest:
    began = time.monotonic()
    found: list[int] = []
    for total in totals:
        model.setOptionValue("time_limit", max(0.1, seconds - (time.monotonic() - began)))
        model.minimize(total)
        if model.getModelStatus() != highspy.HighsModelStatus.kOptimal:
            return Fewest(tuple(found), False)
        found.append(round(model.getObjectiveValue()))
        model.addConstr(total <= found[-1] + 0.01)
    return Fewest(tuple(found), True)
