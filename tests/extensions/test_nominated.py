"""Which pods are nominated to their nodes instead of pinned, and reports on those bound elsewhere."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, cast

import msgspec
import pytest

from labeler.contract import keys
from tests.sweeper.clock import Clock
from tests.sweeper.cluster import Nodes, Placing, gpu_pod
from webhook.configuration.settings import Settings
from webhook.extensions.native_gangs.nominations import corrected_plans, nominations
from webhook.extensions.native_gangs.own_pod_groups import COLLECTIONS, GROUPS, BindGroup, needs
from webhook.extensions.native_gangs.pod_group_gangs import NATIVE_GANGS
from webhook.kube.affinity import SelectorRequirement
from webhook.kube.client import Api
from webhook.kube.objects import Pod
from webhook.kube.placements import Placement
from webhook.placement import Snapshot
from webhook.sweeper.apply import patches
from webhook.sweeper.context import Pass, Silent
from webhook.sweeper.decide.plan import without_overbooked
from webhook.sweeper.decide.release_queue import ReleaseQueue, SentReleases
from webhook.sweeper.extension import PassEnd, PlansInput, Switch
from webhook.sweeper.hooks import ExtensionHooks
from webhook.sweeper.observe.cache import ClusterCache
from webhook.sweeper.observe.gangs import OwnerFacts, gather
from webhook.sweeper.observe.plans import nominated_node, occupied_node, pinned_node, unpinned
from webhook.sweeper.observe.snapshotter import Snapshotter
from webhook.sweeper.observe.view import View
from webhook.sweeper.repair.repair import away_schedulers
from webhook.workloads.native_gangs import NativePodGroup
from webhook.workloads.pod_group_names import NOMINATED_PREFIX, bind_group_name

LABELS: Final = {"batch.kubernetes.io/job-name": "train", "batch.kubernetes.io/controller-uid": "u"}
NAME: Final = bind_group_name(LABELS, {}, "", "", NOMINATED_PREFIX)
BLOCK, RACK, HOST = keys.PRERELEASE_TOPOLOGY
REQUIRED: Final = {keys.REQUIRED_TOPOLOGY_ANNOTATION: "block"}
NO_CARDS: Final = [
    SelectorRequirement(key, "DoesNotExist") for key in (keys.CARDS_LABEL, keys.GPU_NUMBERS_LABEL)
]
TERM: Final = {"matchExpressions": [{"key": BLOCK, "operator": "Exists"}]}
AFFINITY: Final = {
    "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [TERM]}}
}


def member(number: int, annotations: Mapping[str, str] | None = None, **spec: Any) -> Pod:
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "u", "controller": True}
    metadata = {
        "uid": f"p{number}",
        "labels": LABELS,
        "namespace": "in",
        "ownerReferences": [owner],
        "annotations": dict(annotations or {}),
    }
    return gpu_pod(f"p{number}", metadata=metadata, **{"schedulingGroup": {"podGroupName": NAME}, **spec})


def released(pod: Pod, node: str, **status: Any) -> Pod:
    """The pod after its release by nomination."""
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    terms = [term, {"matchExpressions": [{"key": BLOCK, "operator": "In", "values": ["b0"]}]}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    body = msgspec.to_builtins(pod)
    body["spec"] |= {"schedulingGates": [], "affinity": {"nodeAffinity": required}}
    body["status"] |= status
    return msgspec.convert(body, Pod)


def bound(pod: Pod, node: str) -> Pod:
    return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, node_name=node))


class Scene:
    """Three pods of a Job, planned for n0 to n2; n0 to n3 are in block b0, n4 and n5 in b1."""

    def __init__(self, *pods: Pod, entry: Mapping[str, Any] | None = None, **spec: Any) -> None:
        self.members = pods or tuple(member(number) for number in range(3))
        self.cluster = Nodes(6, *self.members)
        for number in range(6):
            block = f"b{number // 4}"
            self.cluster.label(f"n{number}", {BLOCK: block, RACK: f"{block}-r", HOST: f"h{number}"})
        self.settings = Settings()
        self.groups: dict[str, BindGroup] = {}
        self.foreign: dict[str, NativePodGroup] = {}
        gang = Snapshotter(self.cluster, self.settings).view().gang_of(self.members[0])
        entries = [
            {"name": each.metadata.name, "uid": each.metadata.uid, "node": f"n{number}", **(entry or {})}
            for number, each in enumerate(self.members)
        ]
        body = {
            "metadata": {"name": gang.placement_name, "namespace": "in", "uid": "placement"},
            "spec": {"gang": "Job/train", "pods": entries, **spec},
        }
        self.key = f"in/{gang.placement_name}"
        self.cluster.placements[self.key] = msgspec.convert(body, Placement)

    @property
    def view(self) -> View:
        view = Snapshotter(self.cluster, self.settings).view()
        found: dict[Hashable, Mapping[str, Any]] = {GROUPS: self.foreign, COLLECTIONS[-1]: self.groups}
        return replace(view, objects=found)

    def nominated(self) -> Mapping[str, Sequence[SelectorRequirement]]:
        found = nominations(self.view, needs(self.view), self.settings.topology)
        return found.get(f"in/{NAME}", {})

    def not_released(self) -> set[str]:
        assert NATIVE_GANGS.check_plans is not None
        return set(NATIVE_GANGS.check_plans(PlansInput(self.view, ())).not_released)

    def writes(self) -> list[str]:
        assert NATIVE_GANGS.after_pass is not None
        given = PassEnd(self.view, None, (), may_write=False, settings=self.settings)
        orders, _ = NATIVE_GANGS.after_pass(given, NATIVE_GANGS.memory)
        return [each.verb for each in orders.writes]


def group(**metadata: Any) -> dict[str, Any]:
    return {"metadata": {"name": NAME, "namespace": "in", "uid": "g", **metadata}}


def test_planned_pods_are_released_before_their_pod_group_is_made() -> None:
    scene = Scene()
    assert scene.nominated().keys() == {"p0", "p1", "p2"}
    assert scene.not_released() == set()
    assert scene.writes() == []


def test_the_pod_group_is_made_once_no_planned_pod_is_gated() -> None:
    scene = Scene()
    for number in range(3):
        scene.cluster.pods[number] = released(scene.members[number], f"n{number}")
        assert scene.writes() == (["create"] if number == 2 else [])


@pytest.mark.promise("R284")
def test_a_pod_may_use_other_nodes_of_the_domain_that_its_gang_requires_but_none_with_cards() -> None:
    scene = Scene(member(0, REQUIRED), member(1), member(2))
    block = SelectorRequirement(BLOCK, "In", ["b0"])
    assert scene.nominated() == dict.fromkeys(("p0", "p1", "p2"), (block, *NO_CARDS))


def test_a_finer_domain_is_named_with_all_domains_around_it() -> None:
    """Values of its label may repeat under other parents."""
    scene = Scene(*(member(number, {keys.REQUIRED_TOPOLOGY_ANNOTATION: "subblock"}) for number in range(3)))
    within = scene.nominated()["p0"]
    assert [(each.key, each.values) for each in within[:2]] == [(BLOCK, ["b0"]), (RACK, ["b0-r"])]


def other_family(scene: Scene) -> None:
    """A node of another block that has the labels of the first one too."""
    labels = dict(zip(keys.GCE_TOPOLOGY, ("x", "y", "z"), strict=True))
    scene.cluster.label("n5", {**labels, BLOCK: "b0", RACK: "b0-r", HOST: "h5"})


EXCLUSIVE = {"alpha.jobset.sigs.k8s.io/exclusive-topology": BLOCK}
PINNED: Final = {
    "slices": [member(0, {keys.SLICE_TOPOLOGY_ANNOTATION: "block"}), member(1)],
    "a spread": [member(0), member(1, {keys.SPREAD_TOPOLOGY_ANNOTATION: "block"})],
    "unlike levels": [member(0, REQUIRED), member(1, {keys.REQUIRED_TOPOLOGY_ANNOTATION: "subblock"})],
    "one node": [member(0, {keys.REQUIRED_TOPOLOGY_ANNOTATION: "node"}), member(1)],
    "an unknown level": [member(0, {keys.REQUIRED_TOPOLOGY_ANNOTATION: "galaxy"}), member(1)],
    "a domain of its own": [member(0, EXCLUSIVE), member(1)],
    "claims": [member(0, resourceClaims=[{"name": "c", "resourceClaimName": "c"}]), member(1)],
    "a node affinity of its author": [member(0), member(1, affinity=AFFINITY)],
}


@pytest.mark.promise("R285")
@pytest.mark.parametrize("case", PINNED)
def test_a_gang_whose_plan_needs_more_than_a_level_is_pinned(case: str) -> None:
    scene = Scene(*PINNED[case])
    assert not scene.nominated()
    assert scene.not_released() == {"p0", "p1"}, "as with bind: podgroup"
    assert scene.writes() == ["create"]


@pytest.mark.promise("R285")
def test_pods_with_cards_are_pinned() -> None:
    identified = {keys.IDENTIFIES_PODS_ANNOTATION: keys.IDENTIFIED}
    scene = Scene(entry={"annotations": {keys.GAS_TIMESTAMP_ANNOTATION: "1" * 19}})
    for name, node in scene.cluster.nodes.items():
        metadata = msgspec.structs.replace(node.metadata, annotations=identified)
        scene.cluster.nodes[name] = msgspec.structs.replace(node, metadata=metadata)
    assert needs(scene.view)[0].min_count == 3
    assert not scene.nominated()


def test_a_plan_that_preempts_is_pinned() -> None:
    assert not Scene(preempts=True).nominated()


def test_pods_of_a_level_whose_labels_another_domain_has_too_are_pinned() -> None:
    scene = Scene(*(member(number, REQUIRED) for number in range(3)))
    assert scene.nominated()
    other_family(scene)
    assert not scene.nominated()


def test_once_the_pod_group_is_there_pods_are_pinned() -> None:
    scene = Scene()
    spec = {"schedulingPolicy": {"gang": {"minCount": 3}}}
    scene.groups[f"in/{NAME}"] = msgspec.convert({**group(), "spec": spec}, BindGroup)
    assert (scene.nominated(), scene.not_released()) == ({}, set())


def test_beside_a_foreign_pod_group_no_pod_is_released() -> None:
    scene = Scene()
    scene.foreign[f"in/{NAME}"] = msgspec.convert(group(), NativePodGroup)
    assert (scene.nominated(), scene.not_released()) == ({}, {"p0", "p1", "p2"})


@pytest.mark.promise("R284")
def test_a_gang_that_is_planned_again_is_released_in_the_next_pass() -> None:
    """By its old plan its pods might use other nodes of the block that it leaves."""
    scene = Scene(*(member(number, REQUIRED) for number in range(2)))
    scene.cluster.pods += [gpu_pod(f"thief-{number}", node=f"n{number}") for number in (1, 2, 3)]
    placing = Placing(scene.cluster, scene.settings)
    view, snapshot = seen_in_a_pass(scene, placing)
    assert (view.planned, view.nominated) == ({}, {})
    gangs = gather(view.gated, view.others, lambda _: OwnerFacts(size=2))
    placing.remember(gangs, view, snapshot)
    queue = ReleaseQueue(view, SentReleases(), 0.0)
    (plan,) = placing.place(gangs, placing.given(view, snapshot, queue, 1)).plans
    assert [each.node for each in plan.entries] == ["n4", "n5"]
    assert plan.now == ()


def seen_in_a_pass(scene: Scene, placing: Placing) -> tuple[View, Snapshot]:
    """The input of a pass with the extension on: without the plans that are no longer valid."""
    switch = Switch(lambda *_: True, lambda: NATIVE_GANGS)
    surroundings = Pass(
        cast(Api, None), cast(ClusterCache, scene.cluster), scene.settings, announcer=Silent(), clock=Clock(),
        extensions=(switch,),
    )  # fmt: skip
    hooks, sent = ExtensionHooks(surroundings), SentReleases()
    view, _ = hooks.begin(scene.view, {})
    view = hooks.check_plans(replace(view, objects=scene.view.objects), sent)
    assert view.nominated.keys() == {"p0", "p1"}
    view = without_overbooked(view, placing.snapshotter.snapshot(view), sent)
    return view, placing.snapshotter.snapshot(view)


def test_gangs_that_were_created_with_another_setting_are_not_nominated() -> None:
    name = bind_group_name(LABELS, {}, "", "")
    scene = Scene(*(member(number, schedulingGroup={"podGroupName": name}) for number in range(3)))
    assert not nominations(scene.view, needs(scene.view), scene.settings.topology)


# --- what a released pod says ---------------------------------------------------------------------------


def test_the_affinity_of_a_release_names_the_planned_node_also_without_the_nomination() -> None:
    pod = member(0)
    (*_, pin) = patches.release_patch(pod, "n1", {}, within=NO_CARDS)
    terms = pin["value"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][
        "nodeSelectorTerms"
    ]
    body = msgspec.to_builtins(pod)
    body["spec"] |= {"schedulingGates": [], "affinity": pin["value"]}
    after = msgspec.convert(body, Pod)
    assert [sorted(term) for term in terms] == [["matchFields"], ["matchExpressions"]]
    assert (pinned_node(after), nominated_node(after), occupied_node(after)) == (None, "n1", "n1")
    assert nominated_node(unpinned(after, "n1")) is None


def test_an_affinity_of_that_form_counts_for_no_pod_of_another_setting() -> None:
    pod = released(member(0, schedulingGroup={"podGroupName": "own"}), "n1")
    assert (nominated_node(pod), occupied_node(pod)) == (None, None)


def test_a_nomination_of_ours_is_no_sign_that_a_scheduler_has_tried_the_pod() -> None:
    pod = released(member(0), "n0", nominatedNodeName="n0")
    assert away_schedulers([pod]) == {"default-scheduler"}
    assert not away_schedulers([released(member(0), "n0", nominatedNodeName="n1")])


# --- pods bound elsewhere -------------------------------------------------------------------------------


@pytest.mark.promise("R284")
def test_a_pod_that_was_bound_elsewhere_has_an_event_and_its_placement_is_corrected() -> None:
    scene = Scene()
    for number, node in enumerate(("n0", "n3", "n2")):
        scene.cluster.pods[number] = bound(released(scene.members[number], f"n{number}"), node)
    (plan,), (event,) = corrected_plans(scene.view)
    assert [each.node for each in plan.spec.pods] == ["n0", "n3", "n2"]
    assert (event.pod.metadata.name, event.reason) == ("p1", "BoundElsewhere")
    assert event.note.startswith("bound to n3, not to n1 as planned")
    corrected = msgspec.structs.replace(plan.placement, spec=plan.spec)
    scene.cluster.placements[scene.key] = corrected
    assert corrected_plans(scene.view) == ((), ()), "each is told once"
