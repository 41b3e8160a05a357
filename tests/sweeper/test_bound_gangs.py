"""Of gangs whose pods are all bound nothing is worked out until something of them changes."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from labeler.contract import keys
from tests.sweeper.pods import decode, pod_json
from tests.sweeper.readings import Cluster
from tests.sweeper.reports import Answers, Reports
from webhook.configuration.settings import Settings
from webhook.kube.objects import Metadata, Node, Pod
from webhook.kube.placements import Placement, PlacementSpec, PlacementStatus
from webhook.kube.plan_pods import PlannedPod
from webhook.sweeper.context import Pass
from webhook.sweeper.decide.reservations import STARVATION, Reservation
from webhook.sweeper.observe.pods import Journal
from webhook.sweeper.observe.snapshotter import Snapshotter
from webhook.sweeper.report import Reporter, StatusWriter


def bound(name: str, node: str = "n1", gang: str = "", phase: str = "Running") -> Pod:
    """A pod of the gang of its name; "alone" is one by itself."""
    annotations = {} if name == "alone" else {keys.GANG_ANNOTATION: gang or name}
    body = pod_json(name, nodeName=node, schedulingGates=[], metadata={"annotations": annotations})
    return decode({**body, "status": {"phase": phase}})


def plan(pod: Pod) -> Placement:
    name, uid = pod.metadata.name, pod.metadata.uid
    kind, id_ = ("Pod", uid) if name == "alone" else ("Gang", name)
    spec = PlacementSpec(gang=f"{kind}/{name}", gang_id=id_, size=1, pods=[PlannedPod(name, uid, "n1")])
    return Placement(Metadata(name=name, namespace="ns", uid=f"plan-{name}"), spec)


class Passes:
    """Passes over a cluster with some gangs of one pod each; looked_at: those whose status is worked out."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.pods = {name: bound(name) for name in ("a", "b", "alone")}
        self.cluster = Cluster()
        self.cluster.placements = {each.key: each for each in map(plan, self.pods.values())}
        self.journal = Journal()
        self.journal.begin(self.pods)
        self.snapshotter = Snapshotter(self.cluster, Settings(), self.journal)
        cache: Any = self.cluster
        self.api = Answers()
        self.reporter = Reports(Pass(self.api, cache, Settings()))
        self.reserved: dict[str, Reservation] = {}
        self.looked_at: list[str] = []
        real = Reporter._progress

        def progress(reporter: Reporter, placement: Placement, *rest: Any) -> PlacementStatus:
            self.looked_at.append(placement.metadata.name)
            return real(reporter, placement, *rest)

        def write(_: StatusWriter, placement: Placement, status: PlacementStatus) -> None:
            if status != placement.status:
                changed = msgspec.structs.replace(placement, status=status)
                self.cluster.placements = {**self.cluster.placements, placement.key: changed}

        monkeypatch.setattr(Reporter, "_progress", progress)
        monkeypatch.setattr(StatusWriter, "write", write)

    def one(self) -> list[str]:
        """The gangs whose status is worked out in a pass."""
        self.looked_at.clear()
        self.reporter.report(self.snapshotter.view(), [], reservations=self.reserved)
        return sorted(self.looked_at)

    def change(self, before: Pod, after: Pod | None) -> None:
        self.journal.note(before, after)


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> Passes:
    """All gangs have been reported of in earlier passes."""
    made = Passes(monkeypatch)
    assert made.one() == made.one() == ["a", "alone", "b"], "written, then found to be written"
    assert made.one() == []
    return made


def replace_plan(passes: Passes) -> None:
    new = {key: each for key, each in passes.cluster.placements.items() if key != "ns/a"}
    old = passes.cluster.placements["ns/a"]
    passes.cluster.placements = {**new, "ns/a": msgspec.structs.replace(old)}


def change_pod(passes: Passes) -> None:
    passes.change(passes.pods["a"], bound("a", "n2"))


def add_pod(passes: Passes) -> None:
    other = bound("other", gang="a")
    passes.journal.note(None, other)


@pytest.mark.promise("I36")
@pytest.mark.parametrize("happens", [replace_plan, change_pod, add_pod])
def test_only_what_has_changed_is_looked_at_again(happens: Callable[[Passes], None], passes: Passes) -> None:
    happens(passes)
    assert passes.one() == ["a"]


def test_a_pod_that_is_a_gang_of_its_own_is_looked_at_again_once_it_changes(passes: Passes) -> None:
    passes.change(passes.pods["alone"], bound("alone", "n2"))
    assert passes.one() == ["alone"]


def test_a_plan_is_removed_once_its_pods_are_gone(passes: Passes) -> None:
    passes.change(passes.pods["a"], None)
    passes.one()
    assert [each for each in passes.api.writes if each.startswith("DELETE")] == [
        "DELETE /apis/topogate.io/v1alpha1/namespaces/ns/placements/a"
    ]


def test_a_change_of_a_pod_between_two_looks_of_a_pass_is_not_lost(passes: Passes) -> None:
    change_pod(passes)
    passes.snapshotter.view()
    assert passes.one() == ["a"]


def test_a_plan_one_of_whose_pods_is_of_another_gang_by_now_is_looked_at_in_each_pass(passes: Passes) -> None:
    """What changes of that pod would not be noticed by its old gang."""
    passes.change(passes.pods["a"], bound("a", gang="another"))
    assert [passes.one() for _ in range(3)] == [["a"]] * 3


def relabelled(node: Node) -> Node:
    metadata = msgspec.structs.replace(node.metadata, labels={"rack": "2"})
    return msgspec.structs.replace(node, metadata=metadata)


def test_new_labels_of_a_node_have_all_looked_at_again(passes: Passes) -> None:
    passes.cluster.nodes = {name: relabelled(node) for name, node in passes.cluster.nodes.items()}
    assert passes.one() == ["a", "alone", "b"]


def test_a_heartbeat_of_a_node_changes_nothing(passes: Passes) -> None:
    passes.cluster.nodes = {
        name: msgspec.structs.replace(node) for name, node in passes.cluster.nodes.items()
    }
    assert passes.one() == []


def test_a_gang_for_which_nodes_are_reserved_is_looked_at_again(passes: Passes) -> None:
    """Else its status would say so for ever."""
    reserved = Reservation(STARVATION, "ns/a", frozenset({"n2"}), 0.0, 1.0, datetime.now(UTC))
    passes.reserved = {"ns/a": reserved}
    assert [passes.one() for _ in range(3)] == [["a"]] * 3
    passes.reserved = {}
    assert passes.one() == ["a"]


def test_a_gang_that_is_not_complete_is_looked_at_again(passes: Passes) -> None:
    """What may still change by itself."""
    old = passes.cluster.placements["ns/a"]
    spec = msgspec.structs.replace(old.spec, size=2)
    status = msgspec.structs.replace(old.status, complete=False)
    changed = msgspec.structs.replace(old, spec=spec, status=status)
    passes.cluster.placements = {**passes.cluster.placements, "ns/a": changed}
    assert [passes.one() for _ in range(3)] == [["a"]] * 3


def test_plans_that_are_gone_are_forgotten(passes: Passes) -> None:
    placements = {"ns/b": passes.cluster.placements["ns/b"]}
    passes.cluster.placements = placements
    for _ in range(3):
        passes.one()
    known = passes.reporter.reporter._bound
    assert "ns/a" not in known._known.keys() | known._used.keys()
