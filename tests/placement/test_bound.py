"""Whatever is asked, an answer takes no more than its bound of steps, and says what it does not prove."""

import random

import pytest

from labeler.contract import keys
from webhook.placement import (
    Anchor,
    Assignment,
    Budget,
    Card,
    CardWish,
    Gang,
    Member,
    NodeInfo,
    Options,
    PlacementError,
    PodClass,
    Slice,
    Snapshot,
    Usage,
    check,
    place,
    vector,
    victims,
)

BOUND = 100_000
PLUGIN = "gpu.intel.com/i915"


def cards(dice: random.Random) -> tuple[Card, ...]:
    count = dice.choice((2, 4, 8))
    return tuple(
        Card(
            f"card{number}",
            {PLUGIN: 10, "m": dice.choice((997, 1000))},
            dice.choice((0, 2, 4)),
            numa=number % 2,
            links=((0, f"card{(number + 1) % count}", 1),) if dice.random() < 0.7 else (),
        )
        for number in range(count)
    )


def hostile_cluster(dice: random.Random, carded: bool) -> Snapshot:
    made, usage = [], []
    for number in range(dice.choice((4, 20, 100, 300))):
        place_labels = (f"b{number // 100}", f"r{number // 10}", f"h{number // 2}")
        amounts = {"cpu": dice.choice((8000, 9973, 96000)), "memory": dice.choice((64, 61, 97)), "pods": 110}
        amounts |= {"gpu": dice.choice((0, 8, 7)), PLUGIN: 80, "m": 8000}
        labels = dict(zip(keys.GCE_TOPOLOGY, place_labels, strict=True))
        node = NodeInfo(f"n{number}", labels, allocatable=amounts, cards=cards(dice) if carded else ())
        made.append(node)
        if dice.random() < 0.5:
            taken = {c.name: {PLUGIN: dice.randint(0, 9), "m": dice.randint(0, 900)} for c in node.cards}
            usage.append(
                (node.name, Usage({"cpu": dice.randint(0, 8000), "pods": 1}, taken, name=f"u{number}"))
            )
    return Snapshot.build(made, usage)


def hostile_kind(dice: random.Random, carded: bool) -> PodClass:
    """Coprime sizes, cards with links, tiles and NUMA nodes."""
    amounts = {"cpu": dice.choice((997, 1000, 3001, 100)), "memory": dice.choice((1, 3, 7, 0)), "pods": 1}
    wishes = tuple(
        CardWish(
            dice.choice((1, 1, 2)),
            ((PLUGIN, dice.choice((1, 3, 4))), ("m", dice.choice((97, 101, 331, 450)))),
            dice.choice((0, 0, 1)),
        )
        for _ in range(dice.choice((1, 2, 3, 5)) if carded and dice.random() < 0.8 else 0)
    )
    single_numa, linked = dice.random() < 0.3, dice.random() < 0.2
    requests = vector(amounts | {"gpu": dice.choice((0, 1, 3))})
    return PodClass(requests, cards=wishes, single_numa=single_numa, linked=linked)


def hostile_gang(dice: random.Random, snapshot: Snapshot, carded: bool) -> Gang:
    kinds = [hostile_kind(dice, carded) for _ in range(dice.choice((1, 2, 3, 6, 12, 40)))]
    size = dice.choice((5, 20, 60, 200))
    members = (
        Member(f"p{n}", n, dice.choice(kinds) if dice.random() < 0.7 else kinds[0]) for n in range(size)
    )
    level, number = dice.choice(("block", "subblock", "host")), dice.choice((2, 3, 7))
    slices = (Slice(level, number),) if dice.random() < 0.2 else ()
    ranks = [None if slices else dice.randint(0, size) for _ in range(20)]  # else they would break slices
    anchors = [Anchor(dice.choice(sorted(snapshot.nodes)), rank) for rank in ranks]
    return Gang(
        "g",
        tuple(members),
        required_level=dice.choice((None, None, "block", "subblock")),
        slices=slices,
        anchors=tuple(anchors) if dice.random() < 0.4 else (),
    )


@pytest.mark.parametrize("seed", range(60))
def test_an_answer_takes_at_most_twice_its_bound_and_says_what_it_does_not_prove(seed: int) -> None:
    dice = random.Random(seed)
    carded = dice.random() < 0.5
    snapshot = hostile_cluster(dice, carded)
    asked, budget = hostile_gang(dice, snapshot, carded), Budget(10**9)
    try:
        found = place(asked, snapshot, Options(bound=BOUND), budget)
    except PlacementError:
        return
    assert budget.spent <= 2 * BOUND + LAST_LOOK
    if isinstance(found, Assignment):
        assert check(found, asked, snapshot) == []
    elif not found.proven:
        assert "search steps" in found.sentence or "within the bound" in found.sentence


LAST_LOOK = 1_000_000
"""One question about the cards of one node is answered even if the steps end meanwhile."""


def test_a_question_takes_the_same_steps_each_time() -> None:
    dice = random.Random(3)
    snapshot = hostile_cluster(dice, carded=True)
    asked = hostile_gang(dice, snapshot, carded=True)
    spent = []
    for _ in range(2):
        budget = Budget(10**9)
        place(asked, snapshot, Options(bound=BOUND), budget)
        spent.append(budget.spent)
    assert spent[0] == spent[1]


def test_victims_that_are_not_found_in_time_are_not_said_to_be_none() -> None:
    nodes = [NodeInfo(f"n{number}", allocatable={"gpu": 8}) for number in range(4)]
    usage = [(node.name, Usage({"gpu": 8}, name=f"u-{node.name}")) for node in nodes]
    asked = Gang("g", tuple(Member(f"p{n}", n, PodClass((("gpu", 5 + n % 2),))) for n in range(4)))
    budget = Budget(3)
    assert victims.find(asked, Snapshot.build(nodes, usage), Options(), lambda use: True, budget) is None
    assert budget.exhausted
    plenty = Budget(10**7)
    found = victims.find(asked, Snapshot.build(nodes, usage), Options(), lambda use: True, plenty)
    assert found is not None
    assert len(found.names) == 4
    assert not plenty.exhausted
