"""What a gang asks for: its kinds of pods, as kube-scheduler sees them, and how many of each."""

from dataclasses import replace
from typing import Any

import pytest

from tests.sweeper.cluster import GPU, Nodes, gpu_pod
from tests.sweeper.pods import decode, gather_all, job_pod, pod_json
from webhook.configuration.settings import Settings
from webhook.extensions.scale_up.wants import Want, members, want_of
from webhook.kube.objects import Metadata, Pod
from webhook.kube.placements import Placement
from webhook.kube.plan_pods import PlannedPod
from webhook.sweeper.observe.snapshotter import Snapshotter

OWNER = Placement(metadata=Metadata(name="job-train-0", namespace="ns", uid="owner"))


def wanted(*pods: Pod) -> Want:
    (gang,) = gather_all(*pods)
    view = Snapshotter(Nodes(0, *pods), Settings()).view()
    return want_of(gang, members(gang, view), OWNER)


def of_gang(name: str, gpus: int = 1, labels: dict[str, str] | None = None, **spec: Any) -> Pod:
    annotations = {"topogate.io/gang": "g", **spec.pop("annotations", {})}
    metadata = {"annotations": annotations, "labels": labels or {}}
    return gpu_pod(name, gpus=gpus, metadata=metadata, **spec)


def test_identical_pods_are_one_class_with_the_labels_that_they_share() -> None:
    want = wanted(
        of_gang("a", labels={"app": "x", "index": "0"}), of_gang("b", labels={"app": "x", "index": "1"})
    )
    (kind,) = want.classes
    assert (kind.count, kind.template["metadata"]["labels"]) == (2, {"app": "x"})


def test_different_pods_are_classes_of_their_own() -> None:
    want = wanted(of_gang("a", 8), of_gang("b", 1), of_gang("c", 1))
    counts = {
        kind.template["spec"]["containers"][0]["resources"]["requests"][GPU]: kind.count
        for kind in want.classes
    }
    assert counts == {"8": 1, "1": 2}
    assert want.pods == 3


@pytest.mark.promise("O115")
def test_the_template_has_what_kube_scheduler_reads_and_no_gate() -> None:
    selects_all: dict[str, Any] = {}
    spread = {
        "topologyKey": "zone",
        "maxSkew": 1,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": selects_all,
    }
    want = wanted(
        of_gang(
            "a",
            nodeSelector={"pool": "a"},
            priority=7,
            priorityClassName="high",
            tolerations=[{"operator": "Exists"}],
            topologySpreadConstraints=[spread],
        )
    )
    spec = want.classes[0].template["spec"]
    assert "schedulingGates" not in spec
    assert spec["nodeSelector"] == {"pool": "a"}
    assert (spec["priority"], spec["priorityClassName"]) == (7, "high")
    assert spec["tolerations"] == [{"operator": "Exists"}]
    # A selector of nothing in particular selects everything: left out, it would select nothing.
    assert spec["topologySpreadConstraints"] == [spread]


def test_a_host_port_is_a_port_as_the_api_server_wants_it() -> None:
    pod = decode(
        pod_json(
            containers=[{"name": "c", "ports": [{"hostPort": 80, "containerPort": 8080, "protocol": "TCP"}]}]
        )
    )
    (port,) = wanted(pod).classes[0].template["spec"]["containers"][0]["ports"]
    assert port == {"hostPort": 80, "containerPort": 80, "protocol": "TCP"}


@pytest.mark.promise("O114")
def test_an_elastic_gang_asks_for_its_minimum_alone() -> None:
    enough = {"topogate.io/gang-min-size": "2", "topogate.io/gang-size": "4"}
    assert wanted(*(of_gang(name, annotations=enough) for name in "abcd")).pods == 2


@pytest.mark.promise("O114")
def test_pods_that_are_made_once_others_run_are_asked_for_as_well() -> None:
    leader, worker = of_gang("leader"), of_gang("worker", 8)
    (gang,) = gather_all(leader)
    view = Snapshotter(Nodes(0, leader), Settings()).view()
    assert members(replace(gang, later=(worker,)), view) == [leader, worker]


def test_what_is_planned_or_fits_beside_the_others_is_not_asked_for() -> None:
    pods = of_gang("a"), of_gang("b"), of_gang("launcher", 0)
    (gang,) = gather_all(*pods)
    view = Snapshotter(Nodes(0, *pods), Settings()).view()
    view = view.with_plans({"uid-a": PlannedPod(name="a", uid="uid-a", node="n0")})
    gang = replace(gang, cpu_pods=frozenset({"uid-launcher"}))
    assert members(gang, view) == [pods[1]]


@pytest.mark.promise("O114")
def test_the_shape_is_the_same_for_the_same_pods_recreated_and_another_for_others() -> None:
    first = wanted(job_pod(0, uid="u1"), job_pod(1, uid="u2"))
    again = wanted(job_pod(0, uid="u3"), job_pod(1, uid="u4"))
    assert first.shape == again.shape != wanted(job_pod(0, uid="u1")).shape


@pytest.mark.promise("O114")
def test_names_differ_by_gang_shape_and_attempt_and_are_values_of_labels() -> None:
    long = Placement(metadata=Metadata(name="job-" + "x" * 200, namespace="ns", uid="other"))
    (gang,) = gather_all(job_pod(0))
    wants = [wanted(job_pod(0)), want_of(gang, gang.gated, long), wanted(job_pod(0), job_pod(1))]
    names = {want.name(attempt, "class") for want in wants for attempt in (1, 2)}
    assert len(names) == 6
    assert max(map(len, names)) <= 63
