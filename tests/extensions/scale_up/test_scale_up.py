"""Which gangs ask: those without capacity, bounded by namespace; in memory, without an API server."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from labeler.contract import keys
from tests.extensions.scale_up.autoscaler import BEST_EFFORT
from tests.extensions.scale_up.requests import BEGAN, CLASS, request
from tests.sweeper.clock import Clock
from tests.sweeper.cluster import Nodes, Placing, gpu_pod
from webhook.configuration.settings import ScaleUp, Settings
from webhook.extensions.known import SWITCHES
from webhook.extensions.scale_up.new_nodes import bookings_of
from webhook.extensions.scale_up.provisioning_requests import (
    CHECK_CAPACITY,
    REQUESTS,
    TEMPLATES,
    ProvisioningRequest,
    RequestTemplate,
)
from webhook.extensions.scale_up.scale_up import (
    BEHIND,
    OUTCOMES,
    SCALE_UP,
    STATES,
    UNREAD,
    UNREAD_SECONDS,
    ScaleUpMemory,
    annotations,
)
from webhook.extensions.scale_up.wants import want_of
from webhook.kube.objects import OwnerReference, Pod
from webhook.kube.placements import Placement, PlacementSpec
from webhook.sweeper.decide.orders import Cause
from webhook.sweeper.extension import EndOrders, HookInput, ObjectWrite, WriteResult
from webhook.sweeper.observe.gangs import GangKey, OwnerFacts, gather
from webhook.sweeper.observe.snapshotter import Snapshotter
from webhook.sweeper.observe.view import Moment, View
from webhook.workloads import marks


class Scene:
    """Gangs of one pod each, all of which wait, and the hook, whose clock and API objects are the test's."""

    def __init__(self, *pods: Pod, **choices: Any) -> None:
        self.settings = Settings(scale_up=ScaleUp(BEST_EFFORT, **choices))
        self.cluster, self.clock = Nodes(0, *pods), Clock()
        self.requests: dict[str, ProvisioningRequest] = {}
        self.templates: dict[str, RequestTemplate] = {}
        self.are_read = True
        self.memory, self.orders = ScaleUpMemory(), EndOrders()
        self.written: Sequence[WriteResult] = ()
        self.reported: list[tuple[str, bool]] = []
        self.counts: dict[str, float] = {}
        view = Snapshotter(self.cluster, self.settings).view()
        self.gangs = gather(view.gated, (), lambda _: OwnerFacts())
        for gang in self.gangs:
            key = gang.key.placement_key
            metadata = {"namespace": gang.key.namespace, "name": gang.key.placement_name, "uid": key}
            self.cluster.placements[key] = msgspec.convert({"metadata": metadata}, Placement)

    def view(self) -> View:
        now = Moment(self.clock(), datetime.fromtimestamp(BEGAN + 1, UTC))
        view = Snapshotter(self.cluster, self.settings).view(now)
        objects: dict[Hashable, Mapping[str, Any]] = {REQUESTS: self.requests, TEMPLATES: self.templates}
        return replace(view, objects=objects if self.are_read else {})

    def step(self, cause: Cause = Cause.INSUFFICIENT_CAPACITY) -> list[str]:
        """What one step writes; it is there in the next one."""
        causes = {gang.key: cause for gang in self.gangs}
        given = HookInput(
            self.view(), self.settings, written=self.written, gangs=self.gangs, causes=causes,
        )  # fmt: skip
        self.orders, self.memory = SCALE_UP.after_pass(given, self.memory)
        self.written = [WriteResult(each, True) for each in self.orders.writes]
        self.reported += [
            (f"{each.about.metadata.name} {each.reason}", each.reason.is_warning)
            for each in self.orders.events
        ]
        for (outcome,), count in self.orders.counts.get(OUTCOMES.name, {}).items():
            self.counts[outcome] = self.counts.get(outcome, 0) + count
        return [self._write(each) for each in self.orders.writes]

    def _write(self, write: ObjectWrite) -> str:
        resource, key = write.collection.path.rpartition("/")[2], f"{write.namespace}/{write.name}"
        there: dict[str, Any] = self.requests if write.collection is REQUESTS else self.templates
        if write.verb == "create":
            there[key] = msgspec.convert(write.body, write.collection.struct)
        else:
            del there[key]
        return f"{write.verb} {resource}"

    def notes(self) -> Mapping[GangKey, str]:
        return self.orders.notes


