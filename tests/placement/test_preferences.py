"""Preferences decide between placements that are equal else, as kube-scheduler scores nodes."""

import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

import pytest

from tests.placement.brute import Instance
from tests.placement.small import node, pod_class
from webhook.placement import (
    Assignment,
    Gang,
    Member,
    NodeInfo,
    PodClass,
    Requirement,
    Rules,
    Snapshot,
    Taint,
    Term,
    Toleration,
    place,
)
from webhook.placement.model import PodCounts, Preferences

SOFT = Taint("old", "", "PreferNoSchedule")
LIKED = Term((Requirement("disk", "In", ("ssd",)),))


def labelled(name: str, place: tuple[str, ...], *taints: Taint, **labels: str) -> NodeInfo:
    made = node(name, place, 2)
    return replace(made, labels={**made.labels, **labels}, taints=taints)


def chosen(nodes: Sequence[NodeInfo], kind: PodClass, count: int = 1) -> list[str]:
    members = tuple(Member(f"p{rank}", rank, kind) for rank in range(count))
    found = place(Gang("g", members), Snapshot.build(nodes, []))
    assert isinstance(found, Assignment)
    assert found.proven
    return sorted(set(found.nodes.values()))


def four(**of: Any) -> list[NodeInfo]:
    """Nodes "n0" to "n3", each a host of one subblock; of: taints or labels by name."""
    return [
        replace(each, **of.get(each.name, {}))
        for each in (labelled(f"n{number}", ("b", "s", f"h{number}")) for number in range(4))
    ]


def with_label(number: int, **labels: str) -> dict[str, Any]:
    made = labelled(f"n{number}", ("b", "s", f"h{number}"))
    return {"labels": {**made.labels, **labels}}


@pytest.mark.promise("R118")
def test_a_node_that_is_only_to_be_avoided_is_taken_last() -> None:
    nodes = four(n0={"taints": (SOFT,)}, n1={"taints": (SOFT,)})
    assert chosen(nodes, pod_class()) == ["n2"]
    assert chosen(nodes, pod_class(2), 3) == ["n0", "n2", "n3"]


def test_who_tolerates_it_does_not_avoid_it() -> None:
    kind = replace(pod_class(), rules=Rules(tolerations=(Toleration("old", "Exists"),)))
    assert chosen(four(n0={"taints": (SOFT,)}), kind) == ["n0"]


@pytest.mark.promise("R118")
def test_the_heavier_preference_for_nodes_wins() -> None:
    far = Term((Requirement("disk", "In", ("hdd",)),))
    kind = replace(pod_class(), preferred=Preferences(((10, LIKED), (90, far))))
    nodes = four(n1=with_label(1, disk="ssd"), n3=with_label(3, disk="hdd"))
    assert chosen(nodes, kind) == ["n3"]


@pytest.mark.promise("R118", "D16")
def test_the_network_comes_before_what_pods_prefer() -> None:
    kind = replace(pod_class(2), preferred=Preferences(((100, LIKED),)))
    near = [labelled(f"a{n}", ("b0", "s0", f"h{n}")) for n in range(2)]
    far = [labelled(f"c{n}", (f"b{n + 1}", "s", f"c{n}"), disk="ssd") for n in range(2)]
    assert chosen([*near, *far], kind, 2) == ["a0", "a1"]


@pytest.mark.promise("R118")
def test_pods_that_stand_draw_and_repel_where_nothing_else_decides() -> None:
    nodes = [labelled(f"n{n}", (f"b{n}", "s", f"h{n}"), zone=f"z{n}") for n in range(3)]
    crowd = (("z0", 4), ("z1", 1))
    assert chosen(nodes, replace(pod_class(), preferred=Preferences(spread=(PodCounts("zone", crowd),)))) == [
        "n2"
    ]
    liked = (("z0", 4), ("z1", 9))
    assert chosen(nodes, replace(pod_class(), preferred=Preferences(near=(PodCounts("zone", liked),)))) == [
        "n1"
    ]
    feared = (("z0", -4), ("z1", -9))
    assert chosen(nodes, replace(pod_class(), preferred=Preferences(near=(PodCounts("zone", feared),)))) == [
        "n2"
    ]


def test_an_answer_that_the_block_remembers_is_not_given_to_other_preferences() -> None:
    nodes = four(n1=with_label(1, disk="ssd"), n2={"taints": (SOFT,)})
    snapshot = Snapshot.build(nodes, [])
    preferences = Preferences(((50, LIKED),)), Preferences(), Preferences(((50, LIKED),))
    found = [
        place(Gang("g", (Member("p", 0, replace(pod_class(), preferred=each)),)), snapshot)
        for each in preferences
    ]
    assert [each.nodes["p"] for each in found if isinstance(each, Assignment)] == ["n1", "n0", "n1"]


