"""Identical pods that fit on one node, and what the node loses for pods of the mix."""

import random
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.placement.brute import slots_of
from tests.placement.mixes import GPU, SHARE, card_node, gpu_class, share_class, shared, with_mix
from tests.placement.small import gang_of, node, placed, pod_class, seeds
from webhook.placement import (
    Assignment,
    CardRequest,
    Gang,
    Member,
    Mix,
    PodClass,
    Snapshot,
    Usage,
    free_amounts,
    one_node,
    place,
    vector,
)  # fmt: skip
from webhook.placement.mix import WHOLE
from webhook.placement.served_requests import Array, pods_on
from webhook.placement.snapshot import NodeState, key_of
from webhook.placement.usable_gpus import LARGE_CPU, LARGE_GPUS, OF_ONE, TIGHT, UsableGpus


def test_a_pod_leaves_the_cpu_to_the_node_whose_gpus_others_need() -> None:
    lacks_cpu, has_cpu = (
        node("a", ("b", "s", "h1"), 9, **{GPU: 4}),
        node("b", ("b", "s", "h2"), 32, **{GPU: 4}),
    )
    one = gang_of(1, pod_class(8, **{GPU: 1}))
    snapshot = with_mix([lacks_cpu, has_cpu], gpu_class(2000, 1))
    # On `a` the pod takes the CPU without which three GPUs are useless.
    assert placed(one, snapshot).nodes == {"p-0": "b"}
    assert placed(one, Snapshot.build([lacks_cpu, has_cpu], [])).nodes == {"p-0": "a"}


