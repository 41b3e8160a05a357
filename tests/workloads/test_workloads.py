"""The size of each kind of gang, by table."""

from typing import Any

import pytest

from tests.workloads.objects import BY_NAME, JOBSET, LWS, MPI, SET, read, replicated
from webhook.workloads.builtin import (
    job_creates_pods,
    job_failures_left,
    job_has_ended_pods,
    job_ignores_evictions,
)
from webhook.workloads.kinds import WORKLOADS

JOB = "jobs.batch"
GROUP = "podgroups.scheduling.x-k8s.io"
VOLCANO = "podgroups.scheduling.volcano.sh"
NATIVE = "podgroups.scheduling.k8s.io"
PYTORCH = "pytorchjobs.kubeflow.org"
TRAIN = "trainjobs.trainer.kubeflow.org"
RAY = "rayclusters.ray.io"
CLIQUE = "podcliques.grove.io"


WORKERS = {"Master": {"replicas": 1}, "Worker": {"replicas": 7}}

SIZES = [
    pytest.param(JOB, {}, {}, 1, id="job-of-one"),
    pytest.param(JOB, {"parallelism": 8, "completions": 8}, {}, 8, id="job"),
    pytest.param(JOB, {"parallelism": 8}, {"succeeded": 3}, 8, id="job-without-completions"),
    pytest.param(JOB, {"parallelism": 8, "completions": 4}, {}, 4, id="job-with-less-to-complete"),
    pytest.param(JOB, {"parallelism": 4, "completions": 8}, {"succeeded": 6}, 2, id="job-nearly-done"),
    pytest.param(JOB, {"parallelism": 4, "completions": 4}, {"succeeded": 4}, 0, id="job-done"),
    pytest.param(JOB, {"parallelism": 0}, {}, 0, id="job-paused"),
    pytest.param(
        JOB,
        {"parallelism": 4, "completions": 8},
        {"succeeded": 3, "failedIndexes": "1,3-4"},
        2,
        id="job-given-up",
    ),
    pytest.param(
        JOB,
        {"parallelism": 4, "completions": 8},
        {"conditions": [{"type": "SuccessCriteriaMet", "status": "True"}]},
        0,
        id="job-that-has-succeeded-early",
    ),
    pytest.param(
        JOB,
        {"parallelism": 4, "completions": 8},
        {"conditions": [{"type": "SuccessCriteriaMet", "status": "False"}]},
        4,
        id="job-that-has-not",
    ),
    pytest.param(SET, {}, {}, 1, id="statefulset-of-one"),
    pytest.param(SET, {"replicas": 5}, {}, 5, id="statefulset"),
    pytest.param(CLIQUE, {"replicas": 8, "minAvailable": 6}, {}, 8, id="podclique"),
    pytest.param(CLIQUE, {"replicas": 0, "minAvailable": 6}, {}, 0, id="podclique-idle"),
    pytest.param(JOBSET, {"replicatedJobs": [replicated("w", 3, 4)]}, {}, 12, id="jobset"),
    pytest.param(
        JOBSET,
        {"replicatedJobs": [replicated("driver", 1, 1), replicated("workers", 2, 8)]},
        {},
        17,
        id="jobset-of-two",
    ),
    pytest.param(
        JOBSET,
        {"replicatedJobs": [replicated("driver", 1, 1), replicated("workers", 4, 8)]},
        {"replicatedJobsStatus": [{"name": "workers", "ready": 1, "succeeded": 3, "active": 1}]},
        9,
        id="jobset-partly-done",
    ),
    pytest.param(
        JOBSET, {"replicatedJobs": [{"name": "w", "template": {"spec": {}}}]}, {}, 1, id="jobset-of-defaults"
    ),
    pytest.param(LWS, {"replicas": 3, "leaderWorkerTemplate": {"size": 4}}, {}, 4, id="one-group-of-an-lws"),
    pytest.param(LWS, {"leaderWorkerTemplate": {}}, {}, 1, id="lws-of-defaults"),
    pytest.param(GROUP, {"minMember": 6}, {}, 6, id="podgroup"),
    pytest.param(GROUP, {}, {}, None, id="podgroup-without-a-minimum"),
    pytest.param(VOLCANO, {"minMember": 6, "queue": "default"}, {}, 6, id="volcano-podgroup"),
    pytest.param(VOLCANO, {"minMember": 0}, {}, None, id="volcano-podgroup-of-nothing"),
    pytest.param(NATIVE, {"schedulingPolicy": {"gang": {"minCount": 6}}}, {}, 6, id="native-group"),
    pytest.param(NATIVE, {"schedulingPolicy": {"basic": {}}}, {}, None, id="native-group-that-is-no-gang"),
    pytest.param(NATIVE, {"schedulingPolicy": {"gang": {"minCount": 0}}}, {}, None, id="native-group-of-0"),
    pytest.param(PYTORCH, {"pytorchReplicaSpecs": WORKERS}, {}, 8, id="pytorchjob"),
    pytest.param(
        PYTORCH, {"pytorchReplicaSpecs": {"Master": {}, "Worker": None}}, {}, 2, id="pytorchjob-of-defaults"
    ),
    pytest.param(
        PYTORCH,
        {"pytorchReplicaSpecs": WORKERS, "runPolicy": {"schedulingPolicy": {"minAvailable": 5}}},
        {},
        8,
        id="pytorchjob-with-a-minimum",
    ),
    pytest.param(
        PYTORCH,
        {"pytorchReplicaSpecs": WORKERS, "runPolicy": {"cleanPodPolicy": "None"}},
        {"replicaStatuses": {"Worker": {"succeeded": 2, "active": 5}, "Master": {}}},
        6,
        id="pytorchjob-partly-done",
    ),
    pytest.param(PYTORCH, {}, {}, None, id="pytorchjob-without-roles"),
    pytest.param("tfjobs.kubeflow.org", {"tfReplicaSpecs": {"PS": {"replicas": 2}}}, {}, 2, id="tfjob"),
    pytest.param("xgboostjobs.kubeflow.org", {"xgbReplicaSpecs": WORKERS}, {}, 8, id="xgboostjob"),
    pytest.param("paddlejobs.kubeflow.org", {"paddleReplicaSpecs": WORKERS}, {}, 8, id="paddlejob"),
    pytest.param(
        "jaxjobs.kubeflow.org", {"jaxReplicaSpecs": {"Worker": {"replicas": 3}}}, {}, 3, id="jaxjob"
    ),
    pytest.param(
        MPI,
        {"mpiReplicaSpecs": {"Launcher": {"replicas": 1}, "Worker": {"replicas": 4}}},
        {},
        5,
        id="mpijob",
    ),
    pytest.param(TRAIN, {"trainer": {"numNodes": 4}}, {}, 4, id="trainjob"),
    pytest.param(TRAIN, {"runtimeRef": {"name": "torch"}}, {}, None, id="trainjob-sized-by-its-runtime"),
    pytest.param(RAY, {"headGroupSpec": {}}, {}, 1, id="ray-head-alone"),
    pytest.param(
        RAY,
        {"workerGroupSpecs": [{"replicas": 2, "numOfHosts": 4}, {"replicas": 3}]},
        {},
        12,
        id="raycluster",
    ),
    pytest.param(
        RAY,
        {"workerGroupSpecs": [{"replicas": 1, "minReplicas": 2, "maxReplicas": 5}, {"minReplicas": 1}]},
        {},
        4,
        id="raycluster-below-its-minimum",
    ),
    pytest.param(
        RAY,
        {"workerGroupSpecs": [{"replicas": 9, "maxReplicas": 5}]},
        {},
        6,
        id="raycluster-above-its-maximum",
    ),
    pytest.param(
        RAY, {"workerGroupSpecs": [{"replicas": 9, "suspend": True}]}, {}, 1, id="raycluster-suspended-group"
    ),
    pytest.param(
        RAY,
        {"enableInTreeAutoscaling": True, "workerGroupSpecs": [{"replicas": 2}]},
        {},
        None,
        id="raycluster-autoscaled",
    ),
]


