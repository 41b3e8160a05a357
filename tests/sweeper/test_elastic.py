"""Gangs of which a minimum is enough: how many of their pods are placed at a time."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from labeler.contract import keys
from tests.sweeper.cluster import Nodes, Placing, gpu_pod
from tests.sweeper.pods import gather_all, job_pod, no_size
from tests.sweeper.reports import Answers, Copy, Reports
from webhook.configuration.settings import Settings
from webhook.kube.objects import Metadata, Pod
from webhook.kube.placements import Placement, PlacementSpec
from webhook.kube.plan_pods import PlannedPod
from webhook.placement import Assignment, NoFit
from webhook.placement.model import Objective
from webhook.sweeper.context import Pass
from webhook.sweeper.decide.core_questions import fewer, has_enough, needed
from webhook.sweeper.decide.gang_question import GangQuestion, question
from webhook.sweeper.decide.orders import Cause
from webhook.sweeper.metrics import Metrics
from webhook.sweeper.observe.gangs import OwnerFacts, PodGang, gather
from webhook.sweeper.observe.view import Moment, View
from webhook.sweeper.repair.repair import partly_released

MIN = keys.GANG_MIN_SIZE_ANNOTATION
SLICED = {keys.SLICE_TOPOLOGY_ANNOTATION: "host", keys.SLICE_SIZE_ANNOTATION: "2"}


def elastic(count: int, minimum: int, more: dict[str, str] | None = None) -> PodGang:
    texts = {MIN: str(minimum), **(more or {})}
    (gang,) = gather_all(*(job_pod(number, annotations=texts) for number in range(count)))
    return gang


class Capacity:
    """A cluster in which so many pods of a gang fit."""

    def __init__(self, gang: PodGang, pods: int) -> None:
        self.gang = gang
        self.pods = pods
        self.asked = 0

    def ask(self, pods: Sequence[Pod]) -> tuple[GangQuestion, Assignment | NoFit]:
        self.asked += 1
        made = question(self.gang, pods, {})
        if len(pods) > self.pods:
            return made, NoFit("no capacity", len(pods), self.pods, 0, {})
        return made, Assignment((), Objective((), 0, (), 0), True, "")


@pytest.mark.promise("R43")
@given(st.integers(2, 60), st.data())
def test_as_many_as_fit_are_placed_and_never_fewer_than_the_minimum(count: int, data: st.DataObject) -> None:
    minimum = data.draw(st.integers(1, count - 1))
    capacity = Capacity(elastic(count, minimum), data.draw(st.integers(0, count - 1)))
    asked, answer = fewer(capacity.gang, capacity.gang.gated, capacity.ask)
    if capacity.pods < minimum:
        assert isinstance(answer, NoFit)
        assert len(asked.pods) == minimum, "the sentence is about what is needed"
    else:
        assert not isinstance(answer, NoFit)
        first = [pod.metadata.uid for pod in capacity.gang.gated[: capacity.pods]]
        assert list(asked.pods) == first, "in the order of rank"
    assert capacity.asked <= 8


@pytest.mark.parametrize(("capacity", "expected"), [(3, None), (4, 4), (5, 4), (7, 6)])
def test_slices_stay_whole(capacity: int, expected: int | None) -> None:
    cluster = Capacity(elastic(10, 3, SLICED), capacity)
    asked, answer = fewer(cluster.gang, cluster.gang.gated, cluster.ask)
    assert (None if isinstance(answer, NoFit) else len(asked.pods)) == expected


def test_a_gang_without_a_minimum_needs_all_of_its_pods() -> None:
    (gang,) = gather_all(*(job_pod(number) for number in range(4)))
    assert gang.minimum is None
    assert needed(gang, gang.gated) == 4
    assert not has_enough(gang, gang.gated[1:])


def test_a_gang_that_has_its_minimum_grows_by_one_at_least() -> None:
    gang = elastic(10, 4)
    assert (needed(gang, gang.gated), has_enough(gang, gang.gated)) == (4, False)
    assert (needed(gang, gang.gated[3:]), has_enough(gang, gang.gated[3:])) == (1, False)
    assert (needed(gang, gang.gated[8:]), has_enough(gang, gang.gated[8:])) == (1, True)


@pytest.mark.promise("R43")
@pytest.mark.parametrize(
    ("texts", "owner", "expected"),
    [
        ({}, OwnerFacts(4, minimum=4), 4),
        ({MIN: "3"}, OwnerFacts(8), 3),
        ({MIN: "3"}, OwnerFacts(8, minimum=5), 3),
        ({MIN: "9"}, OwnerFacts(8), 8),
        ({MIN: "0"}, OwnerFacts(8), None),
        ({MIN: "half"}, OwnerFacts(8, minimum=5), 5),
    ],
    ids=["the owner's", "the user's", "the user's first", "no more than the size", "none", "unreadable"],
)
def test_the_minimum_is_the_users_or_the_owners(
    texts: dict[str, str], owner: OwnerFacts, expected: int | None
) -> None:
    (gang,) = gather([job_pod(0, annotations=texts)], [], lambda _: owner)
    assert gang.minimum == expected
    assert any(MIN in problem for problem in gang.problems) == (texts.get(MIN) in ("0", "half"))


def test_without_a_word_all_are_needed() -> None:
    (gang,) = gather([job_pod(0)], [], no_size)
    assert gang.minimum is None


def member(number: int, minimum: int, *, node: str = "", priority: int = 0) -> Pod:
    texts = {keys.GANG_ANNOTATION: "g", keys.GANG_SIZE_ANNOTATION: "6", MIN: str(minimum)}
    return gpu_pod(f"p{number}", node=node, priority=priority, metadata={"annotations": texts})


def test_a_gang_takes_the_capacity_there_is_and_shows_its_state() -> None:
    orders = Placing(Nodes(4, *(member(number, 3) for number in range(6))), Settings()).one()
    (plan,) = orders.plans
    assert sorted(entry.node for entry in plan.entries) == ["n0", "n1", "n2", "n3"]
    assert plan.description.startswith("4 of 6 pods placed on ")
    running = [member(number, 3, node=f"n{number}") for number in range(4)]
    waiting = [member(number, 3) for number in (4, 5)]
    orders = Placing(Nodes(4, *running, *waiting), Settings()).one()
    assert orders.plans == ()
    (outcome,) = orders.outcomes
    assert outcome.reason.startswith(
        "4 of 6 pods have nodes, 3 are enough; the others follow once there is capacity; "
    )


def test_a_gang_whose_minimum_does_not_fit_is_not_placed_in_part() -> None:
    orders = Placing(Nodes(4, *(member(number, 5) for number in range(6))), Settings()).one()
    assert orders.plans == ()
    assert "5 pods do not fit; the cluster has capacity for 4 of 5" in orders.outcomes[0].reason


@pytest.mark.promise("R43")
def test_a_gang_grows_by_what_comes_free() -> None:
    running = [member(number, 3, node=f"n{number}") for number in range(4)]
    orders = Placing(Nodes(5, *running, member(4, 3), member(5, 3)), Settings()).one()
    (plan,) = orders.plans
    assert [(entry.name, entry.node) for entry in plan.entries] == [("p4", "n4")]
    assert plan.description.startswith("1 pod placed; the 5 of 6 that have nodes are then on ")
    orders = Placing(Nodes(6, *running, member(4, 3), member(5, 3)), Settings()).one()
    assert orders.plans[0].description.startswith("2 pods placed; all 6 are then on ")


def test_a_gang_that_shrinks_and_grows_again_keeps_its_ranks_along_the_topology() -> None:
    """As an elastic indexed Job does: the highest indexes go first, and come again."""
    texts = {MIN: "2"}
    cluster = Nodes(9, *(job_pod(number, annotations=texts) for number in range(6)))
    for number, (name, node) in enumerate(list(cluster.nodes.items())):
        place = dict(zip(keys.PRERELEASE_TOPOLOGY, ("b", f"s{number // 3}", name), strict=True))
        cluster.nodes[name] = replace(node, metadata=replace(node.metadata, labels=place))
    cluster.pods = [gpus(pod) for pod in cluster.pods]
    placing = Placing(cluster, Settings(settle_seconds=0))

    def place_all(pods: list[Pod]) -> list[str]:
        cluster.pods = pods
        found = {entry.name: entry.node for plan in placing.one().plans for entry in plan.entries}
        cluster.pods = [on_node(pod, found.get(pod.metadata.name) or pod.spec.node_name) for pod in pods]
        return [pod.spec.node_name for pod in cluster.pods]

    first = place_all(cluster.pods)
    assert first == sorted(first), "in the order of the topology"
    remaining = cluster.pods[:2]
    again = [gpus(job_pod(number, annotations=texts, uid=f"again-{number}")) for number in range(2, 6)]
    grown = place_all([*remaining, *again])
    assert len(set(grown)) == 6
    racks = [cluster.nodes[node].metadata.labels[keys.PRERELEASE_TOPOLOGY[1]] for node in grown]
    assert grown[:2] == first[:2]
    assert racks == ["s0", "s0", "s0", "s1", "s1", "s1"]


def gpus(pod: Pod) -> Pod:
    """The pod, asking for one GPU."""
    return replace(pod, spec=replace(pod.spec, containers=gpu_pod("x").spec.containers))


def on_node(pod: Pod, node: str) -> Pod:
    """The pod, bound to a node."""
    return replace(pod, spec=replace(pod.spec, node_name=node, scheduling_gates=[]))


@pytest.mark.promise("R97")
@pytest.mark.parametrize(("minimum", "preempts"), [(5, True), (4, False)], ids=["below", "at"])
def test_growth_beyond_the_minimum_preempts_nobody(minimum: int, preempts: bool) -> None:
    running = [member(number, minimum, node=f"n{number}", priority=10) for number in range(4)]
    lesser = gpu_pod("lesser", node="n4", priority=1)
    waiting = [member(number, minimum, priority=10) for number in (4, 5)]
    orders = Placing(Nodes(5, *running, lesser, *waiting), Settings()).one()
    assert [plan.preempts for plan in orders.plans] == ([True] if preempts else [])


@pytest.mark.promise("R97")
@pytest.mark.parametrize(("minimum", "holds"), [(5, True), (4, False)], ids=["below", "at"])
def test_growth_beyond_the_minimum_holds_no_node(minimum: int, holds: bool) -> None:
    """A node that becomes free is for the gang that asks, unless the gang does not run yet."""
    running = [member(number, minimum, node=f"n{number}") for number in range(4)]
    other = gpu_pod("other", node="n4")
    waiting = [member(number, minimum) for number in (4, 5)]
    placing = Placing(Nodes(5, *running, other, *waiting), Settings(reserve_seconds=0, preempt=False))
    placing.one()
    reserved = placing.reserved
    assert bool(reserved) == holds


@pytest.mark.promise("R97", "O97")
@pytest.mark.parametrize(("minimum", "is_undone"), [(3, False), (4, False), (5, True), (0, True)])
def test_what_runs_is_not_undone_for_the_rest_at_or_above_the_minimum(minimum: int, is_undone: bool) -> None:
    running = [member(number, minimum, node=f"n{number}") for number in range(4)]
    waiting = [member(number, minimum) for number in (4, 5)]
    (gang,) = gather(waiting, running, no_size)
    planned = [PlannedPod(pod.metadata.name, pod.metadata.uid, pod.spec.node_name) for pod in running]
    placement = Placement(metadata=Metadata(name="g"), spec=PlacementSpec(pods=planned))
    view = View(waiting, running, {}, {gang.key.placement_key: placement})
    settings = Settings(rollback_seconds=10)
    causes = {gang.key: Cause.INSUFFICIENT_CAPACITY}
    _, broken = partly_released({}, view, [gang], causes, frozenset(), settings, frozenset())
    later = dataclasses.replace(view, now=Moment(10))
    due, _ = partly_released(broken, later, [gang], causes, frozenset(), settings, frozenset())
    assert bool(due) == is_undone


@pytest.mark.parametrize(
    ("minimum", "bound", "expected"),
    [
        (3, 4, ("Bound", True)),
        (5, 4, ("Releasing", False)),
        (0, 4, ("Releasing", False)),
        (3, 3, ("Bound", False)),
    ],
    ids=["above", "below", "all are needed", "one is under way"],
)
def test_a_gang_at_its_minimum_is_reported_as_bound(
    minimum: int, bound: int, expected: tuple[str, bool]
) -> None:
    there = [member(number, minimum, node=f"n{number}" if number < bound else "") for number in range(4)]
    waiting = [member(number, minimum) for number in (4, 5)]
    (gang,) = gather(waiting, there, no_size)
    planned = [PlannedPod(pod.metadata.name, pod.metadata.uid, "n0") for pod in there]
    spec = PlacementSpec(gang="Gang/g", pods=planned, size=6, minimum=minimum)
    placement = Placement(metadata=Metadata(name=gang.key.placement_name, namespace="ns", uid="u"), spec=spec)
    api, copy = Answers(), Copy()
    copy.placements[gang.key.placement_key] = placement
    cache: Any = copy
    reporter = Reports(Pass(api, cache, Settings(), Metrics()))
    reporter.report(View(waiting, there, {}, copy.placements), [gang])
    (body,) = api.bodies
    assert (body["status"]["state"], body["status"].get("complete") or False) == expected
