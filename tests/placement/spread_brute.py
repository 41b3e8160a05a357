"""The best spread of identical pods by trying everything."""

from collections.abc import Iterator
from itertools import product

from tests.placement.brute import Instance, domain, slots_of
from webhook.placement import (
    Gang,
    Objective,
    Snapshot,
)


def squares(gang: Gang, snapshot: Snapshot, on: dict[str, int]) -> int:
    """The sum of the squares of what the domains of the level hold, beyond what they hold already."""
    assert gang.spread is not None
    level = snapshot.topology.level(gang.spread.level)
    before: dict[tuple[str, ...], int] = {}
    for name in (*(anchor.node for anchor in gang.anchors), *gang.spread.peers):
        key = domain(snapshot.nodes[name], level)
        before[key] = before.get(key, 0) + 1
    after = dict(before)
    for name, count in on.items():
        key = domain(snapshot.nodes[name], level)
        after[key] = after.get(key, 0) + count
    if gang.spread.most is not None:
        grown = (key for key, count in after.items() if count > before.get(key, 0))
        return 1 << 40 if any(after[key] > gang.spread.most for key in grown) else 0
    return sum(count**2 for count in after.values()) - sum(count**2 for count in before.values())


def distributions(gang: Gang, snapshot: Snapshot) -> Iterator[dict[str, int]]:
    """Every way to lay the pods onto nodes that may take them, but for the spread."""
    instance = Instance(gang, snapshot)
    assert gang.spread is not None
    labelled = snapshot.topology.level(gang.spread.level) < 3
    states = [s for s in instance.states if s.path is not None or not labelled]
    kind, wanted = instance.kinds[0]
    for amounts in product(*(range(min(wanted, slots_of(kind, state)) + 1) for state in states)):
        if sum(amounts) != wanted:
            continue
        on = {state.name: count for state, count in zip(states, amounts, strict=True) if count}
        if instance.level is not None:
            used = [*(snapshot.nodes[name] for name in on), *instance.anchors]
            if len({domain(state, instance.level) for state in used}) > 1:
                continue
        yield on


def best(gang: Gang, snapshot: Snapshot) -> tuple[int, Objective] | None:
    instance = Instance(gang, snapshot)
    assert gang.spread is not None
    if snapshot.topology.level(gang.spread.level) < 3:  # the others are of no use
        instance.states = [state for state in instance.states if state.path is not None]
        instance.capacity = [{} for _ in range(4)]
        for state in instance.states:
            for at, capacity in enumerate(instance.capacity):
                key = domain(state, at)
                capacity[key] = capacity.get(key, 0) + slots_of(instance.reference, state)
    found = [
        (value, instance.value(tuple(snapshot.nodes[name] for name in on)))
        for on in distributions(gang, snapshot)
        if (value := squares(gang, snapshot, on)) < 1 << 40
    ]
    return min(found, default=None)
