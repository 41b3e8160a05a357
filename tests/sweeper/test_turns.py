"""The order in which a node's pods with cards are let go, told to the device plugin by their gas-ts."""

import itertools

import pytest

from labeler.contract import keys
from tests.sweeper.cluster import Nodes, Placing
from tests.sweeper.pods import decode, pod_json
from webhook.kube.objects import Metadata, Pod
from webhook.kube.placements import Placement, PlacementSpec
from webhook.kube.planned import PlannedPod
from webhook.sweeper.decide.expectations import Expectations
from webhook.sweeper.decide.turns import Turns
from webhook.sweeper.settings import Settings

EARLIER, LATER = 1_764_000_000_000_000_000, 1_764_000_000_000_000_001


def with_card(name: str, stamp: int = 0, **spec: object) -> Pod:
    """A pod of one card, gated unless more is said; stamp: its gas-ts, if it has its card by now."""
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
    placing = Placing(cluster, Settings())
    released = placing.placer.stamped(zip(pods, waiting, strict=True), placing.view())
    return [int(planned.annotations.get(keys.GAS_TIMESTAMP_ANNOTATION, 0)) for _, planned in released]


def test_whose_plan_does_not_hold_stands_in_the_line_of_its_node_all_the_same() -> None:
    """As for a node that nobody may go to now: the next leader may find that it does hold."""
    cluster = Nodes(1, with_card("a"))
    planned = PlannedPod("a", "uid-a", "gone", annotations=given(EARLIER))
    plan = Placement(metadata=Metadata(name="p", namespace="ns"), spec=PlacementSpec(pods=[planned]))
    cluster.placements = {"ns/p": plan}
    view = Placing(cluster, Settings()).view()
    assert (view.planned, view.written) == ({}, (planned,))


def test_whoever_has_waited_with_its_plan_is_told_as_the_last_one_let_go() -> None:
    """Its gang may have paused, or its node been overbooked, while the turns of others came."""
    older = [PlannedPod(name, f"uid-{name}", "n0", annotations=given(EARLIER)) for name in ("a", "b")]
    found = stamps(*older)
    assert found[0] > LATER
    assert all(one < other for one, other in itertools.pairwise(found))


@pytest.mark.parametrize("annotations", [{}, given(EARLIER)], ids=["no card", "a card"])
def test_only_who_is_given_a_card_is_told_a_time(annotations: dict[str, str]) -> None:
    (found,) = stamps(PlannedPod("a", "uid-a", "n0", annotations=annotations))
    assert bool(found) == bool(annotations)


@pytest.mark.parametrize("carries", [True, False], ids=["as released", "a webhook took its annotations off"])
def test_a_pod_that_has_been_let_go_has_the_turn_on_its_node_until_it_is_bound(carries: bool) -> None:
    """Whatever it carries, kubelet will ask for its cards, and the device plugin for the lowest gas-ts."""
    pin = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n0"]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [pin]}}
    sent = with_card("a", EARLIER if carries else 0, schedulingGates=[], affinity={"nodeAffinity": required})
    waiting = PlannedPod("b", "uid-b", "n0", annotations=given(LATER))
    plan = PlacementSpec(pods=[PlannedPod("a", "uid-a", "n0", annotations=given(EARLIER)), waiting])
    cluster = Nodes(1, sent, with_card("b"))
    cluster.placements = {"ns/p": Placement(metadata=Metadata(name="p", namespace="ns"), spec=plan)}
    view = Placing(cluster, Settings()).view()
    assert Turns(view, Expectations()).take([(view.by_uid["uid-b"], waiting)]) == ()