ASKED = ["create podtemplates", "create provisioningrequests"]


@pytest.mark.promise("O114")
def test_a_gang_asks_once_it_has_waited_and_not_twice() -> None:
    scene = Scene(gpu_pod("p"), after_seconds=5.0)
    assert scene.step() == []
    assert scene.orders.due_seconds == 5.0
    scene.clock.now += 5.0
    assert scene.step() == ASKED
    (gang,) = scene.gangs
    assert scene.notes()[gang.key].startswith("nodes are requested by ProvisioningRequest pod-p-")
    assert scene.step() == []
    assert (scene.reported, scene.counts) == ([("p NodesRequested", False)], {"requested": 1})


def test_a_request_that_the_api_server_refuses_is_reported_and_ordered_again() -> None:
    scene = Scene(gpu_pod("p"), after_seconds=0.0)
    (gang,) = scene.gangs
    assert scene.step() == ASKED
    first, second = scene.orders.writes
    scene.requests.clear()
    scene.written = [WriteResult(first, True), WriteResult(second, False, "exceeded quota", 4.0)]
    assert scene.step() == ["create provisioningrequests"], "its template is there"
    assert scene.notes()[gang.key] == "nodes cannot be requested: exceeded quota"
    assert (scene.reported, scene.counts) == ([], {})


def test_templates_are_removed_once_nobody_wants_what_they_are_for() -> None:
    scene = Scene(gpu_pod("p"), after_seconds=0.0)
    assert scene.step() == ASKED
    scene.requests.clear()
    assert scene.step(Cause.RESERVED) == ["delete podtemplates"]
    assert scene.step(Cause.RESERVED) == []


def test_requests_of_gangs_that_need_no_more_nodes_are_withdrawn() -> None:
    scene = Scene(gpu_pod("p"), after_seconds=0.0)
    assert scene.step() == ASKED
    assert scene.step(Cause.RESERVED) == [], "it may be over in a moment"
    scene.gangs = []
    assert scene.step() == ["delete provisioningrequests"]
    assert scene.step() == ["delete podtemplates"]


@pytest.mark.promise("O121")
@pytest.mark.parametrize("cause", [Cause.RESERVED, Cause.INVALID_REQUEST, Cause.OTHER_GATE])
def test_a_pause_after_a_refusal_is_not_forgotten_while_a_gang_waits_for_something_else(
    cause: Cause,
) -> None:
    scene = Scene(gpu_pod("p"), after_seconds=0.0)
    observe(scene, {"Failed": "True"})
    assert scene.step(cause) == []
    assert scene.step() == []
    (gang,) = scene.gangs
    assert "requested again at" in scene.notes()[gang.key]


@pytest.mark.promise("O114")
@pytest.mark.parametrize("cause", sorted(set(Cause) - {Cause.OWNER_DELETED}))
def test_a_provided_request_stays_whatever_its_gang_waits_for(cause: Cause) -> None:
    scene = Scene(gpu_pod("p"), after_seconds=0.0)
    observe(scene, {"Provisioned": "True"})
    assert scene.step(cause) == []


@pytest.mark.promise("O114")
@pytest.mark.parametrize(("node", "is_withdrawn"), [("", False), ("n0", True)])
def test_a_request_stays_until_the_released_pods_are_bound_whatever_the_status_states(
    node: str, is_withdrawn: bool
) -> None:
    scene = Scene(gpu_pod("p"), after_seconds=0.0)
    observe(scene, {"Provisioned": "True"})
    (gang,) = scene.gangs
    key, (pod,) = gang.key.placement_key, gang.gated
    entry = {"uid": pod.metadata.uid, "name": "p", "node": "n0"}
    plan = msgspec.convert({"pods": [entry]}, PlacementSpec)
    scene.cluster.placements[key] = msgspec.structs.replace(scene.cluster.placements[key], spec=plan)
    released = msgspec.structs.replace(pod.spec, scheduling_gates=(), node_name=node)
    scene.cluster.pods[:] = [msgspec.structs.replace(pod, spec=released)]
    (made,) = scene.requests.values()
    scene.requests = {f"ns/{made.metadata.name}": made}
    scene.gangs = []
    assert scene.step() == (["delete provisioningrequests"] if is_withdrawn else [])


