"""What becomes of a gang one of whose pods a kubelet has refused: the next one is placed elsewhere."""

from collections.abc import Iterable
from typing import Any

import msgspec
import pytest

from labeler.contract import keys
from tests.broken_nodes import refused
from tests.extensions.node_health.failing import clock_time, ended, node
from tests.support import work_of
from tests.sweeper.cluster import Nodes, Placing, gpu_pod, places
from tests.sweeper.pods import gather_all
from webhook.configuration.settings import Avoid, BadNodes, Settings
from webhook.kube.objects import Node, Pod
from webhook.kube.times import since_1970
from webhook.placement import Topology
from webhook.sweeper.decide.kubelet_refusals import MOST, NONE_REFUSED, KubeletRefusals, refused_at
from webhook.sweeper.decide.node_rules import NodeRules
from webhook.sweeper.decide.plan import with_valid_plans
from webhook.sweeper.decide.refusing_nodes import AVOID_SECONDS, RefusingNodes
from webhook.sweeper.decide.release_queue import SentReleases
from webhook.sweeper.observe.gangs import PodGang
from webhook.sweeper.observe.view import View

SETTINGS = Settings(settle_seconds=0, bad_nodes=BadNodes(avoid=Avoid.OFF))
GANG: dict[str, Any] = {"annotations": {keys.GANG_ANNOTATION: "train", keys.GANG_SIZE_ANNOTATION: "1"}}


def seconds(at: int) -> float:
    found = since_1970(clock_time(at))
    assert found is not None
    return found


NOW = seconds(3000)
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


def gone(reason: str, on: str, name: str = "old", *, created: int = 0, at: int = 10, **status: Any) -> Pod:
    """A pod of the gang that was refused on a node."""
    refusal = refused(reason, REASONS[reason]) | {"containerStatuses": [], "startTime": clock_time(at)}
    return ended(name, on, status=refusal | status, created=created, **GANG)


def after(
    *failed: Pod, known: KubeletRefusals = NONE_REFUSED, now: float = NOW, counts_for: float = 3600
) -> KubeletRefusals:
    """What is known after a pass that sees these failed pods."""
    return known.after(failed, EMPTY.controller_of, now, counts_for)


class RefusedPlacing(Placing):
    """Passes that know of these refusals."""

    def __init__(self, cluster: Nodes, refusals: KubeletRefusals, now: float = NOW) -> None:
        super().__init__(cluster, SETTINGS)
        self.refusals, self.now = refusals, now

    def exclude(self, gangs: Iterable[PodGang]) -> NodeRules:
        return NodeRules(tuple(self.refusals.rules(gangs, self.cluster.nodes))).at(self.now)


def placed(pods: list[Pod], refusals: KubeletRefusals, count: int = 3, now: float = NOW) -> dict[str, str]:
    """Where the pods go that wait on so many nodes."""
    return places(RefusedPlacing(Nodes(count, *pods), refusals, now).one())


@pytest.mark.promise("R306")
@pytest.mark.parametrize("reason", REASONS)
def test_after_a_refusal_for_whatever_reason_the_next_pod_is_placed_elsewhere_while_other_nodes_are_free(
    reason: str,
) -> None:
    next_one, refusals = gpu_pod("new", metadata=GANG), after(gone(reason, "n0"))
    assert placed([next_one], NONE_REFUSED) == {"new": "n0"}
    assert placed([next_one], refusals) == {"new": "n1"}
    assert placed([next_one, gpu_pod("a", node="n1")], refusals, count=2) == {"new": "n0"}


AGAIN = gone("TopologyAffinityError", "n0", "next", created=20, at=21)


@pytest.mark.promise("R306")
def test_a_gang_that_was_refused_twice_by_a_node_waits_rather_than_use_it_for_ten_minutes() -> None:
    first = gone("TopologyAffinityError", "n0")
    refusals, (pod,) = after(first, AGAIN), [gpu_pod("new", metadata=GANG)]
    placing = RefusedPlacing(Nodes(1, pod), refusals)
    placing.now = seconds(21) + AVOID_SECONDS - 1
    (outcome,) = placing.one().outcomes
    why = "avoids the node n0 (the kubelet refused a pod of this gang there: TopologyAffinityError)"
    assert why in outcome.reason
    assert placed([pod], refusals, 1, seconds(21) + AVOID_SECONDS) == {"new": "n0"}


@pytest.mark.promise("R306")
def test_each_further_refusal_excludes_the_node_for_twice_as_long() -> None:
    third = gone("OutOfcpu", "n0", "third", created=700, at=701)
    refusals, pods = after(gone("OutOfcpu", "n0"), AGAIN, third), [gpu_pod("new", metadata=GANG)]
    assert placed(pods, refusals, 1, seconds(701) + 2 * AVOID_SECONDS - 1) == {}
    assert placed(pods, refusals, 1, seconds(701) + 2 * AVOID_SECONDS) == {"new": "n0"}


@pytest.mark.promise("R306")
def test_refusals_of_late_are_not_forgotten_before_the_node_may_be_used_again() -> None:
    """nodeHealth.avoidFor may be shorter than the time for which the gang does not use the node."""
    others = [gone("OutOfcpu", "n0", f"pod-{at}", created=at - 1, at=at) for at in (700, 2000, 3000)]
    refusals = after(gone("OutOfcpu", "n0"), AGAIN, *others, now=seconds(3000), counts_for=60)
    later = seconds(3000) + 8 * AVOID_SECONDS
    known = after(known=refusals, now=later - 1, counts_for=60)
    assert placed([gpu_pod("new", metadata=GANG)], known, 1, later - 1) == {}
    known = after(known=known, now=later, counts_for=60)
    assert placed([gpu_pod("new", metadata=GANG)], known, 1, later) == {"new": "n0"}
    assert after(known=known, now=later + 8 * AVOID_SECONDS, counts_for=60) == NONE_REFUSED


