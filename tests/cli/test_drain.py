"""`topogate drain` on a real API server, with the guards that let only the sweeper remove gates."""

from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from hack.local.build import ROOT
from hack.local.cluster import Cluster, ClusterError
from labeler.contract import keys
from tests.extensions.bound_gangs import GANG, Scene
from tests.support import create_namespace, delete
from tests.sweeper.at_work import create_job, template
from webhook.cli.main import main
from webhook.kube.client import Api

OTHER = "kueue.x-k8s.io/admission"


@pytest.fixture
def guarded(cluster: Cluster) -> Cluster:
    """With the shipped guards, and the sweeper's rights."""
    return guard(cluster)


@pytest.fixture
def scene(native_cluster: Cluster) -> Iterator[Scene]:
    """The same where kube-scheduler binds PodGroups, with three nodes."""
    made = Scene(guard(native_cluster), create_namespace(native_cluster))
    made.add_nodes()
    yield made
    made.clear()


def guard(cluster: Cluster) -> Cluster:
    base = ROOT / "manifests" / "base"
    objects = [
        each
        for file in ("webhook.yaml", "sweeper.yaml")
        for each in yaml.safe_load_all((base / file).read_text())
    ]
    kinds = ("Namespace", "ServiceAccount", "ClusterRole", "ClusterRoleBinding")
    cluster.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(x for x in objects if x["kind"] in kinds))
    cluster.kubectl("apply", "-f", str(ROOT / "manifests" / "base" / "guards.yaml"))
    namespace = create_namespace(cluster)
    make(cluster.api(), namespace, "probe", keys.GATE)
    cluster.wait_for("the guards to be enforced", lambda: are_enforced(cluster, namespace))
    for name in gated(cluster.api(), namespace):
        delete(cluster.api(), f"/api/v1/namespaces/{namespace}/pods/{name}")
    return cluster


def are_enforced(cluster: Cluster, namespace: str) -> bool:
    """Whether an administrator may not remove a gate: the API server takes up and drops guards by itself."""
    make(cluster.api(), namespace, "", keys.GATE)
    (name, *_) = gated(cluster.api(), namespace)
    remove = '[{"op": "remove", "path": "/spec/schedulingGates"}]'
    try:
        cluster.kubectl("-n", namespace, "patch", "pod", name, "--type=json", "-p", remove)
    except ClusterError:
        return True
    return False


def make(api: Api, namespace: str, name: str, *gates: str) -> None:
    body: dict[str, Any] = {
        "metadata": {"name": name} if name else {"generateName": "probe-"},
        "spec": {
            "containers": [{"name": "c", "image": "x"}],
            "schedulingGates": [{"name": gate} for gate in gates],
        },
    }
    api.request("POST", f"/api/v1/namespaces/{namespace}/pods", body=body)


def gated(api: Api, namespace: str) -> dict[str, list[str]]:
    """Gates of the pods that have any, by pod."""
    pods = api.json("GET", f"/api/v1/namespaces/{namespace}/pods")["items"]
    found = {p["metadata"]["name"]: [g["name"] for g in p["spec"].get("schedulingGates", [])] for p in pods}
    return {name: gates for name, gates in found.items() if gates}


def drain(cluster: Cluster, *words: str) -> int:
    return main(["drain", "--kubeconfig", str(cluster.kubeconfig), *words])


@pytest.mark.promise("O232")
def test_without_yes_it_lists_what_it_would_do_and_does_nothing(
    guarded: Cluster, namespace: str, capsys: pytest.CaptureFixture[str]
) -> None:
    make(guarded.api(), namespace, "a", keys.GATE)
    make(guarded.api(), namespace, "b", OTHER, keys.GATE_PREFIX + "mine")
    make(guarded.api(), namespace, "not-ours", OTHER)
    before = gated(guarded.api(), namespace)
    assert drain(guarded, "--release") == 0
    output = capsys.readouterr().out
    assert f"{namespace}/a: would be released\n" in output
    assert f"{namespace}/b: would be released; other scheduling gates remain: {OTHER}\n" in output
    assert "2 pods would be released. Nothing was done; add --yes to do it.\n" in output
    assert gated(guarded.api(), namespace) == before


