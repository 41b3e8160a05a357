"""What is printed while something takes long: how far it is, and how long it will take."""

import subprocess
import sys
from collections.abc import Iterator

import pytest

from hack.demos import demo
from hack.images import build as images
from hack.images.progress import time_left
from hack.images.targets import TARGETS
from hack.local import nodes
from hack.local.build import NoControlPlaneError, describe_build
from hack.local.cluster import Cluster


@pytest.mark.parametrize(
    ("compiled", "total", "seconds", "words"),
    [
        (0, 2913, 40, "40 s, 0 of 2913 packages compiled"),
        (10, 2913, 60, "60 s, 10 of 2913 packages compiled"),
        (1456, 2913, 300, "5 min, 1456 of 2913 packages compiled, about 5 min left"),
        (2184, 2913, 900, "15 min, 2184 of 2913 packages compiled, about 5 min left"),
        (2912, 2913, 1140, "19 min, linking, the last step"),
        (7, 0, 95, "2 min, 7 packages compiled"),
    ],
)
def test_a_build_reports_how_far_it_is_and_how_long_is_left(
    compiled: int, total: int, seconds: float, words: str
) -> None:
    assert describe_build(compiled, total, seconds) == words


def test_nothing_is_guessed_from_too_little_and_nothing_is_left_at_the_end() -> None:
    assert [time_left(*each) for each in ((0, 10, 100.0), (1, 10, 5.0), (10, 10, 100.0))] == ["", "", ""]


def test_each_image_is_named_before_it_is_built(capfd: pytest.CaptureFixture[str]) -> None:
    announced: Iterator[object] = images.announced(TARGETS)
    next(announced)
    first = next(iter(TARGETS))
    assert capfd.readouterr().err == f"  ... image {first}, 1 of {len(TARGETS)}\n"


def test_before_there_is_a_control_plane_the_demos_gang_is_simulated_where_it_will_run() -> None:
    grid = nodes.grid(demo.SHAPE)
    code = "from hack.demos.preview import show_preview; from hack.demos.demo import SHAPE\n"
    code += "from hack.local import nodes; show_preview(nodes.grid(SHAPE))"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stderr
    assert "16 pods on 1 block, 2 subblocks, 16 hosts, 16 nodes" in shown
    assert all(node.name in shown for node in grid if node.name.startswith("node-b1-"))


@pytest.mark.parametrize("ready", [False, True], ids=["cold", "built before"])
def test_only_a_cold_demo_shows_that_and_does_so_before_the_build(
    ready: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []

    def build(*_: object, **__: object) -> None:
        order.append("build")
        raise NoControlPlaneError("the test builds nothing")

    monkeypatch.setattr(sys, "argv", ["hack/demo"])
    monkeypatch.setattr(demo, "is_ready", lambda: ready)
    monkeypatch.setattr(demo, "show_preview", lambda grid: order.append("map"))
    monkeypatch.setattr(Cluster, "up", build)
    assert demo.main() == 1
    assert order == (["build"] if ready else ["map", "build"])


def test_the_demo_ends_with_three_commands_that_there_are() -> None:
    commands = [line.split("  ")[1] for line in demo.NEXT.splitlines() if line.startswith("  ")]
    assert commands == ["hack/demo --ui", "hack/cluster up --topogate", ".venv/bin/topogate simulate -h"]
