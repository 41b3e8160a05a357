"""Which gated pods are one gang, how many pods it waits for, and which gang comes first."""

import pytest

from tests.sweeper.pods import decode, gather_all, job_pod, no_size, pod_json
from webhook.sweeper.decide.gang_question import question
from webhook.sweeper.observe.gangs import GangKey, OwnerFacts, gather, key_of
from webhook.workloads import marks


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
def test_a_gang_waits_for_the_number_of_pods_that_is_given_not_for_those_seen(annotation: str) -> None:
    (gang,) = gather_all(job_pod(0, annotations={annotation: "8"}))
    assert gang.size == 8


def test_a_gangs_controller_gives_its_size() -> None:
    (gang,) = gather([job_pod(0)], [], lambda _: OwnerFacts(8))
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


def test_a_gated_pod_without_labels_or_annotations_is_read_as_any_other() -> None:
    bare = pod_json("bare")
    assert not bare["metadata"].keys() & {"labels", "annotations", "ownerReferences"}
    assert key_of(decode(bare)).kind == "Pod"


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
