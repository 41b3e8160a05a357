"""The checker names what is wrong with an assignment that breaks a rule."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.placement.small import gang_of, node, pod_class
from webhook.placement import (
    Anchor,
    Assignment,
    Card,
    CardRequest,
    CardShare,
    Gang,
    Member,
    Placed,
    Slice,
    Snapshot,
    Taint,
    check,
    place,
)

CARDS = tuple(Card(f"card{n}", {"share": 10}, tiles=2, numa=n) for n in range(2))
NODES = [
    replace(node("a", ("b1", "r", "a"), 2), cards=CARDS),
    node("b", ("b1", "r", "b"), 1),
    node("c", ("b2", "r", "c"), 4),
    replace(node("d", ("b1", "r", "d"), 9), taints=(Taint("no"),)),
]
SNAPSHOT = Snapshot.build(NODES, [])
GANG = gang_of(3, required_level="block")
ON_A = replace(pod_class(), cards=(CardRequest(1, (("share", 6),), 1),))
WITH_CARD = gang_of(1, ON_A)
SLICED = gang_of(4, slices=(Slice("block", 2),))


def moved(*nodes: str, gang: Gang = GANG) -> Assignment:
    found = place(gang, SNAPSHOT)
    assert isinstance(found, Assignment)
    placed = tuple(Placed(member.name, name) for member, name in zip(gang.members, nodes, strict=False))
    return replace(found, placed=placed)


def carded(*shares: CardShare) -> Assignment:
    found = place(WITH_CARD, SNAPSHOT)
    assert isinstance(found, Assignment)
    return replace(found, placed=(replace(found.placed[0], cards=(shares,)),))


CASES: list[tuple[str, Callable[[], Assignment], Gang, str]] = [
    ("a member left out", lambda: moved("c", "c"), GANG, "p-2 is not placed"),
    ("a foreign pod", lambda: moved("c", "c", "c"), gang_of(2), "p-2 is not a member of the gang"),
    ("an unknown node", lambda: moved("c", "c", "x"), GANG, "p-2: node x does not exist"),
    (
        "too much on a node",
        lambda: moved("b", "b", "b"),
        GANG,
        "b has 1000 of cpu free, but its pods ask for 3000",
    ),
    (
        "two blocks",
        lambda: moved("a", "b", "c"),
        GANG,
        "the gang is in 2 domains of the required level block",
    ),
    ("a taint", lambda: moved("d", "d", "d"), GANG, 'p-0 cannot run on d: taint "no:NoSchedule"'),
    (
        "an excluded node",
        lambda: moved("c", "c", "c"),
        replace(GANG, excluded_nodes=frozenset("c")),
        "node c is excluded",
    ),
    (
        "a slice apart",
        lambda: moved("a", "c", "c", "c", gang=SLICED),
        SLICED,
        "slice 0 of 2 is in 2 domains of level block",
    ),
    ("no card", lambda: carded(), WITH_CARD, "asks for 1 distinct cards and has []"),
    (
        "an unknown card",
        lambda: carded(CardShare("card9", (0,))),
        WITH_CARD,
        "card card9 of a is not allowed",
    ),
    ("no tile", lambda: carded(CardShare("card0")), WITH_CARD, "asks for 1 tiles of card0 and has ()"),
    (
        "a foreign tile",
        lambda: carded(CardShare("card0", (7,))),
        WITH_CARD,
        "tiles [7] of card0 are not free",
    ),
]


@pytest.mark.parametrize(("made", "gang", "words"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_a_broken_rule_is_named(made: Callable[[], Assignment], gang: Gang, words: str) -> None:
    problems = check(made(), gang, SNAPSHOT)
    assert any(words in problem for problem in problems), problems


def test_two_pods_on_one_card_that_holds_one_are_named() -> None:
    two = gang_of(2, ON_A)
    found = place(two, SNAPSHOT)
    assert isinstance(found, Assignment)
    same = tuple(
        replace(placed, cards=((CardShare("card0", (n,)),),)) for n, placed in enumerate(found.placed)
    )
    assert check(replace(found, placed=same), two, SNAPSHOT) == ["p-1 container 0: card card0 lacks 2 share"]


def test_slices_beside_placed_pods_without_ranks_are_runs_of_workers_as_in_a_new_gang() -> None:
    """One of another class has a rank between theirs."""
    nodes = [node("a", ("b1", "r", "a"), 4), node("c", ("b2", "r", "c"), 2)]
    ranks = {0: pod_class(), 1: pod_class(2), 2: pod_class(), 3: pod_class(), 4: pod_class()}
    members = tuple(Member(f"p{rank}", rank, kind) for rank, kind in ranks.items())
    asked = Gang("g", members, slices=(Slice("block", 2),), anchors=(Anchor("a"),))
    snapshot = Snapshot.build(nodes, [])
    found = place(asked, snapshot)
    assert isinstance(found, Assignment)
    assert check(found, asked, snapshot) == []
