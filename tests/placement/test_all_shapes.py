"""Gangs of every shape on small clusters, beside trying everything: no false proof, acceptance or refusal."""

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Final

import pytest

from tests.placement import brute, spread_brute
from tests.placement.small import FAMILY, pod_class, seeds, taken
from webhook.placement import (
    Anchor,
    Assignment,
    Card,
    CardRequest,
    Gang,
    Member,
    NodeInfo,
    NoFit,
    Objective,
    PodClass,
    Rules,
    Slice,
    Snapshot,
    Spread,
    Usage,
    check,
    place,
    vector,
)

Dice = random.Random
M: Final = "m"
POOL: Final = ("pool", "x")


def cluster(dice: Dice, *, with_cards: bool) -> list[NodeInfo]:
    """Up to 12 nodes in three blocks; a host has one node or two, and one node in ten has no place."""
    made: list[NodeInfo] = []
    for _ in range(dice.randint(3, 6 if with_cards else 12)):
        number = len(made)
        block = dice.randint(0, 2)
        place = (f"b{block}", f"s{block}{dice.randint(0, 1)}", f"h{block}{number // 2}")
        labels = dict(zip(FAMILY, place, strict=True)) if dice.random() < 0.9 else {}
        labels |= dict([POOL]) if dice.random() < 0.3 else {}
        amounts = {"cpu": 1000 * dice.randint(0, 8), "memory": dice.randint(1, 12), "pods": 110}
        cards = linked_cards(dice) if with_cards else ()
        if cards:
            amounts |= {M: 10 * len(cards)}
        made.append(NodeInfo(f"n{number}", labels, allocatable=amounts, cards=cards))
    return made


