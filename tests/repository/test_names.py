"""A name means one thing: no two classes of one name, wherever they are."""

import ast
import re
from collections import Counter, defaultdict
from pathlib import Path

import pytest

from hack.local.build import ROOT

PACKAGES = ("webhook", "labeler", "hack")


def test_no_two_classes_have_one_name() -> None:
    """Failed? Give the newer class the name of what it alone is; also private classes count."""
    places = defaultdict(list)
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            for node in ast.parse(path.read_text()).body:
                if isinstance(node, ast.ClassDef):
                    places[node.name].append(str(path.relative_to(ROOT)))
    assert len(places) > 300
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


@pytest.mark.parametrize(("package", "least"), [("webhook", 300), ("labeler", 50)])
def test_no_two_modules_of_a_package_have_one_name(package: str, least: int) -> None:
    stems = Counter(path.stem for path in (ROOT / package).rglob("*.py"))
    assert len(stems) > least
    several = {stem for stem, count in stems.items() if count > 1} - {"__init__", "model", "main"}
    assert several == set()


_WORDS = """
accuse accused accuser accusers ahead alike anew awaited beat booked companion companions
condemn figures forgive forgiven go goes ground half halves hear heard hears held hindrance
house judge judges kept laid like mixed odd papers rival rivals room rooms said saw say says
shunned spared sparing standing steer steered steering stranger strangers tell telling tells
told tries turn turns unlike unplanned verdict verdicts way wing wish wishes
"""
REPLACED = frozenset(_WORDS.split())
"""Words that are no names here: the left column of the table in docs/contributing/style.md, in all forms."""
TERMS = frozenset(
    ["avoided", "bound", "closed", "floor", "kinds", "ledger", "parts", "rest", "round", "steps", "whole"]
)
"""Words of that column that are a term of the field as well, in their place: `bound`, `steps`, `parts` and
`rest`; `kinds` of Kubernetes; the `floor` of numbers and of topology spread; a `round`; the `ledger` of
reservations; `avoided` for used last; `closed` connections; and what is `whole`: numbers, GPUs and nodes.
"""
PHRASES = ("half_life", "under_way", "go_environment", "go_package", "go_program", "go_version")
"""Terms of the field, or plain English, which have such a word in them."""
PLAIN = ("hack", "labeler", "tests", "webhook")
"""Packages whose names are in the field's words."""
WIRE = {
    "labeler/contract/keys.py": {"UNPLANNED_CARDS_ANNOTATION"},
    "labeler/labels.py": {"_MIXED"},
    "webhook/inquiry/findings.py": {"ODD"},
    "webhook/kube/placements.py": {"held_v01", "held_until_v01", "kept_v01", "turn_v01"},
}
"""By module, names of what is on the wire or in printed documents, where readers know it by that word."""


def _names(path: Path) -> set[str]:
    """What a module defines or assigns, and its own name."""
    found = {path.stem}
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.arg):
            found.add(node.arg)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            found.add(node.attr)
    return found - WIRE.get(str(path.relative_to(ROOT)), set())


def _words(name: str) -> set[str]:
    plain = re.sub(r"([a-z])([A-Z])", r"\1_\2", name).lower()
    return set(re.sub("|".join(PHRASES), "", plain).split("_"))


@pytest.mark.parametrize("package", PLAIN)
def test_no_name_is_a_word_that_has_a_term_of_the_field(package: str) -> None:
    """Failed? Take the word on the right in the table of docs/contributing/style.md."""
    modules = sorted((ROOT / package).rglob("*.py"))
    assert modules
    found = {
        str(path.relative_to(ROOT)): names
        for path in modules
        if (names := sorted(name for name in _names(path) if _words(name) & REPLACED))
    }
    assert found == {}


def test_the_words_are_those_of_the_page_on_words() -> None:
    """Failed? A word that was added to the table belongs to REPLACED, or to TERMS with its reason."""
    text = (ROOT / "docs/contributing/style.md").read_text()
    table = text.partition("| do not write | write |")[2].partition("\n\n")[0]
    entries = [row.split("|")[1] for row in table.splitlines()[2:]]
    words = {each.strip() for entry in entries for each in re.sub(r"\(.*?\)", "", entry).split(",")}
    single = {word for word in words if word and " " not in word and "_" not in word}
    assert len(single) > 40
    assert single <= REPLACED | TERMS
