"""What plans keep for the next stage of their gangs: from whom, and for how long."""

from collections.abc import Callable, Set
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from tests.sweeper.clock import Clock
from tests.sweeper.cluster import Nodes, Placing, gpu_pod
from tests.sweeper.pods import decode, gather_all, job_pod, pod_json
from webhook.configuration.settings import Settings
from webhook.kube.objects import Metadata, Node, NodeMetadata, Pod
from webhook.kube.placements import Placement, PlacementSpec
from webhook.kube.plan_pods import PlannedPod
from webhook.sweeper.decide.node_rules import nodes_of
from webhook.sweeper.decide.reservation_kinds import LATER_STAGES
from webhook.sweeper.decide.reservations import (
    Cooldown,
    Reservation,
    ReservationInput,
    ReservationKind,
    ReservationLedger,
    ReservationSource,
    opened,
)
from webhook.sweeper.observe.gangs import PodGang
from webhook.sweeper.observe.view import Moment, View

SETTINGS = Settings(reserve_share=1.0)
NODES = {f"n{number}": Node(metadata=NodeMetadata(name=f"n{number}")) for number in range(4)}
STARTING = decode(pod_json("leader", schedulingGates=[], priority=5))
LEADER = decode({**pod_json("leader", schedulingGates=[], priority=5), "status": {"phase": "Running"}})


def seen(
    *pods: Pod,
    stages: int = 1,
    key: str = "ns/job-other",
    leader: str = "leader",
    plan: str = "plan",
    usable: int = 0,
) -> View:
    """A plan for the leader (and pods of later stages) that keeps two nodes, and these pods."""
    planned = [PlannedPod(f"p{stage}", f"uid-of-stage-{stage}", "n0") for stage in range(1, stages)]
    planned = [*planned, PlannedPod(leader, f"uid-{leader}", "n0")]
    metadata = Metadata(name="job-other", namespace="ns", uid=plan)
    placement = Placement(
        metadata=metadata, spec=PlacementSpec(pods=planned, later_pod_nodes=["n1", "n2"], usable_nodes=usable)
    )
    return View([], list(pods), NODES, {key: placement})


OTHER = ReservationKind("other", "held for others")


class PlanPasses:
    """The ledger of passes that see only plans."""

    def __init__(self, settings: Settings, clock: Clock, now: Callable[[], datetime] | None = None) -> None:
        self.ledger, self.settings = ReservationLedger(settings), settings
        self.clock, self.now = clock, now or (lambda: datetime.now(UTC))

    def observe(
        self,
        view: View,
        reserved: Set[str] = frozenset(),
        gang: str = "ns/other",
        created: Set[str] = frozenset(),
    ) -> None:
        """Another pass. reserved: nodes that are reserved in another way; created: of these, for the gang."""
        moment = Moment(self.clock.now, self.now())
        other = Reservation(
            OTHER, gang, frozenset(reserved), 0.0, 1.0, moment.at, beyond_share=frozenset(created)
        )
        sources = [ReservationSource(OTHER, lambda _: [other]), LATER_STAGES]
        view = replace(view, now=moment)
        self.ledger = opened(ReservationInput(self.ledger, [], view), sources, self.settings)

    @property
    def nodes(self) -> frozenset[str]:
        return self.ledger.nodes() - self.ledger.nodes(OTHER)


def nodes_before(passes: PlanPasses, gang: PodGang) -> frozenset[str]:
    return nodes_of(passes.ledger.rules(gang, gang.gated, seen()))


def waiting(priority: int) -> PodGang:
    (gang,) = gather_all(decode(pod_json("small", priority=priority)))
    return gang


@pytest.mark.parametrize(("priority", "is_excluded"), [(4, True), (5, True), (6, False)])
def test_nodes_are_reserved_against_gangs_that_are_not_more_important(
    priority: int, is_excluded: bool
) -> None:
    passes = PlanPasses(SETTINGS, Clock())
    passes.observe(seen(LEADER))
    assert nodes_before(passes, waiting(priority)) == ({"n1", "n2"} if is_excluded else frozenset())


def test_a_gang_is_not_excluded_from_its_own_nodes() -> None:
    (own,) = gather_all(job_pod(1))
    passes = PlanPasses(SETTINGS, Clock())
    passes.observe(seen(LEADER, key=own.key.placement_key))
    assert nodes_before(passes, own) == frozenset()
    assert nodes_before(passes, waiting(0)) == {"n1", "n2"}


