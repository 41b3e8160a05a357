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


def test_a_job_made_again_under_its_name_is_another_gang_with_another_placement() -> None:
    again = {
        keys.JOB_NAME_LABEL: "train",
        "batch.kubernetes.io/controller-uid": "new",
        keys.JOB_INDEX_KEY: "0",
    }
    first, second = gather_all(job_pod(0), job_pod(0, uid="other", labels=again))
    assert first.key.placement_name != second.key.placement_name


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
