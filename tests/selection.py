"""Which tests a run leaves out: those marked `when_changed`, whose claims only some files can break.

They are long, and few: two builds of one image, an upgrade from an older release. `hack/test --all` runs
them, and so does whoever names their file. `.ci/run` (--changed) and a run of a folder run those whose files
have changed.
"""

import os
import subprocess
from collections.abc import Collection
from pathlib import Path
from typing import Final

import pytest

MARKER: Final = "when_changed"
BASE: Final = "TOPOGATE_BASE"
"""The variable that names the commit to compare with. Without it, the last day's commits count as changes."""

_DAY: Final = 24 * 3600


def is_long(item: pytest.Item) -> bool:
    """Whether a test is marked."""
    return item.get_closest_marker(MARKER) is not None


def leaves_out(item: pytest.Item, changed: Collection[str]) -> bool:
    """Whether a run leaves a test out. changed: files that have changed, as git writes them."""
    guarded = [path for marker in item.iter_markers(MARKER) for path in marker.args]
    return bool(guarded) and not any(_is_below(file, path) for file in changed for path in guarded)


def _is_below(file: str, path: str) -> bool:
    return file == path or file.startswith(f"{path.rstrip('/')}/")


def changed_files(root: Path) -> frozenset[str]:
    """Files of a repository that differ from BASE or, without one, that a commit of the last day changed.

    What is not committed counts too. The day ends with the newest commit, so the answer for a commit stays
    the same. In a clone without history all files have changed.
    """
    base = os.environ.get(BASE)
    if base:
        committed = _git(root, "diff", "--name-only", f"{base}...HEAD")
    else:
        newest = int(_git(root, "log", "-1", "--format=%ct")[0])
        committed = _git(root, "log", f"--since={newest - _DAY}", "--name-only", "--format=", "--root")
    uncommitted = _git(root, "diff", "--name-only", "HEAD")
    return frozenset((*committed, *uncommitted, *_git(root, "ls-files", "--others", "--exclude-standard")))


def _git(root: Path, *arguments: str) -> list[str]:
    result = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=False)
    if result.returncode:
        raise pytest.UsageError(
            f"git {' '.join(arguments)} failed: {result.stderr.strip()}. --changed needs a git repository, "
            f"and {BASE}, if it is set, a commit of it."
        )
    return result.stdout.splitlines()
