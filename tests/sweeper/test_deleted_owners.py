"""Pods whose controller is gone are no gang: they are neither placed nor released, and evict nobody."""

import json
from collections.abc import Mapping
from typing import Any, cast

import msgspec
import pytest

from hack.local.cluster import Cluster
from tests.support import wait_for_pods
from tests.sweeper.at_work import Pods, create_job, is_gated, named, run_all, sweep, template
from tests.sweeper.clock import Clock
from tests.sweeper.cluster import Nodes, Placing, gpu_pod, places
from webhook.kube import placements
from webhook.kube.client import MERGE_PATCH, Api, ApiError
from webhook.kube.objects import Metadata, OwnerReference, Pod
from webhook.kube.placements import Placement, PlacementSpec
from webhook.kube.planned import PlannedPod
from webhook.sweeper.decide.orders import Cause
from webhook.sweeper.observe.gangs import gather
from webhook.sweeper.observe.membership import LostOwner
from webhook.sweeper.observe.owner_existence import OwnerExistence, OwnerState, lost_owner
from webhook.sweeper.observe.snapshotter import Snapshotter
from webhook.sweeper.settings import Settings

SETTINGS = Settings(settle_seconds=0, patience_seconds=0)
DELETED = LostOwner("its controller Job/big is deleted")


def owner(kind: str, name: str, version: str = "batch/v1") -> dict[str, Any]:
    return {"apiVersion": version, "kind": kind, "name": name, "uid": f"uid-{name}", "controller": True}


def pod_of(kind: str, name: str, number: int = 0, **spec: Any) -> Pod:
    metadata = {"ownerReferences": [owner(kind, name)]}
    return gpu_pod(f"{name}-{number}", metadata=metadata, **spec)


def found(name: str, uid: str = "", deleted: bool = False, *above: dict[str, Any]) -> Metadata:
    body = {"name": name, "uid": uid or f"uid-{name}", "ownerReferences": list(above)}
    return msgspec.convert(
        body | ({"deletionTimestamp": "2026-01-01T00:00:00Z"} if deleted else {}), Metadata
    )


def placing_on(cluster: Nodes, lost: LostOwner | None) -> Placing:
    """Passes on a cluster where the owner of the pods named big is lost."""
    made = Placing(cluster, SETTINGS)
    made.snapshotter = Snapshotter(
        cluster, SETTINGS, owners=lambda: lambda pod: lost if pod.metadata.name.startswith("big") else None
    )
    return made


# --- which controllers count --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("objects", "expected"),
    [
        ({"j": found("j", "", False, owner("JobSet", "s")), "s": found("s")}, ""),
        ({"j": found("j", "", False, owner("JobSet", "s")), "s": OwnerState.ABSENT}, "JobSet/s is deleted"),
        (
            {"j": found("j", "", False, owner("JobSet", "s")), "s": found("s", "", True)},
            "JobSet/s is being deleted",
        ),
        ({"j": found("j", "", True)}, "Job/j is being deleted"),
        ({"j": OwnerState.ABSENT}, "Job/j is deleted"),
        ({"j": OwnerState.UNREADABLE}, ""),
        ({"j": OwnerState.UNCONFIRMED}, "is asked whether its controller Job/j exists"),
        ({"j": found("j", "", False, owner("Job", "j"))}, ""),
    ],
)
def test_a_controller_counts_at_every_level(
    objects: Mapping[str, Metadata | OwnerState], expected: str
) -> None:
    """Circles of references end, and what may not be read counts as existing."""
    lost = lost_owner(pod_of("Job", "j"), lambda _, reference: objects[reference.name])
    assert (expected in lost.sentence) if lost is not None else not expected


# --- what a pass does with them -----------------------------------------------------------------------


def test_what_is_left_of_a_deleted_gang_evicts_nobody_and_is_not_placed() -> None:
    running = [gpu_pod(f"low-{n}", node=f"n{n}", priority=1) for n in range(2)]
    left = [pod_of("Job", "big", number, priority=100) for number in range(2)]
    orders = placing_on(Nodes(3, *running, *left), DELETED).one()
    assert not orders.plans
    assert [(each.cause, each.reason) for each in orders.outcomes] == [
        (Cause.OWNER_DELETED, "its controller Job/big is deleted")
    ]
    assert not any(each.is_news for each in orders.outcomes), "nobody needs an Event who deletes a Job"
    assert len(places(placing_on(Nodes(3, *running, *left), None).one())) == 2


