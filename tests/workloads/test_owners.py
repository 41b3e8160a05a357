"""Owners on a real API server: what it serves is found, also later, and what it does not is no trouble."""

import threading
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from hack.local import native_gangs
from hack.local.cluster import Cluster
from tests.definitions import define as install_definition
from tests.definitions import wait_gone, wait_served
from tests.support import create_namespace, delete, delete_namespace
from tests.sweeper.empty_api import Empty
from webhook.kube import collection
from webhook.kube.client import Api, ApiError, Stream
from webhook.kube.objects import Metadata
from webhook.sweeper.observe import owner_sizes
from webhook.sweeper.observe.membership import GangKey
from webhook.sweeper.observe.owner_sizes import Owners
from webhook.workloads.builtin import Job, JobSpec
from webhook.workloads.kinds import WORKLOADS


def define(cluster: Cluster, definitions: list[str], kind: str, group: str, *versions: str) -> str:
    """As `definitions.define`; the fixture removes it."""
    path = install_definition(cluster, kind, group, *versions)
    definitions.append(path)
    return path


def make(cluster: Cluster, namespace: str, version: str, kind: str, spec: dict[str, Any]) -> dict[str, Any]:
    path = f"/apis/{version}/namespaces/{namespace}/{kind.lower()}s"
    body = {"apiVersion": version, "kind": kind, "metadata": {"name": "train"}, "spec": spec}
    wait_served(cluster, version, kind)
    made: dict[str, Any] = cluster.api().json("POST", path, body=body)
    return made


@pytest.fixture
def definitions(cluster: Cluster) -> Iterator[list[str]]:
    made: list[str] = []
    yield made
    api = cluster.api()
    for path in made:
        delete(api, path)
    for path in made:
        wait_gone(cluster, path)


@pytest.fixture
def changed() -> threading.Event:
    return threading.Event()


@pytest.fixture
def owners(cluster: Cluster, changed: threading.Event) -> Iterator[Owners]:
    made = Owners(cluster.api(), changed.set, check_seconds=0.5)
    yield made
    made.stop()


def size_of(owners: Owners, kind: str, namespace: str, name: str, uid: str = "") -> int | None:
    return owners.facts(GangKey(namespace, kind, name, uid)).size


def job(cluster: Cluster, namespace: str, parallelism: int) -> str:
    container = {"name": "c", "image": "x"}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    spec = {"suspend": True, "parallelism": parallelism, "completions": parallelism, "template": template}
    return str(make(cluster, namespace, "batch/v1", "Job", spec)["metadata"]["uid"])


def test_built_in_owners_are_known_and_their_changes_reported(
    cluster: Cluster, namespace: str, owners: Owners, changed: threading.Event
) -> None:
    uid = job(cluster, namespace, 4)
    assert not owners.synced
    owners.start()
    cluster.wait_for("the owners", lambda: owners.synced)
    assert owners.served == ("jobs.batch/v1", "statefulsets.apps/v1")
    assert size_of(owners, "Job", namespace, "train", uid) == 4
    assert size_of(owners, "Job", namespace, "train") == 4
    assert size_of(owners, "Job", namespace, "train", "another uid") is None
    assert size_of(owners, "Job", namespace, "nobody") is None
    changed.clear()
    cluster.api().request(
        "PATCH",
        f"/apis/batch/v1/namespaces/{namespace}/jobs/train",
        body={"spec": {"parallelism": 3}},
        content_type="application/merge-patch+json",
    )
    assert changed.wait(90)
    cluster.wait_for("its size", lambda: size_of(owners, "Job", namespace, "train", uid) == 3)


def test_a_change_that_does_not_concern_the_size_is_not_reported(changed: threading.Event) -> None:
    owners = Owners(Empty(), changed.set)
    workload = next(each for each in WORKLOADS if each.struct is Job)
    before = Job(metadata=Metadata("train", "default", "u"), spec=JobSpec(parallelism=4, completions=4))
    labelled = replace(before, metadata=replace(before.metadata, labels={"a": "b"}))
    owners._note(workload, before, labelled)
    assert not changed.is_set()
    owners._note(workload, labelled, replace(labelled, spec=replace(labelled.spec, parallelism=3)))
    assert changed.is_set()


