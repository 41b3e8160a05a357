"""The files that tests/workers.py names are there, and they are the ones that it must name."""

import re
from pathlib import Path

from hack.local.build import ROOT
from tests.workers import LONGEST, NATIVE


def test_the_files_that_count_as_the_longest_are_there() -> None:
    assert [file for file in LONGEST if not (ROOT / file).is_file()] == []


def test_the_files_that_need_a_control_plane_with_native_gangs_stay_with_one_worker() -> None:
    asking = [
        str(path.relative_to(ROOT))
        for path in (ROOT / "tests").rglob("test_*.py")
        if path != Path(__file__) and re.search(r"\bnative_(control_plane|cluster)\b", path.read_text())
    ]
    assert sorted(asking) == sorted(NATIVE)
