"""Gangs of which a part is released and the rest finds no place: when that part is deleted, as a whole."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from itertools import chain
from typing import Any, Final

import pytest

from labeler.contract import keys
from tests.sweeper.clock import Clock
from tests.sweeper.cluster import Placing, gpu_pod
from tests.sweeper.preemptions import member, plan
from tests.sweeper.repairs import GANG, NODE, SETTINGS, Repairs, job_with
from tests.sweeper.subblocks import REQUIRED, subblocks
from webhook.configuration.settings import Settings
from webhook.kube.objects import Metadata, Pod
from webhook.kube.placements import Placement, PlacementSpec
from webhook.kube.plan_pods import PlannedPod
from webhook.scheduling.budgets import Budgets
from webhook.sweeper.decide.attempt import Stopwatch
from webhook.sweeper.decide.orders import NO_PLACE_FOUND, Cause, Done, Orders
from webhook.sweeper.decide.reservations import ReservationLedger
from webhook.sweeper.decide.retries import RetryTable, Wait, Write
from webhook.sweeper.decision import Memory, Observation, decide
from webhook.sweeper.observe.gangs import OwnerFacts, PodGang, gather
from webhook.sweeper.observe.view import Moment, View
from webhook.sweeper.repair.repair import roll_back


class GoingBack:
    """A gang of a Job of which one pod runs and one waits, from second 0 on."""

    def __init__(self) -> None:
        self.view, self.gang = partly_released()
        self.clock = Clock()
        self.repairs = Repairs()
        self.at(0, "")

    def at(
        self, second: float, place_again: str, cause: Cause | None = Cause.INSUFFICIENT_CAPACITY
    ) -> Orders:
        """What a pass orders in that second. cause: why the gang waits."""
        self.clock.now = second
        return rolled_back(self.repairs, self.view, [self.gang], lambda _: place_again, self.clock, cause)

    def on_result(self, done: Done) -> None:
        self.repairs.on_result(done, self.clock.now)


def rolled_back(
    repairs: Repairs,
    view: View,
    gangs: Sequence[PodGang],
    place_again: Callable[[PodGang], str],
    clock: Clock,
    cause: Cause | None = Cause.INSUFFICIENT_CAPACITY,
) -> Orders:
    """What a pass orders.

    place_again: where a gang finds capacity once its released part is gone. cause: why all of them wait.
    """
    causes = {gang.key: cause for gang in gangs if cause is not None}
    orders, repairs.memory, _ = roll_back(
        replace(view, now=Moment(clock.now)), gangs, causes, frozenset(), repairs.memory, repairs.allowance,
        SETTINGS, frozenset(), ReservationLedger(), lambda gang, _, ledger: (place_again(gang), ledger),
        clock,
    )  # fmt: skip
    return orders


def partly_released() -> tuple[View, PodGang]:
    """What is seen of it."""
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "j", "controller": True}
    metadata = {**GANG, "ownerReferences": [owner]}
    running = gpu_pod("a", node="n1", metadata=metadata)
    waiting = gpu_pod("b", metadata=metadata)
    (gang,) = gather([waiting], [running], lambda _: OwnerFacts(2))
    placement = Placement(
        metadata=Metadata(namespace="ns", name=gang.key.placement_name),
        spec=PlacementSpec(size=2, pods=[PlannedPod("a", "uid-a", "n1")]),
    )
    return View([waiting], [running], {"n1": NODE}, {gang.key.placement_key: placement}), gang


@pytest.mark.promise("O97")
@pytest.mark.parametrize(("place_again", "gone"), [("", []), ("1 block, 2 nodes", ["a"])])
def test_a_running_pod_is_deleted_for_its_gang_s_size_only_where_all_of_the_gang_then_fits(
    place_again: str, gone: list[str]
) -> None:
    evictions = GoingBack().at(50, place_again).evictions
    assert [each.pod.metadata.name for each in evictions] == gone
    assert all(each.may_run for each in evictions)


_CONTINUES = {*NO_PLACE_FOUND, Cause.INVALID_REQUEST, Cause.INCOMPLETE, Cause.INTERNAL_ERROR}


@pytest.mark.parametrize("cause", [*Cause, None])
def test_the_time_of_a_gang_ends_with_its_wait_for_a_place_but_not_by_a_moment_without_an_answer(
    cause: Cause | None,
) -> None:
    """As where its place was taken before its plan was written, or where its quota is used up meanwhile."""
    scene = GoingBack()
    assert not scene.at(30, "1 block", cause).evictions
    assert bool(scene.at(50, "1 block").evictions) is (cause in _CONTINUES)


@pytest.mark.parametrize("cause", sorted(set(Cause) - NO_PLACE_FOUND - {Cause.INVALID_REQUEST}))
def test_a_gang_is_not_recreated_for_pods_that_do_not_wait_for_a_place(cause: Cause) -> None:
    scene = GoingBack()
    assert not scene.at(50, "1 block", cause).evictions


def four_partly_released() -> tuple[View, list[PodGang]]:
    """Four gangs, each of a Job of its own, of which one pod runs and one waits."""
    pods: list[Pod] = []
    plans: dict[str, Placement] = {}
    for name in "abcd":
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": name, "controller": True}
        metadata = {"annotations": {"topogate.io/gang": name}, "ownerReferences": [owner]}
        members = gpu_pod(name, node="n1", metadata=metadata), gpu_pod(f"{name}{name}", metadata=metadata)
        pods += members
        (gang,) = gather(members[1:], members[:1], lambda _: OwnerFacts(2))
        spec = PlacementSpec(size=2, pods=[PlannedPod(name, f"uid-{name}", "n1")])
        plans[gang.key.placement_key] = Placement(metadata=Metadata(), spec=spec)
    view = View(pods[1::2], pods[::2], {"n1": NODE}, plans)
    return view, gather(view.gated, view.others, lambda _: OwnerFacts(2))


@pytest.mark.promise("I60")
def test_gangs_that_a_pass_has_no_time_for_are_the_next_ones_to_be_recreated() -> None:
    view, gangs = four_partly_released()
    clock, repairs = Clock(), Repairs()
    asked: list[str] = []

    def place_again(gang: PodGang) -> str:
        asked.append(gang.key.name)
        clock.now += SETTINGS.pass_seconds / 2
        return ""

    for clock.now in (0, 50, 61):
        rolled_back(repairs, view, gangs, place_again, clock)
    assert asked == ["a", "b", "c", "d"]


def test_a_gang_without_an_answer_on_its_new_place_stops_no_other_from_being_recreated() -> None:
    view, gangs = four_partly_released()
    clock, repairs = Clock(), Repairs()

    def place_again(gang: PodGang) -> str:
        if gang.key.name == "b":
            raise RuntimeError("a defect")
        return "1 block"

    rolled_back(repairs, view, gangs, place_again, clock)
    clock.now = 50
    orders = rolled_back(repairs, view, gangs, place_again, clock)
    assert [order.pod.metadata.name for order in orders.evictions] == ["a", "c", "d"]


@pytest.mark.parametrize(("then", "order"), [("1 block", True), ("", False)], ids=["room", "none yet"])
def test_what_could_not_be_deleted_of_a_gang_that_is_recreated_is_deleted_as_soon_as_it_can(
    then: str, order: bool
) -> None:
    scene = GoingBack()
    scene.on_result(Done(deferred=scene.at(50, "1 block").evictions))
    assert bool(scene.at(51, then).evictions) is order
    if not order:
        assert scene.at(52, "1 block").evictions, "it is not asked only after another time"


def test_a_part_that_is_gone_by_itself_is_forgotten_so_that_another_waits_for_its_own_time() -> None:
    scene = GoingBack()
    scene.on_result(Done(deferred=scene.at(50, "1 block").evictions))
    partly_released_view, scene.view = scene.view, View([scene.gang.gated[0]], [], {"n1": NODE}, {})
    scene.at(51, "")
    scene.view = partly_released_view
    for second in (52, 103):
        assert not scene.at(second, "").evictions
    assert not scene.at(104, "1 block").evictions


def test_a_gang_whose_deletions_were_refused_for_good_waits_for_its_time_again() -> None:
    scene = GoingBack()
    scene.on_result(Done(denied=scene.at(50, "1 block").evictions))
    assert not scene.at(51, "1 block").evictions


def test_a_gang_with_unconfirmed_deletions_is_recreated_in_the_next_pass() -> None:
    """As after a defect: half of it may have gone."""
    scene = GoingBack()
    assert scene.at(50, "1 block").evictions
    assert scene.at(51, "1 block").evictions


# --- whether it helps ---------------------------------------------------------------------------------

WAITS_SECONDS: Final = 100
KUEUE: Final = {"name": "kueue.x-k8s.io/admission"}


def _pinned_to(node: str) -> dict[str, Any]:
    terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}]
    return {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}}


class Passes:
    """Passes on a gang that needs one subblock: its pods but one run, on a node each, and the last is gated.

    The whole gang would fit into the last subblock. gates: further ones of the last pod. sizes: of the
    subblocks, in nodes. running: the nodes of the other pods.
    """

    def __init__(
        self,
        gates: Sequence[dict[str, str]] = (),
        sizes: Sequence[int] = (1, 2),
        running: Sequence[str] = ("n0",),
    ) -> None:
        metadata = {"annotations": {keys.REQUIRED_TOPOLOGY_ANNOTATION: "subblock"}}
        cluster = subblocks(*sizes)
        cluster.pods = [
            *(
                member("big", index, node, affinity=_pinned_to(node), metadata=metadata)
                for index, node in enumerate(running)
            ),
            member("big", len(running), schedulingGates=[{"name": keys.GATE}, *gates], metadata=metadata),
        ]
        self.settings = Settings(settle_seconds=0, rollback_seconds=WAITS_SECONDS)
        self.placing = Placing(cluster, self.settings)
        (self.gang,) = self.placing.gangs()
        _, placement = plan("big", {f"ns-big-{index}": node for index, node in enumerate(running)})
        cluster.placements = {self.gang.key.placement_key: placement}
        self.memory = Memory()

    def at(self, second: float) -> list[str]:
        """The pods that a pass deletes in that second."""
        self.placing.clock.now = second
        view = self.placing.view()
        seen = Observation(
            view, self.placing.snapshotter.snapshot(view), self.placing.gangs(), 1, Budgets(), job_with(),
            Stopwatch(self.placing.clock),
        )  # fmt: skip
        decided = decide(seen, self.memory, self.settings, lambda _: nullcontext())
        self.memory = decided.memory
        for orders in decided.to_apply:
            self.memory = replace(self.memory, report=self.memory.report.after(orders, second))
        return [each.pod.metadata.name for each in decided.evictions]

    def refuse_until(self, second: float) -> None:
        """The API server has refused the gang: no pass asks about it before then."""
        refused = RetryTable({(Write.GANG, self.gang.key): Wait(1, second)})
        self.memory = replace(self.memory, retries=refused)


def at_all(passes: Passes, seconds: Iterator[int]) -> list[str]:
    return list(chain.from_iterable(map(passes.at, seconds)))


@pytest.mark.promise("O97")
def test_a_gang_whose_rest_finds_no_place_is_recreated_where_all_of_it_fits() -> None:
    passes = Passes()
    assert passes.at(0) == []
    assert passes.at(WAITS_SECONDS) == ["big-0"]


@pytest.mark.promise("O97")
def test_a_running_pod_is_not_deleted_for_others_that_wait_for_a_gate_of_another_controller() -> None:
    assert at_all(Passes([KUEUE]), iter(range(0, 10 * WAITS_SECONDS, WAITS_SECONDS))) == []


@pytest.mark.promise("O97")
def test_a_running_pod_is_not_deleted_while_its_gang_is_not_asked_about() -> None:
    passes = Passes()
    passes.refuse_until(5 * WAITS_SECONDS)
    assert at_all(passes, iter(range(0, 5 * WAITS_SECONDS, WAITS_SECONDS))) == []


def test_the_time_of_a_gang_continues_while_it_is_not_asked_about() -> None:
    passes = Passes()
    passes.at(0)
    passes.refuse_until(WAITS_SECONDS + 1)
    assert passes.at(WAITS_SECONDS) == []
    assert passes.at(WAITS_SECONDS + 1) == ["big-0"]


def test_a_gang_whose_pods_lie_in_two_domains_is_recreated_in_one() -> None:
    """Its request can be met nowhere beside them, which is reported as an invalid request."""
    passes = Passes(sizes=(1, 1, 3), running=("n0", "n1"))
    assert passes.at(0) == []
    assert passes.at(WAITS_SECONDS) == ["big-0", "big-1"]
