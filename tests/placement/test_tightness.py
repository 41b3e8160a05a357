"""The leftover: gaps that are in use are filled first, the finest level first."""

import pytest

from tests.placement.small import Tree, gang_of, placed, snapshot_of, taken

CASES: list[tuple[str, Tree, int, dict[str, int]]] = [
    (
        "a used subblock rather than a free one of the fuller block",
        {"b1": {"r1": {"a": 1, "b": 1}}, "b2": {"r2": {"c": 1}, "r3": {f"d{n}": 1 for n in range(8)}}},
        1,
        {"c": 1},
    ),
    (
        "for a gang on two nodes, too",
        {
            "b1": {"r1": {"a": 1, "b": 1, "e": 1}},
            "b2": {"r2": {"c": 1, "d": 1}, "r3": {f"f{n}": 1 for n in range(8)}},
        },
        2,
        {"c": 1, "d": 1},
    ),
    (
        "a used node rather than a fuller subblock",
        {"b": {"r1": {"a": 2}, "r2": {"b": 1, "c": 9}}},
        1,
        {"b": 1},
    ),
]


@pytest.mark.parametrize(("tree", "pods", "expected"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_the_smallest_gap_that_is_in_use_is_filled_first(
    tree: Tree, pods: int, expected: dict[str, int]
) -> None:
    assert taken(placed(gang_of(pods), snapshot_of(tree)).nodes) == expected
