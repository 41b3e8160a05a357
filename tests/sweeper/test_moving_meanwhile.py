"""What becomes of a move when other gangs, the cluster or the gang itself change meanwhile: in memory."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial

import msgspec
import pytest

from tests.sweeper.cluster import Nodes, places
from tests.sweeper.moves import (
    MOVABLE,
    MOVES,
    REQUIRED,
    WAITING,
    Moving,
    Scattered,
    change_leader,
    evicted,
    moved,
    scene,
)
from tests.sweeper.preemptions import member
from webhook.configuration.settings import Settings
from webhook.kube.objects import Pod
from webhook.kube.placements import Placement
from webhook.sweeper.decide.moved_gangs import is_needed_by_moves
from webhook.sweeper.decide.orders import Orders
from webhook.sweeper.decide.reservations import MOVE
from webhook.sweeper.decide.retries import RetryTable, Wait, Write
from webhook.sweeper.observe.membership import LostOwner
from webhook.sweeper.repair.allowance import Allowance
from webhook.workloads import marks
from webhook.workloads.builtin import Job

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


# --- between the plan and the last eviction ------------------------------------------------------------


@pytest.mark.promise("O420")
def test_no_gang_is_moved_while_another_one_of_the_plan_may_not_be_evicted() -> None:
    scene = Moving()
    scene.change("two-0", member("two", 0, "n1", priority=2, metadata={"annotations": MOVABLE}))
    found = scene.look()
    assert (evicted(found), found.waiting_uids) == ([], WAITING)
    scene.clock.now += MOVES.bind_seconds
    assert scene.look().dropped == WAITING


def lose(cluster: Nodes) -> None:
    """The node is deleted."""
    del cluster.nodes["n3"]


def cordon(cluster: Nodes) -> None:
    """The node takes no more pods."""
    node = cluster.nodes["n3"]
    spec = msgspec.structs.replace(node.spec, unschedulable=True)
    cluster.nodes["n3"] = msgspec.structs.replace(node, spec=spec)


def fill(cluster: Nodes) -> None:
    """Another pod got the GPU of the node."""
    cluster.pods.append(member("stranger", 0, "n3"))


@pytest.mark.promise("O420")
@pytest.mark.parametrize("change", [lose, cordon, fill])
def test_no_gang_is_moved_whose_new_place_is_lost_before(change: Callable[[Nodes], None]) -> None:
    scene = Moving()
    change(scene.scattered.cluster)
    found = scene.look()
    assert (evicted(found), found.waiting_uids) == ([], WAITING)
    (sentence,) = found.sentences.values()
    assert sentence.endswith("not yet: their new place is lost")


def two_pods_to_move(*nodes: str) -> Moving:
    """A gang of two pods on these nodes is moved."""
    made = Scattered(3, 1, 2)
    made.runs("pair", *nodes)
    made.waits("large", 3)
    return Moving(made)


@pytest.mark.promise("O420")
@pytest.mark.parametrize("change", [lambda _: None, lose, cordon])
def test_a_gang_that_is_partly_evicted_is_evicted_as_a_whole(change: Callable[[Nodes], None]) -> None:
    """Also if a node of its new place is lost, or no pod of it is in the way any more."""
    scene = two_pods_to_move("n0", "n3")
    scene.change("pair-0", None)
    change(scene.scattered.cluster)
    found = scene.look()
    assert (evicted(found), found.waiting_uids) == (["pair-1"], WAITING)


@pytest.mark.promise("O420")
def test_a_gang_that_is_partly_evicted_gets_a_place_only_as_a_whole() -> None:
    """Else its first recreated pods end the reservation, and are evicted once more with the others."""
    scene = two_pods_to_move("n0", "n1")
    assert evicted(scene.look()) == ["pair-0", "pair-1"]
    scene.change("pair-0", None)
    scene.scattered.waits("pair", 1, again=2)
    scene.protect("pair")
    found = scene.look()
    assert evicted(found) == []
    assert {gang.name for gang in found.going} == {"pair"}
    assert places(scene.scattered.placing.one(going=found.going)) == {}


@pytest.mark.promise("O420")
def test_a_gang_that_stays_partly_evicted_gets_a_place_once_the_plan_is_dropped() -> None:
    scene = two_pods_to_move("n0", "n1")
    scene.change("pair-0", None)
    scene.protect("pair")
    scene.look()
    scene.clock.now += MOVES.bind_seconds
    found = scene.look()
    assert (found.dropped, found.going) == (WAITING, frozenset())


@pytest.mark.promise("O420")
@pytest.mark.parametrize("annotations", [REQUIRED, MOVABLE])
def test_a_gang_whose_annotation_is_removed_midway_is_moved_no_further(annotations: dict[str, str]) -> None:
    """Its recreated pod gets a place beside the pod that stays, once the plan is dropped."""
    scene = two_pods_to_move("n0", "n1")
    scene.change("pair-0", None)
    scene.change("pair-1", member("pair", 1, "n1"))
    assert evicted(scene.look()) == []
    scene.clock.now += MOVES.bind_seconds
    found = scene.look()
    assert (evicted(found), found.dropped, found.going) == ([], WAITING, frozenset())
    assert place_again(scene, "pair", annotations) == {"pair-0": "n0"}


def place_again(scene: Moving, name: str, annotations: dict[str, str] = REQUIRED) -> dict[str, str]:
    """The places of a gang's recreated pods, after the plan of large is gone."""
    made = scene.scattered
    made.cluster.pods = [pod for pod in made.cluster.pods if "large" not in pod.metadata.name]
    made.cluster.placements.pop(scene.plan.key, None)
    made.waits(name, 1, again=9, annotations=annotations)
    return places(made.one())


