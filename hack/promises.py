"""Promises to users and operators: the sentences of tests/promises.yaml, and the tests that carry their ids.

A test carries an id by its marker `promise`. Markers are read from the files of tests, which takes no import.
A test that is always skipped fails for nothing: it does not count.
"""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import yaml

from hack.local.build import ROOT

SENTENCES: Final = ROOT / "tests" / "promises.yaml"
_MARKER: Final = "pytest.mark.promise"
_HEAD: Final = """# What users and operators may rely on

Each sentence has an id, and names the tests that fail when it does not hold, in the sources of {version}.
"""


@dataclass(frozen=True)
class Promise:
    """A sentence, its id, and the page that says it, with an anchor if there is one."""

    id: str
    subject: str
    sentence: str
    page: str


def promises() -> list[Promise]:
    """All promises in the order of the file. Raises ValueError for an id that stands there twice."""
    text = SENTENCES.read_text()
    ids = re.findall(r"^  (\w+):$", text, re.MULTILINE)
    if twice := sorted({each for each in ids if ids.count(each) > 1}):
        raise ValueError(f"{SENTENCES.name}: {', '.join(twice)}: the id is taken")
    subjects: dict[str, dict[str, dict[str, str]]] = yaml.load(text, Loader=yaml.CBaseLoader)
    return [
        Promise(id, subject, entry["sentence"], entry["page"])
        for subject, entries in subjects.items()
        for id, entry in entries.items()
    ]


def marked_tests() -> dict[str, list[str]]:
    """For each id, the tests that carry it, as pytest names them."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        for test, id in _marked(ast.parse(path.read_text())):
            found[id].append(f"{path.relative_to(ROOT)}::{test}")
    return found


def table(version: str) -> str:
    """All promises with their tests, in Markdown."""
    tests = marked_tests()
    lines = [_HEAD.format(version=version)]
    subject = ""
    for promise in promises():
        if promise.subject != subject:
            subject = promise.subject
            lines += [f"\n## {subject}\n", "| id | promise | where | tests |", "|---|---|---|---|"]
        named = ", ".join(f"`{each}`" for each in tests[promise.id])
        sentence = promise.sentence.replace("|", "\\|")
        lines.append(f"| {promise.id} | {sentence} | {promise.page} | {named} |")
    return "\n".join(lines) + "\n"


def _marked(module: ast.Module) -> Iterator[tuple[str, str]]:
    """Each test of a module with each id that it carries."""
    tests = (each for each in module.body if isinstance(each, ast.FunctionDef))
    for test in (each for each in tests if each.name.startswith("test_")):
        calls = [each for each in test.decorator_list if isinstance(each, ast.Call)]
        names = [ast.unparse(each.func) for each in calls]
        if "pytest.mark.skip" in names:
            continue
        ids = [id for name, each in zip(names, calls, strict=True) if name == _MARKER for id in each.args]
        yield from ((test.name, ast.literal_eval(id)) for id in ids)
