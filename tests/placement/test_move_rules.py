"""The queue and the rules of hack/bench trace --moves: who waits how long, and which gangs are moved."""

from dataclasses import replace
from typing import Final

import pytest

from hack.comparing.gang_arrivals import GPUS, NODES, ArrivingGang, Role
from hack.comparing.gang_queue import AN_HOUR, GangQueue, JobCluster, MoveRule, RunningJob, WaitTotals
from hack.comparing.move_rules import by_kai, by_topogate
from tests.placement.small import gang_of, placed, snapshot_of, taken
from webhook.placement import Gang

WHOLE: Final = (Role(NODES, GPUS),)
BLOCK_OF_TWO: Final = gang_of(2, required_level="block")


def cluster_with(*nodes: str) -> JobCluster:
    """Two blocks of two nodes, and jobs of one pod on these, the oldest first."""
    made = JobCluster(snapshot_of({"b1": {"r1": {"a": 1, "b": 1}}, "b2": {"r2": {"c": 1, "d": 1}}}))
    for number, node in enumerate(nodes):
        made.now = float(number)
        only = replace(gang_of(1), name=f"j{number}", excluded_nodes=frozenset("abcd") - {node})
        job = ArrivingGang(number, (Role(1, 1),), "", 9.0)
        made.start(job, only, placed(only, made.snapshot), 99.0).gang = replace(gang_of(1), name=f"j{number}")
    return made


def jobs_of(cluster: JobCluster) -> list[RunningJob]:
    return list(cluster.running.values())


@pytest.mark.parametrize("find", [by_topogate, by_kai])
def test_the_youngest_of_equal_gangs_is_moved_to_a_node_that_is_free(find: object) -> None:
    cluster = cluster_with("a", "c")
    moved = MoveRule(find).find(BLOCK_OF_TWO, cluster, jobs_of(cluster))  # type: ignore[arg-type]
    assert moved is not None
    assert taken(moved.answer.nodes) == {"c": 1, "d": 1}
    assert [(job.gang.name, taken(answer.nodes)) for job, answer in moved.places] == [("j1", {"b": 1})]


def test_no_gang_is_moved_by_topogate_more_often_than_twice_a_day() -> None:
    cluster = cluster_with("a", "c")
    for job in jobs_of(cluster):
        job.moves = [cluster.now - 2 * AN_HOUR, cluster.now - 3 * AN_HOUR]
    assert by_topogate(BLOCK_OF_TWO, cluster, jobs_of(cluster)) is None


def no_moves(_asking: Gang, _cluster: JobCluster, _movable: object) -> None:
    """Nothing is moved."""


def test_a_gang_waits_until_the_job_in_its_place_ends() -> None:
    lasts = (3.5, 1.0, 1.0, 1.0, 1.0)
    jobs = [ArrivingGang(number, WHOLE, "", each) for number, each in enumerate(lasts)]
    waits = WaitTotals()
    GangQueue(MoveRule(no_moves), lambda _: True, range(3), waits).run(jobs)
    assert [round(hours * AN_HOUR, 6) for hours in waits.large] == [0, 3, 2]
    assert (waits.unplaced, waits.moves, waits.scattered) == (1, 0, 0)
