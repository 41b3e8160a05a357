"""Which pods make a gang, in which order, and how large it will be."""

from typing import Any

import pytest

from labeler.contract import keys
from tests.sweeper.pods import decode, gather_all, job_pod, no_size, pod_json
from webhook.sweeper.decide.gang_question import question
from webhook.sweeper.observe.gangs import GangKey, OwnerFacts, gather, key_of
from webhook.workloads import marks
from webhook.workloads.ranks import rank_of


def test_a_job_recreated_under_its_name_is_another_gang_with_another_placement() -> None:
    again = {
        marks.JOB_NAME_LABEL: "train",
        "batch.kubernetes.io/controller-uid": "new",
        marks.JOB_INDEX_KEY: "0",
    }
    first, second = gather_all(job_pod(0), job_pod(0, uid="other", labels=again))
    assert first.key.placement_name != second.key.placement_name


@pytest.mark.promise("R230")
def test_the_groups_of_a_leader_worker_set_are_gangs_of_their_own() -> None:
    pods = [
        decode(
            pod_json(
                f"lws-{group}-{index}",
                metadata={
                    "labels": {
                        "leaderworkerset.sigs.k8s.io/name": "lws",
                        "leaderworkerset.sigs.k8s.io/group-key": f"key{group}",
                        "leaderworkerset.sigs.k8s.io/worker-index": str(index),
                    },
                    "annotations": {"leaderworkerset.sigs.k8s.io/size": "2"},
                },
            )
        )
        for group in (0, 1)
        for index in (0, 1)
    ]
    assert [(gang.key.id, gang.size, len(gang.pods)) for gang in gather_all(*pods)] == [
        ("key0", 2, 2),
        ("key1", 2, 2),
    ]


@pytest.mark.promise("R42")
def test_the_users_own_gang_annotation_comes_first() -> None:
    pods = [job_pod(0, job, annotations={keys.GANG_ANNOTATION: "both"}) for job in ("a", "b")]
    (gang,) = gather_all(*pods)
    assert gang.key.kind == "Gang"


TASK = "volcano.sh/task-spec"


def kubeflow(role: str, index: int | None = None) -> dict[str, str]:
    labels = {"training.kubeflow.org/job-name": "t", "training.kubeflow.org/replica-type": role}
    return labels if index is None else {**labels, "training.kubeflow.org/replica-index": str(index)}


def volcano(task: str, index: int) -> dict[str, str]:
    return {"scheduling.volcano.sh/group-name": "t", TASK: task, "volcano.sh/task-index": str(index)}


def ray(kind: str, group: str, replica: int | None = None, host: int | None = None) -> dict[str, str]:
    labels = {"ray.io/cluster": "r", "ray.io/node-type": kind, "ray.io/group": group}
    if replica is None or host is None:
        return labels
    return {
        **labels,
        "ray.io/worker-group-replica-index": str(replica),
        "ray.io/replica-host-index": str(host),
    }


def mpi(role: str, index: int | None = None) -> dict[str, str]:
    """As mpi-operator labels pods: no replica-type."""
    labels = {"training.kubeflow.org/job-name": "t", "training.kubeflow.org/job-role": role}
    return labels if index is None else {**labels, "training.kubeflow.org/replica-index": str(index)}


def ranks_of(gated: list[dict[str, str]], released: list[dict[str, str]]) -> tuple[list[int | None], Any]:
    """The ranks of pods with these labels, in their order, and the gang's problems."""
    pods = [decode(pod_json(f"p{index}", metadata={"labels": each})) for index, each in enumerate(gated)]
    free = [decode(pod_json(f"r{index}", metadata={"labels": each})) for index, each in enumerate(released)]
    (gang,) = gather(pods, free, no_size)
    return [gang.ranks.get(pod.metadata.uid) for pod in (*pods, *free)], gang.problems


