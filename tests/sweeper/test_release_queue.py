"""The order in which a node's pods with cards are released; the device plugin follows it by gas-ts."""

import itertools
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from labeler.contract import keys
from tests.sweeper.cluster import Nodes, Placing
from tests.sweeper.pods import decode, pod_json
from webhook.configuration.settings import Settings
from webhook.kube.objects import Metadata, Node, Pod
from webhook.kube.placements import Placement, PlacementSpec
from webhook.kube.plan_pods import PlannedPod
from webhook.sweeper.decide.attempt import GangPlaced
from webhook.sweeper.decide.orders import Pair
from webhook.sweeper.decide.placement_pass import answer_for
from webhook.sweeper.decide.plan import stamped, timestamps_of, with_releases
from webhook.sweeper.decide.release_queue import ReleaseQueue, SentReleases, position_of
from webhook.sweeper.decide.retries import RetryTable

EARLIER, LATER = 1_764_000_000_000_000_000, 1_764_000_000_000_000_001


def with_card(name: str, stamp: int = 0, **spec: object) -> Pod:
    """A pod of one card, gated by default; stamp: its gas-ts, if it has its card by now."""
    container = {"name": "c", "resources": {"requests": {keys.I915: "1"}}}
    metadata = {"annotations": given(stamp) if stamp else {}}
    return decode(pod_json(name, metadata=metadata, containers=[container], **spec))


def given(stamp: int) -> dict[str, str]:
    return {keys.GAS_CARDS_ANNOTATION: "card0", keys.GAS_TIMESTAMP_ANNOTATION: str(stamp)}


def stamps(*waiting: PlannedPod) -> list[int]:
    """The times with which these are let go, on a node where a pod of a later plan has had its turn."""
    pods = [with_card(each.name) for each in waiting]
    bound = with_card("bound", LATER, nodeName="n0", schedulingGates=[])
    cluster = Nodes(1, *pods, bound)
    plan = PlacementSpec(pods=list(waiting))
    cluster.placements = {"ns/p": Placement(metadata=Metadata(name="p", namespace="ns"), spec=plan)}
    view = Placing(cluster, Settings()).view()
    released = stamped(zip(pods, waiting, strict=True), timestamps_of(view, 0), view.now.ns)
    return [int(planned.annotations.get(keys.GAS_TIMESTAMP_ANNOTATION, 0)) for _, planned in released]


def test_whose_plan_does_not_hold_stands_in_the_line_of_its_node_all_the_same() -> None:
    """As for a node that nobody may go to now: the next leader may find that it does hold."""
    cluster = Nodes(1, with_card("a"))
    planned = PlannedPod("a", "uid-a", "gone", annotations=given(EARLIER))
    plan = Placement(metadata=Metadata(name="p", namespace="ns"), spec=PlacementSpec(pods=[planned]))
    cluster.placements = {"ns/p": plan}
    view = Placing(cluster, Settings()).view()
    assert (view.planned, view.written) == ({}, (planned,))


def test_whoever_has_waited_with_its_plan_is_reported_as_the_last_one_released() -> None:
    """Its gang may have paused, or its node been overbooked, while the turns of others came."""
    older = [PlannedPod(name, f"uid-{name}", "n0", annotations=given(EARLIER)) for name in ("a", "b")]
    found = stamps(*older)
    assert found[0] > LATER
    assert all(one < other for one, other in itertools.pairwise(found))


@pytest.mark.parametrize("annotations", [{}, given(EARLIER)], ids=["no card", "a card"])
def test_only_who_is_given_a_card_gets_a_time(annotations: dict[str, str]) -> None:
    (found,) = stamps(PlannedPod("a", "uid-a", "n0", annotations=annotations))
    assert bool(found) == bool(annotations)


@pytest.mark.parametrize("carries", [True, False], ids=["as released", "a webhook took its annotations off"])
def test_a_released_pod_is_first_in_the_queue_of_its_node_until_it_is_bound(carries: bool) -> None:
    """Whatever it carries, kubelet will ask for its cards, and the device plugin for the lowest gas-ts."""
    pin = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n0"]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [pin]}}
    sent = with_card("a", EARLIER if carries else 0, schedulingGates=[], affinity={"nodeAffinity": required})
    waiting = PlannedPod("b", "uid-b", "n0", annotations=given(LATER))
    plan = PlacementSpec(pods=[PlannedPod("a", "uid-a", "n0", annotations=given(EARLIER)), waiting])
    cluster = Nodes(1, sent, with_card("b"))
    cluster.placements = {"ns/p": Placement(metadata=Metadata(name="p", namespace="ns"), spec=plan)}
    view = Placing(cluster, Settings()).view()
    queue = ReleaseQueue(view, SentReleases(unconfirmed={}), RetryTable(), 0.0)
    assert queue.take([(view.by_uid["uid-b"], waiting)]) == ()


