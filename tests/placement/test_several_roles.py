"""Gangs of several large classes of pods: as few domains as first-fit in single domains uses, or fewer."""

import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import replace

import pytest

from hack.benchmarks.placement_rows.instances import GPU, cluster
from tests.placement.small import node, placed
from webhook.placement import (
    Card,
    CardRequest,
    Gang,
    Member,
    NodeInfo,
    NoFit,
    PodClass,
    Slice,
    Snapshot,
    Usage,
    place,
    vector,
)
from webhook.placement.budget import Budget
from webhook.placement.heterogeneous.integer_program import INFINITE, IntegerProgram, LexicographicSearch
from webhook.placement.model import Nearest

Amounts = Mapping[str, int]
GIB = 2**30
WORKER = {"cpu": 8000, "memory": 32 * GIB, "pods": 1, GPU: 1}
SERVER = {"cpu": 16_000, "memory": 64 * GIB, "pods": 1, GPU: 4}


def gang(*roles: tuple[int, Amounts], required: str | None = None, preferred: str | None = None) -> Gang:
    kinds = [kind for count, amounts in roles for kind in [PodClass(vector(amounts))] * count]
    members = tuple(Member(f"p{rank}", rank, kind) for rank, kind in enumerate(kinds))
    return Gang("g", members, required_level=required, preferred_levels=(preferred,) if preferred else ())


@pytest.fixture(scope="module")
def mostly_free() -> Snapshot:
    return Snapshot.build(cluster(5000, 8), [])


@pytest.mark.parametrize(
    ("required", "preferred"),
    [(None, None), (None, "block"), ("block", None)],
    ids=["none", "preferred", "required"],
)
def test_workers_and_servers_are_placed_into_two_subblocks_of_one_block(
    mostly_free: Snapshot, required: str | None, preferred: str | None
) -> None:
    asked = gang((128, WORKER), (32, SERVER), required=required, preferred=preferred)
    found = placed(asked, mostly_free)
    assert found.objective.domains == (1, 2, 32, 32)


CPU_ONLY = {"cpu": 32_000, "memory": 128 * GIB, "pods": 1}
WHOLE_NODE = {"cpu": 4000, "memory": 16 * GIB, "pods": 1, GPU: 8}
PAIR = {"cpu": 2000, "pods": 1, GPU: 2}
LARGE_CPU = {"cpu": 48_000, "memory": 256 * GIB, "pods": 1, GPU: 1}


@pytest.mark.parametrize(
    ("roles", "least"),
    [
        ([(16, WORKER), (16, SERVER), (16, CPU_ONLY), (16, WHOLE_NODE), (16, PAIR)], (1, 2, 30, 30)),
        ([(256, WHOLE_NODE), (16, WORKER)], (2, 14, 258, 258)),
        ([(40, LARGE_CPU), (40, PAIR)], (1, 2, 27, 27)),
        ([(500, WORKER), (100, SERVER)], (1, 6, 113, 113)),
        ([(1000, PAIR), (300, LARGE_CPU), (50, WHOLE_NODE)], (2, 20, 386, 386)),
    ],
    ids=["5 classes of 16", "256 and 16", "40 and 40", "500 and 100", "1000, 300 and 50"],
)
def test_gangs_of_several_roles_use_the_fewest_domains_and_it_is_proven(
    mostly_free: Snapshot, roles: list[tuple[int, Amounts]], least: tuple[int, ...]
) -> None:
    found = placed(gang(*roles), mostly_free)
    assert found.objective.domains == least
    assert found.proven


def two_blocks_of_four() -> Snapshot:
    """Empty nodes in pairs, four in the blocks b0 and b1, two in b2."""
    made = [
        NodeInfo(f"n{n}", node("", (f"b{n // 4}", f"r{n // 2}", f"h{n}")).labels, allocatable=EMPTY)
        for n in range(10)
    ]
    return Snapshot.build(made, [])


def called(asked: Gang, *roles: str) -> Gang:
    """The same gang, where pods that ask for the same have a role, in the order of their ranks."""
    kinds = list(dict.fromkeys(member.pod_class for member in asked.members))
    named = dict(zip(kinds, roles, strict=True))
    return replace(asked, members=tuple(replace(each, role=named[each.pod_class]) for each in asked.members))


