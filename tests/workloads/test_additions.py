"""A pod of a later stage is asked for as it will be, whatever is added between its template and it."""

from typing import Any

import msgspec
import pytest

from labeler.contract import keys
from tests.sweeper.pods import decode, pod_json
from tests.workloads.objects import BY_NAME, GPU, IN_ORDER, JOBSET, LWS, MPI, SET, read
from webhook.kube.objects import Pod, PodSpec
from webhook.scheduling import convert
from webhook.workloads.additions import PodTemplate, spec_as_made
from webhook.workloads.pod_sets import missing_pods

JOB = {"jobset.sigs.k8s.io/job-global-index": "0", "batch.kubernetes.io/job-completion-index": "0"}
WORKER = {"training.kubeflow.org/job-role": "worker", "training.kubeflow.org/replica-index": "1"}
LEADER = {"leaderworkerset.sigs.k8s.io/worker-index": "0"}
OF_SET = {"ownerReferences": [{"kind": "StatefulSet", "name": "x", "uid": "u", "controller": True}]}


def container(gpus: int = 8, name: str = "c", **requests: str) -> dict[str, Any]:
    resources: dict[str, Any] = {"limits": {GPU: str(gpus)}} if gpus else {}
    return {"name": name, "resources": resources | ({"requests": requests} if requests else {})}


def body(
    *containers: dict[str, Any], annotations: dict[str, str] | None = None, **spec: Any
) -> dict[str, Any]:
    return {"metadata": {"annotations": annotations or {}}, "spec": {"containers": [*containers], **spec}}


def owner(name: str, first: dict[str, Any], later: dict[str, Any]) -> dict[str, Any]:
    """The spec of an owner of this kind that makes a pod of one template, and then one of another."""
    jobs = [
        {"name": each, "template": {"spec": {"parallelism": 1, "completions": 1, "template": made}}}
        for each, made in (("a", first), ("b", later))
    ]
    owners: dict[str, dict[str, Any]] = {
        SET: {"replicas": 2, "template": later},
        LWS: {
            "startupPolicy": "LeaderReady",
            "leaderWorkerTemplate": {"size": 2, "leaderTemplate": first, "workerTemplate": later},
        },
        JOBSET: {"startupPolicy": IN_ORDER, "replicatedJobs": jobs},
        MPI: {
            "launcherCreationPolicy": "WaitForWorkersReady",
            "runLauncherAsWorker": True,
            "mpiReplicaSpecs": {
                "Launcher": {"template": later},
                "Worker": {"replicas": 1, "template": first},
            },
        },
    }
    return owners[name]


MARKS: dict[str, dict[str, Any]] = {
    SET: OF_SET,
    LWS: {"labels": LEADER},
    JOBSET: {"labels": JOB},
    MPI: {"labels": WORKER},
}


def asked_for(name: str, first: dict[str, Any], later: dict[str, Any], made: dict[str, Any]) -> PodSpec:
    """The spec of the pod of the later stage; made: that of the first pod, as it stands in the API server."""
    pod = decode(pod_json("x-0", metadata=MARKS[name], **made))
    sets = BY_NAME[name].pods(read(name, owner(name, first, later), {}, {})).sets
    ((_, found),) = missing_pods(sets, [pod]).later
    return found.spec


ADDED: dict[str, Any] = {
    "nodeSelector": {"tenant": "a", "rack": "leaders"},
    "tolerations": [{"key": GPU, "operator": "Exists"}, {"key": "node.kubernetes.io/not-ready"}],
    "priority": 7,
    "overhead": {"cpu": "50", "memory": "1Gi"},
}
"""PodNodeSelector, ExtendedResourceToleration, DefaultTolerationSeconds, Priority and RuntimeClass."""


def limited(cpu: str, gpus: int = 8) -> dict[str, Any]:
    """A container as a LimitRange and the API server's own defaults leave it."""
    both = {"cpu": cpu, GPU: str(gpus)}
    return {"name": "c", "resources": {"requests": both, "limits": both}}