def new_place(scene: Moving, name: str) -> dict[str, str]:
    """The place that the plan reserves for a gang of one pod."""
    (nodes,) = [group.nodes for group in scene.plan.spec.victims if group.pods == [f"ns-{name}-0"]]
    return {f"{name}-0": nodes[0]}


@pytest.mark.promise("O420")
def test_a_gang_is_whole_again_if_the_one_that_waits_is_deleted_after_the_first_eviction() -> None:
    scene = two_pods_to_move("n0", "n1")
    assert evicted(scene.look()) == ["pair-0", "pair-1"]
    scene.change("pair-0", None)
    assert place_again(scene, "pair") == {"pair-0": "n0"}


@pytest.mark.promise("O420")
@pytest.mark.parametrize(("annotations", "nodes"), [(REQUIRED, set[str]()), (MOVABLE, {"n3", "n4", "n5"})])
def test_a_partly_evicted_gang_whose_nodes_are_taken_leaves_no_level_that_it_requires(
    annotations: dict[str, str], nodes: set[str]
) -> None:
    """It waits for a place beside the pod that stayed; without a required level it is spread wider."""
    scene = two_pods_to_move("n0", "n1")
    scene.change("pair-0", None)
    scene.scattered.runs("taker", "n0", "n2", annotations={}, priority=3000)
    found = set(place_again(scene, "pair", annotations).values())
    assert found <= nodes
    assert bool(found) == bool(nodes)


@pytest.mark.promise("O420")
def test_gangs_keep_their_old_or_new_place_once_moves_are_switched_off() -> None:
    scene = Moving()
    scene.change("one-0", None)
    scene.scattered.placing.settings = Settings()
    scene.scattered.one()
    found = scene.look(Settings())
    assert (evicted(found), found.dropped) == ([], WAITING), "two stays"
    assert place_again(scene, "one") == new_place(scene, "one")


@pytest.mark.promise("O420")
def test_no_further_gang_is_moved_if_a_node_of_the_one_that_waits_is_lost() -> None:
    scene = Moving()
    scene.change("one-0", None)
    scene.scattered.one()
    del scene.scattered.cluster.nodes["n2"]
    assert evicted(scene.look()) == []
    assert place_again(scene, "one") == new_place(scene, "one")


@pytest.mark.promise("O420")
def test_a_gang_that_is_deleted_before_its_eviction_has_no_new_place() -> None:
    scene = Moving()
    made = scene.scattered
    scene.change("one-0", None)
    lost = LostOwner("its controller Job/one is deleted")
    made.placing.snapshotter.owners = lambda: lambda pod: lost if is_of("one", pod) else None
    assert evicted(scene.look()) == ["two-0"], "without it, large does not fit"
    made.waits("tiny", 1)
    assert len(places(made.one())) == 1
    assert sorted(len(each.nodes) for each in made.placing.ledger.of_kind(MOVE)) == [0, 1]


@pytest.mark.promise("O420")
def test_no_gang_is_moved_for_one_whose_controller_is_deleted() -> None:
    scene = Moving()
    scene.not_released = WAITING
    assert evicted(scene.look()) == []


