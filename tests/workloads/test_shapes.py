"""What controllers that make pods in stages will make: by their owners, and by the pods that are there."""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import pytest

from labeler.contract import keys
from tests.sweeper.pods import decode, pod_json
from tests.workloads.objects import BY_NAME, GPU, IN_ORDER, JOBSET, LWS, MPI, SET, read, replicated
from webhook.kube.objects import Pod
from webhook.sweeper.observe.gangs import OwnerFacts, PodGang, gather
from webhook.workloads.additions import PodTemplate, is_extended
from webhook.workloads.shape import MOST_PODS, MissingPods, Part, missing_pods


def template(gpus: int = 8, annotations: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    container = {"name": "c", "resources": {"limits": {GPU: str(gpus)} if gpus else {"cpu": "1"}}}
    return {"metadata": {"annotations": annotations or {}}, "spec": {"containers": [container], **spec}}


def described(name: str, spec: dict[str, Any]) -> list[Any]:
    """(name, stage, ranks) of each part."""
    shape = BY_NAME[name].shape(read(name, spec, {}, {}))
    return [(part.name, part.stage, list(part.ranks)) for part in shape]


BEHIND = {"dependsOn": [{"name": "a", "status": "Ready"}]}
COMPLETED = {"dependsOn": [{"name": "a", "status": "Complete"}]}

SHAPES = [
    pytest.param(JOBSET, {"replicatedJobs": [replicated("a", 2, 2)]}, [], id="jobset-all-at-once"),
    pytest.param(
        JOBSET,
        {"replicatedJobs": [replicated("a", 1, 1), replicated("b", 2, 2)], "startupPolicy": IN_ORDER},
        [("a", 0, [(0, 0)]), ("b", 1, [(1, 0), (1, 1), (2, 0), (2, 1)])],
        id="jobset-in-order",
    ),
    pytest.param(
        JOBSET,
        {"replicatedJobs": [replicated("a", 1, 1), replicated("b", 1, 1), replicated("c", 1, 1, **BEHIND)]},
        [("a", 0, [(0, 0)]), ("b", 0, [(1, 0)]), ("c", 1, [(2, 0)])],
        id="jobset-with-one-part-behind-another",
    ),
    pytest.param(
        JOBSET,
        {"replicatedJobs": [replicated("a", 1, 1), replicated("b", 1, 1, **COMPLETED)]},
        [("a", 0, [(0, 0)])],
        id="jobset-with-a-part-that-runs-once-another-has-ended",
    ),
    pytest.param(LWS, {"leaderWorkerTemplate": {"size": 3}}, [], id="lws-whose-pods-come-together"),
    pytest.param(
        LWS,
        {"leaderWorkerTemplate": {"size": 3}, "startupPolicy": "LeaderReady"},
        [("leader", 0, [(0,)]), ("worker", 1, [(1,), (2,)])],
        id="lws-whose-workers-wait",
    ),
    pytest.param(SET, {"replicas": 2, "podManagementPolicy": "Parallel"}, [], id="statefulset-parallel"),
    pytest.param(
        SET,
        {"replicas": 2, "ordinals": {"start": 5}},
        [("x", 5, [(5,)]), ("x", 6, [(6,)])],
        id="statefulset-ordered",
    ),
    pytest.param(
        MPI,
        {
            "mpiReplicaSpecs": {"Launcher": {"replicas": 1}, "Worker": {"replicas": 2}},
            "launcherCreationPolicy": "WaitForWorkersReady",
        },
        [("Launcher", 1, [("launcher", 0)]), ("Worker", 0, [(0,), (1,)])],
        id="mpijob-whose-launcher-waits",
    ),
    pytest.param(
        MPI,
        {
            "mpiReplicaSpecs": {"Launcher": {"replicas": 1}, "Worker": {"replicas": 2}},
            "launcherCreationPolicy": "WaitForWorkersReady",
            "runLauncherAsWorker": True,
        },
        [("Launcher", 1, [(0,)]), ("Worker", 0, [(1,), (2,)])],
        id="mpijob-whose-launcher-waits-and-works",
    ),
]


OVER = {"alpha.jobset.sigs.k8s.io/exclusive-topology": "rack"}
GROUP_OVER = {"leaderworkerset.sigs.k8s.io/exclusive-topology": "block"}
SUBGROUP_OVER = {"leaderworkerset.sigs.k8s.io/subgroup-exclusive-topology": "rack"}


def of_subgroups(size: int, each: int) -> dict[str, Any]:
    return {"leaderWorkerTemplate": {"size": size, "subGroupPolicy": {"subGroupSize": each}}}


LEADER = ("leader", 0, [(0,)])

EXCLUSIVE = [
    pytest.param(
        JOBSET,
        {"replicatedJobs": [replicated("a", 1, 1), replicated("b", 2, 3)]},
        OVER,
        [
            ("a", 0, [(0, 0)]),
            ("a", 0, []),
            ("b", 0, [(1, 0), (2, 0)]),
            ("b", 0, [(1, 1), (1, 2), (2, 1), (2, 2)]),
        ],
        id="jobset-leaders-and-what-follows-them",
    ),
    pytest.param(LWS, of_subgroups(4, 2), SUBGROUP_OVER, [], id="lws-subgroups-come-together"),
    pytest.param(
        LWS,
        of_subgroups(4, 2),
        GROUP_OVER | SUBGROUP_OVER,
        [LEADER, ("worker", 1, [(1,)]), ("worker", 1, [(2,), (3,)])],
        id="lws-the-leader-is-of-the-first-subgroup",
    ),
    pytest.param(
        LWS,
        of_subgroups(5, 2),
        GROUP_OVER,
        [LEADER, ("worker", 1, [(1,), (2,)]), ("worker", 1, [(3,), (4,)])],
        id="lws-the-leader-is-one-more-than-the-subgroups",
    ),
]


@pytest.mark.parametrize(("name", "spec", "annotations", "expected"), EXCLUSIVE)
def test_an_owner_with_domains_of_its_own_gives_whose_leader_comes_first(
    name: str, spec: dict[str, Any], annotations: dict[str, str], expected: list[Any]
) -> None:
    shape = BY_NAME[name].shape(read(name, spec, {}, annotations))
    assert [(part.name, part.stage, list(part.ranks)) for part in shape] == expected
    follows = [part.follows for part in shape]
    assert follows == ([False, True, False, True] if name == JOBSET else [False] * len(shape))
    for part in shape:
        assert annotations.items() <= part.template.metadata.annotations.items()


@pytest.mark.parametrize(("name", "spec", "expected"), SHAPES)
def test_an_owner_gives_the_parts_of_its_gang_and_their_stages(
    name: str, spec: dict[str, Any], expected: list[Any]
) -> None:
    assert described(name, spec) == expected


def member(job: int, index: int, **spec: Any) -> Pod:
    labels = {
        "jobset.sigs.k8s.io/job-global-index": str(job),
        "batch.kubernetes.io/job-completion-index": str(index),
    }
    made = {**template()["spec"], **spec}
    return decode(pod_json(f"p-{job}-{index}", metadata={"labels": labels}, **made))


def part(
    name: str, stage: int, job: int, count: int, body: dict[str, Any] | None = None, ended: int | None = None
) -> Part:
    made = msgspec.convert(body or template(), PodTemplate)
    return Part(name, stage, made, range(count), ((job,),), ended=ended)


SHAPE = (part("leader", 0, 0, 1, ended=1), part("workers", 1, 1, 3, ended=0), part("eval", 2, 2, 1))


@pytest.mark.parametrize(
    ("there", "whole", "later"),
    [
        ([(0, 0)], True, [(1, 0), (1, 1), (1, 2), (2, 0)]),
        ([(0, 0), (1, 0)], False, [(2, 0)]),
        ([(0, 0), (1, 0), (1, 1), (1, 2)], True, [(2, 0)]),
        ([(1, 0), (1, 1), (1, 2)], True, [(2, 0)]),
        ([(1, 2), (2, 0)], True, []),
        ([(2, 0)], False, []),
        ([], False, []),
        ([(7, 7)], False, []),
    ],
    ids=[
        "first",
        "some of the second",
        "two",
        "the first has ended",
        "some of the second have ended",
        "the second is lost",
        "none",
        "unknown",
    ],
)
def test_what_is_waited_for_are_the_later_stages_and_the_rest_of_the_newest(
    there: list[tuple[int, int]], whole: bool, later: list[tuple[int, int]]
) -> None:
    found = missing_pods(SHAPE, [member(*each) for each in there])
    assert (found.is_stage_complete, [rank for rank, _ in found.later]) == (whole, later)


def shape_of(name: str, spec: dict[str, Any], **status: Any) -> Any:
    return BY_NAME[name].shape(read(name, spec, status, {}))


def of_set(index: int) -> Pod:
    owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "x", "uid": "u", "controller": True}
    return decode(pod_json(f"x-{index}", metadata={"ownerReferences": [owner]}, **template()["spec"]))


