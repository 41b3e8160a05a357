"""What is left of a gang that others have preempted: when it is evicted, in memory."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from tests.sweeper.clock import Clock
from tests.sweeper.cluster import Nodes, Placing, gpu_pod
from tests.sweeper.preemptions import member, plan
from tests.workloads.objects import JOBSET, read, replicated
from webhook.configuration.settings import ScaleUp, Settings
from webhook.kube.objects import NodeSpec, OwnerReference, Pod
from webhook.kube.placements import Placement
from webhook.sweeper.decide.orders import Cause
from webhook.sweeper.observe.gangs import OwnerFacts, gather
from webhook.sweeper.observe.owner_sizes import facts_of
from webhook.sweeper.observe.view import Moment
from webhook.sweeper.repair.broken import BrokenSince, WhyNot, evict_broken
from webhook.workloads import marks
from webhook.workloads.sets import job_set_pods

SETTINGS = Settings(broken_seconds=30)


def nothing_against_it(pods: Sequence[Pod], ordered: Iterable[Pod] = ()) -> str:
    return ""


class PartlyRunning:
    """The Job low, of two pods: one on n1, and one that was on n0 and has been recreated."""

    def __init__(self, priority: int = 100, settings: Settings = SETTINGS) -> None:
        self.cluster = Nodes(3)
        self.left = member("low", 1, "n1")
        self.recreated = member("low", 2)
        self.other = member("other", 0, "n0", priority=priority)
        self.cluster.pods = [self.left, self.recreated, self.other]
        self.cluster.placements = self.plan()
        self.clock = Clock()
        self.settings = settings
        self.since: BrokenSince = {}
        self.why_not: WhyNot = nothing_against_it
        self.cause: Cause | None = Cause.INSUFFICIENT_CAPACITY
        self.is_unasked = False
        self.facts = OwnerFacts()

    def plan(self, **more: str) -> dict[str, Placement]:
        _, made = plan("low", {"ns-low-0": "n0", "ns-low-1": "n1", **more})
        status = msgspec.structs.replace(made.status, complete=True)
        gang = Placing(self.cluster, SETTINGS).view().gang_of(self.left)
        return {gang.placement_key: msgspec.structs.replace(made, status=status)}

    def among(self, *pods: Pod) -> None:
        """These pods instead of the more important one."""
        self.cluster.pods = [self.left, self.recreated, *pods]

    def look(self, size: int | None = 2) -> list[str]:
        """The names of those that go, after so long that nothing is new."""
        self.once(size)
        self.clock.now += SETTINGS.broken_seconds
        return self.once(size)

    def once(self, size: int | None = 2) -> list[str]:
        view = replace(Placing(self.cluster, SETTINGS).view(), now=Moment(self.clock()))
        gangs = gather(view.gated, view.others, lambda _: replace(self.facts, size=size), view.gang_of)
        unasked = {gang.key for gang in gangs} if self.is_unasked else set()
        causes = {gang.key: self.cause for gang in gangs if self.cause}
        orders, self.since = evict_broken(
            view, gangs, causes, unasked, self.since, self.why_not, self.settings
        )
        assert all(order.for_others and order.may_run for order in orders.evictions)
        return [order.pod.metadata.name for order in orders.evictions]


@pytest.mark.promise("O194")
def test_what_is_left_is_deleted_once_it_has_been_so_for_some_time() -> None:
    gang = PartlyRunning()
    assert gang.once() == []
    gang.clock.now += SETTINGS.broken_seconds
    assert gang.once() == ["low-1"]


@pytest.mark.promise("O194")
def test_where_an_autoscaler_may_bring_a_node_it_is_left_for_ten_minutes() -> None:
    gang = PartlyRunning(settings=Settings(broken_seconds=30, scale_up=ScaleUp("check-capacity")))
    assert gang.once() == []
    gang.clock.now += 599
    assert gang.once() == []
    gang.clock.now += 1
    assert gang.once() == ["low-1"]


def test_it_is_deleted_also_where_the_one_that_took_the_place_is_gone_by_then() -> None:
    gang = PartlyRunning()
    assert gang.once() == []
    gang.cluster.pods.remove(gang.other)
    gang.clock.now += SETTINGS.broken_seconds
    assert gang.once() == ["low-1"]


@pytest.mark.promise("O194")
def test_a_gang_that_lost_its_pod_to_nobody_more_important_stays() -> None:
    assert PartlyRunning(priority=1).look() == []


def created(pod: Pod, at: str, *, started: str | None = None, phase: str = "Running") -> Pod:
    metadata = msgspec.structs.replace(pod.metadata, creation_timestamp=at)
    status = msgspec.structs.replace(pod.status, phase=phase, start_time=started)
    return msgspec.structs.replace(pod, metadata=metadata, status=status)


@pytest.mark.promise("O194")
@pytest.mark.parametrize(
    ("other", "expected"),
    [
        (("2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z", "Running"), []),
        (("2026-01-01T00:00:00Z", "2026-01-02T00:01:00Z", "Running"), ["low-1"]),
        (("2026-01-02T00:00:30Z", None, "Running"), ["low-1"]),
        (("2026-01-01T00:00:00Z", None, "Pending"), ["low-1"]),
    ],
    ids=["its neighbour for a day", "it has waited for a day", "its start is unknown", "it is to start"],
)
def test_a_more_important_pod_has_taken_its_place_if_it_started_when_the_pod_was_lost(
    other: tuple[str, str | None, str], expected: list[str]
) -> None:
    """A neighbour that has run beside the lost pod is none; a pod of the same priority may use its GPUs."""
    gang = PartlyRunning()
    gang.recreated = created(gang.recreated, "2026-01-02T00:05:00Z", phase="Pending")
    at, started, phase = other
    gang.among(created(gang.other, at, started=started, phase=phase))
    assert gang.look() == expected


@pytest.mark.parametrize("cause", [None, Cause.INCOMPLETE, Cause.CONTROLLER_BLOCKED, Cause.OTHER_GATE])
def test_a_gang_whose_new_pods_wait_for_another_reason_stays(cause: Cause | None) -> None:
    gang = PartlyRunning()
    gang.cause = cause
    assert gang.look() == []


def test_a_gang_that_this_pass_has_not_asked_about_stays_and_is_deleted_once_it_has_been() -> None:
    gang = PartlyRunning()
    gang.once()
    gang.clock.now += SETTINGS.broken_seconds
    gang.is_unasked = True
    assert gang.once() == []
    gang.is_unasked = False
    assert gang.once() == ["low-1"]


@pytest.mark.promise("O194")
@pytest.mark.parametrize(
    ("label", "expected"), [("ray.io/cluster", []), (marks.JOBSET_NAME_LABEL, ["low-1"])]
)
def test_only_a_gang_whose_controller_lets_the_others_run_is_left_to_it(
    label: str, expected: list[str]
) -> None:
    gang = PartlyRunning()
    metadata = {"labels": {label: "low"}}
    gang.left, gang.recreated = member("low", 1, "n1", metadata=metadata), member("low", 2, metadata=metadata)
    gang.among(gang.other)
    gang.cluster.placements = gang.plan()
    assert gang.look() == expected


@pytest.mark.promise("O194")
def test_a_gang_that_has_enough_stays() -> None:
    assert PartlyRunning().look(size=1) == []


def test_a_gang_that_never_ran_whole_is_not_broken() -> None:
    gang = PartlyRunning()
    ((key, made),) = gang.cluster.placements.items()
    gang.cluster.placements[key] = msgspec.structs.replace(
        made, status=msgspec.structs.replace(made.status, complete=False)
    )
    assert gang.look() == []


@pytest.mark.promise("O194")
def test_whose_job_would_fail_for_it_stays_and_gets_an_event() -> None:
    gang = PartlyRunning()
    gang.why_not = lambda pods, ordered=(): "its Job would fail"
    assert gang.look() == []


REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
CRITICAL = 2_000_001_000
DAEMON_SET = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent", "uid": "d", "controller": True}


def beside(name: str, *, owner: Mapping[str, Any] | None = None, namespace: str = "ns", gpus: int = 0) -> Pod:
    """A pod on n0 as important as any can be."""
    metadata = {"namespace": namespace, "uid": name, "ownerReferences": [owner] if owner else []}
    pin = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n0"]}]}
    affinity = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [pin]}}}
    return gpu_pod(name, gpus=gpus, node="n0", priority=CRITICAL, metadata=metadata, affinity=affinity)


@pytest.mark.promise("O194")
@pytest.mark.parametrize(
    "there",
    [
        beside("agent", owner=DAEMON_SET, gpus=1),
        beside("dns", namespace="kube-system", gpus=1),
        beside("exporter"),
    ],
    ids=["of a DaemonSet", "of the system", "that asks for no device"],
)
def test_a_gang_that_lost_its_pod_by_a_crash_stays_whatever_else_is_on_that_node(there: Pod) -> None:
    gang = PartlyRunning()
    gang.among(there)
    assert gang.look() == []


@pytest.mark.promise("O194")
def test_a_gang_that_lost_its_pod_by_a_drain_stays() -> None:
    gang = PartlyRunning()
    node = gang.cluster.nodes["n0"]
    gang.cluster.nodes["n0"] = msgspec.structs.replace(node, spec=NodeSpec(unschedulable=True))
    assert gang.look() == []


@pytest.mark.promise("O194")
def test_a_gang_near_its_end_stays_though_others_have_come_where_its_pods_have_succeeded() -> None:
    gang = PartlyRunning()
    gang.cluster.placements = gang.plan(**{"ns-low-8": "n2", "ns-low-9": "n2"})
    gang.cluster.pods.append(member("next", 0, "n2", priority=100))
    assert gang.look() == []


def of_jobset(index: int, job: int, node: str = "", number: str = "0") -> Pod:
    """A pod of the Job of this number of the JobSet low."""
    labels = {marks.JOBSET_NAME_LABEL: "low", marks.JOB_GLOBAL_INDEX: str(job), marks.JOB_INDEX_KEY: number}
    return member(
        "low", index, node, metadata={"labels": {key: text for key, text in labels.items() if text}}
    )


@pytest.mark.promise("O194")
@pytest.mark.parametrize(
    ("job", "number", "ended", "expected"),
    [(2, "0", 0, []), (2, "0", 1, []), (2, "", 1, []), (1, "0", 0, ["low-1"])],
    ids=["the status is behind", "the status says so", "without ranks", "it was lost itself"],
)
def test_a_driver_stays_whose_next_part_finds_no_place_once_the_part_before_it_has_completed(
    job: int, number: str, ended: int, expected: list[str]
) -> None:
    """Another pod has taken the place of a pod that completed."""
    waits = {"dependsOn": [{"name": "prepare", "status": "Complete"}]}
    jobs = [replicated("drive", 1, 1), replicated("prepare", 1, 1), replicated("train", 1, 2, **waits)]
    status = {"replicatedJobsStatus": [{"name": "prepare", "succeeded": ended}]}
    gang = PartlyRunning()
    gang.facts = facts_of([job_set_pods(read(JOBSET, {"replicatedJobs": jobs}, status, {}))])
    gang.left, gang.recreated = of_jobset(1, 0, "n1", number), of_jobset(2, job, number=number)
    gang.among(gang.other)
    gang.cluster.placements = gang.plan()
    ((key, made),) = gang.cluster.placements.items()
    ranks = {"ns-low-0": 1, "ns-low-1": 0} if number else {}
    entries = [msgspec.structs.replace(each, rank=ranks.get(each.uid)) for each in made.spec.pods]
    spec = msgspec.structs.replace(made.spec, pods=entries)
    gang.cluster.placements[key] = msgspec.structs.replace(made, spec=spec)
    assert gang.look(size=3) == expected


def test_what_is_left_is_deleted_though_some_of_it_are_yet_to_be_recreated_meanwhile() -> None:
    gang = PartlyRunning()
    assert gang.once() == []
    gang.clock.now += SETTINGS.broken_seconds
    whole = gang.cluster.placements
    gang.cluster.placements = gang.plan(**{"ns-low-9": "n2"})
    assert gang.once() == []
    gang.cluster.placements = whole
    assert gang.once() == ["low-1"]


def revised(pod: Pod, kind: str, uid: str, revision: str) -> Pod:
    """The pod as one that a controller has made by a revision of its template."""
    owner = OwnerReference("apps/v1", kind, "serve", uid, controller=True)
    labels = {**pod.metadata.labels, marks.REVISION_LABEL: revision}
    metadata = msgspec.structs.replace(pod.metadata, labels=labels, owner_references=[owner])
    return msgspec.structs.replace(pod, metadata=metadata)


@pytest.mark.promise("O194")
@pytest.mark.parametrize(
    ("kind", "recreated", "revision", "expected"),
    [
        ("StatefulSet", "s", "2", False),
        ("StatefulSet", "s", "1", True),
        ("StatefulSet", "t", "2", True),
        ("ReplicaSet", "t", "1", False),
        ("ReplicaSet", "s", "1", True),
    ],
)
def test_a_gang_whose_controller_is_updating_it_stays(
    kind: str, recreated: str, revision: str, expected: bool
) -> None:
    gang = PartlyRunning()
    gang.cluster.pods = [
        revised(gang.left, kind, "s", "1"),
        revised(gang.recreated, kind, recreated, revision),
        gang.other,
    ]
    assert (gang.look() == ["low-1"]) is expected


def test_a_gang_whose_new_pods_have_a_place_stays_whatever_was_reported_before() -> None:
    gang = PartlyRunning()
    gang.cluster.placements = gang.plan(**{"ns-low-2": "n2"})
    assert gang.look() == []
