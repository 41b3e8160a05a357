"""Which events make a difference: capacity that appears or vanishes, not heartbeats, nor our own releases."""

from typing import Any

import msgspec
import pytest

from labeler.contract import keys
from tests.sweeper.pods import decode, pod_json
from webhook.configuration.settings import Settings
from webhook.inquiry.cluster_state import ClusterReading
from webhook.kube.objects import Node, Pod
from webhook.sweeper.observe.changes import EXPECTED_SECONDS, Changes
from webhook.sweeper.observe.gangs import OwnerFacts
from webhook.sweeper.observe.snapshotter import Snapshotter


def bound(node: str = "n1", phase: str = "Running") -> Pod:
    pod = pod_json(nodeName=node, schedulingGates=[])
    return decode({**pod, "status": {"phase": phase}})


def node(**changes: Any) -> Node:
    body = {"metadata": {"name": "n1"}, "status": {"allocatable": {"cpu": "1"}}}
    return msgspec.convert(body | changes, Node)


def noted(annotation: str) -> Node:
    return node(metadata={"name": "n1", "annotations": {annotation: "x"}})


def resized(cpu: str, *, actual: str, pending: str = "", restarts: int = 0) -> Pod:
    """A bound pod that requests so much and has so much; pending: why its resize waits."""
    resources = {"requests": {"cpu": cpu}}
    pod = pod_json(nodeName="n1", schedulingGates=[], containers=[{"name": "c", "resources": resources}])
    has = {"name": "c", "resources": {"requests": {"cpu": actual}}, "restartCount": restarts}
    conditions = [{"type": "PodResizePending", "status": "True", "reason": pending}] if pending else []
    status = {"phase": "Running", "containerStatuses": [has], "conditions": conditions}
    return decode({**pod, "status": status})


GATED = decode(pod_json())


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(bound(), None, id="a bound pod goes"),
        pytest.param(None, bound(), id="a bound pod appears"),
        pytest.param(GATED, bound(), id="a pod is bound that nobody expected"),
        pytest.param(bound("n1"), bound("n2"), id="another pod of the same name is elsewhere"),
        pytest.param(resized("1", actual="1"), resized("2", actual="1"), id="a pod is to have more"),
        pytest.param(resized("1", actual="2"), resized("1", actual="1"), id="a pod has shrunk"),
        pytest.param(
            resized("2", actual="1"),
            resized("2", actual="1", pending="Infeasible"),
            id="the kubelet will not give a pod more",
        ),
    ],
)
def test_capacity_changes_when(before: Pod | None, after: Pod | None) -> None:
    changes = Changes()
    assert changes.on_pod(before, after)
    assert changes.usage_version == 1


@pytest.mark.parametrize(
    ("before", "after", "frees"),
    [
        (None, bound(), False),
        (GATED, bound(), False),
        (bound(), None, True),
        (bound("n1"), bound("n2"), True),
        (resized("1", actual="2"), resized("1", actual="1"), True),
    ],
    ids=["appears", "is bound", "goes", "is elsewhere", "has shrunk"],
)
def test_more_may_be_free_unless_a_pod_only_takes_a_place_on_a_node(
    before: Pod | None, after: Pod | None, frees: bool
) -> None:
    changes = Changes()
    changes.on_pod(before, after)
    assert changes.freed_version == frees
    changes.on_node(None, node())
    changes.on_freed()
    assert changes.freed_version == frees + 2


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(None, GATED, id="a gated pod is made"),
        pytest.param(GATED, None, id="a gated pod goes"),
        pytest.param(bound(phase="Pending"), bound(phase="Running"), id="a bound pod begins to run"),
    ],
)
def test_a_change_is_seen_but_uses_no_capacity_when(before: Pod | None, after: Pod | None) -> None:
    changes = Changes()
    assert changes.on_pod(before, after)
    assert changes.usage_version == 0


def test_the_containers_status_of_a_pod_that_is_not_resized_is_no_change() -> None:
    changes = Changes()
    assert not changes.on_pod(resized("1", actual="1"), resized("1", actual="1", restarts=1))


def test_our_own_release_changes_nothing_that_is_not_known() -> None:
    changes = Changes()
    changes.expect({GATED.metadata.uid: "n1"})
    changes.on_pod(GATED, bound("n1"))
    assert changes.usage_version == 0


