"""The option of topogate simulate that names the gangs that would be moved for one without a place."""

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import Final

import msgspec
import pytest

from labeler.contract import keys
from tests.cli import explanations
from tests.cli.explanations import GRID
from tests.cli.simulations import cluster, job, node, simulated
from tests.sweeper.preemptions import member
from webhook.cli import simulate
from webhook.configuration.settings import MoveLimits, Settings
from webhook.inquiry.rehearsal import rehearse_manifest
from webhook.inquiry.simulation import Rehearsed, read_manifest, shipped_rules
from webhook.workloads.builtin import Job

MOVABLE: Final = {keys.MOVABLE_ANNOTATION: "true"}
BLOCK: Final = {keys.REQUIRED_TOPOLOGY_ANNOTATION: "block"}
OFF: Final = "No gang is moved in this cluster: its configuration has no makeRoom."
ON: Final = Settings(moves=MoveLimits(is_on=True))


def scene_of(file: Path, annotations: dict[str, str], settings: Settings) -> Rehearsed:
    """In one of two blocks a node is full of the Job small, in the other of a foreign pod."""
    metadata = {"annotations": annotations, "uid": "u"}
    small = member("small", 0, GRID[0].name, priority=0, metadata=metadata, gpus=8)
    reading = explanations.cluster([small, explanations.busy_pod(GRID[2].name, 9)])
    entries = [{"name": "u", "uid": "u", "node": GRID[0].name}]
    reading = explanations.with_placement(reading, small, status={"complete": True}, pods=entries)
    job_of_small = msgspec.convert({"metadata": {"name": "small", "namespace": "ns", "uid": "ns-small"}}, Job)
    owners = {"jobs.batch": {"ns/small": job_of_small}}
    reading = replace(reading, read_owners=owners.get)
    return rehearse_manifest(reading, read_manifest(file, shipped_rules(), ""), settings)


@pytest.mark.parametrize(
    ("annotations", "settings", "count", "lines"),
    [
        (MOVABLE, Settings(), 4, ["It would fit if 1 gang, 1 pod, moved: ns/Job/small.", OFF]),
        (
            MOVABLE,
            ON,
            4,
            [
                "It would fit if 1 gang, 1 pod, moved: ns/Job/small.",
                "They are moved once it has waited for 10m (makeRoom.after).",
            ],
        ),
        (
            {},
            Settings(),
            4,
            ["It would fit if 1 gang, 1 pod, moved: ns/Job/small (not movable (topogate.io/movable)).", OFF],
        ),
        (MOVABLE, ON, 6, ["No move of other gangs would help it."]),
        (MOVABLE, ON, 2, []),
    ],
)
def test_the_gangs_whose_move_would_help_are_named(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    annotations: dict[str, str],
    settings: Settings,
    count: int,
    lines: list[str],
) -> None:
    file = tmp_path / "job.json"
    file.write_text(json.dumps(job(count, **BLOCK)))
    monkeypatch.setattr(simulate, "_of_cluster", lambda *_: scene_of(file, annotations, settings))
    for arguments, expected in ([], []), (["--make-room"], lines):
        assert run(file, *arguments) == int(count != 2)
        printed = capsys.readouterr().out.splitlines()
        assert [line.removeprefix("Gang train: ") for line in printed if " move" in line] == expected


def run(file: Path, *arguments: str) -> int:
    """The status of the command."""
    parser = argparse.ArgumentParser()
    simulate.add_parser(parser.add_subparsers())
    return simulate.run(parser.parse_args(["simulate", str(file), *arguments]))


@pytest.mark.parametrize("arguments", [[], ["-o", "json"]])
def test_files_without_placements_and_documents_do_not_answer_about_moves(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    """Else it would print that no move helps."""
    there = cluster(node("a", "b0", 8))
    assert simulated(tmp_path, there, job(4), "--make-room", *arguments) == 2
    assert "--make-room" in capsys.readouterr().err
