"""Which released pods are given up, and when: never for a short trouble, never a pod that runs."""

from collections.abc import Sequence, Set
from typing import Any, cast

import msgspec
import pytest

from tests.sweeper.pods import decode, pod_json
from webhook.configuration.settings import Settings
from webhook.kube.client import Api, ApiError
from webhook.kube.objects import Node, Pod
from webhook.sweeper.apply.evictions import delete_pod
from webhook.sweeper.observe.plans import occupied_node
from webhook.sweeper.observe.pods import ENDING_SECONDS
from webhook.sweeper.repair.allowance import can_come_again
from webhook.sweeper.repair.repair import UNTRIED, NeededRepair, Troubles, needed_repairs, waits_for_group
from webhook.workloads.owners import RECREATING

SETTINGS = Settings(bind_seconds=100, not_ready_seconds=50)
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def node(name: str = "n1", *, ready: str = "True", **spec: Any) -> dict[str, Node]:
    body = {
        "metadata": {"name": name},
        "spec": spec,
        "status": {"conditions": [{"type": "Ready", "status": ready}]},
    }
    return {name: msgspec.convert(body, Node)}


def released(
    *,
    bound: bool = False,
    phase: str = "Pending",
    nominated: str = "",
    reason: str = "Unschedulable",
    gates: Sequence[str] = (),
    message: str = "",
    group: str = "",
    **metadata: Any,
) -> Pod:
    """A pod pinned to n1, bound there or not. reason: the reason in its condition PodScheduled."""
    terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}]
    spec: dict[str, Any] = {"nodeName": "n1"} if bound else {}
    if group:
        spec["schedulingGroup"] = {"podGroupName": group}
    pod = pod_json(
        schedulingGates=[{"name": gate} for gate in gates],
        affinity={"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}},
        metadata=metadata,
        **spec,
    )
    scheduled = {"type": "PodScheduled", "status": "False", "reason": reason, "message": message}
    pod["status"] = {"phase": phase, "nominatedNodeName": nominated, "conditions": [scheduled]}
    return decode(pod)


class Watch:
    """What is found out about a released pod from time to time."""

    def __init__(self) -> None:
        self.troubles: Troubles = {}

    def find(
        self, pod: Pod, nodes: dict[str, Node], seconds: float, emptying: Set[str] = frozenset()
    ) -> list[NeededRepair]:
        sent = [(pod, name)] if (name := occupied_node(pod)) is not None else []
        found, self.troubles = needed_repairs(self.troubles, sent, nodes, emptying, SETTINGS, seconds)
        return found


def causes(pod: Pod, nodes: dict[str, Node], seconds: float) -> list[str]:
    """What is lost after a trouble has lasted for some time."""
    watch = Watch()
    watch.find(pod, nodes, 0.0)
    return [lost.cause for lost in watch.find(pod, nodes, seconds)]


@pytest.mark.promise("O91")
@pytest.mark.parametrize("bound", [False, True], ids=["pinned", "bound"])
def test_a_pod_whose_node_is_gone_is_lost_as_soon_as_that_is_sure(bound: bool) -> None:
    assert causes(released(bound=bound), {}, 9) == []
    assert causes(released(bound=bound), {}, 10) == ["node-gone"]


@pytest.mark.parametrize("bound", [False, True], ids=["pinned", "bound"])
@pytest.mark.parametrize("ready", ["False", "Unknown"])
def test_a_pod_is_lost_when_its_node_stays_not_ready(bound: bool, ready: str) -> None:
    assert causes(released(bound=bound), node(ready=ready), 49) == []
    assert causes(released(bound=bound), node(ready=ready), 50) == ["node-unusable"]


def test_a_cordon_concerns_only_a_pod_that_is_not_bound_yet() -> None:
    assert causes(released(), node(unschedulable=True), 50) == ["node-unusable"]
    assert causes(released(bound=True), node(unschedulable=True), 1000) == []


@pytest.mark.parametrize("effect", ["NoSchedule", "NoExecute"])
def test_a_taint_that_a_pod_does_not_tolerate_concerns_only_a_pod_that_is_not_bound_yet(effect: str) -> None:
    tainted = node(taints=[{"key": "maintenance", "effect": effect}])
    assert causes(released(), tainted, 49) == []
    assert causes(released(), tainted, 50) == ["node-unusable"]
    assert causes(released(bound=True), tainted, 1000) == []
    watch = Watch()
    watch.find(released(), tainted, 0.0)
    (lost,) = watch.find(released(), tainted, 50)
    assert lost.reason == f'its node n1 is not allowed for it any more (taint "maintenance:{effect}")'


def test_a_node_that_takes_no_new_pods_is_reported_as_cordoned_or_being_removed() -> None:
    leaving = node(taints=[{"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}])
    for nodes, expected in ((node(unschedulable=True), "cordoned"), (leaving, "being removed")):
        watch = Watch()
        watch.find(released(), nodes, 0.0)
        assert [lost.reason for lost in watch.find(released(), nodes, 50)] == [f"its node n1 is {expected}"]


@pytest.mark.promise("R122", "O90")
def test_a_pod_that_is_not_bound_in_time_is_lost() -> None:
    assert causes(released(), node(), 99) == []
    assert causes(released(), node(), 100) == ["not-bound"]


@pytest.mark.promise("O90")
@pytest.mark.parametrize("reason", ["", "SchedulingGated"])
def test_a_pod_that_no_scheduler_has_looked_at_is_reported_but_not_given_up(reason: str) -> None:
    assert causes(released(reason=reason), node(), 100) == [UNTRIED]


@pytest.mark.promise("O90")
def test_a_pod_for_which_the_scheduler_preempts_has_three_times_as_long() -> None:
    assert causes(released(nominated="n1"), node(), 299) == []
    assert causes(released(nominated="n1"), node(), 300) == ["not-bound"]


NO_NODE = "0/3 nodes are available: 1 Insufficient nvidia.com/gpu, 2 node(s) didn't satisfy plugin(s)."
WAITS = "waiting for minCount pods from a gang to be scheduled"


@pytest.mark.parametrize(
    ("group", "message", "seconds"),
    [("g", WAITS, 300), ("g", NO_NODE, 100), ("g", "", 100), ("", WAITS, 100)],
    ids=["waits for its group", "its node is taken", "nothing is said", "of no group"],
)
def test_a_pod_that_waits_for_others_of_its_group_has_three_times_as_long(
    group: str, message: str, seconds: float
) -> None:
    pod = released(group=group, message=message)
    assert causes(pod, node(), seconds - 1) == []
    assert causes(pod, node(), seconds) == ["not-bound"]
    assert waits_for_group(pod) is (seconds == 300)


@pytest.mark.parametrize(
    "pod",
    [
        pytest.param(released(bound=True, phase="Running"), id="it runs"),
        pytest.param(released(deletionTimestamp="2026-01-01T00:00:00Z"), id="it is being deleted"),
        pytest.param(decode(pod_json()), id="it is still gated"),
        pytest.param(released(gates=["quota.example.com/wait"]), id="somebody else's gate holds it"),
    ],
)
def test_a_pod_is_left_alone_when(pod: Pod) -> None:
    assert causes(pod, node(), 1000) == []


def test_a_trouble_that_ends_and_comes_back_is_counted_again() -> None:
    watch = Watch()
    watch.find(released(), node(ready="False"), 0.0)
    watch.find(released(), node(), 40)
    assert watch.find(released(), node(ready="False"), 60) == []


@pytest.mark.promise("O90")
@pytest.mark.parametrize(
    ("owners", "expected"),
    [
        ([], False),
        ([{"apiVersion": "batch/v1", "kind": "Job", "controller": True}], True),
        ([{"apiVersion": "v1", "kind": "ReplicationController", "controller": True}], True),
        ([{"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "controller": True}], True),
        ([{"apiVersion": "batch/v1", "kind": "Job"}], False),
        ([{"apiVersion": "v1", "kind": "Node", "controller": True}], False),
        ([{"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "controller": True}], False),
        ([{"apiVersion": "example.com/v1", "kind": "Job", "controller": True}], False),
    ],
    ids=[
        "nobody's",
        "a Job's",
        "a core controller's",
        "a Kubeflow job's",
        "owned but not controlled",
        "a mirror pod",
        "a step of a workflow, which fails when its pod is deleted",
        "somebody else's Job",
    ],
)
def test_only_a_pod_that_its_controller_makes_again_may_be_deleted(owners: list[Any], expected: bool) -> None:
    pod = decode(pod_json(metadata={"ownerReferences": [{"name": "o", "uid": "u", **o} for o in owners]}))
    assert can_come_again(pod, RECREATING) is expected


@pytest.mark.promise("O90")
def test_the_time_that_victims_take_to_end_is_not_counted() -> None:
    watch, pod = Watch(), released(nominated="n1")
    for seconds in (0.0, ENDING_SECONDS - 1):
        assert watch.find(pod, node(), seconds, {"n1"}) == []
    assert watch.find(pod, node(), ENDING_SECONDS + 299) == []
    assert [lost.cause for lost in watch.find(pod, node(), ENDING_SECONDS + 599)] == ["not-bound"]


@pytest.mark.promise("O90")
def test_nobody_waits_without_end_for_pods_that_take_theirs_to_end() -> None:
    watch, pod = Watch(), released(nominated="n1")
    watch.find(pod, node(), 0.0, {"n1"})
    (lost,) = watch.find(pod, node(), ENDING_SECONDS, {"n1"})
    assert (lost.cause, lost.node) == ("not-bound", "n1")


class OneDelete:
    """Keeps what is sent, and answers with these statuses, the last for ever; and a pod as it is now."""

    def __init__(self, *statuses: int, uid: str = "u", node: str = "") -> None:
        self.statuses = list(statuses)
        self.bodies: list[Any] = []
        self.pod = {"metadata": {"uid": uid, "resourceVersion": "8"}, "spec": {"nodeName": node}}

    @property
    def body(self) -> Any:
        return self.bodies[-1]

    def request(self, _method: str, _path: str, *, body: Any) -> bytes:
        self.bodies.append(body)
        status = self.statuses.pop(0) if len(self.statuses) > 1 else self.statuses[0]
        if not 200 <= status < 300:
            raise ApiError(status, "", "refused")
        return b"{}"

    def json(self, _method: str, _path: str) -> Any:
        return self.pod


@pytest.mark.parametrize(("status", "is_deleted"), [(200, True), (404, True), (409, False)])
def test_a_pod_is_deleted_only_as_it_was_judged(status: int, is_deleted: bool) -> None:
    # It may have been bound since, and run: our copy may be behind.
    api = OneDelete(status, node="n1")
    pod = decode(pod_json(metadata={"uid": "u", "resourceVersion": "7"}))
    assert delete_pod(cast(Api, api), pod) is is_deleted
    assert [body["preconditions"] for body in api.bodies] == [{"uid": "u", "resourceVersion": "7"}]


@pytest.mark.parametrize("status", [0, 401, 403, 429, 500, 503])
def test_a_pod_that_could_not_be_deleted_is_reported(status: int) -> None:
    pod = decode(pod_json(metadata={"uid": "u", "resourceVersion": "7"}))
    with pytest.raises(ApiError, match="refused"):
        delete_pod(cast(Api, OneDelete(status)), pod)


@pytest.mark.parametrize(
    ("now", "is_deleted"), [({}, True), ({"node": "n1"}, False), ({"uid": "another"}, False)], ids=str
)
def test_a_pod_that_was_written_since_is_deleted_if_it_still_has_no_node(
    now: dict[str, Any], is_deleted: bool
) -> None:
    api = OneDelete(409, 200, **now)
    pod = decode(pod_json(metadata={"uid": "u", "resourceVersion": "7"}))
    assert delete_pod(cast(Api, api), pod) is is_deleted
    guards = [{"uid": "u", "resourceVersion": version} for version in ("7", "8")]
    assert [body["preconditions"] for body in api.bodies] == guards[: 2 if is_deleted else 1]


def test_a_pod_that_is_written_all_the_time_is_left_for_the_next_pass() -> None:
    api = OneDelete(409)
    pod = decode(pod_json(metadata={"uid": "u", "resourceVersion": "7"}))
    with pytest.raises(ApiError) as error:
        delete_pod(cast(Api, api), pod)
    assert error.value.status == 409
    assert len(api.bodies) < 5


def test_a_pod_of_a_gang_that_is_recreated_whole_is_deleted_though_its_status_has_changed_since() -> None:
    api = OneDelete(200)
    pod = decode(pod_json(metadata={"uid": "u", "resourceVersion": "7"}))
    assert delete_pod(cast(Api, api), pod, may_run=True)
    assert api.body["preconditions"] == {"uid": "u"}


@pytest.mark.promise("R122")
def test_of_a_pod_that_is_not_bound_the_scheduler_s_own_reason_is_reported() -> None:
    body = msgspec.to_builtins(released())
    reason = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": "0/1 nodes: volume node affinity conflict",
    }
    body["status"]["conditions"] = [reason]
    pod, watch = msgspec.convert(body, Pod), Watch()
    watch.find(pod, node(), 0.0)
    (lost,) = watch.find(pod, node(), 100)
    assert lost.reason == (
        "kube-scheduler has not bound it to n1 within 100 s, saying: 0/1 nodes: volume node affinity conflict"
    )
