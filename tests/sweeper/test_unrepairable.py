"""Released pods that will not run and that nobody makes again: what they keep from others, and how long."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from tests.sweeper.cluster import Nodes, Placing, gpu_pod, places
from tests.sweeper.pods import decode, pod_json
from tests.sweeper.repairs import ABANDON, BIND, GANG, SETTINGS, Repairs, job_with
from webhook.configuration.settings import Settings
from webhook.kube.objects import Node, Pod
from webhook.sweeper.decide.orders import Done
from webhook.sweeper.repair.allowance import Allowance
from webhook.sweeper.repair.repair import STAYS_SECONDS, Repaired

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
TERM = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n0"]}]}
PINNED = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [TERM]}}}


def released(
    name: str,
    *,
    tried: bool = True,
    scheduler: str = "default-scheduler",
    gang: str = "",
    owner: dict[str, Any] | None = None,
) -> Pod:
    """A pod that was sent to n1 and is not bound, bare unless it has an owner."""
    metadata: dict[str, Any] = {"annotations": {"topogate.io/gang": gang}} if gang else {}
    metadata |= {"ownerReferences": [owner]} if owner is not None else {}
    terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}]
    affinity = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}}
    body = pod_json(name, schedulingGates=[], affinity=affinity, schedulerName=scheduler, metadata=metadata)
    reason = "Unschedulable" if tried else ""
    body["status"]["conditions"] = [{"type": "PodScheduled", "status": "False", "reason": reason}]
    return decode(body)


def after(seconds: float, *pods: Pod) -> Repaired:
    """What is made of these pods when nothing has changed for so long."""
    repairs = Repairs(*pods)
    repairs.at(0.0)
    return repairs.at(seconds)


@pytest.mark.parametrize(
    ("pods", "unrepairable"),
    [
        ([released("a", tried=False)], False),
        ([released("a", tried=False), released("b", tried=False)], False),
        ([released("a", tried=False), released("b")], True),
        ([released("a", tried=False, scheduler="nobody")], True),
    ],
    ids=[
        "alone",
        "its scheduler is away",
        "its scheduler has tried another",
        "its scheduler is none of ours",
    ],
)
def test_a_pod_that_no_scheduler_schedules_loses_its_position_unless_all_wait_for_that_scheduler(
    pods: list[Pod], unrepairable: bool
) -> None:
    repaired = after(BIND, *pods)
    assert ("uid-a" in repaired.unrepairable) is unrepairable
    assert repaired.stuck.nodes == {"n1"}, "others go elsewhere in any case"


@pytest.mark.promise("R250")
def test_a_pod_that_is_not_tried_for_a_known_reason_is_reported_and_then_deleted() -> None:
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "job", "controller": True}
    repairs = Repairs(released("a", tried=False, owner=owner))
    repairs.view = replace(repairs.view, why_not_tried={"uid-a": "its PodGroup g is missing"})
    repairs.at(0.0)
    orders = repairs.at(BIND).orders
    assert not orders.evictions
    assert [each.note for each in orders.warnings] == ["no scheduler has tried it: its PodGroup g is missing"]
    repaired = repairs.at(3 * BIND)
    assert [each.pod.metadata.name for each in repaired.orders.evictions] == ["a"]
    assert not repaired.refusing, "its node is not to blame"


@pytest.mark.promise("O94", "I35")
def test_a_pod_that_cannot_be_bound_is_deleted_in_the_end_though_no_controller_recreates_it() -> None:
    before = after(ABANDON - 1, released("a"))
    assert not before.orders.evictions
    assert before.unrepairable == {"uid-a"}
    orders = after(ABANDON, released("a")).orders
    assert [(each.pod.metadata.name, each.cause) for each in orders.evictions] == [("a", "abandoned")]


@pytest.mark.promise("O94")
@pytest.mark.parametrize(
    "others",
    [
        [gpu_pod("running", node="n1", metadata=GANG)],
        [released("untried", tried=False, gang="g")],
    ],
    ids=["one of its gang runs", "it is the scheduler that is away"],
)
def test_nothing_that_may_still_help_a_running_gang_is_deleted_so(others: list[Pod]) -> None:
    tried = [released("a", gang="g")] if others[0].status.phase == "Running" else []
    assert not after(ABANDON, *tried, *others).orders.evictions


def node(**spec: Any) -> dict[str, Node]:
    ready = {"conditions": [{"type": "Ready", "status": "True"}]}
    return {"n1": msgspec.convert({"metadata": {"name": "n1"}, "spec": spec, "status": ready}, Node)}


TAINTED = node(taints=[{"key": "k", "value": "v", "effect": "NoSchedule"}])
CORDONED = node(taints=[{"key": "k", "value": "v", "effect": "NoSchedule"}], unschedulable=True)


@pytest.mark.promise("O94", "I35")
@pytest.mark.parametrize(
    ("nodes", "deleted"), [(TAINTED, ["a"]), (CORDONED, [])], ids=["accepts others", "accepts nobody"]
)
def test_a_pod_that_nobody_recreates_is_deleted_from_a_node_that_accepts_others_but_not_it(
    nodes: dict[str, Node], deleted: list[str]
) -> None:
    repairs = Repairs(released("a"))
    repairs.view = replace(repairs.view, nodes=nodes)
    repairs.at(0.0)
    assert not repairs.at(ABANDON - 1).orders.evictions
    assert [each.pod.metadata.name for each in repairs.at(ABANDON).orders.evictions] == deleted


@pytest.mark.promise("O94")
def test_a_taint_that_outlasts_the_cordon_of_its_node_for_a_moment_deletes_nothing() -> None:
    repairs = Repairs(released("a"))
    for second, nodes in ((0, CORDONED), (ABANDON, TAINTED), (ABANDON + 5, node())):
        repairs.view = replace(repairs.view, nodes=nodes)
        assert not repairs.at(second).orders.evictions


@pytest.mark.promise("O90", "O94")
@pytest.mark.parametrize(("failures_left", "deleted"), [(0, []), (1, ["a"])])
def test_a_pod_of_a_job_that_would_fail_by_its_deletion_is_never_deleted(
    failures_left: int, deleted: list[str]
) -> None:
    job = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "j", "controller": True}
    repairs = Repairs(released("a", owner=job))
    repairs.allowance = Allowance(SETTINGS, job_with(failures_left))
    repairs.at(0.0)
    orders = repairs.at(10 * ABANDON).orders
    assert [each.pod.metadata.name for each in orders.evictions] == deleted
    assert ["backoffLimit" in each.note for each in orders.warnings] == ([] if deleted else [True])


EVICTED, DENIED, PUT_OFF = "evicted", "denied", "put off"


def deleting(*outcomes: str, at: Iterable[float]) -> list[tuple[set[str], set[str], int]]:
    """Which positions are given away, on which nodes, and how much is reported, when a lasting pod is
    there still at these times, after its deletion came to these outcomes.
    """
    repairs = Repairs(released("a"))
    repairs.at(0.0)
    seen = []
    for outcome, seconds in zip(outcomes, at, strict=True):
        repaired = repairs.at(seconds)
        orders = repaired.orders
        assert len(orders.evictions) == 1, "it is tried again"
        seen.append((set(repaired.unrepairable), set(repaired.stuck.nodes), len(orders.warnings)))
        done = {
            EVICTED: Done(evicted=orders.evictions),
            DENIED: Done(denied=orders.evictions),
            PUT_OFF: Done(deferred=orders.evictions),
        }
        repairs.on_result(done[outcome], seconds)
    return seen


@pytest.mark.promise("O96")
@pytest.mark.parametrize(("outcome", "reported"), [(EVICTED, 1), (DENIED, 1), (PUT_OFF, 0)])
def test_a_pod_whose_deletion_does_not_come_about_blocks_nobody_on_its_node(
    outcome: str, reported: int
) -> None:
    """As one that its author writes all the time, or makes look like a DaemonSet's.

    Deletions that an overloaded API server defers are not reported as impossible.
    """
    seen = deleting(*[outcome] * 3, at=(ABANDON, ABANDON + STAYS_SECONDS - 1, ABANDON + STAYS_SECONDS))
    assert seen == [(set(), set(), 0), (set(), set(), 0), ({"uid-a"}, {"n1"}, reported)]


@pytest.mark.promise("O96")
def test_a_deletion_is_called_undeletable_some_time_after_the_api_server_had_time_for_it() -> None:
    answered = ABANDON + 100
    times = (ABANDON, answered, answered + STAYS_SECONDS - 1, answered + STAYS_SECONDS)
    seen = deleting(PUT_OFF, *[DENIED] * 3, at=times)
    assert [reported for *_, reported in seen] == [0, 0, 0, 1]


# --- who is never preempted --------------------------------------------------------------------------


@pytest.mark.promise("S4")
@pytest.mark.parametrize(
    ("version", "kind", "spec", "is_victim"),
    [
        ("apps/v1", "DaemonSet", {"affinity": PINNED}, False),
        ("apps/v1", "DaemonSet", {}, True),
        ("none.example/v1", "DaemonSet", {"affinity": PINNED}, True),
        ("v1", "Node", {}, True),
    ],
)
def test_a_pod_that_only_claims_to_be_a_static_pod_is_a_victim_as_others_are(
    version: str, kind: str, spec: dict[str, Any], is_victim: bool
) -> None:
    owner = {"apiVersion": version, "kind": kind, "name": "n0", "uid": "u", "controller": True}
    running = gpu_pod("low", node="n0", metadata={"ownerReferences": [owner]}, priority=1, **spec)
    case = Placing(Nodes(1, running, gpu_pod("high", priority=100)), Settings())
    assert places(case.one()) == ({"high": "n0"} if is_victim else {})


def test_a_mirror_pod_is_nobody_s_victim() -> None:
    owner = {"apiVersion": "v1", "kind": "Node", "name": "n0", "uid": "u", "controller": True}
    metadata = {"ownerReferences": [owner], "annotations": {"kubernetes.io/config.mirror": "hash"}}
    running = gpu_pod("low", node="n0", metadata=metadata, priority=1)
    case = Placing(Nodes(1, running, gpu_pod("high", priority=100)), Settings())
    assert places(case.one()) == {}


@pytest.mark.promise("S14")
@pytest.mark.parametrize(
    ("where", "is_victim"), [("ns", True), ("topogate-system", False), ("kube-system", False)]
)
def test_a_pod_of_a_protected_namespace_is_nobody_s_victim_whatever_its_class(
    where: str, is_victim: bool
) -> None:
    running = gpu_pod("low", node="n0", metadata={"namespace": where}, priority=1)
    case = Placing(
        Nodes(1, running, gpu_pod("high", priority=100)),
        Settings(excluded_namespaces=frozenset({"topogate-system"})),
    )
    assert places(case.one()) == ({"high": "n0"} if is_victim else {})
