"""What becomes of a move when other gangs, the cluster or the gang itself change meanwhile: in memory."""

import pytest

from tests.sweeper.cluster import places
from tests.sweeper.moves import Scattered, moved, scene
from webhook.sweeper.decide.reservations import MOVE

# --- gangs of the same pass ---------------------------------------------------------------------------


@pytest.mark.promise("O419")
def test_no_gang_of_the_same_pass_gets_the_new_place_of_a_moved_one() -> None:
    made = scene()
    made.waits("tiny", 1)
    orders = made.one()
    assert moved(orders) == [(["ns-small-0"], ["n3"])]
    assert "n3" not in places(orders).values()


@pytest.mark.promise("O419")
def test_gangs_that_are_moved_in_one_pass_have_a_place_each() -> None:
    made = Scattered(2, 2, 1, 1, 1, 1)
    for number in range(4):
        made.runs(f"small{number}", f"n{number}")
    made.waits("large", 2)
    made.waits("other", 2)
    orders = made.one()
    assert sorted(nodes for _, nodes in moved(orders)) == [["n4"], ["n5"], ["n6"], ["n7"]]
    for order in orders.plans:
        made.written(order)
    made.one()
    assert [len(each.nodes) for each in made.placing.ledger.of_kind(MOVE)] == [1, 1, 1, 1]


def test_one_gang_is_moved_for_one_asking_gang_only() -> None:
    made = scene()
    made.waits("other", 2)
    orders = made.one()
    assert len(orders.plans) == 1
    made.written(orders.plans[0])
    assert places(made.one()) == {}


def test_nothing_is_moved_for_a_gang_that_never_preempts() -> None:
    made = Scattered(2, 2)
    made.runs("small", "n0")
    made.runs("fixed", "n2", annotations={}, priority=3000)
    made.waits("large", 2, preemptionPolicy="Never")
    assert places(made.one()) == {}
