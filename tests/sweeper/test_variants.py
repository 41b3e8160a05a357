"""Gangs of several variants: whatever helps a gang is looked for in each of them, not only in one."""

from collections.abc import Iterable
from typing import Any

import pytest

from labeler.contract import keys
from tests.sweeper.cluster import Nodes, Placing, divided, gpu_pod, places
from tests.sweeper.moves import Scattered, moved
from tests.sweeper.subblocks import subblocks
from webhook.configuration.settings import Settings
from webhook.inquiry.move_answer import what_moves_would_do
from webhook.sweeper.decide.node_rules import NodeRule, NodeRules

AT_ONCE = Settings(settle_seconds=0, reserve_seconds=0, preempt=False)


def gang(count: int, **annotations: str) -> list[Any]:
    """The waiting pods of a gang of one GPU each."""
    own = {keys.GANG_ANNOTATION: "g", keys.GANG_SIZE_ANNOTATION: str(count), **annotations}
    return [gpu_pod(f"p{number}", metadata={"annotations": own}) for number in range(count)]


def placing_of(cluster: Nodes, *closed: Iterable[str]) -> Placing:
    made = Placing(cluster, AT_ONCE)
    made.divide = divided(*closed)
    return made


def named(*numbers: int) -> list[str]:
    return [f"n{number}" for number in numbers]


@pytest.mark.parametrize(
    ("closed", "expected"),
    [
        ((named(1, 2, 3, 4), named(0, 4)), named(1, 2, 3)),
        ((named(2, 3, 4), named(0, 1)), named(2, 3, 4)),
        ((named(0, 4), named(1, 2, 3, 4)), named(1, 2, 3)),
    ],
    ids=["where its minimum fits", "where the most pods fit", "where only the first has its minimum"],
)
def test_an_elastic_gang_begins_where_the_most_of_its_pods_fit(
    closed: tuple[list[str], ...], expected: list[str]
) -> None:
    cluster = Nodes(5, *gang(4, **{keys.GANG_MIN_SIZE_ANNOTATION: "2"}))
    assert sorted(places(placing_of(cluster, *closed).one()).values()) == expected


@pytest.mark.parametrize("closed", [(named(0), named(1)), (named(1), named(0))])
def test_nodes_are_reserved_in_the_variant_where_pods_end_of_themselves(
    closed: tuple[list[str], ...],
) -> None:
    """On n1 runs a pod that its controller would recreate at once."""
    owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "s", "uid": "s", "controller": True}
    recreated = gpu_pod("recreated", node="n1", metadata={"ownerReferences": [owner]})
    made = placing_of(Nodes(2, gpu_pod("other", node="n0"), recreated, *gang(1)), *closed)
    made.one()
    assert made.reserved == {"n0"}


@pytest.mark.parametrize("closed", [(named(0), named(1)), (named(1), named(0))])
def test_kube_scheduler_gets_a_pod_for_which_any_variant_has_capacity(closed: tuple[list[str], ...]) -> None:
    made = placing_of(Nodes(2, gpu_pod("other", node="n1"), gpu_pod("p")), *closed)
    (waiting,) = made.gangs()
    made.avoid(waiting.key, "n0", "n1")
    assert [plan.is_unpinned for plan in made.one().plans] == [True]


@pytest.mark.parametrize("closed", [(named(0), named(1)), (named(1), named(0))])
def test_a_gang_is_asked_about_again_once_a_node_of_any_variant_is_allowed(
    closed: tuple[list[str], ...],
) -> None:
    made = placing_of(Nodes(2, gpu_pod("other", node="n1"), gpu_pod("p")), *closed)
    made.rules = NodeRules((NodeRule(frozenset({"n0"}), "not there", is_hard=True),))
    assert places(made.one()) == {}
    made.rules = NodeRules()
    assert places(made.one(is_usage_changed=False)) == {"p": "n0"}


@pytest.mark.parametrize("closed", [(named(0, 1, 2, 3), named(4, 5)), (named(4, 5), named(0, 1, 2, 3))])
def test_gangs_are_moved_for_the_variant_that_then_fits(closed: tuple[list[str], ...]) -> None:
    """Two pods fit into the block of n0 and n1 once a gang has moved from n1; no other one can be moved."""
    made = Scattered(2, 2, 2)
    made.runs("small", "n1")
    for node in ("n3", "n5"):
        made.runs(f"fixed-{node}", node, annotations={}, priority=3000)
    made.waits("large", 2)
    made.placing.divide = divided(*closed)
    orders = made.one()
    assert places(orders) == {"large-0": "n0", "large-1": "n1"}
    assert moved(orders) == [(["ns-small-0"], ["n2"])]

    made.placing.settings = Settings()
    made.one()
    sentence = next(what_moves_would_do(made.waiting_attempt(), made.state))
    assert sentence == "It would fit if 1 gang, 1 pod, moved: ns/Job/small."


@pytest.mark.parametrize("closed", [(named(0), named(1, 2)), (named(1, 2), named(0))])
def test_a_gang_is_recreated_where_any_variant_has_capacity_for_all_of_it(
    closed: tuple[list[str], ...],
) -> None:
    """a runs on n0, alone in its subblock; a and b fit on n1 and n2."""
    made = placing_of(subblocks(1, 2), *closed)
    assert places(made.one()) == {}
    (waiting,) = made.gangs()
    assert made.place_again(waiting) == "1 block, 1 subblock, 2 hosts, 2 nodes"
