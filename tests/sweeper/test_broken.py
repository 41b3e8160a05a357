"""What is left of a gang that others have preempted: when it goes, in memory."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from tests.sweeper.clock import Clock
from tests.sweeper.cluster import Nodes, Placing, gpu_pod
from tests.sweeper.preemptions import member, plan
from webhook.kube.objects import NodeSpec, OwnerReference, Pod
from webhook.kube.placements import Placement
from webhook.sweeper.decide.orders import Cause
from webhook.sweeper.extension_settings import ScaleUp
from webhook.sweeper.observe.gangs import OwnerFacts, gather
from webhook.sweeper.observe.view import Moment
from webhook.sweeper.repair.broken import BrokenSince, WhyNot, evict_broken
from webhook.sweeper.settings import Settings
from webhook.workloads import marks

SETTINGS = Settings(broken_seconds=30)


def nothing_against_it(pods: Sequence[Pod], ordered: Iterable[Pod] = ()) -> str:
    return ""


class Half:
    """The Job low, of two pods: one on n1, and one that was on n0 and has been made again."""

    def __init__(self, priority: int = 100, settings: Settings = SETTINGS) -> None:
        self.cluster = Nodes(3)
        self.left = member("low", 1, "n1")
        self.anew = member("low", 2)
        self.other = member("other", 0, "n0", priority=priority)
        self.cluster.pods = [self.left, self.anew, self.other]
        self.cluster.placements = self.plan()
        self.clock = Clock()
        self.settings = settings
        self.since: BrokenSince = {}
        self.why_not: WhyNot = nothing_against_it
        self.cause: Cause | None = Cause.NO_CAPACITY
        self.is_unasked = False

    def plan(self, **more: str) -> dict[str, Placement]:
        _, made = plan("low", {"ns-low-0": "n0", "ns-low-1": "n1", **more})
        status = msgspec.structs.replace(made.status, complete=True)
        gang = Placing(self.cluster, SETTINGS).view().gang_of(self.left)
        return {gang.placement_key: msgspec.structs.replace(made, status=status)}

    def among(self, *pods: Pod) -> None:
        """These pods instead of the more important one."""
        self.cluster.pods = [self.left, self.anew, *pods]

    def look(self, size: int | None = 2) -> list[str]:
        """The names of those that go, after so long that nothing is new."""
        self.once(size)
        self.clock.now += SETTINGS.broken_seconds
        return self.once(size)

    def once(self, size: int | None = 2) -> list[str]:
        view = replace(Placing(self.cluster, SETTINGS).view(), now=Moment(self.clock()))
        gangs = gather(view.gated, view.mates, lambda _: OwnerFacts(size=size), view.gang_of)
        unasked = {gang.key for gang in gangs} if self.is_unasked else set()
        causes = {gang.key: self.cause for gang in gangs if self.cause}
        orders, self.since = evict_broken(
            view, gangs, causes, unasked, self.since, self.why_not, self.settings
        )
        assert all(order.for_others and order.may_run for order in orders.evictions)
        return [order.pod.metadata.name for order in orders.evictions]


def test_what_is_left_goes_once_it_has_been_so_for_some_time() -> None:
    half = Half()
    assert half.once() == []
    half.clock.now += SETTINGS.broken_seconds
    assert half.once() == ["low-1"]


def test_where_an_autoscaler_may_bring_a_node_it_is_left_for_ten_minutes() -> None:
    half = Half(settings=Settings(broken_seconds=30, scale_up=ScaleUp("check-capacity")))
    assert half.once() == []
    half.clock.now += 599
    assert half.once() == []
    half.clock.now += 1
    assert half.once() == ["low-1"]


def test_it_goes_also_where_the_one_that_took_the_place_is_gone_by_then() -> None:
    half = Half()
    assert half.once() == []
    half.cluster.pods.remove(half.other)
    half.clock.now += SETTINGS.broken_seconds
    assert half.once() == ["low-1"]


def test_a_gang_that_lost_its_pod_to_nobody_more_important_stays() -> None:
    assert Half(priority=1).look() == []


@pytest.mark.parametrize("cause", [None, Cause.INCOMPLETE, Cause.HINDERED, Cause.OTHER_GATE])
def test_a_gang_whose_new_pods_wait_for_another_reason_stays(cause: Cause | None) -> None:
    half = Half()
    half.cause = cause
    assert half.look() == []


def test_a_gang_that_this_pass_has_not_asked_about_stays_and_goes_once_it_has_been() -> None:
    half = Half()
    half.once()
    half.clock.now += SETTINGS.broken_seconds
    half.is_unasked = True
    assert half.once() == []
    half.is_unasked = False
    assert half.once() == ["low-1"]


@pytest.mark.parametrize(("label", "goes"), [("ray.io/cluster", []), (marks.JOBSET_NAME_LABEL, ["low-1"])])
def test_only_a_gang_whose_controller_lets_the_others_go_on_is_left_to_it(
    label: str, goes: list[str]
) -> None:
    half = Half()
    metadata = {"labels": {label: "low"}}
    half.left, half.anew = member("low", 1, "n1", metadata=metadata), member("low", 2, metadata=metadata)
    half.among(half.other)
    half.cluster.placements = half.plan()
    assert half.look() == goes


def test_a_gang_that_has_enough_stays() -> None:
    assert Half().look(size=1) == []


def test_a_gang_that_never_ran_whole_is_not_broken() -> None:
    half = Half()
    ((key, made),) = half.cluster.placements.items()
    half.cluster.placements[key] = msgspec.structs.replace(
        made, status=msgspec.structs.replace(made.status, complete=False)
    )
    assert half.look() == []


def test_whose_job_would_fail_for_it_stays_and_is_told() -> None:
    half = Half()
    half.why_not = lambda pods, ordered=(): "its Job would fail"
    assert half.look() == []


REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
CRITICAL = 2_000_001_000
DAEMON_SET = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent", "uid": "d", "controller": True}


def beside(name: str, *, owner: Mapping[str, Any] | None = None, namespace: str = "ns", gpus: int = 0) -> Pod:
    """A pod on n0 as important as any can be."""
    metadata = {"namespace": namespace, "uid": name, "ownerReferences": [owner] if owner else []}
    pin = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n0"]}]}
    affinity = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [pin]}}}
    return gpu_pod(name, gpus=gpus, node="n0", priority=CRITICAL, metadata=metadata, affinity=affinity)


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
    half = Half()
    half.among(there)
    assert half.look() == []


def test_a_gang_that_lost_its_pod_by_a_drain_stays() -> None:
    half = Half()
    node = half.cluster.nodes["n0"]
    half.cluster.nodes["n0"] = msgspec.structs.replace(node, spec=NodeSpec(unschedulable=True))
    assert half.look() == []


def test_a_gang_near_its_end_stays_though_others_have_come_where_its_pods_have_succeeded() -> None:
    half = Half()
    half.cluster.placements = half.plan(**{"ns-low-8": "n2", "ns-low-9": "n2"})
    half.cluster.pods.append(member("next", 0, "n2", priority=100))
    assert half.look() == []


def test_what_is_left_goes_though_some_of_it_are_yet_to_be_made_again_meanwhile() -> None:
    half = Half()
    assert half.once() == []
    half.clock.now += SETTINGS.broken_seconds
    whole = half.cluster.placements
    half.cluster.placements = half.plan(**{"ns-low-9": "n2"})
    assert half.once() == []
    half.cluster.placements = whole
    assert half.once() == ["low-1"]


def revised(pod: Pod, kind: str, uid: str, revision: str) -> Pod:
    """The pod as one that a controller has made by a revision of its template."""
    owner = OwnerReference("apps/v1", kind, "serve", uid, controller=True)
    labels = {**pod.metadata.labels, marks.REVISION_LABEL: revision}
    metadata = msgspec.structs.replace(pod.metadata, labels=labels, owner_references=[owner])
    return msgspec.structs.replace(pod, metadata=metadata)


@pytest.mark.parametrize(
    ("kind", "anew", "revision", "goes"),
    [
        ("StatefulSet", "s", "2", False),
        ("StatefulSet", "s", "1", True),
        ("StatefulSet", "t", "2", True),
        ("ReplicaSet", "t", "1", False),
        ("ReplicaSet", "s", "1", True),
    ],
)
def test_a_gang_whose_controller_is_updating_it_stays(
    kind: str, anew: str, revision: str, goes: bool
) -> None:
    half = Half()
    half.cluster.pods = [
        revised(half.left, kind, "s", "1"),
        revised(half.anew, kind, anew, revision),
        half.other,
    ]
    assert (half.look() == ["low-1"]) is goes


def test_a_gang_whose_new_pods_have_a_place_stays_whatever_was_said_before() -> None:
    half = Half()
    half.cluster.placements = half.plan(**{"ns-low-2": "n2"})
    assert half.look() == []
