"""New nodes for gangs that asked an autoscaler for them: who gets them, how many, for how long, in memory."""

from dataclasses import replace
from functools import partial
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labeler.contract import keys
from tests.sweeper.cluster import Nodes, Placing, gpu_pod, places
from tests.sweeper.stages import groups_of
from webhook.configuration.settings import Settings
from webhook.extensions.scale_up import new_nodes
from webhook.extensions.scale_up.new_nodes import NEW_NODES, Booking, _classes, reserve_new_nodes
from webhook.kube.objects import Condition, Metadata, Node, Pod
from webhook.kube.placements import Placement, PlacementSpec
from webhook.kube.plan_pods import PlannedPod
from webhook.placement import Budget
from webhook.placement.capacity import SlotCounts, count_slots_by_node
from webhook.placement.model import PodClass
from webhook.placement.snapshot import NodeState
from webhook.sweeper.decide.orders import Cause, GangOutcome, Orders
from webhook.sweeper.decide.reservations import ReservationSource
from webhook.sweeper.observe.gangs import PodGang
from webhook.sweeper.observe.view import View

ASKED, LATER = "2026-01-01T00:00:10Z", "2026-01-01T00:00:20Z"
SETTINGS = Settings(settle_seconds=0, reserve_share=1.0, reserve_seconds=1e12)


def gang(name: str, pods: int, *, namespace: str = "ns", gpus: int = 1, **spec: Any) -> list[Pod]:
    """A gang that is older than all others."""
    annotations = {keys.GANG_ANNOTATION: name, keys.GANG_SIZE_ANNOTATION: str(pods)}
    metadata = {
        "annotations": annotations,
        "namespace": namespace,
        "creationTimestamp": "2026-01-01T00:00:05Z",
    }
    return [
        gpu_pod(f"{name}-{number}", gpus=gpus, metadata={**metadata, "uid": f"{name}-{number}"}, **spec)
        for number in range(pods)
    ]


def made_at(node: Node, created: str) -> Node:
    metadata = msgspec.structs.replace(node.metadata, creation_timestamp=created)
    return msgspec.structs.replace(node, metadata=metadata)


def old(name: str, **more: Any) -> Pod:
    metadata = {"creationTimestamp": "2026-01-01T00:00:00Z", **more.pop("metadata", {})}
    return gpu_pod(name, metadata=metadata, **more)


class Scene:
    """The gang g has asked for nodes, which come one by one; p is older, and has not."""

    def __init__(self, *pods: Pod, settings: Settings = SETTINGS, gpus: int = 1, books: bool = True) -> None:
        self.cluster = Nodes(9, *(pods or (*gang("g", 3), old("p"))), gpus=gpus)
        self.all = {name: made_at(node, LATER) for name, node in self.cluster.nodes.items()}
        self.cluster.nodes = {}
        self.placing = Placing(self.cluster, settings)
        self.bookings: list[Booking] = []
        reserve = partial(reserve_new_nodes, self.bookings)
        self.placing.sources = [ReservationSource(NEW_NODES, reserve)]
        if books:
            self.book("g", 3)

    def book(
        self, name: str, pods: int, *, is_served: bool = True, created: str = ASKED, is_made: bool = False
    ) -> None:
        (key,) = [each.key for each in self.placing.gangs() if each.key.name == name]
        booking = Booking(key.placement_key, f"request-{name}", created, pods, is_served, is_made)
        self.bookings.append(booking)

    def come(self, count: int) -> Orders:
        """What is decided once so many nodes are there."""
        self.cluster.nodes = dict(list(self.all.items())[:count])
        return self.placing.one()

    def reserved(self) -> list[str]:
        return sorted(name for reserved in self.placing.ledger.by_gang().values() for name in reserved.nodes)


def outcome(orders: Orders, name: str) -> GangOutcome:
    (found,) = [each for each in orders.outcomes if each.gang.key.name == name]
    return found


@pytest.mark.promise("O126")
def test_new_nodes_wait_for_the_gang_that_asked_until_all_of_it_fits() -> None:
    scene = Scene()
    for count in (1, 2):
        orders = scene.come(count)
        assert places(orders) == {}
        assert len(scene.reserved()) == count
    outcome_of_p = outcome(orders, "p")
    assert (
        "new nodes are reserved for gangs that have asked for them: 2 for ns/Gang/g until"
        in outcome_of_p.reason
    )
    assert outcome_of_p.cause is Cause.INSUFFICIENT_CAPACITY, "it may ask for nodes of its own"
    assert places(scene.come(3)) == {"g-0": "n0", "g-1": "n1", "g-2": "n2"}