def test_a_gang_whose_eviction_was_just_refused_is_not_chosen_again() -> None:
    """Its next plan would reserve nodes in vain, too."""
    made = scene()
    made.placing.retries = RetryTable({(Write.EVICTION, "ns-small-0"): Wait(1.0, until=1.0)})
    orders = made.one()
    assert places(orders) == {}
    assert "it is not evicted: the API server refused that a moment ago" in made.reason(orders, "large")


# --- after the eviction -------------------------------------------------------------------------------


def evicted_one(settings: Settings = MOVES) -> Scattered:
    """The scene in which the small gang is evicted."""
    made = scene(settings)
    (order,) = made.one().plans
    made.written(order)
    made.cluster.pods = [pod for pod in made.cluster.pods if pod.metadata.uid != "ns-small-0"]
    made.one()
    assert made.placing.ledger.nodes(MOVE) == {"n3"}
    return made


@pytest.mark.promise("O419")
def test_the_new_place_is_reserved_also_where_other_reservations_last_for_no_time() -> None:
    evicted_one(replace(MOVES, reserve_hold_seconds=0.0))


@pytest.mark.promise("O419")
def test_a_pod_that_replaces_a_lost_one_gets_no_new_place_of_a_moved_gang() -> None:
    """It may return to nodes that others wait for, but a moved gang has no other place."""
    made = scene()
    (order,) = made.one().plans
    made.written(order)
    gone = "small-0", "fixed-0"
    made.cluster.pods = [pod for pod in made.cluster.pods if pod.metadata.name not in gone]
    stays, _lost = made.runs("pair", "n2", "n0", annotations={}, priority=3000)
    made.one()
    made.cluster.pods = [pod for pod in made.cluster.pods if "pair" not in pod.metadata.name]
    made.waits("pair", 2, again=1, annotations={}, priority=3000)
    made.cluster.pods[-1] = stays
    assert places(made.one()) == {}


def test_a_move_of_a_time_to_come_reserves_nothing() -> None:
    """No sweeper writes one: the plan was edited by hand."""
    made = scene()
    (order,) = made.one().plans
    later = [msgspec.structs.replace(each, moves=["2999-01-01T00:00:00Z"]) for each in order.victims]
    made.written(replace(order, victims=tuple(later)))
    made.one()
    assert made.placing.ledger.nodes(MOVE) == set()


def is_of(job: str, pod: Pod) -> bool:
    """Whether a pod is of a Job, by its reference: of an evicted gang nothing else is known."""
    owner = pod.metadata.controller
    return owner is not None and (pod.metadata.namespace, owner.name) == ("ns", job)


def delete_controller(made: Scattered) -> None:
    lost = LostOwner("its controller Job/small is deleted")
    made.placing.snapshotter.owners = lambda: lambda pod: lost if is_of("small", pod) else None


def end_job(made: Scattered) -> None:
    """It completed right before the eviction, or failed for it, or is suspended."""
    made.placing.has_ended = partial(is_of, "small")


@pytest.mark.promise("O420")
@pytest.mark.parametrize("happen", [lambda _: None, change_leader])
@pytest.mark.parametrize("end", [delete_controller, end_job])
def test_the_new_place_is_free_once_the_controller_of_the_gang_creates_no_more_pods(
    end: Callable[[Scattered], None], happen: Callable[[Scattered], None]
) -> None:
    made = evicted_one()
    happen(made)
    end(made)
    made.waits("tiny", 1)
    assert places(made.one()) == {"tiny-0": "n3"}


@pytest.mark.promise("O420")
def test_the_new_place_stays_reserved_while_the_api_server_is_asked_for_the_controller() -> None:
    made = evicted_one()
    change_leader(made)
    asked = LostOwner("the API server is asked whether Job/small exists", is_confirmed=False)
    made.placing.snapshotter.owners = lambda: lambda pod: asked if is_of("small", pod) else None
    made.waits("tiny", 1)
    assert places(made.one()) == {}


def evicted_for_large(*names: str) -> Scattered:
    """Two gangs are to be moved for large, of which these are evicted; a third block is free by now."""
    made = Scattered(3, 2, 3)
    made.runs("one", "n0")
    made.runs("two", "n1")
    made.runs("fixed", "n5", annotations={}, priority=3000)
    made.waits("large", 3)
    scene = Moving(made)
    for name in (*names, "fixed"):
        scene.change(f"{name}-0", None)
    return made