@pytest.mark.parametrize("name", [SET, LWS, JOBSET, MPI])
def test_all_that_is_added_to_a_pod_is_added_to_those_of_later_stages(name: str) -> None:
    template = body(container(), runtimeClassName="kata", nodeSelector={"rack": "leaders"})
    spec = asked_for(name, template, template, {"containers": [limited("60")], **ADDED})
    assert convert.requests_of(spec) == {"cpu": 110_000, "memory": 2**30, GPU: 8, "pods": 1}
    assert spec.node_selector == ADDED["nodeSelector"]
    assert [each.key for each in spec.tolerations] == [GPU, "node.kubernetes.io/not-ready"]
    assert spec.priority == 7


@pytest.mark.parametrize("name", [LWS, JOBSET, MPI])
@pytest.mark.parametrize(
    ("later", "cpu"),
    [
        (body(container(4)), 60_000),
        (body(container(4, cpu="2")), 2_000),
        (body(container(4), container(0, "side")), 120_000),
        (body(container(4), initContainers=[container(0, "setup", cpu="99")]), 99_000),
    ],
    ids=["it says nothing", "it says how much", "in each container", "beside an init container"],
)
def test_the_default_of_a_limit_range_counts_where_another_template_has_none(
    name: str, later: dict[str, Any], cpu: int
) -> None:
    spec = asked_for(name, body(container()), later, {"containers": [limited("60")]})
    assert convert.requests_of(spec) == {"cpu": cpu, GPU: 4, "pods": 1}


def test_containers_that_a_webhook_adds_are_added_to_others_too() -> None:
    proxy = {"name": "proxy", "resources": {"requests": {"cpu": "1"}}, "restartPolicy": "Always"}
    made = {"containers": [limited("60")], "initContainers": [proxy]}
    spec = asked_for(JOBSET, body(container()), body(container(4, cpu="2")), made)
    assert convert.requests_of(spec)["cpu"] == 3_000


def made_of(template: dict[str, Any], template_of: dict[str, Any], pod: Pod) -> PodSpec:
    return spec_as_made(
        msgspec.convert(template, PodTemplate), msgspec.convert(template_of, PodTemplate), pod
    )


def pod_of(**spec: Any) -> Pod:
    return decode(pod_json(containers=[container()], **spec))


def test_what_the_author_wrote_stays_and_what_was_added_comes_to_it() -> None:
    template_of = body(container(), nodeSelector={"rack": "leaders"})
    pod = pod_of(nodeSelector={"rack": "leaders", "model": "h100"})
    spec = made_of(body(container(), nodeSelector={"zone": "a"}), template_of, pod)
    assert spec.node_selector == {"zone": "a", "model": "h100"}


def test_a_pod_that_asks_for_another_model_gets_nothing_of_it() -> None:
    other = body(container(), annotations={keys.GPU_MODEL_ANNOTATION: "A100"})
    assert made_of(other, body(container()), pod_of(nodeSelector={"model": "h100"})).node_selector == {}


def test_of_a_pod_without_devices_all_that_is_added_counts() -> None:
    spec = made_of(body(container()), body(container(0)), pod_of(nodeSelector={"tenant": "a"}))
    assert spec.node_selector == {"tenant": "a"}
    assert [each.key for each in spec.tolerations] == [GPU]


def test_a_pod_of_another_runtime_class_gets_neither_its_overhead_nor_its_nodes() -> None:
    template_of = body(container(), runtimeClassName="kata")
    spec = made_of(
        body(container()), template_of, pod_of(overhead={"cpu": "1"}, nodeSelector={"kata": "yes"})
    )
    assert (spec.overhead, spec.node_selector) == ({}, {})


@pytest.mark.parametrize(
    ("added", "expected"),
    [([], []), ([GPU], ["example.com/tpu"]), (["k"], ["k"])],
    ids=["nothing", "one for the resource", "one for all pods"],
)
def test_a_toleration_of_a_resource_is_added_for_another_resource(
    added: list[str], expected: list[str]
) -> None:
    other = body({"name": "c", "resources": {"limits": {"example.com/tpu": "4"}}})
    tolerations = [{"key": key, "operator": "Exists"} for key in added]
    spec = made_of(other, body(container()), pod_of(tolerations=tolerations))
    assert [each.key for each in spec.tolerations] == expected
