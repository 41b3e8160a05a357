"""What the images are made of: of the locked packages those that something imports, and no others."""

import ast
import importlib.metadata
import re
import sys

import pytest

from hack.images.build import PROJECT
from hack.images.lock import LOCK, ROOT, BuildError, read_lock
from hack.images.targets import TARGETS, Target

EXTRAS = {
    extra: {re.split("[<>=]", each)[0] for each in requirements}
    for extra, requirements in PROJECT["optional-dependencies"].items()
    if extra != "dev"
}
"""The distributions of each extra of pyproject.toml."""

TARGET = pytest.mark.parametrize("target", TARGETS.values(), ids=lambda target: target.name)


def imported(target: Target) -> set[str]:
    """The top-level modules that a target's packages import, in whatever place of a file."""
    found: set[str] = set()
    for package in target.packages:
        for path in (ROOT / package).rglob("*.py"):
            for each in ast.walk(ast.parse(path.read_text())):
                if isinstance(each, ast.Import):
                    found |= {name.name.partition(".")[0] for name in each.names}
                elif isinstance(each, ast.ImportFrom) and each.module and not each.level:
                    found.add(each.module.partition(".")[0])
    return found - set(sys.stdlib_module_names)


@TARGET
def test_every_distribution_that_our_code_imports_is_in_the_image(target: Target) -> None:
    of_module = importlib.metadata.packages_distributions()
    left_out = {name for extra in EXTRAS if extra not in target.extras for name in EXTRAS[extra]}
    for module in imported(target) - {"google"}:  # a namespace: protobuf's part of it is named below
        if module in target.packages:
            continue
        owners = {name.lower().replace("_", "-") for name in of_module[module]}
        assert owners & {*target.distributions, *left_out}, (
            f"{module} is imported, and {target.name} has it not"
        )


@TARGET
def test_an_image_has_its_extras_and_no_others(target: Target) -> None:
    for extra, names in EXTRAS.items():
        assert names & set(target.distributions) == (names if extra in target.extras else set())


@pytest.mark.promise("S56")
@TARGET
def test_every_distribution_of_an_image_is_locked_with_digests(target: Target) -> None:
    lock = read_lock(LOCK.read_text(), "3.11")
    for name in target.distributions:
        assert all(each.startswith("sha256:") for each in lock[name].hashes)


def test_the_image_of_every_node_has_nothing_of_the_webhooks_side() -> None:
    labeler = TARGETS["topogate-labeler"]
    assert labeler.packages == ("labeler",)
    assert not {"numpy", "kubernetes", "flask", "gunicorn"} & set(labeler.distributions)


LINES = """
# a comment
one==1.0 \\
    --hash=sha256:aa \\
    --hash=sha256:bb
two==2.0 ; python_full_version < '3.12' \\
    --hash=sha256:cc
two==2.5 ; python_full_version >= '3.12' \\
    --hash=sha256:dd
"""


@pytest.mark.parametrize(("python", "version"), [("3.11", "2.0"), ("3.13", "2.5")])
def test_the_lock_is_read_for_the_images_own_python(python: str, version: str) -> None:
    lock = read_lock(LINES, python)
    assert lock["one"].hashes == ("sha256:aa", "sha256:bb")
    assert lock["two"].version == version


@pytest.mark.promise("S56")
@pytest.mark.parametrize("line", ["one==1.0", "one>=1.0 --hash=sha256:aa"])
def test_a_line_without_a_version_or_a_digest_is_refused(line: str) -> None:
    with pytest.raises(BuildError, match="has no version or no digest"):
        read_lock(line, "3.11")
