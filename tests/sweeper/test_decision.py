"""What a pass decides: the same from the same values; and what is done of it after a defect or a refusal."""

import gc
import random
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from labeler.contract import keys
from labeler.contract.event_reasons import EventReason
from tests.sweeper.clock import Clock
from tests.sweeper.cluster import GPU, Nodes, Placing, gpu_pod, places
from tests.sweeper.empty_api import Empty
from tests.sweeper.pods import job_pod
from tests.sweeper.preemptions import Scene, plan
from webhook.configuration.settings import Settings
from webhook.kube.collection import Listing
from webhook.kube.objects import Metadata
from webhook.kube.placements import Placement, PlacementSpec
from webhook.kube.plan_pods import PlannedPod
from webhook.policy.values import Policy
from webhook.scheduling.budgets import Budgets
from webhook.sweeper import decision
from webhook.sweeper.apply.applier import Applier
from webhook.sweeper.context import Pass, Retries
from webhook.sweeper.decide import placement_pass
from webhook.sweeper.decide.attempt import Attempt, PassState, Stopwatch
from webhook.sweeper.decide.orders import Cause, Done, NewPlan, Orders
from webhook.sweeper.decide.placement_pass import PlacingMemory
from webhook.sweeper.decide.refusing_nodes import ApiRefusal
from webhook.sweeper.decide.reservations import STARVATION, ReservationInput, ReservationLedger, opened
from webhook.sweeper.decide.retries import RetryTable, Write
from webhook.sweeper.decision import STEPS, Decided, Memory, Observation, decide
from webhook.sweeper.metrics import PHASES
from webhook.sweeper.observe.cache import ClusterCache
from webhook.sweeper.observe.gangs import GangKey
from webhook.sweeper.sweep import SOON_SECONDS, Sweeper

SETTINGS = Settings(settle_seconds=0, reserve_share=1.0)


def observation_of(cluster: Nodes) -> Observation:
    """The input of a pass in which nothing is known of Jobs and budgets."""
    placing = Placing(cluster, SETTINGS)
    view = placing.view()
    snapshot = placing.snapshotter.snapshot(view)
    jobs = cast(Any, SimpleNamespace())
    watch = Stopwatch(Clock())
    return Observation(view, snapshot, placing.gangs(), 1, Budgets(), jobs, watch)


def decided_on(seen: Observation, memory: Memory) -> Decided:
    return decide(seen, memory, SETTINGS, lambda _: nullcontext())


def test_the_same_values_lead_to_the_same_orders_and_the_same_memory() -> None:
    seen = observation_of(Nodes(1, gpu_pod("a"), gpu_pod("b"), gpu_pod("c", gpus=2)))
    memory = Memory()
    first, second = (decided_on(seen, memory) for _ in range(2))
    assert places(first.orders["place"]) == {"a": "n0"}
    assert first.memory == second.memory != memory
    assert memory == Memory(), "what is given stays as it is"
    expected = (
        [(each.gang.key, each.reason) for each in one.orders["place"].outcomes] for one in (first, second)
    )
    assert next(expected) == next(expected)


def test_an_owner_gets_one_event_about_what_admission_warns_of() -> None:
    pod = job_pod(0, annotations={f"{keys.TOPOGATE_PREFIX}gangsize": "4"})
    seen = replace(observation_of(Nodes(1, pod)), policy=Policy())
    decided = decided_on(seen, Memory())
    expected = [warn.reason for orders in decided.to_apply for warn in orders.warnings]
    assert expected == [EventReason.MANIFEST_WARNING]
    again = decided_on(seen, decided.memory)
    assert not any(orders.warnings for orders in again.to_apply)


