"""What no node meets, and what excludes most nodes, as reasons say it."""

from dataclasses import replace

import pytest

from tests.placement.small import gang_of, node
from webhook.placement import NodeInfo, PodClass, Rules, Snapshot, Taint, Usage, vector
from webhook.scheduling.gpus import Counting
from webhook.scheduling.impossible_requests import impossible, most_excluding, unmet

GPU = "nvidia.com/gpu"
COUNTING = Counting((GPU,), ("model",))


def cluster(**models: int) -> list[NodeInfo]:
    """So many nodes of 8 GPUs of each model."""
    made = []
    for model, count in models.items():
        for number in range(count):
            name = f"{model}-{number}"
            each = node(name, ("b0", "s0", name), 96, **{GPU: 8})
            made.append(replace(each, labels={**each.labels, "model": model, "pool": "p"}))
    return made


def asking(gpus: int = 8, **labels: str) -> PodClass:
    return PodClass(vector({GPU: gpus, "pods": 1}), Rules(selector=tuple(labels.items())))


def sentence_for(pod_class: PodClass, nodes: list[NodeInfo]) -> str:
    return impossible(gang_of(2, pod_class), Snapshot.build(nodes, []), COUNTING)


@pytest.mark.promise("R247")
@pytest.mark.parametrize(
    ("pod_class", "want"),
    [
        (asking(model="RTX"), "no node has GPU model RTX (there are: H100 on 3 nodes, Max on 1 node)"),
        (asking(pool="q"), "no node has the label pool=q (there are: p on 4 nodes)"),
        (asking(zone="z"), "no node has the label zone=z (no node has one)"),
        (asking(9), "a pod asks for 9 nvidia.com/gpu, and no node that it may use has more than 8"),
        (asking(8, model="H100"), ""),
    ],
    ids=["model", "label", "unknown label", "too many GPUs", "possible"],
)
def test_what_no_node_meets_is_named_with_what_there_is(pod_class: PodClass, want: str) -> None:
    assert sentence_for(pod_class, cluster(H100=3, Max=1)) == want


def test_a_required_level_is_named_where_no_usable_node_has_topology_labels() -> None:
    """H100 nodes are in a block, Max nodes are in none."""
    nodes = cluster(H100=2, Max=2)
    unplaced = [replace(each, labels={"model": "Max"}) for each in nodes[2:]]
    snapshot = Snapshot.build([*nodes[:2], *unplaced], [])
    gang = replace(gang_of(2, asking(model="Max")), required_level="block")
    assert impossible(gang, snapshot, COUNTING) == (
        "it asks for domains of the level block, and no node that it may use has topology labels"
    )
    assert impossible(replace(gang, required_level=None), snapshot, COUNTING) == ""
    assert impossible(replace(gang_of(2, asking()), required_level="block"), snapshot, COUNTING) == ""


def test_a_resource_that_no_usable_node_has_is_named() -> None:
    pod_class = PodClass(vector({"amd.com/gpu": 1, "pods": 1}))
    assert sentence_for(pod_class, cluster(H100=1)) == (
        "a pod asks for 1 amd.com/gpu, and no node that it may use has any"
    )


def test_resources_that_no_usable_node_has_are_named_in_one_clause() -> None:
    intel = {"gpu.intel.com/i915": 1, "gpu.intel.com/millicores": 500}
    nodes = cluster(H100=1)
    only = (
        "a pod asks for 1 gpu.intel.com/i915 and 500 gpu.intel.com/millicores, "
        "and no node that it may use has any of them"
    )
    assert list(unmet(PodClass(vector({**intel, "pods": 1})), nodes, COUNTING)) == [only]
    assert list(unmet(PodClass(vector({**intel, GPU: 9, "pods": 1})), nodes, COUNTING)) == [
        only,
        "a pod asks for 9 nvidia.com/gpu, and no node that it may use has more than 8",
    ]


@pytest.mark.promise("R247")
def test_the_cause_that_excludes_most_nodes_counts_those_it_alone_excludes() -> None:
    """Of 5 nodes 3 are tainted, of these one is full; of the others one is full."""
    nodes = cluster(H100=5)
    nodes = [
        replace(each, taints=(Taint("team", "b", "NoSchedule"),)) if number < 3 else each
        for number, each in enumerate(nodes)
    ]
    used = [(nodes[2].name, Usage({GPU: 8})), (nodes[3].name, Usage({GPU: 8}))]
    snapshot = Snapshot.build(nodes, used)
    assert most_excluding(gang_of(4, asking()), snapshot) == (
        '3 nodes have the taint "team=b:NoSchedule"; for 2 it is the only reason.'
    )


def test_one_node_that_lacks_what_is_asked_for_gets_a_sentence_in_the_singular() -> None:
    nodes = cluster(H100=1)
    snapshot = Snapshot.build(nodes, [(nodes[0].name, Usage({GPU: 8}))])
    assert most_excluding(gang_of(1, asking()), snapshot) == (
        "1 node lacks free nvidia.com/gpu; it is the only reason."
    )


def test_where_nothing_is_excluded_there_is_no_sentence() -> None:
    assert most_excluding(gang_of(2, asking()), Snapshot.build(cluster(H100=2), [])) == ""
