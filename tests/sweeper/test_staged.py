"""Gangs in stages run as a whole or wait as a whole, however many of them there are at once."""

from dataclasses import replace
from typing import Any

import pytest

from labeler.contract import keys
from tests.sweeper.cluster import gpu_pod
from tests.sweeper.stages import OLD, Stages, groups_of, ordered_sets
from webhook.configuration.settings import Settings
from webhook.placement import Assignment, NoFit
from webhook.sweeper.decide import steps
from webhook.sweeper.decide.core_questions import ask_around
from webhook.sweeper.decide.gang_question import GangQuestion
from webhook.sweeper.decide.reservations import Cooldown

IN_ONE_SUBBLOCK = {keys.REQUIRED_TOPOLOGY_ANNOTATION: "subblock"}
SETTINGS = Settings(settle_seconds=0, reserve_seconds=1e12)


@pytest.mark.promise("R72")
@pytest.mark.parametrize("seed", range(2))
def test_groups_of_one_set_that_exactly_fit_all_run(seed: int) -> None:
    scene = Stages(
        groups_of(10, 4, requests=IN_ONE_SUBBLOCK), [8] * 5, settings=replace(SETTINGS, reserve_share=1.0)
    )
    scene.play(seed)
    assert scene.sizes() == [4] * 10


@pytest.mark.promise("R72")
@pytest.mark.parametrize("seed", range(2))
def test_of_more_groups_than_fit_those_that_do_not_wait_as_a_whole(seed: int) -> None:
    scene = Stages(
        groups_of(13, 4, requests=IN_ONE_SUBBLOCK), [8] * 5, settings=replace(SETTINGS, reserve_share=1.0)
    )
    scene.play(seed)
    assert scene.sizes() == [4] * 10 + [0] * 3


@pytest.mark.promise("R72")
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("requests", [IN_ONE_SUBBLOCK, {}], ids=["required", "no level"])
def test_groups_that_need_more_than_the_share_that_may_be_reserved_all_run(
    seed: int, requests: dict[str, str]
) -> None:
    scene = Stages(groups_of(16, 4, requests=requests), [16] * 4, settings=SETTINGS)
    scene.play(seed)
    assert scene.sizes() == [4] * 16


@pytest.mark.parametrize("seed", range(2))
def test_exclusive_groups_that_exactly_fit_all_run(seed: int) -> None:
    over = keys.GCE_TOPOLOGY[1]
    scene = Stages(groups_of(6, 4, over=over), [4] * 6, settings=SETTINGS)
    scene.play(seed)
    assert scene.sizes() == [4] * 6


@pytest.mark.parametrize("seed", range(2))
def test_ordered_statefulsets_that_exactly_fit_all_run(seed: int) -> None:
    scene = Stages(ordered_sets(6, 4, requests=IN_ONE_SUBBLOCK), [8] * 3, settings=SETTINGS)
    scene.play(seed)
    assert scene.sizes() == [4] * 6


KUEUE = {"kueue.x-k8s.io/pod-group-name": "g", "kueue.x-k8s.io/pod-group-total-count": "4"}
GROUPS_OF_OTHERS = {
    "Kueue": KUEUE,
    "coscheduling": {"scheduling.x-k8s.io/pod-group": "g", keys.GANG_SIZE_ANNOTATION: "4"},
    "Volcano": {"scheduling.volcano.sh/group-name": "g", keys.GANG_SIZE_ANNOTATION: "4"},
    "its author": {keys.GANG_ANNOTATION: "g", keys.GANG_SIZE_ANNOTATION: "4"},
}


@pytest.mark.promise("R330")
@pytest.mark.parametrize("marks", GROUPS_OF_OTHERS.values(), ids=GROUPS_OF_OTHERS)
def test_pods_that_are_created_one_by_one_run_whatever_count_others_write_on_them(
    marks: dict[str, str],
) -> None:
    """The controller creates the second pod when the first is ready, so to wait for all is a deadlock."""
    scene = Stages(ordered_sets(1, 4, requests=marks), [4], settings=SETTINGS)
    scene.finish()
    (made,) = scene.sweep().plans
    assert made.gang.size == 4
    assert len(made.later_pod_nodes) == 3, "nodes for the pods that come later"
    scene.play()
    assert scene.sizes() == [4]


@pytest.mark.promise("R330")
def test_two_statefulsets_that_share_a_group_run_pod_by_pod() -> None:
    scene = Stages(ordered_sets(2, 2, requests=KUEUE), [4], settings=SETTINGS)
    for _ in range(2):
        scene.finish()
        scene.sweep()
    assert scene.sizes() == [2, 2]


