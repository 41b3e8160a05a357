"""The page of Events names every reason that a program of ours writes, and no other."""

import ast
import re
from pathlib import Path
from typing import Final

from hack.local.build import ROOT
from webhook.sweeper.decide.orders import Hindered

PAGE: Final = ROOT / "docs/operators/events.md"
CALLS: Final = {"say", "say_of_node", "Warn", "PodEvent", "_send_event", "RefusedError", "_note_refusal"}
"""What takes a reason among its arguments."""
REASON: Final = re.compile(r"[A-Z][a-z]+(?:[A-Z][a-z]+)*")
ACTIONS: Final = {"Place", "Avoid"}
"""What an Event says was done, beside its reason."""


def constants(path: Path) -> set[str]:
    """All words in PascalCase that a module has as a text."""
    return {
        node.value
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and REASON.fullmatch(node.value)
    }


def written(path: Path) -> set[str]:
    """Those that a module gives to what writes Events."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call):
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            texts = [each.value for each in node.args if isinstance(each, ast.Constant)]
            if name in CALLS:
                found |= {each for each in texts if isinstance(each, str) and REASON.fullmatch(each)}
    return found


def modules() -> list[Path]:
    folders = ("webhook/sweeper", "webhook/extensions", "webhook/tasks", "labeler")
    return [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]


def named() -> set[str]:
    """The reasons on the page."""
    rows = re.findall(r"^\| (`[^|]+`) \|", PAGE.read_text(), re.MULTILINE)
    return {reason for row in rows for reason in re.findall(r"`(\w+)`", row)}


def test_every_reason_that_is_written_stands_on_the_page() -> None:
    reasons = set(map(str, Hindered)).union(*map(written, modules())) - ACTIONS
    assert len(reasons) > 30
    assert reasons - named() == set()


def test_every_reason_on_the_page_is_written_by_a_program() -> None:
    assert named() - set().union(*map(constants, modules())) == set()
