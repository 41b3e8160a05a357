"""A card that breaks while its pod still runs: plans for the other cards of its node stay valid."""

from typing import Any, Final

import msgspec
import pytest

from labeler.contract import keys
from tests.sweeper.cluster import Nodes, Placing
from tests.sweeper.pods import decode, pod_json
from webhook.configuration.settings import Settings
from webhook.kube.objects import Node, Pod
from webhook.kube.placements import Placement
from webhook.sweeper.decide.plan import without_overbooked
from webhook.sweeper.decide.release_queue import SentReleases

AMOUNTS: Final = {keys.I915: "1"}
CONTAINERS: Final = [{"name": "c", "resources": {"requests": AMOUNTS, "limits": AMOUNTS}}]
REPORTED: Final = f"card0={keys.I915}:0,card1={keys.I915}:1,card2={keys.I915}:1"
"""What an allocator offers of three cards, of which card0 is broken."""


def pod(name: str, **spec: Any) -> Pod:
    return decode(pod_json(name, containers=CONTAINERS, **spec))


def running_on(card: str) -> Pod:
    spec: dict[str, Any] = {"nodeName": "n0", "schedulingGates": []}
    return pod("old", metadata={"annotations": {keys.GAS_CARDS_ANNOTATION: card}}, **spec)


def broken_node(labelled: str) -> Node:
    """A node whose card0 is broken."""
    labels = {keys.GPU_NUMBERS_LABEL: labelled}
    metadata = {
        "name": "n0",
        "uid": "n0",
        "labels": labels,
        "annotations": {keys.OFFERED_CARDS_ANNOTATION: REPORTED},
    }
    status = {"allocatable": {keys.I915: "2", "pods": "110"}}
    return msgspec.convert({"metadata": metadata, "status": status}, Node)


@pytest.mark.parametrize("labelled", ["1.2", "0.1.2"], ids=["not labelled any more", "still labelled"])
@pytest.mark.parametrize(
    ("in_use", "planned", "is_valid"),
    [
        ("card0", "card1", True),
        ("card1", "card2", True),
        ("card1", "card1", False),
        ("card1", "card0", False),
    ],
    ids=["beside the broken card", "none in use is broken", "taken meanwhile", "broken itself"],
)
def test_a_plan_is_invalid_if_its_own_cards_are_taken_or_broken_and_not_for_others_of_the_node(
    in_use: str, planned: str, is_valid: bool, labelled: str
) -> None:
    """A pod that runs on a broken card overbooks that card until it ends, maybe for days."""
    cluster = Nodes(0, running_on(in_use), pod("new"))
    cluster.nodes = {"n0": broken_node(labelled)}
    entry = {
        "name": "new",
        "uid": "uid-new",
        "node": "n0",
        "annotations": {keys.GAS_CARDS_ANNOTATION: planned},
    }
    body = {
        "metadata": {"name": "new", "namespace": "ns", "uid": "p"},
        "spec": {"gang": "Pod/new", "pods": [entry]},
    }
    cluster.placements = {"ns/new": msgspec.convert(body, Placement)}
    placing = Placing(cluster, Settings())
    view = placing.view()
    assert view.planned
    left = without_overbooked(view, placing.snapshotter.snapshot(view), SentReleases())
    assert bool(left.planned) is is_valid