@pytest.mark.promise("R306")
def test_a_refusal_soon_after_the_node_may_be_used_again_doubles_the_time() -> None:
    known = after(gone("OutOfcpu", "n0"), AGAIN, now=seconds(21), counts_for=60)
    known = after(known=known, now=seconds(650), counts_for=60)
    third = gone("OutOfcpu", "n0", "third", created=690, at=700)
    refusals = after(third, known=known, now=seconds(700), counts_for=60)
    assert placed([gpu_pod("new", metadata=GANG)], refusals, 1, seconds(700) + 2 * AVOID_SECONDS - 1) == {}


def test_pods_that_were_refused_together_count_once_in_whatever_order_they_are_read() -> None:
    together = [gone("OutOfcpu", "n0", f"old-{number}", at=10 + number) for number in range(8)]
    assert placed([gpu_pod("new", metadata=GANG)], after(*reversed(together)), 1, seconds(20)) == {
        "new": "n0"
    }


def test_each_node_that_refused_some_of_a_gang_is_avoided_though_they_were_refused_at_once() -> None:
    failed = [gone("TopologyAffinityError", f"n{number}", f"old-{number}") for number in range(4)]
    assert placed([gpu_pod("new", metadata=GANG)], after(*failed), count=5) == {"new": "n4"}


def test_other_gangs_are_placed_there_all_the_same() -> None:
    twice = after(gone("TopologyAffinityError", "n0"), AGAIN, now=seconds(30))
    assert placed([gpu_pod("other")], twice, now=seconds(30)) == {"other": "n0"}


def test_its_plan_has_where_it_was_refused_and_why() -> None:
    refusals = after(gone("OutOfnvidia.com/gpu", "n0"))
    (plan,) = RefusedPlacing(Nodes(2, gpu_pod("new", metadata=GANG)), refusals).one().plans
    assert plan.avoided == {"n0": "the kubelet refused a pod of this gang there: OutOfnvidia.com/gpu"}


@pytest.mark.parametrize("refusals", [(), ("n0",), ("n1",)])
def test_planned_pods_that_are_not_released_are_planned_again_once_their_node_refuses_another_of_their_gang(
    refusals: tuple[str, ...],
) -> None:
    cluster = Nodes(3, gpu_pod("new", metadata=GANG))
    placing = RefusedPlacing(cluster, NONE_REFUSED)
    (plan,) = placing.one().plans
    view = placing.view().with_plans({each.uid: each for each in plan.entries})
    known = after(*(gone("OutOfcpu", each) for each in refusals))
    for each, is_lost in ((known, refusals == ("n0",)), (after(known=known), False)):
        valid = with_valid_plans(view, Topology(), RefusingNodes(), SentReleases(), refusals=each)
        assert (valid.planned == {}) is is_lost, "afterwards the new plan holds, wherever it is"


def avoided(refusals: KubeletRefusals, **nodes: Node) -> bool:
    """Whether the next pod of the gang avoids a node."""
    (gang,) = gather_all(gpu_pod("new", metadata=GANG))
    return any(refusals.rules([gang], nodes or {"n0": node("n0")}))


@pytest.mark.parametrize("passed", [3599, 3600])
def test_a_refusal_counts_for_as_long_as_any_failure(passed: int) -> None:
    refusals = after(known=after(gone("TopologyAffinityError", "n0")), now=seconds(10) + passed)
    assert avoided(refusals) is (passed < 3600)


@pytest.mark.parametrize("at", [5, 15])
def test_refusals_that_an_operator_has_reset_count_no_more(at: int) -> None:
    reset = node("n0", annotations={keys.RESET_FAILURES_ANNOTATION: clock_time(at)})
    assert avoided(after(gone("OutOfcpu", "n0")), n0=reset) is (at < 10)


def test_a_new_node_of_the_same_name_has_refused_nobody() -> None:
    made = Nodes(1).nodes["n0"]
    for created, is_avoided in ((5, True), (15, False)):
        metadata = msgspec.structs.replace(made.metadata, creation_timestamp=clock_time(created))
        again = msgspec.structs.replace(made, metadata=metadata)
        assert avoided(after(gone("OutOfcpu", "n0")), n0=again) is is_avoided


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
    assert refused_at(pod, NOW) is None


def many(count: int) -> list[Pod]:
    """Refused pods of as many gangs of another namespace, each a second later."""
    status = refused("OutOfcpu", "x") | {"containerStatuses": []}
    return [
        ended(f"p{number}", "n0", status=status | {"startTime": clock_time(number)}, namespace="many")
        for number in range(count)
    ]


def test_what_is_remembered_is_bounded_and_who_has_most_loses_the_oldest_first() -> None:
    refusals = after(*many(MOST), known=after(gone("OutOfcpu", "n0", at=0)))
    found = {maker.name for maker in refusals.by_gang}
    assert len(refusals.by_key) == MOST
    assert "train" in found
    assert "p0" not in found
    assert "p1" in found


def test_four_times_as_many_refusals_at_once_cost_about_four_times_as_much() -> None:
    def work(count: int) -> int:
        made = many(count)
        return work_of(lambda: after(*made))

    assert work(2800) < 8 * work(700), "by the square it would be sixteen times"


def test_a_node_whose_clock_is_fast_is_avoided_no_longer_than_others() -> None:
    assert refused_at(gone("OutOfcpu", "n0"), seconds(0)) == seconds(0)
