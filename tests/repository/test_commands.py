"""The commands under hack/ that the docs name do what the docs say, without a cluster."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from hack.local.build import ROOT
from tests.repository.pages import DOCS, path_in_repository

RECORDING = '#!/bin/sh\necho ${TOPOGATE_KUBERNETES:-} "$0 $*" >>"$RECORD"\n'


def called_by_hack_test(folder: Path, *words: str) -> list[str]:
    """What it calls, beside stand-ins that only note it: the real ones take twenty minutes."""
    hack = folder / "hack"
    hack.mkdir()
    shutil.copy(ROOT / "hack/test", hack)
    for name, text in (
        ("check", RECORDING),
        ("python", RECORDING),
        ("env", f"#!/bin/sh\necho {hack}/python\n"),
    ):
        (hack / name).write_text(text)
        (hack / name).chmod(0o755)
    environment = {"PATH": "/usr/bin:/bin", "RECORD": str(folder / "record")}
    subprocess.run([hack / "test", *words], env=environment, check=True)
    lines = (folder / "record").read_text().splitlines()
    return [re.sub(r"\S*hack/", "", line).strip() for line in lines]


def test_hack_test_runs_all_checks_and_then_all_tests(tmp_path: Path) -> None:
    called = called_by_hack_test(tmp_path)
    assert called[0] == "check"
    assert called[-1].startswith("python -m pytest")
    chosen = [word for word in called[-1].split() if word.startswith(("tests/", "-k", "-m=", "--no-cluster"))]
    assert chosen == [], "only some of the tests"


@pytest.mark.parametrize("words", [["--kubernetes", "1.32"], ["--kubernetes=1.32"]], ids=" ".join)
def test_hack_test_builds_and_tests_the_release_of_kubernetes_that_it_is_given(
    tmp_path: Path, words: list[str]
) -> None:
    called = called_by_hack_test(tmp_path, *words, "tests/cluster")
    assert "1.32 python -m hack.local.build" in called
    assert called[-1] == "1.32 python -m pytest tests/cluster"


@pytest.mark.parametrize("failing", ["", "ruff", "mypy", "lint-imports"])
def test_hack_check_runs_lint_format_types_and_import_rules(tmp_path: Path, failing: str) -> None:
    for folder, names in (
        (tmp_path / "hack", ["check"]),
        (tmp_path / "bin", ["ruff", "mypy", "lint-imports"]),
    ):
        folder.mkdir()
        for name in names:
            (folder / name).write_text(RECORDING + ("exit 1\n" if name == failing else ""))
            (folder / name).chmod(0o755)
    shutil.copy(ROOT / "hack/check", tmp_path / "hack")
    record = tmp_path / "record"
    environment = {
        "PATH": "/usr/bin:/bin",
        "RECORD": str(record),
        "TOPOGATE_PYTHON": str(tmp_path / "bin/python"),
    }
    words = ["lint", "format", "types", "imports"]
    done = subprocess.run(
        [tmp_path / "hack/check", *words], env=environment, capture_output=True, check=False
    )
    assert bool(done.returncode) == bool(failing)
    called = sorted(line.rpartition("bin/")[2].strip() for line in record.read_text().splitlines())
    assert called == ["lint-imports", "mypy", "ruff check .", "ruff format --check ."]


def test_hack_check_without_words_runs_all_of_its_checks() -> None:
    text = (ROOT / "hack/check").read_text()
    (default,) = re.findall(r"checks=\((lint .*?)\)", text)
    assert {*re.findall(r"^ +([a-z]+)\) \"", text, re.MULTILINE)} - {"sizes", "changed"} == {*default.split()}


def test_every_benchmark_that_is_named_exists() -> None:
    assert [
        f"{path_in_repository(paper)}: {name}"
        for paper in DOCS
        for name in re.findall(r"hack/bench ([a-z][a-z-]+)", paper.read_text())
        if not (ROOT / f"hack/benchmarks/{name.replace('-', '_')}.py").exists()
    ] == []


def test_every_section_of_the_benchmarks_names_the_command_of_its_measurements() -> None:
    text = (ROOT / "hack/benchmarks/README.md").read_text()
    sections = re.split(r"\n(?=\*\*[A-Z])", text)[1:]
    assert [each.partition("\n")[0] for each in sections if "`hack/" not in each] == []
    benchmarks = {path.stem for path in (ROOT / "hack/benchmarks").glob("[!_]*.py")}
    commands = set(re.findall(r"`hack/bench ([a-z-]+)", text))
    assert benchmarks - {each.replace("-", "_") for each in commands} == set(), "these have no table"
