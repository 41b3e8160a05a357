"""From a gang to its plan: time stamps that only grow, spreads, owners, and what is kept of earlier plans."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labeler.contract import keys
from tests.sweeper.applies import Applies
from tests.sweeper.cluster import Nodes, Placing, gpu_pod
from tests.sweeper.pods import decode, job_pod, pod_json
from webhook.configuration.settings import Settings
from webhook.inquiry.cluster_state import ClusterReading
from webhook.kube.client import Api
from webhook.kube.objects import Metadata, Node, Pod
from webhook.kube.placements import Placement, PlacementSpec, VictimGroup
from webhook.kube.plan_pods import PlannedPod
from webhook.placement import Assignment, Topology, place
from webhook.sweeper.context import Pass
from webhook.sweeper.decide import plan
from webhook.sweeper.decide.gang_question import question
from webhook.sweeper.decide.release_queue import Timestamps
from webhook.sweeper.observe.gangs import OwnerFacts, gather
from webhook.sweeper.observe.snapshotter import Snapshotter

NOW = 1_764_000_000_000_000_000


@settings(derandomize=True)
@given(st.lists(st.integers(-(10**15), 10**15), min_size=2))
def test_time_stamps_grow_whatever_the_clock_does(steps: list[int]) -> None:
    stamps, now, found = Timestamps(), NOW, []
    for step in steps:
        now += step
        found.append(stamps.next(now))
    assert found == sorted(set(found))


def test_time_stamps_continue_above_what_pods_carry() -> None:
    stamps = Timestamps()
    written = str(NOW + 10**12)
    stamps.observe([{}, {keys.GAS_TIMESTAMP_ANNOTATION: written}])
    assert stamps.next(NOW) == NOW + 10**12 + 1


@pytest.mark.parametrize(
    "value", ["", "soon", "-5", "²", "9" * 19, "9" * 20, "9" * 5000], ids=lambda value: value[:25]
)
def test_a_time_stamp_that_is_none_is_ignored(value: str) -> None:
    stamps = Timestamps()
    stamps.observe([{keys.GAS_TIMESTAMP_ANNOTATION: value}])
    assert stamps.next(NOW) == NOW


def labels(block: str, subblock: str, host: str) -> dict[str, str]:
    return dict(zip(keys.PRERELEASE_TOPOLOGY, (block, subblock, host), strict=True))


def test_a_spread_counts_domains_by_their_whole_path() -> None:
    nodes = {"a": labels("b0", "s0", "h0"), "b": labels("b0", "s1", "h0"), "c": labels("b1", "s0", "h0")}
    assert plan.spread(nodes, nodes, Topology()) == "2 blocks, 3 subblocks, 3 hosts, 3 nodes"


def test_pods_on_one_node_are_spread_over_one_of_each() -> None:
    assert (
        plan.spread(["a", "a"], {"a": labels("b", "s", "h")}, Topology())
        == "1 block, 1 subblock, 1 host, 1 node"
    )


def test_nodes_without_labels_are_domains_of_their_own() -> None:
    assert plan.spread(["a", "b"], {}, Topology()) == "2 blocks, 2 subblocks, 2 hosts, 2 nodes"


@pytest.mark.promise("W32")
def test_a_new_plan_keeps_entries_of_pods_that_are_there_and_drops_the_others() -> None:
    (gang,) = gather([job_pod(1)], [job_pod(0)], lambda _: OwnerFacts(2))
    before = Placement(
        metadata=Metadata(name="p"),
        spec=PlacementSpec(
            pods=[
                PlannedPod(name="train-0", uid="ns-train-0", node="n0"),
                PlannedPod(name="train-1", uid="an earlier one", node="n1"),
            ]
        ),
    )
    spec = plan.plan_spec(gang, before, [PlannedPod(name="train-1", uid="ns-train-1", node="n2")])
    assert [(planned.uid, planned.node) for planned in spec.pods] == [
        ("ns-train-0", "n0"),
        ("ns-train-1", "n2"),
    ]


def test_a_plan_preempts_as_long_as_it_keeps_entries_that_do() -> None:
    (gang,) = gather([job_pod(1)], [job_pod(0)], lambda _: OwnerFacts(2))
    earlier = PlannedPod(name="train-0", uid="ns-train-0", node="n0")
    before = Placement(metadata=Metadata(name="p"), spec=PlacementSpec(preempts=True, pods=[earlier]))
    added = [PlannedPod(name="train-1", uid="ns-train-1", node="n2")]
    assert plan.plan_spec(gang, before, added).preempts
    assert not plan.plan_spec(gang, Placement(metadata=before.metadata), added).preempts


@pytest.mark.parametrize("waits", [True, False])
def test_victims_for_pods_that_are_released_by_now_are_not_named_in_the_next_plan(waits: bool) -> None:
    one, two = job_pod(0), job_pod(1)
    (gang,) = gather([one, two] if waits else [two], [] if waits else [one], lambda _: OwnerFacts(2))
    victims = [VictimGroup(["low"], whole=True)]
    pods = [PlannedPod(name="train-0", uid="ns-train-0", node="n0")]
    spec = PlacementSpec(preempts=True, pods=pods, victims=victims)
    added = [PlannedPod(name="train-1", uid="ns-train-1", node="n2")]
    after = plan.plan_spec(gang, Placement(metadata=Metadata(name="p"), spec=spec), added)
    assert after.victims == (victims if waits else [])


def test_a_gang_of_whose_plan_no_pod_is_left_starts_again() -> None:
    (gang,) = gather([job_pod(1)], [job_pod(0)], lambda _: OwnerFacts(2))
    added = [PlannedPod(name="train-1", uid="ns-train-1", node="n2")]

    def attempt(*uids: str) -> int:
        pods = [PlannedPod(name="p", uid=uid, node="n0") for uid in uids]
        before = Placement(metadata=Metadata(name="p"), spec=PlacementSpec(attempt=3, pods=pods))
        return plan.plan_spec(gang, before, added).attempt

    assert attempt("an earlier one", "ns-train-0") == 3
    assert attempt("an earlier one") == 4
    assert attempt() == 3, "it has only waited so far"
    assert plan.plan_spec(gang, None, added).attempt == 0


@pytest.mark.parametrize("kind", ["Job", "ConfigMap"])
def test_a_placement_is_collected_with_nothing_that_the_author_of_its_pods_may_delete(kind: str) -> None:
    owner = {"apiVersion": "v1", "kind": kind, "name": "mine", "uid": "u", "controller": True}
    (gang,) = gather([decode(pod_json(metadata={"ownerReferences": [owner]}))], [], lambda _: OwnerFacts(1))
    assert plan.plan_metadata(gang).keys() == {"namespace", "name"}


# --- beside which pods the waiting ones are to be ---------------------------------------------------------

GPUS = {"nvidia.com/gpu": "8"}


def member(name: str, requests: dict[str, str], node_name: str = "", **annotations: str) -> Pod:
    """A pod of the gang g; with a node, one that was bound there without a gate of ours."""
    spec: dict[str, Any] = {"containers": [{"name": "c", "resources": {"requests": requests}}]}
    if node_name:
        spec |= {"nodeName": node_name, "schedulingGates": []}
    return decode(
        pod_json(name, metadata={"annotations": {keys.GANG_ANNOTATION: "g", **annotations}}, **spec)
    )


def placed_beside(other: Pod, required: str = "", planned_on: str = "") -> dict[str, str] | str:
    """Where two GPU pods go: two empty GPU nodes are in block b1, one in the block b0 of the other pod."""
    request = {keys.REQUIRED_TOPOLOGY_ANNOTATION: required} if required else {}
    nodes = {
        name: msgspec.convert(
            {
                "metadata": {"name": name, "labels": where},
                "status": {"allocatable": {"cpu": "64", "pods": "110", **gpus}},
            },
            Node,
        )
        for name, where, gpus in (
            ("bare", {}, {}),
            ("g0", labels("b0", "s0", "h0"), GPUS),
            ("g1", labels("b1", "s1", "h1"), GPUS),
            ("g2", labels("b1", "s1", "h2"), GPUS),
        )
    }
    entries = [PlannedPod(name="other", uid="uid-other", node=planned_on)] if planned_on else []
    plans = {"ns/p": Placement(metadata=Metadata(namespace="ns", name="p"), spec=PlacementSpec(pods=entries))}
    workers = [member(f"w{index}", GPUS, **request) for index in range(2)]
    snapshotter = Snapshotter(
        ClusterReading((*workers, other), nodes, plans, lambda _: OwnerFacts()), Settings()
    )
    view = snapshotter.view()
    (gang,) = gather(view.gated, view.others, lambda _: OwnerFacts())
    waiting = [pod for pod in gang.gated if pod.metadata.uid not in view.planned]
    asked = question(gang, waiting, view.placed_on(gang.pods), is_ours=view.is_ours)
    answer = place(asked.gang, snapshotter.snapshot(view), Settings().options)
    return dict(answer.nodes) if isinstance(answer, Assignment) else answer.sentence


def test_a_launcher_that_kube_scheduler_bound_to_a_node_without_labels_does_not_make_its_gang_wait() -> None:
    launcher = member("other", {"cpu": "1"}, "bare")
    assert placed_beside(launcher, required="block") == {"uid-w0": "g1", "uid-w1": "g2"}


def test_a_launchers_block_is_not_taken_to_be_free_of_charge() -> None:
    assert placed_beside(member("other", {"cpu": "1"}, "g0")) == {"uid-w0": "g1", "uid-w1": "g2"}


def test_a_gpu_pod_that_was_bound_before_topogate_came_has_its_equals_beside_it() -> None:
    placed = placed_beside(member("other", GPUS, "g1"), required="block")
    assert isinstance(placed, str), "only g2 is left in its block"
    assert "the domain of the gang's placed pods" in placed


def test_a_gated_pod_that_names_the_level_has_its_gang_beside_it_whatever_it_requests() -> None:
    launcher = member("other", {"cpu": "1"}, "g0", **{keys.REQUIRED_TOPOLOGY_ANNOTATION: "block"})
    placed = placed_beside(launcher, required="block", planned_on="g0")
    assert isinstance(placed, str)
    assert "the domain of the gang's placed pods" in placed


def test_a_cpu_only_pod_that_we_placed_draws_nobody_to_it() -> None:
    launcher = member("other", {"cpu": "1"}, "g0")
    found = placed_beside(launcher, required="block", planned_on="g0")
    assert found == {"uid-w0": "g1", "uid-w1": "g2"}


class Written(Api):
    """An API server that takes everything and keeps the bodies of what is created."""

    def __init__(self) -> None:
        self.created: list[Any] = []

    def request(self, method: str, path: str, *, body: Any = None, **_: Any) -> bytes:
        if method == "POST":
            self.created.append(msgspec.to_builtins(body))
            return msgspec.json.encode(body)
        return b"{}"


@pytest.mark.promise("W32")
@pytest.mark.parametrize("is_proven", [True, False])
def test_a_placement_records_whether_its_plan_is_proven_the_best(is_proven: bool) -> None:
    placing = Placing(Nodes(1, gpu_pod("p")), Settings(settle_seconds=0))
    orders = placing.one()
    (order,) = orders.plans
    order = replace(order, answer=replace(order.answer, proven=is_proven))
    cache = SimpleNamespace(usage_version=order.usage_version, written=lambda _: None, expect=lambda _: None)
    api = Written()
    applier = Applies(Pass(api, cast(Any, cache), Settings()))
    applier.apply(replace(orders, plans=(order,)), placing.view())
    applier.close()
    (body,) = api.created
    assert msgspec.convert(body["spec"], PlacementSpec).proven is is_proven
