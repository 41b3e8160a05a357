"""When a gang that does not fit holds nodes for itself, which, and for how long."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from tests.sweeper.clock import Clock
from tests.sweeper.pods import decode, job_pod, pod_json
from tests.sweeper.readings import Cluster
from webhook.configuration.settings import Settings
from webhook.kube.objects import Node, Pod, SchedulingGate
from webhook.sweeper.decide.gang_question import question
from webhook.sweeper.decide.reservation_kinds import reserve_for_starving
from webhook.sweeper.decide.reservations import (
    STARVATION,
    Reservation,
    ReservationInput,
    ReservationLedger,
    opened,
)
from webhook.sweeper.observe.gangs import OwnerFacts, gather
from webhook.sweeper.observe.plans import seconds_waited
from webhook.sweeper.observe.snapshotter import Snapshotter
from webhook.sweeper.observe.view import Moment

GPU = "nvidia.com/gpu"
HOLD = 1800.0


class TwoNodes(Cluster):
    """Nodes n1 and n2 with one GPU each, and some pods."""

    def node_items(self) -> dict[str, Node]:
        status = {"allocatable": {GPU: "1", "pods": "110"}}
        return {
            name: msgspec.convert({"metadata": {"name": name, "uid": name}, "status": status}, Node)
            for name in self.nodes
        }


def with_gpu(pod: Pod, **spec: Any) -> Pod:
    body = msgspec.to_builtins(pod)
    container = {"name": "c", "resources": {"limits": {GPU: "1"}, "requests": {GPU: "1"}}}
    return decode({**body, "spec": {**body["spec"], "containers": [container], **spec}})


def running(name: str, node: str, kind: str = "batch/v1 Job") -> Pod:
    """A bound pod of one GPU, made by a controller of some kind."""
    version, _, kind = kind.rpartition(" ")
    owner = {"apiVersion": version, "kind": kind, "name": "o", "uid": "o", "controller": True}
    pod = decode(pod_json(name, metadata={"ownerReferences": [owner]}))
    return with_gpu(pod, nodeName=node, schedulingGates=[])


class Case:
    """A waiting gang of two pods and a cluster in which it does not fit."""

    def __init__(self, *running_pods: Pod, share: float = 1.0, **metadata: str) -> None:
        """metadata: of the waiting pods."""
        waiting = [with_gpu(job_pod(index, **metadata)) for index in range(2)]
        settings = Settings(reserve_seconds=60, reserve_hold_seconds=HOLD, reserve_share=share)
        snapshotter = Snapshotter(TwoNodes(*waiting, *running_pods), settings)
        self.view = snapshotter.view()
        self.snapshot = snapshotter.snapshot(self.view)
        (self.gang,) = gather(self.view.gated, self.view.others, lambda _key: OwnerFacts(2))
        self.asked = question(self.gang, waiting, {})
        self.clock = Clock()
        self.ledger = ReservationLedger(settings)
        self.open()

    def open(self) -> None:
        """Another pass begins."""
        view = replace(self.view, now=Moment(self.clock.now, datetime.now(UTC)))
        self.ledger = opened(
            ReservationInput(self.ledger, [self.gang], view, self.snapshot), (), self.ledger.settings
        )

    def reserved(self) -> frozenset[str]:
        """What is reserved for the gang after another try."""
        self.open()
        self.ledger = reserve_for_starving(self.ledger, self.gang, [self.asked], self.snapshot, self.view)
        return self.ledger.of(self.gang.key.placement_key)

    def reserve(self, *nodes: str) -> Reservation:
        """Reserve these for the gang."""
        moment = Moment(self.clock.now, datetime.now(UTC))
        self.ledger = replace(self.ledger, now=moment).reserve(self.gang.key, nodes)
        (found,) = self.ledger.of_kind(STARVATION)
        return found


@pytest.mark.promise("O99")
def test_a_gang_that_has_waited_holds_the_nodes_that_become_free_for_it() -> None:
    assert Case(running("busy", "n2")).reserved() == {"n1", "n2"}


@pytest.mark.promise("O99")
@pytest.mark.parametrize(("ago", "reserved"), [(0, frozenset()), (61, {"n1", "n2"})])
def test_a_gang_begins_to_wait_with_its_oldest_waiting_pod(ago: float, reserved: frozenset[str]) -> None:
    """Its running pod is old, and its replacements are new or not."""
    runs = with_gpu(job_pod(2), nodeName="n2", schedulingGates=[])
    created = datetime.now(UTC) - timedelta(seconds=ago)
    case = Case(runs, creationTimestamp=created.isoformat())
    assert len(case.gang.pods) == 3
    assert case.reserved() == reserved


@pytest.mark.promise("O99")
def test_a_gang_begins_to_wait_once_another_controller_has_removed_its_gate() -> None:
    """Its pods are old: they have waited for their quota."""
    case = Case(running("busy", "n2"))
    ours = case.gang
    gates = [*ours.gated[0].spec.scheduling_gates, SchedulingGate("kueue.x-k8s.io/admission")]
    spec = msgspec.structs.replace(ours.gated[0].spec, scheduling_gates=gates)
    case.gang = replace(ours, gated=(msgspec.structs.replace(ours.gated[0], spec=spec), *ours.gated[1:]))
    case.open()
    case.gang = ours
    case.clock.now = 59
    assert case.reserved() == frozenset()
    case.clock.now = 60
    assert case.reserved() == {"n1", "n2"}


def test_pods_that_have_a_place_in_a_plan_wait_no_more() -> None:
    old, new = "2026-01-01T00:00:00Z", datetime.now(UTC).isoformat()
    pods = [job_pod(index, creationTimestamp=at) for index, at in enumerate((old, new))]
    uids = [pod.metadata.uid for pod in pods]
    at = datetime.now(UTC) + timedelta(seconds=30)
    assert seconds_waited(pods, set(), at) > 3600
    assert 29 < seconds_waited(pods, uids[:1], at) < 60
    assert seconds_waited(pods, uids, at) == 0


@pytest.mark.parametrize("kind", ["apps/v1 StatefulSet", "apps/v1 ReplicaSet", "v1 ReplicationController"])
def test_nothing_is_reserved_where_a_blocking_pod_is_recreated_by_its_controller(kind: str) -> None:
    # n1 would stand empty for as long as the controller is there.
    assert Case(running("busy", "n2", kind)).reserved() == frozenset()


@pytest.mark.promise("S4")
@pytest.mark.parametrize("kind", ["mine.example/v1 StatefulSet", "v1 ReplicaSet", "apps/v1 DaemonSet"])
def test_a_made_up_owner_keeps_nobody_from_waiting_for_a_pod_to_end(kind: str) -> None:
    assert Case(running("busy", "n2", kind)).reserved() == {"n1", "n2"}


def test_a_reservation_ends_at_the_time_of_day_that_people_are_shown() -> None:
    reserved = Case(running("busy", "n2")).reserve("n1")
    assert 0 <= (reserved.ends - datetime.now(UTC)).total_seconds() <= HOLD


def test_other_nodes_are_reserved_for_what_is_left_of_the_time() -> None:
    """Else a gang that is recreated again and again would reserve nodes for ever."""
    case = Case(running("busy", "n2"))
    case.reserve("n1")
    case.clock.now = HOLD / 2
    reserved = case.reserve("n2")
    assert reserved.nodes == {"n2"}
    assert reserved.until == HOLD
    other = replace(case.gang.key, name="other")
    ledger = case.ledger.reserve(other, ["n1", "n2"])
    assert ledger.of(other.placement_key) == frozenset(), "n1 cools down, for as long as it was reserved"


@pytest.mark.parametrize(("ago", "seconds"), [(0, HOLD), (HOLD - 20, 120), (2 * HOLD - 20, 20)])
def test_what_is_reserved_for_pods_that_are_recreated_stays_reserved_till_these_come(
    ago: float, seconds: float
) -> None:
    case = Case(running("busy", "n2"))
    case.reserve("n1")
    case.clock.now = ago
    assert case.reserve("n1").until - ago == seconds


def test_a_gang_that_has_found_its_place_holds_nothing_more() -> None:
    case = Case(running("busy", "n2"))
    assert case.reserved()
    assert not case.ledger.placed(case.gang.key).nodes()