@pytest.mark.promise("R230")
@pytest.mark.parametrize(("name", "spec", "status", "expected"), SIZES)
def test_a_gang_has_the_size_of_its_owner(
    name: str, spec: dict[str, Any], status: dict[str, Any], expected: int | None
) -> None:
    assert BY_NAME[name].size(read(name, spec, status, {})) == expected


AVAILABLE = {"runPolicy": {"schedulingPolicy": {"minAvailable": 5}}}
ELASTIC = {"elasticPolicy": {"minReplicas": 2, "maxReplicas": 7}}
GROUPS = [{"replicas": 9, "minReplicas": 2, "maxReplicas": 10}, {"minReplicas": 4, "maxReplicas": 3}]
MINIMA = [
    pytest.param(JOB, {"parallelism": 8, "completions": 8}, None, id="job"),
    pytest.param(JOBSET, {"replicatedJobs": [replicated("w", 2, 2)]}, None, id="jobset"),
    pytest.param(LWS, {"leaderWorkerTemplate": {"size": 4}}, None, id="lws"),
    pytest.param(GROUP, {"minMember": 6}, 6, id="podgroup"),
    pytest.param(VOLCANO, {"minMember": 6}, 6, id="volcano-podgroup"),
    pytest.param(NATIVE, {"schedulingPolicy": {"gang": {"minCount": 6}}}, 6, id="native-group"),
    pytest.param(PYTORCH, {"pytorchReplicaSpecs": WORKERS}, None, id="pytorchjob"),
    pytest.param(PYTORCH, {"pytorchReplicaSpecs": WORKERS, **AVAILABLE}, 5, id="pytorchjob-available"),
    pytest.param(PYTORCH, {"pytorchReplicaSpecs": WORKERS, **ELASTIC}, 3, id="pytorchjob-elastic"),
    pytest.param(PYTORCH, {"pytorchReplicaSpecs": WORKERS, **ELASTIC, **AVAILABLE}, 5, id="pytorchjob-both"),
    pytest.param(MPI, {"mpiReplicaSpecs": WORKERS, **AVAILABLE}, 5, id="mpijob-available"),
    pytest.param(
        PYTORCH,
        {"pytorchReplicaSpecs": WORKERS, "runPolicy": {"schedulingPolicy": {"minAvailable": -5}}},
        None,
        id="pytorchjob-available-negative",
    ),
    pytest.param(
        PYTORCH,
        {"pytorchReplicaSpecs": WORKERS, "elasticPolicy": {"minReplicas": -2}},
        None,
        id="pytorchjob-elastic-negative",
    ),
    pytest.param(TRAIN, {"trainer": {"numNodes": 4}}, None, id="trainjob"),
    pytest.param(CLIQUE, {"replicas": 8, "minAvailable": 6}, 6, id="podclique"),
    pytest.param(CLIQUE, {"replicas": 8}, None, id="podclique-without-a-minimum"),
    pytest.param(RAY, {"workerGroupSpecs": GROUPS}, 6, id="raycluster"),
    pytest.param(RAY, {"workerGroupSpecs": [{"minReplicas": -9}]}, 1, id="raycluster-negative"),
    pytest.param(
        RAY, {"enableInTreeAutoscaling": True, "workerGroupSpecs": GROUPS}, 6, id="raycluster-autoscaled"
    ),
    pytest.param(RAY, {"workerGroupSpecs": [{"replicas": 3}]}, 1, id="raycluster-without-a-minimum"),
    pytest.param(
        RAY, {"workerGroupSpecs": [{"minReplicas": 3, "suspend": True}]}, 1, id="raycluster-suspended-group"
    ),
    pytest.param(
        RAY,
        {"workerGroupSpecs": [*GROUPS, {"replicas": 2, "minReplicas": 1, "numOfHosts": 4}]},
        None,
        id="raycluster-of-several-hosts-a-replica",
    ),
]