@pytest.mark.parametrize(
    ("gated", "released", "expected"),
    [
        ([kubeflow("worker", 1), kubeflow("worker", 0), kubeflow("master", 0)], [], [2, 1, 0]),
        (
            [kubeflow("Worker", 0), kubeflow("PS", 1), kubeflow("PS", 0), kubeflow("Chief", 0)],
            [],
            [3, 2, 1, 0],
        ),
        ([kubeflow("worker", 0), kubeflow("evaluator", 0), kubeflow("alien", 0)], [], [1, 0, 2]),
        ([kubeflow("b", 0), kubeflow("a", 0), kubeflow("a", 1)], [], [2, 0, 1]),
        ([kubeflow("worker", 3), kubeflow("worker", 5)], [], [3, 5]),
        ([kubeflow("worker", 3)], [kubeflow("master", 0)], [4, 0]),
        ([kubeflow("worker", 1), kubeflow("worker", 0)], [kubeflow("launcher")], [2, 1, 0]),
        ([mpi("worker", 1), mpi("worker", 0)], [mpi("launcher")], [2, 1, 0]),
        ([mpi("worker", 2), mpi("worker", 1), mpi("launcher", 0)], [], [2, 1, 0]),
        ([mpi("worker", 1), mpi("worker", 0)], [{"training.kubeflow.org/job-name": "t"}], [1, 0, None]),
        ([volcano("worker", 0), volcano("worker", 1), volcano("ps", 0)], [], [1, 2, 0]),
        (
            [ray("worker", "g", 1, 0), ray("worker", "g", 0, 1), ray("worker", "g", 0, 0)],
            [ray("head", "h")],
            [3, 2, 1, 0],
        ),
        ([ray("worker", "h", 0, 0), ray("worker", "g", 0, 0)], [], [1, 0]),
        ([ray("worker", "g"), ray("worker", "g")], [ray("head", "h")], [None, None, None]),
    ],
    ids=[
        "PyTorchJob",
        "TFJob, capital letters",
        "a role that nobody knows",
        "only such roles",
        "one role, some pods finished",
        "two roles, some pods finished",
        "a launcher without index",
        "mpi-operator",
        "mpi-operator, the launcher works as well",
        "a stranger without index",
        "Volcano",
        "Ray, several hosts a replica",
        "Ray, two groups",
        "Ray without indices",
    ],
)
def test_ranks_follow_the_roles_and_then_the_numbers_within_each(
    gated: list[dict[str, str]], released: list[dict[str, str]], expected: list[int | None]
) -> None:
    assert ranks_of(gated, released) == (expected, ())


def test_two_leaders_without_a_number_have_the_same_rank() -> None:
    found, problems = ranks_of([kubeflow("worker", 0), kubeflow("master"), kubeflow("master")], [])
    assert found == [None] * 3
    assert problems == ("two pods have the same rank; placed without ranks",)


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        ({"annotations": {marks.JOB_INDEX_KEY: "3"}}, (3,)),
        ({"labels": {"jobset.sigs.k8s.io/job-global-index": "2", marks.JOB_INDEX_KEY: "3"}}, (2, 3)),
        ({"labels": {"leaderworkerset.sigs.k8s.io/worker-index": "0"}}, (0,)),
        ({"labels": {"training.kubeflow.org/replica-index": "7"}}, (7,)),
        ({"labels": kubeflow("Worker", 7)}, ("worker", 7)),
        ({"labels": {"volcano.sh/task-index": "2"}, "annotations": {TASK: "mpi"}}, ("mpi", 2)),
        ({"labels": ray("worker", "g", 1, 0)}, ("worker", "g", 1, 0)),
        ({"labels": {"apps.kubernetes.io/pod-index": "4"}}, (4,)),
        ({"labels": {marks.JOB_INDEX_KEY: "-1"}}, None),
        ({"labels": {marks.JOB_INDEX_KEY: "many"}}, None),
        ({}, None),
    ],
    ids=str,
)
def test_a_rank_is_read_from_what_the_controller_writes(metadata: dict[str, Any], expected: object) -> None:
    assert rank_of(decode(pod_json(metadata=metadata))) == expected


def test_members_are_in_the_order_of_rank_not_of_name() -> None:
    (gang,) = gather_all(*(job_pod(index) for index in (10, 9, 2)))
    assert [pod.metadata.name for pod in gang.gated] == ["train-2", "train-9", "train-10"]


def test_two_pods_of_one_rank_are_reported_and_placed_without_ranks() -> None:
    (gang,) = gather_all(job_pod(0), job_pod(0, uid="other", name="train-0-again"))
    assert gang.problems == ("two pods have the same rank; placed without ranks",)


@pytest.mark.promise("S4")
@pytest.mark.parametrize("size", ["0", "-2", "3.5", "many", "", "1234567890"])
def test_a_gang_size_that_is_none_is_reported_and_not_believed(size: str) -> None:
    pod = job_pod(0, annotations={keys.GANG_SIZE_ANNOTATION: size})
    (gang,) = gather([pod], [], lambda _: OwnerFacts(4))
    assert gang.size == 4
    assert "not a positive integer" in gang.problems[0]


def test_a_gang_waits_while_what_states_its_size_does_not_exist_unless_its_pods_state_it() -> None:
    missing = OwnerFacts(missing="its PodGroup does not exist")
    grouped = {"scheduling.x-k8s.io/pod-group": "g"}
    stated = {keys.GANG_SIZE_ANNOTATION: "2"}
    faults = [
        gather([job_pod(0, labels=grouped, annotations=annotations)], [], lambda _: missing)[0].fault
        for annotations in ({}, stated)
    ]
    assert faults == [missing.missing, ""]


