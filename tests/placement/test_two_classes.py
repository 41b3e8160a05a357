"""Workers beside pods of one other class: the best nodes for more workers, where the others fit on them."""

import random
from typing import Final

import pytest

from hack.benchmarks.placement_rows import instances
from tests.placement.brute import agrees
from tests.placement.small import nodes_of, pod_class, seeds, snapshot_of
from webhook.placement import Assignment, Budget, Gang, Member, NoFit, Options, Snapshot, check, place
from webhook.placement.homogeneous import surrogate
from webhook.placement.homogeneous.two_classes import beside_many
from webhook.placement.model import PodClass
from webhook.placement.question import ask
from webhook.placement.tree import build

STEPS: Final = 80_000
"""Far fewer than an integer program of such a cluster takes."""


def gang(*parts: tuple[int, PodClass]) -> Gang:
    kinds = [kind for count, kind in parts for _ in range(count)]
    return Gang("g", tuple(Member(f"p{rank}", rank, kind) for rank, kind in enumerate(kinds)))


def small(dice: random.Random) -> Snapshot:
    """Some racks of hosts with two resources."""
    tree = {
        f"b{block}": {
            f"b{block}r{rack}": {f"b{block}r{rack}h{host}": dice.randint(0, 6) for host in range(2)}
            for rack in range(dice.randint(1, 2))
        }
        for block in range(dice.randint(1, 3))
    }
    return (
        snapshot_of(tree) if dice.random() < 0.5 else Snapshot.build(nodes_of(tree)[: dice.randint(3, 8)], [])
    )


@pytest.mark.parametrize("seed", seeds(60))
def test_the_answer_is_the_optimum_of_trying_everything(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(surrogate, "MOST_MINORITY", 0)
    dice = random.Random(seed)
    workers = dice.randint(1, 5)
    asked = gang(
        (workers, pod_class(dice.randint(1, 3))), (dice.randint(1, workers), pod_class(dice.randint(1, 4)))
    )
    agrees(asked, small(dice))


@pytest.mark.parametrize("seed", seeds(15))
def test_what_it_proves_costs_as_much_as_what_the_pattern_program_proves(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    dice = random.Random(seed)
    free = [dice.choice((0, 1, 2, 3, 4, 8, 8)) for _ in range(dice.randint(20, 60))]
    made = [instances.node(n, f"b{n // 16}", f"s{n // 4}", each, 8) for n, each in enumerate(free)]
    kinds = [
        PodClass((("cpu", dice.choice((1000, 30_000))), (instances.GPU, gpus)))
        for gpus in dice.sample((1, 2, 3, 4), 2)
    ]
    workers = dice.randint(9, max(9, sum(free) // 4))
    asked, snapshot = (
        gang((workers, kinds[0]), (dice.randint(9, workers), kinds[1])),
        Snapshot.build(made, []),
    )
    question, _ = ask(asked, snapshot, Options())
    found = beside_many(question, build(question, snapshot, Budget(10**9)).root, Budget(10**9))
    answer = place(asked, snapshot)
    monkeypatch.setattr("webhook.placement.homogeneous.serves", lambda _: False)
    expected = place(asked, snapshot)
    if not found.proven or not expected.proven:
        return
    if isinstance(expected, NoFit):
        assert found.counts is None
        return
    assert isinstance(answer, Assignment)
    assert answer.proven
    assert not check(answer, asked, snapshot)
    assert found.cost is not None
    assert question.costs().objective(found.cost).domains == expected.objective.domains
    assert question.costs().objective(found.cost).leftover == expected.objective.leftover


def test_many_pods_of_two_classes_on_full_nodes_take_few_steps() -> None:
    dice = random.Random("full")
    made = [
        instances.node(n, f"b{n // 160}", f"s{n // 16}", dice.choice((0, 0, 0, 1, 2, 4)), 8)
        for n in range(2000)
    ]
    asked = gang((128, instances.worker(8)), (32, PodClass((("cpu", 1000), (instances.GPU, 4), ("pods", 1)))))
    budget = Budget(Options().bound)
    found = place(asked, Snapshot.build(made, []), budget=budget)
    assert isinstance(found, Assignment)
    assert found.proven
    assert budget.spent < STEPS