def of_group(index: int) -> Pod:
    labels = {"leaderworkerset.sigs.k8s.io/worker-index": str(index)}
    return decode(pod_json(f"x-0-{index}", metadata={"labels": labels}, **template()["spec"]))


def of_mpi(role: str, index: int) -> Pod:
    labels = {"training.kubeflow.org/job-role": role, "training.kubeflow.org/replica-index": str(index)}
    return decode(pod_json(f"{role}-{index}", metadata={"labels": labels}, **template()["spec"]))


@pytest.mark.parametrize(
    ("name", "spec", "lost", "there"),
    [
        pytest.param(
            SET,
            {"replicas": 3, "template": template()},
            [of_set(0)],
            [of_set(1), of_set(2)],
            id="StatefulSet",
        ),
        pytest.param(
            LWS,
            {
                "leaderWorkerTemplate": {"size": 3, "workerTemplate": template()},
                "startupPolicy": "LeaderReady",
            },
            [of_group(0)],
            [of_group(1), of_group(2)],
            id="LeaderWorkerSet",
        ),
        pytest.param(
            MPI,
            {
                "mpiReplicaSpecs": {
                    "Launcher": {"template": template()},
                    "Worker": {"replicas": 2, "template": template()},
                },
                "launcherCreationPolicy": "WaitForWorkersReady",
                "runLauncherAsWorker": True,
            },
            [of_mpi("worker", 1)],
            [of_mpi("worker", 2), of_mpi("launcher", 0)],
            id="MPIJob",
        ),
    ],
)
def test_a_gang_whose_earlier_stage_is_missing_is_not_whole(
    name: str, spec: dict[str, Any], lost: list[Pod], there: list[Pod]
) -> None:
    shape = shape_of(name, spec)
    assert missing_pods(shape, [*lost, *there]).is_stage_complete
    assert not missing_pods(shape, there).is_stage_complete


