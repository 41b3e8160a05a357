"""What becomes of a gang one of whose pods a kubelet has refused: the next one is placed elsewhere."""

from typing import Any

import pytest

from hack.local.faults import refused
from labeler.contract import keys
from tests.extensions.node_health.failing import clock_time, ended, node
from tests.extensions.node_health.placing import HealthPlacing, observed
from tests.support import work_of
from tests.sweeper.cluster import Nodes, gpu_pod, places
from tests.sweeper.pods import gather_all
from webhook.extensions.node_health.failing_nodes import FailingNodes
from webhook.extensions.node_health.node_health import HealthMemory, excluded
from webhook.extensions.node_health.pod_failures import (
    MOST,
    NodeRefusal,
    Refusals,
    failure_of,
    refusal_of,
    seconds_of,
)
from webhook.kube.objects import Pod
from webhook.scheduling.gpus import Counting
from webhook.sweeper.decide.node_exclusions import Exclusions
from webhook.sweeper.observe.view import View
from webhook.sweeper.settings import Settings

SETTINGS = Settings(settle_seconds=0)
GANG: dict[str, Any] = {"annotations": {keys.GANG_ANNOTATION: "train", keys.GANG_SIZE_ANNOTATION: "1"}}
NOW = float(seconds_of(clock_time(3000)) or 0)

EMPTY = View([], [], {}, {})

NO_CAPACITY = "Node didn't have enough resource: {}, requested: 8, used: 8, capacity: 8"
REASONS = {
    "UnexpectedAdmissionError": "Allocate failed due to requested number of devices unavailable",
    "TopologyAffinityError": "Resources cannot be allocated with Topology locality",
    "SMTAlignmentError": "SMT Alignment Error: requested 3 cpus not multiple cpus per core = 2",
    "EmptyPodSharedPoolError": "the pod's shared pool is empty",
    "OutOfcpu": NO_CAPACITY.format("cpu"),
    "OutOfmemory": NO_CAPACITY.format("memory"),
    "OutOfephemeral-storage": NO_CAPACITY.format("ephemeral-storage"),
    "OutOfpods": NO_CAPACITY.format("pods"),
    "OutOfnvidia.com/gpu": NO_CAPACITY.format("nvidia.com/gpu"),
    "NodeName": "Predicate NodeName failed: node(s) didn't match the requested node name",
    "NodePorts": "Predicate NodePorts failed: node(s) didn't have free ports",
    "NodeAffinity": "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector",
    "TaintToleration": "Predicate TaintToleration failed: node(s) had taints that the pod didn't tolerate",
    "Evicted": "The node had condition: [DiskPressure]. ",
    "NodeShutdown": "Pod was rejected as the node is shutting down.",
    "SysctlForbidden": 'forbidden sysctl: "kernel.msgmax" not allowlisted',
    "AppArmor": "Cannot enforce AppArmor: AppArmor is not enabled on the host",
    "PodOSSelectorNodeLabelDoesNotMatch": "Failed to admit pod as the `kubernetes.io/os` label doesn't match",
    "PodOSNotSupported": "Failed to admit pod as the OS field doesn't match node OS",
    "SupplementalGroupsPolicyNotSupported": "SupplementalGroupsPolicy=Strict is not supported in this node",
    "PodLevelResourcesNotSupported": "PodLevelResources feature gate is disabled",
    "PodFeatureUnsupported": "Pod requires node features that are not available: x",
    "InvalidNodeInfo": "Kubelet cannot get node info.",
    "UnknownReason": "GeneralPredicates failed due to unknown reason, which is unexpected.",
    "UnexpectedPredicateFailureType": "GeneralPredicates failed due to x, which is unexpected.",
    "VolumeAttachmentLimitExceeded": "volume attachment limit exceeded",
}
"""What kubelet 1.36 gives as reason and message: its lifecycle, eviction, sysctl, AppArmor and shutdown
handlers, the CPU, memory, device and topology managers, and the volume manager."""


def gone(reason: str, on: str, name: str = "old", **status: Any) -> Pod:
    """A pod of the gang that was refused on a node."""
    refusal = refused(reason, REASONS[reason]) | {"containerStatuses": [], "startTime": clock_time(10)}
    return ended(name, on, status=refusal | status, **GANG)


def after(pods: list[Pod], *failed: Pod, count: int = 3) -> dict[str, str]:
    """Where the pods go that wait on so many nodes, after these have failed."""
    case = HealthPlacing(Nodes(count, *pods), SETTINGS)
    case.observe(NOW, *failed)
    return places(case.one())


@pytest.mark.parametrize("reason", REASONS)
def test_after_a_refusal_for_whatever_reason_the_next_pod_is_placed_elsewhere_while_other_nodes_are_free(
    reason: str,
) -> None:
    next_one = gpu_pod("new", metadata=GANG)
    assert after([next_one]) == {"new": "n0"}
    assert after([next_one], gone(reason, "n0")) == {"new": "n1"}
    assert after([next_one, gpu_pod("a", node="n1")], gone(reason, "n0"), count=2) == {"new": "n0"}