def test_no_new_node_is_reserved_for_a_gang_that_may_not_use_it() -> None:
    scene = Scene()
    (key,) = [each.key for each in scene.placing.gangs() if each.key.name == "g"]
    scene.placing.avoid(key, "n0")
    assert places(scene.come(1)) == {"p": "n0"}
    assert scene.reserved() == []


@pytest.mark.promise("O114")
@pytest.mark.parametrize(("avoids", "cause"), [(False, Cause.RESERVED), (True, Cause.INSUFFICIENT_CAPACITY)])
def test_a_gang_that_would_not_fit_where_nodes_are_reserved_may_ask_for_new_ones(
    avoids: bool, cause: Cause
) -> None:
    younger = gpu_pod("p", metadata={"creationTimestamp": "2026-01-01T00:00:30Z"})
    scene = Scene(*gang("g", 3), younger, books=False)
    scene.come(2)
    holder, other = (next(each.key for each in scene.placing.gangs() if each.key.name == x) for x in "gp")
    scene.placing.reserve(holder, ["n0", "n1"])
    if avoids:
        scene.placing.avoid(other, "n0", "n1")
    assert outcome(scene.come(2), "p").cause is cause


def test_each_group_of_one_set_has_the_new_nodes_that_were_made_for_it() -> None:
    """They have one name; nodes without labels have no subblock, so none of them is released yet."""
    groups = groups_of(2, 3, requests={keys.REQUIRED_TOPOLOGY_ANNOTATION: "subblock"})
    scene = Scene(*(pod for group in groups for pod in group.pods), old("p"), books=False)
    for each in scene.placing.gangs():
        if each.key.kind == "LeaderWorkerSet":
            scene.bookings.append(Booking(each.key.placement_key, each.key.id, ASKED, 3, True))
    orders = scene.come(5)
    assert len(scene.reserved()) == 5
    assert places(orders) == {}
    expected = (
        "new nodes are reserved for gangs that have asked for them: 5 for ns/LeaderWorkerSet/serve until"
    )
    assert expected in outcome(orders, "p").reason


def test_without_a_request_the_older_one_takes_the_first_node() -> None:
    scene = Scene()
    scene.bookings.clear()
    assert places(scene.come(1)) == {"p": "n0"}


def test_who_is_more_urgent_takes_new_nodes_all_the_same() -> None:
    scene = Scene(*gang("g", 3), old("p", priority=1))
    assert places(scene.come(1)) == {"p": "n0"}


def test_nodes_that_were_there_before_it_asked_are_nobody_s() -> None:
    scene = Scene()
    scene.bookings.clear()
    scene.book("g", 3, created="2026-01-01T00:00:21Z")
    assert places(scene.come(1)) == {"p": "n0"}


def test_no_more_nodes_are_reserved_than_the_gang_needs() -> None:
    scene = Scene(*gang("g", 3, gpus=2), old("p"), gpus=4)
    assert places(scene.come(1)) == {}
    # Two of its pods fit on a node: it needs two, and the third node is free for any gang.
    orders = scene.come(3)
    assert {name.split("-")[0] for name in places(orders)} == {"g", "p"}


@pytest.mark.promise("O126")
@pytest.mark.parametrize(("share", "reserved"), [(1.0, 2), (0.5, 1), (0.0, 0)])
def test_no_more_than_a_share_of_all_nodes_is_reserved(share: float, reserved: int) -> None:
    settings = Settings(settle_seconds=0, reserve_share=share, reserve_seconds=1e12)
    scene = Scene(settings=settings)
    scene.come(2)
    assert len(scene.reserved()) == reserved


@pytest.mark.promise("O126")
@pytest.mark.parametrize(
    ("share", "is_served", "reserved"),
    [(0.5, True, 3), (0.5, False, 2), (0.0, True, 0)],
    ids=["made for it", "not yet made", "nothing may be held"],
)
def test_nodes_that_were_made_for_a_gang_are_all_its_own_whatever_the_share(
    share: float, is_served: bool, reserved: int
) -> None:
    settings = Settings(settle_seconds=0, reserve_share=share, reserve_seconds=1e12)
    scene = Scene(*gang("g", 4), *gang("h", 4), old("p"), settings=settings, books=False)
    scene.book("g", 3, is_served=is_served, is_made=True)
    scene.come(4)
    assert len(scene.reserved()) == reserved


