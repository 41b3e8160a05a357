"""Which PodGroup a gang needs by its plan, and what waits and is written until it is there."""

from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from labeler.contract import keys
from tests.sweeper.cluster import Nodes, gpu_pod
from tests.sweeper.sets import pinned_to
from webhook.configuration.settings import Settings
from webhook.extensions.native_gangs.own_pod_groups import (
    COLLECTIONS,
    FINALIZER,
    GROUPS,
    BindGroup,
    NativeMemory,
    group_events,
    group_writes,
    hold_releases,
    invalid_plans,
    needs,
    overlooked_needs,
    patient_needs,
)
from webhook.kube.objects import Pod
from webhook.kube.placements import Placement, PlacementStatus
from webhook.kube.plan_pods import PlannedPod
from webhook.placement import Topology
from webhook.sweeper.decide.plan import with_valid_plans, without_overbooked
from webhook.sweeper.decide.refusing_nodes import RefusingNodes
from webhook.sweeper.decide.release_queue import SentReleases
from webhook.sweeper.extension import ObjectEvent, ObjectWrite, WriteResult
from webhook.sweeper.observe.membership import GangKey, key_of
from webhook.sweeper.observe.plans import required_terms, unpinned
from webhook.sweeper.observe.snapshotter import Snapshotter
from webhook.sweeper.observe.view import Moment, View
from webhook.sweeper.observe.watches import Verb
from webhook.workloads.native_gangs import NativePodGroup
from webhook.workloads.owners import OwnerRules
from webhook.workloads.pod_group_names import NOMINATED_PREFIX, bind_group_name

LABELS = {"batch.kubernetes.io/job-name": "train", "batch.kubernetes.io/controller-uid": "u"}
NAME = bind_group_name(LABELS, {}, "", "")
CARDS = {keys.GAS_TIMESTAMP_ANNOTATION: "1" * 19, keys.GAS_CARDS_ANNOTATION: "card0"}
COLLECTION = COLLECTIONS[-1]


def member(number: int, node: str = "", **spec: Any) -> Pod:
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "u", "controller": True}
    metadata = {"uid": f"p{number}", "labels": LABELS, "namespace": "in", "ownerReferences": [owner]}
    spec = {"schedulingGroup": {"podGroupName": NAME}, **spec}
    return gpu_pod(f"p{number}", node=node, metadata=metadata, **spec)


def group(
    minimum: int, *, deleted: bool = False, finalizers: tuple[str, ...] = (FINALIZER,), within: str = ""
) -> BindGroup:
    """minimum: 0 for pods that are bound by themselves. within: the label by which they are in one domain."""
    metadata: dict[str, Any] = {"name": NAME, "namespace": "in", "uid": "g", "finalizers": finalizers}
    if deleted:
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    policy = {"gang": {"minCount": minimum}} if minimum else {"basic": {}}
    spec: dict[str, Any] = {"schedulingPolicy": policy}
    if within:
        spec["schedulingConstraints"] = {"topology": [{"key": within}]}
    return msgspec.convert({"metadata": metadata, "spec": spec}, BindGroup)


def writes_of(view: View) -> Sequence[ObjectWrite]:
    return group_writes(view, needs(view))


def events_of(
    view: View, written: Sequence[WriteResult], memory: NativeMemory
) -> tuple[Sequence[ObjectEvent], NativeMemory]:
    return group_events(view, needs(view), written, memory)


