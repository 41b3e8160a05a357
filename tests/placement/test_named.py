"""Pods whose rules name their nodes are placed there, however many kinds of them there are."""

import random
from dataclasses import replace

import pytest

from hack.comparing.hostile_large import large_cluster, pinned_to
from labeler.contract import keys
from tests.placement.small import node, placed, pod_class
from webhook.placement import (
    Budget,
    Gang,
    Member,
    NodeInfo,
    NoFit,
    Options,
    PodClass,
    Requirement,
    Rules,
    Snapshot,
    Term,
    place,
)
from webhook.placement.eligibility import label_holds
from webhook.placement.names import natural
from webhook.placement.question import ask, named_nodes
from webhook.placement.tree import build


def rules(key: str, operator: str, *values: str, field: bool = False) -> Rules:
    requirement = (Requirement(key, operator, values),)
    return Rules(affinity=(Term(fields=requirement) if field else Term(expressions=requirement),))


BY_HOST = Rules(selector=((keys.HOSTNAME_LABEL, "h1"), ("pool", "a")))
PINNED = Term(fields=(Requirement("metadata.name", "In", ("n2",)),))
VOLUME = Rules(volumes=((Term(expressions=(Requirement(keys.HOSTNAME_LABEL, "In", ("h1", "h2")),)),),))


@pytest.mark.parametrize(
    ("asked", "names"),
    [
        (Rules(), None),
        (Rules(selector=(("pool", "a"),)), None),
        (BY_HOST, {"n1"}),
        (rules(keys.HOSTNAME_LABEL, "In", "h1", "h3", "gone"), {"n1", "n3"}),
        (rules(keys.HOSTNAME_LABEL, "NotIn", "h1"), None),
        (rules("metadata.name", "In", "n2", field=True), {"n2"}),
        (rules("metadata.name", "NotIn", "n2", field=True), None),
        (VOLUME, {"n1", "n2"}),
        (replace(VOLUME, selector=BY_HOST.selector), {"n1"}),
        (Rules(affinity=(PINNED, Term(expressions=(Requirement("zone", "Exists"),)))), None),
        (rules(keys.HOSTNAME_LABEL, "In", *(f"h{number}" for number in range(65))), None),
        (Rules(affinity=(PINNED,) * 65), None),
    ],
)
def test_the_nodes_that_rules_name_are_known_without_a_look_at_any(
    asked: Rules, names: set[str] | None
) -> None:
    nodes = [NodeInfo(f"n{number}", {keys.HOSTNAME_LABEL: f"h{number}"}) for number in range(4)]
    (found,) = named_nodes([PodClass((), rules=asked)], Snapshot.build(nodes, []))
    assert found == (None if names is None else frozenset(names))


@pytest.mark.parametrize("more", [1, 100_000])
@pytest.mark.parametrize("operator", ["In", "NotIn"])
def test_a_value_is_found_among_few_as_among_many(operator: str, more: int) -> None:
    wanted = Requirement("pool", operator, ("a", *map(str, range(more))))
    assert label_holds(wanted, {"pool": "a"}) == (operator == "In")
    assert label_holds(wanted, {"pool": "b"}) == (operator == "NotIn")
    assert wanted == Requirement("pool", operator, wanted.values)
    assert isinstance(wanted.among, tuple if more == 1 else frozenset), "each node would read all of them"


@pytest.mark.promise("S49")
@pytest.mark.parametrize("by_field", [True, False])
def test_four_hundred_pods_that_are_pinned_to_a_node_each_are_placed_and_proven(by_field: bool) -> None:
    made = [node(f"n{n}", (f"b{n // 400}", f"r{n // 20}", f"h{n}"), 8) for n in range(8000)]
    made = [replace(each, labels={**each.labels, keys.HOSTNAME_LABEL: each.name}) for each in made]
    members = tuple(
        Member(f"p{n}", n, replace(pod_class(), rules=pinned_to([f"n{n * 20}"], by_field=by_field)))
        for n in range(400)
    )
    budget = Budget(10**9)
    found = place(Gang("g", members), Snapshot.build(made, []), Options(), budget)
    assert not isinstance(found, NoFit)
    assert found.proven
    assert found.nodes == {f"p{n}": f"n{n * 20}" for n in range(400)}
    assert budget.spent < 100_000


def test_classes_that_are_pinned_to_other_blocks_add_no_steps_to_the_tree_of_a_block() -> None:
    made = [node(f"n{n}", (f"b{n // 40}", f"r{n // 2}", f"h{n}"), 8) for n in range(2000)]
    snapshot = Snapshot.build(made, [])
    free = [Member(f"w{n}", n, pod_class()) for n in range(2)]
    pinned = [
        Member(f"p{n}", n, replace(pod_class(), rules=pinned_to([f"n{n}"], by_field=True)))
        for n in range(2, 40)
    ]
    alone, beside = (
        build(ask(Gang("g", tuple(members)), snapshot, Options())[0], snapshot, Budget(10**9)).steps
        for members in (free, [*free, *pinned])
    )
    assert 0 < beside - alone < alone // 10


def test_a_pinned_pod_that_does_not_fit_on_its_node_is_proven_to_have_no_place() -> None:
    made = [node(f"n{n}", ("b", "r", f"h{n}"), 1) for n in range(3)]
    kinds = [
        replace(pod_class(cpu), rules=pinned_to([f"n{n}"], by_field=True)) for n, cpu in enumerate((1, 1, 2))
    ]
    asked = Gang("g", tuple(Member(f"p{n}", n, kind) for n, kind in enumerate(kinds)))
    found = place(asked, Snapshot.build(made, []))
    assert isinstance(found, NoFit)
    assert found.proven
    assert placed(replace(asked, members=asked.members[:2]), Snapshot.build(made, [])).proven


def test_capacities_for_pods_that_name_nodes_are_those_that_a_look_at_every_node_finds() -> None:
    dice = random.Random(7)
    snapshot = large_cluster(dice, 300)
    roomy = [name for name, state in snapshot.nodes.items() if state.free["nvidia.com/gpu"]]
    for _ in range(10):
        chosen = dice.sample(roomy, 3)
        named = pinned_to(chosen, by_field=False)
        # The same by a label that is of no node's name.
        others = {name: {"wanted": "yes"} if name in chosen else {} for name in snapshot.nodes}
        again = Snapshot.build(
            [replace(s.node, labels={**s.node.labels, **others[s.name]}) for s in snapshot.nodes.values()], []
        )
        kind = PodClass((("cpu", 1000), ("nvidia.com/gpu", 1), ("pods", 1)))
        one, other = (
            Gang("g", tuple(Member(f"p{n}", n, replace(kind, rules=of)) for n in range(2)))
            for of in (named, Rules(selector=(("wanted", "yes"),)))
        )
        assert placed(one, snapshot).nodes == placed(other, again).nodes


def test_a_name_sorts_by_its_numbers_and_any_name_sorts_in_short_time() -> None:
    assert sorted(["card10", "card2", "card1b", "card"], key=natural) == ["card", "card1b", "card2", "card10"]
    assert natural("9" * 5_000)
    assert natural("²١")
