"""Gangs of which a controller cannot make all pods: they wait with its own message, or go on as set."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from hack.local.cluster import Cluster
from labeler.contract import keys
from tests.sweeper.at_work import Pods, create_job, is_gated, named, run_all, sweep, template
from tests.sweeper.pods import decode, job_pod
from tests.workloads.objects import BY_NAME, JOBSET, LWS, MPI, SET, replicated
from tests.workloads.objects import read as read_owner
from webhook.configuration.settings import Settings
from webhook.kube.client import MERGE_PATCH, Api
from webhook.kube.complaints import Complaint
from webhook.sweeper.observe.cache import ClusterCache
from webhook.sweeper.observe.gangs import GangKey, OwnerFacts, PodGang, gather
from webhook.sweeper.observe.membership import key_of
from webhook.sweeper.observe.owner_sizes import Complaints, Owners
from webhook.sweeper.observe.watches import WatchedCollection

SETTINGS = Settings(settle_seconds=0.5, patience_seconds=1)


@pytest.fixture
def quota(two_subblocks: Cluster, namespace: str) -> Cluster:
    """Six nodes, and a namespace that may have two pods."""
    api = two_subblocks.api()
    path = f"/api/v1/namespaces/{namespace}/resourcequotas"
    made = api.json("POST", path, body={"metadata": {"name": "few"}, "spec": {"hard": {"pods": "2"}}})
    two_subblocks.wait_for(
        "the quota to count",
        lambda: api.json("GET", f"{path}/{made['metadata']['name']}")["status"].get("hard"),
    )
    return two_subblocks


def placement(cluster: Cluster, namespace: str) -> dict[str, dict[str, object]]:
    path = f"/apis/topogate.io/v1alpha1/namespaces/{namespace}/placements"
    found: list[dict[str, dict[str, object]]] = cluster.api().json("GET", path)["items"]
    return found[0] if found else {"spec": {}, "status": {}}


@pytest.mark.promise("O106")
def test_a_gang_of_which_a_quota_allows_a_part_waits_with_the_quotas_message_until_it_is_raised(
    quota: Cluster, namespace: str
) -> None:
    create_job(quota.api(), namespace, "train", 3, template(8))
    seen = 0

    def waits(pods: Pods) -> bool:
        nonlocal seen
        assert all(map(is_gated, pods)), "a part was released"
        status = placement(quota, namespace).get("status", {})
        is_reported = "2 of 3 pods exist" in str(status.get("reason")) and "exceeded quota: few" in str(
            status
        )
        seen += is_reported and status["state"] == "Waiting"
        return seen > 20  # for longer than a gang without that message would

    sweep(quota, namespace, SETTINGS, waits, "the gang to wait with the quota's message")
    quota.api().request("DELETE", f"/api/v1/namespaces/{namespace}/resourcequotas/few")
    pods = sweep(quota, namespace, SETTINGS, lambda pods: run_all(pods, "train", 3), "all to run", 60)
    assert len({pod["spec"]["nodeName"][:10] for pod in named(pods, "train")}) == 1


@pytest.mark.promise("O106")
def test_going_on_with_fewer_is_a_setting_and_is_not_shown_as_whole(quota: Cluster, namespace: str) -> None:
    create_job(quota.api(), namespace, "train", 3, template(8))
    settings = Settings(settle_seconds=0.5, patience_seconds=1, start_with_fewer=True)

    def is_reported(pods: Pods) -> bool:
        status = placement(quota, namespace).get("status", {})
        return run_all(pods, "train", 2) and "2 of 3 pods exist" in str(status.get("reason"))

    sweep(quota, namespace, settings, is_reported, "two to run, as two of three")
    assert placement(quota, namespace)["spec"]["size"] == 3


def complaint(kind: str, name: str, uid: str = "u", at: str = "2026-01-01T00:00:05Z") -> Complaint:
    about = {"kind": kind, "name": name, "uid": uid}
    return msgspec.convert(
        {
            "metadata": {"name": "e", "namespace": "ns"},
            "involvedObject": about,
            "message": "no quota",
            "lastTimestamp": at,
        },
        Complaint,
    )


@pytest.mark.parametrize(
    ("key", "about", "concerns"),
    [
        (GangKey("ns", "Job", "train", "id"), complaint("Job", "train", "id"), True),
        (GangKey("ns", "Job", "train", "id"), complaint("Job", "train-2"), False),
        (GangKey("other", "Job", "train", "id"), complaint("Job", "train", "id"), False),
        (GangKey("ns", "JobSet", "train", "id"), complaint("Job", "train-workers-0"), True),
        (GangKey("ns", "JobSet", "train", "id"), complaint("Job", "training"), False),
        (GangKey("ns", "LeaderWorkerSet", "train", "id"), complaint("StatefulSet", "train-0"), True),
        (GangKey("ns", "Gang", "train", "train"), complaint("Job", "train"), False),
    ],
    ids=lambda value: str(getattr(value, "kind", "")),
)
def test_a_complaint_concerns_the_gang_of_whose_controllers_it_is(
    key: GangKey, about: Complaint, concerns: bool
) -> None:
    assert bool(Complaints([about]).blocked_reason(key)[1]) is concerns


@pytest.mark.parametrize(
    ("kind", "spec", "about", "concerns"),
    [
        (JOBSET, {"replicatedJobs": [replicated("w", 2, 4)]}, ("Job", "train-w-1"), True),
        (JOBSET, {"replicatedJobs": [replicated("w", 2, 4)]}, ("JobSet", "train-2"), False),
        (JOBSET, {"replicatedJobs": [replicated("w", 2, 4)]}, ("Job", "train-2-w-1"), False),
        (JOBSET, {"replicatedJobs": [replicated("w", 10**9, 4)]}, ("Job", "train-w-9999"), True),
        (LWS, {"replicas": 2}, ("StatefulSet", "train"), True),
        (LWS, {"replicas": 2}, ("StatefulSet", "train-3"), True),
        (LWS, {"replicas": 2}, ("StatefulSet", "train-2-1"), False),
        (MPI, {"mpiReplicaSpecs": {"Launcher": {}}}, ("Job", "train-launcher"), True),
        (MPI, {"mpiReplicaSpecs": {"Launcher": {}}}, ("Job", "train-2-launcher"), False),
        (SET, {"replicas": 3}, ("StatefulSet", "train-2"), False),
    ],
)
def test_a_complaint_about_another_set_whose_name_continues_that_of_a_gang_does_not_concern_it(
    kind: str, spec: dict[str, Any], about: tuple[str, str], concerns: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache, workload = ClusterCache(cast(Api, None)), BY_NAME[kind]
    owner = read_owner(kind, spec, {}, {})
    owner = replace(owner, metadata=replace(owner.metadata, name="train"))
    monkeypatch.setattr(cache.owners, "_find", lambda gang: [(workload, owner)])
    monkeypatch.setattr(
        cache.watches, "read", lambda of, **_: {each: {"e": complaint(*about)} for each in of}
    )
    facts = cache.asker()(GangKey("ns", workload.kind, "train", "id"))
    assert bool(facts.blocked()[1]) is concerns


NAMES = st.text(alphabet="ab-.0", min_size=1, max_size=4)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(
    name=NAMES,
    kind=st.sampled_from(("Job", "JobSet")),
    about=st.lists(st.tuples(st.sampled_from(("Job", "JobSet")), NAMES, st.integers(0, 9)), max_size=12),
)
def test_the_newest_complaint_about_any_of_a_gang_s_controllers_is_reported(
    name: str, kind: str, about: list[tuple[str, str, int]]
) -> None:
    key = GangKey("ns", kind, name, "id")
    complaint_text = [
        complaint(other, named_, at=f"2026-01-01T00:00:0{second}Z") for other, named_, second in about
    ]
    concerned = [
        each.at
        for each, (other, named_, _) in zip(complaint_text, about, strict=True)
        if (kind, name) == (other, named_)
        or (kind == "JobSet" and (named_ == name or named_.startswith(f"{name}-")))
    ]
    assert Complaints(complaint_text).blocked_reason(key)[0] == max(concerned, default="")


@pytest.mark.promise("I60")
def test_complaints_are_read_once_for_all_gangs_of_a_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    cache = ClusterCache(cast(Api, None))
    reads: list[str] = []

    def read(collections: Sequence[WatchedCollection[Any]], **_: float) -> Mapping[Any, Any]:
        reads.extend(each.kind for each in collections)
        return {each: {"e": complaint("Job", "train-1")} for each in collections}

    monkeypatch.setattr(cache.watches, "read", read)
    ask = cache.asker()
    facts = [ask(GangKey("ns", "Job", f"train-{number}", "")) for number in range(3)]
    assert not reads, "Events are watched only for gangs that lack pods"
    assert [each.blocked()[1] for each in facts] == ["", "no quota", ""]
    assert reads == ["Event"]


def of_three(count: int, complained_at: str) -> PodGang:
    owner_facts = OwnerFacts(3, blocked=lambda: (complained_at, "no quota"))
    pods = [job_pod(number, creationTimestamp="2026-01-01T00:00:05Z") for number in range(count)]
    (gang,) = gather(pods, [], lambda _: owner_facts)
    return gang


def test_a_complaint_older_than_the_newest_pod_is_overcome() -> None:
    assert of_three(2, "2026-01-01T00:00:05").blocked_reason == "no quota"
    assert not of_three(2, "2026-01-01T00:00:04").blocked_reason
    assert not of_three(2, "").blocked_reason


def test_a_gang_with_all_its_pods_is_not_blocked() -> None:
    assert not of_three(3, "2026-01-01T00:00:09").blocked_reason


@pytest.mark.parametrize(
    ("failed", "complaint_text", "is_reported"),
    [
        (0, "", ()),
        (1, "", ("1 of 3 pods exist; 1 pod of one Job has failed: the Job controller creates others",)),
        (8, "", ("1 of 3 pods exist; 8 pods of one Job have failed: the Job controller creates others",)),
        (
            2,
            "no quota",
            ("1 of 3 pods exist, as its controller cannot", "2 pods of one Job have failed: the Job"),
        ),
    ],
)
def test_a_job_that_lacks_pods_after_some_failed_reports_how_long_its_controller_waits(
    failed: int, complaint_text: str, is_reported: tuple[str, ...]
) -> None:
    def owner_facts(key: GangKey) -> OwnerFacts:
        return OwnerFacts(
            3, blocked=lambda: ("2099" if complaint_text else "", complaint_text), failed=lambda _: failed
        )

    (gang,) = gather([job_pod(0)], [], owner_facts)
    assert len(gang.problems) == len(is_reported)
    for problem, beginning in zip(gang.problems, is_reported, strict=True):
        assert problem.startswith(beginning)


def test_a_job_with_all_its_pods_reports_no_earlier_ones_that_failed() -> None:
    (gang,) = gather([job_pod(0)], [], lambda _: OwnerFacts(1, failed=lambda _: 8))
    assert gang.problems == ()


def test_a_gang_waits_for_a_job_all_of_whose_pods_are_still_delayed(cluster: Cluster, namespace: str) -> None:
    """The Job controller delays the pods of each Job of a gang by that Job's own failures."""
    api, body = cluster.api(), template(0, annotations={keys.GANG_ANNOTATION: "train"})
    for name in ("fails", "runs"):
        create_job(api, namespace, name, 1, body)
    owners = Owners(api, lambda: None)
    owners.start()
    path = f"/api/v1/namespaces/{namespace}/pods"
    try:
        cluster.wait_for("the pods", lambda: len(api.json("GET", path)["items"]) == 2)
        raw = api.json("GET", path)["items"]
        (fails,) = named(raw, "fails")
        (runs,) = map(decode, named(raw, "runs"))
        failed = owners.facts(key_of(runs)).failed
        assert failed([runs]) == 0
        body = {"status": {"phase": "Failed"}}
        name = fails["metadata"]["name"]
        api.request("PATCH", f"{path}/{name}/status", body=body, content_type=MERGE_PATCH)
        cluster.wait_for("a failure", lambda: failed([runs]) == 1)
        assert failed([runs, decode(fails)]) == 0, "the Job lacks no pod"
    finally:
        owners.stop()
