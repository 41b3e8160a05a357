"""Every promise of docs/promises.md has an id, a place, and tests that pytest collects.

Whether a test is collected is read from its file, which takes no import. A test that is always skipped fails
for nothing: it does not count.
"""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from string import ascii_uppercase

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


@cache
def collected(path: Path) -> frozenset[str]:
    """The tests of a file that pytest collects. Empty for what is no file of tests."""
    if not path.is_file() or not re.fullmatch(r"test_\w+\.py", path.name):
        return frozenset()
    functions = [node for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef)]
    return frozenset(
        each.name for each in functions if "mark.skip(" not in " ".join(map(ast.unparse, each.decorator_list))
    )


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