def test_a_plan_none_of_whose_pods_is_there_keeps_nothing() -> None:
    passes = PlanPasses(SETTINGS, Clock())
    passes.observe(seen())
    assert nodes_before(passes, waiting(0)) == frozenset()


@pytest.mark.promise("R73")
def test_a_reservation_ends_in_time_and_starts_again_with_each_stage() -> None:
    clock = Clock()
    passes = PlanPasses(SETTINGS, clock)
    passes.observe(seen(LEADER))
    clock.now += SETTINGS.reserve_hold_seconds
    passes.observe(seen(LEADER))
    assert nodes_before(passes, waiting(0)) == frozenset()
    passes.observe(seen(LEADER, stages=2))
    assert nodes_before(passes, waiting(0)) == {"n1", "n2"}


@pytest.mark.promise("R73")
def test_no_more_nodes_are_reserved_than_the_operator_allows() -> None:
    passes = PlanPasses(Settings(reserve_share=0.25), Clock())
    passes.observe(seen(LEADER))
    assert passes.nodes == {"n1"}


@pytest.mark.promise("R73")
def test_nodes_that_gangs_hold_which_have_waited_long_count_as_well() -> None:
    passes = PlanPasses(Settings(reserve_share=0.5), Clock())
    passes.observe(seen(LEADER), reserved={"n3"})
    assert passes.nodes == {"n1"}
    passes.observe(seen(LEADER), reserved={"n0", "n3"})
    assert passes.nodes == frozenset()


@pytest.mark.parametrize(("gang", "nodes"), [("ns/job-other", {"n1", "n2"}), ("ns/other", {"n1"})])
def test_a_node_that_was_created_for_a_gang_counts_against_no_share_of_its_plan(
    gang: str, nodes: set[str]
) -> None:
    passes = PlanPasses(Settings(reserve_share=0.25), Clock())
    passes.observe(seen(LEADER), reserved={"n2"}, gang=gang, created={"n2"})
    passes.observe(seen(LEADER), gang=gang)
    assert passes.nodes == nodes
    passes.observe(seen(LEADER), gang=gang)
    assert passes.nodes == nodes, "nor later, when its plan alone names it"


def test_nodes_that_fail_take_no_reserved_node_from_who_has_begun() -> None:
    """Nor does another leader, which has not seen those nodes."""
    view = seen(LEADER, usable=4)
    view = replace(view, nodes={name: node for name, node in NODES.items() if name != "n3"})
    passes = PlanPasses(Settings(reserve_share=0.5), Clock())
    passes.observe(view)
    assert passes.nodes == {"n1", "n2"}
    passes.observe(seen(LEADER, usable=4), reserved={"n3"})
    assert passes.nodes == {"n1"}, "and no more than were held in all"


def test_the_sentence_on_reserved_nodes_changes_with_their_stage_alone() -> None:
    """Else the status of the gang would be written in every pass."""
    clock, days = Clock(), iter(range(1, 10))
    passes = PlanPasses(SETTINGS, clock, now=lambda: datetime(2026, 1, next(days), tzinfo=UTC))

    def reservation_at(stages: int) -> Reservation:
        passes.observe(seen(LEADER, stages=stages))
        (reserved,) = passes.ledger.by_gang().values()
        return reserved

    first = reservation_at(1)
    clock.now += 1
    assert first.nodes == {"n1", "n2"}
    assert reservation_at(1) == first
    assert reservation_at(2).ends > first.ends


def test_a_leader_that_is_recreated_begins_no_stage() -> None:
    clock = Clock()
    passes = PlanPasses(SETTINGS, clock)
    passes.observe(seen(LEADER))
    clock.now += SETTINGS.reserve_hold_seconds
    passes.observe(seen(decode(pod_json("second", schedulingGates=[])), leader="second"))
    assert passes.nodes == frozenset()


@pytest.mark.parametrize("meanwhile", ["in time", "too long"])
def test_an_unused_reservation_is_not_repeated_for_as_long(meanwhile: str) -> None:
    clock = Clock()
    passes = PlanPasses(SETTINGS, clock)
    passes.observe(seen(LEADER))
    seconds = SETTINGS.reserve_hold_seconds if meanwhile == "too long" else 60
    clock.now += seconds
    passes.observe(seen() if meanwhile == "in time" else seen(LEADER))
    assert passes.nodes == frozenset()
    clock.now += seconds - 1
    passes.observe(seen(LEADER, plan="another"))
    assert passes.nodes == frozenset()
    clock.now += 1
    passes.observe(seen(LEADER, plan="another"))
    assert passes.nodes == {"n1", "n2"}


