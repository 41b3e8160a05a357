"""A gang that is evicted and created again is placed as well as it can be once its former pods are gone."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec
import pytest

from hack.local.cluster import Cluster
from labeler.contract import keys
from tests.support import wait_for_pods
from tests.sweeper.at_work import Pods, create_job, run_all, sweep, template
from tests.sweeper.cluster import Nodes, Placing, gpu_pod, places
from tests.sweeper.moves import Scattered, with_limits
from tests.sweeper.pods import job_pod
from tests.sweeper.preemptions import member as in_job
from webhook.configuration.settings import Settings
from webhook.kube import placements
from webhook.kube.client import MERGE_PATCH
from webhook.kube.objects import Pod
from webhook.sweeper.decide.orders import Cause
from webhook.sweeper.observe.gangs import OwnerFacts
from webhook.sweeper.observe.view import Moment, View
from webhook.workloads import marks

NOW: Final = datetime(2026, 1, 1, tzinfo=UTC)
SIZE: Final = 9


def member(number: int, attempt: int, node: str = "", ends_in: float | None = None) -> Pod:
    """A pod of a Job, by its attempt: gated, on a node, or deleted there."""
    base = job_pod(number)
    metadata = msgspec.to_builtins(base.metadata) | {
        "name": f"train-{number}-{attempt}",
        "uid": f"{attempt}-{number}",
    }
    if ends_in is not None:
        metadata["deletionTimestamp"] = f"{NOW + timedelta(seconds=ends_in):%Y-%m-%dT%H:%M:%SZ}"
    return gpu_pod(f"train-{number}-{attempt}", node=node, metadata=metadata)


class Requeue(Placing):
    """A Job of nine pods that ran in block b0 and is created again; of block b1 only a subblock is free.

    Each block has two subblocks of five nodes. ended: how many of the former pods are gone. ends_in: seconds
    until the grace period of the others ends.
    """

    def __init__(self, ended: int, ends_in: float) -> None:
        former = [member(number, 0, f"n{number}", ends_in) for number in range(ended, SIZE)]
        other = [gpu_pod(f"f{n}", node=f"n{n}") for n in range(15, 20)]
        new = [member(number, 1) for number in range(SIZE)]
        super().__init__(Nodes(20, *former, *other, *new), Settings(settle_seconds=0, reserve_seconds=0))
        for number in range(20):
            block = f"b{number // 10}"
            values = (block, f"{block}-{number // 5}", f"h{number}")
            self.cluster.label(f"n{number}", dict(zip(keys.PRERELEASE_TOPOLOGY, values, strict=True)))
        self.owner_facts = lambda _: OwnerFacts(SIZE)
        self.passed = 0.0

    def view(self) -> View:
        return self.snapshotter.view(Moment(self.passed, NOW + timedelta(seconds=self.passed)))

    def end(self) -> None:
        """All former pods are gone."""
        self.cluster.pods = [pod for pod in self.cluster.pods if not pod.metadata.deletion_timestamp]


def blocks(found: dict[str, str]) -> set[int]:
    return {int(node[1:]) // 10 for node in found.values()}


@pytest.mark.promise("R351")
@pytest.mark.parametrize("ended", range(SIZE + 1))
def test_a_recreated_gang_uses_as_few_domains_as_once_its_former_pods_are_gone(ended: int) -> None:
    """However many have ended by now: with four, nine nodes are free, and lie in two blocks."""
    case = Requeue(ended, ends_in=30)
    first = places(case.one())
    if not first:
        case.end()
        first = places(case.one())
    assert len(first) == SIZE
    assert blocks(first) == {0}
    assert len({int(node[1:]) // 5 for node in first.values()}) == 2


def test_the_reason_names_its_ending_pods_and_a_pass_is_due_when_they_end() -> None:
    orders = Requeue(4, ends_in=30).one()
    (outcome,) = orders.outcomes
    assert outcome.cause is Cause.INCOMPLETE
    assert (
        outcome.reason == "5 pods of it are about to end, on whose nodes it will use fewer topology domains"
    )
    assert orders.due_seconds == 30


@pytest.mark.promise("R351")
@pytest.mark.parametrize("ends_in", [-1, 0, 61, 3600])
def test_it_waits_for_no_pod_that_should_have_ended_or_takes_longer_than_a_minute(ends_in: float) -> None:
    assert len(places(Requeue(4, ends_in).one())) == SIZE


def test_it_waits_no_longer_than_their_grace_period() -> None:
    case = Requeue(4, ends_in=30)
    assert not places(case.one())
    case.passed = 30
    assert len(places(case.one())) == SIZE


@pytest.mark.promise("R351")
def test_a_gang_after_it_gets_none_of_the_place_that_it_has_found() -> None:
    case = Requeue(4, ends_in=30)
    later = {"creationTimestamp": "2026-01-02T00:00:00Z"}
    case.cluster.pods += [gpu_pod(f"late-{number}", metadata=later) for number in range(3)]
    assert len(places(case.one())) == 1, "ten nodes are free, of which it needs nine"


def test_it_waits_for_no_pod_that_leaves_it_no_better_place() -> None:
    case = Requeue(4, ends_in=30)
    for name in ("n8", "n9"):
        node = msgspec.to_builtins(case.cluster.nodes[name])
        node["spec"] = {"unschedulable": True}
        case.cluster.nodes[name] = msgspec.convert(node, type(case.cluster.nodes[name]))
    assert blocks(places(case.one())) == {0, 1}


def recreated(ends_in: float, settings: Settings) -> Scattered:
    """A gang asks for a block again, and has a former pod in one; another gang is in the other.

    Each block has a free node more. ends_in: seconds until the grace period of the former pod ends.
    """
    made = Scattered(2, 2, settings=settings)
    made.runs("other", "n2")
    made.waits("large", 2, again=1, priority=100)
    ends = f"{datetime.now(UTC) + timedelta(seconds=ends_in):%Y-%m-%dT%H:%M:%SZ}"
    made.cluster.pods.append(in_job("large", 0, "n0", priority=100, metadata={"deletionTimestamp": ends}))
    return made


WITH_MOVES: Final = replace(with_limits(after_seconds=0), preempt=False)


@pytest.mark.promise("R351")
@pytest.mark.parametrize("settings", [Settings(), WITH_MOVES], ids=["preempted", "moved"])
def test_no_gang_is_evicted_or_moved_for_one_that_fits_once_its_former_pods_are_gone(
    settings: Settings,
) -> None:
    made = recreated(50, settings)
    orders = made.one()
    assert places(orders) == {}
    assert made.reason(orders, "large") == "1 pod of it is about to end, on whose nodes it will fit"
    assert 0 < orders.due_seconds <= 50
    made.cluster.pods.pop()
    assert set(places(made.one()).values()) == {"n0", "n1"}


@pytest.mark.promise("R351")
@pytest.mark.parametrize("settings", [Settings(), WITH_MOVES], ids=["preempted", "moved"])
@pytest.mark.parametrize("ends_in", [-1, 3600])
def test_others_are_evicted_or_moved_for_a_gang_whose_former_pods_do_not_end_soon(
    ends_in: float, settings: Settings
) -> None:
    (plan,) = recreated(ends_in, settings).one().plans
    assert [group.pods for group in plan.victims] == [["ns-other-0"]]


def test_a_gang_after_it_gets_none_of_the_place_that_its_former_pods_complete() -> None:
    made = recreated(50, Settings())
    late = [gpu_pod(f"late-{number}", priority=1) for number in range(2)]
    made.cluster.pods += late
    assert set(places(made.one()).values()) == {"n3"}


# --- at work ------------------------------------------------------------------------------------------


def nodes_by_index(pods: Pods) -> dict[int, str]:
    """The node of each completion index."""
    return {int(pod["metadata"]["labels"][marks.JOB_INDEX_KEY]): pod["spec"]["nodeName"] for pod in pods}


def uids(pods: Pods) -> set[str]:
    return {pod["metadata"]["uid"] for pod in pods}


def test_an_indexed_job_that_is_requeued_and_then_loses_pods_runs_by_its_indexes_each_time(
    two_subblocks: Cluster, namespace: str
) -> None:
    """A queue suspends and resumes it: all of its pods are created again, with the same indexes."""
    api, plans = two_subblocks.api(), placements.path(namespace)
    job = f"/apis/batch/v1/namespaces/{namespace}/jobs/train"
    former: set[str] = set()

    def run_again(pods: Pods) -> bool:
        return run_all(pods, "train", 12) and former.isdisjoint(uids(pods))

    create_job(api, namespace, "train", 12, template(4))
    for is_requeued in (False, True):
        pods = sweep(two_subblocks, namespace, Settings(), run_again, "the gang to run")
        nodes = nodes_by_index(pods)
        assert nodes.keys() == set(range(12))
        assert [nodes[index] == nodes[index + 1] for index in range(0, 12, 2)] == [True] * 6
        subblocks = [nodes[index].rpartition("-")[0] for index in range(12)]
        assert (len({*subblocks[:6]}), len({*subblocks[6:]}), len({*subblocks})) == (1, 1, 2)
        (placement,) = api.json("GET", plans)["items"]
        planned = {entry["uid"]: entry["node"] for entry in placement["spec"]["pods"]}
        assert planned == {pod["metadata"]["uid"]: pod["spec"]["nodeName"] for pod in pods}
        former = uids(pods)
        if not is_requeued:
            api.request("PATCH", job, body={"spec": {"suspend": True}}, content_type=MERGE_PATCH)
            wait_for_pods(two_subblocks, namespace, lambda found: not found, "the end of its pods")
            api.request("PATCH", job, body={"spec": {"suspend": False}}, content_type=MERGE_PATCH)
    lost = [pod for pod in pods if pod["metadata"]["labels"][marks.JOB_INDEX_KEY] in ("3", "4")]
    former = uids(lost)
    for pod in lost:
        eviction = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod["metadata"]["name"]},
        }
        path = f"/api/v1/namespaces/{namespace}/pods/{pod['metadata']['name']}/eviction"
        api.request("POST", path, body=eviction)
    again = sweep(two_subblocks, namespace, Settings(), run_again, "the two to run again")
    assert nodes_by_index(again) == nodes
