"""Unlike pods that fill their nodes: found, or known not to fit, though the search for the best was cut."""

import pytest

from hack.benchmarks.packing import ours
from hack.comparing.packings import planted
from tests.placement.small import node, pod_class
from webhook.placement import Budget, Gang, Member, Options, Snapshot, Usage
from webhook.placement.question import ask
from webhook.placement.tree import build, nodes_of
from webhook.placement.unlike.filling import Filling


@pytest.mark.parametrize(("nodes", "kinds"), [(6, 3), (10, 4), (20, 6)])
@pytest.mark.parametrize("seed", range(4))
def test_pods_that_fill_up_to_twenty_nodes_are_packed(nodes: int, kinds: int, seed: int) -> None:
    assert ours(planted(nodes, kinds, 0, seed)) is True


@pytest.mark.parametrize("seed", range(4))
def test_one_cpu_too_few_on_twenty_nodes_is_known(seed: int) -> None:
    assert ours(planted(20, 6, -1, seed)) is False


@pytest.mark.parametrize(("slack", "fits"), [(0, True), (-1, False)], ids=["full", "one cpu too few"])
def test_thousands_of_pods_that_fill_hundreds_of_nodes_are_decided(slack: int, fits: bool) -> None:
    assert ours(planted(500, 3, slack, 0)) is fits


def test_a_node_on_which_more_of_a_resource_is_used_than_there_is_still_takes_pods_without_it() -> None:
    """The search for any place is asked alone: the search for the best would find one before it."""
    usage = [("over", Usage({"gpu": 2, "pods": 1}))]
    nodes = [node("over", ("b", "r", "over"), 2, gpu=1), node("free", ("b", "r", "free"), 2, gpu=2)]
    members = [
        Member(f"p{n}", None, pod_class(1, gpu=1) if n < 2 else pod_class(1)) for n in range(4)
    ]  # the two with a GPU fill the free node
    snapshot = Snapshot.build(nodes, usage)
    question, _ = ask(Gang("g", tuple(members)), snapshot, Options())
    budget = Budget(10**6)
    vertices = list(nodes_of(build(question, snapshot, budget).root))
    found = Filling(question, vertices, budget).solve()
    with_gpu = next(n for n, kind in enumerate(question.classes) if dict(kind.requests).get("gpu"))
    assert found is not None
    assert found["free"][with_gpu] == 2
    assert found["over"][1 - with_gpu] == 2
