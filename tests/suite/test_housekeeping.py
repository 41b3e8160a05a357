"""The tests' own housekeeping: how many workers share them out, and what a test may leave to the next."""

import logging
import re
import sys
from pathlib import Path

import pytest

from hack.local.build import ROOT
from tests.workers import (
    LONGEST,
    NATIVE,
    places_of_files,
)
from webhook import logs

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
