"""The fast solver for identical pods against the general search, on clusters too large to try everything."""

import random
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from hack.benchmarks.placement_rows import instances
from hack.comparing.clusters import fragmented
from tests.placement.brute import Instance
from tests.placement.small import gang_of, node, seeds, without_headroom
from webhook.placement import (
    Anchor,
    Assignment,
    NodeInfo,
    Options,
    Slice,
    Snapshot,
    Usage,
    heterogeneous,
    place,
)
from webhook.placement.budget import Budget
from webhook.placement.costs import Costs
from webhook.placement.evaluate import Cover
from webhook.placement.homogeneous import candidate_children, cover
from webhook.placement.homogeneous.lattice import Lattice, OneItem
from webhook.placement.homogeneous.min_plus import Offer, State, choices
from webhook.placement.homogeneous.minority_pods import NONE
from webhook.placement.question import ask
from webhook.placement.tree import build


def cluster(dice: random.Random, nodes: int, slots: int, shared_hosts: bool) -> Snapshot:
    made: list[NodeInfo] = []
    for spot in fragmented(dice, nodes, slots, subblocks=(1, 4), nodes=(1, 6), whole=0.6):
        host = spot.number // 2 if shared_hosts else spot.number
        place = (f"b{spot.block}", f"r{spot.subblock}", f"h{host}")
        made.append(node(f"n{len(made)}", None if dice.random() < 0.03 else place, spot.free, memory=8))
    busy_nodes = [n.name for n in made if dice.random() < 0.3]
    usage = [(name, Usage({"memory": dice.randint(0, 8), "pods": 1})) for name in busy_nodes]
    return Snapshot.build(made, usage)


