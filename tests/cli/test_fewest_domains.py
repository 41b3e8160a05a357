"""In how few domains a gang would be at best, for what people see of its spread."""

from dataclasses import replace

import pytest

from labeler.contract import keys
from tests.placement.small import node
from webhook.inquiry.fewest_domains import EmptyCluster
from webhook.placement import NodeInfo, PodClass, Requirement, Rules, Snapshot, Taint, Term, Usage, vector

GPU = "nvidia.com/gpu"


def gpu_node(name: str, place: tuple[str, str, str], gpus: int = 8, model: str = "H") -> NodeInfo:
    made = node(name, place, 96, **{GPU: gpus})
    return replace(made, labels={**made.labels, "model": model, keys.HOSTNAME_LABEL: name})


def two_blocks(nodes: int = 8) -> list[NodeInfo]:
    """Two blocks of so many nodes of 8 GPUs, in subblocks of 4."""
    return [
        gpu_node(f"{block}-{i}", (block, f"s{i // 4}", f"h{i}"))
        for block in ("b0", "b1")
        for i in range(nodes)
    ]


def asking(gpus: int = 8, rules: Rules | None = None, **amounts: int) -> PodClass:
    return PodClass(vector({GPU: gpus, "pods": 1, **amounts}), rules or Rules())


def fewest(pods: dict[PodClass, int], nodes: list[NodeInfo], *used: tuple[str, Usage]) -> list[int]:
    return EmptyCluster(Snapshot.build(nodes, used)).fewest_domains(pods)


def test_a_gang_of_more_gpus_than_a_block_has_takes_two_blocks_at_best() -> None:
    """20 pods of 8 GPUs are 160, and a block has 128."""
    nodes = two_blocks(16)
    assert fewest({asking(): 20}, nodes) == [2, 5, 20, 20]


@pytest.mark.parametrize(
    ("pods", "want"), [(1, [1, 1, 1, 1]), (4, [1, 1, 4, 4]), (5, [1, 2, 5, 5]), (9, [2, 3, 9, 9]), (17, [])]
)
def test_the_fewest_domains_hold_the_gang_if_nobody_else_were_there(pods: int, want: list[int]) -> None:
    used = [(each.name, Usage({GPU: 8})) for each in two_blocks()[:3]]
    assert fewest({asking(): pods}, two_blocks(), *used) == want


@pytest.mark.parametrize(
    "change",
    [{"unschedulable": True}, {"ready": False}, {"taints": (Taint("t", "", "NoSchedule"),)}],
    ids=str,
)
def test_nodes_that_it_may_not_use_do_not_count(change: dict[str, object]) -> None:
    nodes = [
        replace(each, **change) if each.name.startswith("b0") else each  # type: ignore[arg-type]
        for each in two_blocks()
    ]
    assert fewest({asking(): 8}, nodes) == [1, 2, 8, 8]
    assert fewest({asking(): 9}, nodes) == []


def test_nodes_of_another_model_than_it_asks_for_do_not_count() -> None:
    nodes = [*two_blocks(), *(gpu_node(f"a{i}", ("b2", f"s{i}", f"a{i}"), 8, "A") for i in range(3))]
    of_model = asking(rules=Rules(selector=(("model", "A"),)))
    assert fewest({of_model: 3}, nodes) == [1, 3, 3, 3]
    assert fewest({of_model: 4}, nodes) == []


def test_what_else_a_pod_asks_for_limits_the_pods_of_a_node() -> None:
    assert fewest({asking(1, cpu=96_000): 4}, two_blocks()) == [1, 1, 4, 4]


def test_pods_of_several_roles_share_the_gpus_of_the_nodes() -> None:
    """8 workers fill a block, and their leader needs another."""
    assert fewest({asking(8): 8, asking(4): 1}, two_blocks()) == [2, 3, 9, 9]


def test_a_pod_that_is_pinned_by_its_release_counts_as_if_it_were_not() -> None:
    pin = Term(fields=(Requirement("metadata.name", "In", ("b0-0",)),))
    pinned = asking(rules=Rules(affinity=(pin,)))
    assert fewest({pinned: 4, asking(): 4}, two_blocks()) == [1, 2, 8, 8]