@pytest.mark.promise("O114")
@pytest.mark.parametrize("cause", sorted(set(Cause) - {Cause.INSUFFICIENT_CAPACITY, Cause.WORK_BUDGET}))
def test_a_gang_that_waits_for_anything_but_capacity_asks_for_nothing(cause: Cause) -> None:
    scene = Scene(gpu_pod("p"), after_seconds=0.0)
    scene.step(cause)
    scene.clock.now += 60.0
    assert scene.step(cause) == []


@pytest.mark.promise("O114")
def test_a_gang_that_no_node_can_help_waits_for_its_request_and_not_for_capacity() -> None:
    annotations = {"topogate.io/gang": "g", keys.REQUIRED_TOPOLOGY_ANNOTATION: "block"}
    pods = [
        gpu_pod(f"p{number}", node=f"n{number}", metadata={"annotations": annotations}) for number in (0, 1)
    ]
    cluster = Nodes(2, *pods, gpu_pod("p2", metadata={"annotations": annotations}))
    for number, node in enumerate(cluster.nodes.values()):
        place = (f"b{number}", "s0", "h0")
        labels = dict(zip(keys.PRERELEASE_TOPOLOGY, place, strict=True))
        metadata = msgspec.structs.replace(node.metadata, labels=labels)
        cluster.nodes[node.metadata.name] = msgspec.structs.replace(node, metadata=metadata)
    placing = Placing(cluster, Settings(settle_seconds=0))
    placing.one()
    (outcome,) = placing.one().outcomes
    assert "its placed pods are in" in outcome.reason
    assert outcome.cause is Cause.INVALID_REQUEST


def test_of_thousands_of_gangs_of_a_tenant_few_are_looked_at_and_all_get_a_reason() -> None:
    many = [gpu_pod(f"p{number}") for number in range(2_000)]
    other = gpu_pod("x", metadata={"namespace": "other"})
    scene = Scene(*many, other, after_seconds=0.0, requests=3)
    assert scene.step() == [*ASKED] * 4
    notes = scene.notes()
    assert len(scene.memory.wants) == 4
    assert sum(note == BEHIND for note in notes.values()) == 2_000 - 3
    assert len(notes) == 2_001


@pytest.mark.promise("O114")
def test_pods_for_which_another_program_has_requested_nodes_ask_for_none() -> None:
    """As Kueue does with its admission check: the nodes may not be ready yet."""
    annotations = {marks.CONSUMED_REQUEST: "job-train-prov-1"}
    scene = Scene(gpu_pod("p", metadata={"annotations": annotations}), after_seconds=0.0)
    assert scene.step() == []
    (note,) = scene.notes().values()
    assert note.startswith("its pods name ProvisioningRequest job-train-prov-1 of another program")


@pytest.mark.promise("O116")
def test_elastic_gangs_that_run_keep_no_other_gang_of_their_namespace_from_asking() -> None:
    scene = Scene(*(gpu_pod(f"p{number}") for number in range(3)), after_seconds=0.0, requests=2)
    *elastic, last = scene.gangs
    runs = (gpu_pod("r", node="n0"),)
    scene.gangs = [*(replace(gang, released=runs, minimum=1) for gang in elastic), last]
    assert scene.step() == ASKED
    assert list(scene.notes()) == [last.key]


@pytest.mark.promise("O121")
@pytest.mark.parametrize(
    ("conditions", "event", "outcome"),
    [
        ({"Provisioned": "False"}, ("p NodesDelayed", True), "delayed"),
        ({"Provisioned": "True"}, ("p NodesProvided", False), "provided"),
        ({"Failed": "True"}, ("p NodesRefused", True), "failed"),
        ({"BookingExpired": "True"}, ("p NodesExpired", True), "expired"),
        ({"CapacityRevoked": "True"}, ("p NodesRevoked", True), "revoked"),
    ],
)
def test_the_answer_of_an_autoscaler_is_an_event_once_and_counted(
    conditions: dict[str, str], event: tuple[str, bool], outcome: str
) -> None:
    scene = Scene(gpu_pod("p"), after_seconds=0.0)
    (gang,) = scene.gangs
    want = want_of(gang, gang.gated, scene.cluster.placements[gang.key.placement_key])
    scene.requests["ns/r"] = request(want, conditions=conditions)
    scene.step()
    scene.step()
    assert scene.reported == [event]
    assert scene.counts == {outcome: 1}
    assert scene.orders.gauges[STATES.name][outcome,] == 1
    assert "ProvisioningRequest" in scene.notes()[gang.key]


