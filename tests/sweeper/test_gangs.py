"""Which pods make a gang, in which order, and how large it will be."""

from typing import Any

import pytest

from labeler.contract import keys
from tests.sweeper.pods import decode, job_pod, pod_json
from webhook.kube.objects import Pod
from webhook.sweeper.gangs import GangKey, OwnerSays, PodGang, gather, key_of, rank_of


def no_size(_key: GangKey) -> OwnerSays:
    return OwnerSays()


def gather_all(*pods: Pod) -> list[PodGang]:
    return gather(pods, [], no_size)


def test_pods_listed_in_any_order_make_one_gang_each() -> None:
    gangs = gather_all(job_pod(0, "a"), job_pod(0, "b"), job_pod(1, "a"), job_pod(1, "b"))
    assert [(gang.key.name, len(gang.pods)) for gang in gangs] == [("a", 2), ("b", 2)]


def test_jobs_of_one_name_in_two_namespaces_are_two_gangs() -> None:
    gangs = gather_all(job_pod(0, namespace="x"), job_pod(0, namespace="y"))
    assert [gang.key.namespace for gang in gangs] == ["x", "y"]


def test_a_job_made_again_under_its_name_is_another_gang_with_another_placement() -> None:
    again = {
        keys.JOB_NAME_LABEL: "train",
        "batch.kubernetes.io/controller-uid": "new",
        keys.JOB_INDEX_KEY: "0",
    }
    first, second = gather_all(job_pod(0), job_pod(0, uid="other", labels=again))
    assert first.key.placement_name != second.key.placement_name


def test_the_jobs_of_a_jobset_are_one_gang() -> None:
    pods = []
    for job in ("leader", "workers"):
        labels = {
            keys.JOB_NAME_LABEL: f"set-{job}",
            "batch.kubernetes.io/controller-uid": job,
            "jobset.sigs.k8s.io/jobset-name": "set",
            "jobset.sigs.k8s.io/jobset-uid": "set-uid",
        }
        pods.append(decode(pod_json(f"{job}-0", metadata={"labels": labels})))
    (gang,) = gather_all(*pods)
    assert gang.key == GangKey("ns", "JobSet", "set", "set-uid")


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


def test_the_users_own_gang_annotation_comes_first() -> None:
    pods = [job_pod(0, job, annotations={keys.GANG_ANNOTATION: "both"}) for job in ("a", "b")]
    (gang,) = gather_all(*pods)
    assert gang.key.kind == "Gang"


def test_pods_without_labels_or_owners_are_gangs_of_one() -> None:
    gangs = gather_all(decode(pod_json("a")), decode(pod_json("b")))
    assert [(gang.key.kind, gang.key.name, gang.size) for gang in gangs] == [("Pod", "a", 1), ("Pod", "b", 1)]


def test_pods_of_a_replica_set_do_not_wait_for_one_another() -> None:
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "rs", "controller": True}
    pods = [decode(pod_json(name, metadata={"ownerReferences": [owner]})) for name in "ab"]
    assert [gang.size for gang in gather_all(*pods)] == [1, 1]


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        ({"annotations": {keys.JOB_INDEX_KEY: "3"}}, (3,)),
        ({"labels": {keys.JOB_INDEX_KEY: "3"}}, (3,)),
        ({"labels": {"jobset.sigs.k8s.io/job-global-index": "2", keys.JOB_INDEX_KEY: "3"}}, (2, 3)),
        ({"labels": {"leaderworkerset.sigs.k8s.io/worker-index": "0"}}, (0,)),
        ({"labels": {"training.kubeflow.org/replica-index": "7"}}, (7,)),
        ({"labels": {"apps.kubernetes.io/pod-index": "4"}}, (4,)),
        ({"labels": {keys.JOB_INDEX_KEY: "-1"}}, None),
        ({"labels": {keys.JOB_INDEX_KEY: "many"}}, None),
        ({}, None),
    ],
    ids=str,
)
def test_a_rank_is_read_from_what_the_controller_writes(metadata: dict[str, Any], expected: object) -> None:
    assert rank_of(decode(pod_json(metadata=metadata))) == expected


def test_members_are_in_the_order_of_rank_not_of_name() -> None:
    (gang,) = gather_all(*(job_pod(index) for index in (10, 9, 2)))
    assert [pod.metadata.name for pod in gang.gated] == ["train-2", "train-9", "train-10"]


def test_a_mix_of_ranked_and_unranked_pods_is_said_and_placed_without_ranks() -> None:
    unranked = job_pod(
        1, labels={keys.JOB_NAME_LABEL: "train", "batch.kubernetes.io/controller-uid": "ns-train"}
    )
    (gang,) = gather_all(job_pod(0), unranked)
    assert gang.ranks == {}
    assert gang.problems == ("1 of 2 pods have no rank; placed without ranks",)


def test_two_pods_of_one_rank_are_said_and_placed_without_ranks() -> None:
    (gang,) = gather_all(job_pod(0), job_pod(0, uid="other", name="train-0-again"))
    assert gang.problems == ("two pods have the same rank; placed without ranks",)


@pytest.mark.parametrize("size", ["0", "-2", "3.5", "many", "", "1234567890"])
def test_a_gang_size_that_is_none_is_said_and_not_believed(size: str) -> None:
    pod = job_pod(0, annotations={keys.GANG_SIZE_ANNOTATION: size})
    (gang,) = gather([pod], [], lambda _: OwnerSays(4))
    assert gang.size == 4
    assert "no positive integer" in gang.problems[0]


def test_the_size_annotation_comes_before_the_owner() -> None:
    pod = job_pod(0, annotations={keys.GANG_SIZE_ANNOTATION: "8"})
    assert gather([pod], [], lambda _: OwnerSays(4))[0].size == 8


def test_what_the_controller_says_of_size_and_stages_is_kept() -> None:
    (gang,) = gather([job_pod(0)], [], lambda _: OwnerSays(8, staged=True))
    assert (gang.size, gang.staged) == (8, True)


def test_gangs_come_by_priority_then_by_age() -> None:
    old, new = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"
    pods = []
    for name, created, priority in (("young", new, 0), ("aged", old, 0), ("urgent", new, 100)):
        pods.append(decode(pod_json(name, metadata={"creationTimestamp": created}, priority=priority)))
    assert [gang.key.name for gang in gather_all(*pods)] == ["urgent", "aged", "young"]


def test_members_that_were_let_go_count_and_finished_gangs_are_not_looked_at() -> None:
    (gang,) = gather([job_pod(1)], [job_pod(0), job_pod(0, "done")], no_size)
    assert (len(gang.gated), len(gang.released)) == (1, 1)


def test_a_placement_name_is_a_legal_object_name_whatever_the_gang_is_called() -> None:
    name = key_of(
        decode(pod_json(metadata={"annotations": {keys.GANG_ANNOTATION: "My Gang/№ 1_" + "x" * 300}}))
    ).placement_name
    assert len(name) <= 253
    assert name.replace("-", "").isascii()
    assert name == name.lower().strip("-")


def test_what_a_gang_asks_for_and_is_not_modelled_is_among_its_problems() -> None:
    pod = decode(pod_json(resourceClaims=[{"name": "gpu"}]))
    (gang,) = gather([pod], [], lambda _: OwnerSays())
    assert [problem[:42] for problem in gang.problems] == ["topogate does not model resource claims: i"]
