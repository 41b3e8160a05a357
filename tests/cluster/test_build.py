"""Building the control plane: once a machine, by whichever Go is new enough, or one clear sentence.

A small program plays `go` here: the real build takes minutes, and every cluster test runs on its result.
"""

import fcntl
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hack.local.build import ROOT

FAKE_TOOLCHAIN = """#!/bin/sh
case "$1" in
  env) echo go{version} ;;
  build)
    echo built >> {log}
    while [ -e {log}.held ]; do sleep 0.05; done
    while [ "$1" != -o ]; do shift; done
    echo binary > "$2" ;;
esac
"""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """An empty cache and a PATH whose only Go is ours; pip finds nothing."""
    (tmp_path / "bin").mkdir()
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "KUBEBUILDER"))},
        "PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin",
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "PIP_NO_INDEX": "1",
    }


def put_toolchain(tmp_path: Path, version: str) -> Path:
    log = tmp_path / "builds"
    toolchain = tmp_path / "bin" / "go"
    toolchain.write_text(FAKE_TOOLCHAIN.format(version=version, log=log))
    toolchain.chmod(0o755)
    return log


def get_programs(environment: dict[str, str]) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "hack.local.build"],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_two_callers_at_once_build_once(tmp_path: Path, environment: dict[str, str]) -> None:
    log, lock = put_toolchain(tmp_path, "1.99.0"), tmp_path / "builds.held"
    lock.touch()
    first = get_programs(environment)
    while not log.exists():
        assert first.poll() is None, first.communicate()
        time.sleep(0.05)
    second = get_programs(environment)
    assert second.stderr is not None
    assert any("Another process is building" in line for line in second.stderr), second.communicate()
    lock.unlink()
    output = [caller.communicate(timeout=60)[1] for caller in (first, second)]
    assert [caller.returncode for caller in (first, second)] == [0, 0], output
    assert log.read_text() == "built\n"
    assert "Another process is building" not in output[0]


@pytest.mark.skipif(
    (Path(sys.executable).parent / "go").exists(), reason="the environment has a Go of its own"
)
@pytest.mark.parametrize("version", ["1.21.3", None], ids=["an old one", "none"])
def test_without_a_toolchain_that_is_new_enough_one_sentence_names_what_would_help(
    tmp_path: Path, environment: dict[str, str], version: str | None
) -> None:
    if version:
        put_toolchain(tmp_path, version)
    caller = get_programs(environment)
    output = caller.communicate(timeout=60)[1]
    assert caller.returncode == 1
    assert "the local control plane needs Go 1.26 or newer on PATH" in output
    assert "KUBEBUILDER_ASSETS" in output
    assert "Traceback" not in output


def test_programs_of_earlier_sources_are_deleted_when_new_ones_are_built_but_the_last_used_and_unfinished(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    put_toolchain(tmp_path, "1.99.0")
    cache = tmp_path / "cache" / "topogate"
    for age, name in enumerate(("last-used", "in-the-making", "older", "oldest")):
        folder = cache / f"controlplane-{name}"
        folder.mkdir(parents=True)
        (folder / "controlplane").touch()
        os.utime(folder, (1_000_000 - age, 1_000_000 - age))
    (cache / "clusters").mkdir()
    with (cache / "controlplane-in-the-making" / "lock").open("w") as lock:
        os.utime(cache / "controlplane-in-the-making", (999_999, 999_999))
        fcntl.flock(lock, fcntl.LOCK_EX)
        program = get_programs(environment)
        output = program.communicate(timeout=60)[1]
        assert program.returncode == 0, output
    left = {folder.name.removeprefix("controlplane-") for folder in cache.iterdir()}
    assert {"last-used", "in-the-making", "clusters"} < left
    assert not left & {"older", "oldest"}


def test_programs_of_another_release_of_kubernetes_stay_when_new_ones_are_built(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    put_toolchain(tmp_path, "1.99.0")
    cache = tmp_path / "cache" / "topogate"
    for name in ("1.32.13-old", "1.37.2-old", "usual", "more-usual", "most-usual"):
        folder = cache / f"controlplane-{name}"
        folder.mkdir(parents=True)
        (folder / "controlplane").touch()
        os.utime(folder, (1_000_000, 1_000_000))
    for chosen in ({}, {"TOPOGATE_KUBERNETES": "1.37"}, {"TOPOGATE_KUBERNETES": "v1.32.13"}):
        caller = get_programs(environment | chosen)
        output = caller.communicate(timeout=60)[1]
        assert caller.returncode == 0, output
    left = [folder.name.removeprefix("controlplane-") for folder in cache.iterdir()]
    assert {"1.32.13-old", "1.37.2-old"} < {*left}
    for release in ("1.32", "1.37"):
        assert sum(name.startswith(release) for name in left) == 2
    assert len(left) == 2 + 2 + 2


def test_a_release_without_a_module_file_is_refused_with_those_that_there_are(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    put_toolchain(tmp_path, "1.99.0")
    caller = get_programs(environment | {"TOPOGATE_KUBERNETES": "1.31"})
    output = caller.communicate(timeout=60)[1]
    assert caller.returncode == 1
    assert "TOPOGATE_KUBERNETES=1.31" in output
    assert "1.32.13, 1.36.3, 1.37.2" in output
    assert "Traceback" not in output
