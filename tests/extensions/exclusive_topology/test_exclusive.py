"""Jobs and groups with a domain of their own, as JobSet and LeaderWorkerSet ask and their webhooks say."""

from typing import Any

import pytest

from hack.local.cluster import Cluster
from labeler.contract import keys
from tests.sweeper.at_work import Pods, create_pod, is_gated, named, run_all, sweep, template
from tests.sweeper.cluster import Nodes, Placing, gpu_pod, places
from tests.sweeper.pods import decode, gather_all, pod_json
from tests.sweeper.sets import (
    JOB_KEY,
    affinity,
    define,
    exclusive,
    exclusive_member,
    follow,
    make,
    member,
    pinned_to,
    racks,
    replicated,
    sent,
    valid_plans,
)
from webhook.configuration.settings import Settings
from webhook.kube.objects import Metadata, Pod
from webhook.kube.placements import Placement, PlacementSpec
from webhook.kube.plan_pods import PlannedPod
from webhook.sweeper.decide.plan import plan_spec, unfinished
from webhook.sweeper.decide.release_queue import SentRelease, SentReleases
from webhook.workloads import marks

RACK = keys.PRERELEASE_TOPOLOGY[1]
SETTINGS = Settings(settle_seconds=30, patience_seconds=30)
AT_ONCE = Settings(settle_seconds=0, patience_seconds=0)


@pytest.mark.promise("R79")
def test_each_job_of_an_exclusive_jobset_gets_a_domain_of_its_own_before_its_followers_are_made(
    two_subblocks: Cluster, namespace: str, defined: list[str]
) -> None:
    define(two_subblocks, defined, "JobSet", "jobset.x-k8s.io", "v1alpha2")
    spec = {"replicatedJobs": [replicated("w", 2, template(8), replicas=2)]}
    version, over = "jobset.x-k8s.io/v1alpha2", {marks.JOBSET_EXCLUSIVE: RACK}
    uid = make(two_subblocks, namespace, version, "JobSet", spec, over)["metadata"]["uid"]
    api = two_subblocks.api()
    for number in range(2):
        create_pod(api, namespace, f"train-{number}-0", exclusive_member(number, 0, RACK, uid, 2))
    followed: set[int] = set()

    def all_run(pods: Pods) -> bool:
        follow(two_subblocks, namespace, pods, followed, 2, RACK, uid, 2)
        return run_all(pods, "train", 4)

    pods = sweep(two_subblocks, namespace, SETTINGS, all_run, "both Jobs to run")
    racks = [[pod["spec"]["nodeName"] for pod in named(pods, f"train-{number}-")] for number in range(2)]
    assert racks == [[f"node-b0-s{number}-h0{host}" for host in range(2)] for number in range(2)]

    create_pod(api, namespace, "late-0-0", exclusive_member(0, 0, RACK, "another", 1, of="late"))
    path = f"/apis/topogate.io/v1alpha1/namespaces/{namespace}/placements"

    def waits(pods: Pods) -> bool:
        assert all(map(is_gated, named(pods, "late")))
        reasons = [each.get("status", {}).get("reason", "") for each in api.json("GET", path)["items"]]
        return any(
            "an exclusive domain of " in reason and ", and others have s0, s1" in reason for reason in reasons
        )

    sweep(two_subblocks, namespace, AT_ONCE, waits, "another JobSet to wait, and to say why")


# --- in memory -------------------------------------------------------------------------------------------


def group_member(name: str, group: str, namespace: str = "ns", node: str = "") -> Pod:
    labels = {"leaderworkerset.sigs.k8s.io/name": "lws", "leaderworkerset.sigs.k8s.io/group-key": group}
    annotations = {marks.LWS_EXCLUSIVE: "rack", "leaderworkerset.sigs.k8s.io/size": "1"}
    metadata = {"labels": labels, "annotations": annotations, "namespace": namespace}
    return gpu_pod(name, node=node, metadata=metadata)


def placed(cluster: Nodes) -> dict[str, str]:
    """Pod -> rack."""
    found = places(exclusive(Placing(cluster, AT_ONCE)).one())
    return {pod: cluster.nodes[node].metadata.labels.get("rack", "") for pod, node in found.items()}


@pytest.mark.promise("R79")
def test_a_label_that_is_no_level_makes_domains_as_well() -> None:
    pods = tuple(member(f"{job}{index}", job) for job in "ab" for index in range(2))
    found = placed(racks(1, 4, 3, pods=pods))
    assert found == {"a0": "r2", "a1": "r2", "b0": "r1", "b1": "r1"}


@pytest.mark.promise("R79")
def test_a_domain_that_another_exclusive_job_has_is_shared_with_nobody() -> None:
    pods = (member("other", "other", node="n0"), member("a0", "a"), member("a1", "a"))
    assert placed(racks(4, pods=pods)) == {}
    assert set(placed(racks(4, 2, pods=pods)).values()) == {"r1"}


