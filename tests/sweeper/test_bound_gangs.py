"""Of gangs whose pods are all bound nothing is worked out until something of them changes."""

import random
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from labeler.contract import keys
from tests.sweeper.pods import decode, gather_all, pod_json
from tests.sweeper.readings import Cluster
from tests.sweeper.reports import Answers, Reports
from tests.sweeper.stories import LEVELS
from webhook.configuration.settings import Settings
from webhook.kube.objects import Metadata, Node, Pod, SchedulingGate
from webhook.kube.placements import Placement, PlacementSpec, PlacementStatus
from webhook.kube.plan_pods import PlannedPod
from webhook.sweeper.context import Pass
from webhook.sweeper.decide.reservations import STARVATION, Reservation
from webhook.sweeper.metrics import Metrics
from webhook.sweeper.observe.membership import GangKey, key_of
from webhook.sweeper.observe.plans import PodId
from webhook.sweeper.observe.pods import Journal
from webhook.sweeper.observe.snapshotter import Snapshotter
from webhook.sweeper.observe.view import View
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
        self.surroundings = Pass(self.api, cache, Settings())
        self.reporter = Reports(self.surroundings)
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

    def change(self, before: Pod | None, after: Pod | None) -> None:
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


def named(placement: Placement) -> Placement:
    """A plan under the name that the sweeper gives to it."""
    kind, _, name = placement.spec.gang.partition("/")
    key = GangKey("ns", kind, name, placement.spec.gang_id)
    return msgspec.structs.replace(placement, metadata=Metadata(name=key.placement_name, namespace="ns"))


class Story:
    """Things that happen to the gangs of some passes, and what two reporters write in the same pass."""

    def __init__(self, seed: int, passes: Passes, monkeypatch: pytest.MonkeyPatch) -> None:
        self.dice, self.passes, self.evicted = random.Random(seed), passes, set[PodId]()
        self.written: list[tuple[str, PlacementStatus | None]] = []
        self.counts: list[Counter[str]] = []
        passes.cluster.placements = {
            each.key: each for each in map(named, passes.cluster.placements.values())
        }

        def write(_: StatusWriter, placement: Placement, status: PlacementStatus) -> None:
            if status != placement.status:
                self.written.append((placement.key, status))

        def remove(_: StatusWriter, placement: Placement) -> None:
            self.written.append((placement.key, None))

        monkeypatch.setattr(StatusWriter, "write", write)
        monkeypatch.setattr(StatusWriter, "remove", remove)
        monkeypatch.setattr(Metrics, "count_gangs", lambda _, states: self.counts.append(Counter(states)))

    def step(self) -> None:
        things = (self.pod, self.gone, self.plan, self.node, self.reservation)
        self.dice.choices(things, (6, 1, 2, 4, 1))[0]()

    def pod(self) -> None:
        """One comes, or changes its node, gang or phase, or waits."""
        name = self.dice.choice(("a", "b", "alone", "a-2", "a-2"))
        gang = name[0] if self.dice.random() < 0.9 else "b"
        node = self.dice.choice(("n1", "n1", "n2", "n2", ""))
        made = bound(name, node, gang, self.dice.choice(("Running", "Running", "Pending")))
        if not node and self.dice.random() < 0.5:
            spec = msgspec.structs.replace(made.spec, scheduling_gates=[SchedulingGate(keys.GATE)])
            made = msgspec.structs.replace(made, spec=spec)
        self.put(name, made)

    def gone(self) -> None:
        """A pod is deleted, by the sweeper or by others."""
        if self.passes.pods:
            name = self.dice.choice(sorted(self.passes.pods))
            self.evicted |= {("ns", f"uid-{name}")} if self.dice.random() < 0.5 else set()
            self.put(name, None)

    def put(self, name: str, after: Pod | None) -> None:
        self.passes.change(self.passes.pods.pop(name, None), after)
        self.passes.pods |= {name: after} if after is not None else {}

    def plan(self) -> None:
        """A gang gets a plan for more pods or a new attempt, its status is edited, or its plan is gone."""
        name = self.dice.choice(("a", "b", "alone"))
        key = key_of(bound(name)).placement_key
        known = self.passes.cluster.placements.get(key) or named(plan(bound(name)))
        others = [PlannedPod(f"{name}-2", f"uid-{name}-2", "n2")] if self.dice.random() < 0.8 else []
        pods, attempt = [known.spec.pods[0], *others], self.dice.choice((0, 0, 1))
        spec = msgspec.structs.replace(known.spec, pods=pods, size=len(pods), attempt=attempt)
        status = msgspec.structs.replace(known.status, bound=self.dice.choice((known.status.bound, 7)))
        is_gone = self.dice.random() < 0.2
        self.show(key, None if is_gone else msgspec.structs.replace(known, spec=spec, status=status))

    def show(self, key: str, after: Placement | None) -> None:
        rest = {name: each for name, each in self.passes.cluster.placements.items() if name != key}
        self.passes.cluster.placements = {**rest, **({key: after} if after is not None else {})}

    def node(self) -> None:
        """A heartbeat, or other labels."""
        name = self.dice.choice(("n1", "n2"))
        node, others = self.passes.cluster.nodes[name], {level: self.dice.choice("12") for level in LEVELS}
        labels = others if self.dice.random() < 0.5 else node.metadata.labels
        metadata = msgspec.structs.replace(node.metadata, labels=labels)
        changed = msgspec.structs.replace(node, metadata=metadata)
        self.passes.cluster.nodes = {**self.passes.cluster.nodes, name: changed}

    def reservation(self) -> None:
        """Nodes are reserved for a gang, or no longer."""
        key, ends = key_of(bound("a")).placement_key, datetime(2026, 1, 1, tzinfo=UTC)
        made = Reservation(STARVATION, key, frozenset({"n2"}), 0.0, 1.0, ends)
        self.passes.reserved = {} if self.passes.reserved else {key: made}

    def reported(self, reports: Reports, view: View) -> tuple[object, ...]:
        """What is written in a pass, and how many gangs of each state are counted."""
        self.written.clear()
        gangs = gather_all(*view.gated)
        is_whole = reports.report(view, gangs, reservations=self.passes.reserved, evicted=self.evicted)
        return is_whole, sorted(self.written, key=repr), self.counts.pop()

    def take(self) -> None:
        """The API server takes most of what was written last."""
        for key, status in self.written:
            known = self.passes.cluster.placements.get(key)
            if known is not None and self.dice.random() < 0.9:
                self.show(key, msgspec.structs.replace(known, status=status) if status is not None else None)


@pytest.mark.promise("I36")
@pytest.mark.parametrize("seed", range(8))
def test_whatever_happens_a_pass_writes_what_one_without_cache_writes(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    passes = Passes(monkeypatch)
    story, skipped = Story(seed, passes, monkeypatch), 0
    for _ in range(150):
        for _ in range(story.dice.choice((0, 1, 1, 2))):
            story.step()
        view, fresh = passes.snapshotter.view(), Reports(passes.surroundings)
        fresh.memory = passes.reporter.memory
        expected = story.reported(fresh, view)
        looked_at = len(passes.looked_at)
        assert story.reported(passes.reporter, view) == expected
        skipped += 2 * looked_at - len(passes.looked_at)
        passes.looked_at.clear()
        story.take()
    assert skipped, "the cache is used"