@pytest.mark.promise("R175")
@pytest.mark.parametrize(
    ("roles", "expected"),
    [
        (("worker", "server"), "block b0 has capacity for 24 of 24 workers and 2 of 7 servers"),
        (("rollouts", "servers"), "block b0 has capacity for 24 of 24 pods of rollouts and 2 of 7 servers"),
        (("", ""), "block b0 has capacity for 24 of 24 pods like p0 and 2 of 7 pods like p24"),
        (("worker", "worker"), "block b0 has capacity for 24 of 24 pods like p0 and 2 of 7 pods like p24"),
    ],
)
def test_the_nearest_domain_is_named_with_its_capacity_for_each_role(
    roles: tuple[str, str], expected: str
) -> None:
    asked = called(gang((24, WORKER), (7, SERVER), required="block"), *roles)
    found = place(asked, two_blocks_of_four())
    assert isinstance(found, NoFit)
    assert found.proven
    assert found.nearest == Nearest("block", ("b0",), 26)
    assert found.nearest.sentence == expected
    head = "Gang g cannot be placed: 31 pods do not fit into one block"
    assert found.sentence.startswith(f"{head}; {expected}")


def test_the_nearest_domain_of_workers_in_slices_holds_whole_slices_beside_the_others() -> None:
    """A pair of nodes of 8 GPUs holds 2 slices of 6 workers, and beside them an evaluator of 4 GPUs."""
    asked = called(gang((36, WORKER), (3, SERVER), required="block"), "worker", "evaluator")
    asked = replace(asked, slices=(Slice("subblock", 6),))
    found = place(asked, two_blocks_of_four())
    assert isinstance(found, NoFit)
    assert found.nearest is not None
    assert found.nearest.sentence == "block b0 has capacity for 24 of 36 workers and 2 of 3 evaluators"
    assert "; capacity for 4 of 6 subblock slices" in found.sentence


def test_roles_that_ask_for_the_same_are_named_together() -> None:
    asked = gang((16, WORKER), (16, SERVER), required="block")
    members = [replace(each, role="ps" if each.rank == 0 else "worker") for each in asked.members[:16]]
    members += [replace(each, role="server") for each in asked.members[16:]]
    found = place(replace(asked, members=tuple(members)), two_blocks_of_four())
    assert isinstance(found, NoFit)
    assert " of 16 pods of ps and worker and " in found.sentence


SAME = """
import sys
sys.path.insert(0, ".")
from hack.benchmarks.placement_rows.instances import cluster
from tests.placement.test_several_roles import PAIR, SERVER, WORKER, gang
from webhook.placement import Snapshot, place
snapshot = Snapshot.build(cluster(500, 8), [])
print(sorted(place(gang((60, WORKER), (20, SERVER), (9, PAIR)), snapshot).nodes.items()))
"""


def test_the_answer_is_the_same_in_each_process_whatever_its_hash_seed_and_threads() -> None:
    answers = set()
    for seed, threads in (("0", "1"), ("77", "8")):
        env = dict(os.environ, PYTHONHASHSEED=seed, OMP_NUM_THREADS=threads)
        run = subprocess.run(
            [sys.executable, "-c", SAME], env=env, capture_output=True, text=True, check=True
        )
        answers.add(run.stdout)
    assert len(answers) == 1


def test_other_threads_run_while_an_integer_program_is_solved() -> None:
    """A Lease is renewed meanwhile."""
    dice = random.Random(1)
    program = IntegerProgram()
    columns = [program.column(3) for _ in range(40)]
    for _ in range(20):
        factors = {column: float(dice.randint(10, 99)) for column in columns}
        program.row(sum(factors.values()), INFINITE, factors)
    search = LexicographicSearch(program, Budget(10**9))
    began, ended = threading.Event(), threading.Event()
    calls: list[None] = []

    def tick() -> None:
        began.set()
        while not ended.is_set():
            calls.append(None)
            time.sleep(0)

    thread = threading.Thread(target=tick)
    thread.start()
    began.wait()
    calls.clear()
    outcome = search.minimise([float(dice.randint(50, 100)) for _ in columns])
    ticks = len(calls)
    ended.set()
    thread.join()
    assert outcome.values is not None
    assert ticks > 100


