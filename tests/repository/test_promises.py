"""Every promise of docs/promises.md has an id, a place, and tests that pytest collects.

Whether a test is collected is read from its file, which takes no import: pytest collects the functions named
test* of a module named test_*.py below `testpaths`, and the methods named test* of its classes named Test*.
The repository changes none of these names, and no conftest.py leaves out files (both are tested here). A
test that is always skipped is collected as well, but fails for nothing: it does not count.
"""

import ast
import re
import tomllib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from string import ascii_uppercase

import pytest

from hack.local.build import ROOT

PROMISES = ROOT / "docs" / "promises.md"
HEAD = ["id", "promise", "where", "test"]
MOST_WORDS = 30
CELL = re.compile(r"(?<!\\)\|")
NAMED = re.compile(r"`(tests/[^`]+)`")


@dataclass(frozen=True)
class Promise:
    """One row of a table."""

    id: str
    sentence: str
    where: str
    tests: tuple[str, ...]


def cells_of(line: str) -> list[str]:
    return [cell.strip() for cell in CELL.split(line.strip())[1:-1]]


def promises() -> list[Promise]:
    """The rows of all tables. Fails for a table of other columns."""
    found = []
    lines = PROMISES.read_text().splitlines()
    for above, line in zip(["", *lines], lines, strict=False):
        if not line.startswith("|"):
            continue
        cells = cells_of(line)
        if not above.startswith("|"):
            assert cells == HEAD, line
        elif set(line) - set("|- "):
            assert len(cells) == len(HEAD), line
            found.append(Promise(cells[0], cells[1], cells[2], tuple(NAMED.findall(cells[3]))))
    return found


def is_always_skipped(marks: list[ast.expr]) -> bool:
    return any(ast.unparse(mark).partition("(")[0] in ("pytest.mark.skip", "mark.skip") for mark in marks)


def names_in(body: list[ast.stmt], prefix: str = "") -> Iterator[str]:
    """Names as pytest writes them after the file, without parameters."""
    for node in body:
        if isinstance(node, ast.ClassDef) and node.name.startswith("Test"):
            if not is_always_skipped(node.decorator_list):
                yield from names_in(node.body, f"{prefix}{node.name}::")
        elif (
            isinstance(node, ast.FunctionDef)
            and node.name.startswith("test")
            and not is_always_skipped(node.decorator_list)
        ):
            yield f"{prefix}{node.name}"


@cache
def collected(path: Path) -> frozenset[str]:
    """The tests of a file that pytest collects. Empty for what is no file of tests."""
    if not path.is_file() or not re.fullmatch(r"test_\w+\.py", path.name):
        return frozenset()
    body = ast.parse(path.read_text()).body
    for node in body:
        if isinstance(node, ast.Assign) and "pytestmark" in {ast.unparse(target) for target in node.targets}:
            marks = node.value.elts if isinstance(node.value, (ast.List, ast.Tuple)) else [node.value]
            if is_always_skipped(marks):
                return frozenset()
    return frozenset(names_in(body))


def is_collected(name: str) -> bool:
    file, _, test = name.partition("::")
    return test in collected(ROOT / file)


def test_every_promise_names_tests_and_pytest_collects_each() -> None:
    assert [promise.id for promise in promises() if not promise.tests] == [], "no test is named"
    missing = [
        f"{promise.id}: {name}" for promise in promises() for name in promise.tests if not is_collected(name)
    ]
    assert missing == [], "pytest collects none of these"


def test_every_promise_has_an_id_of_its_own() -> None:
    counts = Counter(promise.id for promise in promises())
    assert len(counts) > 10
    assert [each for each in counts if not re.fullmatch(r"[A-Z]+\d+", each)] == []
    numbers = {each: int(each.lstrip(ascii_uppercase)) for each in counts}
    next_free = {
        letter: f"take {letter}{1 + max(number for each, number in numbers.items() if each[0] == letter)}"
        for letter in {each[0] for each in counts}
    }
    taken_twice = [each for each, count in counts.items() if count > 1]
    assert {each: next_free[each[0]] for each in taken_twice} == {}


def faults_of(promise: Promise) -> Iterator[str]:
    if not re.search(r"\]\([^)\s]+\)", promise.where):
        yield "no link says where the promise stands"
    if not re.match(r"(topogate |[A-Z`0-9]).*\.$", promise.sentence):
        yield "not a sentence"
    words = re.sub(r"`[^`]*`", "code", promise.sentence).split()
    if len(words) > MOST_WORDS:
        yield f"{len(words)} words"


def test_a_promise_is_a_sentence_that_stands_somewhere() -> None:
    assert [f"{promise.id}: {fault}" for promise in promises() for fault in faults_of(promise)] == []


def test_a_promise_without_a_link_a_full_stop_or_an_end_is_found() -> None:
    sound = Promise("A1", "Pods are placed.", "[page](page.md)", ("tests/test_a.py::test_a",))
    assert [*faults_of(sound)] == []
    for broken in (
        replace(sound, where="page.md"),
        replace(sound, sentence="Pods"),
        replace(sound, sentence=f"P{' a' * MOST_WORDS}."),
    ):
        assert len([*faults_of(broken)]) == 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("def test_a(): ...", {"test_a"}),
        ("def helper(): ...", set()),
        ("class TestA:\n    def test_b(self): ...\n    def c(self): ...", {"TestA::test_b"}),
        ("class A:\n    def test_b(self): ...", set()),
        ("@pytest.mark.skip(reason='no')\ndef test_a(): ...", set()),
        ("@pytest.mark.skipif(True, reason='no card')\ndef test_a(): ...", {"test_a"}),
        ("pytestmark = [pytest.mark.skip]\ndef test_a(): ...", set()),
        ("def test_a():\n    def test_b(): ...", {"test_a"}),
    ],
)
def test_what_is_collected_is_read_from_a_file(tmp_path: Path, text: str, expected: set[str]) -> None:
    path = tmp_path / "test_file.py"
    path.write_text(text)
    assert collected(path) == expected


def test_what_is_no_file_of_tests_has_none(tmp_path: Path) -> None:
    (tmp_path / "support.py").write_text("def test_a(): ...")
    assert collected(tmp_path / "support.py") == collected(tmp_path / "test_away.py") == frozenset()


def test_pytest_collects_by_its_usual_names() -> None:
    options = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]
    assert options["testpaths"] == ["tests"]
    assert not {"python_files", "python_classes", "python_functions", "norecursedirs"} & options.keys()
    leaving_out = ("collect_ignore", "pytest_ignore_collect", "pytest_collect_file", "__test__")
    assert [
        path.name
        for path in (ROOT / "tests").rglob("*.py")
        if path != Path(__file__) and any(word in path.read_text() for word in leaving_out)
    ] == []
