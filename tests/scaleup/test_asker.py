"""Which gangs ask: those without room, bounded by namespace; in memory, without an API server."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from hack.local.autoscaler import BEST_EFFORT
from labeler.contract import keys
from tests.scaleup.requests import BEGAN, CLASS, request
from tests.sweeper.clock import Clock
from tests.sweeper.cluster import Nodes, Placing, gpu_pod
from webhook.kube.objects import Node, OwnerReference, Pod
from webhook.kube.placements import Placement
from webhook.kube.provisioning import CHECK_CAPACITY
from webhook.sweeper.context import Pass, Silent
from webhook.sweeper.decide.orders import Cause
from webhook.sweeper.observe.gangs import GangKey, OwnerSays, gather
from webhook.sweeper.observe.snapshotter import Snapshotter
from webhook.sweeper.scaleup.asker import BEHIND, UNREAD, UNREAD_SECONDS, Asker
from webhook.sweeper.scaleup.wants import want_of
from webhook.sweeper.scaling import ScaleUp
from webhook.sweeper.settings import Settings


class Copy:
    """Stands for an informer that has read everything."""

    def __init__(self, *items: Any) -> None:
        self.there = {each.metadata.name: each for each in items}
        self.synced = True

    def start(self) -> None:
        pass

    def stop(self) -> None:
        pass

    def items(self) -> Mapping[str, Any]:
        return self.there


class Writes:
    """Stands for the API server: notes what is made and removed."""

    def __init__(self) -> None:
        self.made: list[str] = []

    def request(self, method: str, path: str, **_: Any) -> bytes:
        self.made.append(f"{method} {path.rpartition('/')[2]}")
        return b"{}"


class Scene(Silent):
    """Gangs of one pod each, all of which wait, and an asker whose clock is the test's."""

    def __init__(self, *pods: Pod, **choices: Any) -> None:
        settings = Settings(scale_up=ScaleUp(BEST_EFFORT, **choices))
        self.cluster, self.clock, self.api = Nodes(0, *pods), Clock(), Writes()
        self.cluster.changed = _Changed()  # type: ignore[attr-defined]
        self.said: list[tuple[str, bool]] = []
        api: Any = self.api
        cache: Any = self.cluster
        surroundings = Pass(api, cache, settings, announcer=self, clock=self.clock)
        self.metrics = surroundings.metrics
        self.asker = Asker(surroundings, now=lambda: BEGAN + 1)
        self.asker._writer.requests = self.asker._writer.templates = Copy()  # type: ignore[assignment]
        self.view = Snapshotter(self.cluster, settings).view()
        self.gangs = gather(self.view.gated, (), lambda _: OwnerSays())
        for gang in self.gangs:
            key = gang.key.placement_key
            metadata = {"namespace": gang.key.namespace, "name": gang.key.placement_name, "uid": key}
            self.cluster.placements[key] = msgspec.convert({"metadata": metadata}, Placement)

    def say_of_node(self, node: Node, reason: str, note: str, *, warning: bool) -> None:
        raise AssertionError("of a node it says nothing")

    def say(self, pod: Pod, reason: str, note: str, *, warning: bool) -> None:
        self.said.append((f"{pod.metadata.name} {reason}", warning))

    def counted(self, outcome: str) -> float | None:
        return self.metrics.registry.get_sample_value("topogate_scale_ups_total", {"outcome": outcome})

    def step(self, cause: Cause = Cause.NO_ROOM) -> list[str]:
        """What one step writes."""
        self.api.made.clear()
        self.asker.step(self.view, self.gangs, {gang.key: cause for gang in self.gangs})
        return list(self.api.made)

    def notes(self) -> Mapping[GangKey, str]:
        return self.asker.notes


class _Changed:
    def set(self) -> None:
        pass


ASKED = ["POST podtemplates", "POST provisioningrequests"]


def test_a_gang_asks_once_it_has_waited_and_not_twice() -> None:
    scene = Scene(gpu_pod("p"), after_seconds=5.0)
    assert scene.step() == []
    scene.clock.now += 5.0
    assert scene.step() == ASKED
    assert scene.step() == []


@pytest.mark.parametrize("cause", sorted(set(Cause) - {Cause.NO_ROOM, Cause.UNDECIDED}))
def test_a_gang_that_waits_for_anything_but_room_asks_for_nothing(cause: Cause) -> None:
    scene = Scene(gpu_pod("p"), after_seconds=0.0)
    scene.step(cause)
    scene.clock.now += 60.0
    assert scene.step(cause) == []


