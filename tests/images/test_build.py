"""The images that are built here: two builds are one digest, and nothing is in them that should not be."""

from pathlib import Path

import pytest

from hack.images.build import build
from hack.images.debian import BaseError
from hack.images.scan import scan
from hack.images.targets import LABELER
from hack.local import images


@pytest.fixture(scope="module")
def archives() -> list[Path]:
    try:
        return images.archives()
    except BaseError as error:
        pytest.skip(str(error))


def test_two_builds_of_the_same_sources_are_one_digest(archives: list[Path], tmp_path: Path) -> None:
    again = build(LABELER, tmp_path / "again.tar", images.name_of(LABELER.name))
    (earlier,) = (path for path in archives if path.stem == LABELER.name)
    assert scan(earlier).digest == again.digest
    assert earlier.read_bytes() == again.archive.read_bytes()


def test_no_image_has_a_fault_and_each_lists_what_it_holds(archives: list[Path]) -> None:
    for archive in archives:
        report = scan(archive)
        assert report.faults == []
        assert {kind for _, _, kind in report.parts} == {"deb", "pypi"}
