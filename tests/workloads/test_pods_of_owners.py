"""An owner of each kind creates its pods, as the table of owner_cases has them."""

from typing import Any

import pytest
from msgspec.structs import replace

from tests.workloads.objects import BY_NAME, JOBSET, read, replicated
from tests.workloads.owner_cases import CASES, Case
from webhook.kube.objects import Pod
from webhook.workloads.builtin import Job
from webhook.workloads.kinds import WORKLOADS
from webhook.workloads.ranks import own_rank
from webhook.workloads.sets import completed_beside


@pytest.mark.promise("R230")
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_an_owner_creates_the_pods_of_its_gang_in_its_stages(case: Case) -> None:
    pods = BY_NAME[case.owner].pods(read(case.owner, case.spec, dict(case.status), dict(case.annotations)))
    assert (pods.size, pods.minimum, pods.is_staged) == (case.size, case.minimum, case.is_staged)
    if case.sets is not None:
        stages = [stage for each in pods.sets for stage in each.stages()]
        assert [(each.name, each.stage, list(each.ranks)) for each in stages] == case.sets


@pytest.mark.parametrize("case", [each for each in CASES.values() if each.sets], ids=lambda each: each.owner)
def test_the_labels_of_a_pod_have_the_rank_that_its_set_has(case: Case) -> None:
    for each in BY_NAME[case.owner].pods(read(case.owner, case.spec, {}, dict(case.annotations))).sets:
        numbers = [(group, index) for group in each.group_numbers for index in each.indices]
        pods = [Pod(metadata=each.metadata_of(*number)) for number in numbers if each.index_key]
        assert [own_rank(pod) for pod in pods] == list(each.ranks)[: len(pods)]


@pytest.mark.parametrize("name", ["jobset-exclusive", "lws-whose-leader-is-of-the-first-subgroup"])
def test_an_owner_with_domains_of_its_own_writes_that_on_its_pods(name: str) -> None:
    case = CASES[name]
    sets = BY_NAME[case.owner].pods(read(case.owner, case.spec, {}, dict(case.annotations))).sets
    assert all(each.annotations == case.annotations for each in sets)
    follows = [bool(at % 2) for at in range(len(sets))] if case.owner == JOBSET else [False] * len(sets)
    assert [each.follows for each in sets] == follows


def test_each_kind_of_owner_is_listed_once_and_has_a_case() -> None:
    assert len(BY_NAME) == len(WORKLOADS)
    assert {each.owner for each in CASES.values()} == {
        name for name in BY_NAME if not name.startswith("composite")
    }


def job(name: str, status: dict[str, Any], **metadata: Any) -> Any:
    """A Job of four pods of a JobSet."""
    spec = {"parallelism": 4, "completions": 4, "completionMode": "Indexed"}
    found = read("jobs.batch", spec, status, {})
    labels = {"jobset.sigs.k8s.io/replicatedjob-name": name}
    return replace(found, metadata=replace(found.metadata, labels=labels, **metadata))


def ends(kind: str) -> dict[str, Any]:
    return {"conditions": [{"type": kind, "status": "True"}]}


@pytest.mark.parametrize(
    ("jobs", "ended", "size"),
    [
        ([], 0, 12),
        ([], 1, 8),
        ([job("a", {}), job("a", {})], 0, 12),
        ([job("a", {"succeeded": 2}), job("a", {"succeeded": 1}), job("b", {"succeeded": 3})], 0, 6),
        ([job("a", {"succeeded": 4, **ends("Complete")}), job("a", {"succeeded": 2})], 1, 6),
        ([job("a", {"succeeded": 4, **ends("Complete")}), job("a", {"succeeded": 2})], 0, 6),
        ([job("a", {"succeeded": 3}), job("a", {})], 1, 8),
        ([job("a", {"succeeded": 3, "failed": 1, **ends("Failed")}), job("a", {"succeeded": 1})], 0, 11),
        ([job("a", {"succeeded": 3}, deletion_timestamp="2026-01-01T00:00:00Z")], 0, 12),
        ([job("another", {"succeeded": 3})], 0, 12),
    ],
    ids=[
        "no Jobs known",
        "no Jobs known, one has ended",
        "none has completed",
        "some of each Job",
        "a Job that has ended, and one that runs",
        "a Job whose end the JobSet does not count yet",
        "a Job whose end the JobSet counts, and its copy not yet",
        "a Job that has failed, which is recreated whole",
        "a Job that is deleted, as at a restart",
        "a Job of no template",
    ],
)
def test_a_jobset_needs_no_more_pods_for_those_that_have_completed(
    jobs: list[Job], ended: int, size: int
) -> None:
    status = {"replicatedJobsStatus": [{"name": "a", "succeeded": ended}]}
    owner = read(JOBSET, {"replicatedJobs": [replicated("a", 2, 4), replicated("b", 1, 4)]}, status, {})
    assert (BY_NAME[JOBSET].pods(owner).size or 0) - completed_beside(owner, jobs) == size
