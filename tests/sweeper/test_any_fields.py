"""Whatever the fields of pods and nodes contain, a pass has no defect, and the gang beside them is released.

Fields are drawn from the types by which objects are decoded, so that each new field is drawn, too.
"""

from typing import Any, Final

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import inspect, structs

from labeler.contract import keys
from tests.sweeper.clock import Clock
from tests.sweeper.cluster import Nodes, Placing, gpu_pod, places
from tests.sweeper.edits import NoneFailed, Stored, defects_of
from tests.sweeper.empty_api import Empty
from tests.sweeper.pods import decode, pod_json
from webhook.configuration.settings import Settings
from webhook.kube.collection import Listing
from webhook.kube.objects import Node, NodeSpec, NodeStatus, Pod, PodSpec, PodStatus
from webhook.sweeper.context import Pass
from webhook.sweeper.sweep import Sweeper

TEXTS: Final = st.sampled_from([
    "", "0", "1", "-1", "2", "500m", "1Ei", "1.5Gi", "1e400", "1e-400", "9" * 5_000, "-0", "n0", "n1", "c",
    "nvidia.com/gpu", "cpu", "memory", "pods", keys.I915, "kubernetes.io/hostname", "metadata.name",
    "In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Equal", "NoSchedule", "NoExecute",
    "DoNotSchedule", "ScheduleAnyway", "Honor", "Ignore", "Always", "Restart", "Never",
    "Running", "Pending", "PodScheduled", "PodResizePending", "Infeasible", "True", "False", "Ready",
    "PreferNoSchedule", "PreemptLowerPriority",
    "Unschedulable", "TCP", "SCTP", "0.0.0.0", "::", "default-scheduler", keys.GATE, "ns", "theirs", "a/b/c",
    "2026-01-01T00:00:00Z", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999999Z", "²", "\0", "x" * 64,
])  # fmt: skip
NUMBERS: Final = st.sampled_from([-(2**63), -(2**31), -1, 0, 1, 2, 2**31 - 1, 2**63 - 1])
JSON: Final = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXTS, inner, max_size=2),
    max_leaves=4,
)


RESOURCES: Final = st.sampled_from([
    "nvidia.com/gpu", "cpu", "memory", "pods", keys.I915, "ephemeral-storage", "hugepages-2Mi", "a/b", "",
])  # fmt: skip
QUANTITIES: Final = st.sampled_from([
    "0", "1", "2", "8", "500m", "1Gi", "1.5Gi", "1Ei", "9" * 18, "9" * 5_000, "-1", "1e400", "1e-400", "many",
])  # fmt: skip
AMOUNTS: Final = st.dictionaries(RESOURCES, QUANTITIES, max_size=4)
OF_AMOUNTS: Final = {"requests", "limits", "allocatable", "overhead", "allocatedResources"}


def values(kind: inspect.Type) -> st.SearchStrategy[Any]:
    """JSON that is decoded as this type."""
    if isinstance(kind, inspect.UnionType):
        return st.one_of(*map(values, kind.types))
    if isinstance(kind, inspect.StructType):
        names = {each.encode_name: each.type for each in kind.fields}
        fields = {name: AMOUNTS if name in OF_AMOUNTS else values(of) for name, of in names.items()}
        return st.fixed_dictionaries({}, optional=fields)
    if isinstance(kind, inspect.ListType | inspect.VarTupleType):
        return st.lists(values(kind.item_type), max_size=2)
    if isinstance(kind, inspect.DictType):
        return st.dictionaries(values(kind.key_type), values(kind.value_type), max_size=2)
    return SIMPLE[type(kind)]


SIMPLE: Final[dict[type, st.SearchStrategy[Any]]] = {
    inspect.StrType: TEXTS,
    inspect.IntType: NUMBERS,
    inspect.FloatType: NUMBERS,
    inspect.BoolType: st.booleans(),
    inspect.NoneType: st.none(),
    inspect.AnyType: JSON,
    inspect.RawType: JSON,
}


def parts(kind: type) -> st.SearchStrategy[Any]:
    return values(inspect.type_info(kind))