@pytest.mark.parametrize(("succeeded", "whole"), [(0, False), (1, True)])
def test_a_jobset_s_missing_earlier_job_is_waited_for_until_it_is_done(succeeded: int, whole: bool) -> None:
    jobs = [replicated(name, 1, 1) for name in ("a", "b")]
    for each in jobs:
        each["template"]["spec"]["template"] = template()
    status = {"replicatedJobsStatus": [{"name": "a", "succeeded": succeeded}]}
    shape = shape_of(JOBSET, {"replicatedJobs": jobs, "startupPolicy": IN_ORDER}, **status)
    assert missing_pods(shape, [member(1, 0)]).is_stage_complete == whole


@pytest.mark.parametrize(
    ("spec", "there"),
    [
        ({"parallelism": 1, "completions": 3}, [(0, 2), (1, 0)]),
        ({"completionMode": "NonIndexed"}, [(1, 0)]),
    ],
    ids=["its later pods are there", "its pods have no numbers"],
)
def test_a_jobset_s_earlier_job_whose_first_pods_cannot_be_seen_is_not_waited_for(
    spec: dict[str, Any], there: list[tuple[int, int]]
) -> None:
    jobs = [replicated(name, 1, 1) for name in ("a", "b")]
    for each in jobs:
        each["template"]["spec"]["template"] = template()
    jobs[0]["template"]["spec"] |= spec
    shape = shape_of(JOBSET, {"replicatedJobs": jobs, "startupPolicy": IN_ORDER})
    assert missing_pods(shape, [member(*each) for each in there]).is_stage_complete


@pytest.mark.parametrize(
    "body",
    [template(0), template(8, {keys.INJECT_ANNOTATION: "false"})],
    ids=["asks for no extended resource", "is opted out"],
)
def test_a_part_that_is_no_concern_of_ours_is_not_waited_for(body: dict[str, Any]) -> None:
    shape = (part("leader", 0, 0, 1), part("workers", 1, 1, 2, body))
    assert missing_pods(shape, [member(0, 0)]) == MissingPods(is_stage_complete=True)


@pytest.mark.parametrize(
    ("resource", "expected"),
    [(GPU, True), ("cpu", False), ("hugepages-2Mi", False), ("example.kubernetes.io/x", False)],
)
def test_an_extended_resource_has_a_domain_of_its_own(resource: str, expected: bool) -> None:
    assert is_extended(resource) == expected