def lose_a_node(made: Scattered) -> None:
    """The whole gang that waits gets another place."""
    del made.cluster.nodes["n2"]


def replace_a_pod(made: Scattered) -> None:
    """It runs, but for a pod that its kubelet refused, and that was recreated."""
    made.cluster.pods = [pod for pod in made.cluster.pods if "large" not in pod.metadata.name]
    made.cluster.pods += [member("large", number, f"n{number}") for number in (1, 2)]
    made.cluster.pods.append(member("large", 0, metadata={"uid": "again", "annotations": REQUIRED}))


def recreate_all_pods(made: Scattered) -> None:
    """By its controller, before any was released."""
    made.cluster.pods = [pod for pod in made.cluster.pods if "large" not in pod.metadata.name]
    made.waits("large", 3, again=1)


@pytest.mark.promise("O420")
@pytest.mark.parametrize("change", [lose_a_node, replace_a_pod, recreate_all_pods])
def test_a_moved_gang_keeps_its_place_if_the_gang_that_waits_gets_a_new_plan(
    change: Callable[[Scattered], None],
) -> None:
    """Also for the next leader, which knows of the move from that plan alone."""
    made = evicted_for_large("one", "two")
    change(made)
    (again,) = made.one().plans
    assert again.gang.key.name == "large"
    made.written(again)
    change_leader(made)
    made.one()
    assert made.placing.ledger.nodes(MOVE) == {"n3", "n4"}


@pytest.mark.promise("O420")
def test_a_new_plan_names_no_gang_whose_move_did_not_begin() -> None:
    made = evicted_for_large("one")
    lose_a_node(made)
    (again,) = made.one().plans
    assert [group.pods for group in made.written(again).spec.victims] == [["ns-one-0"]]


def test_a_plan_that_also_names_a_gang_that_was_moved_evicts_its_other_victims_as_ever() -> None:
    """The gang got a new plan, in the place of a gang of lower priority: that needs no makeRoom."""
    scene = Moving()
    scene.change("one-0", None)
    scene.change("two-0", member("two", 0, "n1", priority=0))
    moved_before, victim = sorted(scene.plan.spec.victims, key=lambda group: group.pods)
    victim = msgspec.structs.replace(victim, nodes=[], moves=[])
    spec = msgspec.structs.replace(scene.plan.spec, victims=[moved_before, victim])
    scene.scattered.record(msgspec.structs.replace(scene.plan, spec=spec))
    found = scene.look(Settings())
    assert (evicted(found), found.dropped) == (["two-0"], frozenset())


def is_needed(made: Scattered, placement: Placement) -> bool:
    """Whether the sweeper keeps this Placement after a pass, though its pods are gone."""
    made.one()
    return is_needed_by_moves(placement, made.placing.view())


@pytest.mark.promise("O420")
@pytest.mark.parametrize(("evicted", "places_left"), [((), 0), (("one-0",), 1), (("one-0", "two-0"), 2)])
def test_a_new_leader_finds_the_moves_of_a_deleted_gang_as_long_as_their_places_are_reserved(
    evicted: tuple[str, ...], places_left: int
) -> None:
    scene = Moving()
    for name in (*evicted, "large-0", "large-1", "large-2"):
        scene.change(name, None)
    change_leader(scene.scattered)
    assert is_needed(scene.scattered, scene.plan) == bool(evicted)
    assert len(scene.scattered.placing.ledger.nodes(MOVE)) == places_left


@pytest.mark.promise("O418")
def test_the_placement_of_a_moved_gang_stays_for_a_day_for_the_limits_of_moves() -> None:
    """The gang may end at once or be recreated, and the one for which it was moved may end, too."""
    made = evicted_one()
    (plan_of_large,) = [each for each in made.cluster.placements.values() if each.spec.victims]
    made.waits("small", 1, again=1)
    back = made.written(made.one().plans[0])
    made.cluster.pods = [pod for pod in made.cluster.pods if "fixed" in pod.metadata.name]
    assert not is_needed(made, plan_of_large)
    assert is_needed(made, back)
    for hours, stays in ((23, True), (24, False)):
        before = (datetime.now(UTC) - timedelta(hours=hours)).isoformat()
        spec = msgspec.structs.replace(back.spec, moves=[before])
        assert is_needed(made, msgspec.structs.replace(back, spec=spec)) is stays