@pytest.mark.parametrize("broken", STEPS)
def test_a_defect_in_one_step_keeps_no_other_from_deciding(
    broken: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    reached: list[str] = []

    def step_of(name: str) -> Callable[[Observation, Decided], Decided]:
        def step(_: Observation, now: Decided) -> Decided:
            reached.append(name)
            if name == broken:
                raise RuntimeError("a defect")
            return now

        return step

    monkeypatch.setattr(decision, "STEPS", {name: step_of(name) for name in STEPS})
    decided = decide(observation_of(Nodes(1)), Memory(), SETTINGS, lambda _: suppress(RuntimeError))
    assert reached == list(STEPS)
    assert decided.failed == {broken}


@pytest.mark.parametrize("broken", [name for name in STEPS if name != "place"])
def test_a_defect_in_one_step_keeps_no_gang_from_its_place(
    broken: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else every gated pod of the cluster would wait, pass after pass."""

    def failing(_: Observation, __: Decided) -> Decided:
        raise RuntimeError("a defect")

    monkeypatch.setattr(decision, "STEPS", {**STEPS, broken: failing})
    seen = observation_of(Nodes(1, gpu_pod("a")))
    decided = decide(seen, Memory(), SETTINGS, lambda _: suppress(RuntimeError))
    assert decided.failed == {broken}
    assert places(decided.orders["place"]) == {"a": "n0"}


@pytest.mark.parametrize("steps", ["CHECKS", "STEPS"])
def test_a_defect_with_one_gang_keeps_no_other_from_its_place(
    steps: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(attempt: Attempt, _: PassState) -> Attempt:
        if attempt.gang.key.name == "a":
            raise RuntimeError("a defect")
        return attempt

    monkeypatch.setattr(placement_pass, steps, (failing, *getattr(placement_pass, steps)))
    decided = decided_on(observation_of(Nodes(2, gpu_pod("a"), gpu_pod("b"))), Memory())
    orders = decided.orders["place"]
    assert places(orders).keys() == {"b"}
    assert [(each.gang.key.name, each.cause) for each in orders.outcomes] == [("a", Cause.INTERNAL_ERROR)]


def test_what_waits_for_victims_is_not_released_though_nobody_knows_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def failing(_: Observation, __: Decided) -> Decided:
        raise RuntimeError("a defect")

    monkeypatch.setattr(decision, "STEPS", {**STEPS, "find-victims": failing})
    seen = observation_of(Scene().cluster)
    decided = decide(seen, Memory(), SETTINGS, lambda _: suppress(RuntimeError))
    assert decided.orders.get("release", Orders()).releases == ()


def test_where_gangs_are_not_known_what_was_promised_is_done_all_the_same() -> None:
    tried: list[str] = []

    @contextmanager
    def guarded(name: str) -> Iterator[None]:
        tried.append(name)
        yield

    decide(observation_of(Nodes(1)), Memory(), SETTINGS, guarded, are_gangs_known=False)
    assert tried == ["repair", "find-victims", "release"]


def with_release(decided: Decided) -> Decided:
    """In which a pod of an earlier plan is released as well."""
    pod = gpu_pod("earlier")
    releases = ((pod, PlannedPod("earlier", pod.metadata.uid, "n0")),)
    return replace(decided, orders={**decided.orders, "release": Orders(releases=releases)})


def test_a_gang_whose_release_has_just_been_refused_gets_no_plan_in_the_same_pass(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen = observation_of(Nodes(2, gpu_pod("a"), gpu_pod("b")))
    decided = decided_on(seen, Memory())
    assert places(decided.orders["place"]).keys() == {"a", "b"}
    decided = with_release(decided)
    (refused,) = (each.key for each in seen.gangs if each.key.name == "a")
    written: list[str] = []

    def carry_out(_: Applier, order: NewPlan, *__: object) -> Done:
        written.append(order.gang.key.name)
        return Done(placed=(order,))

    monkeypatch.setattr(Applier, "_release", lambda *_: Done(refused=(ApiRefusal(refused),)))
    monkeypatch.setattr(Applier, "_carry_out", carry_out)
    sweeper = Sweeper(Pass(Empty(), ClusterCache(Empty()), SETTINGS))
    try:
        retries = Retries(sweeper._pass, RetryTable())
        due = sweeper._apply(decided, seen.view, retries)
    finally:
        sweeper.close()
    assert written == ["b"]
    assert due == SOON_SECONDS
    assert retries.seconds_left((Write.GANG, refused)) > 0


@pytest.mark.parametrize("is_remembered", [True, False])
def test_a_plan_that_was_given_up_takes_the_node_from_no_gang_that_has_got_it_since(
    is_remembered: bool,
) -> None:
    """Else both would be given up in each pass, and the gang be planned again without end.

    A process that has just begun gives up both, once.
    """
    pods = [gpu_pod(name, metadata={"namespace": "ns", "uid": name}) for name in ("old", "new")]
    cache = ClusterCache(Empty())
    cache.nodes._replace(Listing("1", Nodes(1).nodes))
    cache.pods._replace(Listing("1", {f"ns/{pod.metadata.name}": pod for pod in pods}))
    plans = dict(plan(pod.metadata.name, {pod.metadata.uid: "n0"}) for pod in pods)
    cache.placements._replace(Listing("1", plans))
    sweeper = Sweeper(Pass(Empty(), cache, SETTINGS))
    try:
        sweeper._memory = Memory(given_up=frozenset({"old"} if is_remembered else ()))
        planned = set(sweeper._observe().view.planned)
        given_up = sweeper._memory.given_up
    finally:
        sweeper.close()
        cache.stop()
    assert planned == ({"new"} if is_remembered else set[str]())
    assert given_up == {"old", "new"} - planned


def test_a_plan_that_was_given_up_does_not_count_when_another_is_checked_again() -> None:
    """As where the cluster changes in each pass: its gang would never get another plan."""
    pod = gpu_pod("old", metadata={"namespace": "ns", "uid": "old"})
    cache = ClusterCache(Empty())
    cache.nodes._replace(Listing("1", Nodes(1).nodes))
    cache.pods._replace(Listing("1", {"ns/old": pod}))
    cache.placements._replace(Listing("1", dict([plan("old", {"old": "n0"})])))
    sweeper = Sweeper(Pass(Empty(), cache, SETTINGS))
    try:
        sweeper._memory = Memory(given_up=frozenset({"old"}))
        seen = sweeper._observe()
        decided = decided_on(replace(seen, gangs=sweeper._gather(seen.view)), sweeper._memory)
        (order,) = decided.orders["place"].plans
        assert sweeper._applier._fault(order, seen.view) == ""
    finally:
        sweeper.close()
        cache.stop()


def test_a_plan_that_is_written_again_is_given_up_no_more() -> None:
    seen = observation_of(Nodes(1, gpu_pod("a")))
    decided = decided_on(seen, Memory(given_up=frozenset({"uid-a", "uid-b"})))
    assert decided.memory.given_up == {"uid-a", "uid-b"}
    done = Done(placed=decided.orders["place"].plans)
    assert decided.memory.after(done, seen.view, seen.view.now).given_up == {"uid-b"}


def refuse_release(gang: GangKey, orders: Orders) -> Done:
    """Its plan is dropped, as the API server refuses to release another pod of it."""
    return Done() if orders.plans else Done(refused=(ApiRefusal(gang),))


def refuse_plan(gang: GangKey, orders: Orders) -> Done:
    return Done(refused=(ApiRefusal(gang),)) if orders.plans else Done()


def write_nothing(_: GangKey, __: Orders) -> Done:
    raise RuntimeError("a defect")


def write_plan(_: GangKey, orders: Orders) -> Done:
    return Done(placed=orders.plans)


@pytest.mark.parametrize(
    ("becomes", "nodes"),
    [
        (refuse_release, {"n0", "n1"}),
        (refuse_plan, {"n0", "n1"}),
        (write_nothing, {"n0", "n1"}),
        (write_plan, frozenset()),
    ],
)
def test_what_is_reserved_for_a_starving_gang_stays_reserved_until_its_plan_is_written(
    becomes: Callable[[GangKey, Orders], Done], nodes: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else smaller gangs would take the nodes during the pause that follows a refusal."""
    seen = observation_of(Nodes(2, gpu_pod("a")))
    (gang,) = (each.key for each in seen.gangs)
    ledger = opened(ReservationInput(ReservationLedger(), seen.gangs, seen.view), (), SETTINGS)
    memory = Memory(placing=PlacingMemory(ledger=ledger.reserve(gang, ("n0", "n1"))))
    decided = decided_on(seen, memory)
    assert places(decided.orders["place"]).keys() == {"a"}
    decided = with_release(decided)
    monkeypatch.setattr(Applier, "apply", lambda _, orders, *__: becomes(gang, orders))
    sweeper = Sweeper(Pass(Empty(), ClusterCache(Empty()), SETTINGS))
    try:
        sweeper._memory = decided.memory
        sweeper._apply(decided, seen.view, Retries(sweeper._pass, RetryTable()))
    finally:
        sweeper.close()
    assert sweeper._memory.placing.ledger.nodes(STARVATION) == nodes


def test_what_is_reserved_is_free_again_once_the_gang_proves_to_be_planned() -> None:
    """As after a write of its plan to which nobody answered."""
    cluster = Nodes(2, gpu_pod("a"))
    passes = Placing(cluster, SETTINGS)
    plan = passes.one().plans[0]
    passes.reserve(plan.gang.key, ("n0", "n1"))
    assert passes.reserved == {"n0", "n1"}
    metadata = Metadata(namespace="ns", name=plan.gang.key.placement_name)
    placement = Placement(metadata=metadata, spec=PlacementSpec(size=1, pods=list(plan.entries)))
    cluster.placements = {placement.key: placement}
    passes.one()
    assert passes.reserved == frozenset()


def test_all_that_a_pass_has_made_is_freed_at_once_when_the_pass_is_over() -> None:
    """Python's collector hardly runs (see lasting), so a cycle would keep the whole view for long."""
    gc.collect()
    gc.disable()
    try:
        seen = observation_of(Nodes(1, gpu_pod("a"), gpu_pod("b", gpus=2)))
        decided = decided_on(seen, Memory())
        view, state, memory = weakref.ref(seen.view), weakref.ref(decided.state or decided), decided.memory
        del seen, decided
        assert (view(), state()) == (None, None)
        assert memory.placing.gangs
    finally:
        gc.enable()


@pytest.mark.parametrize("seed", range(4))
def test_a_pass_without_memory_places_the_same_gangs_on_the_same_nodes(seed: int) -> None:
    """As another leader does, or the same one after a restart."""
    dice = random.Random(seed)
    cluster = Nodes(4, gpus=4)
    memory = Memory()
    for number in range(6):
        cluster.pods = [pod for pod in cluster.pods if not pod.spec.node_name or dice.random() < 0.7]
        cluster.pods += [gpu_pod(f"p{number}{each}", gpus=dice.randint(1, 5)) for each in "abc"]
        seen = replace(observation_of(cluster), usage_version=number, freed_version=number)
        remembers, forgets = (decided_on(seen, known) for known in (memory, Memory()))
        placed = places(remembers.orders["place"])
        assert placed == places(forgets.orders["place"])
        memory = remembers.memory
        cluster.pods = [
            gpu_pod(name, gpus=int(pod.spec.containers[0].resources.requests[GPU]), node=placed[name])
            if (name := pod.metadata.name) in placed
            else pod
            for pod in cluster.pods
        ]


def test_the_metric_of_a_pass_has_each_step_from_the_start() -> None:
    assert set(STEPS) <= set(PHASES)