def test_a_gang_waits_while_nobody_has_confirmed_that_its_controller_is_gone() -> None:
    unconfirmed = LostOwner("its controller may be gone", is_confirmed=False)
    orders = placing_on(Nodes(1, pod_of("Job", "big")), unconfirmed).one()
    assert not orders.plans
    assert [(each.cause, each.reason) for each in orders.outcomes] == [
        (Cause.INCOMPLETE, "its controller may be gone")
    ]


def test_a_plan_for_pods_of_a_deleted_owner_holds_no_node_and_is_not_released() -> None:
    pod = pod_of("Job", "big")
    cluster = Nodes(1, pod)
    entry = PlannedPod(name=pod.metadata.name, uid=pod.metadata.uid, node="n0")
    spec = PlacementSpec(gang="Job/big", gang_id="uid-big", size=1, pods=[entry], kept=["n0"])
    cluster.placements["ns/p"] = Placement(metadata=Metadata(name="p", namespace="ns"), spec=spec)
    assert placing_on(cluster, None).view().planned.keys() == {pod.metadata.uid}
    view = placing_on(cluster, DELETED).view()
    assert not view.planned
    assert view.not_released == {pod.metadata.uid}
    unconfirmed = placing_on(cluster, LostOwner("asked", is_confirmed=False)).view()
    assert unconfirmed.planned, "its node is given to nobody before the API server has answered"
    assert unconfirmed.not_released == {pod.metadata.uid}


def test_pods_of_a_deleted_owner_are_no_members_of_the_gang_that_takes_its_name() -> None:
    """Ray clusters and training jobs are known by their names alone."""
    old, new = (
        gpu_pod(name, metadata={"uid": name, "labels": {"ray.io/cluster": "r"}}) for name in ("old", "new")
    )
    facts = Placing(Nodes(0), SETTINGS).owner_facts
    lost = {"old": DELETED}
    gangs = gather([old, new], [], facts, lost_owner=lambda pod: lost.get(pod.metadata.name))
    assert [[pod.metadata.name for pod in gang.pods] for gang in gangs] == [["new"]]


# --- asking the API server ----------------------------------------------------------------------------


class AnsweringApi:
    """Answers requests for owners by path, or with an HTTP status."""

    def __init__(self, answers: Mapping[str, dict[str, Any] | int]) -> None:
        self.answers = dict(answers)
        self.asked: list[str] = []

    def request(self, _: str, path: str, **__: Any) -> bytes:
        self.asked.append(path)
        if path == "/apis/batch/v1":
            return json.dumps({"resources": [{"kind": "Job", "name": "jobs", "namespaced": True}]}).encode()
        answer = self.answers.get(path, 404)
        if isinstance(answer, int):
            raise ApiError(answer, "", "refused")
        return json.dumps({"metadata": answer}).encode()


def existence(api: AnsweringApi, clock: Clock | None = None, live: Metadata | None = None) -> OwnerExistence:
    return OwnerExistence(cast(Api, api), lambda *_: live, lambda: None, clock or Clock())


def reference(name: str = "big", version: str = "batch/v1") -> OwnerReference:
    return msgspec.convert(owner("Job", name, version), OwnerReference)


PATH = "/apis/batch/v1/namespaces/ns/jobs/big"


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ({"name": "big", "uid": "uid-big"}, "uid-big"),
        ({"name": "big", "uid": "another"}, OwnerState.ABSENT),
        (404, OwnerState.ABSENT),
        (403, OwnerState.UNREADABLE),
        (500, OwnerState.UNCONFIRMED),
    ],
)
def test_an_owner_that_is_not_seen_is_asked_for(answer: dict[str, Any] | int, expected: object) -> None:
    """The live copy may be late, also with another owner of the same name."""
    made = existence(AnsweringApi({PATH: answer}), live=found("big", "an earlier one"))
    assert made.find("ns", reference()) is OwnerState.UNCONFIRMED
    made.answer_all()
    answered = made.find("ns", reference())
    assert (answered.uid if isinstance(answered, Metadata) else answered) == expected