@pytest.mark.promise("O418")
def test_the_moves_of_a_day_count_for_the_gang_also_once_its_controller_recreates_all_of_its_pods() -> None:
    made = evicted_one()
    made.waits("small", 1, again=1)
    made.written(made.one().plans[0])
    made.cluster.pods = [pod for pod in made.cluster.pods if pod.metadata.name != "small-0"]
    made.waits("small", 1, again=2)
    (restarted,) = made.one().plans
    assert restarted.gang.key.name == "small"
    assert len(made.written(restarted).spec.moves) == 1


def delete_large(made: Scattered) -> None:
    """The gang for which it was moved ends; its Placement is the record of the move."""
    made.cluster.pods = [pod for pod in made.cluster.pods if "large" not in pod.metadata.name]
    (plan_of_large,) = [each for each in made.cluster.placements.values() if each.spec.victims]
    assert is_needed(made, plan_of_large)


def suspend_small(made: Scattered) -> None:
    """For a pass, its Job creates no pods, so that its new place is free."""
    made.placing.has_ended = partial(is_of, "small")
    made.one()
    made.placing.has_ended = lambda _: False


@pytest.mark.promise("O418")
@pytest.mark.parametrize("happen", [lambda _: None, change_leader, delete_large, suspend_small])
@pytest.mark.parametrize(("hours", "count"), [(23, 1), (25, 0)])
def test_a_move_counts_for_a_day_also_if_the_gang_returns_after_its_reservation_is_over(
    happen: Callable[[Scattered], None], hours: int, count: int
) -> None:
    made = scene()
    (order,) = made.one().plans
    before = (datetime.now(UTC) - timedelta(hours=hours)).isoformat()
    (group,) = order.victims
    made.written(replace(order, victims=(msgspec.structs.replace(group, moves=[before]),)))
    made.cluster.pods = [pod for pod in made.cluster.pods if pod.metadata.uid != "ns-small-0"]
    change_leader(made)
    made.one()
    assert made.placing.ledger.nodes(MOVE) == frozenset()
    if happen is not delete_large or count:
        happen(made)
    made.waits("small", 1, again=1)
    (back,) = made.one().plans
    assert back.gang.key.name == "small"
    assert made.written(back).spec.moves == [before] * count
    change_leader(made)
    made.one()
    assert not [each for each in made.placing.ledger.of_kind(MOVE) if not each.is_over]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("job", "has_ended"),
    [
        ({"spec": {"parallelism": 1, "completions": 1}}, False),
        ({"spec": {"parallelism": 1, "completions": 1}, "status": {"succeeded": 1}}, True),
        ({"spec": {"parallelism": 1, "suspend": True}}, True),
        (
            {"spec": {"parallelism": 1}, "status": {"conditions": [{"type": "Failed", "status": "True"}]}},
            True,
        ),
    ],
)
def test_a_job_that_is_complete_or_failed_or_suspended_creates_no_more_pods(
    job: dict[str, object], has_ended: bool
) -> None:
    known = msgspec.convert({"metadata": {"name": "small", "namespace": "ns"}, **job}, Job)
    assert Allowance(MOVES, lambda *_: known).has_ended(member("small", 0)) is has_ended
    assert not Allowance(MOVES, lambda *_: None).has_ended(member("small", 0))


@pytest.mark.promise("O420")
def test_the_new_place_is_free_once_the_gang_is_back_and_has_ended() -> None:
    """The plan for which it was moved still names that place, when the gang's Placement is deleted."""
    made = evicted_one()
    made.waits("small", 1, again=1)
    (back,) = made.one().plans
    written = made.written(back)
    made.one()
    made.cluster.pods = [pod for pod in made.cluster.pods if pod.metadata.name != "small-0"]
    del made.cluster.placements[written.key]
    made.waits("tiny", 1)
    assert places(made.one()) == {"tiny-0": "n3"}


@pytest.mark.promise("O420")
def test_a_gang_whose_new_place_is_lost_after_the_eviction_is_placed_elsewhere() -> None:
    made = Scattered(2, 3)
    made.runs("small", "n0")
    made.runs("fixed", "n2", annotations={}, priority=3000)
    made.runs("other", "n4", annotations={}, priority=3000)
    made.waits("large", 2)
    made.written(made.one().plans[0])
    made.cluster.pods = [pod for pod in made.cluster.pods if pod.metadata.name not in ("small-0", "other-0")]
    lose(made.cluster)
    made.waits("small", 1, again=1)
    assert places(made.one()) == {"small-0": "n4"}


