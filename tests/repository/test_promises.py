"""Every promise of tests/promises.yaml has an id, a page that says it, and tests that carry the id."""

import re
from collections.abc import Iterator
from string import ascii_uppercase

from hack.local.build import ROOT
from hack.promises import Promise, marked_tests, promises, table
from tests.repository.pages import anchors

MOST_WORDS = 30


def next_free(id: str) -> str:
    """The next id of the same letter."""
    letter = id[0]
    numbers = [int(each.id.lstrip(ascii_uppercase)) for each in promises() if each.id[0] == letter]
    return f"{letter}{1 + max(numbers)}"


def test_every_promise_has_a_test_and_every_id_on_a_test_a_sentence() -> None:
    known, carried = {promise.id for promise in promises()}, set(marked_tests())
    assert sorted(known - carried) == [], "no test carries these"
    assert {each: f"write its sentence, or take {next_free(each)}" for each in carried - known} == {}


def test_every_promise_has_an_id_of_its_own() -> None:
    ids = [promise.id for promise in promises()]
    assert len(ids) > 100
    assert [each for each in ids if not re.fullmatch(r"[A-Z]+\d+", each)] == []


def faults_of(promise: Promise) -> Iterator[str]:
    page, _, anchor = promise.page.partition("#")
    if not (ROOT / page).is_file():
        yield f"{page} does not exist"
    elif anchor and anchor not in anchors(ROOT / page):
        yield f"{page} has no heading {anchor}"
    if not re.match(r"(topogate |[A-Z`0-9]).*\.$", promise.sentence):
        yield "not a sentence"
    words = re.sub(r"`[^`]*`", "code", promise.sentence).split()
    if len(words) > MOST_WORDS:
        yield f"{len(words)} words"


def test_a_promise_is_a_sentence_that_stands_on_a_page() -> None:
    assert [f"{promise.id}: {fault}" for promise in promises() for fault in faults_of(promise)] == []


def test_the_table_of_a_release_has_each_promise_with_its_tests() -> None:
    rows = [line for line in table("v9.9.9").splitlines() if re.match(r"\| [A-Z]+\d+ \|", line)]
    assert len(rows) == len(promises())
    assert [row for row in rows if "::test_" not in row] == []
