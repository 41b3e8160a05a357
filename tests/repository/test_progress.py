"""What is printed while something takes long: how far it is, and how long it will take."""

import subprocess
import sys

import pytest

from hack.demos import demo
from hack.local import nodes
from hack.local.build import describe_build


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


def test_before_there_is_a_control_plane_the_demos_gang_is_simulated_where_it_will_run() -> None:
    grid = nodes.grid(demo.SHAPE)
    code = "from hack.demos.preview import show_preview; from hack.demos.demo import SHAPE\n"
    code += "from hack.local import nodes; show_preview(nodes.grid(SHAPE))"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stderr
    assert "16 pods on 1 block, 2 subblocks, 16 hosts, 16 nodes" in shown
    assert all(node.name in shown for node in grid if node.name.startswith("node-b1-"))


def test_the_demo_ends_with_three_commands_that_there_are() -> None:
    commands = [line.split("  ")[1] for line in demo.NEXT.splitlines() if line.startswith("  ")]
    assert commands == ["hack/demo --ui", "hack/cluster up --topogate", ".venv/bin/topogate simulate -h"]