@pytest.mark.parametrize("seed", range(2))
def test_groups_that_share_nodes_all_run(seed: int) -> None:
    scene = Stages(groups_of(8, 3, gpus=4, requests=IN_ONE_SUBBLOCK), [6, 6], gpus=8, settings=SETTINGS)
    scene.play(seed)
    assert scene.sizes() == [3] * 8


def test_a_pod_that_comes_between_the_stages_takes_no_node_of_theirs() -> None:
    scene = Stages(
        groups_of(4, 4, requests=IN_ONE_SUBBLOCK), [8, 8], settings=replace(SETTINGS, reserve_share=1.0)
    )
    scene.finish()
    scene.sweep()
    scene.cluster.pods += [gpu_pod(f"other-{number}") for number in range(12)]
    scene.play()
    assert scene.sizes() == [4] * 4


def test_a_gang_that_may_not_use_them_has_the_reason() -> None:
    scene = Stages(groups_of(1, 4), [4], settings=replace(SETTINGS, reserve_share=1.0))
    scene.finish()
    scene.sweep()
    scene.cluster.pods.append(gpu_pod("other"))
    (outcome,) = scene.sweep().outcomes
    assert "nodes are reserved for pods that are created later: 3 for ns/" in outcome.reason


@pytest.mark.parametrize(("free", "is_reserved"), [(1, True), (0, False)])
def test_who_replaces_a_lost_pod_takes_a_node_of_theirs_only_where_nothing_else_fits(
    free: int, is_reserved: bool
) -> None:
    annotations = {keys.GANG_ANNOTATION: "other", keys.GANG_SIZE_ANNOTATION: "2"}
    others = [gpu_pod(f"other-{number}", metadata={"annotations": annotations}) for number in range(2)]
    settings = replace(SETTINGS, reserve_share=1.0)
    scene = Stages(groups_of(1, 4), [6] + [1] * free, pods=others, settings=settings)
    scene.sweep()
    scene.finish()
    scene.sweep()
    lost = next(pod for pod in scene.cluster.pods if pod.metadata.name == "other-1")
    scene.cluster.pods = [pod for pod in scene.cluster.pods if pod is not lost]
    del scene.cluster.nodes[lost.spec.node_name]
    scene.cluster.pods.append(gpu_pod("other-2", metadata={"annotations": annotations}))
    scene.sweep()
    (plan,) = [each for each in scene.cluster.placements.values() if each.spec.later_pod_nodes]
    assert (scene.node_of("other-2") not in plan.spec.later_pod_nodes) is is_reserved
    assert scene.node_of("other-2")


@pytest.mark.parametrize("others", [4, 0], ids=["where there are others", "where there are none"])
def test_nodes_whose_reservation_expired_unused_are_planned_for_later_pods_last(others: int) -> None:
    scene = Stages(groups_of(1, 4), [4, others], settings=replace(SETTINGS, reserve_share=1.0))
    scene.finish()
    memory = scene.placing.memory
    cooling = {f"n{number}": Cooldown("another", 1e9) for number in range(4)}
    scene.placing.memory = replace(memory, ledger=replace(memory.ledger, cooldowns=cooling))
    (made,) = scene.sweep().plans
    assert sorted(made.later_pod_nodes) == (["n5", "n6", "n7"] if others else ["n1", "n2", "n3"])


@pytest.mark.promise("R72")
def test_a_gang_whose_nodes_cannot_be_reserved_has_the_reason() -> None:
    scene = Stages(groups_of(3, 4), [16], settings=SETTINGS)
    scene.finish()
    orders = scene.sweep()
    assert len(orders.plans) == 2
    assert [each.reason for each in orders.outcomes] == [
        "3 nodes are to be reserved for the 3 pods that are created once its first ones run, and other gangs "
        "have 6 of the 8 that may be reserved at once (reservations.share)"
    ]


