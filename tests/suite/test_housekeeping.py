"""The tests' own housekeeping: how many workers share them out, and what a test may leave to the next."""

import gc
import logging
import os
import re
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hack.local.build import ROOT
from tests.workers import (
    LONGEST,
    NATIVE,
    WORKER_BYTES,
    as_many_as_fit,
    begun_at,
    order_for_workers,
    places_of_files,
)
from webhook import logs

PAGE = 4096


@pytest.mark.parametrize(
    ("cores", "workers_of_memory", "expected"),
    [(2, 100, 4), (2, 3, 3), (8, 100, 16), (1, 0, 1), (None, 9, 2)],
)
def test_two_workers_a_core_share_the_tests_where_memory_suffices(
    monkeypatch: pytest.MonkeyPatch, cores: int | None, workers_of_memory: int, expected: int
) -> None:
    sizes = {"SC_PAGE_SIZE": PAGE, "SC_PHYS_PAGES": workers_of_memory * WORKER_BYTES // PAGE}
    monkeypatch.setattr(os, "cpu_count", lambda: cores)
    monkeypatch.setattr(os, "sysconf", sizes.__getitem__)
    assert as_many_as_fit() == expected


@dataclass
class Item:
    """What order_for_workers reads of a test: every third file is one of a cluster."""

    nodeid: str

    def get_closest_marker(self, name: str) -> bool:
        return "test_0.py" in self.nodeid


CLUSTERS = {f"tests/sweeper/test_cluster_{number}.py": True for number in range(10)}
OTHERS = {f"tests/sweeper/test_other_{number}.py": False for number in range(40)}


def in_order(needs_cluster: dict[str, bool]) -> list[str]:
    places = places_of_files(needs_cluster)
    return sorted(needs_cluster, key=places.__getitem__)


def test_files_of_a_cluster_alternate_with_those_that_compute_which_also_come_last() -> None:
    order = in_order(CLUSTERS | OTHERS)
    quarters = [order[start : start + 12] for start in range(0, 48, 12)]
    assert all(2 <= len(CLUSTERS.keys() & quarter) <= 4 for quarter in quarters)
    assert not CLUSTERS.keys() & order[-3:]


def test_the_longest_files_and_folders_that_stay_together_come_first() -> None:
    first = {"tests/node/test_demo.py", "tests/images/test_build.py", *LONGEST, *NATIVE}
    order = in_order(CLUSTERS | OTHERS | dict.fromkeys(sorted(first), True))
    assert set(order[: len(first)]) == first


def test_the_files_that_count_as_the_longest_are_there() -> None:
    assert [file for file in LONGEST if not (ROOT / file).is_file()] == []


def test_the_files_that_need_a_control_plane_with_native_gangs_stay_with_one_worker() -> None:
    asking = [
        str(path.relative_to(ROOT))
        for path in (ROOT / "tests").rglob("test_*.py")
        if path != Path(__file__) and re.search(r"\bnative_(control_plane|cluster)\b", path.read_text())
    ]
    assert sorted(asking) == sorted(NATIVE)


def test_workers_begin_their_collection_at_an_equal_share_of_what_is_to_be_compiled() -> None:
    sizes = {"a": 10, "b": 50, "c": 10, "d": 30}
    assert [begun_at(sizes, number / 4)[0] for number in range(4)] == ["a", "b", "c", "d"]
    assert begun_at(sizes, 0.5) == ["c", "d", "a", "b"]


def test_the_order_of_a_run_does_not_depend_on_where_a_worker_began() -> None:
    names = [f"tests/{folder}/test_{number}.py::test_a" for folder in "abc" for number in range(3)]
    orders = []
    for number in range(4):
        begun = begun_at(dict.fromkeys("abc", 1), number / 4)
        items = [Item(name) for folder in begun for name in names if name.startswith(f"tests/{folder}/")]
        order_for_workers(items)  # type: ignore[arg-type]
        orders.append([item.nodeid for item in items])
    assert all(order == orders[0] for order in orders)
    assert sorted(orders[0]) == sorted(names)


def test_garbage_is_collected_while_tests_run() -> None:
    assert gc.isenabled()
    assert all(0 < threshold <= 10_000 for threshold in gc.get_threshold())


@st.composite
def drawn_slowly(draw: st.DrawFn) -> int:
    time.sleep(0.25)
    return draw(st.integers())


@settings(max_examples=6, deadline=200, database=None)
@given(drawn_slowly())
def test_no_test_fails_because_its_examples_are_slow_to_draw(number: int) -> None:
    """With a deadline of 200 ms, Hypothesis by itself allows a second for the first ten examples."""
    assert isinstance(number, int)


_left: list[logging.Handler] = []


def test_a_program_in_this_process_sets_up_logging_to_the_stream_of_its_test(
    capsys: pytest.CaptureFixture[str],
) -> None:
    logs.configure("debug")
    _left.extend(each for each in logging.getLogger().handlers if getattr(each, "stream", None) is sys.stderr)
    assert _left
    logging.getLogger("program").debug("begins")
    assert "begins" in capsys.readouterr().err


def test_which_the_next_test_does_not_write_to() -> None:
    if not _left:
        pytest.skip("the test before this one was not run")
    assert not set(_left) & set(logging.getLogger().handlers)
    assert logging.getLogger().level != logging.DEBUG
