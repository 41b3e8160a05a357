"""The lock of dependencies says all that pyproject.toml asks for, and nothing of where it came from."""

import re
import tomllib

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


@pytest.mark.parametrize("asked", ASKED, ids=lambda requirement: requirement.name)
def test_each_dependency_is_pinned_within_its_range_for_every_python(asked: Requirement) -> None:
    """Failed? Run hack/lock."""
    name = canonicalize_name(asked.name)
    pinned = [pin for pin in pins() if canonicalize_name(pin.name) == name]
    for minor in range(11, 15):
        python = {"python_version": f"3.{minor}", "python_full_version": f"3.{minor}.0"}
        environment = {**{key: str(value) for key, value in default_environment().items()}, **python}
        (here,) = [pin for pin in pinned if pin.marker is None or pin.marker.evaluate(environment)]
        (version,) = here.specifier
        assert version.operator == "=="
        assert asked.specifier.contains(version.version)


def test_the_lock_names_no_place_to_fetch_from() -> None:
    assert "://" not in LOCK
    assert not re.search(r"^\s*--(?!hash=sha256:)", LOCK, re.MULTILINE)


def test_every_pin_has_hashes() -> None:
    for entry in re.split(r"\n(?=\S)", LOCK):
        assert entry.startswith("#") or "--hash=sha256:" in entry, entry