def test_of_many_groups_that_cannot_begin_yet_one_is_asked_about_in_a_pass(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []

    def ask(question: GangQuestion, *others: Any) -> Assignment | NoFit:
        asked.append(question.gang.name)
        return ask_around(question, *others)

    monkeypatch.setattr(steps, "ask_around", ask)
    scene = Stages(groups_of(30, 4, requests=IN_ONE_SUBBLOCK), [16] * 4, settings=SETTINGS)
    scene.finish()
    for expected in (11, 1, 1):
        asked.clear()
        orders = scene.sweep()
        assert len(asked) == expected
        assert len(orders.outcomes) == 20
    scene.play()
    assert scene.sizes() == [4] * 16 + [0] * 14


@pytest.mark.promise("R72")
def test_a_gang_that_alone_needs_more_than_may_be_reserved_begins_where_nobody_else_has_any() -> None:
    scene = Stages([*groups_of(1, 6, name="large"), *groups_of(1, 2, name="small")], [8], settings=SETTINGS)
    scene.finish()
    assert len(scene.sweep().plans) == 1
    scene.play()
    assert scene.sizes() == [6, 2]


@pytest.mark.parametrize(("requests", "begins"), [({}, True), (IN_ONE_SUBBLOCK, False)])
def test_what_a_large_gang_holds_that_waits_keeps_back_those_alone_that_are_bound_to_a_domain(
    requests: dict[str, str], begins: bool
) -> None:
    """It has reserved all that may be reserved, on other nodes than those that these would use."""
    annotations = {keys.GANG_ANNOTATION: "large", keys.GANG_SIZE_ANNOTATION: "9"}
    metadata = {"annotations": annotations, "creationTimestamp": "2025-01-01T00:00:00Z"}
    large = [gpu_pod(f"large-{number}", metadata=metadata) for number in range(9)]
    busy = [gpu_pod("busy", node="n0")]
    settings = Settings(settle_seconds=0, reserve_seconds=0)
    scene = Stages(groups_of(1, 3, requests=requests), [9], pods=[*large, *busy], settings=settings)
    scene.sweep()
    assert len(scene.placing.reserved) == 4
    scene.finish()
    assert bool(scene.sweep().plans) is begins


def test_a_gang_that_has_waited_long_does_not_wait_for_those_behind_it() -> None:
    """It needs all that may be reserved; others that need less arrive without end."""
    settings = Settings(settle_seconds=0, reserve_seconds=0)
    large, small = groups_of(1, 5, name="a-large"), groups_of(4, 2, name="small")
    scene = Stages([*small[:1], *large, *small[1:]], [8], settings=settings)
    scene.finish(lambda group: group is small[0])
    scene.sweep()
    scene.finish(lambda group: group is not small[0])
    first = scene.sweep()
    assert not first.plans, "what the large one needs is not used up by those behind it"
    scene.finish(lambda group: group is small[0])
    scene.sweep()
    scene.sweep()
    assert scene.placed(large[0]) == 1


def test_workers_of_a_gang_that_begins_do_not_pass_over_what_others_hold() -> None:
    """They replace nobody: there were none of them."""
    scene = Stages(groups_of(2, 4), [8], settings=replace(SETTINGS, reserve_share=1.0))
    scene.finish()
    scene.sweep()
    first, second = scene.groups
    reserved = {key: set(each.spec.later_pod_nodes) for key, each in scene.cluster.placements.items()}
    scene.finish(lambda group: group is second)
    scene.cluster.nodes = {
        name: node
        for name, node in scene.cluster.nodes.items()
        if name not in reserved[scene.placing.view().gang_of(second.pods[0]).placement_key]
    }
    scene.sweep()
    assert scene.placed(second) == 1
    assert scene.placed(first) == 1


@pytest.mark.promise("R72")
@pytest.mark.parametrize("requests", [{}, IN_ONE_SUBBLOCK], ids=["no level", "required"])
def test_a_gang_in_stages_begins_though_all_that_may_be_reserved_is_reserved_for_one_that_never_fits(
    requests: dict[str, str],
) -> None:
    """The other one holds some nodes or others for ever: those that it held in vain rest meanwhile."""
    annotations = {keys.GANG_ANNOTATION: "giant", keys.GANG_SIZE_ANNOTATION: "9"}
    giant = [
        gpu_pod(f"giant-{number}", metadata={"annotations": annotations, "creationTimestamp": OLD})
        for number in range(9)
    ]
    busy = [gpu_pod(f"busy-{number}", node=f"n{number}") for number in range(4)]
    settings = Settings(settle_seconds=0, reserve_seconds=0, reserve_hold_seconds=100, reserve_share=0.25)
    scene = Stages(groups_of(1, 2, requests=requests), [12], pods=[*giant, *busy], settings=settings)
    scene.finish()
    for _ in range(100):
        scene.sweep()
        scene.placing.clock.now += 10
    assert scene.placed(scene.groups[0]) == 1
