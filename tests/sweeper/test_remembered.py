"""What is remembered between passes changes nothing: a pass without a memory sees the same."""

import pytest

from labeler.contract import keys
from tests.sweeper.pods import decode, pod_json
from tests.sweeper.readings import Cluster
from tests.sweeper.stories import Story, seen
from webhook.configuration.settings import Settings
from webhook.kube.objects import Metadata, Pod
from webhook.kube.placements import Placement, PlacementSpec
from webhook.kube.plan_pods import PlannedPod
from webhook.sweeper.observe import pods
from webhook.sweeper.observe.pods import Journal
from webhook.sweeper.observe.snapshotter import Snapshotter


@pytest.mark.promise("I36")
@pytest.mark.parametrize("seed", range(4))
def test_a_memory_of_many_passes_sees_what_an_empty_one_does(seed: int) -> None:
    story, journal = Story(seed), Journal()
    remembers = Snapshotter(story.cluster, Settings(), journal)
    for _ in range(60):
        story.step_noted_in(journal)
        nodes, rest = seen(remembers)
        fresh_nodes, fresh_rest = seen(Snapshotter(story.cluster, Settings()))
        assert rest == fresh_rest
        assert nodes.keys() == fresh_nodes.keys()
        for name, fresh in fresh_nodes.items():
            # Rules under which nobody waits any more may still be distinguished: that is more, never less.
            assert {each: nodes[name].free[each] for each in fresh.free} == fresh.free
            assert (nodes[name].cards, nodes[name].path) == (fresh.cards, fresh.path)


def test_a_pod_has_its_own_cards_again_once_its_plan_is_gone() -> None:
    story, journal = Story(0), Journal()
    cards = {"gas-container-cards": "card0", "gas-ts": "1764000000000000001"}
    limits = {"cpu": "1", keys.I915: "1"}
    there = decode(
        pod_json(
            "p",
            metadata={"annotations": cards},
            nodeName="n1",
            schedulingGates=[],
            containers=[{"name": "c", "resources": {"limits": limits, "requests": limits}}],
        )
    )
    story.cluster.pods.append(there)
    journal.note(None, there)
    entry = PlannedPod("p", there.metadata.uid, "n1", annotations={**cards, "gas-container-cards": "card1"})
    plan = Placement(Metadata(name="plan", namespace="ns"), PlacementSpec(pods=[entry]))
    remembers = Snapshotter(story.cluster, Settings(), journal)
    seen_cards = []
    for placements in ({plan.key: plan}, {}):
        story.cluster.placements = placements
        nodes, _ = seen(remembers)
        fresh, _ = seen(Snapshotter(story.cluster, Settings()))
        assert nodes["n1"].cards == fresh["n1"].cards
        seen_cards.append(nodes["n1"].cards)
    assert seen_cards[0] != seen_cards[1]


def test_changes_that_a_failed_pass_has_observed_are_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    journal = Journal()
    remembers = Snapshotter(Cluster(), Settings(), journal)
    journal.note(None, decode(pod_json("a")))

    def fail(_: Pod) -> bool:
        raise RuntimeError("a defect")

    with monkeypatch.context() as defect:
        defect.setitem(pods._ALL, pods.PodTrait.OF_A_SET, fail)
        with pytest.raises(RuntimeError):
            remembers.view()
    journal.note(None, decode(pod_json("b")))
    assert sorted(pod.metadata.name for pod in remembers.view().gated) == ["a", "b"]
