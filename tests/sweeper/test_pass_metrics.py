"""What passes add to the metrics: times, causes, spread, reservations."""

from collections.abc import Mapping, Set
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import msgspec
import pytest
from prometheus_client import generate_latest

from labeler.contract import keys
from tests.sweeper.clock import Clock
from tests.sweeper.cluster import GPU, Nodes, Placing, gpu_pod
from webhook.configuration.settings import Settings
from webhook.extensions.fair_order import account_use, fair_order
from webhook.extensions.node_health import node_health
from webhook.extensions.scale_up.new_nodes import NEW_NODES
from webhook.kube.objects import Pod
from webhook.kube.placements import VictimGroup
from webhook.placement import Mix, MixClass, NodeInfo, Options, Snapshot, vector
from webhook.scheduling.gpus import Counting
from webhook.sweeper import pass_measurements
from webhook.sweeper.context import Pass
from webhook.sweeper.decide.orders import Cause, Done, Eviction, EvictionCause, Orders
from webhook.sweeper.decide.reservations import LATER_STAGE, STARVATION
from webhook.sweeper.metrics import Metrics
from webhook.sweeper.pass_measurements import MOST_CLASSES, OTHER, PassMeasurements, Stock, take_stock

CREATED = 1767225600.0
"""2026-01-01T00:00:00Z, when the pods of these tests are made."""


def gang_pod(name: str, gang: str = "g", **more: Any) -> Pod:
    annotations = {keys.GANG_ANNOTATION: gang, **more.pop("annotations", {})}
    metadata = {"annotations": annotations, "creationTimestamp": "2026-01-01T00:00:00Z"}
    return gpu_pod(name, metadata=metadata, **more)


class Passes:
    """Passes over a cluster in memory, whose orders all are carried out."""

    def __init__(self, cluster: Nodes, settings: Settings | None = None) -> None:
        self.settings = settings or Settings(settle_seconds=0, patience_seconds=0)
        self.cluster = cluster
        self.placing = Placing(cluster, self.settings)
        self.metrics, self.clock, self.now = Metrics(), Clock(), Clock()
        nobody: Any = None
        surroundings = Pass(nobody, nobody, self.settings, self.metrics, clock=self.clock)
        self.measurements = PassMeasurements(surroundings, self.now)
        self.now.now = CREATED

    def one(self, reserved: Mapping[str, Set[str]] = MappingProxyType({})) -> Orders:
        orders = self.placing.one()
        self.measurements.on_result(orders, Done(placed=orders.plans))
        view = self.placing.view()
        self.measurements.note(view, self.placing.snapshotter.snapshot(view), reserved)
        self.clock.now += 60
        return orders

    def bind(self, orders: Orders, phase: str = "Running") -> None:
        """The planned pods come to this phase on their nodes."""
        nodes = {entry.uid: entry.node for plan in orders.plans for entry in plan.entries}
        self.cluster.pods = [
            gpu_pod(pod.metadata.name, node=nodes[pod.metadata.uid], phase=phase)
            if pod.metadata.uid in nodes
            else pod
            for pod in self.cluster.pods
        ]

    def shown(self, name: str) -> dict[str, float]:
        """The samples of one series, by what stands between its braces."""
        lines = generate_latest(self.metrics.registry).decode().splitlines()
        found = [line.partition(name)[2].rpartition(" ") for line in lines if line.startswith(f"{name}{{")]
        return {labels: float(value) for labels, _, value in found}


