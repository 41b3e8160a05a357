"""Of gangs whose pods are all bound nothing is worked out until something of them changes."""

from collections.abc import Callable

import msgspec
import pytest

from tests.sweeper.pods import decode, pod_json
from tests.sweeper.test_view import Cluster
from webhook.kube.objects import Metadata, Node, Pod
from webhook.kube.placements import BOUND, RELEASED, Placement, PlacementSpec, PlacementStatus
from webhook.kube.planned import PlannedPod
from webhook.sweeper.observe.journal import Journal
from webhook.sweeper.observe.snapshotter import Snapshotter
from webhook.sweeper.observe.view import View
from webhook.sweeper.settings import Settings
from webhook.sweeper.settled import Settled

STATUS = PlacementStatus(BOUND, 1, 1, 1, "1 node", True, 1)


def bound(name: str, node: str = "n1") -> Pod:
    return decode(pod_json(name, nodeName=node, schedulingGates=[]))


def plan(name: str, pod: Pod, status: PlacementStatus = STATUS) -> Placement:
    entry = PlannedPod(pod.metadata.name, pod.metadata.uid, "n1")
    return Placement(Metadata(name=name, namespace="ns"), PlacementSpec(pods=[entry]), status)


class Passes:
    """Passes over a cluster with two gangs of one pod each."""

    def __init__(self) -> None:
        self.pods = {"a": bound("a"), "b": bound("b")}
        self.cluster = Cluster()
        self.cluster.placements = {each.key: each for each in (plan(name, self.pods[name]) for name in "ab")}
        self.journal = Journal()
        self.journal.begin(self.pods)
        self.snapshotter = Snapshotter(self.cluster, Settings(), self.journal)
        self.settled = Settled()

    def look(self) -> View:
        view = self.snapshotter.view()
        self.settled.begin_round(view)
        return view

    @property
    def known(self) -> list[str]:
        return [name for name in "ab" if self.settled.has(self.cluster.placements.get(f"ns/{name}"))]


@pytest.fixture
def passes() -> Passes:
    """Both gangs have been reported of in an earlier pass."""
    made = Passes()
    made.look()
    for each in made.cluster.placements.values():
        made.settled.saw(each, STATUS)
    made.look()
    assert made.known == ["a", "b"]
    return made


def replace_plan(passes: Passes) -> None:
    passes.cluster.placements["ns/a"] = plan("a", passes.pods["a"])


def change(passes: Passes) -> None:
    passes.journal.note(passes.pods["a"], bound("a", "n2"))


def remove(passes: Passes) -> None:
    passes.journal.note(passes.pods["a"], None)


@pytest.mark.parametrize("happens", [replace_plan, change, remove])
def test_only_what_has_changed_is_looked_at_again(happens: Callable[[Passes], None], passes: Passes) -> None:
    happens(passes)
    passes.look()
    assert passes.known == ["b"]


def test_a_change_of_a_pod_between_two_looks_of_a_pass_is_not_lost(passes: Passes) -> None:
    change(passes)
    passes.snapshotter.view()
    passes.look()
    assert passes.known == ["b"]


def test_more_changes_than_are_remembered_have_all_looked_at_again(passes: Passes) -> None:
    for number in range(99):
        passes.journal.note(None, bound(f"other-{number}"))
        passes.snapshotter.view()
    passes.look()
    assert passes.known == []


def relabelled(node: Node) -> Node:
    return msgspec.structs.replace(
        node, metadata=msgspec.structs.replace(node.metadata, labels={"rack": "2"})
    )


def test_new_labels_of_a_node_have_all_looked_at_again(passes: Passes) -> None:
    passes.cluster.nodes = {name: relabelled(node) for name, node in passes.cluster.nodes.items()}
    passes.look()
    assert passes.known == []


def test_a_heartbeat_of_a_node_changes_nothing(passes: Passes) -> None:
    passes.cluster.nodes = {
        name: msgspec.structs.replace(node) for name, node in passes.cluster.nodes.items()
    }
    passes.look()
    assert passes.known == ["a", "b"]


@pytest.mark.parametrize(
    "status",
    [
        msgspec.structs.replace(STATUS, state=RELEASED),
        msgspec.structs.replace(STATUS, complete=False),
        msgspec.structs.replace(STATUS, reason="not written yet"),
    ],
    ids=["not bound", "not complete", "not written"],
)
def test_what_may_still_change_by_itself_is_looked_at_again(status: PlacementStatus, passes: Passes) -> None:
    placement = plan("c", passes.pods["a"])
    passes.settled.saw(placement, status)
    assert not passes.settled.has(placement)


def test_a_gang_for_which_nodes_are_held_is_looked_at_again(passes: Passes) -> None:
    """Else its status would say so for ever."""
    holding = msgspec.structs.replace(STATUS, held=["n2"], held_until="2026-01-01T00:00:00Z")
    placement = plan("c", passes.pods["a"], holding)
    passes.settled.saw(placement, holding)
    assert not passes.settled.has(placement)


def test_plans_that_are_gone_are_forgotten(passes: Passes) -> None:
    passes.settled.keep_only({"ns/b": passes.cluster.placements["ns/b"]})
    assert passes.known == ["b"]
