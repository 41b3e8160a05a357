"""Owners of each kind, and their pods: how many there are, how many are enough, and in which stages."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from tests.workloads.objects import IN_ORDER, JOBSET, LWS, MPI, SET, replicated

JOB: Final = "jobs.batch"
GROUP: Final = "podgroups.scheduling.x-k8s.io"
VOLCANO: Final = "podgroups.scheduling.volcano.sh"
NATIVE: Final = "podgroups.scheduling.k8s.io"
PYTORCH: Final = "pytorchjobs.kubeflow.org"
TRAIN: Final = "trainjobs.trainer.kubeflow.org"
RAY: Final = "rayclusters.ray.io"
CLIQUE: Final = "podcliques.grove.io"

Object = dict[str, Any]
Set = tuple[str, int | None, list[tuple[str | int, ...]]]
"""Name, stage and ranks of a pod set."""


class Case(NamedTuple):
    """An owner, and its pods. sets: None if they are not compared."""

    owner: str
    spec: Object
    size: int | None
    minimum: int | None = None
    sets: list[Set] | None = None
    is_staged: bool = False
    status: Mapping[str, Any] = MappingProxyType({})
    annotations: Mapping[str, str] = MappingProxyType({})


def jobs(*made: Object, **more: Any) -> Object:
    return {"replicatedJobs": list(made), **more}


def group(size: int, each: int | None = None, **more: Any) -> Object:
    policy = {} if each is None else {"subGroupPolicy": {"subGroupSize": each}}
    return {"leaderWorkerTemplate": {"size": size, **policy}, **more}


def roles(launcher: int | None = None, field: str = "mpiReplicaSpecs", **more: Any) -> Object:
    first = {} if launcher is None else {"Launcher": {"replicas": launcher}}
    return {field: {**first, "Worker": {"replicas": 2}}, **more}


def ray(*groups: Object, **more: Any) -> Object:
    return {"workerGroupSpecs": list(groups), **more}


EXCLUSIVE: Final = {"alpha.jobset.sigs.k8s.io/exclusive-topology": "rack"}
SELECTED: Final = EXCLUSIVE | {"alpha.jobset.sigs.k8s.io/node-selector": "true"}
MARKED: Final = replicated("w", 2, 2) | {"template": {"metadata": {"annotations": EXCLUSIVE}}}
GROUP_OVER: Final = {"leaderworkerset.sigs.k8s.io/exclusive-topology": "block"}
SUBGROUP_OVER: Final = {"leaderworkerset.sigs.k8s.io/subgroup-exclusive-topology": "rack"}
READY: Final = {"dependsOn": [{"name": "a", "status": "Ready"}]}
COMPLETE: Final = {"dependsOn": [{"name": "a", "status": "Complete"}]}
A_IS_DONE: Final = {"replicatedJobsStatus": [{"name": "a", "ready": 1, "succeeded": 1, "active": 1}]}
LATE: Final = {"launcherCreationPolicy": "WaitForWorkersReady"}
WORKERS: Final = {"pytorchReplicaSpecs": {"Master": {"replicas": 1}, "Worker": {"replicas": 7}}}
AVAILABLE: Final = {"runPolicy": {"schedulingPolicy": {"minAvailable": 5}}}
NEGATIVE: Final = {"runPolicy": {"schedulingPolicy": {"minAvailable": -5}}}
ELASTIC: Final = {"elasticPolicy": {"minReplicas": 2, "maxReplicas": 7}}
BOUNDED: Final = ({"replicas": 9, "minReplicas": 2, "maxReplicas": 10}, {"minReplicas": 4, "maxReplicas": 3})
HOSTS: Final = {"replicas": 2, "minReplicas": 1, "numOfHosts": 4}
LEADER: Final[Set] = ("x", 0, [(0,)])

CASES: Final = {
    "job-of-one": Case(JOB, {}, 1, sets=[("x", 0, [(0,)])]),
    "job": Case(JOB, {"parallelism": 8, "completions": 8}, 8),
    "job-without-completions": Case(JOB, {"parallelism": 8}, 8, status={"succeeded": 3}),
    "job-with-less-to-complete": Case(JOB, {"parallelism": 8, "completions": 4}, 4),
    "job-nearly-done": Case(JOB, {"parallelism": 4, "completions": 8}, 2, status={"succeeded": 6}),
    "job-done": Case(JOB, {"parallelism": 4, "completions": 4}, 0, status={"succeeded": 4}),
    "job-paused": Case(JOB, {"parallelism": 0}, 0),
    "job-suspended": Case(JOB, {"parallelism": 3, "suspend": True}, 3),
    "job-given-up": Case(
        JOB, {"parallelism": 4, "completions": 8}, 2, status={"succeeded": 3, "failedIndexes": "1,3-4"}
    ),
    "job-that-has-succeeded-early": Case(
        JOB, {"parallelism": 4}, 0, status={"conditions": [{"type": "SuccessCriteriaMet", "status": "True"}]}
    ),
    "job-that-has-not": Case(
        JOB, {"parallelism": 4}, 4, status={"conditions": [{"type": "SuccessCriteriaMet", "status": "False"}]}
    ),
    "job-of-an-exclusive-jobset": Case(
        JOB,
        {
            "parallelism": 3,
            "completionMode": "Indexed",
            "template": {
                "metadata": {"annotations": EXCLUSIVE, "labels": {"jobset.sigs.k8s.io/job-global-index": "4"}}
            },
        },
        3,
        sets=[("x", 0, [(4, 0)]), ("x", 1, [(4, 1), (4, 2)])],
        is_staged=True,
    ),
    "job-of-a-jobset-on-labelled-nodes": Case(
        JOB, {"parallelism": 2, "template": {"metadata": {"annotations": SELECTED}}}, 2
    ),
    "statefulset-of-one": Case(SET, {}, 1, is_staged=True),
    "statefulset-ordered": Case(
        SET,
        {"replicas": 2, "ordinals": {"start": 5}},
        2,
        sets=[("x", 5, [(5,)]), ("x", 6, [(6,)])],
        is_staged=True,
    ),
    "statefulset-parallel": Case(
        SET, {"replicas": 2, "podManagementPolicy": "Parallel"}, 2, sets=[("x", 0, [(0,), (1,)])]
    ),
    "podclique": Case(CLIQUE, {"replicas": 8, "minAvailable": 6}, 8, 6),
    "podclique-without-a-minimum": Case(CLIQUE, {"replicas": 2}, 2, sets=[("x", 0, [(0,), (1,)])]),
    "podclique-idle": Case(CLIQUE, {"replicas": 0, "minAvailable": 6}, 0, 6),
    "jobset": Case(
        JOBSET,
        jobs(replicated("a", 2, 2), replicated("b", 1, 1)),
        5,
        sets=[("x-a", 0, [(0, 0), (0, 1), (1, 0), (1, 1)]), ("x-b", 0, [(2, 0)])],
    ),
    "jobset-partly-done": Case(
        JOBSET, jobs(replicated("a", 4, 8), replicated("b", 1, 1)), 25, status=A_IS_DONE
    ),
    "jobset-of-defaults": Case(JOBSET, jobs({"name": "w", "template": {"spec": {}}}), 1),
    "jobset-in-order": Case(
        JOBSET,
        jobs(replicated("a", 1, 1), replicated("b", 2, 2), startupPolicy=IN_ORDER),
        5,
        sets=[("x-a", 0, [(0, 0)]), ("x-b", 1, [(1, 0), (1, 1), (2, 0), (2, 1)])],
        is_staged=True,
    ),
    "jobset-any-order": Case(
        JOBSET,
        jobs(replicated("a", 1, 1), replicated("b", 2, 2), startupPolicy={"startupPolicyOrder": "AnyOrder"}),
        5,
    ),
    "jobset-with-one-job-behind-another": Case(
        JOBSET,
        jobs(replicated("a", 1, 1), replicated("b", 1, 1), replicated("c", 1, 1, **READY)),
        3,
        sets=[("x-a", 0, [(0, 0)]), ("x-b", 0, [(1, 0)]), ("x-c", 1, [(2, 0)])],
        is_staged=True,
    ),
    "jobset-with-a-job-that-runs-once-another-has-ended": Case(
        JOBSET,
        jobs(replicated("a", 1, 1), replicated("b", 1, 1, **COMPLETE)),
        2,
        sets=[("x-a", 0, [(0, 0)]), ("x-b", None, [(1, 0)])],
        is_staged=True,
    ),
    "jobset-of-which-another-has-ended": Case(
        JOBSET,
        jobs(replicated("a", 1, 1), replicated("b", 1, 1, **COMPLETE)),
        1,
        sets=[("x-a", 0, [(0, 0)]), ("x-b", 0, [(1, 0)])],
        status=A_IS_DONE,
    ),
    "jobset-exclusive": Case(
        JOBSET,
        jobs(replicated("a", 1, 1), replicated("b", 2, 3)),
        7,
        sets=[
            ("x-a", 0, [(0, 0)]),
            ("x-a", 0, []),
            ("x-b", 0, [(1, 0), (2, 0)]),
            ("x-b", 0, [(1, 1), (1, 2), (2, 1), (2, 2)]),
        ],
        is_staged=True,
        annotations=EXCLUSIVE,
    ),
    "jobset-with-an-exclusive-job": Case(JOBSET, jobs(MARKED), 2, is_staged=True),
    "jobset-on-labelled-nodes": Case(JOBSET, jobs(replicated("w", 2, 2)), 4, annotations=SELECTED),
    "one-group-of-an-lws": Case(LWS, {"replicas": 3, **group(3)}, 3, sets=[LEADER, ("x", 0, [(1,), (2,)])]),
    "lws-of-defaults": Case(LWS, {"leaderWorkerTemplate": {}}, 1, sets=[LEADER, ("x", 0, [])]),
    "lws-leader-created": Case(LWS, group(3, startupPolicy="LeaderCreated"), 3),
    "lws-leader-ready": Case(
        LWS, group(3, startupPolicy="LeaderReady"), 3, sets=[LEADER, ("x", 1, [(1,), (2,)])], is_staged=True
    ),
    "lws-exclusive-subgroups": Case(LWS, group(4, 2), 4, annotations=SUBGROUP_OVER),
    "lws-whose-leader-is-of-the-first-subgroup": Case(
        LWS,
        group(4, 2),
        4,
        sets=[LEADER, ("x", 1, [(1,)]), ("x", 1, [(2,), (3,)])],
        is_staged=True,
        annotations=GROUP_OVER | SUBGROUP_OVER,
    ),
    "lws-whose-leader-is-one-more-than-the-subgroups": Case(
        LWS,
        group(5, 2),
        5,
        sets=[LEADER, ("x", 1, [(1,), (2,)]), ("x", 1, [(3,), (4,)])],
        is_staged=True,
        annotations=GROUP_OVER,
    ),
    "podgroup": Case(GROUP, {"minMember": 6}, 6, 6),
    "podgroup-without-a-minimum": Case(GROUP, {}, None),
    "volcano-podgroup": Case(VOLCANO, {"minMember": 6, "queue": "default"}, 6, 6),
    "volcano-podgroup-of-nothing": Case(VOLCANO, {"minMember": 0}, None),
    "native-group": Case(NATIVE, {"schedulingPolicy": {"gang": {"minCount": 6}}}, 6, 6),
    "native-group-that-is-no-gang": Case(NATIVE, {"schedulingPolicy": {"basic": {}}}, None),
    "native-group-of-0": Case(NATIVE, {"schedulingPolicy": {"gang": {"minCount": 0}}}, None),
    "pytorchjob": Case(PYTORCH, WORKERS, 8),
    "pytorchjob-of-defaults": Case(
        PYTORCH,
        {"pytorchReplicaSpecs": {"Master": {}, "Worker": None}},
        2,
        sets=[("x-master", 0, [("master", 0)]), ("x-worker", 0, [("worker", 0)])],
    ),
    "pytorchjob-without-roles": Case(PYTORCH, {}, None),
    "pytorchjob-partly-done": Case(
        PYTORCH, WORKERS, 6, status={"replicaStatuses": {"Worker": {"succeeded": 2}, "Master": {}}}
    ),
    "pytorchjob-available": Case(PYTORCH, WORKERS | AVAILABLE, 8, 5),
    "pytorchjob-elastic": Case(PYTORCH, WORKERS | ELASTIC, 8, 3),
    "pytorchjob-both": Case(PYTORCH, WORKERS | ELASTIC | AVAILABLE, 8, 5),
    "pytorchjob-available-negative": Case(PYTORCH, WORKERS | NEGATIVE, 8),
    "pytorchjob-elastic-negative": Case(PYTORCH, WORKERS | {"elasticPolicy": {"minReplicas": -2}}, 8),
    "tfjob": Case("tfjobs.kubeflow.org", roles(field="tfReplicaSpecs") | AVAILABLE, 2, 5),
    "xgboostjob": Case("xgboostjobs.kubeflow.org", roles(field="xgbReplicaSpecs") | AVAILABLE, 2, 5),
    "paddlejob": Case("paddlejobs.kubeflow.org", roles(field="paddleReplicaSpecs") | AVAILABLE, 2, 5),
    "jaxjob": Case("jaxjobs.kubeflow.org", roles(field="jaxReplicaSpecs") | AVAILABLE, 2, 5),
    "mpijob": Case(
        MPI, roles(1), 3, sets=[("x-launcher", 0, [("launcher", 0)]), ("x-worker", 0, [(0,), (1,)])]
    ),
    "mpijob-available": Case(MPI, roles(1) | AVAILABLE, 3, 5),
    "mpijob-whose-launcher-waits": Case(
        MPI,
        roles(1) | LATE,
        3,
        sets=[("x-launcher", 1, [("launcher", 0)]), ("x-worker", 0, [(0,), (1,)])],
        is_staged=True,
    ),
    "mpijob-whose-launcher-waits-and-works": Case(
        MPI,
        roles(1, runLauncherAsWorker=True) | LATE,
        3,
        sets=[("x-launcher", 1, [(0,)]), ("x-worker", 0, [(1,), (2,)])],
        is_staged=True,
    ),
    "trainjob": Case(TRAIN, {"trainer": {"numNodes": 4}}, 4),
    "trainjob-with-resources": Case(
        TRAIN,
        {"trainer": {"numNodes": 2, "resourcesPerNode": {"limits": {"nvidia.com/gpu": 8}}}},
        2,
        sets=[("x-node", 0, [(0, 0), (0, 1)])],
    ),
    "trainjob-sized-by-its-runtime": Case(TRAIN, {"runtimeRef": {"name": "torch"}}, None),
    "ray-head-alone": Case(RAY, {"headGroupSpec": {}}, 1, 1, sets=[("x-head", 0, [(0,)])]),
    "raycluster": Case(
        RAY,
        ray({"groupName": "a", "replicas": 2, "minReplicas": 1}, {"groupName": "b", "replicas": 1}),
        4,
        2,
        sets=[("x-head", 0, [(0,)]), ("x-a", 0, [(0,), (1,)]), ("x-b", 0, [(0,)])],
    ),
    "raycluster-within-its-bounds": Case(RAY, ray(*BOUNDED), 1 + 9 + 3, 1 + 2 + 3),
    "raycluster-below-its-minimum": Case(RAY, ray({"replicas": 1, "minReplicas": 2}), 3, 3),
    "raycluster-negative": Case(RAY, ray({"minReplicas": -9}), 1, 1),
    "raycluster-autoscaled": Case(RAY, ray(*BOUNDED, enableInTreeAutoscaling=True), None, 6),
    "raycluster-suspended-group": Case(RAY, ray({"replicas": 9, "minReplicas": 3, "suspend": True}), 1, 1),
    "raycluster-of-several-hosts-a-replica": Case(RAY, ray(HOSTS, {"replicas": 1}), 10),
}