def test_pods_that_differ_in_their_preferences_alone_are_placed_as_identical() -> None:
    kinds = [replace(pod_class(2), preferred=Preferences(((n, LIKED),))) for n in range(1, 4)]
    members = tuple(Member(f"p{rank}", rank, kind) for rank, kind in enumerate(kinds))
    found = place(Gang("g", members), Snapshot.build(four(n3=with_label(3, disk="ssd")), []))
    assert isinstance(found, Assignment)
    assert found.proven
    assert "n3" in found.nodes.values()


@pytest.mark.promise("R118")
@pytest.mark.parametrize(("small", "large", "liked"), [(4, 1, "n6"), (2, 3, "n7")])
def test_of_different_pods_what_the_most_frequent_prefer_counts(small: int, large: int, liked: str) -> None:
    hdd = Term((Requirement("disk", "In", ("hdd",)),))
    kinds = [
        *[replace(pod_class(1), preferred=Preferences(((10, LIKED),)))] * small,
        *[replace(pod_class(2), preferred=Preferences(((10, hdd),)))] * large,
    ]
    made = [labelled(f"n{n}", ("b", "s", f"h{n}"), disk={6: "ssd", 7: "hdd"}.get(n, "")) for n in range(8)]
    members = tuple(Member(f"p{rank}", rank, kind) for rank, kind in enumerate(kinds))
    found = place(Gang("g", members), Snapshot.build(made, []))
    assert isinstance(found, Assignment)
    assert {"n6", "n7"} & set(found.nodes.values()) == {liked}


# --- exactness ------------------------------------------------------------------------------------


def penalty(each: NodeInfo, nodes: Sequence[NodeInfo], kind: PodClass) -> int:
    """What kube-scheduler's scores of a node lack, written down again."""

    def soft(one: NodeInfo) -> int:
        return sum(taint.effect == "PreferNoSchedule" for taint in one.taints)

    def liked(one: NodeInfo) -> int:
        return sum(
            weight
            for weight, term in kind.preferred.terms
            if all(one.labels.get(preferred.key) in preferred.values for preferred in term.expressions)
        )

    worst, best = max(map(soft, nodes)), max(map(liked, nodes))
    avoided = 3 * 100 * soft(each) // worst if worst else 0
    return avoided + (2 * (100 - 100 * liked(each) // best) if best else 0)


@pytest.mark.promise("D16")
@pytest.mark.parametrize("seed", range(12))
def test_nothing_that_is_as_good_otherwise_would_be_liked_more(seed: int) -> None:
    dice = random.Random(seed)
    for _ in range(20):
        nodes = []
        for number in range(dice.randint(2, 9)):
            where = f"b{dice.randint(0, 1)}", f"s{dice.randint(0, 1)}", f"h{dice.randint(0, 3)}"
            made = labelled(f"n{number}", where, *[SOFT] * dice.choice((0, 0, 1)))
            disk = {"disk": dice.choice(("ssd", "hdd"))} if dice.random() < 0.7 else {}
            allocatable = {**made.allocatable, "cpu": 1000 * dice.choice((0, 1, 1, 2))}
            nodes.append(replace(made, labels={**made.labels, **disk}, allocatable=allocatable))
        hdd = Term((Requirement("disk", "In", ("hdd",)),))
        preferences = tuple(
            (dice.choice((1, 10, 50)), term) for term in dice.sample((LIKED, hdd), dice.choice((1, 2)))
        )
        kind = replace(pod_class(), preferred=Preferences(preferences))
        count = dice.randint(1, 4)
        gang = Gang("g", tuple(Member(f"p{rank}", rank, kind) for rank in range(count)))
        snapshot = Snapshot.build(nodes, [])
        found = place(gang, snapshot)
        if not isinstance(found, Assignment):
            continue
        instance = Instance(gang, snapshot)
        values = []
        for size in range(1, count + 1):
            for used in combinations(instance.states, size):
                slots = [state.free["cpu"] // 1000 for state in used]
                if min(slots) > 0 and sum(slots) >= count:
                    unliked = sum(penalty(state.node, nodes, kind) for state in used)
                    values.append(replace(instance.value(used), preference_penalty=unliked))
        assert found.objective == min(values)
        assert found.proven
