"""The Containerfile makes what `hack/image build` makes: the same code, the same files, started the same way.

No container engine is needed here: its lines are read, and held to the constants that the code builds by.
"""

import ast
import shlex
import sys
from pathlib import Path
from typing import Final

import pytest

from hack.images import build, cli
from hack.images.lock import LOCK, ROOT, BuildError
from hack.images.targets import TARGETS, Target

FILE: Final = ROOT / "hack" / "images" / "Containerfile"
OF_DEBIAN: Final = {"pip": "python3-pip", "packaging": "python3-packaging"}
"""What hack/images needs beside the standard library -> the Debian package that has it."""


def stages() -> list[list[tuple[str, list[str]]]]:
    """The instructions of each stage, as words."""
    found: list[list[tuple[str, list[str]]]] = []
    for line in FILE.read_text().replace("\\\n", " ").splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        name, *words = shlex.split(line)
        if name == "FROM":
            found.append([])
        found[-1].append((name, words))
    return found


def filled(words: list[str], target: str) -> list[str]:
    """Words as they are when TARGET and VERSION are set."""
    version = build.PROJECT["version"]
    return [word.replace("$TARGET", target).replace("$VERSION", version) for word in words]


def pairs(words: list[str], target: str) -> dict[str, str]:
    """Words such as KEY=value, as they are when TARGET and VERSION are set."""
    return dict(word.split("=", 1) for word in filled(words, target))


def test_it_takes_every_file_that_decides_the_image() -> None:
    make, _ = stages()
    taken = {path for name, words in make if name == "COPY" for path in words[:-1]}
    ours = {str(path.relative_to(ROOT)) for path in build.sources()}
    assert taken == {*ours, LOCK.name, "hack/images"}
    for path in taken:
        assert (ROOT / Path(path)).exists()


@pytest.mark.parametrize("name", TARGETS)
def test_its_one_command_makes_the_root_that_the_build_makes(name: str) -> None:
    make, _ = stages()
    (command,) = (words for instruction, words in make if instruction == "RUN" and "apt-get" not in words)
    words = filled(command, name)
    assert words[:3] == ["python3", "-m", "hack.images.cli"]
    options = cli.parser().parse_args(words[3:])
    assert (options.command, options.target) == ("root", name)
    build.check_version(options.version)
    _, image = stages()
    copies = [words for instruction, words in image if instruction == "COPY"]
    assert copies == [["--from=build", str(options.output), "/"]]


@pytest.mark.parametrize("target", TARGETS.values(), ids=lambda target: target.name)
def test_its_image_starts_as_ours_does_and_holds_nothing_else(target: Target) -> None:
    _, image = stages()
    labels = dict(image)
    assert [name for name, _ in image] == ["FROM", "ARG", "ARG", "LABEL", "COPY", "ENV", "USER"]
    assert labels["FROM"] == ["scratch"]
    assert pairs(labels["ENV"], target.name) == build.ENVIRONMENT
    assert labels["USER"] == [build.USER]
    assert pairs(labels["LABEL"], target.name) == build.labels_of(target)


def test_it_installs_what_the_build_imports_and_runs() -> None:
    make, _ = stages()
    (install,) = (words for name, words in make if name == "RUN" and "apt-get" in words)
    imported = {
        name.partition(".")[0]
        for path in FILE.parent.glob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        for name in (
            [each.name for each in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    foreign = (imported - set(sys.stdlib_module_names) - {"hack"}) | {"pip"}
    assert {OF_DEBIAN[name] for name in foreign} | {"python3-minimal"} == {
        word for word in install if word.startswith("python3-")
    }


def test_a_version_that_is_not_that_of_the_sources_is_refused() -> None:
    """As where the argument was forgotten, which makes it empty."""
    version = build.PROJECT["version"]
    with pytest.raises(BuildError, match=f"build with --build-arg VERSION={version}"):
        build.check_version("")