@pytest.mark.parametrize("shared_hosts", [False, True], ids=["one node a host", "several nodes a host"])
@pytest.mark.parametrize("slots", [1, 3, 8])
@pytest.mark.parametrize("seed", range(3))
def test_the_fast_solver_finds_the_objective_of_the_general_search_in_every_field(
    seed: int, slots: int, shared_hosts: bool
) -> None:
    dice = random.Random(seed * 10 + slots)
    for _ in range(8):
        snapshot = cluster(dice, dice.randint(5, 50), slots, shared_hosts)
        total = sum(state.free["cpu"] // 1000 for state in snapshot.nodes.values())
        anchors = (Anchor(dice.choice(sorted(snapshot.nodes))),) if dice.random() < 0.2 else ()
        asked = gang_of(
            dice.randint(1, max(1, min(60, total))),
            required_level=dice.choice((None, None, "block", "subblock", "host")),
            anchors=anchors,
        )
        question, _ = ask(asked, snapshot, Options())
        root = build(question, snapshot, Budget(10**9)).root
        slow = heterogeneous.solve(question, root, len(snapshot.nodes), Budget(10**6))
        assert slow.proven
        fast = cover(question, root, question.counts[0], Budget(10**9))
        if slow.cost is None or fast is None:
            assert slow.cost is None
            assert fast is None
            continue
        costs = Costs(question.levels)
        found = costs.objective(fast.cost)
        assert without_headroom(found) == without_headroom(costs.objective(slow.cost))
        assert found == Instance(asked, snapshot).value(tuple(state for state, _ in fast.nodes))
        assert sum(slots for _, slots in fast.nodes) >= question.counts[0]


def names(found: Cover) -> list[str]:
    return [state.name for state, _ in found.nodes]


@pytest.mark.parametrize("seed", range(4))
def test_costs_that_need_more_than_a_machine_word_give_the_same_answer(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    dice = random.Random(seed)
    snapshot = cluster(dice, 60, 8, shared_hosts=True)
    asked = gang_of(dice.randint(20, 80))
    question, _ = ask(asked, snapshot, Options())
    root = build(question, snapshot, Budget(10**9)).root
    expected = cover(question, root, question.counts[0], Budget(10**9))
    monkeypatch.setattr("webhook.placement.costs.WORD", 4)
    again = Snapshot.build([state.node for state in snapshot.nodes.values()], usage_of(snapshot))
    root = build(question, again, Budget(10**9)).root
    found = cover(question, root, question.counts[0], Budget(10**9))
    assert expected is not None
    assert found is not None
    assert (found.cost, names(found)) == (expected.cost, names(expected))


@pytest.fixture(scope="module")
def equal_blocks() -> Snapshot:
    made = [instances.node(n, f"b{n // 256}", f"r{n // 16}", 8, 8) for n in range(10_000)]
    return Snapshot.build(made, [])


@pytest.mark.parametrize("rule", ["none", "slices", "odd pods"])
def test_a_gang_on_40_blocks_that_are_all_the_same_is_proven(equal_blocks: Snapshot, rule: str) -> None:
    asked = instances.gang(
        2492 if rule == "odd pods" else 2500, 8, instances.MINORITY if rule == "odd pods" else ()
    )
    asked = replace(asked, slices=(Slice("subblock", 4),) if rule == "slices" else ())
    found = place(asked, equal_blocks)
    assert isinstance(found, Assignment)
    assert found.proven
    assert found.objective.domains == (2, 20, 313, 313)


@pytest.mark.parametrize("seed", seeds(40))
def test_of_domains_that_are_the_same_few_are_as_good_as_all(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    dice = random.Random(seed)
    racks = [[dice.randint(0, 3) for _ in range(dice.randint(2, 3))] for _ in range(3)]
    kinds = [[dice.choice(racks) for _ in range(dice.randint(2, 3))] for _ in range(2)]
    blocks = [dice.choice(kinds) for _ in range(dice.randint(4, 10))]
    made = [
        node(f"n{b}-{r}-{n}", (f"b{b}", f"r{b}-{r}", f"h{b}-{r}-{n}"), slots)
        for b, block in enumerate(blocks)
        for r, rack in enumerate(block)
        for n, slots in enumerate(rack)
    ]
    asked = gang_of(2 * dice.randint(2, 15))
    asked = replace(asked, slices=dice.choice(((), (Slice("subblock", 2),))))
    found = place(asked, Snapshot.build(made, []))
    monkeypatch.setattr(candidate_children, "first_of_equals", lambda _, numbers, __: list(numbers))
    expected = place(asked, Snapshot.build(made, []))
    assert getattr(found, "objective", None) == getattr(expected, "objective", None)
    assert found.proven == expected.proven


def usage_of(snapshot: Snapshot) -> list[tuple[str, Usage]]:
    return [(state.name, use) for state in snapshot.nodes.values() for use in state.usages]


class Valued:
    """Capacities with values, None for one that cannot be taken at its count cost."""

    def __init__(self, values: Mapping[int, int | None]) -> None:
        self.known = values

    def values(self, states: Sequence[State]) -> list[int | None]:
        return [self.known[capacity] for _, capacity in states]


@pytest.mark.parametrize("narrow", [True, False], ids=["machine words", "large costs"])
@pytest.mark.parametrize("seed", seeds(40))
def test_the_lattice_of_one_item_is_that_of_the_general_search(seed: int, narrow: bool) -> None:
    dice = random.Random(seed)
    capacities = sorted(dice.sample(range(1, 12), dice.randint(1, 8)))
    wanted = dice.randint(1, capacities[-1])
    capacities = [each for each in capacities if each < wanted] + [dice.randint(wanted, 12)]
    counts = sorted(dice.randint(1, 6) for _ in capacities)
    source = Valued({each: dice.choice((None, 5, 7, 9)) for each in capacities})
    offer = Offer(choices([0] * len(counts), capacities, counts, narrow), source)
    alone = OneItem(offer, wanted, narrow, Budget(10**6))
    general = Lattice([offer], NONE, wanted, narrow, Budget(10**6))
    assert alone.counts.tolist() == general.counts.tolist()
    targets = [(0, each) for each in {*capacities, wanted} if each <= wanted]
    assert alone.least(targets, narrow) == general.least(targets, narrow)
    for target, value in zip(targets, alone.least(targets, narrow), strict=True):
        if value is not None:
            assert alone.best_for(target) == general.best_for(target)


def test_no_program_loads_numpy_before_the_first_gang() -> None:
    programs = "webhook.admission.serve, labeler.main, webhook.sweeper.main"
    code = f"import sys, {programs}; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