@pytest.mark.promise("S28", "O220", "O232")
def test_it_releases_every_pod_although_only_the_sweeper_may(
    guarded: Cluster, namespace: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(30):
        make(guarded.api(), namespace, f"p{number}", keys.GATE)
    make(guarded.api(), namespace, "b", OTHER, keys.GATE)
    assert drain(guarded, "--release", "--yes") == 0
    assert "31 pods released, 0 still wait." in capsys.readouterr().out
    assert gated(guarded.api(), namespace) == {"b": [OTHER]}


@pytest.mark.promise("O232")
def test_it_deletes_every_pod(guarded: Cluster, namespace: str, capsys: pytest.CaptureFixture[str]) -> None:
    make(guarded.api(), namespace, "a", keys.GATE)
    make(guarded.api(), namespace, "not-ours", OTHER)
    assert drain(guarded, "--delete", "--yes") == 0
    assert "1 pod deleted, 0 still wait." in capsys.readouterr().out
    assert gated(guarded.api(), namespace) == {"not-ours": [OTHER]}


def test_it_keeps_to_the_namespace_that_it_is_given(guarded: Cluster, namespace: str) -> None:
    other = create_namespace(guarded)
    for each in (namespace, other):
        make(guarded.api(), each, "a", keys.GATE)
    assert drain(guarded, "--release", "--yes", "-n", namespace) == 0
    assert gated(guarded.api(), namespace) == {}
    assert gated(guarded.api(), other) == {"a": [keys.GATE]}


@pytest.mark.promise("S28")
def test_it_works_where_the_guards_and_the_sweeper_are_gone_already(cluster: Cluster, namespace: str) -> None:
    probes = create_namespace(cluster)
    cluster.wait_for("the guards to be gone", lambda: not are_enforced(cluster, probes))
    make(cluster.api(), namespace, "a", keys.GATE)
    assert drain(cluster, "--release", "--yes") == 0
    assert gated(cluster.api(), namespace) == {}


@pytest.mark.promise("S28")
def test_it_names_the_right_that_is_missing(
    guarded: Cluster, namespace: str, capsys: pytest.CaptureFixture[str]
) -> None:
    make(guarded.api(), namespace, "a", keys.GATE)
    assert drain(guarded, "--release", "--yes", "--sweeper", "system:serviceaccount:a:b") == 1
    output = capsys.readouterr()
    assert 'User "system:serviceaccount:a:b" cannot patch resource "pods"' in output.err
    assert "0 pods released, 1 still wait." in output.out


@pytest.mark.promise("O232")
def test_it_names_what_would_hold_new_pods(guarded: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    guarded.kubectl("apply", "-f", str(ROOT / "manifests" / "base" / "webhook-configuration.yaml"))
    assert drain(guarded, "--release") == 0
    reported = capsys.readouterr().err
    assert "MutatingWebhookConfiguration topogate exists: new pods are gated again" in reported


@pytest.mark.promise("O232")
def test_it_lists_the_jobs_that_make_gated_pods_by_themselves(
    guarded: Cluster, namespace: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """As the Jobs of GPUTasks, which run on when topogate is removed."""
    for name, gates in (("of-a-task", [{"name": keys.GATE}]), ("of-nobody", [])):
        spec = {
            "restartPolicy": "Never",
            "containers": [{"name": "c", "image": "x"}],
            "schedulingGates": gates,
        }
        body = {"metadata": {"name": name}, "spec": {"suspend": True, "template": {"spec": spec}}}
        guarded.api().request("POST", f"/apis/batch/v1/namespaces/{namespace}/jobs", body=body)
    assert drain(guarded, "--release") == 0
    reported = [line for line in capsys.readouterr().err.splitlines() if namespace in line]
    assert len(reported) == 1
    assert f"Job {namespace}/of-a-task has the gate in its template" in reported[0]


def bound_or_tried(scene: Scene) -> bool:
    """Whether kube-scheduler has come to a decision on each pod."""
    return all(name in scene.bound() or scene.is_tried(name) for name in scene.released())


@pytest.mark.promise("O232")
def test_released_pods_of_a_pod_group_that_no_sweeper_has_created_are_bound(
    scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    """As with binding.mode: podgroup. The fourth pod, for which no node is left, stops none of the others."""
    scene.add("a", "b", "c", "too-much")
    assert drain(scene.cluster, "--release", "--yes", "-n", scene.namespace) == 0
    assert "4 pods released, 0 still wait." in capsys.readouterr().out
    scene.cluster.wait_for("kube-scheduler to try all pods", lambda: bound_or_tried(scene), 60)
    assert len(scene.bound()) == 3


def test_the_pod_group_is_deleted_with_the_controllers_of_its_pods(scene: Scene) -> None:
    body = template(8, annotations=GANG, schedulingGroup={"podGroupName": scene.name})
    create_job(scene.api, scene.namespace, "train", 2, body)
    scene.cluster.wait_for("the pods", lambda: len(scene.pods()) == 2, 60)
    assert drain(scene.cluster, "--release", "--yes", "-n", scene.namespace) == 0
    job = scene.api.json("GET", f"/apis/batch/v1/namespaces/{scene.namespace}/jobs/train")["metadata"]
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": job["uid"]}
    assert scene.group()["metadata"]["ownerReferences"] == [owner]


def test_pods_wait_on_if_their_pod_group_is_refused(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    """Once released, they would wait for ever, and nobody would know for what."""
    scene.add("a", "b")
    make(scene.api, scene.namespace, "of-no-group", keys.GATE)
    quota = {"metadata": {"name": "none"}, "spec": {"hard": {"count/podgroups.scheduling.k8s.io": "0"}}}
    quotas = f"/api/v1/namespaces/{scene.namespace}/resourcequotas"
    scene.api.request("POST", quotas, body=quota)
    scene.cluster.wait_for(
        "the quota to count", lambda: "status" in scene.api.json("GET", f"{quotas}/none"), 60
    )
    assert drain(scene.cluster, "--release", "--yes", "-n", scene.namespace) == 1
    output = capsys.readouterr()
    assert (
        f"{scene.namespace}/a: not released: kube-scheduler would wait for PodGroup {scene.name}"
        in output.err
    )
    assert "exceeded quota: none" in output.err
    assert "1 pod released, 2 still wait." in output.out
    assert set(gated(scene.api, scene.namespace)) == {"a", "b"}