EMPTY = {"cpu": 96_000, "memory": 2**40, "pods": 110, GPU: 8}


def of_different_pods(count: int, seed: int, required: str | None) -> Gang:
    dice = random.Random(1000 * seed + count)
    roles = [
        {
            GPU: dice.choice((1, 2, 3, 5, 7)),
            "cpu": dice.randint(5000, 60_000),
            "memory": dice.randint(10, 600) * GIB,
            "pods": 1,
        }
        for _ in range(count)
    ]
    return gang(*((1, role) for role in roles), required=required)


@pytest.mark.parametrize(
    ("nodes", "pods", "required", "seed"),
    [(5000, 16, "block", 0), (5000, 10, "block", 1), (400, 60, "block", 0), (400, 60, None, 1)],
)
def test_different_pods_find_a_place_in_one_block_of_an_empty_cluster(
    nodes: int, pods: int, required: str | None, seed: int
) -> None:
    made = [
        NodeInfo(
            f"n{number:05}",
            node("", (f"b{number // 100}", f"r{number // 50}", f"h{number}")).labels,
            allocatable=EMPTY,
        )
        for number in range(nodes)
    ]
    found = placed(of_different_pods(pods, seed, required), Snapshot.build(made, []))
    assert found.objective.domains[0] == 1


MILLICORES, MEMORY, CARD = "gpu.intel.com/millicores", "gpu.intel.com/memory.max", "gpu.intel.com/i915"


def different_cards(nodes: int, *, linked: bool) -> Snapshot:
    """Nodes of eight cards, no two of which have the same free."""
    dice, made, usage = random.Random(7), [], []
    for number in range(nodes):
        cards = tuple(
            Card(
                f"card{card}",
                {MILLICORES: 1000, MEMORY: 16_384},
                4,
                numa=card // 4,
                links=tuple((0, f"card{other}", 1) for other in range(8) if other != card) if linked else (),
            )
            for card in range(8)
        )
        amounts = {
            "cpu": 192_000,
            "memory": 2**40,
            "pods": 110,
            CARD: 400,
            MILLICORES: 8000,
            MEMORY: 8 * 16_384,
        }
        labels = node("", (f"b{number // 160}", f"r{number // 16}", f"h{number}")).labels
        made.append(NodeInfo(f"n{number:05}", labels, allocatable=amounts, cards=cards))
        for card in range(8):
            used = {MILLICORES: dice.randint(0, 700), MEMORY: dice.randint(0, 11_000)}
            tiles = frozenset(dice.sample(range(4), dice.randint(0, 3)))
            usage.append((f"n{number:05}", Usage(used, {f"card{card}": used}, {f"card{card}": tiles})))
    return Snapshot.build(made, usage)


def with_cards(*requests: tuple[int, int, int], linked: bool = False) -> PodClass:
    """requests: of each container cards, and of each of these millicores and memory."""
    containers = tuple(
        CardRequest(count, vector({MILLICORES: cpu, MEMORY: memory})) for count, cpu, memory in requests
    )
    amounts = {"cpu": 1000, "pods": 1, CARD: sum(count for count, _, _ in requests)}
    for count, cpu, memory in requests:
        amounts[MILLICORES] = amounts.get(MILLICORES, 0) + count * cpu
        amounts[MEMORY] = amounts.get(MEMORY, 0) + count * memory
    return PodClass(vector(amounts), cards=containers, single_numa=not linked, linked=linked)


def test_pods_with_cards_of_one_numa_node_find_a_place_on_nodes_that_all_differ() -> None:
    kind = with_cards((3, 137, 1009), (2, 111, 2003))
    members = tuple(Member(f"p{rank}", rank, kind) for rank in range(32))
    assert len(set(placed(Gang("g", members), different_cards(32, linked=False)).nodes)) == 32


def test_pods_with_linked_pairs_of_cards_find_a_place_on_nodes_that_all_differ() -> None:
    kind = with_cards((2, 37, 109), (2, 41, 211), linked=True)
    members = tuple(Member(f"p{rank}", rank, kind) for rank in range(100))
    assert len(set(placed(Gang("g", members), different_cards(100, linked=True)).nodes)) == 100
