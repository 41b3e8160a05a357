"""Tests marked `when_changed` run with --all, where a file that they guard has changed, and by name."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hack.local.build import ROOT
from tests.selection import BASE, changed_files

CONFIGURATION = """
[tool.pytest.ini_options]
testpaths = ["tests"]
markers = ["when_changed", "cluster"]
"""
TESTS = """
import pytest

def test_short():
    pass

@pytest.mark.when_changed("hack/images", "pyproject.toml")
def test_long():
    pass
"""
_DAY = 24 * 3600
_NOON = 1_800_000_000


def git(root: Path, *arguments: str, at: int = _NOON) -> None:
    environment = {
        **os.environ,
        **{f"GIT_{role}_{what}": "x@y" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")},
        "GIT_COMMITTER_DATE": f"{at} +0000",
    }
    subprocess.run(["git", *arguments], cwd=root, env=environment, check=True, capture_output=True)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository whose second and last commit, two days after the first, changed README.md alone."""
    git(tmp_path, "init", "--initial-branch=main")
    for path, text in {
        "pyproject.toml": CONFIGURATION,
        "hack/images/build.py": "",
        "tests/one/test_one.py": TESTS,
        "README.md": "",
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-m", "first", at=_NOON - 2 * _DAY)
    (tmp_path / "README.md").write_text("second")
    git(tmp_path, "commit", "-am", "second")
    return tmp_path


def test_what_the_last_day_changed_has_changed_and_what_is_not_committed(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(BASE, raising=False)
    assert changed_files(repository) == {"README.md"}
    (repository / "pyproject.toml").write_text("")
    (repository / "new.py").touch()
    assert changed_files(repository) == {"README.md", "pyproject.toml", "new.py"}


def test_beside_a_base_what_differs_from_it_has_changed(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(BASE, "HEAD")
    assert changed_files(repository) == set()
    monkeypatch.setenv(BASE, "no-such-commit")
    with pytest.raises(pytest.UsageError, match=BASE):
        changed_files(repository)


@pytest.mark.parametrize(
    ("arguments", "changes", "closing"),
    [
        ([], "hack/images/build.py", "1 passed, 1 deselected"),
        (["--all"], "", "2 passed"),
        (["tests/one/test_one.py"], "", "2 passed"),
        (["tests/one"], "", "1 passed, 1 deselected"),
        (["tests/one"], "hack/images/build.py", "2 passed"),
        (["--changed"], "hack/images/build.py", "2 passed"),
        (["--changed"], "hack/imagesque.py", "1 passed, 1 deselected"),
        (["--changed", "-p", "xdist", "-n", "2"], "pyproject.toml.old", "1 passed"),
    ],
)
def test_marked_tests_run_with_all_where_they_are_named_and_where_their_files_change(
    repository: Path, arguments: list[str], changes: str, closing: str
) -> None:
    if changes:
        with (repository / changes).open("a") as file:
            file.write("# changed\n")
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}
    environment |= {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(ROOT), BASE: ""}
    command = [sys.executable, "-m", "pytest", "-p", "tests.conftest", *arguments]
    result = subprocess.run(command, cwd=repository, env=environment, capture_output=True, text=True)
    last = result.stdout.rstrip().splitlines()
    assert last[-1].strip("= ").startswith(closing), result.stdout + result.stderr
    left_out = "NOT RUN: 1 tests that only some files can break; hack/test --all runs them"
    assert (left_out in last) == (closing[0] == "1")