def test_two_nodes_lose_what_the_example_of_docs_states() -> None:
    """The parts of a GPU that count against what stays free are below one."""
    nodes = [node(name, ("b", "s", name), cpu, **{GPU: 4}) for name, cpu in (("a", 12), ("b", 40))]
    states = [*Snapshot.build(nodes, []).nodes.values()]
    usable = UsableGpus(Mix((gpu_class(8000, 1),)))
    losses = usable.lost(states, pod_class(8, **{GPU: 1}), 1)
    assert [lost // WHOLE for lost in losses] == [41, 11]


def test_a_pod_takes_gpus_that_no_other_pod_could_use() -> None:
    stranded, whole = node("a", ("b", "s", "h1"), 64, **{GPU: 4}), node("b", ("b", "s", "h2"), 64, **{GPU: 3})
    snapshot = with_mix([stranded, whole], gpu_class(1000, 4))
    assert placed(gang_of(1, pod_class(1, **{GPU: 1})), snapshot).nodes == {"p-0": "b"}


@pytest.mark.promise("D36")
def test_fewer_domains_come_before_what_a_node_loses() -> None:
    whole = node("a", ("b1", "s", "h1"), 64, **{GPU: 8})
    others = [node(f"h{n}", ("b2", "s", f"h{n}"), 64, **{GPU: 4}) for n in range(2)]
    snapshot = with_mix([whole, *others], gpu_class(1000, 8))
    assert set(placed(gang_of(2, pod_class(1, **{GPU: 4})), snapshot).nodes.values()) == {"a"}


def test_a_pod_for_any_model_leaves_the_model_that_others_require() -> None:
    """Both nodes are equal but for the model; most pods of the mix run on one of the models alone."""
    nodes = [
        replace(each, labels={**each.labels, "model": model})
        for model, each in (
            ("H100", node("a", ("b", "s", "a"), 64, **{GPU: 8})),
            ("T4", node("b", ("b", "s", "b"), 64, **{GPU: 8})),
        )
    ]
    of_model = replace(gpu_class(8000, 1, count=3), models=(("model", ("H100",)),))
    found = placed(gang_of(1, pod_class(8, **{GPU: 1})), with_mix(nodes, of_model, gpu_class(8000, 1)))
    assert set(found.nodes.values()) == {"b"}


def share_pod(share: int, cards: int = 1) -> PodClass:
    amounts = vector({"cpu": 1000, "pods": 1, SHARE: cards * share})
    return PodClass(amounts, cards=(CardRequest(cards, vector({SHARE: share})),))


@pytest.mark.parametrize(("used", "expected"), [((400, 700), "b"), ((700, 400), "a")])
def test_a_share_is_of_the_card_that_it_fills_best(used: tuple[int, int], expected: str) -> None:
    nodes = [card_node(name, 1) for name in "ab"]
    usage = [(name, shared("card0", amount)) for name, amount in zip("ab", used, strict=True)]
    snapshot = with_mix(nodes, share_class(1000, 300), share_class(1000, 600), usage=usage)
    gang = Gang("g", (Member("p0", None, share_pod(300)),))
    assert placed(gang, snapshot).nodes == {"p0": expected}


class Case:
    """A random cluster in blocks, some of its nodes in use, a mix, and identical pods that may fit on one."""

    def __init__(self, seed: int) -> None:
        dice = random.Random(seed)
        nodes = [
            node(
                f"n{n}",
                (f"b{n // 6}", f"s{n // 3}", f"h{n}"),
                dice.choice((8, 16)),
                **{GPU: dice.choice((2, 4, 8))},
            )
            for n in range(dice.randint(1, 14))
        ]
        usage = [
            (each.name, Usage({"cpu": 1000 * dice.randrange(9), "pods": 1, GPU: dice.randrange(3)}))
            for each in nodes
        ]
        classes = [
            gpu_class(1000 * dice.choice((1, 3, 4, 9)), dice.choice((1, 2, 4, 8)), dice.randint(1, 9))
            for _ in range(dice.randint(0, 4))
        ]
        self.classes = list(dict.fromkeys(classes))
        self.weights = [each.count * dice.choice((1, 1, 4, 16)) for each in self.classes]
        self.snapshot = Snapshot.build(nodes, usage).with_mix(Mix((*self.classes,), (*self.weights,)))
        self.kind = pod_class(dice.choice((1, 2, 4)), **{GPU: dice.choice((1, 2))})
        self.pods = dice.randint(1, 3)

    def worth(self, cpu: int, gpus: int) -> int:
        """By the definition, for each class in turn."""
        total = 0
        for each, weight in zip(self.classes, self.weights, strict=True):
            asked = dict(each.requests)
            times = min(cpu // asked["cpu"], gpus // asked[GPU])
            total += weight * (OF_ONE * 1000 * gpus * (times > 0) + times * each.thousandths)
        return total

    def rank(self, name: str) -> tuple[int, ...]:
        state = self.snapshot.nodes[name]
        cpu, gpus, asked = state.free["cpu"], state.free[GPU], dict(self.kind.requests)
        left = cpu - self.pods * asked["cpu"], gpus - self.pods * asked[GPU]
        unit = TIGHT * OF_ONE * sum(self.weights)
        spare = unit * left[0] // LARGE_CPU + unit * 1000 * left[1] // LARGE_GPUS
        lost = self.worth(max(0, cpu), max(0, gpus)) - self.worth(*left) + spare
        every = self.snapshot.nodes.values()
        leftover: list[int] = [
            sum(slots_of(self.kind, other) for other in every if _place(other, level) == _place(state, level))
            for level in range(3)
        ]
        return (lost, slots_of(self.kind, state), *reversed(leftover))


def _place(state: NodeState, level: int) -> tuple[str, ...]:
    return key_of(state, 3)[: level + 2]


@pytest.mark.promise("D36")
@pytest.mark.parametrize(("gpus", "is_looked_for"), [(8, True), (9, False)])
def test_no_node_is_looked_for_if_all_pods_together_request_more_than_any_has(
    gpus: int, is_looked_for: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []
    monkeypatch.setattr(one_node, "_candidates", lambda *question: asked.append(question))
    snapshot = Snapshot.build([node(n, ("b", "s", n), 64, **{GPU: 8}) for n in ("a", "b")], [])
    place(gang_of(gpus, pod_class(1, **{GPU: 1})), snapshot)
    assert bool(asked) == is_looked_for


@pytest.mark.parametrize("seed", seeds(60))
def test_the_node_is_the_best_by_the_definition(seed: int) -> None:
    case = Case(seed)
    fitting = [name for name, state in case.snapshot.nodes.items() if slots_of(case.kind, state) >= case.pods]
    found = place(gang_of(case.pods, case.kind), case.snapshot)
    if not fitting:
        assert not (isinstance(found, Assignment) and len(set(found.nodes.values())) == 1)
        return
    assert isinstance(found, Assignment)
    assert found.proven
    (chosen,) = set(found.nodes.values())
    assert case.rank(chosen) == min(map(case.rank, fitting))
    assert (found.objective.lost, *found.objective.leftover) == case.rank(chosen)


@pytest.mark.promise("D36")
@given(
    st.lists(st.integers(0, 10).map(lambda tenths: 100 * tenths), min_size=1, max_size=8), st.integers(0, 8)
)
def test_usable_gpus_of_cards_are_those_of_trying_each_card(free: list[int], cpu: int) -> None:
    classes = (share_class(1000, 300), share_class(3000, 1000, cards=2), share_class(1000, 1000))
    usable = UsableGpus(Mix(classes))
    used = [shared(f"card{n}", 1000 - left) for n, left in enumerate(free) if left < 1000]
    state = Snapshot.build(
        [card_node("a", len(free), cpu + len(used))], [("a", each) for each in used]
    ).nodes["a"]
    one, filling, _ = (row[0].tolist() for row in usable._usable(*usable._amounts([state])))
    for number, (cards, share, cores) in enumerate(((1, 300, 1), (2, 1000, 3), (1, 1000, 1))):
        serving = [left for left in free if left >= share]
        fits = cpu >= cores and len(serving) >= cards
        assert one[number] == (sum(serving) if fits else 0)
        pods = min(cpu // cores, sum(left // share for left in free) // cards)
        assert filling[number] == min(sum(free), pods * cards * share)


def test_the_value_of_a_state_is_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    valued: list[int] = []
    whole = UsableGpus._usable

    def counted(self: UsableGpus, free: Array, cards: Sequence[int]) -> object:
        valued.append(len(free))
        return whole(self, free, cards)

    monkeypatch.setattr(UsableGpus, "_usable", counted)
    snapshot = with_mix(
        [node(f"n{n}", ("b", "s", f"h{n}"), 64, **{GPU: 8}) for n in range(100)], gpu_class(1000, 2)
    )
    placed(gang_of(1, pod_class(1, **{GPU: 1})), snapshot)
    assert valued == [1, 1]


def test_only_the_values_of_a_changed_node_are_computed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    valued: list[int] = []
    whole = UsableGpus.lost

    def counted(self: UsableGpus, nodes: Sequence[NodeState], pod: PodClass, pods: int) -> list[int]:
        valued.append(len(nodes))
        return whole(self, nodes, pod, pods)

    monkeypatch.setattr(UsableGpus, "lost", counted)
    snapshot = with_mix(
        [node(f"n{n}", ("b", "s", f"h{n}"), 64, **{GPU: 8}) for n in range(100)], gpu_class(1000, 2)
    )
    for _ in range(3):
        gang = gang_of(1, pod_class(1, **{GPU: 1}))
        snapshot = snapshot.assume(placed(gang, snapshot), gang)
    assert valued == [100, 1, 1]


def test_a_table_of_states_that_is_full_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(free_amounts, "MOST_STATES", 3)
    nodes = [node(f"n{n}", ("b", "s", f"h{n}"), 64, **{GPU: 8}) for n in range(9)]
    snapshot = with_mix(nodes, gpu_class(1000, 2))
    for number in range(9):
        gang = gang_of(1, pod_class(1 + number, **{GPU: 1}))
        found = placed(gang, snapshot)
        assert found == placed(gang, with_mix(nodes, gpu_class(1000, 2), usage=_usage(snapshot)))
        snapshot = snapshot.assume(found, gang)


def _usage(snapshot: Snapshot) -> list[tuple[str, Usage]]:
    return [(name, each) for name, state in snapshot.nodes.items() for each in state.usages]


@given(st.lists(st.integers(0, 9), min_size=1, max_size=8), st.integers(1, 4))
def test_pods_of_several_cards_are_as_many_as_distinct_cards_serve(of_card: list[int], count: int) -> None:
    found = pods_on(np.array([of_card]), count)[0]
    possible = [pods for pods in range(80) if sum(min(each, pods) for each in of_card) >= count * pods]
    assert found == max(possible)