@pytest.mark.promise("O126")
@pytest.mark.parametrize(("nodes", "reserved"), [(4, 4), (5, 5), (8, 8), (9, 8)])
def test_what_was_made_for_one_gang_leaves_others_their_share_and_no_more(nodes: int, reserved: int) -> None:
    settings = Settings(settle_seconds=0, reserve_share=0.5, reserve_seconds=1e12)
    scene = Scene(*gang("g", 9), *gang("h", 9), settings=settings, books=False)
    scene.book("g", 4, is_made=True)
    scene.book("h", 9)
    scene.come(nodes)
    sizes = {key: len(each.nodes) for key, each in scene.placing.ledger.by_gang().items()}
    own = [size for key, size in sizes.items() if "-g-" in key]
    assert own == [4]
    assert sum(sizes.values()) == reserved, "half of the nodes beside what was made"


@pytest.mark.promise("O126")
def test_an_unused_reservation_expires_in_time_and_has_a_cooldown() -> None:
    scene = Scene()
    assert places(scene.come(1)) == {}
    scene.placing.clock.now += SETTINGS.reserve_hold_seconds
    assert places(scene.come(1)) == {"p": "n0"}
    scene.bookings[0] = Booking(scene.bookings[0].placement, "another", ASKED, 3, True)
    scene.come(1)
    assert scene.reserved() == [], "nor by another request of the same gang"
    assert len(scene.come(2).plans) == 1, "p, which this scene never binds, goes to the node that rests"
    assert scene.reserved() == ["n1"]


def test_a_node_that_was_not_ready_for_a_moment_is_reserved_again_for_the_same_gang() -> None:
    scene = Scene()
    scene.come(1)
    ready = scene.all["n0"]
    not_ready = [Condition(type="Ready", status="False")]
    status = msgspec.structs.replace(ready.status, conditions=not_ready)
    scene.all["n0"] = msgspec.structs.replace(ready, status=status)
    scene.come(1)
    assert scene.reserved() == []
    scene.all["n0"] = ready
    assert places(scene.come(1)) == {}
    assert scene.reserved() == ["n0"]


def test_what_is_wrong_with_one_gang_that_has_asked_stops_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(*gang("g", 2), *gang("h", 2), books=False)
    scene.book("g", 2)
    scene.book("h", 2, is_served=False)

    def kinds(of: PodGang, view: View) -> list[PodClass]:
        if of.key.name == "g":
            raise KeyError("not foreseen")
        return _classes(of, view)

    monkeypatch.setattr(new_nodes, "_classes", kinds)
    scene.come(1)
    (holder,) = scene.placing.ledger.by_gang()
    assert "-h-" in holder


@pytest.mark.promise("O126")
@pytest.mark.parametrize("first", ["g", "h"])
def test_nodes_are_first_those_of_whom_the_autoscaler_has_served(first: str) -> None:
    scene = Scene(*gang("g", 2), *gang("h", 2))
    scene.bookings.clear()
    for name in ("g", "h"):
        scene.book(name, 2, is_served=name == first)
    scene.come(1)
    (holder,) = scene.placing.ledger.by_gang()
    assert f"-{first}-" in holder
    assert {name.split("-")[0] for name in places(scene.come(2))} == {first}


@pytest.mark.promise("O126")
@pytest.mark.parametrize("first", ["g", "h"])
def test_among_equal_gangs_nodes_are_reserved_first_for_the_one_that_asked_first(first: str) -> None:
    scene = Scene(*gang("g", 2), *gang("h", 2), books=False)
    for name in ("g", "h"):
        scene.book(name, 2, created=ASKED if name == first else "2026-01-01T00:00:11Z")
    scene.all = {name: made_at(node, "2026-01-01T00:00:12Z") for name, node in scene.all.items()}
    scene.come(1)
    (holder,) = scene.placing.ledger.by_gang()
    assert f"-{first}-" in holder


def test_a_deleted_gang_leaves_its_nodes_to_the_others() -> None:
    scene = Scene()
    scene.come(1)
    scene.cluster.pods = scene.cluster.pods[3:]
    assert places(scene.come(1)) == {"p": "n0"}


def test_a_node_that_no_pod_of_the_gang_may_use_is_not_reserved_for_it() -> None:
    scene = Scene(*gang("g", 3, nodeSelector={"pool": "other"}), old("p"))
    assert places(scene.come(1)) == {"p": "n0"}