def test_definitions_that_are_installed_later_are_found_and_removed_ones_forgotten(
    cluster: Cluster, namespace: str, owners: Owners, definitions: list[str]
) -> None:
    owners.start()
    cluster.wait_for("the owners", lambda: owners.synced)
    assert size_of(owners, "LeaderWorkerSet", namespace, "train") is None
    path = define(cluster, definitions, "LeaderWorkerSet", "leaderworkerset.x-k8s.io", "v1")
    spec = {"leaderWorkerTemplate": {"size": 4}, "startupPolicy": "LeaderReady"}
    make(cluster, namespace, "leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", spec)
    cluster.wait_for("the size", lambda: size_of(owners, "LeaderWorkerSet", namespace, "train") == 4)
    assert size_of(owners, "LeaderWorkerSet", namespace, "train", "a hash of the group, no uid") == 4
    assert owners.facts(GangKey(namespace, "LeaderWorkerSet", "train", "")).staged
    assert not owners.facts(GangKey(namespace, "Job", "train", "")).staged
    cluster.api().request("DELETE", path)
    cluster.wait_for("its end", lambda: len(owners.served) == 2)
    assert size_of(owners, "LeaderWorkerSet", namespace, "train") is None


def test_a_kind_that_a_gang_asked_for_once_is_looked_for_soon_after(
    cluster: Cluster, definitions: list[str], changed: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where it asked just after the last look: a gang that does not change does not ask again."""
    monkeypatch.setattr("webhook.sweeper.observe.owner_sizes.SOONER_SECONDS", 3.0)
    owners = Owners(cluster.api(), changed.set, check_seconds=3600)
    owners.start()
    try:
        cluster.wait_for("the owners", lambda: owners.synced)
        assert size_of(owners, "LeaderWorkerSet", "default", "train") is None
        define(cluster, definitions, "LeaderWorkerSet", "leaderworkerset.x-k8s.io", "v1")
        served = "leaderworkersets.leaderworkerset.x-k8s.io/v1"
        cluster.wait_for("the kind to be watched", lambda: served in owners.served, seconds=30)
    finally:
        owners.stop()


def test_a_gang_of_a_kind_that_is_not_known_asks_for_it_once() -> None:
    """Each pass asks about each gang; a kind that may not be read would be discovered again all the time."""
    owners = Owners(Empty(), lambda: None)
    owners._wake.clear()
    asked: list[bool] = []
    for name in ("train", "train", "another", "another", "train"):
        size_of(owners, "LeaderWorkerSet", "default", name)
        asked.append(owners._wake.is_set())
        owners._wake.clear()
    assert asked == [True, False, True, False, False]


def test_a_gang_of_a_kind_that_is_not_known_is_forgotten_but_for_its_hash() -> None:
    """The name of an owner, as a pod's author writes it, may be as long as the largest object."""
    owners = Owners(Empty(), lambda: None)
    asked = [GangKey("default", "JobSet", "train", str(number)) for number in range(3)]
    for gang in asked:
        owners.facts(gang)
    remembered = [weakref.ref(gang) for gang in asked]
    asked.clear()
    del gang
    assert not any(each() for each in remembered)


def test_all_kinds_that_can_be_served_are_read(
    cluster: Cluster, namespace: str, owners: Owners, definitions: list[str]
) -> None:
    jobs = [{"name": "w", "replicas": 2, "template": {"spec": {"parallelism": 3}}}]
    roles = {"Worker": {"replicas": 5}}
    expected: dict[tuple[str, str], int] = {}
    cases: list[tuple[str, str, dict[str, Any], str, int]] = [
        ("JobSet", "jobset.x-k8s.io/v1alpha2", {"replicatedJobs": jobs}, "JobSet", 6),
        ("PodGroup", "scheduling.volcano.sh/v1beta1", {"minMember": 7}, "PodGroup", 7),
        ("MPIJob", "kubeflow.org/v2beta1", {"mpiReplicaSpecs": roles}, "TrainingJob", 5),
        ("RayCluster", "ray.io/v1", {"workerGroupSpecs": [{"replicas": 2}]}, "RayCluster", 3),
    ]
    for kind, version, _, gang, size in cases:
        group, _, name = version.partition("/")
        define(cluster, definitions, kind, group, name)
        expected[(gang, kind)] = size
    for kind, version, spec, _, _ in cases:
        make(cluster, namespace, version, kind, spec)
    owners.start()
    cluster.wait_for("the owners", lambda: owners.synced)
    assert {key: size_of(owners, key[0], namespace, "train") for key in expected} == expected


def test_pods_of_a_jobset_that_have_completed_are_expected_no_more(
    cluster: Cluster, namespace: str, owners: Owners, definitions: list[str]
) -> None:
    define(cluster, definitions, "JobSet", "jobset.x-k8s.io", "v1alpha2")
    api, jobs = cluster.api(), [{"name": "w", "template": {"spec": {"parallelism": 4, "completions": 4}}}]
    made = make(cluster, namespace, "jobset.x-k8s.io/v1alpha2", "JobSet", {"replicatedJobs": jobs})
    uid, path = made["metadata"]["uid"], f"/apis/batch/v1/namespaces/{namespace}/jobs/train"
    job(cluster, namespace, 4)
    reference = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": "train", "uid": uid}
    labels = {"jobset.sigs.k8s.io/replicatedjob-name": "w"}
    metadata = {"labels": labels, "ownerReferences": [{**reference, "controller": True}]}
    merge = "application/merge-patch+json"
    api.request("PATCH", path, body={"metadata": metadata}, content_type=merge)
    owners.start()
    cluster.wait_for("the owners", lambda: owners.synced)
    assert size_of(owners, "JobSet", namespace, "train", uid) == 4
    api.request("PATCH", f"{path}/status", body={"status": {"succeeded": 3}}, content_type=merge)
    cluster.wait_for("its size", lambda: size_of(owners, "JobSet", namespace, "train", uid) == 1)
    api.request("DELETE", f"{path}?propagationPolicy=Background")
    cluster.wait_for("its size", lambda: size_of(owners, "JobSet", namespace, "train", uid) == 4)


def test_two_owners_of_one_name_that_disagree_give_no_size(
    cluster: Cluster, namespace: str, owners: Owners, definitions: list[str]
) -> None:
    cases = [("PyTorchJob", "pytorchReplicaSpecs", 2), ("TFJob", "tfReplicaSpecs", 3)]
    for kind, _, _ in cases:
        define(cluster, definitions, kind, "kubeflow.org", "v1")
    for kind, field, replicas in cases:
        make(cluster, namespace, "kubeflow.org/v1", kind, {field: {"Worker": {"replicas": replicas}}})
    owners.start()
    cluster.wait_for("the owners", lambda: owners.synced)
    assert len(owners.served) == 4
    assert size_of(owners, "TrainingJob", namespace, "train") is None


def test_an_owner_that_makes_no_sense_leaves_its_own_size_unknown_and_no_other(
    cluster: Cluster, namespace: str, owners: Owners, definitions: list[str]
) -> None:
    define(cluster, definitions, "RayCluster", "ray.io", "v1")
    make(cluster, namespace, "ray.io/v1", "RayCluster", {"workerGroupSpecs": "many"})
    uid = job(cluster, namespace, 4)
    owners.start()
    cluster.wait_for("the owners", lambda: owners.synced)
    assert size_of(owners, "RayCluster", namespace, "train") is None
    assert size_of(owners, "Job", namespace, "train", uid) == 4
    assert {name: count for name, count in owners.undecodable.items() if count} == {"rayclusters.ray.io": 1}


def test_owners_that_may_not_be_read_are_named_and_hold_up_nothing(
    cluster: Cluster, namespace: str, definitions: list[str], tmp_path: Path
) -> None:
    """A gang of a PodGroup has no known minimum then, so it waits, and the reason is the missing right."""
    define(cluster, definitions, "PodGroup", "scheduling.x-k8s.io", "v1alpha1")
    make(cluster, namespace, "scheduling.x-k8s.io/v1alpha1", "PodGroup", {"minMember": 4})
    cluster.kubectl("create", "clusterrole", "only-jobs", "--verb=get,list,watch", "--resource=jobs.batch")
    cluster.kubectl(
        "create",
        "clusterrolebinding",
        "only-jobs",
        "--clusterrole=only-jobs",
        f"--serviceaccount={namespace}:default",
    )
    token = cluster.kubectl("create", "token", "default", "-n", namespace).stdout
    (tmp_path / "token").write_text(token)
    cluster.write_token_kubeconfig(tmp_path / "kubeconfig", tmp_path / "token")
    owners = Owners(Api.connect(tmp_path / "kubeconfig", user_agent="test"), lambda: None)
    try:
        uid = job(cluster, namespace, 4)
        owners.start()
        cluster.wait_for("the owners", lambda: owners.synced)
        assert size_of(owners, "Job", namespace, "train", uid) == 4
        groups = "podgroups.scheduling.x-k8s.io"
        assert sorted(owners.refused) == [groups, "statefulsets.apps"]
        assert "cannot list resource" in owners.refused["statefulsets.apps"]
        group = owners.facts(GangKey(namespace, "PodGroup", "train", "train"))
        assert group.size is None
        assert group.missing == (
            f"PodGroup train of these pods cannot be read: give topogate-sweeper the right to read {groups}, "
            "or state on them by topogate.io/gang-size how many belong together"
        )
    finally:
        owners.stop()
        cluster.kubectl("delete", "clusterrole,clusterrolebinding", "only-jobs")


def test_owners_wait_for_an_api_server_that_is_not_there_yet(cluster: Cluster, namespace: str) -> None:
    owners = Owners(cluster.api(), lambda: None)
    with cluster.paused("kube-apiserver"):
        owners.start()
        assert not owners.synced
    try:
        cluster.wait_for("the owners", lambda: owners.synced)
    finally:
        owners.stop()


def test_a_broken_definition_holds_up_the_start_for_a_few_seconds_and_no_longer(
    cluster: Cluster, namespace: str
) -> None:
    class Overloaded(Api):
        def request(self, method: str, path: str, **options: Any) -> bytes:
            if path.endswith("/statefulsets"):
                raise ApiError(429, "TooManyRequests", "storage is (re)initializing")
            return super().request(method, path, **options)

    owners = Owners(Overloaded.connect(cluster.kubeconfig, user_agent="test"), lambda: None)
    try:
        uid = job(cluster, namespace, 4)
        owners.start()
        cluster.wait_for("the owners", lambda: owners.synced)
        assert size_of(owners, "Job", namespace, "train", uid) == 4
        assert list(owners.refused) == ["statefulsets.apps"]
    finally:
        owners.stop()


def test_a_kind_that_can_no_longer_be_watched_is_named_once_its_copy_is_old(
    cluster: Cluster, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where an edited ClusterRole takes the right away: the copy stays, and new owners are missing."""

    class Narrowed(Api):
        is_narrow = False

        def stream(self, path: str, **options: Any) -> Stream:
            if path.endswith("/statefulsets") and self.is_narrow:
                raise ApiError(403, "Forbidden", "cannot watch resource")
            return super().stream(path, **options)

    monkeypatch.setattr(collection, "WATCH_SECONDS", 2)
    monkeypatch.setattr(owner_sizes, "SILENCE_SECONDS", 4.0)
    api = Narrowed.connect(cluster.kubeconfig, user_agent="test")
    assert isinstance(api, Narrowed)
    owners = Owners(api, lambda: None)
    try:
        owners.start()
        cluster.wait_for("the owners", lambda: owners.synced)
        assert owners.refused == {}
        api.is_narrow = True
        cluster.wait_for("the kind to be named", lambda: bool(owners.refused))
        assert owners.refused == {"statefulsets.apps": "cannot watch resource (HTTP 403 Forbidden)"}
        assert owners.all_of("statefulsets.apps") is not None
        api.is_narrow = False
        cluster.wait_for("the kind to be watched again", lambda: not owners.refused)
    finally:
        owners.stop()


def test_a_kind_that_cannot_be_listed_holds_up_the_start_for_a_few_seconds_and_no_longer(
    cluster: Cluster, namespace: str
) -> None:
    """As where one stored object cannot be converted: the first request may be answered, the list is not."""

    class Unconverted(Api):
        is_mended = False

        def fail(self, path: str) -> None:
            if path.endswith("/statefulsets") and not self.is_mended:
                raise ApiError(500, "InternalError", "conversion webhook failed")

        def request(self, method: str, path: str, **options: Any) -> bytes:
            if options.get("query", {}).get("limit") != "1":
                self.fail(path)
            return super().request(method, path, **options)

        def stream(self, path: str, **options: Any) -> Stream:
            self.fail(path)
            return super().stream(path, **options)

    api = Unconverted.connect(cluster.kubeconfig, user_agent="test")
    assert isinstance(api, Unconverted)
    owners = Owners(api, lambda: None)
    try:
        uid = job(cluster, namespace, 4)
        owners.start()
        cluster.wait_for("the owners", lambda: owners.synced)
        assert size_of(owners, "Job", namespace, "train", uid) == 4
        assert owners.refused == {"statefulsets.apps": "conversion webhook failed (HTTP 500 InternalError)"}
        api.is_mended = True
        cluster.wait_for("the kind to be read after all", lambda: not owners.refused)
        assert owners.all_of("statefulsets.apps") is not None
    finally:
        owners.stop()


def test_a_native_pod_group_and_one_of_another_api_of_its_name_are_distinguished(
    native_cluster: Cluster, changed: threading.Event
) -> None:
    namespace, definitions = create_namespace(native_cluster), list[str]()
    define(native_cluster, definitions, "PodGroup", "scheduling.volcano.sh", "v1beta1")
    make(native_cluster, namespace, "scheduling.volcano.sh/v1beta1", "PodGroup", {"minMember": 7})
    api = native_cluster.api()
    api.request("POST", native_gangs.path(api, namespace), body=native_gangs.pod_group(api, "train", 4))
    owners = Owners(api, changed.set, check_seconds=0.5)
    owners.start()

    def sizes() -> list[int | None]:
        ids = ("scheduling.k8s.io/train", "train")
        return [size_of(owners, "PodGroup", namespace, "train", each) for each in ids]

    native_cluster.wait_for("both to be read", lambda: sizes() == [4, 7])
    owners.stop()
    for path in definitions:
        delete(api, path)
        wait_gone(native_cluster, path)
    delete_namespace(native_cluster, namespace)
