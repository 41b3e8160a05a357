"""What counts as how many GPUs: shares, replicas, MIG instances and devices of claims, all mixed."""

from typing import Any

import msgspec
import pytest

from labeler.contract import keys
from tests.devices import bodies
from tests.sweeper.pods import decode, pod_json
from webhook.cli.top import gather
from webhook.configuration.settings import Settings
from webhook.inquiry.cluster_state import ClusterReading
from webhook.kube.devices import ResourceClaim
from webhook.kube.objects import Node, Pod
from webhook.placement import NodeInfo, Usage
from webhook.placement.snapshot import node_state
from webhook.scheduling.gpu_counts import NodeGpus, count_gpus, node_gpus, used_gpus
from webhook.scheduling.gpus import DEVICES, MODEL_LABELS, Counting
from webhook.scheduling.nodes import node_of
from webhook.sweeper.observe.gangs import OwnerFacts
from webhook.sweeper.pass_measurements import FREE, USED, take_stock
from webhook.ui.history import sample
from webhook.ui.live import Artist

PRODUCT = "nvidia.com/gpu.product"
GPU = "nvidia.com/gpu"
COUNTING = Settings().counting


def with_labels(name: str, allocatable: dict[str, str], labels: dict[str, str]) -> Node:
    return msgspec.convert(
        {
            "metadata": {"name": name, "uid": name, "labels": {keys.HOSTNAME_LABEL: name, **labels}},
            "spec": {},
            "status": {
                "allocatable": {"cpu": "96", "memory": "1Ti", "pods": "110", **allocatable},
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        },
        Node,
    )


WHOLE = with_labels("whole", {GPU: "8"}, {PRODUCT: "H100"})
CARDS = with_labels(
    "cards",
    {keys.I915: "32"},
    {"gpu.intel.com/product": "Max_1550", keys.CARDS_LABEL: "card0.card1", keys.GPU_NUMBERS_LABEL: "0.1"},
)
RENAMED = with_labels(
    "renamed",
    {GPU + ".shared": "40"},
    {PRODUCT: "A100", GPU + ".replicas": "10", GPU + ".count": "4"},
)
SLICED = with_labels("sliced", {GPU: "16"}, {PRODUCT: "L40-SHARED", GPU + ".replicas": "4"})
MIG = with_labels("mig", {GPU: "1", "nvidia.com/mig-1g.10gb": "7"}, {PRODUCT: "H100"})
CLAIMED = with_labels("claimed", {}, {PRODUCT: "GB200"})
ALL_KINDS = (WHOLE, CARDS, RENAMED, SLICED, MIG, CLAIMED)
IN_ALL = {
    "H100": 9, "Max_1550": 2, "A100": 4, "L40-SHARED": 4, "H100-MIG-1g.10gb": 7, "GB200": 4,
}  # fmt: skip


def gpus_of(node: Node) -> tuple[NodeGpus, ...]:
    return node_gpus(node_of(node), COUNTING)


@pytest.mark.promise("R249")
@pytest.mark.parametrize(
    ("node", "want"),
    [
        (WHOLE, [("H100", 8, 1)]),
        (CARDS, [("Max_1550", 2, 16)]),
        (RENAMED, [("A100", 4, 10)]),
        (SLICED, [("L40-SHARED", 4, 4)]),
        (MIG, [("H100", 1, 1), ("H100-MIG-1g.10gb", 7, 1)]),
    ],
    ids=lambda value: value.metadata.name if isinstance(value, Node) else "",
)
def test_gpus_are_counted_by_resource_and_model(node: Node, want: list[tuple[str, int, int]]) -> None:
    assert [(each.model, each.gpus, each.shares) for each in gpus_of(node)] == want


@pytest.mark.promise("R249")
def test_devices_of_claims_count_as_devices() -> None:
    node = NodeInfo("n", {PRODUCT: "GB200"}, allocatable={DEVICES: 4})
    assert [(each.model, each.gpus) for each in node_gpus(node, COUNTING)] == [("GB200", 4)]


def test_intel_units_without_card_numbers_are_divided_by_what_the_labeler_counts() -> None:
    node = with_labels("n", {keys.I915: "20"}, {keys.GPU_VENDOR_COUNT_PREFIX + "intel": "2"})
    assert [(each.gpus, each.shares) for each in gpus_of(node)] == [(2, 10)]


@pytest.mark.parametrize("replicas", ["0", "-1", "many", ""])
def test_a_number_of_replicas_that_is_none_counts_as_one(replicas: str) -> None:
    node = with_labels("n", {GPU: "8"}, {GPU + ".replicas": replicas})
    assert count_gpus(node_of(node), COUNTING) == 8


def test_whole_gpus_beside_shared_ones_are_not_divided() -> None:
    node = with_labels("n", {GPU: "4", GPU + ".shared": "20"}, {GPU + ".replicas": "5"})
    assert count_gpus(node_of(node), COUNTING) == 8


def test_a_node_without_gpus_has_none() -> None:
    assert gpus_of(with_labels("n", {}, {PRODUCT: "H100"})) == ()


@pytest.mark.parametrize(("units", "used"), [(0, 0), (1, 1), (10, 1), (11, 2), (40, 4), (99, 4)])
def test_a_gpu_is_in_use_when_a_share_of_it_is(units: int, used: int) -> None:
    state = node_state(node_of(RENAMED), None, (Usage({GPU + ".shared": units}),))
    (found,) = gpus_of(RENAMED)
    assert used_gpus(state, found) == used


def test_of_cards_those_that_pods_were_given_are_in_use() -> None:
    """Two pods with one share each: of one card, or of two."""
    (found,) = gpus_of(CARDS)
    share = {keys.I915: 1}
    for cards, used in ((("card0", "card0"), 1), (("card0", "card1"), 2)):
        usages = tuple(Usage(share, cards={card: share}) for card in cards)
        assert used_gpus(node_state(node_of(CARDS), None, usages), found) == used


def bound(name: str, node: str, resource: str, amount: int) -> Pod:
    resources = {"requests": {resource: str(amount)}, "limits": {resource: str(amount)}}
    spec: dict[str, Any] = {
        "nodeName": node, "schedulingGates": [],
        "containers": [{"name": "c", "image": "x", "resources": resources}],
    }  # fmt: skip
    return decode({**pod_json(name, metadata={"uid": name}, **spec), "status": {"phase": "Running"}})


PODS = (
    bound("a", "whole", GPU, 3),
    bound("b", "cards", keys.I915, 1),
    bound("c", "renamed", GPU + ".shared", 11),
    bound("d", "sliced", GPU, 4),
    bound("e", "mig", "nvidia.com/mig-1g.10gb", 2),
    bodies.pod("f", "three", node="claimed"),
)
IN_USE = {
    "H100": 3, "Max_1550": 1, "A100": 2, "L40-SHARED": 1, "H100-MIG-1g.10gb": 2, "GB200": 3,
}  # fmt: skip


def devices() -> dict[Any, Any]:
    """Four devices of one node, of which a claim has three."""
    has = bodies.given("g0", "g1", "g2", pool="claimed")
    three = bodies.claim("three", bodies.claim_spec(bodies.exactly(3)), given=has)
    body = msgspec.to_builtins(three)
    body["status"]["reservedFor"] = [{"resource": "pods", "name": "f", "uid": "uid-f"}]
    return bodies.collections(bodies.gpus("claimed", 4), claims=(msgspec.convert(body, ResourceClaim),))


def cluster_of_all_kinds() -> ClusterReading:
    return ClusterReading(
        PODS, {each.metadata.name: each for each in ALL_KINDS}, {}, lambda _: OwnerFacts(None),
        read_objects=devices().get,
    )  # fmt: skip


@pytest.mark.promise("R249")
def test_the_command_line_the_page_and_the_metrics_count_a_heterogeneous_cluster_equally() -> None:
    lines = gather(cluster_of_all_kinds())
    assert {line.model: line.total for line in lines} == IN_ALL
    assert {line.model: line.used for line in lines} == IN_USE
    assert all(line.free == line.total - line.used for line in lines)
    scene = Artist(
        cluster_of_all_kinds(), Settings(), Counting(tuple(COUNTING.resources), MODEL_LABELS)
    ).scene()
    tiles = scene.picture.nodes.values()
    assert sum(tile.gpus for tile in tiles) == sum(IN_ALL.values()) == 30
    assert sum(tile.used for tile in tiles) == sum(IN_USE.values())
    history = sample(0, scene.picture, scene.gangs)
    assert (history.gpus, history.used) == (IN_ALL, IN_USE)
    assert {row.model: row.gpus for row in scene.capacity} == IN_ALL
    assert {row.model: row.gpus - row.free for row in scene.capacity} == IN_USE
    stock = take_stock(scene.snapshot, COUNTING)
    assert {model: stock.gpus[model, USED] for model in IN_ALL} == IN_USE
    assert {model: stock.gpus[model, USED] + stock.gpus[model, FREE] for model in IN_ALL} == IN_ALL