@pytest.mark.promise("O420")
@pytest.mark.parametrize(("count", "nodes"), [(1, {"n3"}), (2, {"n3", "n4"}), (3, {"n5", "n6", "n7"})])
def test_a_moved_gang_whose_job_was_scaled_meanwhile_gets_a_place_as_large_as_it_is(
    count: int, nodes: set[str]
) -> None:
    made = Scattered(3, 2, 4)
    made.runs("pair", "n0", "n1")
    made.runs("fixed", "n5", "n6", annotations={}, priority=3000)
    made.waits("large", 3)
    scene = Moving(made)
    assert [group.nodes for group in scene.plan.spec.victims] == [["n3", "n4"]]
    for name in ("pair-0", "pair-1", "fixed-0", "fixed-1"):
        scene.change(name, None)
    made.waits("pair", count, again=9)
    assert set(places(made.one()).values()) == nodes
    assert made.placing.ledger.nodes(MOVE) == frozenset()


def pod_of_deployment(uid: str, node: str = "") -> Pod:
    """Each is a gang alone, and its successor has another name."""
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "web", "controller": True}
    metadata = {"name": uid, "uid": uid, "labels": {}, "ownerReferences": [owner], "annotations": MOVABLE}
    return member("web", 0, node, metadata=metadata)


@pytest.mark.promise("O419")
def test_the_successor_of_a_moved_pod_of_a_deployment_gets_its_place() -> None:
    made = Scattered(2, 3)
    made.adopt([pod_of_deployment("web-a", "n0")])
    made.runs("fixed", "n2", "n3", annotations={}, priority=3000)
    made.waits("large", 2)
    (order,) = made.one().plans
    assert moved(made.one()) == [(["web-a"], ["n4"])]
    made.written(order)
    gone = "web-a", "ns-fixed-1"
    made.cluster.pods = [pod for pod in made.cluster.pods if pod.metadata.uid not in gone]
    made.waits("urgent", 2, priority=1000)
    assert places(made.one()) == {}
    made.cluster.pods.pop()
    made.cluster.pods[-1] = pod_of_deployment("web-b")
    (back,) = made.one().plans
    assert [entry.node for entry in back.entries] == ["n4"], "not n3, which is free, too"
    assert len(back.moves) == 1, "it counts for its limit of moves a day"


def pods_of_jobset(*nodes: str, again: int = 0) -> list[Pod]:
    """A JobSet of Jobs with a pod each, on these nodes or gated. again: how often the Jobs were recreated."""
    labels = {marks.JOBSET_NAME_LABEL: "set", "jobset.sigs.k8s.io/jobset-uid": "set"}
    found = []
    for number, node in enumerate(nodes):
        metadata = {"labels": labels, "annotations": MOVABLE, "uid": f"set-{number}-{again}"}
        found.append(member(f"set-{number}-{again}", 0, node, metadata=metadata))
    return found


@pytest.mark.promise("O419")
def test_a_jobset_is_moved_with_all_its_jobs_and_returns_once_all_are_recreated() -> None:
    """The deletion of its former Jobs is not its own."""
    made = Scattered(3, 2)
    jobs = made.adopt(pods_of_jobset("n0", "n1"))
    made.waits("large", 3)
    (order,) = made.one().plans
    made.written(order)
    assert [nodes for _, nodes in moved(Orders(plans=(order,)))] == [["n3", "n4"]]
    made.cluster.pods = [pod for pod in made.cluster.pods if pod not in jobs]
    made.sizes["set"] = 2
    lost, own = LostOwner("its controller is deleted"), [pod.metadata.controller for pod in jobs]
    made.placing.snapshotter.owners = lambda: lambda pod: lost if pod.metadata.controller in own else None
    made.placing.has_ended = lambda pod: pod.metadata.controller in own
    made.waits("urgent", 1, priority=1000)
    assert places(made.one()) == {}
    made.cluster.pods.pop()
    made.cluster.pods += pods_of_jobset("", "", again=1)[:1]
    assert places(made.one()) == {}
    made.cluster.pods += pods_of_jobset("", "", again=1)[1:]
    assert places(made.one()) == {"set-0-1-0": "n3", "set-1-1-0": "n4"}
