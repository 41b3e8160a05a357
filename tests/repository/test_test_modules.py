"""Tests stand by themselves: no test module imports another, and none is numbered after a list elsewhere."""

import ast
import re
from pathlib import Path

from hack.local.build import ROOT

MODULES = sorted((ROOT / "tests").rglob("*.py"))


def imported(path: Path) -> set[str]:
    """The modules that a file imports, or may: of `from a import b` both a and a.b."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


def is_test_module(name: str) -> bool:
    """Whether a dotted name is that of a module of tests."""
    path = ROOT / f"{name.replace('.', '/')}.py"
    return name.rpartition(".")[2].startswith("test_") and path.is_file()


def test_what_tests_share_stands_in_helper_modules() -> None:
    assert [
        f"{path.relative_to(ROOT)}: {name}"
        for path in MODULES
        for name in sorted(filter(is_test_module, imported(path)))
    ] == []


def test_no_test_has_a_number_of_a_list_elsewhere() -> None:
    numbered = {
        f"{path.relative_to(ROOT)}: {name}"
        for path in MODULES
        for name in re.findall(r"^def (test_\d+_\w+)", path.read_text(), re.MULTILINE)
    }
    assert numbered == set()
