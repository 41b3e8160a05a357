"""What all plans say together is computed again only for those that say something else."""

import msgspec

from labeler.contract import keys
from webhook.kube.objects import Metadata
from webhook.kube.placements import Placement, PlacementSpec, PlacementStatus
from webhook.kube.plan_pods import PlannedPod
from webhook.sweeper.observe.plans import Plans


def plan(name: str, node: str, version: int = 1, cards: str = "card0") -> Placement:
    """Of one pod."""
    entry = PlannedPod(name, f"uid-{name}", node, annotations={keys.GAS_CARDS_ANNOTATION: cards})
    metadata = Metadata(name=name, namespace="ns", uid=f"plan-{name}", resource_version=str(version))
    return Placement(metadata=metadata, spec=PlacementSpec(gang=f"Gang/{name}", pods=[entry]))


def with_status(placement: Placement, state: str) -> Placement:
    """The same with another status, as the watch shows it: equal in its spec, and another object."""
    other = msgspec.structs.replace(placement, status=PlacementStatus(state=state))
    return msgspec.json.decode(msgspec.json.encode(other), type=Placement)


def test_a_plan_of_which_only_the_status_changes_is_no_news() -> None:
    plans = Plans()
    one, two = plan("one", "n1"), plan("two", "n2")
    plans.update({"ns/one": one, "ns/two": two})
    before = plans.named, plans.cards
    plans.update({"ns/one": with_status(one, "Bound"), "ns/two": two})
    assert (plans.named, plans.cards) == before
    assert plans.cards is before[1]
    assert [each.node for each in plans.entries_of({"uid-one": "ns"})] == ["n1"]


def test_a_plan_that_gives_other_cards_counts_for_its_node_alone() -> None:
    plans = Plans()
    one, two = plan("one", "n1"), plan("two", "n2")
    plans.update({"ns/one": with_status(one, "Bound"), "ns/two": two})
    before = plans.cards
    plans.update({"ns/one": plan("one", "n1", 2, cards="card1"), "ns/two": with_status(two, "Bound")})
    assert plans.cards["n1"]["ns", "uid-one"] == {keys.GAS_CARDS_ANNOTATION: "card1"}
    assert before["n1"]["ns", "uid-one"] == {keys.GAS_CARDS_ANNOTATION: "card0"}, "what was handed out stays"
    assert plans.cards["n2"] is before["n2"]


def test_a_plan_that_is_gone_is_no_news_whatever_became_of_its_status() -> None:
    plans = Plans()
    one = plan("one", "n1")
    plans.update({"ns/one": one})
    plans.update({"ns/one": with_status(one, "Bound")})
    plans.update({})
    assert not plans.named
    assert not plans.cards
    assert not list(plans.entries_of({"uid-one": "ns"}))


def test_another_plan_of_the_same_name_is_read() -> None:
    plans = Plans()
    plans.update({"ns/one": plan("one", "n1")})
    plans.update({"ns/one": plan("one", "n2")})
    assert [each.node for each in plans.entries_of({"uid-one": "ns"})] == ["n2"]