def queue_of(annotations: dict[str, str], *planned: PlannedPod) -> tuple[ReleaseQueue, list[Pair]]:
    """The queue of a node with these annotations, and pods that its leader has planned there."""
    cluster = Nodes(1, *(with_card(each.name) for each in planned))
    node = cluster.nodes["n0"]
    metadata = msgspec.structs.replace(node.metadata, annotations=annotations)
    cluster.nodes["n0"] = msgspec.structs.replace(node, metadata=metadata)
    view = Placing(cluster, Settings()).view()
    pairs = [(view.by_uid[each.uid], each) for each in planned]
    return ReleaseQueue(view, SentReleases(unconfirmed={}), RetryTable(), 0.0), pairs


def planned_with(name: str, annotations: dict[str, str] | None = None) -> PlannedPod:
    return PlannedPod(name, f"uid-{name}", "n0", annotations=given(EARLIER) | (annotations or {}))


def names(taken: Sequence[Pair]) -> list[str]:
    return [planned.name for _, planned in taken]


@pytest.mark.promise("I33")
@pytest.mark.parametrize(
    ("annotations", "expected"),
    [
        ({keys.IDENTIFIES_PODS_ANNOTATION: keys.IDENTIFIED}, ["a", "b", "c"]),
        ({keys.IDENTIFIES_PODS_ANNOTATION: "false"}, ["a"]),
        ({keys.OFFERED_CARDS_ANNOTATION: "card0=gpu.intel.com/i915:10"}, ["a"]),
        ({}, ["a"]),
    ],
    ids=["it identifies pods", "it does not", "an allocator that does not say", "another plugin"],
)
def test_pods_are_released_at_once_only_where_the_allocator_identifies_them(
    annotations: dict[str, str], expected: list[str]
) -> None:
    queue, pairs = queue_of(annotations, *map(planned_with, "abc"))
    assert names(queue.take(pairs)) == expected


def test_pods_without_cards_are_in_no_queue() -> None:
    queue, pairs = queue_of({}, *(PlannedPod(name, f"uid-{name}", "n0") for name in "ab"))
    assert names(queue.take(pairs)) == ["a", "b"]


@pytest.mark.parametrize(
    "stamp",
    ["0" * 19, "x" * 19, "1", "\u0661" * 19, ""],
    ids=["the first", "no time", "short", "no ASCII", "none"],
)
def test_who_stands_in_a_plan_by_a_time_that_no_leader_writes_comes_last(stamp: str) -> None:
    """Any tenant may have written a plan."""
    made_up = planned_with("a", {keys.GAS_TIMESTAMP_ANNOTATION: stamp})
    queue, pairs = queue_of({}, made_up, planned_with("b"))
    assert names(queue.take(pairs)) == ["b"]


def on_one_node(*names: str) -> Placing:
    """Gated pods of one card each, and a node with two cards."""
    cluster = Nodes(1, *map(with_card, names))
    body: dict[str, Any] = {
        "metadata": {"name": "n0", "uid": "n0", "labels": {keys.CARDS_LABEL: "card0.card1"}},
        "status": {"allocatable": {keys.I915: "2", "pods": "110"}},
    }
    cluster.nodes = {"n0": msgspec.convert(body, Node)}
    return Placing(cluster, Settings(settle_seconds=0))


def test_asking_where_a_gang_is_placed_gives_no_time_and_takes_no_position_in_the_queue() -> None:
    """A pass may ask twice about a gang, and explain asks about what it changes."""
    placing = on_one_node("a")
    placing.one(without=["a"])
    assert placing.state is not None
    first, second = (answer_for(placing.gangs()[0], placing.state) for _ in range(2))
    assert isinstance(first, GangPlaced)
    assert first == second


def test_of_new_plans_on_a_node_the_pods_of_the_first_are_released_at_once() -> None:
    placing = on_one_node("a", "b")
    plans, view = placing.one().plans, placing.view()
    queue, timestamps = ReleaseQueue(view, SentReleases(), RetryTable(), 0.0), timestamps_of(view, LATER)
    released = [with_releases(plan, queue, timestamps, view) for plan in plans]
    assert [names(plan.now) for plan in released] == [["a"], []]
    (first, second) = (position_of(plan.entries[0]) for plan in released)
    assert str(LATER) < first < second