def test_each_refusal_is_an_event_also_of_the_request_made_after_one() -> None:
    scene = Scene(gpu_pod("p"), after_seconds=0.0)
    (gang,) = scene.gangs
    want = want_of(gang, gang.gated, scene.cluster.placements[gang.key.placement_key])
    for attempt in (1, 2):
        for conditions in ({"Failed": "True"}, {}):
            scene.requests = {"ns/r": request(want, attempt, conditions=conditions)}
            scene.step()
    assert scene.reported == [("p NodesRefused", True)] * 2
    assert scene.counts == {"failed": 2}


def test_that_requests_cannot_be_read_is_reported_after_a_while() -> None:
    scene = Scene(gpu_pod("p"), after_seconds=0.0)
    scene.are_read = False
    assert (scene.step(), dict(scene.notes())) == ([], {})
    scene.clock.now += UNREAD_SECONDS
    assert scene.step() == []
    assert set(scene.notes().values()) == {UNREAD}


@pytest.mark.parametrize(
    ("conditions", "reserved"),
    [
        ({}, []),
        ({"Accepted": "True"}, [False]),
        ({"Provisioned": "True"}, [True]),
        ({"Provisioned": "False"}, []),
        ({"Provisioned": "True", "BookingExpired": "True"}, []),
        ({"Failed": "True"}, []),
    ],
    ids=["unheard", "accepted", "provided", "delayed", "expired", "failed"],
)
def test_new_nodes_are_for_gangs_whose_requests_an_autoscaler_works_on(
    conditions: dict[str, str], reserved: list[bool]
) -> None:
    scene = Scene(gpu_pod("p"), after_seconds=0.0)
    (gang,) = scene.gangs
    observe(scene, conditions)
    found = bookings_of(scene.view())
    assert [each.is_served for each in found] == reserved
    assert all((each.placement, each.pods) == (gang.key.placement_key, 1) for each in found)


@pytest.mark.promise("O126")
@pytest.mark.parametrize(("name", "is_made"), [(CHECK_CAPACITY, False), (CLASS, True)])
def test_only_classes_that_make_nodes_have_made_any(name: str, is_made: bool) -> None:
    scene = Scene(gpu_pod("p"), after_seconds=0.0)
    observe(scene, {"Provisioned": "True"}, name)
    assert [each.is_made for each in bookings_of(scene.view())] == [is_made]


def observe(scene: Scene, conditions: dict[str, str], class_name: str = CLASS) -> None:
    """Let the gang's request be there, with what an autoscaler says of it."""
    (gang,) = scene.gangs
    owner = scene.cluster.placements[gang.key.placement_key]
    made = request(want_of(gang, gang.gated, owner), conditions=conditions)
    reference = OwnerReference(kind="Placement", uid=owner.metadata.uid, name=owner.metadata.name)
    metadata = msgspec.structs.replace(made.metadata, owner_references=[reference])
    spec = msgspec.structs.replace(made.spec, provisioning_class_name=class_name)
    known = msgspec.structs.replace(made, metadata=metadata, spec=spec)
    scene.requests["ns/r"] = known


@pytest.mark.parametrize(("conditions", "is_named"), [({"Provisioned": "True"}, True), ({}, False)])
def test_pods_name_the_request_by_which_their_nodes_were_provided(
    conditions: dict[str, str], is_named: bool
) -> None:
    scene = Scene(gpu_pod("p"))
    observe(scene, conditions)
    (gang,), (made,) = scene.gangs, scene.requests.values()
    named = {marks.CONSUMED_REQUEST: made.metadata.name, marks.PROVISIONING_CLASS: CLASS}
    assert annotations(scene.view()) == ({gang.key.placement_key: named} if is_named else {})


@pytest.mark.promise("O113")
@pytest.mark.parametrize(("name", "is_on"), [("", False), (CLASS, True)])
def test_nothing_is_read_or_written_where_no_class_is_chosen(name: str, is_on: bool) -> None:
    settings = Settings(scale_up=ScaleUp(name))
    on = [switch.load() for switch in SWITCHES if switch.is_on(HookInput(settings=settings))]
    assert (SCALE_UP in on) is is_on