def test_the_size_and_stages_of_the_controller_are_taken() -> None:
    (gang,) = gather([job_pod(0)], [], lambda _: OwnerFacts(8, staged=True))
    assert (gang.size, gang.staged) == (8, True)


def test_members_that_were_released_count_and_finished_gangs_are_not_looked_at() -> None:
    (gang,) = gather([job_pod(1)], [job_pod(0), job_pod(0, "done")], no_size)
    assert (len(gang.gated), len(gang.released)) == (1, 1)


def test_a_placement_name_is_a_legal_object_name_whatever_the_gang_is_called() -> None:
    name = key_of(
        decode(pod_json(metadata={"annotations": {keys.GANG_ANNOTATION: "My Gang/№ 1_" + "x" * 300}}))
    ).placement_name
    assert len(name) <= 253
    assert name.replace("-", "").isascii()
    assert name == name.lower().strip("-")


@pytest.mark.promise("R3")
def test_pods_listed_in_any_order_make_one_gang_each() -> None:
    gangs = gather_all(job_pod(0, "a"), job_pod(0, "b"), job_pod(1, "a"), job_pod(1, "b"))
    assert [(gang.key.name, len(gang.pods)) for gang in gangs] == [("a", 2), ("b", 2)]


def test_jobs_of_one_name_in_two_namespaces_are_two_gangs() -> None:
    gangs = gather_all(job_pod(0, namespace="x"), job_pod(0, namespace="y"))
    assert [gang.key.namespace for gang in gangs] == ["x", "y"]


@pytest.mark.promise("R230")
def test_the_jobs_of_a_jobset_are_one_gang() -> None:
    pods = []
    for job in ("leader", "workers"):
        labels = {
            marks.JOB_NAME_LABEL: f"set-{job}",
            "batch.kubernetes.io/controller-uid": job,
            "jobset.sigs.k8s.io/jobset-name": "set",
            "jobset.sigs.k8s.io/jobset-uid": "set-uid",
        }
        pods.append(decode(pod_json(f"{job}-0", metadata={"labels": labels})))
    (gang,) = gather_all(*pods)
    assert gang.key == GangKey("ns", "JobSet", "set", "set-uid")


@pytest.mark.promise("R42")
@pytest.mark.parametrize("annotation", marks.GANG_SIZE_KEYS)
def test_the_number_of_pods_that_is_given_counts_before_that_of_the_owner(annotation: str) -> None:
    (gang,) = gather([job_pod(0, annotations={annotation: "8"})], [], lambda _: OwnerFacts(4))
    assert gang.size == 8


def test_pods_that_come_late_are_placed_in_relation_to_their_siblings() -> None:
    (gang,) = gather([job_pod(1)], [job_pod(0)], no_size)
    asked = question(
        gang, gang.gated, {"ns-train-0": "n1"}, is_ours=lambda pod: pod.metadata.uid == "ns-train-0"
    ).gang
    assert [(anchor.node, anchor.rank) for anchor in asked.anchors] == [("n1", 0)]


def test_a_mix_of_ranked_and_unranked_pods_is_reported_and_placed_without_ranks() -> None:
    unranked = job_pod(
        1, labels={marks.JOB_NAME_LABEL: "train", "batch.kubernetes.io/controller-uid": "ns-train"}
    )
    (gang,) = gather_all(job_pod(0), unranked)
    assert gang.ranks == {}
    assert gang.problems == ("1 of 2 pods have no rank; placed without ranks",)


@pytest.mark.promise("R1")
def test_pods_that_nothing_joins_are_gangs_of_one() -> None:
    gangs = gather_all(decode(pod_json("a")), decode(pod_json("b")))
    assert [(gang.key.kind, gang.key.name, gang.size) for gang in gangs] == [("Pod", "a", 1), ("Pod", "b", 1)]


@pytest.mark.promise("R178")
def test_gangs_come_by_priority_then_by_age() -> None:
    old, new = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"
    pods = []
    for name, created, priority in (("young", new, 0), ("aged", old, 0), ("urgent", new, 100)):
        pods.append(decode(pod_json(name, metadata={"creationTimestamp": created}, priority=priority)))
    assert [gang.key.name for gang in gather_all(*pods)] == ["urgent", "aged", "young"]


def test_a_pod_that_is_being_deleted_is_no_member_of_its_gang() -> None:
    leaving = {"deletionTimestamp": "2026-01-01T00:00:00Z", "uid": "leaving"}
    (gang,) = gather([job_pod(0), job_pod(1, **leaving)], [job_pod(2, **leaving)], no_size)
    assert [pod.metadata.name for pod in gang.pods] == ["train-0"]
