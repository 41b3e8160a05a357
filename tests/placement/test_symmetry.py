"""Equal domains: what one of them cannot give, none of the others is asked for."""

import pytest

from tests.placement.small import gang_of, node, pod_class
from webhook.placement import Assignment, Budget, Gang, Member, Options, Snapshot, check, place

BLOCKS = 40


def cluster(*, equal: bool) -> Snapshot:
    """Blocks of four subblocks of four nodes; each block has less on its first node unless they are equal."""
    nodes = []
    for block in range(BLOCKS):
        for number in range(16):
            free = 8 if equal or number else 8 - block % 7
            place_of = (f"b{block}", f"b{block}s{number // 4}", f"b{block}h{number}")
            nodes.append(node(f"n{16 * block + number}", place_of, free, memory=64))
    return Snapshot.build(nodes, [])


def steps_and_answer(gang: Gang, snapshot: Snapshot) -> tuple[int, Assignment]:
    budget = Budget(10**7)
    found = place(gang, snapshot, Options(bound=10**7), budget)
    assert isinstance(found, Assignment)
    assert check(found, gang, snapshot) == []
    assert found.proven
    return budget.spent, found


def beside_a_launcher(workers: int) -> Gang:
    kinds = [*[pod_class(2)] * workers, pod_class(1, memory=3)]
    return Gang("g", tuple(Member(f"p{rank}", rank, kind) for rank, kind in enumerate(kinds)))


def of_two_classes(small: int, large: int) -> Gang:
    kinds = [*[pod_class(1)] * small, *[pod_class(4)] * large]
    return Gang("g", tuple(Member(f"p{rank}", rank, kind) for rank, kind in enumerate(kinds)))


@pytest.mark.parametrize(
    "gang",
    [
        gang_of(1),
        gang_of(20),
        gang_of(100),
        gang_of(1000),
        gang_of(1, required_level="subblock"),
        beside_a_launcher(12),
        of_two_classes(9, 9),
        of_two_classes(30, 16),
    ],
    ids=[
        "one pod",
        "a subblock",
        "a block",
        "several blocks",
        "one pod in a subblock",
        "a launcher",
        "two classes in two subblocks",
        "two classes in a block",
    ],
)
def test_blocks_that_are_equal_take_no_more_work_than_blocks_that_differ(gang: Gang) -> None:
    equal, found = steps_and_answer(gang, cluster(equal=True))
    different, _ = steps_and_answer(gang, cluster(equal=False))
    assert equal <= 1.2 * different
    first = range(16 * found.objective.domains[0])
    assert set(found.nodes.values()) <= {f"n{number}" for number in first}, "not the first"


def test_a_thousand_nodes_without_topology_labels_take_a_small_part_of_the_work_budget() -> None:
    snapshot = Snapshot.build([node(f"n{number}", None, 8, memory=64) for number in range(1000)], [])
    for gang in (gang_of(1), gang_of(200), beside_a_launcher(12)):
        steps, _ = steps_and_answer(gang, snapshot)
        assert steps <= 40 * len(snapshot.nodes)
