"""What hack/check says of functions with many branches, and how it counts the size of the code."""

from pathlib import Path

import pytest

from hack.checks.sizes import CEILINGS, ROOTS, Size, check, modules, size_of
from hack.local.build import ROOT

BRANCHING = "".join(f"    if a == {number}:\n        return {number}\n" for number in range(10))
TOO_COMPLEX = f"def decide(a):\n{BRANCHING}    return None\n"
SIMPLE = "def decide(a):\n    return a\n"


def test_functions_that_ruff_lets_pass_only_become_fewer() -> None:
    comment = "# noqa: C9" + "01"  # in two parts, as this module has none
    assert sum(path.read_text().count(comment) for top in ROOTS for path in modules(ROOT / top)) <= 12


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("", Size(modules=1)),
        ('"""What it is."""\n\nimport os\n\n# Why.\nA = 1\n', Size(lines=6, code=1, modules=1)),
        ('A = """\n# text\n\n"""\n', Size(lines=4, code=4, modules=1)),
        (SIMPLE, Size(lines=2, code=2, modules=1)),
        (TOO_COMPLEX, Size(lines=22, code=22, modules=1, branching=1)),
        ("def f(a):\n    return " + " or ".join("a" * 11) + "\n", Size(2, 2, 1, branching=1)),
        (TOO_COMPLEX.replace("(a):", "(a):  # branches: a table"), Size(22, 22, 1, reasoned=1)),
        (TOO_COMPLEX.replace("(a):", "(a):  # branches:"), Size(22, 22, 1, branching=1)),
        ("def f():\n" + "    g()\n" * 39, Size(lines=40, code=40, modules=1)),
        ("def f():\n" + "    g()\n" * 40, Size(lines=41, code=41, modules=1, long=1)),
    ],
)
def test_code_is_what_is_neither_blank_nor_comment_nor_docstring_nor_import(text: str, size: Size) -> None:
    assert size_of(text) == size


def test_a_reason_for_branches_that_a_function_does_not_have_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, text in (
        ("webhook/a.py", SIMPLE.replace("(a):", "(a):  # branches: a table")),
        (CEILINGS, "webhook 0\n"),
    ):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text(text)
    assert check(tmp_path) == 1
    assert capsys.readouterr().err.splitlines() == [
        'webhook/a.py: decide is at 10 branches or below. Remove "# branches:" from its line.'
    ]


def test_the_ceilings_only_shrink() -> None:
    ceilings = dict(line.split() for line in (ROOT / CEILINGS).read_text().splitlines() if line[0] != "#")
    assert int(ceilings["webhook"]) <= 36
    assert int(ceilings["labeler"]) <= 14
