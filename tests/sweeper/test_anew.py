"""Whether all of a gang would fit once its released part is gone, whose pin and room then do not count."""

from typing import Any

import msgspec
import pytest

from tests.sweeper.cluster import Nodes, Placing, gpu_pod
from webhook.kube.objects import Metadata, Node, Pod
from webhook.kube.placements import Placement, PlacementSpec
from webhook.kube.planned import PlannedPod
from webhook.placement import Budget
from webhook.sweeper.decide import asking
from webhook.sweeper.decide.verdicts import NodeVerdict, Verdicts
from webhook.sweeper.node_rules import Avoid, BadNodes, SpareNodes
from webhook.sweeper.observe.pins import unpinned
from webhook.sweeper.settings import Settings

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def member(name: str, node: str = "") -> Pod:
    """A pod of a gang of two that wants one subblock, gated or running where it was pinned to."""
    annotations = {"topogate.io/gang": "g", "topogate.io/required-topology": "subblock"}
    terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}]
    affinity = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}} if node else {}
    return gpu_pod(name, node=node, metadata={"annotations": annotations}, affinity=affinity)


def subblocks(*sizes: int) -> Nodes:
    """Nodes of one GPU in subblocks of these sizes, n0 in the first. a of the gang is on n0, and b waits."""
    cluster = Nodes(sum(sizes), member("a", "n0"), member("b"))
    numbers = [number for number, size in enumerate(sizes) for _ in range(size)]
    for name, number in zip(list(cluster.nodes), numbers, strict=True):
        body = msgspec.to_builtins(cluster.nodes[name])
        body["metadata"]["labels"] = {
            "topology.gke.io/cluster": "b",
            "topology.gke.io/rack": f"s{number}",
            "topology.gke.io/host": name,
        }
        cluster.nodes[name] = msgspec.convert(body, Node)
    return cluster


@pytest.mark.parametrize(
    ("sizes", "spread"),
    [((1, 2), "1 block, 1 subblock, 2 hosts, 2 nodes"), ((1, 1), ""), ((1,), "")],
    ids=["another subblock has room for both", "no subblock has", "there is no other node"],
)
def test_a_gang_would_go_anew_where_all_of_it_fits(sizes: tuple[int, ...], spread: str) -> None:
    case = Placing(subblocks(*sizes), Settings(reserve_share=1.0, patience_seconds=0))
    case.cluster.placements["ns/p"] = Placement(
        metadata=Metadata(namespace="ns", name="p"), spec=PlacementSpec(pods=[PlannedPod("a", "uid-a", "n0")])
    )
    orders = case.one()
    assert not orders.plans, "the rest finds no place beside the part"
    (gang,) = case.gangs()
    assert case.place_anew(gang) == spread


@pytest.mark.parametrize(("held", "spread"), [("", True), ("n1", False)], ids=["nothing held", "one held"])
def test_a_gang_does_not_go_anew_where_its_new_pods_would_be_kept_out(held: str, spread: bool) -> None:
    """Its running pods would have ended for nothing."""
    case = Placing(subblocks(1, 2), Settings(reserve_share=1.0, patience_seconds=0, reserve_seconds=1e9))
    case.cluster.pods.append(gpu_pod("older", gpus=3, priority=9))
    case.one()
    older, gang = case.gangs()
    assert older.key.name == "older"
    case.reserve(older.key, [held] if held else [])
    assert bool(case.place_anew(gang)) is spread


@pytest.mark.parametrize(("nodes", "spread"), [(3, True), (2, False)], ids=["room beside it", "a spare"])
def test_a_gang_does_not_go_anew_to_nodes_that_are_kept_free_for_replacements(
    nodes: int, spread: bool
) -> None:
    """Replacements go there beside what their gang has left; of this one all would be new."""
    spare = SpareNodes(per_block=1)
    case = Placing(subblocks(1, nodes), Settings(patience_seconds=0, spare_nodes=spare))
    case.one()
    (gang,) = case.gangs()
    assert bool(case.place_anew(gang)) is spread


def test_a_gang_does_not_go_anew_to_nodes_that_are_bad() -> None:
    case = Placing(subblocks(1, 2), Settings(patience_seconds=0, bad_nodes=BadNodes(Avoid.HARD)))
    bad = NodeVerdict("n1", "", 3, "exit status 1", 0, 10**10)
    case.health.verdicts = Verdicts({"n1": bad})
    case.one()
    (gang,) = case.gangs()
    assert case.place_anew(gang) == ""


def test_what_is_asked_for_a_gang_that_would_go_anew_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[Any] = []
    real = asking.ask

    def ask(asked: Any, snapshot: Any, options: Any, budget: Budget | None = None) -> Any:
        given.append(budget)
        return real(asked, snapshot, options)

    case = Placing(subblocks(1, 2), Settings(patience_seconds=0))
    case.one()
    (gang,) = case.gangs()
    monkeypatch.setattr(asking, "ask", ask)
    case.place_anew(gang)
    (budget,) = given
    assert budget.left == 4 * Settings().options.bound


TERMS: list[list[dict[str, Any]]] = [
    [],
    [{"matchExpressions": [{"key": "a", "operator": "Exists"}]}],
    [{"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["n9"]}]}],
]


@pytest.mark.parametrize("terms", TERMS, ids=["none", "an expression", "a field"])
def test_a_pod_without_our_pin_asks_for_what_its_author_wrote(terms: list[dict[str, Any]]) -> None:
    pin = {"key": "metadata.name", "operator": "In", "values": ["n1"]}
    pinned = [{**term, "matchFields": [*term.get("matchFields", ()), pin]} for term in terms or [{}]]
    affinity = unpinned(with_terms(pinned), "n1").spec.affinity
    assert affinity is not None
    assert affinity.node_affinity == with_terms(terms).spec.affinity.node_affinity  # type: ignore[union-attr]


def with_terms(terms: list[dict[str, Any]]) -> Pod:
    required = {REQUIRED: {"nodeSelectorTerms": terms}} if terms else {}
    return gpu_pod("a", affinity={"nodeAffinity": required})