@pytest.mark.promise("R79")
@pytest.mark.parametrize(
    ("priorities", "evicted"),
    [((1, 1, 9, 9, 9), ["0", "1"]), ((1, 1, 1, 9, 9), ["0", "1"]), ((2, 1, 1, 1, 9), ["2", "3"])],
    ids=["only in the small rack", "as many in each", "of lower priority in the large rack"],
)
def test_a_gang_preempts_in_the_domain_where_the_least_important_pods_have_to_end(
    priorities: tuple[int, ...], evicted: list[str]
) -> None:
    running = [gpu_pod(f"r{n}", node=f"n{n}", priority=each) for n, each in enumerate(priorities)]
    waiting = (member(f"a{n}", "a", priority=5) for n in range(2))
    (made,) = exclusive(Placing(racks(2, 3, pods=(*running, *waiting)), AT_ONCE)).one().plans
    assert sorted(uid for group in made.victims for uid in group.pods) == [f"uid-r{n}" for n in evicted]


def test_a_pin_of_its_authors_own_takes_no_domain() -> None:
    """Else any tenant could close all domains with pods that never run."""
    labels = {marks.JOBSET_NAME_LABEL: "set", marks.JOB_NAME_LABEL: "theirs"}
    metadata = {"labels": labels, "annotations": {marks.JOBSET_EXCLUSIVE: "rack"}}
    theirs = gpu_pod("theirs", metadata=metadata, affinity=pinned_to("n0"), schedulingGates=[])
    pods = (theirs, member("a0", "a"), member("a1", "a"))
    assert set(placed(racks(4, pods=pods)).values()) == {"r0"}


def test_what_is_not_exclusive_takes_no_domain() -> None:
    pods = (gpu_pod("other", node="n0"), member("a0", "a"), member("a1", "a"))
    assert set(placed(racks(4, pods=pods)).values()) == {"r0"}


def test_a_replaced_pod_returns_to_the_domain_of_its_job() -> None:
    pods = (member("a0", "a", node="n3"), member("a1", "a"))
    assert placed(racks(3, 3, pods=pods)) == {"a1": "r1"}


def plan_of(job: str, domain: str, **nodes: str) -> dict[str, Placement]:
    """The Placement of a Job whose pods, named member -> node, have a domain of their own."""
    pods = [PlannedPod(name=name, uid=f"uid-{name}", node=node) for name, node in nodes.items()]
    metadata = Metadata(name=job, namespace="ns", uid=f"plan-{job}")
    return {
        f"ns/{job}": Placement(metadata, PlacementSpec(gang=f"Job/{job}", pods=pods, domains={"": domain}))
    }


@pytest.mark.promise("R79")
@pytest.mark.parametrize("is_bound", [True, False], ids=["bound", "released"])
def test_a_domain_is_still_a_job_s_where_the_node_of_its_pod_is_gone(is_bound: bool) -> None:
    """Its kubelet may still run the pod: no kubelet has reported that it does not."""
    there = member("other", "other", node="n0") if is_bound else sent(member("other", "other"), "n0")
    cluster = racks(3, pods=(there, member("a0", "a"), member("a1", "a")))
    cluster.placements = plan_of("other", "r0", other="n0")
    del cluster.nodes["n0"]
    assert placed(cluster) == {}
    cluster.pods.remove(there)
    assert set(placed(cluster).values()) == {"r0"}


def test_a_job_stays_in_the_domain_where_its_pods_are_though_their_node_is_gone() -> None:
    cluster = racks(2, 4, pods=(member("a0", "a", node="n5"), member("a1", "a")))
    cluster.placements = plan_of("a", "r1", a0="n5")
    del cluster.nodes["n5"]
    assert placed(cluster) == {"a1": "r1"}


def test_a_replacement_is_placed_in_the_domain_of_a_pod_while_that_one_ends() -> None:
    labels = {marks.JOB_NAME_LABEL: "a", "batch.kubernetes.io/controller-uid": "a"}
    ends = {"annotations": {marks.JOBSET_EXCLUSIVE: "rack"}, "deletionTimestamp": "2026-01-01T00:00:00Z"}
    new = member("new", "a", size=1)
    assert placed(
        racks(4, 3, pods=(gpu_pod("old", node="n6", metadata={"labels": labels, **ends}), new))
    ) == {"new": "r1"}


def test_a_plan_names_the_domain_its_gang_has_for_itself() -> None:
    cluster = racks(3, pods=(member("a0", "a"), member("a1", "a"), gpu_pod("other")))
    (of_job, of_other) = exclusive(Placing(cluster, AT_ONCE)).one().plans
    assert (of_job.domains, of_other.domains) == ({"": "r0"}, {})
    spec = plan_spec(of_job.gang, None, list(of_job.entries), domains=of_job.domains)
    assert spec.domains == {"": "r0"}
    before = Placement(Metadata(name="a"), spec)
    later = plan_spec(of_job.gang, before, list(of_job.entries[:1]))
    assert later.domains == {"": "r0"}
    again = plan_spec(of_job.gang, before, list(of_job.entries))
    assert again.domains == {}