def pods(number: int) -> st.SearchStrategy[Pod]:
    """A pod of another namespace that asks for a GPU: gated, bound, or neither; the rest is anything."""

    def made(state: str, spec: Any, status: Any) -> Pod:
        metadata = {"namespace": "theirs", "uid": f"u{number}"}
        base = msgspec.to_builtins(gpu_pod(f"their-{number}", metadata=metadata))
        base["spec"] |= spec | STATES[state]
        base["status"] = status
        return msgspec.convert(base, Pod, strict=False)

    return st.builds(made, st.sampled_from(sorted(STATES)), parts(PodSpec), parts(PodStatus))


STATES: Final[dict[str, dict[str, Any]]] = {
    "gated": {"nodeName": "", "schedulingGates": [{"name": keys.GATE}]},
    "bound": {"nodeName": "n0", "schedulingGates": []},
    "released": {"nodeName": "", "schedulingGates": []},
}


@st.composite
def nodes(draw: st.DrawFn) -> Node:
    """n0, whose spec and status are anything."""
    body = msgspec.to_builtins(Nodes(1).nodes["n0"])
    body["spec"] |= draw(parts(NodeSpec))
    body["status"] |= draw(parts(NodeStatus))
    return msgspec.convert(body, Node)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.tuples(pods(0), pods(1), pods(2)), nodes())
def test_whatever_pods_and_nodes_contain_a_gang_beside_them_is_released_without_a_defect(
    theirs: tuple[Pod, ...], node: Node
) -> None:
    api, clock, cache = Stored(), Clock(), NoneFailed(Empty())
    cache.pods._replace(Listing("1", {f"x/{each.metadata.uid}": each for each in (*theirs, gpu_pod("wait"))}))
    cache.nodes._replace(Listing("1", {**Nodes(6, gpus=8).nodes, "n0": node}))
    sweeper = Sweeper(Pass(api, cache, Settings(settle_seconds=0, reserve_seconds=0), clock=clock))
    assert not defects_of(sweeper, cache, clock)
    assert any("/pods/wait" in each for each in api.writes)


HUGE: Final[dict[str, dict[str, str]]] = {
    "cpu": {"nvidia.com/gpu": "1", "cpu": "1Ei"},
    "memory": {"nvidia.com/gpu": "1", "memory": "8Ei"},
    "GPUs": {"nvidia.com/gpu": str(2**63 - 1)},
    "cards": {keys.I915: str(2**63 - 1)},
    "an amount of a card": {keys.I915: "1", keys.MEMORY_MAX: str(2**63 - 1)},
    "no share of many cards": {keys.I915: str(2**63 - 1), keys.MILLICORES: "0"},
}


@pytest.mark.promise("I60")
@pytest.mark.parametrize("state", ["gated", "bound"])
@pytest.mark.parametrize("asked", HUGE)
def test_a_pod_that_requests_more_than_any_node_has_keeps_no_other_from_its_place(
    asked: str, state: str
) -> None:
    """In thousandths, no 64-bit integer is as large as such an amount."""
    resources = {"requests": HUGE[asked], "limits": HUGE[asked]}
    metadata = {"namespace": "theirs", "uid": "u0"}
    theirs = pod_json("their", metadata=metadata, containers=[{"name": "c", "resources": resources}])
    theirs["spec"] |= STATES[state]
    usual = {"nvidia.com/gpu": "1", "cpu": "1", "memory": "1Gi"}
    waiting = pod_json("wait", containers=[{"name": "c", "resources": {"requests": usual, "limits": usual}}])
    cluster = Nodes(2, decode(theirs), decode(waiting))
    for name, node in list(cluster.nodes.items()):
        offers = {**node.status.allocatable, "cpu": "8", "memory": "8Gi", keys.I915: "2"}
        cluster.nodes[name] = structs.replace(node, status=structs.replace(node.status, allocatable=offers))
        cluster.label(name, {**node.metadata.labels, keys.GPU_NUMBERS_LABEL: "0.1"})
    placing = Placing(cluster, Settings(settle_seconds=0, reserve_seconds=0))
    assert places(placing.one()).keys() == {"wait"}
