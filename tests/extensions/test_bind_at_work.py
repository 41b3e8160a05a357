"""Gangs that name a PodGroup of ours, on a control plane with native gangs: bound as one, or not at all."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import msgspec
import pytest

from hack.local import native_gangs
from hack.local.cluster import Cluster
from labeler.contract import keys
from tests.extensions.bound_gangs import GROUP, SETTINGS, Scene
from tests.support import create_namespace, delete, install_definitions
from tests.sweeper.at_work import template
from tests.sweeper.mortal import AFTER, BEFORE, Death, sweep_until
from webhook.kube.client import MERGE_PATCH
from webhook.kube.objects import Pod
from webhook.policy.values import Policy
from webhook.sweeper.observe.plans import pinned_node
from webhook.workloads.pod_group_names import bind_group_name

PRIORITY_CLASSES: Final = "/apis/scheduling.k8s.io/v1/priorityclasses"


@pytest.fixture
def scene(native_cluster: Cluster) -> Iterator[Scene]:
    install_definitions(native_cluster)
    made = Scene(native_cluster, create_namespace(native_cluster))
    made.add_nodes()
    yield made
    made.clear()


def test_pods_that_terminate_do_not_count_towards_the_minimum_of_those_after_them(scene: Scene) -> None:
    """As where a JobSet is restarted: its new pods are of the same PodGroup."""
    finalized = {"metadata": {"finalizers": ["example.com/kept"]}}
    scene.add("a", "b", "c")
    with scene.sweeping() as until:
        until("all to be bound", lambda: scene.bound() == {"a", "b", "c"})
        for name in ("a", "b", "c"):
            path = f"{scene.pods_path}/{name}"
            scene.api.request("PATCH", path, body=finalized, content_type=MERGE_PATCH)
            scene.api.request("DELETE", path)
        scene.add_nodes(3, first=3)
        scene.cluster.stop("kube-scheduler")
        try:
            scene.add("d", "e", "f")
            until("all to be released", lambda: scene.released() >= {"d", "e", "f"})
            (one,) = (pod for pod in scene.pods() if pod["metadata"]["name"] == "d")
            thief = template(8, gated=False, nodeName=pinned_node(msgspec.convert(one, Pod)))
            scene.api.request("POST", scene.pods_path, body={**thief, "metadata": {"name": "thief"}})
        finally:
            scene.cluster.start("kube-scheduler")
        there = {"a", "b", "c", "thief"}
        until("kube-scheduler to come to a decision", lambda: scene.is_tried("e") or scene.bound() > there)
        assert scene.bound() == there
        delete(scene.api, f"{scene.pods_path}/thief")
        until("all to be bound", lambda: scene.bound() >= {"d", "e", "f"})
    for name in ("a", "b", "c"):
        body = {"metadata": {"finalizers": None}}
        scene.api.request("PATCH", f"{scene.pods_path}/{name}", body=body, content_type=MERGE_PATCH)


def test_a_replacement_joins_the_gang_by_itself(scene: Scene) -> None:
    scene.add("a", "b", "c")
    with scene.sweeping() as until:
        until("all to be bound", lambda: scene.bound() == {"a", "b", "c"})
        delete(scene.api, f"{scene.pods_path}/b")
        scene.add("replacement")
        until("the replacement to be bound", lambda: scene.bound() == {"a", "c", "replacement"})


def _bind_another(scene: Scene, name: str) -> None:
    """Wait until kube-scheduler has bound a pod that is of no gang, and so has seen all before it."""
    body = template(0, gated=False)
    scene.api.request("POST", scene.pods_path, body={**body, "metadata": {"name": name}})
    scene.cluster.wait_for("a pod of no gang to be bound", lambda: name in scene.bound(), 60)


@pytest.mark.promise("R272")
def test_a_gang_is_bound_though_kube_scheduler_has_missed_that_its_pod_group_was_replaced(
    scene: Scene,
) -> None:
    """It reads the PodGroups again after the API server was away, and takes the new one for the old one."""
    with scene.sweeping(settings=replace(SETTINGS, bind_seconds=5)) as until:
        scene.cluster.stop("kube-scheduler")
        try:
            scene.add("a", "b", "c")
            until("all to be released", lambda: scene.released() == {"a", "b", "c"})
            delete(scene.api, f"{scene.pods_path}/c")
        finally:
            scene.cluster.start("kube-scheduler")
        _bind_another(scene, "first")
        with scene.cluster.paused("kube-scheduler"):
            scene.cluster.stop("kube-apiserver")
            scene.cluster.start("kube-apiserver")
            until("a PodGroup of two pods", lambda: scene.minimum() == 2)
        until("both to be bound", lambda: scene.bound() >= {"a", "b"})


@pytest.mark.promise("R272")
def test_of_two_gangs_whose_replacements_find_no_node_one_is_bound_and_one_waits(scene: Scene) -> None:
    """Each is planned and unreleased, and lacks a node; what they hold together is enough for one of them."""
    scene.add_nodes(3, first=3)
    gangs = {"first": {"a", "b", "c"}, "second": {"d", "e", "f"}}

    def add(gang: str, *names: str) -> None:
        annotations = {keys.GANG_ANNOTATION: gang}
        group = bind_group_name({}, annotations, "", "default-scheduler")
        scene.add(*names, group=group, **annotations)

    for gang, names in gangs.items():
        add(gang, *sorted(names))
    unwritten = Death(BEFORE, f"POST {native_gangs.path(scene.api, scene.namespace)} #1")
    assert not sweep_until(scene.mortal(unwritten), SETTINGS, lambda: False, 60)
    planned = scene.planned()
    assert (set(planned), scene.released()) == (set("abcdef"), set[str]())
    for lost, new in (("a", "a2"), ("d", "d2")):
        delete(scene.api, f"{scene.pods_path}/{lost}")
        delete(scene.api, f"/api/v1/nodes/{planned[lost]}")
        add(next(gang for gang, names in gangs.items() if lost in names), new)
    ways = [{"a2", "b", "c"}, {"d2", "e", "f"}]
    with scene.sweeping() as until:
        until("one of them to be bound", lambda: scene.bound() in ways)
        until("the other to be told", lambda: "3 pods do not fit" in scene.reason())
        assert scene.bound() in ways


@pytest.mark.promise("R272")
def test_of_an_elastic_gang_its_minimum_is_bound_as_one(scene: Scene) -> None:
    scene.add("a", "b", "c", **{keys.GANG_MIN_SIZE_ANNOTATION: "2"})
    with scene.sweeping() as until:
        until("all to be bound", lambda: scene.bound() == {"a", "b", "c"})
    assert scene.minimum() == 2


@pytest.mark.promise("R274")
def test_a_pod_group_of_an_earlier_life_of_the_gang_is_replaced(scene: Scene) -> None:
    """By its minimum, which is more than the gang has, kube-scheduler would bind nothing."""
    body = native_gangs.pod_group(scene.api, GROUP, 1)
    body["metadata"]["labels"] = {keys.BIND_LABEL: keys.BIND_POD_GROUP}
    body["spec"]["schedulingPolicy"] = {"gang": {"minCount": 5}}
    scene.api.request("POST", native_gangs.path(scene.api, scene.namespace), body=body)
    scene.add("a", "b", "c")
    with scene.sweeping() as until:
        until("all to be bound", lambda: scene.bound() == {"a", "b", "c"})
    assert scene.minimum() == 3


@pytest.mark.promise("R274")
def test_a_foreign_pod_group_is_not_taken_for_ours(scene: Scene) -> None:
    body = native_gangs.pod_group(scene.api, GROUP, 1)
    scene.api.request("POST", native_gangs.path(scene.api, scene.namespace), body=body)
    scene.add("a", "b", "c")
    with scene.sweeping() as until:
        until("the gang to be told", lambda: "is taken by one that is not topogate's" in scene.reason())
        assert scene.released() == set()
        delete(scene.api, scene.group_path)
        # It stays for as long as unfinished pods name it, unless another client removes its finalizer.
        body = {"metadata": {"finalizers": None}}
        scene.api.request("PATCH", scene.group_path, body=body, content_type=MERGE_PATCH)
        until("all to be bound", lambda: scene.bound() == {"a", "b", "c"})


def test_pods_that_prove_to_claim_no_gpu_are_released_to_be_bound_one_by_one(scene: Scene) -> None:
    """Admission holds every pod with claims, whatever their classes; these go where kube-scheduler likes."""
    labels = {"jobset.sigs.k8s.io/jobset-name": "nics"}
    name = bind_group_name(labels, {}, "", "default-scheduler")
    requests = [{"name": "nic", "exactly": {"deviceClassName": "nic.example.com"}}]
    claim = {"metadata": {"name": "nic"}, "spec": {"spec": {"devices": {"requests": requests}}}}
    path = f"/apis/resource.k8s.io/v1/namespaces/{scene.namespace}/resourceclaimtemplates"
    scene.api.request("POST", path, body=claim)
    spec = {
        "containers": [{"name": "c", "image": "x"}],
        "schedulingGates": [{"name": keys.GATE}],
        "resourceClaims": [{"name": "nic", "resourceClaimTemplateName": "nic"}],
        "schedulingGroup": {"podGroupName": name},
    }
    for each in ("a", "b"):
        body = {"metadata": {"name": each, "labels": labels}, "spec": spec}
        scene.api.request("POST", scene.pods_path, body=body)
    policy = Policy(resource_claims=True, device_classes=("gpu.example.com",))
    with scene.sweeping(policy) as until:
        until("both to be released", lambda: scene.released() == {"a", "b"})
    group = scene.api.json("GET", f"{native_gangs.path(scene.api, scene.namespace)}/{name}")
    assert "gang" not in group["spec"]["schedulingPolicy"]


@pytest.mark.promise("R272")
def test_no_pod_is_evicted_for_a_gang_while_a_foreign_pod_group_has_its_name(scene: Scene) -> None:
    """The name is taken once the plan names the victims, and before the sweeper makes its PodGroup."""
    classes = {gang: f"{scene.namespace}-{gang}" for gang in ("low", "high")}
    groups = {
        gang: bind_group_name({}, {keys.GANG_ANNOTATION: gang}, name, "default-scheduler")
        for gang, name in classes.items()
    }
    for gang, value in (("low", 100), ("high", 10_000)):
        body = {"metadata": {"name": classes[gang]}, "value": value}
        scene.api.request("POST", PRIORITY_CLASSES, body=body)

    def add(gang: str, *names: str) -> None:
        annotations = {keys.GANG_ANNOTATION: gang}
        scene.add(*names, group=groups[gang], priority_class=classes[gang], **annotations)

    add("low", "a", "b", "c")
    with scene.sweeping() as until:
        until("all to be bound", lambda: scene.bound() == {"a", "b", "c"})
    add("high", "d", "e", "f")
    planned = Death(AFTER, "POST placement gang-high #1")
    assert not sweep_until(scene.mortal(planned), SETTINGS, lambda: False, 60)
    groups_path = native_gangs.path(scene.api, scene.namespace)
    foreign = native_gangs.pod_group(scene.api, groups["high"], 1)
    scene.api.request("POST", groups_path, body=foreign)
    with scene.sweeping() as until:
        until("the gang to be told", lambda: "is taken by one that is not topogate's" in scene.reason())
        assert scene.bound() == {"a", "b", "c"}
        path, body = f"{groups_path}/{groups['high']}", {"metadata": {"finalizers": None}}
        delete(scene.api, path)
        scene.api.request("PATCH", path, body=body, content_type=MERGE_PATCH)
        until("all to be bound", lambda: scene.bound() == {"d", "e", "f"})
    for name in classes.values():
        delete(scene.api, f"{PRIORITY_CLASSES}/{name}")


@pytest.mark.promise("I1")
def test_whichever_write_the_sweeper_dies_at_the_next_one_binds_the_gang(scene: Scene) -> None:
    scene.add("a", "b", "c")
    undisturbed = scene.mortal()
    assert sweep_until(undisturbed, SETTINGS, lambda: scene.bound() == {"a", "b", "c"}, 60)
    # What another test has left is deleted meanwhile, and progress is written when a pass finds any.
    writes = [each for each in undisturbed.writes if "status" not in each and "DELETE" not in each]
    group = f"POST {native_gangs.path(scene.api, scene.namespace)} #1"
    assert [each.split(" ")[:2] for each in writes][:1] == [["POST", "placement"]]
    assert writes.index(group) == 1, "the PodGroup comes between the plan and the releases"
    assert len(writes) == 5
    # Before a write there is what there is after the one before it; after the last, all is done.
    for death in [Death(AFTER, write) for write in writes[:-1]]:
        for name in ("a", "b", "c"):
            delete(scene.api, f"{scene.pods_path}/{name}")
        with scene.sweeping() as until:
            until("nothing to be left", lambda: scene.minimum() == -1 and not scene.pods())
        scene.add("a", "b", "c")
        assert not sweep_until(scene.mortal(death), SETTINGS, lambda: False, 60), death
        with scene.sweeping() as until:
            until(f"all to be bound after {death}", lambda: scene.bound() == {"a", "b", "c"})
        assert scene.minimum() == 3


def test_a_gang_is_bound_by_a_pod_group_of_its_size_that_is_deleted_with_it(scene: Scene) -> None:
    """The last with native gangs: the garbage collector looks for new kinds every 30 s, which others take."""
    scene.add("a", "b", "c")
    with scene.sweeping() as until:
        until("all to be bound", lambda: scene.bound() == {"a", "b", "c"})
        group = scene.group()
        assert scene.minimum() == 3
        assert group["metadata"]["ownerReferences"][0]["kind"] == "Placement"
        for name in ("a", "b", "c"):
            delete(scene.api, f"{scene.pods_path}/{name}")
        until("the PodGroup to be gone", lambda: scene.minimum() == -1)


@pytest.mark.promise("R275")
def test_where_kubernetes_own_gangs_are_off_each_pod_is_bound_by_itself(cluster: Cluster) -> None:
    install_definitions(cluster)
    plain = Scene(cluster, create_namespace(cluster))
    plain.add_nodes()
    plain.add("a", "b", "c")
    assert all("schedulingGroup" not in pod["spec"] for pod in plain.pods())
    with plain.sweeping() as until:
        until("all to be bound", lambda: plain.bound() == {"a", "b", "c"})
    plain.clear()