@pytest.mark.parametrize(("name", "spec", "expected"), MINIMA)
def test_a_gang_needs_as_many_pods_as_its_owner_asks_for(
    name: str, spec: dict[str, Any], expected: int | None
) -> None:
    workload = BY_NAME[name]
    assert workload.minimum(read(name, spec, {}, {})) == expected


EXCLUSIVE = {"alpha.jobset.sigs.k8s.io/exclusive-topology": "cloud.google.com/gke-nodepool"}
SELECTED = EXCLUSIVE | {"alpha.jobset.sigs.k8s.io/node-selector": "true"}
JOBS = {"replicatedJobs": [replicated("w", 2, 2)]}
MARKED = replicated("w", 2, 2) | {"template": {"metadata": {"annotations": EXCLUSIVE}}}

STAGED = [
    pytest.param(JOB, {"parallelism": 8}, {}, False, id="job"),
    pytest.param(SET, {}, {}, True, id="statefulset"),
    pytest.param(SET, {"podManagementPolicy": "Parallel"}, {}, False, id="statefulset-parallel"),
    pytest.param(JOBSET, JOBS, {}, False, id="jobset"),
    pytest.param(
        JOBSET, JOBS | {"startupPolicy": {"startupPolicyOrder": "InOrder"}}, {}, True, id="jobset-in-order"
    ),
    pytest.param(
        JOBSET, JOBS | {"startupPolicy": {"startupPolicyOrder": "AnyOrder"}}, {}, False, id="jobset-any-order"
    ),
    pytest.param(
        JOBSET,
        {"replicatedJobs": [replicated("w", 1, 1, dependsOn=[{"name": "d", "status": "Ready"}])]},
        {},
        True,
        id="jobset-with-dependencies",
    ),
    pytest.param(JOBSET, JOBS, EXCLUSIVE, True, id="jobset-leader-first"),
    pytest.param(JOBSET, {"replicatedJobs": [MARKED]}, {}, True, id="jobset-one-job-leader-first"),
    pytest.param(JOBSET, JOBS, SELECTED, False, id="jobset-on-labelled-nodes"),
    pytest.param(LWS, {}, {}, False, id="lws"),
    pytest.param(LWS, {"startupPolicy": "LeaderCreated"}, {}, False, id="lws-leader-created"),
    pytest.param(LWS, {"startupPolicy": "LeaderReady"}, {}, True, id="lws-leader-ready"),
    pytest.param(
        LWS, {}, {"leaderworkerset.sigs.k8s.io/exclusive-topology": "rack"}, True, id="lws-exclusive"
    ),
    pytest.param(
        LWS,
        {},
        {"leaderworkerset.sigs.k8s.io/subgroup-exclusive-topology": "rack"},
        False,
        id="lws-exclusive-subgroups",
    ),
    pytest.param(MPI, {}, {}, False, id="mpijob"),
    pytest.param(MPI, {"launcherCreationPolicy": "WaitForWorkersReady"}, {}, True, id="mpijob-launcher-last"),
    pytest.param(PYTORCH, {"pytorchReplicaSpecs": WORKERS}, {}, False, id="pytorchjob"),
    pytest.param(GROUP, {"minMember": 2}, {}, False, id="podgroup"),
    pytest.param(RAY, {}, {}, False, id="raycluster"),
]


