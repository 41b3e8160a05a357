"""One version, that of pyproject.toml: every program says it when asked, and first of all in its log."""

import importlib
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from hack.local.build import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
VERSION = PROJECT["version"]

MISTAKEN = {
    "topogate-webhook": ("--policy", "none.yaml"),
    "topogate-sweeper": ("--kubeconfig", "none"),
    "topogate-tasks": ("--kubeconfig", "none", "--policy", "none.yaml"),
    "topogate-ui": ("--kubeconfig", "none"),
    "topogate-labeler": ("--source", "file", "--facts", "none"),
    "topogate-allocator": ("--server", "https://127.0.0.1:1"),
}
"""Programs that run for long, with arguments by which they end at once."""


@pytest.mark.parametrize("program", PROJECT["scripts"])
def test_every_program_prints_its_version(
    program: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    module, _, function = PROJECT["scripts"][program].partition(":")
    monkeypatch.setattr(sys, "argv", [program, "--version"])
    with pytest.raises(SystemExit) as ended:
        getattr(importlib.import_module(module), function)()
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"{program.removeprefix('kubectl-')} {VERSION}\n"


def test_every_program_that_runs_for_long_is_here() -> None:
    assert {*MISTAKEN, "topogate", "kubectl-topogate"} == set(PROJECT["scripts"])


@pytest.mark.parametrize(("program", "arguments"), MISTAKEN.items())
def test_the_first_line_of_a_log_names_the_program_and_its_version(
    program: str, arguments: tuple[str, ...], tmp_path: Path
) -> None:
    command = [str(Path(sys.executable).parent / program), *arguments]
    result = subprocess.run(command, cwd=tmp_path, env={}, capture_output=True, text=True, timeout=60)
    assert result.returncode == 2
    first = result.stderr.splitlines()[0]
    assert " INFO " in first
    assert first.endswith((f"{program} {VERSION} starts", f"starting program={program} version={VERSION}"))


@pytest.mark.parametrize("package", ["webhook", "labeler"])
@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"pyproject.toml": '[project]\nname = "topogate"\nversion = "7.8.9"\n'}, "7.8.9"),
        ({"topogate-4.5.6.dist-info/METADATA": "Name: topogate\nVersion: 4.5.6\n"}, "4.5.6"),
        (
            {
                "topogate-4.5.6.dist-info/METADATA": "Name: topogate\nVersion: 4.5.6\n",
                "pyproject.toml": '[project]\nname = "another"\nversion = "0.0.1"\n',
            },
            "4.5.6",
        ),
        ({"pyproject.toml": "[build-system]\n"}, "unknown"),
        ({}, "unknown"),
    ],
    ids=["a checkout", "an image", "beside another project's file", "beside a file of no project", "a copy"],
)
def test_the_version_is_known_in_a_checkout_and_in_an_image(
    tmp_path: Path, package: str, files: dict[str, str], expected: str
) -> None:
    (tmp_path / package).mkdir()
    for name in ("__init__.py", "version.py"):
        shutil.copy(ROOT / package / name, tmp_path / package)
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    program = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r}); "
        f"from {package}.version import version; print(version())"
    )
    command = [sys.executable, "-I", "-S", "-c", program]  # nothing is installed for it
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == f"{expected}\n"