@pytest.mark.promise("R79")
@pytest.mark.parametrize(
    ("others", "holds"),
    [
        ((member("b0", "b", node="n1"),), False),
        ((member("b0", "b", node="n4"),), True),
        ((member("a1", "a", node="n1"),), True),
        ((gpu_pod("b0", node="n1"),), True),
        ((), True),
    ],
    ids=["another has its domain", "another has another", "its own pods have it", "of no set", "nobody"],
)
def test_a_plan_does_not_hold_again_once_another_job_has_its_domain(
    others: tuple[Pod, ...], holds: bool
) -> None:
    """Its node was not ready for a while, and so the domain was free."""
    cluster = racks(3, 3, pods=(member("a0", "a"), *others))
    cluster.placements = plan_of("a", "r0", a0="n0")
    placing = Placing(cluster, Settings())
    view = valid_plans(placing.view(), placing.refusing, SentReleases())
    assert ("uid-a0" in view.planned) is holds
    assert [entry.node for _, entry in unfinished(view, placing.retries, SentReleases())] == ["n0"] * holds


def test_a_released_pod_is_where_it_was_sent_whoever_has_that_domain() -> None:
    cluster = racks(3, pods=(member("a0", "a"), member("b0", "b", node="n1")))
    cluster.placements = plan_of("a", "r0", a0="n0")
    placing = Placing(cluster, Settings())
    (planned,) = cluster.placements["ns/a"].spec.pods
    sent = SentReleases({planned.uid: SentRelease(planned, placing.clock())})
    del cluster.nodes["n0"]
    assert "uid-a0" in valid_plans(placing.view(), placing.refusing, sent).planned


@pytest.mark.promise("R79")
@pytest.mark.parametrize(("namespace", "expected"), [("ns", {}), ("elsewhere", {"mine": "r0"})])
def test_groups_of_leader_worker_sets_avoid_those_of_their_own_namespace(
    namespace: str, expected: dict[str, str]
) -> None:
    pods = (group_member("theirs", "k0", namespace, "n0"), group_member("mine", "k1"))
    assert placed(racks(3, pods=pods)) == expected


SHUNNING = {"key": "jobset.sigs.k8s.io/job-key", "operator": "Exists"}


def of_set(name: str, job: str, namespace: str, *, node: str = "", has_affinity: bool) -> Pod:
    """A pod of an exclusive Job over racks, with or without the affinity of its leader."""
    labels = {marks.JOBSET_NAME_LABEL: "set", marks.JOB_NAME_LABEL: job, "jobset.sigs.k8s.io/job-key": job}
    annotations = {marks.JOBSET_EXCLUSIVE: "rack", keys.GANG_SIZE_ANNOTATION: "1"}
    metadata = {"namespace": namespace, "labels": labels, "annotations": annotations}
    own = {"key": SHUNNING["key"], "operator": "NotIn", "values": [job]}
    term = {
        "topologyKey": "rack",
        "labelSelector": {"matchExpressions": [SHUNNING, own]},
        "namespaceSelector": {},
    }
    anti = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    spec: dict[str, Any] = {"affinity": anti} if has_affinity else {}
    return gpu_pod(name, node=node, metadata=metadata, **spec)


def bare(name: str, node: str) -> Pod:
    metadata = {"namespace": "theirs", "annotations": {marks.JOBSET_EXCLUSIVE: "rack"}}
    return gpu_pod(name, gpus=0, node=node, metadata=metadata)


@pytest.mark.promise("R79")
@pytest.mark.parametrize("has_affinity", [True, False])
def test_an_annotation_alone_takes_no_domain_from_another_namespace(has_affinity: bool) -> None:
    mine = of_set("mine", "a", "ns", has_affinity=has_affinity)
    assert placed(racks(2, pods=(bare("theirs", "n0"), mine))) == {"mine": "r0"}


@pytest.mark.promise("R79")
@pytest.mark.parametrize(
    ("theirs", "mine", "expected"),
    [(True, True, {}), (True, False, {}), (False, True, {}), (False, False, {"mine": "r0"})],
)
def test_jobs_of_jobsets_of_two_namespaces_exclude_each_other_where_either_s_affinity_asks_for_it(
    theirs: bool, mine: bool, expected: dict[str, str]
) -> None:
    there = of_set("theirs", "b", "theirs", node="n0", has_affinity=theirs)
    assert placed(racks(2, pods=(there, of_set("mine", "a", "ns", has_affinity=mine)))) == expected


def test_nodes_without_the_label_are_in_no_domain() -> None:
    assert placed(racks(3, key="other", pods=(member("a0", "a"), member("a1", "a")))) == {}


def test_exclusive_jobs_are_gangs_of_their_own_where_nobody_knows_how_many_they_are() -> None:
    """As JobSet did before it wrote that number."""
    gangs = gather_all(member("a0", "a"), member("b0", "b"))
    assert sorted((gang.key.kind, gang.key.name) for gang in gangs) == [("Job", "a"), ("Job", "b")]


def test_the_rules_that_its_own_webhook_writes_are_no_problem_of_an_exclusive_pod() -> None:
    written = {"annotations": {marks.JOBSET_EXCLUSIVE: RACK}}
    (gang,) = gather_all(decode(pod_json(metadata=written, affinity=affinity(JOB_KEY, "k", RACK))))
    assert gang.problems == ()
