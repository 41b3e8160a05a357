"""The lock of dependencies says all that pyproject.toml asks for, and nothing of where it came from."""

import re
import tomllib
from collections import defaultdict

import pytest
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from hack.local.build import ROOT

LOCK = (ROOT / "requirements.lock").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
ASKED = [
    Requirement(text)
    for text in (
        *PROJECT["dependencies"],
        *(each for more in PROJECT["optional-dependencies"].values() for each in more),
    )
]


def pins() -> list[Requirement]:
    entries = re.split(r"\n(?=\S)", LOCK)
    return [Requirement(entry.partition("\\")[0].strip()) for entry in entries if not entry.startswith("#")]


def is_pinned_within(asked: Requirement, pinned: list[Requirement], python: str) -> bool:
    """Whether exactly one pin is for this Python, and within the range."""
    found = {"python_version": python, "python_full_version": f"{python}.0"}
    environment = {**{key: str(value) for key, value in default_environment().items()}, **found}
    here = [pin for pin in pinned if pin.marker is None or pin.marker.evaluate(environment)]
    versions = [version for pin in here for version in pin.specifier]
    return [each.operator for each in versions] == ["=="] and asked.specifier.contains(versions[0].version)


@pytest.mark.promise("S56")
def test_each_dependency_is_pinned_within_its_range_for_every_python() -> None:
    """Failed? Run hack/lock."""
    pinned = defaultdict(list)
    for pin in pins():
        pinned[canonicalize_name(pin.name)].append(pin)
    assert len(ASKED) > 20
    assert [
        f"{asked} on Python {python}"
        for asked in ASKED
        for python in ("3.11", "3.12", "3.13", "3.14")
        if not is_pinned_within(asked, pinned[canonicalize_name(asked.name)], python)
    ] == []


def test_the_lock_names_no_place_to_fetch_from() -> None:
    assert "://" not in LOCK
    assert not re.search(r"^\s*--(?!hash=sha256:)", LOCK, re.MULTILINE)


@pytest.mark.promise("S56")
def test_every_pin_has_hashes() -> None:
    for entry in re.split(r"\n(?=\S)", LOCK):
        assert entry.startswith("#") or "--hash=sha256:" in entry, entry
