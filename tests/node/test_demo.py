"""hack/demo --real-node as a person types it, and how it judges what a container sees."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from hack.demos.real import CARDS, SeenInside
from hack.local import node
from hack.local.build import ROOT, programs
from labeler.contract.annotations import SlotCard


@pytest.mark.cluster
@pytest.mark.node
@pytest.mark.when_changed("hack/demos", "hack/local", "labeler/allocator")
def test_each_container_of_the_demo_sees_what_was_chosen_for_it_and_a_task_runs_to_its_logs(
    tmp_path: Path,
) -> None:
    if reason := node.lacking():
        pytest.skip(reason)
    programs()  # built before anything is waited for
    done = subprocess.run(
        [ROOT / "hack/demo", "--real-node"],
        env={**os.environ, "TOPOGATE_CLUSTERS": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=850,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    rows = re.findall(r"^(share|tiles|pair)-\d-\S+ +(\S+) .*card", done.stdout, re.MULTILINE)
    assert sorted(kind for kind, _ in rows) == ["pair", *["share"] * 4, "tiles", "tiles"]
    assert {name for _, name in rows} == {node.NAME}
    assert re.search(r"^I have card\d renderD\d+$", done.stdout, re.MULTILINE)
    assert re.search(r"^hello .* Succeeded ", done.stdout, re.MULTILINE)
    assert not (tmp_path / "demo-real").exists()


FILES = frozenset(path.rpartition("/")[2] for path in CARDS[0].nodes)
OTHERS = frozenset(path.rpartition("/")[2] for path in CARDS[1].nodes)
TILE = (SlotCard(0, (1,)),)


@pytest.mark.parametrize(
    ("promised", "files", "mask", "fault"),
    [
        ((SlotCard(0),), FILES, "-", None),
        (TILE, FILES, "1", None),
        ((SlotCard(0), SlotCard(1)), FILES | OTHERS, "-", None),
        ((), FILES, "-", "no cards in its annotations"),
        ((SlotCard(0),), OTHERS, "-", "instead of"),
        ((SlotCard(0),), FILES | OTHERS, "-", "instead of"),
        ((SlotCard(0),), frozenset(), "-", "instead of"),
        (TILE, FILES, "-", "has the mask - instead of 1"),
        (TILE, FILES, "0", "has the mask 0 instead of 1"),
        ((SlotCard(0),), FILES, "0", "has the mask 0 instead of -"),
    ],
)
def test_the_demo_names_a_container_that_sees_something_else(
    promised: tuple[SlotCard, ...], files: frozenset[str], mask: str, fault: str | None
) -> None:
    found = SeenInside("share-0", "real-0", promised, files, mask).fault
    assert (found is None) if fault is None else (found is not None and fault in found)
