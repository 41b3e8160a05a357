"""Unlike pods that fill their nodes: found, or known not to fit, within the steps there are."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from hack.benchmarks.packing import decided, ours
from hack.comparing.carded import planted_cards
from hack.comparing.hostile import packed
from hack.comparing.packings import Packing, planted
from tests.placement.small import node, pod_class
from webhook.placement import Budget, Gang, Member, Options, PodClass, Snapshot, Usage, capacity
from webhook.placement.question import ask
from webhook.placement.snapshot import NodeState
from webhook.placement.tree import build
from webhook.placement.unlike import meeting
from webhook.placement.unlike.filling import Filling
from webhook.placement.vertex import nodes_of


@pytest.mark.parametrize(("nodes", "kinds"), [(6, 3), (10, 4), (20, 6)])
@pytest.mark.parametrize("seed", range(4))
def test_pods_that_fill_up_to_twenty_nodes_are_packed(nodes: int, kinds: int, seed: int) -> None:
    assert ours(planted(nodes, kinds, 0, seed)) is True


@pytest.mark.parametrize("slack", [0, 1, 2, 3])
@pytest.mark.parametrize("kinds", [8, 10])
def test_pods_that_nearly_fill_twenty_nodes_are_packed(kinds: int, slack: int) -> None:
    """slack: what is left over of each resource on a node, at most."""
    assert ours(planted(20, kinds, slack, 0)) is True


@pytest.mark.parametrize(
    ("kinds", "slack", "seed"),
    [
        (10, 2, 16),
        (10, 2, 219),
        (10, 1, 1),
        (10, 1, 224),
        (12, 1, 107),
        (12, 1, 115),
        (12, 1, 214),
        (8, 2, 705),
    ],
)
def test_pods_of_which_few_ways_fit_twenty_nodes_are_packed(kinds: int, slack: int, seed: int) -> None:
    """What some nodes hold has to be what is likely completed by the others, not like a part of all."""
    assert ours(planted(20, kinds, slack, seed)) is True


@pytest.mark.parametrize(("nodes", "kinds", "slack"), [(50, 8, 0), (50, 12, 1), (100, 12, 1), (20, 16, 1)])
def test_pods_that_nearly_fill_many_nodes_or_are_of_many_kinds_are_packed(
    nodes: int, kinds: int, slack: int
) -> None:
    assert ours(planted(nodes, kinds, slack, 0)) is True


@pytest.mark.parametrize("seed", range(3))
def test_pods_that_fill_the_cards_of_a_few_nodes_are_packed(seed: int) -> None:
    assert decided(planted_cards(4, 4, 0, seed)) is True


@pytest.mark.parametrize(
    ("nodes", "kinds", "slack"), [(10, 6, 0), (10, 6, 2), (20, 6, 0), (20, 8, 2), (20, 8, 1000)]
)
@pytest.mark.parametrize("seed", range(3))
def test_pods_that_nearly_fill_the_cards_of_up_to_twenty_nodes_are_packed(
    nodes: int, kinds: int, slack: int, seed: int
) -> None:
    """Whole cards, linked ones, tiles and shares. slack: of cpu and memory on a node, at most."""
    assert decided(planted_cards(nodes, kinds, slack, seed)) is True


def test_nearly_all_steps_that_are_left_of_a_vast_gang_go_to_packing_it() -> None:
    assert decided(planted_cards(20, 14, 2, 1003)) is True


@pytest.mark.parametrize(("nodes", "kinds", "slack", "seed"), [(10, 6, 2, 0), (10, 6, 0, 12), (10, 6, 2, 38)])
def test_pods_that_first_fit_finds_too_few_sets_for_are_packed_with_cards_searched_for(
    nodes: int, kinds: int, slack: int, seed: int
) -> None:
    assert decided(planted_cards(nodes, kinds, slack, seed)) is True


def test_nodes_with_the_same_cards_are_asked_once_where_linked_cards_are_left() -> None:
    """To ask each of twenty nodes took all the steps that there are."""
    assert decided(planted_cards(20, 12, 3, 54)) is True


@given(st.integers(3, 12), st.integers(2, 9), st.integers(0, 3), st.integers(0, 10**6))
def test_quarters_that_meet_hold_all_pods_and_no_node_more_than_it_has(
    nodes: int, kinds: int, slack: int, seed: int
) -> None:
    packing = planted(nodes, kinds, slack, seed)
    filling = _filling(packing)
    budget = Budget(10**6)
    found = meeting.solve(filling, budget)
    assume(found is not None)
    assert found is not None
    assert tuple(map(sum, zip(*found.values(), strict=True))) == filling.counts
    free = {name: kind.free for kind, name in filling.nodes}
    for name, taken in found.items():
        for resource, have in enumerate(free[name]):
            needed = (need[resource] for need in filling.needs)
            assert sum(count * need for count, need in zip(taken, needed, strict=True)) <= have


@given(st.integers(3, 6), st.integers(2, 5), st.integers(0, 2), st.integers(0, 10**6))
def test_quarters_meet_wherever_few_nodes_can_be_filled(
    nodes: int, kinds: int, slack: int, seed: int
) -> None:
    assert meeting.solve(_filling(planted(nodes, kinds, slack, seed)), Budget(10**6)) is not None


def test_a_set_that_the_cards_of_its_node_refuse_in_the_end_is_passed_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whoever chooses the cards searches otherwise than first-fit, and may end without any."""
    filling = _asked(*planted_cards(20, 8, 2, 0))
    first = meeting.solve(filling, Budget(10**6))
    assert first is not None
    name = max(first, key=lambda name: sum(first[name]))
    fits_together = capacity.fits_together

    def refused(pods: list[PodClass], state: NodeState, budget: Budget) -> bool | None:
        counts = tuple(map(pods.count, filling.classes))
        return (state.name, counts) != (name, first[name]) and fits_together(pods, state, budget)

    monkeypatch.setattr(capacity, "fits_together", refused)
    found = meeting.solve(filling, Budget(10**6))
    assert found is not None
    assert found[name] != first[name]


