"""A test of a cluster that fails is run once more, others are not: runs of pytest over small projects."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from hack.local.build import ROOT

CONFIGURATION = """
[pytest]
addopts = -ra
markers =
    cluster: needs a control plane
    node: needs a node
"""
CONFTEST = """
import os, pytest
from pathlib import Path

def note(text):
    with Path("notes").open("a") as notes:
        notes.write(text + "\\n")

@pytest.fixture(scope="session")
def control_plane():
    note(f"up {os.getpid()}")
    yield
    note(f"down {os.getpid()}")

@pytest.fixture
def times(request):
    '''How often the test has been run, with this time.'''
    note(f"ran {request.node.name}")
    return Path("notes").read_text().split().count(request.node.name)

@pytest.fixture
def late_cluster(times):
    assert times > 1, "no control plane"
"""
FLAKY = """
@pytest.mark.cluster
def test_flaky(control_plane, times):
    assert times > 1, "too late"
"""
BROKEN = """
@pytest.mark.cluster
def test_broken(times):
    assert times > 9, "broken"
"""
UNIT = """
def test_unit(times):
    assert times > 1, "wrong"
"""
SOUND = """
def test_sound():
    pass
"""


class Run:
    """One run of pytest with the plugin over a project of one module."""

    def __init__(self, folder: Path, tests: str, *arguments: str, module: str = "test_it.py") -> None:
        """Run it to its end."""
        self._folder = folder
        (folder / "pytest.ini").write_text(CONFIGURATION)
        (folder / "conftest.py").write_text(CONFTEST)
        (folder / module).parent.mkdir(exist_ok=True)
        (folder / module).write_text(f"import pytest\n{tests}")
        environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}
        environment |= {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(ROOT)}
        environment["XDG_CACHE_HOME"] = str(folder / "cache")
        command = [sys.executable, "-m", "pytest", "-p", "tests.retry", *arguments]
        result = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
        self.status = result.returncode
        self.output = result.stdout
        self.lines = result.stdout.rstrip().splitlines()
        self.closing = self.lines[-1].strip("= ").rpartition(" in ")[0]

    @property
    def notes(self) -> list[str]:
        return (self._folder / "notes").read_text().splitlines()

    def times(self, name: str) -> int:
        """How often a test was run."""
        return self.notes.count(f"ran {name}")


def record(folder: Path) -> Path:
    return folder / "cache/topogate/flaky.json"


def failing_once(marker: str, fixture: str, claim: str) -> str:
    return f"@pytest.mark.{marker}\ndef test_x({fixture}):\n    {claim}\n"


WORKERS = ("-p", "xdist", "-n", "2")


@pytest.mark.parametrize(
    ("test", "message", "arguments"),
    [
        (failing_once("cluster", "times", "assert times > 1, 'late'"), "AssertionError: late", WORKERS),
        (failing_once("node", "late_cluster", "pass"), "AssertionError: no control plane", ()),
    ],
    ids=["of a cluster, two workers", "of a node, in its fixture"],
)
def test_a_test_that_passes_the_second_time_is_named_as_flaky_and_the_run_passes(
    tmp_path: Path, test: str, message: str, arguments: tuple[str, ...]
) -> None:
    run = Run(tmp_path, SOUND + test, *arguments)
    assert run.status == 0
    assert run.closing == "2 passed, 1 flaky"
    assert run.lines[-2] == (
        f"FLAKY test_it.py::test_x: passed when it was run again, but failed first: {message}"
    )
    assert run.times("test_x") == 2


def test_a_test_that_fails_twice_fails_the_run(tmp_path: Path) -> None:
    run = Run(tmp_path, SOUND + BROKEN)
    assert run.status == 1
    assert run.closing == "1 failed, 1 passed"
    assert run.times("test_broken") == 2
    assert "failed again: test_it.py::test_broken" in run.output
    assert "FLAKY" not in run.output


def test_a_test_without_a_cluster_is_never_run_again(tmp_path: Path) -> None:
    """Not even where its folder has the name of the marker."""
    run = Run(tmp_path, UNIT, module="cluster/test_it.py")
    assert run.status == 1
    assert run.closing == "1 failed"
    assert run.times("test_unit") == 1


def test_more_than_three_flaky_tests_fail_the_run(tmp_path: Path) -> None:
    names = [f"test_{number}" for number in range(4)]
    run = Run(tmp_path, "".join(FLAKY.replace("test_flaky", name) for name in names))
    assert run.status == 1
    assert [run.times(name) for name in names] == [1] * 4
    assert run.lines[-2] == (
        "4 tests of a cluster failed. None was run again: "
        "more than 3 such failures are not taken for bad luck."
    )


def noted_runs(folder: Path) -> dict[str, int]:
    """How many runs each test on record has been there."""
    return {name: entry["runs"] for name, entry in json.loads(record(folder).read_bytes())["tests"].items()}


def test_a_flaky_test_fails_the_tenth_run_after_it_unless_its_file_has_changed(tmp_path: Path) -> None:
    Run(tmp_path, FLAKY)
    assert noted_runs(tmp_path) == {"test_it.py::test_flaky": 0}
    text = record(tmp_path).read_text().replace('"runs": 0', '"runs": 8')
    record(tmp_path).write_text(text)
    assert Run(tmp_path, FLAKY).status == 0
    tenth = Run(tmp_path, FLAKY)
    assert tenth.status == 1, tenth.output
    sentence = "flaky 10 runs ago, and its file is still the same. Change the test so that it cannot race."
    assert f"UNMENDED test_it.py::test_flaky: {sentence}" in tenth.lines
    assert Run(tmp_path, SOUND).status == 0
    assert noted_runs(tmp_path) == {}
