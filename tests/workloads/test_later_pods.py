"""The pods that controllers still have to create: by their owners' pod sets, and by the existing pods."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec
import pytest
from msgspec import structs

from labeler.contract import keys
from tests.sweeper.pods import decode, pod_json
from tests.workloads.objects import BY_NAME, GPU, IN_ORDER, JOBSET, LWS, MPI, SET, read, replicated
from tests.workloads.owner_cases import CASES
from webhook.kube.objects import Pod
from webhook.sweeper.observe.gangs import OwnerFacts, PodGang, gather
from webhook.workloads.additions import PodTemplate, is_extended
from webhook.workloads.pod_sets import MOST_PODS, MissingPods, PodSet, missing_pods, pod_count


def template(gpus: int = 8, annotations: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    container = {"name": "c", "resources": {"limits": {GPU: str(gpus)} if gpus else {"cpu": "1"}}}
    return {"metadata": {"annotations": annotations or {}}, "spec": {"containers": [container], **spec}}


def member(job: int, index: int, **spec: Any) -> Pod:
    labels = {
        "jobset.sigs.k8s.io/job-global-index": str(job),
        "batch.kubernetes.io/job-completion-index": str(index),
    }
    made = {**template()["spec"], **spec}
    return decode(pod_json(f"p-{job}-{index}", metadata={"labels": labels}, **made))


def pod_set(
    name: str, stage: int, job: int, count: int, body: dict[str, Any] | None = None, ended: int | None = None
) -> PodSet:
    made = msgspec.convert(body or template(), PodTemplate)
    return PodSet(name, made, range(count), groups=range(job, job + 1), stage=stage, ended=ended)


GPUS = msgspec.convert(template(), PodTemplate)
SETS = (
    pod_set("leader", 0, 0, 1, ended=1), pod_set("workers", 1, 1, 3, ended=0), pod_set("eval", 2, 2, 1),
)  # fmt: skip


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
    found = missing_pods(SETS, [member(*each) for each in there])
    assert (found.is_stage_complete, [rank for rank, _ in found.later]) == (whole, later)


def sets_of(name: str, spec: dict[str, Any], **status: Any) -> Any:
    return BY_NAME[name].pods(read(name, spec, status, {})).beside


def existing(each: PodSet, group: int | None, index: int) -> Pod:
    name = f"{each.name}-{group}-{index}"
    return Pod(metadata=each.metadata_of(group, index, namespace="ns", uid=name), spec=GPUS.spec)


def pods_of(sets: Iterable[PodSet]) -> list[Pod]:
    return [
        existing(each, group, index)
        for each in sets
        for group in each.group_numbers
        for index in each.indices
    ]


MAY_HAVE_ENDED = ("job-of-an-exclusive-jobset",)
"""Its first pod may have succeeded before the others."""


@pytest.mark.promise("R74")
@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.is_staged and case.sets])
def test_later_stages_are_planned_and_no_stage_is_complete_without_the_earlier_ones(name: str) -> None:
    owner = CASES[name]
    made = BY_NAME[owner.owner].pods(read(owner.owner, owner.spec, {}, dict(owner.annotations))).beside
    sets = tuple(
        structs.replace(each, template=structs.replace(each.template, spec=GPUS.spec)) for each in made
    )
    stages = [stage for each in sets for stage in each.stages()]
    for now in {(each.stage or 0, each.follows) for each in stages}:
        there = pods_of(each for each in stages if (each.stage or 0, each.follows) <= now)
        after = {rank for each in stages if (each.stage or 0, each.follows) > now for rank in each.ranks}
        found = missing_pods(sets, there)
        assert found.is_stage_complete
        assert {rank for rank, _ in found.later} == after
        lost = pods_of(each for each in stages if (each.stage or 0) < now[0])[:1]
        left = [pod for pod in there if pod not in lost]
        assert missing_pods(sets, left).is_stage_complete is (not lost or name in MAY_HAVE_ENDED)


@pytest.mark.parametrize(("succeeded", "whole"), [(0, False), (1, True)])
def test_a_jobset_s_missing_earlier_job_is_waited_for_until_it_is_done(succeeded: int, whole: bool) -> None:
    jobs = [replicated(name, 1, 1) for name in ("a", "b")]
    for each in jobs:
        each["template"]["spec"]["template"] = template()
    status = {"replicatedJobsStatus": [{"name": "a", "succeeded": succeeded}]}
    sets = sets_of(JOBSET, {"replicatedJobs": jobs, "startupPolicy": IN_ORDER}, **status)
    assert missing_pods(sets, [member(1, 0)]).is_stage_complete == whole


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
    sets = sets_of(JOBSET, {"replicatedJobs": jobs, "startupPolicy": IN_ORDER})
    assert missing_pods(sets, [member(*each) for each in there]).is_stage_complete


@pytest.mark.parametrize(
    "body",
    [template(0), template(8, {keys.INJECT_ANNOTATION: "false"})],
    ids=["asks for no extended resource", "is opted out"],
)
def test_a_part_that_is_no_concern_of_ours_is_not_waited_for(body: dict[str, Any]) -> None:
    sets = (pod_set("leader", 0, 0, 1), pod_set("workers", 1, 1, 2, body))
    assert missing_pods(sets, [member(0, 0)]) == MissingPods(is_stage_complete=True)


@pytest.mark.parametrize(
    ("resource", "expected"),
    [(GPU, True), ("cpu", False), ("hugepages-2Mi", False), ("example.kubernetes.io/x", False)],
)
def test_an_extended_resource_has_a_domain_of_its_own(resource: str, expected: bool) -> None:
    assert is_extended(resource) == expected


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
    sets = sets_of(name, spec)
    assert len(sets) <= 2
    assert pod_count(sets) > MOST_PODS
    firsts = [existing(each, each.group_numbers[0], each.indices.start) for each in sets]
    assert missing_pods(sets, firsts) == MissingPods()


@pytest.mark.promise("O98")
@pytest.mark.parametrize(("count", "is_planned"), [(MOST_PODS - 1, True), (MOST_PODS, False), (MANY, False)])
def test_a_gang_of_too_many_pods_is_planned_by_those_that_are_there(count: int, is_planned: bool) -> None:
    sets = (pod_set("leader", 0, 0, 1), pod_set("workers", 1, 1, count))
    found = missing_pods(sets, [member(0, 0)])
    assert len(found.later) == (count if is_planned else 0)
    assert found.is_stage_complete is is_planned


def leaders_of(counts: Mapping[str, int], namespace: Callable[[str], str]) -> list[PodGang]:
    """Gangs of JobSets by name, whose leaders are there and whose workers, so many, are yet to be made."""

    def jobset(count: int) -> OwnerFacts:
        return OwnerFacts(count + 1, True, (pod_set("leader", 0, 0, 1), pod_set("workers", 1, 1, count)))

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