@pytest.mark.parametrize(("name", "spec", "annotations", "expected"), STAGED)
def test_a_controller_that_makes_pods_only_after_others_run_is_known(
    name: str, spec: dict[str, Any], annotations: dict[str, str], expected: bool
) -> None:
    assert BY_NAME[name].is_staged(read(name, spec, {}, annotations)) is expected


def test_no_kind_of_owner_is_listed_twice() -> None:
    assert len(BY_NAME) == len(WORKLOADS)


@pytest.mark.parametrize(
    ("spec", "status", "left"),
    [
        ({}, {}, 6),
        ({"backoffLimit": 0}, {}, 0),
        ({"backoffLimit": 3}, {"failed": 2}, 1),
        ({}, {"failed": 9}, -3),
    ],
    ids=["the default", "none at all", "some used up", "all used up"],
)
def test_a_job_can_lose_as_many_pods_as_its_backoff_limit_leaves(
    spec: dict[str, Any], status: dict[str, Any], left: int
) -> None:
    assert job_failures_left(read(JOB, spec, status, {})) == left


DISRUPTED = {"onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
BY_CODE = {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}}


@pytest.mark.parametrize(
    ("rules", "ignores"),
    [
        ([], False),
        ([{"action": "Ignore", **DISRUPTED}], True),
        ([{"action": "Count", **DISRUPTED}], False),
        ([{"action": "FailJob", **DISRUPTED}, {"action": "Ignore", **DISRUPTED}], False),
        ([BY_CODE, {"action": "Ignore", **DISRUPTED}], False),
        ([{"action": "Ignore", "onPodConditions": [{"type": "Other", "status": "True"}]}], False),
    ],
    ids=["none", "ignores", "counts", "fails first", "may fail by exit code first", "another condition"],
)
def test_the_rules_of_a_job_make_evictions_no_failures(rules: list[dict[str, Any]], ignores: bool) -> None:
    spec = {"podFailurePolicy": {"rules": rules}}
    assert job_ignores_evictions(read(JOB, spec, {}, {})) is ignores


@pytest.mark.parametrize(
    ("status", "ended"),
    [
        ({}, False),
        ({"failed": 2, "active": 3}, False),
        ({"succeeded": 1}, True),
        ({"failedIndexes": "1,3-5"}, True),
    ],
)
def test_a_job_of_which_pods_have_succeeded_or_were_given_up_continues_without_them(
    status: dict[str, Any], ended: bool
) -> None:
    assert job_has_ended_pods(read(JOB, {}, status, {})) is ended


@pytest.mark.parametrize(
    ("spec", "succeeded", "creates"), [({"completions": 8}, 3, True), ({}, 0, True), ({}, 1, False)]
)
def test_a_job_without_completions_replaces_no_failed_pod_after_a_success(
    spec: dict[str, Any], succeeded: int, creates: bool
) -> None:
    job = read(JOB, {"parallelism": 8, **spec}, {"failed": 7, "succeeded": succeeded}, {})
    assert job_creates_pods(job) is creates