def test_quarters_of_one_question_meet_in_the_same_place_each_time() -> None:
    packing = planted(20, 12, 1, 107)
    budgets = [Budget(10**6), Budget(10**6)]
    first, second = (meeting.solve(_filling(packing), budget) for budget in budgets)
    assert first == second
    assert budgets[0].spent == budgets[1].spent


def test_quarters_meet_at_once_or_within_the_steps_there_are() -> None:
    filling = _filling(planted(24, 12, 1, 204))
    budget = Budget(10_000)
    assert meeting.solve(filling, budget) is None
    assert budget.exhausted


def test_amounts_beyond_a_machine_word_are_left_to_the_complete_search() -> None:
    packing = planted(4, 2, 0, 0)
    huge = Packing(
        [[cpu * 2**58, *others] for cpu, *others in packing.sizes],
        packing.counts,
        [[cpu * 2**58, *others] for cpu, *others in packing.free],
    )
    assert not meeting.serves(_filling(huge))
    assert ours(huge) is True


@pytest.mark.parametrize("seed", range(4))
def test_one_cpu_too_few_on_twenty_nodes_is_known(seed: int) -> None:
    assert ours(planted(20, 6, -1, seed)) is False


@pytest.mark.parametrize(("slack", "fits"), [(0, True), (-1, False)], ids=["full", "one cpu too few"])
def test_thousands_of_pods_that_fill_hundreds_of_nodes_are_decided(slack: int, fits: bool) -> None:
    assert ours(planted(500, 3, slack, 0)) is fits


def _filling(packing: Packing) -> Filling:
    return _asked(*packed(packing))


def _asked(asked: Gang, snapshot: Snapshot) -> Filling:
    question, _ = ask(asked, snapshot, Options())
    budget = Budget(10**9)
    return Filling(question, list(nodes_of(build(question, snapshot, budget).root)), budget)


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