def test_a_used_reservation_needs_no_cooldown() -> None:
    clock = Clock()
    passes = PlanPasses(SETTINGS, clock)
    passes.observe(seen(LEADER))
    clock.now += 60
    used = PlacementSpec(pods=[PlannedPod("leader", "uid-leader", "n0"), PlannedPod("w", "uid-w", "n1")])
    passes.observe(
        View([], [LEADER], NODES, {"ns/job-other": Placement(metadata=Metadata(uid="plan"), spec=used)})
    )
    passes.observe(seen(LEADER, plan="another"))
    assert passes.nodes == {"n1"}


def test_no_stage_begins_before_the_pods_of_the_earlier_ones_ran() -> None:
    clock = Clock()
    passes = PlanPasses(SETTINGS, clock)
    passes.observe(seen(STARTING))
    clock.now += SETTINGS.reserve_hold_seconds
    passes.observe(seen(STARTING, stages=2))
    assert passes.nodes == frozenset()
    passes.observe(seen(LEADER, stages=2))
    assert passes.nodes == {"n1", "n2"}


@pytest.mark.promise("R73")
def test_whatever_stages_come_a_plan_keeps_nodes_for_one_hold_more_than_it_keeps_nodes() -> None:
    clock = Clock()
    passes = PlanPasses(SETTINGS, clock)
    hold, keeps = SETTINGS.reserve_hold_seconds, []
    stages: list[Pod] = []
    for number in range(1, 6):
        metadata = {"uid": f"uid-of-stage-{number}"}
        running = pod_json(f"p{number}", schedulingGates=[], metadata=metadata) | {
            "status": {"phase": "Running"}
        }
        passes.observe(seen(LEADER, *stages, stages=number))
        stages.append(decode(running))
        clock.now += hold - 1
        passes.observe(seen(LEADER, *stages, stages=number))
        keeps.append(bool(passes.nodes))
    assert keeps == [True, True, True, False, False]
    clock.now += 3 * hold
    passes.observe(seen(LEADER, *stages, stages=6))
    assert passes.nodes, "after as long a rest it may keep some again"


def test_unused_reservations_of_gangs_that_waited_are_not_repeated_for_later_stages_either() -> None:
    clock = Clock()
    passes = PlanPasses(SETTINGS, clock)
    clock.now = 60
    passes.ledger = replace(passes.ledger, cooldowns={"n1": Cooldown("a gang", 120)})
    passes.observe(seen(LEADER))
    assert passes.nodes == {"n2"}
    clock.now = 120
    passes.observe(seen(LEADER))
    assert passes.nodes == {"n1", "n2"}


@pytest.mark.promise("R73")
def test_an_unused_reservation_is_not_taken_by_a_gang_that_waits() -> None:
    busy = gpu_pod("busy", node="n3")
    metadata = {
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "annotations": {"topogate.io/gang": "big", "topogate.io/gang-size": "4"},
    }
    case = Placing(Nodes(4, busy, *(gpu_pod(f"big-{n}", metadata=metadata) for n in range(4))), SETTINGS)
    cooling = replace(case.ledger, cooldowns={"n1": Cooldown("plan", 60)})
    case.memory = replace(case.memory, ledger=cooling)
    case.one()
    assert not case.reserved
    case.clock.now = 60
    case.one()
    assert case.reserved == {"n0", "n1", "n2", "n3"}


@pytest.mark.promise("R73")
@pytest.mark.parametrize(("priority", "is_excluded"), [(1, True), (2, False)])
def test_nodes_are_reserved_with_the_priority_of_those_that_ask_for_devices(
    priority: int, is_excluded: bool
) -> None:
    """A pod of no GPU and a high class lends it to nobody."""
    worker = gpu_pod("p1", node="n0", priority=1, metadata={"uid": "uid-of-stage-1"})
    passes = PlanPasses(SETTINGS, Clock())
    passes.observe(seen(LEADER, worker, stages=2))
    assert bool(nodes_before(passes, waiting(priority))) is is_excluded


def test_pods_of_another_namespace_are_none_of_a_plan_s() -> None:
    passes = PlanPasses(SETTINGS, Clock())
    passes.observe(seen(decode(pod_json("leader", schedulingGates=[], metadata={"namespace": "theirs"}))))
    assert not passes.nodes
