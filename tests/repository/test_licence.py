"""topogate may be used under Apache-2.0, and what comes from others is named with its own licence."""

import hashlib
import importlib.metadata
import re
from pathlib import Path

import pytest

from hack.local.build import ROOT

STANDARD_TEXT = "cfc7749b96f63bd31c3c42b5c471bf756814053e847c10f3eb003417bc523d30"
"""The SHA-256 of the Apache License 2.0 as the Apache Software Foundation publishes it."""

NOTICE = (ROOT / "NOTICE").read_text()
VENDORED = sorted((ROOT / "webhook/ui/static/vendor").iterdir())


def test_the_licence_is_the_standard_text_of_apache_2() -> None:
    assert hashlib.sha256((ROOT / "LICENSE").read_bytes()).hexdigest() == STANDARD_TEXT


def test_the_package_names_its_licence_and_brings_the_texts() -> None:
    metadata = importlib.metadata.metadata("topogate")
    assert metadata["License-Expression"] == "Apache-2.0"
    licences = {"LICENSE", "NOTICE", *(str(folder.relative_to(ROOT) / "LICENSE") for folder in VENDORED)}
    assert set(metadata.get_all("License-File") or ()) == licences


@pytest.mark.parametrize("folder", VENDORED, ids=lambda folder: str(folder.name))
def test_what_is_vendored_is_named_with_its_version_and_its_licence(folder: Path) -> None:
    path = folder.relative_to(ROOT)
    (entry,) = re.findall(rf"^{re.escape(str(path))}\n((?:    .+\n)+)", NOTICE, re.MULTILINE)
    assert (folder / "VERSION").read_text().strip() in entry
    assert f"{path}/LICENSE" in entry
    assert (folder / "LICENSE").read_text().splitlines()[2] in entry  # who has the copyright


def test_every_interface_that_is_written_from_anothers_is_named() -> None:
    protocols = {str(path.relative_to(ROOT)) for path in ROOT.glob("labeler/**/*.proto")}
    assert protocols
    assert protocols <= set(NOTICE.splitlines())


def test_every_part_that_the_notice_names_is_there() -> None:
    named = re.findall(r"^((?:webhook|labeler|hack|tests)/\S+)$", NOTICE, re.MULTILINE)
    assert len(named) > 4
    assert [name for name in named if not (ROOT / name).exists()] == []