class Scene:
    """Three pods of a Job, planned for a node each."""

    def __init__(
        self,
        *pods: Pod,
        minimum: int = 0,
        cards: bool = False,
        loose: bool = False,
        anywhere: bool = False,
    ) -> None:
        self.members = pods or tuple(member(number) for number in range(3))
        rules = OwnerRules(loose_owners=frozenset({"Job.batch"} if loose else ()))
        self.settings = Settings(loose_owners=rules.loose_owners)
        self.lost_plans: frozenset[str] = frozenset()
        self.cluster = Nodes(4, *self.members)
        gang = Snapshotter(self.cluster, self.settings).view().gang_of(self.members[0])
        entries = [
            {"name": each.metadata.name, "uid": each.metadata.uid, "node": "" if anywhere else f"n{number}"}
            | ({"annotations": CARDS} if cards else {})
            for number, each in enumerate(self.members)
        ]
        body = {
            "metadata": {"name": gang.placement_name, "namespace": "in", "uid": "placement"},
            "spec": {"gang": "Job/train", "pods": entries, "minimum": minimum},
        }
        self.cluster.placements[f"in/{gang.placement_name}"] = msgspec.convert(body, Placement)

    def view(
        self, there: BindGroup | None = None, *, is_read: bool = True, foreign: NativePodGroup | None = None
    ) -> View:
        view = Snapshotter(self.cluster, self.settings).view()
        view = view.with_plans(
            {uid: each for uid, each in view.planned.items() if uid not in self.lost_plans}
        )
        objects = {} if there is None else {f"in/{NAME}": there}
        found: dict[Hashable, dict[str, Any]] = {GROUPS: {} if foreign is None else {f"in/{NAME}": foreign}}
        return replace(view, objects=found | ({COLLECTION: objects} if is_read else {}))


def policy_of(scene: Scene) -> Any:
    (write,) = writes_of(scene.view())
    assert write.verb is Verb.CREATE
    return write.body["spec"]["schedulingPolicy"]


def test_a_gang_needs_a_pod_group_of_all_pods_of_its_plan() -> None:
    assert policy_of(Scene()) == {"gang": {"minCount": 3}}
    assert policy_of(Scene(minimum=2)) == {"gang": {"minCount": 2}}


@pytest.mark.promise("R275")
def test_of_a_gang_with_pods_from_before_the_setting_the_others_are_bound_together() -> None:
    """A pod's schedulingGroup never changes, and one that came past admission has none."""
    (old,) = (gpu_pod("p0", metadata=msgspec.to_builtins(member(0).metadata)),)
    assert policy_of(Scene(old, member(1), member(2))) == {"gang": {"minCount": 2}}


@pytest.mark.promise("R275")
@pytest.mark.parametrize(
    "scene",
    [Scene(cards=True), Scene(loose=True), Scene(anywhere=True)],
    ids=["cards are guessed", "gangs of their own", "for whom no node is planned"],
)
def test_pods_that_do_not_come_together_are_bound_by_themselves(scene: Scene) -> None:
    """One pod at a time is released to a node whose reader guesses: all or nothing would wait for ever.

    Of pods that go wherever kube-scheduler sends them, as those with claims on no GPU, nobody has looked
    whether there is capacity for all.
    """
    assert policy_of(scene) == {"basic": {}}


def test_pods_for_which_no_node_is_planned_are_released_once_their_pod_group_is_there() -> None:
    scene = Scene(anywhere=True)
    assert hold_releases(scene.view()) == {"p0", "p1", "p2"}
    assert hold_releases(scene.view(group(0))) == set()


def test_where_the_allocator_identifies_pods_cards_come_together() -> None:
    scene = Scene(cards=True)
    for name in scene.cluster.nodes:
        node = scene.cluster.nodes[name]
        metadata = msgspec.structs.replace(
            node.metadata, annotations={keys.IDENTIFIES_PODS_ANNOTATION: keys.IDENTIFIED}
        )
        scene.cluster.nodes[name] = msgspec.structs.replace(node, metadata=metadata)
    assert policy_of(scene) == {"gang": {"minCount": 3}}


def test_a_plan_of_a_leader_with_other_settings_gets_its_pod_group_all_the_same() -> None:
    """Where an owner's pods count as gangs of their own by now, their Placement has the gang's name still."""
    scene = Scene()
    scene.settings = Settings(loose_owners=frozenset({"Job.batch"}))
    (write,) = writes_of(scene.view())
    assert write.body["metadata"]["ownerReferences"][0]["uid"] == "placement"
    assert hold_releases(scene.view()) == {"p0", "p1", "p2"}
    assert hold_releases(scene.view(group(0))) == set()


FITS = {"its size": group(3), "its size, kept by nobody": group(3, finalizers=())}
MISFITS = {
    "none": None,
    "more": group(4),
    "fewer": group(2),
    "single": group(0),
    "deleted": group(3, deleted=True),
    "bound to one domain": group(3, within="example.com/rack"),
}


@pytest.mark.parametrize("case", FITS)
def test_nothing_waits_or_is_written_once_the_pod_group_is_there(case: str) -> None:
    view = Scene().view(FITS[case])
    assert (hold_releases(view), list(writes_of(view))) == (set(), [])