def test_gangs_that_suit_no_node_cost_a_bounded_share_of_a_pass_and_others_none_of_theirs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    picky = [gang(f"picky{number}", 3, namespace="theirs", nodeSelector={"pool": "x"}) for number in range(9)]
    scene = Scene(*gang("g", 3), *(pod for pods in picky for pod in pods), books=False)
    for number in range(9):
        scene.book(f"picky{number}", 3)
    scene.book("g", 3, is_served=False)
    looked: list[int] = []

    def counted(kind: PodClass, nodes: list[NodeState], budget: Budget) -> SlotCounts:
        looked.append(len(nodes))
        return count_slots_by_node(kind, nodes, budget)

    monkeypatch.setattr(new_nodes, "count_slots_by_node", counted)
    monkeypatch.setattr(new_nodes, "MOST_LOOKS", 8)
    monkeypatch.setattr(new_nodes, "AT_ONCE", 1)
    scene.come(2)
    assert scene.reserved() == ["n0", "n1"], "g has asked last"
    assert sum(looked) == 4 + 2


def test_what_was_reserved_for_a_gang_before_new_nodes_came_stays_reserved_beside_them() -> None:
    younger = gpu_pod("p", metadata={"creationTimestamp": "2026-01-01T00:00:30Z"})
    scene = Scene(*gang("g", 3), younger)
    scene.all["n0"] = made_at(scene.all["n0"], "2026-01-01T00:00:00Z")
    reserved_for = next(each.key for each in scene.placing.gangs() if each.key.name == "g")
    scene.placing.reserve(reserved_for, ["n0"])
    for _ in range(2):
        assert places(scene.come(2)) == {}
        assert scene.reserved() == ["n0", "n1"]


def test_what_was_reserved_belongs_to_the_gang_s_plan_from_then_on() -> None:
    scene = Scene()
    scene.come(2)
    assert scene.reserved() == ["n0", "n1"]
    (key,) = scene.placing.ledger.by_gang()
    # The plan of the first stage, whose other pods are made once it runs, takes over what was booked.
    (leader,) = gang("g", 1)
    runs = gpu_pod("g-0", node="n0", metadata={"uid": "g-0", "annotations": leader.metadata.annotations})
    scene.cluster.pods = [runs, old("p")]
    spec = PlacementSpec(pods=[PlannedPod("g-0", "g-0", "n0")], later_pod_nodes=["n1"])
    namespace, name = key.split("/")
    scene.cluster.placements[key] = Placement(
        metadata=Metadata(name=name, namespace=namespace, uid="plan"), spec=spec
    )
    for number in range(3):
        assert places(scene.come(2)) == {}, number
        assert scene.reserved() == ["n1"], number


def test_what_was_made_for_one_gang_pushes_out_nothing_that_the_plan_of_another_keeps() -> None:
    settings = Settings(settle_seconds=0, reserve_share=0.5, reserve_seconds=1e12)
    runs = gpu_pod("s-0", node="n4", metadata={"uid": "s-0", "annotations": {keys.GANG_ANNOTATION: "s"}})
    scene = Scene(*gang("g", 5), runs, settings=settings, books=False)
    for name in ("n4", "n5"):
        scene.all[name] = made_at(scene.all[name], "2026-01-01T00:00:00Z")
    spec = PlacementSpec(pods=[PlannedPod("s-0", "s-0", "n4")], later_pod_nodes=["n5"])
    metadata = Metadata(name="staged", namespace="ns", uid="plan")
    scene.cluster.placements["ns/staged"] = Placement(metadata=metadata, spec=spec)
    scene.book("g", 5, is_made=True)
    for number in range(3):
        scene.come(6)
        assert scene.reserved() == ["n0", "n1", "n2", "n3", "n5"], number


