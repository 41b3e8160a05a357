"""How often gangs are moved: within an hour, and one gang within a day. In memory."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from tests.sweeper.cluster import places
from tests.sweeper.moves import Scattered, change_leader, moved, with_limits
from webhook.sweeper.decide.moved_gangs import is_needed_by_moves


def ago(**passed: float) -> str:
    """The time before so long."""
    return (datetime.now(UTC) - timedelta(**passed)).isoformat()


@pytest.mark.promise("O418")
def test_a_gang_is_moved_only_so_often_within_a_day() -> None:
    made = Scattered(2, 2)
    made.runs("small", "n0")
    made.runs("fixed", "n2", annotations={}, priority=3000)
    made.waits("large", 2)
    (key,) = [key for key in made.cluster.placements if "small" in key]
    before = made.cluster.placements[key]
    now = datetime.now(UTC)
    for count, nodes in ((1, {"n0", "n1"}), (2, set[str]())):
        moves = [(now - timedelta(hours=2 + number)).isoformat() for number in range(count)]
        spec = msgspec.structs.replace(before.spec, moves=moves)
        made.record(msgspec.structs.replace(before, spec=spec))
        assert set(places(made.one()).values()) == nodes


def scattered(per_hour: int) -> Scattered:
    """Two blocks with a small gang each, and two nodes to which these may be moved."""
    made = Scattered(3, 3, 1, 1, settings=with_limits(per_hour=per_hour))
    made.runs("one", "n0")
    made.runs("two", "n3")
    return made


@pytest.mark.promise("O418")
@pytest.mark.parametrize("per_hour", [0, 1, 2])
def test_no_more_gangs_are_moved_in_one_pass_than_within_an_hour(per_hour: int) -> None:
    made = scattered(per_hour)
    made.waits("large", 3)
    made.waits("other", 3)
    assert len(moved(made.one())) == per_hour


def one_was_moved(at: str) -> Scattered:
    """One gang was moved at this time, and has its new place; one may be moved within an hour."""
    made = scattered(1)
    made.waits("large", 3)
    (order,) = made.one().plans
    (group,) = order.victims
    assert group.pods == ["ns-one-0"]
    made.written(replace(order, victims=(msgspec.structs.replace(group, moves=[at]),)))
    made.cluster.pods = [pod for pod in made.cluster.pods if pod.metadata.uid != "ns-one-0"]
    change_leader(made)  # who has not seen the move at another time
    made.waits("one", 1, again=1)
    (back,) = made.one().plans
    assert made.written(back).spec.moves == [at]
    return made


def end(made: Scattered, name: str) -> None:
    """The pods of a gang are gone, and so is its Placement, unless the sweeper needs it."""
    made.cluster.pods = [pod for pod in made.cluster.pods if not pod.metadata.name.startswith(name)]
    view = made.placing.view()
    for key, placement in list(made.cluster.placements.items()):
        is_there = any(entry.uid in view.by_uid for entry in placement.spec.pods)
        if not is_there and not is_needed_by_moves(placement, view):
            del made.cluster.placements[key]


def large_ends(made: Scattered) -> None:
    """Others are in its place at once."""
    end(made, "large")
    made.runs("next", "n0", annotations={}, priority=3000)


def both_end(made: Scattered) -> None:
    """The gang that was moved ends, too."""
    large_ends(made)
    end(made, "one")
    made.runs("guest", "n6", annotations={}, priority=3000)


@pytest.mark.promise("O418")
@pytest.mark.parametrize("happen", [lambda _: None, large_ends, both_end])
@pytest.mark.parametrize("is_leader_new", [False, True])
@pytest.mark.parametrize(("minutes", "is_moved"), [(59, False), (61, True)])
def test_a_move_counts_for_an_hour_whatever_becomes_of_its_gangs(
    happen: Callable[[Scattered], None], is_leader_new: bool, minutes: int, is_moved: bool
) -> None:
    made = one_was_moved(ago(minutes=minutes))
    happen(made)
    if is_leader_new:
        change_leader(made)
    made.waits("other", 3)
    orders = made.one()
    assert [pods for pods, _ in moved(orders)] == [["ns-two-0"]] * is_moved
    if not is_moved:
        expected = "would do, but 0 more may be moved within the hour (makeRoom.movesPerHour)"
        assert expected in made.reason(orders, "other")


@pytest.mark.promise("O418")
@pytest.mark.parametrize("per_hour", [1, 3, 10])
def test_many_gangs_that_ask_one_after_the_other_move_no_more_than_within_an_hour(per_hour: int) -> None:
    """Each time another process leads, and no gang is moved twice."""
    made = Scattered(*[3] * 5, *[1] * 10, settings=with_limits(per_hour=per_hour))
    for number in range(5):
        made.runs(f"small{number}", f"n{3 * number}")
    count = 0
    for number in range(8):
        made.waits(f"ask{number}", 3)
        for order in made.one().plans:
            gone = {uid for group in order.victims for uid in group.pods}
            count += len(gone)
            made.written(order)
            made.cluster.pods = [pod for pod in made.cluster.pods if pod.metadata.uid not in gone]
        change_leader(made)
    assert count == min(5, per_hour)


@pytest.mark.parametrize(
    ("at", "expected"),
    [(ago(minutes=-30), []), (ago(days=-3650), [["ns-one-0"]])],
    ids=["a clock ahead", "edited"],
)
def test_a_move_in_the_far_future_does_not_end_all_moves(at: str, expected: list[list[str]]) -> None:
    made = scattered(1)
    made.waits("large", 3)
    made.runs("moved", "n6")
    (key,) = [key for key in made.cluster.placements if "moved" in key]
    before = made.cluster.placements[key]
    made.record(msgspec.structs.replace(before, spec=msgspec.structs.replace(before.spec, moves=[at])))
    assert [pods for pods, _ in moved(made.one())] == expected