def linked_cards(dice: Dice) -> tuple[Card, ...]:
    """Up to four cards, each linked to most of the others over one of its two tiles."""
    count = dice.choice((0, 2, 4, 4))
    links = [
        tuple(
            (dice.randint(0, 1), f"card{other}", dice.randint(0, 1))
            for other in range(number + 1, count)
            if dice.random() < 0.7
        )
        for number in range(count)
    ]
    return tuple(Card(f"card{n}", {M: 10}, 2, numa=n // 2, links=each) for n, each in enumerate(links))


def on_cards(dice: Dice, pod: PodClass) -> PodClass:
    """The same pod with one container on one, two or four cards, or with two on shares of cards."""
    drawn = CardRequest(dice.choice((1, 1, 1, 2, 2, 4)), vector({M: dice.choice((3, 3, 5, 10))}))
    requests = (drawn,) if drawn.count > 1 or dice.random() < 0.6 else (drawn, CardRequest(1, vector({M: 3})))
    amount = sum(request.count * dict(request.per_card)[M] for request in requests)
    return replace(
        pod,
        requests=vector(dict(pod.requests) | {M: amount}),
        cards=requests,
        same_card=(0, 1) if len(requests) == 2 and dice.random() < 0.5 else (),
        single_numa=drawn.count < 4 and dice.random() < 0.3,
        linked=drawn.count > 1 and dice.random() < 0.6,
    )


def classes(dice: Dice, count: int, *, with_cards: bool = False) -> list[PodClass]:
    sizes = dice.sample([(1, 0), (1, 1), (2, 1), (1, 3), (3, 2), (2, 4), (4, 0)], count)
    found = []
    for cpu, memory in sizes:
        pod = pod_class(cpu, memory=memory)
        if with_cards and dice.random() < 0.8:
            pod = on_cards(dice, pod)
        if dice.random() < 0.15:
            pod = replace(pod, rules=Rules(selector=(POOL,)))
        found.append(pod)
    return found


def members(pods: list[PodClass], counts: list[int]) -> tuple[Member, ...]:
    kinds = [pod for pod, count in zip(pods, counts, strict=True) for _ in range(count)]
    return tuple(Member(f"p{rank}", rank, kind) for rank, kind in enumerate(kinds))


def homogeneous(dice: Dice) -> Gang:
    return Gang("g", members(classes(dice, 1), [dice.randint(1, 7)]))


def leader(dice: Dice) -> Gang:
    return Gang("g", members(classes(dice, 2), [dice.randint(2, 6), 1]))


def slices(dice: Dice) -> Gang:
    size = dice.choice((2, 2, 3))
    layers: tuple[Slice, ...] = (Slice(dice.choice(("block", "subblock", "host")), size),)
    if size == 2 and dice.random() < 0.3:
        layers, size = (Slice("block", 4), Slice("subblock", 2)), 4
    count, led = size * dice.randint(1, 2), dice.random() < 0.5
    return Gang("g", members(classes(dice, 1 + led), [count, 1][: 1 + led]), slices=layers)


def heterogeneous(dice: Dice) -> Gang:
    counts = dice.choice(([3, 3], [4, 2], [2, 2, 2], [3, 2, 1], [4, 1, 1], [2, 2, 1, 1], [2, 1, 1, 1, 1]))
    return Gang("g", members(classes(dice, len(counts)), counts))


def with_cards(dice: Dice) -> Gang:
    counts = dice.choice(([4], [2], [3, 1], [2, 2], [1, 1, 1]))
    return Gang("g", members(classes(dice, len(counts), with_cards=True), counts))


def spread(dice: Dice) -> Gang:
    drawn = Spread(dice.choice(("block", "subblock", "host")), dice.choice((None, None, 1, 2)))
    return Gang("g", members(classes(dice, 1), [dice.randint(1, 5)]), spread=drawn)


SHAPES: Final[dict[str, Callable[[Dice], Gang]]] = {
    "homogeneous": homogeneous,
    "leader": leader,
    "slices": slices,
    "heterogeneous": heterogeneous,
    "with cards": with_cards,
    "spread": spread,
}


def drawn(shape: str, seed: int) -> tuple[Gang, Snapshot]:
    """A gang of a shape, in a third of the cases beside placed pods of its own, and a partly used cluster."""
    dice = Dice(f"{shape}/{seed}")
    made = cluster(dice, with_cards=shape == "with cards")
    gang = SHAPES[shape](dice)
    names = [node.name for node in made]
    if dice.random() < 0.3 and not gang.slices:
        gang = replace(gang, anchors=tuple(Anchor(dice.choice(names)) for _ in range(dice.randint(1, 2))))
    if dice.random() < 0.4 and gang.spread is None:
        top = [None, "block", "subblock", "host", "node"] if not gang.slices else ["block"]
        gang = replace(gang, required_level=dice.choice(top))
    if gang.slices and any(each.level == "block" for each in gang.slices) and dice.random() < 0.5:
        gang = replace(gang, required_level=None)
    if dice.random() < 0.2:
        gang = replace(gang, excluded_nodes=frozenset(dice.sample(names, 1)))
    used = [
        (node.name, usage_of(dice, node)) for node in made if dice.random() < (0.6 if node.cards else 0.2)
    ]
    return gang, Snapshot.build(made, used)


def usage_of(dice: Dice, node: NodeInfo) -> Usage:
    """Of a small pod, which has a share of a card and one of its tiles if the node has cards."""
    amounts = {"memory": 1, "pods": 1}
    if not node.cards:
        return Usage(amounts)
    name = dice.choice(node.cards).name
    return Usage(amounts | {M: 3}, {name: {M: 3}}, {name: frozenset({dice.randint(0, 1)})})


def best(gang: Gang, snapshot: Snapshot) -> tuple[int, Objective] | None:
    """How uneven a spread must be, and the objective; None where the gang has no place."""
    if gang.spread is not None:
        return spread_brute.best(gang, snapshot)
    found = brute.best(gang, snapshot)
    return None if found is None else (0, found)


def value(gang: Gang, snapshot: Snapshot, found: Assignment) -> tuple[int, Objective]:
    uneven = 0 if gang.spread is None else spread_brute.squares(gang, snapshot, taken(found.nodes))
    return uneven, found.objective


@pytest.mark.promise("R3", "D16", "I19", "I21")
@pytest.mark.parametrize("seed", seeds(8))
@pytest.mark.parametrize("shape", SHAPES)
def test_a_gang_is_placed_as_well_as_by_trying_everything_down_to_the_headroom(shape: str, seed: int) -> None:
    for number in range(20):
        gang, snapshot = drawn(shape, 20 * seed + number)
        expected, found = best(gang, snapshot), place(gang, snapshot)
        assert found.proven
        if isinstance(found, NoFit):
            assert expected is None, f"missed {expected}: {found.sentence}"
            continue
        assert check(found, gang, snapshot) == []
        assert value(gang, snapshot, found) == expected