@pytest.mark.promise("R74")
@pytest.mark.parametrize("works", [False, True])
def test_workers_of_an_mpijob_are_a_stage_as_the_operator_marks_them(works: bool) -> None:
    roles = {"Launcher": {"template": template(8 * works)}, "Worker": {"replicas": 2, "template": template()}}
    late = {"launcherCreationPolicy": "WaitForWorkersReady", "runLauncherAsWorker": works}
    shape = BY_NAME[MPI].shape(read(MPI, {"mpiReplicaSpecs": roles, **late}, {}, {}))
    pods = []
    for index in range(int(works), 2 + int(works)):
        labels = {
            "training.kubeflow.org/job-role": "worker",
            "training.kubeflow.org/replica-index": str(index),
        }
        pods.append(decode(pod_json(f"w{index}", metadata={"labels": labels}, **template()["spec"])))
    assert not missing_pods(shape, pods[:1]).is_stage_complete
    found = missing_pods(shape, pods)
    assert found.is_stage_complete
    assert [rank for rank, _ in found.later] == [(0,)] * works


# --- numbers that are meant to hurt ------------------------------------------------------------------

MANY = 2**31 - 1
LABELS = {
    "jobset.sigs.k8s.io/job-global-index": "0",
    "batch.kubernetes.io/job-completion-index": "0",
}


def jobs(replicas: int, parallelism: int) -> dict[str, Any]:
    made = [replicated("a", 1, 1), replicated("b", replicas, parallelism)]
    return {"replicatedJobs": made, "startupPolicy": IN_ORDER}


GIANTS = [
    (SET, {"replicas": MANY, "template": template()}),
    (SET, {"replicas": MOST_PODS + 1, "ordinals": {"start": MANY}, "template": template()}),
    (LWS, {"leaderWorkerTemplate": {"size": MANY}, "startupPolicy": "LeaderReady"}),
    (JOBSET, jobs(MANY, 1)),
    (JOBSET, jobs(1, MANY)),
    (JOBSET, jobs(MANY, MANY)),
    (
        MPI,
        {
            "mpiReplicaSpecs": {"Launcher": {"replicas": 1}, "Worker": {"replicas": MANY}},
            "launcherCreationPolicy": "WaitForWorkersReady",
        },
    ),
]


@pytest.mark.parametrize(("name", "spec"), GIANTS)
def test_an_owner_of_endless_pods_is_not_spelt_out(name: str, spec: dict[str, Any]) -> None:
    owner = read(name, spec, {}, {})
    shape = BY_NAME[name].shape(owner)
    assert len(shape) <= MOST_PODS
    assert sum(len(part.groups) for part in shape) <= MOST_PODS + 1


@pytest.mark.promise("O98")
@pytest.mark.parametrize(("count", "is_planned"), [(MOST_PODS - 1, True), (MOST_PODS, False), (MANY, False)])
def test_a_gang_of_too_many_pods_is_planned_by_those_that_are_there(count: int, is_planned: bool) -> None:
    shape = (part("leader", 0, 0, 1), part("workers", 1, 1, count))
    found = missing_pods(shape, [member(0, 0)])
    assert len(found.later) == (count if is_planned else 0)
    assert found.is_stage_complete is is_planned


def leaders_of(counts: Mapping[str, int], namespace: Callable[[str], str]) -> list[PodGang]:
    """Gangs of JobSets by name, whose leaders are there and whose workers, so many, are yet to be made."""

    def jobset(count: int) -> OwnerFacts:
        return OwnerFacts(count + 1, True, (part("leader", 0, 0, 1), part("workers", 1, 1, count)))

    pods = []
    for name in counts:
        labels = {**LABELS, "jobset.sigs.k8s.io/jobset-name": name}
        metadata = {"labels": labels, "namespace": namespace(name)}
        pods.append(decode(pod_json(name, **template()["spec"], metadata=metadata)))
    return gather(pods, [], lambda key: jobset(counts[key.name]))


def test_many_gangs_of_one_namespace_leave_the_large_one_of_another_its_plan() -> None:
    counts = {"large": MOST_PODS - 1} | {f"small-{number}": 300 for number in range(100)}
    gangs = leaders_of(counts, lambda name: "good" if name == "large" else "evil")
    planned = {gang.key.name: len(gang.later) for gang in gangs}
    assert planned["large"] == MOST_PODS - 1
    assert sum(planned.values()) <= 20_000


def test_a_pass_plans_a_bounded_number_of_pods_that_are_yet_to_be_made() -> None:
    counts = {"small": 10} | {f"large-{number}": MOST_PODS - 1 for number in range(6)}
    gangs = leaders_of(counts, lambda _: "ns")
    planned = {gang.key.name: len(gang.later) for gang in gangs}
    assert planned["small"] == 10
    assert 3 * (MOST_PODS - 1) <= sum(planned.values()) <= 20_000
    described = [
        gang.key.name for gang in gangs if any("too many are missing" in each for each in gang.problems)
    ]
    assert sorted(described) == sorted(name for name, later in planned.items() if not later)
