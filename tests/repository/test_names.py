"""A name means one thing: no two classes of one name, wherever they are."""

import ast
import re
from collections import defaultdict
from pathlib import Path

import pytest

from hack.local.build import ROOT

ROOMS = ("webhook", "labeler", "hack")


def test_no_two_classes_have_one_name() -> None:
    places = defaultdict(list)
    for room in ROOMS:
        for path in sorted((ROOT / room).rglob("*.py")):
            for node in ast.parse(path.read_text()).body:
                if isinstance(node, ast.ClassDef):
                    places[node.name].append(str(path.relative_to(ROOT)))
    assert len(places) > 300
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


REPLACED = frozenset(
    [
        "told",
        "tell",
        "tells",
        "telling",
        "said",
        "say",
        "says",
        "hear",
        "heard",
        "hears",
        "saw",
        "anew",
        "shunned",
        "spared",
        "sparing",
        "awaited",
        "beat",
        "wish",
        "wishes",
        "alike",
        "unlike",
        "odd",
        "companion",
        "companions",
        "hindrance",
        "steer",
        "steering",
        "steered",
        "stranger",
        "strangers",
        "accuse",
        "accused",
        "accuser",
        "accusers",
        "condemn",
        "verdict",
        "verdicts",
        "forgiven",
        "halves",
        "rival",
        "rivals",
        "judge",
        "judges",
        "figures",
        "laid",
        "standing",
        "held",
        "booked",
        "kept",
        "room",
        "rooms",
        "forgive",
        "goes",
    ]
)
"""Words that are no names here: see the table in docs/contributing/style.md."""
PLAIN = (
    "labeler",
    "webhook/admission",
    "webhook/cli",
    "webhook/devices",
    "webhook/extensions",
    "webhook/inquiry",
    "webhook/kube",
    "webhook/placement",
    "webhook/policy",
    "webhook/scheduling",
    "webhook/sweeper",
    "webhook/tasks",
    "webhook/ui",
    "webhook/workloads",
)
"""Packages whose names are all in the field's words; the others follow."""
WIRE = {
    "labeler/contract/event_reasons.py": {"MEMBERS_NOT_HELD"},
    "labeler/contract/keys.py": {"FORGIVE_FAILURES_ANNOTATION", "WISH_ANNOTATIONS"},
    "webhook/inquiry/findings.py": {"ODD"},
    "webhook/kube/placements.py": {"held", "held_until", "kept"},
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
    return set(re.sub(r"([a-z])([A-Z])", r"\1_\2", name).lower().split("_"))


@pytest.mark.parametrize("package", PLAIN)
def test_no_name_is_a_word_that_has_a_term_of_the_field(package: str) -> None:
    modules = sorted((ROOT / package).rglob("*.py"))
    assert modules
    found = {
        str(path.relative_to(ROOT)): names
        for path in modules
        if (names := sorted(name for name in _names(path) if _words(name) & REPLACED))
    }
    assert found == {}