@pytest.mark.parametrize("is_reserved", [False, True], ids=["booked", "kept by its plan"])
def test_what_was_made_for_one_gang_leaves_others_that_are_replaced_their_share(is_reserved: bool) -> None:
    """Else a gang whose released part is deleted would find its places taken."""
    settings = Settings(settle_seconds=0, reserve_share=0.5, reserve_seconds=1e12)
    runs = gpu_pod("h-0", node="n6", metadata={"uid": "h-0", "annotations": {keys.GANG_ANNOTATION: "h"}})
    scene = Scene(*gang("g", 9), *gang("h", 9), runs, settings=settings, books=False)
    for name in ("n4", "n5", "n6", "n7"):
        scene.all[name] = made_at(scene.all[name], "2026-01-01T00:00:00Z")
    scene.book("g", 4, is_made=True)
    scene.come(8)
    assert scene.reserved() == ["n0", "n1", "n2", "n3"]
    other = next(each.key for each in scene.placing.gangs() if each.key.name == "h")
    if is_reserved:
        (key,) = scene.placing.ledger.by_gang()
        (leader,) = gang("g", 1)
        runs = gpu_pod("g-0", node="n0", metadata={"uid": "g-0", "annotations": leader.metadata.annotations})
        scene.cluster.pods = [runs, *gang("h", 9)]
        namespace, name = key.split("/")
        spec = PlacementSpec(pods=[PlannedPod("g-0", "g-0", "n0")], later_pod_nodes=["n1", "n2", "n3"])
        metadata = Metadata(name=name, namespace=namespace, uid="plan")
        scene.cluster.placements[key] = Placement(metadata=metadata, spec=spec)
        scene.come(8)
    scene.placing.reserve(other, ["n3", "n4", "n5"])
    assert scene.placing.ledger.of(other.placement_key) == {"n4", "n5"}


def test_what_was_made_for_a_gang_stays_with_its_plan_whatever_the_share() -> None:
    """Its first pod runs, and the others are made once it is ready."""
    settings = Settings(settle_seconds=0, reserve_share=0.5, reserve_seconds=1e12)
    scene = Scene(*gang("g", 5), old("p"), settings=settings, books=False)
    scene.book("g", 5, is_made=True)
    scene.come(4)
    (key,) = scene.placing.ledger.by_gang()
    (leader,) = gang("g", 1)
    runs = gpu_pod("g-0", node="n0", metadata={"uid": "g-0", "annotations": leader.metadata.annotations})
    scene.cluster.pods = [runs, old("p")]
    remaining = ["n1", "n2", "n3"]
    namespace, name = key.split("/")
    metadata = Metadata(name=name, namespace=namespace, uid="plan")
    spec = PlacementSpec(pods=[PlannedPod("g-0", "g-0", "n0")], later_pod_nodes=remaining)
    scene.cluster.placements[key] = Placement(metadata=metadata, spec=spec)
    for number in range(3):
        assert places(scene.come(4)) == {}, number
        assert scene.reserved() == remaining, number


@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_whatever_is_asked_for_each_node_is_reserved_once_within_the_share_and_came_since(data: Any) -> None:
    """Nodes that were made for a gang are beyond the share."""
    count, share = data.draw(st.integers(1, 9)), data.draw(st.sampled_from((0.0, 0.3, 0.5, 1.0)))
    names = [f"g{number}" for number in range(data.draw(st.integers(1, 3)))]
    sizes = {name: data.draw(st.integers(1, 12)) for name in names}
    pods = [pod for name in names for pod in gang(name, sizes[name])]
    scene = Scene(*pods, settings=replace(SETTINGS, reserve_share=share), books=False)
    asked = {name: f"2026-01-01T00:00:1{data.draw(st.integers(0, 3))}Z" for name in names}
    makes = data.draw(st.booleans())
    for name in names:
        is_served = data.draw(st.booleans())
        scene.book(name, sizes[name], is_served=is_served, is_made=makes, created=asked[name])
    came = {node: f"2026-01-01T00:00:1{data.draw(st.integers(0, 3))}Z" for node in scene.all}
    scene.all = {name: made_at(node, came[name]) for name, node in scene.all.items()}
    orders = scene.come(count)
    reserved = scene.placing.ledger.by_gang()
    nodes = [name for each in reserved.values() for name in each.nodes]
    by_placement = {booking.placement: booking for booking in scene.bookings}
    bounded = [
        name
        for placement, each in reserved.items()
        for name in each.nodes
        if not (makes and by_placement[placement].is_served)
    ]
    assert len(nodes) == len(set(nodes))
    assert len(bounded) <= (max(1, int(count * share)) if share else 0)
    assert share or not nodes
    for placement, each in reserved.items():
        assert all(came[node] >= by_placement[placement].created for node in each.nodes)
        assert len(each.nodes) <= by_placement[placement].pods
    taken = {entry.node: plan.gang.key.placement_key for plan in orders.plans for entry in plan.entries}
    others = {node: placement for placement, each in reserved.items() for node in each.nodes}
    assert all(others.get(node, placement) == placement for node, placement in taken.items())