@pytest.mark.promise("I1")
@pytest.mark.parametrize("case", MISFITS)
def test_the_pods_wait_until_it_is(case: str) -> None:
    view = Scene().view(MISFITS[case])
    assert hold_releases(view) == {"p0", "p1", "p2"}
    verbs = [each.verb for each in writes_of(view)]
    expected = [Verb.CREATE] if case == "none" else [Verb.PATCH, Verb.DELETE]
    assert verbs == (expected[:1] if case == "deleted" else expected)


def test_they_wait_while_nobody_knows() -> None:
    view = Scene().view(is_read=False)
    assert hold_releases(view) == {"p0", "p1", "p2"}
    assert not writes_of(view)


@pytest.mark.parametrize(("minimum", "writes"), [(3, 0), (2, 0), (0, 0), (4, 2)])
def test_a_gang_that_has_begun_keeps_any_pod_group_whose_minimum_it_reaches(
    minimum: int, writes: int
) -> None:
    scene = Scene(member(0, node="n0"), member(1), member(2))
    view = scene.view(group(minimum))
    assert len(list(writes_of(view))) == writes
    assert hold_releases(view) == ({"p1", "p2"} if writes else set())


def released(number: int) -> Pod:
    """A member that kube-scheduler has not bound yet."""
    return member(number, schedulingGates=[], affinity=pinned_to(f"n{number}"))


class Short(Scene):
    """A gang of three that has lost one after it was planned, and has none that is bound. seconds: since."""

    def __init__(self, *pods: Pod, **options: Any) -> None:
        super().__init__(*pods, **options)
        self.cluster.pods.remove(self.members[-1])
        self.memory = NativeMemory()

    def writes(self, seconds: float, there: BindGroup | None) -> list[Verb]:
        """What is written now, by a sweeper that remembers."""
        view = replace(self.view(there), now=Moment(seconds))
        wanted, self.memory = patient_needs(needs(view), view, self.settings, self.memory)
        return [each.verb for each in group_writes(view, wanted)]


@pytest.mark.parametrize("has_begun", [True, False])
def test_an_unbound_gang_that_lost_a_planned_pod_keeps_its_minimum_for_patience_seconds(
    has_begun: bool,
) -> None:
    """Its replacement comes; a smaller minCount would have the others bound without it."""
    pods = [released(number) if has_begun else member(number) for number in range(3)]
    scene = Short(*pods)
    patience = scene.settings.patience_seconds
    assert not scene.writes(100.0, group(3))
    assert not scene.writes(99.0 + patience, group(3))
    assert hold_releases(scene.view(group(3))) == (set() if has_begun else {"p0", "p1"})
    assert scene.writes(100.0 + patience, group(3)) == [Verb.PATCH, Verb.DELETE]
    assert scene.writes(101.0 + patience, None) == [Verb.CREATE]
    assert not scene.writes(102.0 + patience, group(2))
    assert not hold_releases(scene.view(group(2)))


class Overlooked(Scene):
    """A gang of three that is released, of which its scheduler has tried none. tried: what it has tried."""

    def __init__(self, *tried: int) -> None:
        super().__init__(*(_tried(released(each)) if each in tried else released(each) for each in range(3)))
        self.memory = NativeMemory()

    def writes(self, seconds: float, there: BindGroup | None) -> list[Verb]:
        """What is written now, by a sweeper that remembers."""
        view = replace(self.view(there), now=Moment(seconds))
        wanted, self.memory = overlooked_needs(needs(view), view, self.settings, self.memory)
        return [each.verb for each in group_writes(view, wanted)]


def _tried(pod: Pod) -> Pod:
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    return msgspec.structs.replace(pod, status=msgspec.convert({"conditions": [condition]}, type(pod.status)))


@pytest.mark.promise("R272")
def test_a_pod_group_whose_pods_are_overlooked_is_replaced_after_pauses_that_double() -> None:
    """kube-scheduler may have missed an earlier replacement, and tries its pods again once one is added."""
    scene, another = Overlooked(), [Verb.PATCH, Verb.DELETE]
    pause = scene.settings.bind_seconds
    assert not scene.writes(100.0, group(3))
    assert not scene.writes(99.0 + pause, group(3))
    assert scene.writes(100.0 + pause, group(3)) == another
    assert scene.writes(101.0 + pause, None) == [Verb.CREATE]
    assert not scene.writes(99.0 + 3 * pause, group(3))
    assert scene.writes(100.0 + 3 * pause, group(3)) == another
    assert not scene.writes(99.0 + 7 * pause, group(3))
    assert scene.writes(100.0 + 7 * pause, group(3)) == another