def test_an_owner_that_existed_is_asked_for_again_and_a_deleted_one_is_not() -> None:
    clock, api = Clock(), AnsweringApi({PATH: {"name": "big", "uid": "uid-big"}})
    made = existence(api, clock)
    for _ in range(4):
        made.find("ns", reference())
        made.answer_all()
        api.answers[PATH] = 404
        clock.now += 20
    assert api.asked.count(PATH) == 2
    assert made.find("ns", reference()) is OwnerState.ABSENT


def test_a_kind_of_which_nothing_can_be_read_stops_nobody_for_long() -> None:
    """As of a CustomResourceDefinition whose conversion webhook is away."""
    made = existence(AnsweringApi({PATH: 500}))
    for _ in range(5):
        made.find("ns", reference())
        made.answer_all()
    assert made.find("ns", reference()) is OwnerState.UNREADABLE


@pytest.mark.parametrize(
    ("name", "version"),
    [("../../secrets/x", "batch/v1"), ("x?y", "batch/v1"), ("x", "../v1"), ("x", "a/b/c")],
)
def test_a_reference_that_is_no_name_is_not_asked_about(name: str, version: str) -> None:
    """Any user may write one, and it would become a part of a path."""
    api = AnsweringApi({})
    made = existence(api)
    made.find("ns", reference(name, version))
    made.answer_all()
    assert api.asked == []
    assert made.find("ns", reference(name, version)) is OwnerState.UNREADABLE


def test_no_namespace_delays_the_questions_of_another() -> None:
    api = AnsweringApi({})
    made = existence(api)
    for number in range(5):
        made.find("evil", reference(f"j{number}"))
    made.find("good", reference("good"))
    made.answer_all()
    owners = [path.rpartition("/")[2] for path in api.asked if "namespaces" in path]
    assert owners.index("good") == 1


# --- at work ------------------------------------------------------------------------------------------


@pytest.mark.cluster
def test_a_job_that_is_being_deleted_evicts_nobody_and_its_placement_has_the_reason(
    two_nodes: Cluster, namespace: str
) -> None:
    api, jobs = two_nodes.api(), f"/apis/batch/v1/namespaces/{namespace}/jobs"
    settings = Settings(settle_seconds=0)
    create_job(api, namespace, "low", 2, template(8, priorityClassName="low"))
    before = sweep(two_nodes, namespace, settings, lambda pods: run_all(pods, "low", 2), "the low gang")
    create_job(api, namespace, "big", 2, template(8, priorityClassName="high"))
    wait_for_pods(two_nodes, namespace, lambda pods: len(named(pods, "big")) == 2, "pods of the big gang")
    finalized = {"metadata": {"finalizers": ["example.com/finalizer"]}}
    api.request("PATCH", f"{jobs}/big", body=finalized, content_type=MERGE_PATCH)
    api.request("DELETE", f"{jobs}/big", query={"propagationPolicy": "Background"})

    def reasons() -> list[str]:
        found = api.json("GET", placements.path(namespace))["items"]
        return [each.get("status", {}).get("reason", "").removesuffix(".") for each in found]

    def is_reported(_: Pods) -> bool:
        return (
            "its controller Job/big is being deleted, so its pods are neither placed nor released"
            in reasons()
        )

    after = sweep(two_nodes, namespace, settings, is_reported, "the reason of the big gang")
    api.request("PATCH", f"{jobs}/big", body={"metadata": {"finalizers": None}}, content_type=MERGE_PATCH)
    assert {pod["metadata"]["uid"] for pod in before} <= {
        pod["metadata"]["uid"] for pod in named(after, "low") if "deletionTimestamp" not in pod["metadata"]
    }
    assert all(map(is_gated, named(after, "big")))
    events = api.json("GET", f"/api/v1/namespaces/{namespace}/events")["items"]
    assert not [each for each in events if "deleted" in each["message"] and "big" in each["message"]]