@pytest.mark.parametrize(("took", "due_in"), [(0.0, 5.0), (0.2, 10.0)], ids=["at least", "by its share"])
def test_sums_are_refreshed_so_seldom_that_they_take_a_fiftieth_of_the_time(
    took: float, due_in: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    passes, made = Passes(Nodes(2)), list[Stock]()
    snapshot = passes.placing.snapshotter.snapshot(passes.placing.view())

    def slow(*given: Any) -> Stock:
        passes.clock.now += took
        made.append(take_stock(*given))
        return made[-1]

    monkeypatch.setattr(pass_measurements, "take_stock", slow)
    for seconds in (0.0, due_in - 0.001, 0.002):
        passes.clock.now += seconds
        passes.measurements.note(passes.placing.view(), snapshot, {})
        assert len(made) == (2 if seconds == 0.002 else 1)


@pytest.mark.promise("O245")
def test_a_plan_is_timed_by_its_oldest_pod_and_class() -> None:
    passes = Passes(
        Nodes(2, gang_pod("a", priorityClassName="high"), gang_pod("b", priorityClassName="high"))
    )
    passes.now.now = CREATED + 42
    passes.one()
    assert passes.shown("topogate_time_to_placement_seconds_sum") == {'{priority_class="high"}': 42}
    assert passes.shown("topogate_time_to_placement_seconds_count") == {'{priority_class="high"}': 1}


@pytest.mark.promise("O245")
def test_a_gang_runs_when_all_its_pods_do_and_is_timed_once() -> None:
    passes = Passes(Nodes(2, gang_pod("a"), gang_pod("b")))
    orders = passes.one()
    passes.bind(orders, "Pending")
    passes.one()
    assert passes.shown("topogate_time_to_running_seconds_count") == {}
    passes.bind(orders)
    passes.now.now = CREATED + 7
    for _ in range(2):
        passes.one()
    assert passes.shown("topogate_time_to_running_seconds_sum") == {'{priority_class="none"}': 7}
    assert passes.shown("topogate_time_to_running_seconds_count") == {'{priority_class="none"}': 1}


def test_a_gang_that_is_deleted_before_it_runs_is_not_timed() -> None:
    passes = Passes(Nodes(1, gang_pod("a")))
    passes.one()
    passes.cluster.pods = []
    passes.one()
    assert passes.shown("topogate_time_to_running_seconds_count") == {}


@pytest.mark.promise("O200")
def test_priority_classes_beyond_a_bound_share_a_series() -> None:
    count = MOST_CLASSES + 3
    pods = [gang_pod(f"p{i}", f"g{i}", priorityClassName=f"c{i:03}") for i in range(count)]
    passes = Passes(Nodes(count, *pods))
    passes.one()
    counts = passes.shown("topogate_time_to_placement_seconds_count")
    assert len(counts) == MOST_CLASSES + 1
    assert counts[f'{{priority_class="{OTHER}"}}'] == 3


@pytest.mark.promise("O200")
def test_gpus_of_reserved_nodes_are_reported_by_what_they_are_reserved_for() -> None:
    passes = Passes(Nodes(3, gpus=8))
    waiting, stages, scale_up = (kind.name for kind in (STARVATION, LATER_STAGE, NEW_NODES))
    passes.one({waiting: {"n0", "n1", "gone"}, stages: {"n2"}, scale_up: {"n1"}})
    assert passes.shown("topogate_reserved_gpus") == {
        '{purpose="waiting"}': 16,
        '{purpose="stages"}': 8,
        '{purpose="scale-up"}': 8,
    }


def test_gangs_that_preempt_are_counted() -> None:
    low = gpu_pod("low", node="n0", priority=1)
    passes = Passes(Nodes(1, low, gang_pod("high", priority=100)))
    passes.one()
    assert "topogate_preemptions_total 1.0" in generate_latest(passes.metrics.registry).decode()


def cause_of(pod: Pod, *others: Pod, **settings: Any) -> Cause:
    passes = Passes(Nodes(1, pod, *others), Settings(settle_seconds=0, patience_seconds=0, **settings))
    (outcome,) = passes.one().outcomes
    return outcome.cause


@pytest.mark.parametrize(
    ("more", "cause"),
    [
        ({"schedulingGates": [{"name": keys.GATE}, {"name": "quota"}]}, Cause.OTHER_GATE),
        ({"schedulerName": "strange"}, Cause.OTHER_SCHEDULER),
        ({"annotations": {keys.REQUIRED_TOPOLOGY_ANNOTATION: "moon"}}, Cause.INVALID_REQUEST),
        ({"gpus": 2}, Cause.INSUFFICIENT_CAPACITY),
    ],
    ids=lambda value: str(value) if isinstance(value, Cause) else "",
)
def test_a_gang_waits_for_one_cause(more: dict[str, Any], cause: Cause) -> None:
    assert cause_of(gang_pod("a", **more)) is cause


def test_a_gang_of_unknown_size_waits_because_it_is_incomplete() -> None:
    passes = Passes(Nodes(1, gang_pod("a")), Settings(settle_seconds=5))
    (outcome,) = passes.one().outcomes
    assert (outcome.cause, outcome.is_news) == (Cause.INCOMPLETE, False)


def test_what_was_not_decided_within_its_bound_is_counted() -> None:
    pods = [gang_pod(f"p{i}", gpus=1 + i % 3) for i in range(12)]
    options = Options(bound=1)
    passes = Passes(Nodes(4, *pods, gpus=6), Settings(settle_seconds=0, patience_seconds=0, options=options))
    (outcome,) = passes.one().outcomes
    assert outcome.cause is Cause.WORK_BUDGET
    assert passes.shown("topogate_work_budget_reached_total")['{outcome="waiting"}'] == 1


def test_causes_are_counted_and_those_that_nobody_waits_for_are_zero() -> None:
    metrics = Metrics()
    metrics.count_causes(
        [Cause.INSUFFICIENT_CAPACITY, Cause.INSUFFICIENT_CAPACITY, Cause.INVALID_REQUEST], Cause
    )
    text = generate_latest(metrics.registry).decode()
    assert 'topogate_gangs_waiting{cause="insufficient-capacity"} 2.0' in text
    assert 'topogate_gangs_waiting{cause="work-budget"} 0.0' in text


def test_a_model_that_has_left_the_cluster_is_shown_no_more() -> None:
    passes = Passes(Nodes(1))
    old = passes.cluster.nodes["n0"]
    for model in ("A", "B"):
        labels = {keys.GPU_MODEL_LABEL: model}
        metadata = msgspec.structs.replace(old.metadata, labels=labels)
        passes.cluster.nodes = {"n0": msgspec.structs.replace(old, metadata=metadata)}
        passes.one()
    assert passes.shown("topogate_gpus") == {'{model="B",state="free"}': 1, '{model="B",state="used"}': 0}


def test_stranded_gpus_are_shown_by_model_and_by_what_the_node_lacks() -> None:
    node = NodeInfo("n", {keys.GPU_MODEL_LABEL: "A"}, allocatable={"cpu": 1000, "nvidia.com/gpu": 4})
    each = MixClass(vector({"cpu": 8000, "nvidia.com/gpu": 1}), 1000, 1, "nvidia.com/gpu")
    snapshot = Snapshot.build([node], []).with_mix(Mix((each,)))
    assert take_stock(snapshot, Counting(("nvidia.com/gpu",))).stranded == {("A", "cpu"): 4.0}


def test_nothing_is_stranded_on_a_node_that_is_reserved_for_a_gang() -> None:
    """The page and the map leave its free GPUs out too, so the three agree."""
    node = NodeInfo("n", {keys.GPU_MODEL_LABEL: "A"}, allocatable={"cpu": 1000, "nvidia.com/gpu": 4})
    each = MixClass(vector({"cpu": 8000, "nvidia.com/gpu": 1}), 1000, 1, "nvidia.com/gpu")
    snapshot = Snapshot.build([node], []).with_mix(Mix((each,)))
    assert take_stock(snapshot, Counting(("nvidia.com/gpu",)), {"n"}).stranded == {}


def test_the_cluster_is_added_up_now_and_then_and_no_more() -> None:
    passes = Passes(Nodes(1))
    assert passes.measurements.is_stale
    passes.one()
    passes.clock.now -= 59
    assert not passes.measurements.is_stale
    passes.cluster.nodes = {}
    passes.one()
    assert passes.shown("topogate_gpus")['{model="",state="free"}'] == 1, "a second later it still holds"
    passes.one()
    assert passes.shown("topogate_gpus") == {}


@pytest.mark.promise("O200")
def test_thirty_two_classes_models_and_accounts_have_series_of_their_own() -> None:
    assert {
        MOST_CLASSES,
        pass_measurements.MOST_MODELS,
        node_health.MOST_MODELS,
        fair_order.MOST_ACCOUNTS,
        account_use.MOST_MODELS,
    } == {32}


@pytest.mark.promise("O200")
def test_the_operator_sets_what_counts_as_a_gpu() -> None:
    settings = Settings(gpu_resources=("example.com/chip",), model_label="chip")
    assert settings.counting.names([GPU, "example.com/chip"]) == ("example.com/chip",)
    assert settings.counting.model({"chip": "C1", keys.GPU_MODEL_LABEL: "other"}) == "C1"


@pytest.mark.parametrize(
    ("victim", "moving", "preempting"),
    [
        (VictimGroup(pods=["a"], whole=True, nodes=["n0"], moves=["2026-01-01T00:00:00Z"]), 1.0, 0.0),
        (VictimGroup(pods=["a"], whole=True), 0.0, 1.0),
    ],
)
def test_plans_that_move_gangs_are_counted_apart_from_those_that_preempt(
    victim: VictimGroup, moving: float, preempting: float
) -> None:
    passes = Passes(Nodes(1))
    passes.cluster.pods.append(gang_pod("a"))
    (plan,) = passes.placing.one().plans
    for preempts in (True, False):
        order = replace(plan, preempts=preempts, victims=(victim,))
        passes.measurements.on_result(Orders(), Done(placed=(order,)))
    samples = generate_latest(passes.metrics.registry).decode().splitlines()
    assert f"topogate_moving_plans_total {moving}" in samples
    assert f"topogate_preemptions_total {preempting}" in samples


def test_the_gpu_hours_that_moved_pods_have_run_are_counted() -> None:
    passes = Passes(Nodes(1))
    pods = [gang_pod(name, gpus=4, node="n0") for name in "ab"]
    passes.now.now = CREATED + 1800
    causes = EvictionCause.MOVED, EvictionCause.PREEMPTED
    orders = tuple(Eviction(pod, cause, "") for pod, cause in zip(pods, causes, strict=True))
    passes.measurements.on_result(Orders(), Done(evicted=orders))
    samples = generate_latest(passes.metrics.registry).decode().splitlines()
    assert "topogate_moved_gpu_hours_total 2.0" in samples
