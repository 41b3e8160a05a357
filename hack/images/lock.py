"""What requirements.lock pins for the Python of an image."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from packaging.markers import Marker

ROOT: Final = Path(__file__).resolve().parents[2]
LOCK: Final = ROOT / "requirements.lock"


class BuildError(Exception):
    """The image cannot be built; the message says what to do."""


@dataclass(frozen=True)
class Locked:
    """One line of the lock: a distribution, its version, and the digests of its files."""

    name: str
    version: str
    hashes: tuple[str, ...]

    @property
    def line(self) -> str:
        """As pip reads it."""
        return " ".join([f"{self.name}=={self.version}", *(f"--hash={each}" for each in self.hashes)])


def read_lock(text: str, python: str) -> dict[str, Locked]:
    """What the lock has for a Python such as "3.11", by distribution. Raises BuildError for a bad line."""
    environment = {"python_version": python, "python_full_version": f"{python}.0"}
    found = {}
    for line in text.replace("\\\n", " ").splitlines():
        requirement, *hashes = line.partition(" #")[0].split("--hash=")
        if not requirement.strip() or requirement.startswith(("#", "-")):
            continue
        wanted, _, marker = requirement.partition(";")
        name, _, version = wanted.strip().partition("==")
        if not version or not hashes:
            raise BuildError(f"{LOCK.name}: {wanted!r} has no version or no digest; run hack/lock")
        if not marker or Marker(marker.strip()).evaluate(environment):
            found[name.lower()] = Locked(name, version, tuple(each.strip() for each in hashes))
    return found