def test_a_pod_group_of_which_a_pod_was_tried_is_not_replaced_for_the_others() -> None:
    scene = Overlooked(1)
    assert not scene.writes(0.0, group(3))
    assert not scene.writes(1e6, group(3))


@pytest.mark.parametrize("has_begun", [True, False])
def test_a_gang_keeps_its_minimum_while_a_pod_of_it_has_no_valid_plan(has_begun: bool) -> None:
    """A foreign pod has taken that pod's node. It gets another one, or the gang is rolled back."""
    scene = Short(*(released(number) if has_begun else member(number) for number in range(2)), member(2))
    scene.cluster.pods.append(scene.members[2])
    scene.lost_plans = frozenset({"p2"})
    for seconds in (0.0, 1e6):
        assert not scene.writes(seconds, group(3))
        assert not scene.writes(seconds, None)
    assert hold_releases(scene.view(None)) == ({"p2"} if has_begun else {"p0", "p1", "p2"})


@pytest.mark.promise("R272")
@pytest.mark.parametrize("has_begun", [True, False])
def test_a_gang_keeps_its_minimum_while_a_replacement_finds_no_node(has_begun: bool) -> None:
    scene = Short(*(released(number) if has_begun else member(number) for number in range(2)), member(2))
    scene.cluster.pods.append(member(3))
    for seconds in (0.0, 1e6):
        assert not scene.writes(seconds, group(3))
        assert not scene.writes(seconds, None)
    assert hold_releases(scene.view(group(3))) == ({"p3"} if has_begun else {"p0", "p1", "p3"})


@pytest.mark.parametrize(
    ("has_begun", "minimum", "is_replaced", "dropped"),
    [
        (False, 0, True, {"p0", "p1"}),
        (False, 0, False, set()),
        (False, 2, True, set()),
        (True, 0, True, set()),
    ],
    ids=["waits for its replacement", "has none", "has its minimum", "has begun"],
)
def test_what_is_planned_of_a_gang_holds_no_nodes_while_its_replacement_finds_none(
    has_begun: bool, minimum: int, is_replaced: bool, dropped: set[str]
) -> None:
    """Two such gangs would hold the nodes for which each waits."""
    pods = [released(0) if has_begun else member(0), member(1), member(2)]
    scene = Short(*pods, minimum=minimum)
    scene.cluster.pods += [member(3)] if is_replaced else []
    assert invalid_plans(scene.view(), SentReleases()) == dropped
    assert not invalid_plans(scene.view(), {"p1"}), "one that is sent is released, though it looks gated yet"


@pytest.mark.parametrize(("has_begun", "unchanged"), [(False, set()), (True, {"p2"})])
@pytest.mark.parametrize("why", ["taken", "refused"])
def test_once_a_node_of_its_plan_is_lost_an_unreleased_gang_is_planned_again_as_a_whole(
    has_begun: bool, unchanged: set[str], why: str
) -> None:
    """Two of three would hold their nodes, unreleased, for as long as there is none for the third."""
    scene = Scene(released(0) if has_begun else member(0), member(1), member(2))
    if why == "taken":
        scene.cluster.pods.append(gpu_pod("thief", node="n1"))
    view, sent, refusing = scene.view(), SentReleases(), RefusingNodes()
    if why == "refused":
        refusing = refusing.refused(view.gang_of(scene.members[1]), ["n1"], 1.0)
    view = with_valid_plans(view, Topology(), refusing, sent)
    view = without_overbooked(view, Snapshotter(scene.cluster, scene.settings).snapshot(view), sent)
    assert view.planned.keys() == unchanged


def test_of_an_elastic_gang_that_has_its_minimum_without_a_lost_node_the_other_plans_hold() -> None:
    """Else a plan of its minimum would be dropped in each pass, with the older entry of the pod beyond it."""
    scene = Scene(minimum=2)
    scene.cluster.pods.append(gpu_pod("thief", node="n1"))
    view, sent = scene.view(), SentReleases()
    view = without_overbooked(view, Snapshotter(scene.cluster, scene.settings).snapshot(view), sent)
    assert view.planned.keys() == {"p0", "p2"}


