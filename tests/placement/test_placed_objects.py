"""Capacity, filters and search for pods and nodes as the API server gives them: their reading is tested."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from labeler.contract import keys
from webhook.kube import objects
from webhook.placement import Assignment, Gang, Member, NodeInfo, NoFit, Snapshot, Usage, check, place
from webhook.scheduling import convert
from webhook.scheduling.nodes import node_of

GPU = "nvidia.com/gpu"
GCE, PRERELEASE = keys.GCE_TOPOLOGY, keys.PRERELEASE_TOPOLOGY


def node(name: str, place: tuple[str, ...] = ("b", "s", "h"), **more: Any) -> NodeInfo:
    """A node with 8 GPUs, 16 cpus and 110 pods; more: spec, labels, allocatable."""
    labels = dict(zip(GCE, place, strict=True)) if place else {}
    raw = {
        "metadata": {"name": name, "labels": labels | more.get("labels", {})},
        "spec": more.get("spec", {}),
        "status": {"allocatable": {GPU: "8", "cpu": "16", "pods": "110", **more.get("allocatable", {})}},
    }
    return node_of(msgspec.convert(raw, objects.Node))


def pod(
    requests: dict[str, str] | None = None, status: dict[str, Any] | None = None, **spec: Any
) -> objects.Pod:
    """A pod of one container, unless spec says otherwise."""
    container = {"name": "main", "resources": {"requests": requests or {}}}
    raw = {
        "metadata": {"name": "p", "namespace": "n"},
        "spec": {"containers": [container], **spec},
        "status": status or {},
    }
    return msgspec.convert(raw, objects.Pod)


def gang(*pods: objects.Pod, name: str = "g", **rules: Any) -> Gang:
    members = tuple(Member(f"p{n}", n, convert.pod_class_of(item)) for n, item in enumerate(pods))
    return Gang(name, members, **rules)


def where(
    asked: Gang, *nodes: NodeInfo, running: dict[str, objects.Pod] | None = None
) -> dict[str, str] | str:
    """Member -> node, or the sentence that says why not."""
    usage = [(name, convert.usage_of(item)) for name, item in (running or {}).items()]
    return answer(asked, Snapshot.build(nodes, usage))


def answer(asked: Gang, snapshot: Snapshot) -> dict[str, str] | str:
    found = place(asked, snapshot)
    if isinstance(found, NoFit):
        return found.sentence
    assert check(found, asked, snapshot) == []
    return found.nodes


def gpus(count: int) -> objects.Pod:
    return pod({GPU: str(count)})


# --- what a gang takes from its neighbours ----------------------------------------------------


def test_unrelated_pods_need_not_fit_together() -> None:
    snapshot = Snapshot.build([node("a")], [])
    assert isinstance(answer(gang(gpus(8), gpus(1)), snapshot), str)
    assert answer(gang(gpus(8)), snapshot) == {"p0": "a"}
    assert answer(gang(gpus(1)), snapshot) == {"p0": "a"}


def test_a_node_takes_several_pods_of_a_gang() -> None:
    assert where(gang(*[gpus(1)] * 4), node("a"), node("b")) == dict.fromkeys(("p0", "p1", "p2", "p3"), "a")


def test_a_node_takes_several_gangs_in_one_pass() -> None:
    snapshot = Snapshot.build([node("a")], [])
    first = gang(gpus(4), name="first")
    found = place(first, snapshot)
    assert isinstance(found, Assignment)
    after = snapshot.assume(found, first)
    assert answer(gang(gpus(4), name="second"), after) == {"p0": "a"}
    assert isinstance(answer(gang(gpus(5), name="third"), after), str)


@pytest.mark.promise("I60")
def test_a_gang_without_place_takes_no_node_from_the_next_one() -> None:
    snapshot = Snapshot.build([node("a"), node("b")], [])
    assert isinstance(answer(gang(gpus(8), gpus(8), gpus(8), name="too large"), snapshot), str)
    assert answer(gang(gpus(8), gpus(8), name="next"), snapshot) == {"p0": "a", "p1": "b"}


# --- capacity -------------------------------------------------------------------------------------


@pytest.mark.promise("D12")
@pytest.mark.parametrize(
    ("status", "takes"),
    [
        ({"phase": "Running"}, True),
        ({"phase": "Pending"}, True),
        ({}, True),
        ({"phase": "Succeeded"}, False),
        ({"phase": "Failed"}, False),
    ],
    ids=["running", "bound and still pending", "just bound", "succeeded", "failed"],
)
def test_a_pod_uses_capacity_from_its_binding_to_its_end(status: dict[str, Any], takes: bool) -> None:
    assert convert.occupies(pod({GPU: "8"}, status, nodeName="a")) is takes


def test_a_pod_that_was_just_placed_uses_capacity_before_anyone_has_seen_it() -> None:
    snapshot = Snapshot.build([node("a")], [("a", convert.usage_of(pod({GPU: "8"}, nodeName="a")))])
    assert isinstance(answer(gang(gpus(1)), snapshot), str)


def test_a_bound_pod_without_container_statuses_counts_in_full() -> None:
    fresh = pod({GPU: "8"}, {"phase": "Pending"}, nodeName="a")
    assert convert.usage_of(fresh).requests == {GPU: 8, "pods": 1}


def test_a_finished_helper_does_not_hide_the_worker_beside_it() -> None:
    containers = [
        {"name": "worker", "resources": {"requests": {GPU: "8"}}},
        {"name": "helper", "resources": {"requests": {"cpu": "1"}}},
    ]
    statuses = [
        {"name": "helper", "state": {"terminated": {"exitCode": 0}}},
        {"name": "worker", "state": {"running": {}}},
    ]
    busy = pod(status={"phase": "Running", "containerStatuses": statuses}, containers=containers)
    assert convert.usage_of(busy).requests == {GPU: 8, "cpu": 1000, "pods": 1}


def test_init_containers_sidecars_and_overhead_count_as_in_kube_scheduler() -> None:
    heavy = pod(
        {"cpu": "1"},
        initContainers=[
            {"name": "proxy", "restartPolicy": "Always", "resources": {"requests": {"cpu": "1"}}},
            {"name": "setup", "resources": {"requests": {"cpu": "3"}}},
        ],
        overhead={"cpu": "500m"},
    )
    assert convert.usage_of(heavy).requests == {"cpu": 4500, "pods": 1}


def test_requests_of_the_pod_as_a_whole_count() -> None:
    whole = pod({"cpu": "1"}, resources={"requests": {"cpu": "4"}})
    assert convert.usage_of(whole).requests == {"cpu": 4000, "pods": 1}


RESOURCES = (
    "amd.com/gpu", "google.com/tpu", "nvidia.com/mig-1g.5gb", "hugepages-2Mi", "ephemeral-storage", "memory",
)  # fmt: skip


@pytest.mark.parametrize("resource", RESOURCES)
def test_every_resource_counts_not_cpu_memory_and_one_gpu_alone(resource: str) -> None:
    full, wants = node("a", allocatable={resource: "4"}), pod({resource: "3"})
    assert where(gang(wants), full) == {"p0": "a"}
    found = where(gang(wants), full, running={"a": pod({resource: "2"}, nodeName="a")})
    assert f'resource "{resource}": 1' in found
    assert f'resource "{resource}": 1' in where(gang(wants), node("a"))


def test_the_number_of_pods_on_a_node_counts() -> None:
    small = node("a", allocatable={"pods": "1"})
    assert where(gang(pod()), small) == {"p0": "a"}
    assert 'resource "pods": 1' in where(gang(pod()), small, running={"a": pod(nodeName="a")})


def test_a_part_of_a_gpu_counts_as_a_whole_one() -> None:
    assert convert.usage_of(pod({GPU: "500m"})).requests == {GPU: 1, "pods": 1}


def test_limits_without_requests_count_as_requests() -> None:
    limited = pod(containers=[{"name": "c", "resources": {"limits": {GPU: "8"}}}])
    assert convert.usage_of(limited).requests == {GPU: 8, "pods": 1}


# --- filters -------------------------------------------------------------------------------------


def tainted(effect: str = "NoSchedule", value: str = "red") -> NodeInfo:
    return node("a", spec={"taints": [{"key": "team", "value": value, "effect": effect}]})


def tolerating(*tolerations: dict[str, str]) -> objects.Pod:
    return pod({GPU: "1"}, tolerations=list(tolerations))


TOLERATIONS: list[tuple[str, str, list[dict[str, str]], bool]] = [
    ("15 an empty key with Exists tolerates everything", "NoSchedule", [{"operator": "Exists"}], True),
    ("16 PreferNoSchedule is no reason against", "PreferNoSchedule", [], True),
    (
        "17 a toleration of NoExecute does not cover NoSchedule",
        "NoSchedule",
        [{"key": "team", "operator": "Exists", "effect": "NoExecute"}],
        False,
    ),
    ("17 an empty effect covers each", "NoExecute", [{"key": "team", "operator": "Exists"}], True),
    (
        "18 without an operator the value must be equal",
        "NoSchedule",
        [{"key": "team", "value": "blue"}],
        False,
    ),
    ("18 and is tolerated when it is", "NoSchedule", [{"key": "team", "value": "red"}], True),
    (
        "19 two tolerations of one key are two",
        "NoSchedule",
        [{"key": "team", "value": "red"}, {"key": "team", "value": "blue"}],
        True,
    ),
    (
        "19 in either order",
        "NoSchedule",
        [{"key": "team", "value": "blue"}, {"key": "team", "value": "red"}],
        True,
    ),
]


@pytest.mark.parametrize(
    ("effect", "tolerations", "placed"), [c[1:] for c in TOLERATIONS], ids=[c[0] for c in TOLERATIONS]
)
def test_taints_are_tolerated_as_in_kube_scheduler(
    effect: str, tolerations: list[dict[str, str]], placed: bool
) -> None:
    assert (where(gang(tolerating(*tolerations)), tainted(effect)) == {"p0": "a"}) is placed


@pytest.mark.parametrize(("operator", "placed"), [("Gt", True), ("Lt", False)])
def test_tolerations_compare_numbers(operator: str, placed: bool) -> None:
    wants = tolerating({"key": "team", "operator": operator, "value": "5"})
    assert (where(gang(wants), tainted(value="7")) == {"p0": "a"}) is placed


@pytest.mark.parametrize(("value", "placed"), [("0" * 5000 + "6", True), ("9" * 5000, False)])
def test_a_number_of_any_length_is_compared(value: str, placed: bool) -> None:
    """Python refuses to read one of more than 4,300 digits; it stopped the pass of all gangs."""
    term = {"matchExpressions": [{"key": "size", "operator": "Gt", "values": [value]}]}
    affinity = {
        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    }
    found = where(gang(pod({GPU: "1"}, affinity=affinity)), node("a", labels={"size": "7"}))
    assert (found == {"p0": "a"}) is placed
    assert placed or "node affinity" in found


def test_required_node_affinity_is_met() -> None:
    term = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["z2"]}]}
    affinity = {
        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    }
    nodes = [node("a", labels={"zone": "z1"}), node("b", labels={"zone": "z2"})]
    assert where(gang(pod({GPU: "1"}, affinity=affinity)), *nodes) == {"p0": "b"}


def test_an_unschedulable_node_is_left_out_by_its_field_not_only_by_its_taint() -> None:
    assert "unschedulable: 1" in where(gang(gpus(1)), node("a", spec={"unschedulable": True}))


def test_pods_of_one_gang_may_tolerate_different_taints() -> None:
    coloured = [
        node(name, spec={"taints": [{"key": "team", "value": value, "effect": "NoSchedule"}]})
        for name, value in (("a", "red"), ("b", "blue"))
    ]
    pods = [tolerating({"key": "team", "value": value}) for value in ("blue", "red")]
    assert where(gang(*pods), *coloured) == {"p0": "b", "p1": "a"}


# --- topology labels ----------------------------------------------------------------------------


@pytest.mark.promise("O22")
def test_a_node_without_topology_labels_is_neither_an_error_nor_the_closest() -> None:
    bare, near = node("bare", ()), [node("n1", ("b", "s", "h1")), node("n2", ("b", "s", "h2"))]
    assert where(gang(gpus(8), gpus(8)), bare, *near) == {"p0": "n1", "p1": "n2"}
    assert "no topology labels: 1" in where(gang(gpus(8), gpus(8), required_level="block"), bare, near[0])


def test_a_node_without_any_labels_takes_pods_without_a_request() -> None:
    assert where(gang(gpus(8)), replace(node("bare", ()), labels={})) == {"p0": "bare"}


def test_a_node_with_some_of_the_labels_has_no_place() -> None:
    incomplete = node("half", (), labels={GCE[0]: "b"})
    assert "no topology labels: 1" in where(gang(gpus(8), required_level="block"), incomplete)


def test_a_node_of_both_label_families_is_beside_those_of_the_first() -> None:
    second = dict(zip(PRERELEASE, ("other", "other", "other"), strict=True))
    both = node("both", ("b", "s", "h1"), labels=second)
    asked = gang(gpus(8), gpus(8), required_level="subblock")
    assert where(asked, both, node("first", ("b", "s", "h2"))) == {"p0": "both", "p1": "first"}


@pytest.mark.promise("W14")
def test_equal_values_in_different_label_families_are_different_places() -> None:
    second = node("second", (), labels=dict(zip(PRERELEASE, ("b", "s", "h"), strict=True)))
    found = where(gang(gpus(8), gpus(8), required_level="block"), node("first"), second)
    assert "has capacity for 1 of 2" in found


# --- the search -----------------------------------------------------------------------------------------


def test_the_search_is_no_window_over_sorted_nodes() -> None:
    nodes = [node(f"n{n}", ("b", f"s{rack}", f"h{n}")) for n, rack in enumerate((1, 1, 2, 3, 3))]
    found = where(gang(*[gpus(8)] * 4), *nodes)
    assert found == {"p0": "n0", "p1": "n1", "p2": "n3", "p3": "n4"}


def test_the_search_does_not_force_the_order_of_ranks_onto_the_order_of_names() -> None:
    small, big = node("a-small", allocatable={GPU: "1"}), node("b-big")
    assert where(gang(gpus(8), gpus(1)), small, big) == {"p0": "b-big", "p1": "a-small"}


def test_usage_on_a_node_that_is_gone_concerns_nobody() -> None:
    snapshot = Snapshot.build([node("a")], [("gone", Usage({GPU: 8}))])
    assert answer(gang(gpus(8)), snapshot) == {"p0": "a"}