def test_a_pod_that_we_released_and_that_is_deleted_frees_capacity() -> None:
    changes = Changes()
    changes.expect({GATED.metadata.uid: "n1"})
    changes.on_pod(GATED, bound("n1"))
    changes.on_pod(bound("n1"), None)
    assert changes.usage_version == 1


def test_a_released_pod_that_is_elsewhere_than_expected_is_a_change() -> None:
    changes = Changes()
    changes.expect({GATED.metadata.uid: "n1"})
    changes.on_pod(GATED, bound("n2"))
    assert changes.usage_version == 1


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(GATED, bound("n1"), id="it arrives"),
        pytest.param(GATED, None, id="it is deleted before"),
        pytest.param(GATED, decode(pod_json(metadata={"uid": "next"})), id="another has its name"),
    ],
)
def test_a_release_is_waited_for_no_longer_than_until(before: Pod, after: Pod | None) -> None:
    changes = Changes()
    changes.expect({GATED.metadata.uid: "n1"})
    assert changes.expected == {GATED.metadata.uid}
    changes.on_pod(before, after)
    assert changes.expected == set()


def test_releases_that_never_show_are_forgotten_in_time() -> None:
    now = 0.0
    changes = Changes(clock=lambda: now)
    changes.expect({"a": "n1", "b": "n1"})
    now = EXPECTED_SECONDS - 1
    changes.expect({"b": "n1", "c": "n1"})
    assert changes.expected == {"a", "b", "c"}
    now = EXPECTED_SECONDS
    changes.expect({"d": "n1"})
    assert changes.expected == {"b", "c", "d"}


def pinned(gate: str) -> Pod:
    """A pod held by a gate, whose author wants it on n1."""
    terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    return decode(pod_json(schedulingGates=[{"name": gate}], affinity={"nodeAffinity": required}))


@pytest.mark.parametrize(
    ("gate", "counts"), [("example.com/wait-a", False), ("gke.io/topology-aware-auto-a", True)]
)
def test_a_pod_with_a_gate_of_the_configured_prefix_is_nowhere_yet(gate: str, counts: bool) -> None:
    changes = Changes("example.com/wait-")
    changes.on_pod(None, pinned(gate))
    assert changes.usage_version == counts
    cluster = ClusterReading((pinned(gate),), {}, {}, lambda _: OwnerFacts())
    view = Snapshotter(cluster, Settings(gate_prefix="example.com/wait-")).view()
    assert view.placed_on(cluster.pods) == ({"uid-p": "n1"} if counts else {})


def test_the_same_event_again_concerns_nobody() -> None:
    assert not Changes().on_pod(bound(), bound())


def test_a_pod_of_an_in_tree_pod_group_is_read_as_any_other() -> None:
    assert decode(pod_json(schedulingGroup={"podGroupName": "g"})).spec.scheduling_group == {
        "podGroupName": "g"
    }


def test_a_heartbeat_concerns_nobody() -> None:
    heartbeat = node(
        status={"allocatable": {"cpu": "1"}, "conditions": [{"type": "DiskPressure", "status": "False"}]}
    )
    changes = Changes()
    assert not changes.on_node(node(), heartbeat)
    assert not changes.on_node(node(), noted("example.com/seen-at"))
    assert changes.usage_version == 0


@pytest.mark.parametrize(
    "after",
    [
        pytest.param(node(status={"allocatable": {"cpu": "2"}}), id="allocatable"),
        pytest.param(node(spec={"unschedulable": True}), id="a cordon"),
        pytest.param(node(metadata={"name": "n1", "labels": {"a": "b"}}), id="labels"),
        pytest.param(
            node(status={"allocatable": {"cpu": "1"}, "conditions": [{"type": "Ready", "status": "False"}]}),
            id="readiness",
        ),
        pytest.param(noted(keys.OFFERED_CARDS_ANNOTATION), id="the cards that its allocator offers"),
        pytest.param(noted(keys.UNPLANNED_CARDS_ANNOTATION), id="cards that pods without a plan have got"),
        pytest.param(noted(keys.IDENTIFIES_PODS_ANNOTATION), id="whether its allocator knows the pods"),
        pytest.param(None, id="it goes"),
    ],
)
def test_a_node_changes_by(after: Node | None) -> None:
    changes = Changes()
    assert changes.on_node(node(), after)
    assert changes.usage_version == 1