def test_each_node_that_refused_some_of_a_gang_is_avoided_though_they_were_refused_at_once() -> None:
    failed = [gone("TopologyAffinityError", f"n{number}", f"old-{number}") for number in range(4)]
    assert after([gpu_pod("new", metadata=GANG)], *failed, count=5) == {"new": "n4"}


def test_other_gangs_are_placed_there_all_the_same() -> None:
    assert after([gpu_pod("other")], gone("TopologyAffinityError", "n0")) == {"other": "n0"}


def test_its_plan_has_where_it_was_refused_and_why() -> None:
    case = HealthPlacing(Nodes(2, gpu_pod("new", metadata=GANG)), SETTINGS)
    case.observe(NOW, gone("OutOfnvidia.com/gpu", "n0"))
    (plan,) = case.one().plans
    assert plan.avoided == {"n0": "the kubelet refused a pod of this gang there: OutOfnvidia.com/gpu"}


def avoided(memory: HealthMemory) -> Exclusions:
    """What the next pod of the gang avoids."""
    (gang,) = gather_all(gpu_pod("new", metadata=GANG))
    return excluded([gang], SETTINGS, memory).of(gang.key)


@pytest.mark.parametrize("seconds", [3599, 3600])
def test_a_refusal_counts_for_as_long_as_any_failure(seconds: int) -> None:
    view = View([], [], {"n0": node("n0")}, {})
    memory = observed(view, SETTINGS, HealthMemory(), NOW, gone("TopologyAffinityError", "n0"))
    memory = observed(view, SETTINGS, memory, float(seconds_of(clock_time(10)) or 0) + seconds)
    assert bool(avoided(memory)) is (seconds < 3600)


@pytest.mark.parametrize("at", [5, 15])
def test_failures_that_an_operator_has_reset_count_no_more(at: int) -> None:
    annotations = {keys.FORGIVE_FAILURES_ANNOTATION: clock_time(at)}
    view = View([], [], {"n0": node("n0", annotations=annotations)}, {})
    memory = observed(view, SETTINGS, HealthMemory(), NOW, gone("OutOfcpu", "n0"))
    assert bool(avoided(memory)) is (at < 10)


def test_a_refusal_counts_against_the_node_for_nobody_else() -> None:
    """Others may have been quicker, or the node may serve other pods."""
    pod = gone("TopologyAffinityError", "n0")
    health = observed(View([], [], {"n0": node("n0")}, {}), SETTINGS, HealthMemory(), NOW, pod)
    assert health.failures == ()
    assert health.failing_nodes == FailingNodes()
    assert failure_of(pod, Counting(("nvidia.com/gpu",)), 600, NOW, EMPTY.maker_of) is None


@pytest.mark.parametrize(
    "status",
    [
        {"reason": "Evicted", "message": "The node was low on resource: memory. "},
        {"reason": "Terminated", "message": "Pod was terminated in response to imminent node shutdown."},
        {"reason": "DeadlineExceeded", "message": "Pod was active on the node longer than the deadline"},
        {"reason": "Preempting", "message": "Preempted in order to admit critical pod"},
        {"message": "Pod was rejected: x", "phase": "Running"},
    ],
    ids=["evicted", "shut down", "too late", "preempted", "runs"],
)
def test_what_a_kubelet_ends_later_was_not_refused(status: dict[str, Any]) -> None:
    pod = ended("old", "n0", status={"phase": "Failed", **status}, **GANG)
    assert refusal_of(pod, NOW, EMPTY.maker_of) is None


def test_what_is_remembered_is_bounded_and_who_has_most_loses_the_oldest_first() -> None:
    refusals = Refusals().with_more([NodeRefusal("few", "g", "n0", 0, "x")], 0, 10)
    many = [NodeRefusal("many", f"g{number}", "n0", number, "x") for number in range(MOST)]
    refusals = refusals.with_more(many, MOST, 1e9)
    assert refusals.of("few", ["g"])
    assert not refusals.of("many", ["g0"])
    assert refusals.of("many", ["g1"])


def test_four_times_as_many_refusals_at_once_cost_about_four_times_as_much() -> None:
    def work(count: int) -> int:
        made = [NodeRefusal("many", f"g{number}", "n0", number, "x") for number in range(count)]
        return work_of(lambda: Refusals().with_more(made, 1, 1e9))

    assert work(10_000) < 8 * work(2_500), "by the square it would be sixteen times"


def test_a_node_whose_clock_is_fast_is_avoided_no_longer_than_others() -> None:
    pod = gone("OutOfcpu", "n0")
    refusal = refusal_of(pod, NOW - 1e6, EMPTY.maker_of)
    assert refusal is not None
    assert refusal.at == NOW - 1e6
