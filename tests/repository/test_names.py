"""A name means one thing: no two classes of one name, wherever they are."""

import ast
from collections import defaultdict

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
