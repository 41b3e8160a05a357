"""Pods whose controller may just have been deleted or has left them behind, or whose namespace is leaving."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from labeler.contract import keys
from tests.sweeper.clock import Clock
from tests.sweeper.cluster import Nodes, Placing, gpu_pod
from tests.sweeper.evictions import Slow
from tests.sweeper.owners import PATH, AnsweringApi, found, owner, pod_of, reference
from tests.sweeper.pods import job_pod
from webhook.configuration.settings import Settings
from webhook.kube.client import Api
from webhook.kube.objects import Metadata, Pod
from webhook.sweeper.apply.applier import Applier
from webhook.sweeper.apply.evictions import Evictor
from webhook.sweeper.context import Pass, Retries
from webhook.sweeper.decide.orders import Cause, Eviction, Orders
from webhook.sweeper.decide.retries import RetryTable
from webhook.sweeper.observe.lost_owners import OwnerState, lost_owner
from webhook.sweeper.observe.membership import LostOwner, key_of
from webhook.sweeper.observe.owner_existence import OwnerExistence
from webhook.sweeper.observe.view import View

LIVE = found("big")
DELETING: dict[str, Any] = {"deletionTimestamp": "2026-01-01T00:00:00Z"}


def waiting(number: int = 0, **metadata: Any) -> Pod:
    return gpu_pod(f"big-{number}", metadata={"ownerReferences": [owner("Job", "big")], **metadata})


def seeing(api: AnsweringApi, live: Metadata | None = LIVE) -> OwnerExistence:
    """Beside a live copy that shows the Job."""
    return OwnerExistence(cast(Api, api), lambda *_: live, lambda: None, Clock())


# --- a waiting pod is deleted -------------------------------------------------------------------------


@pytest.mark.parametrize("after", [None, waiting(**DELETING)], ids=["gone", "ending"])
@pytest.mark.parametrize(("answer", "expected"), [(404, OwnerState.ABSENT), ({"uid": "uid-big"}, LIVE.uid)])
def test_when_a_waiting_pod_is_deleted_its_controller_is_asked_for_whatever_the_live_copy_shows(
    after: Pod | None, answer: Any, expected: object
) -> None:
    """It may be the first pod of a deleted controller, while the watch of controllers is late."""
    made = seeing(AnsweringApi({PATH: answer}))
    assert made.find("ns", reference()) is LIVE
    made.on_pod(waiting(), after)
    assert made.find("ns", reference()) is OwnerState.UNCONFIRMED
    made.answer_all()
    answered = made.find("ns", reference())
    assert (answered.uid if isinstance(answered, Metadata) else answered) == expected


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (None, waiting()),
        (waiting(), waiting()),
        (waiting(**DELETING), None),
        (gpu_pod("big-0", node="n0", metadata={"ownerReferences": [owner("Job", "big")]}), None),
    ],
    ids=["created", "changed", "doubted before", "running"],
)
def test_other_changes_of_pods_raise_no_doubt(before: Pod | None, after: Pod | None) -> None:
    made = seeing(AnsweringApi({}))
    made.on_pod(before, after)
    assert made.find("ns", reference()) is LIVE


def test_an_answer_to_a_question_from_before_a_deletion_does_not_count() -> None:
    made: OwnerExistence

    class Deleting(AnsweringApi):
        """A second pod is deleted while the API server answers."""

        def request(self, _: str, path: str, **more: Any) -> bytes:
            if path == PATH and self.asked.count(PATH) == 0:
                made.on_pod(waiting(1), None)
            elif path == PATH:
                self.answers[PATH] = 404
            return super().request(_, path, **more)

    api = Deleting({PATH: {"uid": "uid-big"}})
    made = seeing(api)
    made.on_pod(waiting(), None)
    made.answer_all()
    assert api.asked.count(PATH) == 2
    assert made.find("ns", reference()) is OwnerState.ABSENT


def test_a_doubt_stays_until_the_api_server_answers_but_not_for_ever() -> None:
    made = seeing(AnsweringApi({PATH: 500}))
    made.on_pod(waiting(), None)
    for _ in range(3):
        made.answer_all()
        assert made.find("ns", reference()) is OwnerState.UNCONFIRMED
    made.answer_all()
    assert made.find("ns", reference()) is LIVE


# --- a controller leaves its pods behind --------------------------------------------------------------

JOB = {"batch.kubernetes.io/job-name": "big", "batch.kubernetes.io/controller-uid": "uid-big"}
JOBSET = {**JOB, "jobset.sigs.k8s.io/jobset-name": "set"}
SIZE = {keys.GANG_SIZE_ANNOTATION: "2"}
KUBEFLOW = {
    "training.kubeflow.org/job-name": "t",
    "training.kubeflow.org/operator-name": "pytorchjob-controller",
}
LEFT: list[tuple[dict[str, str], dict[str, str], list[str], str]] = [
    # labels, annotations, controllers from below, the controller that is missing
    (JOB, {}, ["Job/big"], ""),
    (JOB, {}, [], "Job/big"),
    (JOB, SIZE, [], ""),
    ({"batch.kubernetes.io/job-name": "big"}, {}, [], ""),
    (JOBSET, {}, ["Job/big", "JobSet/set"], ""),
    (JOBSET, {}, ["Job/big"], ""),
    (JOBSET, {}, [], "Job/big"),
    (JOBSET, SIZE, ["Job/big"], ""),
    ({"statefulset.kubernetes.io/pod-name": "web-1"}, {}, [], "StatefulSet/web"),
    ({"statefulset.kubernetes.io/pod-name": "web-1"}, {}, ["StatefulSet/web"], ""),
    ({"ray.io/cluster": "r"}, {}, [], ""),
    ({"ray.io/cluster": "r", "ray.io/is-ray-node": "yes"}, {}, [], "RayCluster/r"),
    ({"ray.io/cluster": "r", "ray.io/is-ray-node": "yes"}, {}, ["RayCluster/r"], ""),
    ({"training.kubeflow.org/job-name": "t"}, {}, [], ""),
    (KUBEFLOW, {}, [], "TrainingJob/t"),
    (KUBEFLOW, {}, ["PyTorchJob/t"], ""),
    (KUBEFLOW, SIZE, [], ""),
    ({"jobset.sigs.k8s.io/jobset-name": "set"}, {}, [], ""),
    ({"leaderworkerset.sigs.k8s.io/name": "l"}, {"leaderworkerset.sigs.k8s.io/size": "2"}, [], ""),
    ({"kueue.x-k8s.io/pod-group-name": "g"}, {}, [], ""),
    ({}, {}, [], ""),
]


@pytest.mark.promise("R333")
@pytest.mark.parametrize(("labels", "annotations", "controllers", "missing"), LEFT)
def test_pods_that_a_controller_has_left_behind_wait_unless_they_state_how_many_they_are(
    labels: dict[str, str], annotations: dict[str, str], controllers: list[str], missing: str
) -> None:
    """They lose their owner reference one by one: those that have lost it would be a smaller gang."""
    references = [owner(*each.split("/")) for each in controllers]
    metadata = {"labels": labels, "annotations": annotations, "ownerReferences": references[:1]}
    above = {
        each["name"]: found(each["name"], "", False, *references[number + 1 : number + 2])
        for number, each in enumerate(references)
    }
    lost = lost_owner(gpu_pod("p", metadata=metadata), lambda _, of: above[of.name])
    which = f"{keys.GANG_ANNOTATION} on them names their gang and " if "StatefulSet" in missing else ""
    assert (lost.sentence if lost is not None else "") == (
        f"its controller {missing} is deleted and has left its pods behind, so they are neither placed nor "
        f"released unless {which}{keys.GANG_SIZE_ANNOTATION} on them states how many belong together"
        if missing
        else ""
    )


@pytest.mark.promise("R333")
@pytest.mark.parametrize(
    "labels",
    [JOB, JOBSET, {"statefulset.kubernetes.io/pod-name": "web-1"}, KUBEFLOW],
    ids=["Job", "JobSet", "StatefulSet", "operator"],
)
def test_pods_left_behind_are_one_gang_once_they_have_the_annotations_that_their_reason_names(
    labels: dict[str, str],
) -> None:
    lost = lost_owner(gpu_pod("p", metadata={"labels": labels}), lambda *_: LIVE)
    assert lost is not None
    named = {keys.GANG_ANNOTATION: "g", **SIZE}
    stated = {key: value for key, value in named.items() if f"{key} on them" in lost.sentence}
    pods = [gpu_pod(f"p-{n}", metadata={"labels": labels, "annotations": stated}) for n in range(2)]
    assert [lost_owner(pod, lambda *_: LIVE) for pod in pods] == [None, None]
    (gang,) = Placing(Nodes(2, *pods), Settings()).gangs()
    assert (len(gang.pods), gang.size) == (2, 2)


def test_what_may_not_be_read_has_left_nobody_behind() -> None:
    pod = gpu_pod("p", metadata={"labels": JOBSET, "ownerReferences": [owner("Job", "big")]})
    assert lost_owner(pod, lambda *_: OwnerState.UNREADABLE) is None


@pytest.mark.promise("R331")
def test_pods_of_a_namespace_that_is_being_deleted_are_lost_whatever_their_controllers_are() -> None:
    made = OwnerExistence(
        cast(Api, AnsweringApi({})), lambda *_: LIVE, lambda: None, Clock(), is_leaving="ns".__eq__
    )
    lost = made.lookup()
    for pod in (waiting(), gpu_pod("alone")):
        assert lost(pod) == LostOwner(
            "its namespace is being deleted, so its pods are neither placed nor released"
        )
    assert lost(gpu_pod("other", metadata={"namespace": "other"})) is None


# --- between a decision and what is carried out -------------------------------------------------------


def lost_if(name: str) -> Callable[[], Callable[[Pod], LostOwner | None]]:
    lost = LostOwner("its controller is deleted")
    return lambda: lambda pod: lost if pod.metadata.name.startswith(name) else None


@pytest.mark.promise("R331")
def test_nobody_is_evicted_for_pods_that_have_lost_their_controller_since_that_was_decided() -> None:
    """Neither a part of a gang: all of it stays, and pods are still evicted for others."""
    api = Slow(Clock())
    surroundings = Pass(api, cast(Any, None), Settings(), clock=api.clock)
    gone, there = (waiting(),), (pod_of("Job", "other"),)
    pods = [job_pod(number, job) for job in ("a", "b") for number in range(2)]
    orders = [
        Eviction(pod, "preempted", "", True, True, gone if pod.metadata.name.startswith("a") else there)
        for pod in pods
    ]
    evictor = Evictor(Retries(surroundings, RetryTable()), lost_if("big"))
    evictor.evict_all(orders, View([], pods, {}, {}))
    assert api.evicted == ["b-0", "b-1"]


def test_no_plan_is_written_for_pods_that_have_lost_their_controller_since_it_was_made() -> None:
    clock, pod = Clock(), waiting()
    api = Slow(clock)
    surroundings = Pass(api, cast(Any, None), Settings(), clock=clock)
    applier = Applier(surroundings, cast(Any, SimpleNamespace(owners=lost_if("big"))))
    gang = SimpleNamespace(key=key_of(pod))
    order: Any = SimpleNamespace(gang=gang, pods={pod.metadata.uid: pod})
    retries = Retries(surroundings, RetryTable())
    done = applier.apply(Orders(plans=(order,)), View([pod], [], {}, {}), retries)
    applier.close()
    assert [(each.cause, each.reason, each.is_news) for each in done.outcomes] == [
        (Cause.OWNER_DELETED, "its controller is deleted", False)
    ]
    assert (done.placed, api.sent) == ((), [])