def test_an_elastic_gang_that_has_its_minimum_without_a_lost_pod_needs_no_patience() -> None:
    scene = Short(*map(released, range(3)), minimum=2)
    assert not hold_releases(scene.view(group(2)))
    assert not scene.writes(0.0, group(2))


@pytest.mark.parametrize("case", ["is bound in part", "was bound as a whole"])
def test_a_gang_that_ran_gets_a_pod_group_that_it_reaches_at_once(case: str) -> None:
    is_part = case == "is bound in part"
    scene = Short(member(0, node="n0") if is_part else released(0), released(1), released(2))
    if not is_part:
        (key,) = scene.cluster.placements
        done = PlacementStatus(complete=True)
        scene.cluster.placements[key] = msgspec.structs.replace(scene.cluster.placements[key], status=done)
    assert scene.writes(0.0, group(3)) == [Verb.PATCH, Verb.DELETE]


def test_one_gang_that_cannot_be_looked_at_stops_no_other() -> None:
    """Its own pods stay gated."""
    broken = {keys.GANG_ANNOTATION: "broken"}
    name = bind_group_name({}, broken, "", "")
    metadata = {"uid": "broken", "namespace": "in", "annotations": broken}
    scene = Scene()
    bad = gpu_pod("broken", metadata=metadata, schedulingGroup={"podGroupName": name})
    entry = PlannedPod("broken", "broken", "n3")
    scene.cluster.pods.append(bad)

    def gang_of(pod: Pod) -> GangKey:
        if pod.metadata.uid == "broken":
            raise RuntimeError("a defect")
        return key_of(pod)

    def view(there: BindGroup | None) -> View:
        made = scene.view(there)
        return replace(made, gang_of=gang_of, planned={**made.planned, "broken": entry})

    assert [each.verb for each in writes_of(view(None))] == [Verb.CREATE]
    assert hold_releases(view(group(3))) == {"broken"}


def test_a_gang_that_waits_for_long_gets_one_event_for_each_reason() -> None:
    scene = Scene()
    (write,) = writes_of(scene.view())
    failed = [WriteResult(write, error="exceeded quota")]
    events, memory = events_of(scene.view(), failed, NativeMemory())
    assert [(each.reason, "exceeded quota" in each.note) for each in events] == [("PodGroupMissing", True)]
    again, memory = events_of(scene.view(), failed, memory)
    assert not again
    for labels in ({}, {keys.BIND_LABEL: "anything else"}):
        foreign = msgspec.convert({"metadata": {"name": NAME, "labels": labels}}, NativePodGroup)
        taken, _ = events_of(scene.view(foreign=foreign), (), memory)
        assert ["a PodGroup that is not topogate's has its name" in each.note for each in taken] == [True]
        assert not writes_of(scene.view(foreign=foreign))


# --- gangs of an earlier version ------------------------------------------------------------------------


def test_a_gang_that_an_earlier_version_nominated_to_its_nodes_keeps_its_plan_and_its_pod_group() -> None:
    """One pod was released by nomination, and the others are gated still."""
    name = bind_group_name(LABELS, {}, "", "", NOMINATED_PREFIX)
    members = [member(number, schedulingGroup={"podGroupName": name}) for number in range(3)]
    here = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n0"]}]}
    terms = [here, {"matchExpressions": [{"key": keys.CARDS_LABEL, "operator": "DoesNotExist"}]}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    body = msgspec.to_builtins(members[0])
    body["spec"] |= {"schedulingGates": [], "affinity": {"nodeAffinity": required}}
    scene = Scene(msgspec.convert(body, Pod), *members[1:])
    (write,) = writes_of(scene.view())
    assert (write.name, write.body["spec"]) == (name, {"schedulingPolicy": {"gang": {"minCount": 3}}})
    assert hold_releases(scene.view()) == {"p1", "p2"}
    assert [scene.view().occupied(pod) for pod in scene.cluster.pods] == ["n0", None, None]
    assert required_terms(unpinned(scene.members[0], "n0")) == [], "as its controller would recreate it"