def test_a_gang_that_no_node_can_help_waits_for_its_wish_and_not_for_room() -> None:
    wish = {"topogate.io/gang": "g", keys.REQUIRED_TOPOLOGY_ANNOTATION: "block"}
    pods = [gpu_pod(f"p{number}", node=f"n{number}", metadata={"annotations": wish}) for number in (0, 1)]
    cluster = Nodes(2, *pods, gpu_pod("p2", metadata={"annotations": wish}))
    for number, node in enumerate(cluster.nodes.values()):
        place = (f"b{number}", "s0", "h0")
        labels = dict(zip(keys.PRERELEASE_TOPOLOGY, place, strict=True))
        metadata = msgspec.structs.replace(node.metadata, labels=labels)
        cluster.nodes[node.metadata.name] = msgspec.structs.replace(node, metadata=metadata)
    placing = Placing(cluster, Settings(settle_seconds=0))
    placing.one()
    (verdict,) = placing.one().verdicts
    assert "its placed pods are in" in verdict.reason
    assert verdict.cause is Cause.WISH


def test_of_thousands_of_gangs_of_a_tenant_few_are_looked_at_and_all_are_told() -> None:
    many = [gpu_pod(f"p{number}") for number in range(2_000)]
    other = gpu_pod("x", metadata={"namespace": "other"})
    scene = Scene(*many, other, after_seconds=0.0, requests=3)
    assert scene.step() == [*ASKED] * 4
    notes = scene.notes()
    assert len(scene.asker._wants) == 4
    assert sum(note == BEHIND for note in notes.values()) == 2_000 - 3
    assert len(notes) == 2_001


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
def test_what_an_autoscaler_says_is_an_event_once_and_counted(
    conditions: dict[str, str], event: tuple[str, bool], outcome: str
) -> None:
    scene = Scene(gpu_pod("p"), after_seconds=0.0)
    (gang,) = scene.gangs
    want = want_of(gang, gang.gated, scene.cluster.placements[gang.key.placement_key])
    scene.asker._writer.requests = Copy(request(want, conditions=conditions))  # type: ignore[assignment]
    scene.step()
    scene.step()
    assert scene.said == [event]
    assert scene.counted(outcome) == 1
    states = scene.metrics.registry.get_sample_value
    assert states("topogate_scale_up_requests", {"state": outcome}) == 1
    assert "ProvisioningRequest" in scene.notes()[gang.key]


def test_that_requests_cannot_be_read_is_told_after_a_while() -> None:
    scene = Scene(gpu_pod("p"), after_seconds=0.0)
    scene.asker._writer.requests.synced = False  # type: ignore[misc]
    assert (scene.step(), dict(scene.notes())) == ([], {})
    scene.clock.now += UNREAD_SECONDS
    assert scene.step() == []
    assert set(scene.notes().values()) == {UNREAD}


@pytest.mark.parametrize(
    ("conditions", "booked"),
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
    conditions: dict[str, str], booked: list[bool]
) -> None:
    scene = Scene(gpu_pod("p"), after_seconds=0.0)
    (gang,) = scene.gangs
    hear(scene, conditions)
    found = scene.asker.bookings()
    assert [each.is_served for each in found] == booked
    assert all((each.placement, each.pods) == (gang.key.placement_key, 1) for each in found)


@pytest.mark.parametrize(("name", "is_made"), [(CHECK_CAPACITY, False), (CLASS, True)])
def test_only_classes_that_make_nodes_have_made_any(name: str, is_made: bool) -> None:
    scene = Scene(gpu_pod("p"), after_seconds=0.0)
    hear(scene, {"Provisioned": "True"}, name)
    assert [each.is_made for each in scene.asker.bookings()] == [is_made]


def hear(scene: Scene, conditions: dict[str, str], class_name: str = CLASS) -> None:
    """Let the gang's request be there, with what an autoscaler says of it."""
    (gang,) = scene.gangs
    owner = scene.cluster.placements[gang.key.placement_key]
    made = request(want_of(gang, gang.gated, owner), conditions=conditions)
    reference = OwnerReference(kind="Placement", uid=owner.metadata.uid, name=owner.metadata.name)
    metadata = msgspec.structs.replace(made.metadata, owner_references=[reference])
    spec = msgspec.structs.replace(made.spec, provisioning_class_name=class_name)
    known = msgspec.structs.replace(made, metadata=metadata, spec=spec)
    scene.asker._choices = replace(scene.asker._choices, provisioning_class=class_name)
    scene.asker._writer.requests = Copy(known)  # type: ignore[assignment]
    scene.step()


def test_nothing_is_read_or_written_where_no_class_is_chosen() -> None:
    scene = Scene(gpu_pod("p"))
    scene.asker._choices = ScaleUp()
    assert scene.step() == []
    assert not scene.asker._is_started
