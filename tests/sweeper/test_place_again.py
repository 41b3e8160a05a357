"""Whether all of a gang would fit once its released part is gone: its pins and use then do not count."""

from typing import Any

import pytest

from tests.sweeper.cluster import Placing, gpu_pod
from tests.sweeper.subblocks import REQUIRED, subblocks
from webhook.configuration.settings import Settings
from webhook.kube.objects import Metadata, Pod
from webhook.kube.placements import Placement, PlacementSpec
from webhook.kube.plan_pods import PlannedPod
from webhook.placement import Budget
from webhook.sweeper.decide import core_questions
from webhook.sweeper.observe.plans import unpinned


@pytest.mark.parametrize(
    ("sizes", "spread"),
    [((1, 2), "1 block, 1 subblock, 2 hosts, 2 nodes"), ((1, 1), ""), ((1,), "")],
    ids=["another subblock has capacity for both", "no subblock has", "there is no other node"],
)
def test_a_gang_is_recreated_where_all_of_it_fits(sizes: tuple[int, ...], spread: str) -> None:
    case = Placing(subblocks(*sizes), Settings(reserve_share=1.0, patience_seconds=0))
    case.cluster.placements["ns/p"] = Placement(
        metadata=Metadata(namespace="ns", name="p"), spec=PlacementSpec(pods=[PlannedPod("a", "uid-a", "n0")])
    )
    orders = case.one()
    assert not orders.plans, "the rest finds no place beside the part"
    (gang,) = case.gangs()
    assert case.place_again(gang) == spread


@pytest.mark.promise("O97")
@pytest.mark.parametrize(
    ("reserved", "spread"), [("", True), ("n1", False)], ids=["nothing held", "one held"]
)
def test_a_gang_is_not_recreated_where_its_new_pods_would_be_excluded(reserved: str, spread: bool) -> None:
    """Its running pods would have ended for nothing."""
    case = Placing(subblocks(1, 2), Settings(reserve_share=1.0, patience_seconds=0, reserve_seconds=1e9))
    case.cluster.pods.append(gpu_pod("older", gpus=3, priority=9))
    case.one()
    older, gang = case.gangs()
    assert older.key.name == "older"
    case.reserve(older.key, [reserved] if reserved else [])
    assert bool(case.place_again(gang)) is spread


def test_the_search_for_a_gang_to_be_recreated_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[Any] = []
    real = core_questions.ask

    def ask(asked: Any, snapshot: Any, options: Any, budget: Budget | None = None) -> Any:
        given.append(budget)
        return real(asked, snapshot, options)

    case = Placing(subblocks(1, 2), Settings(patience_seconds=0))
    case.one()
    (gang,) = case.gangs()
    monkeypatch.setattr(core_questions, "ask", ask)
    case.place_again(gang)
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
