"""hack/check sizes and complexity: how large each package is, and how many functions have many branches.

Lines of code are those without blank lines, comments, docstrings and imports. Branches are counted as ruff
does (rule C901, McCabe's complexity), and each `and`, `or`, comprehension and assertion with them. How many
functions above 10 a package may have stands in hack/branches.txt; hack/check complexity holds it. A function
of which a split would be harder to read, as it is one table or one list of rules, may say so on the line of
its `def`, after "# branches:"; it counts in a column of its own. What protoc generates is left out.
"""

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Final

ROOTS: Final = ("webhook", "labeler", "hack", "tests")
PRODUCT: Final = ("webhook", "labeler")
"""Of these, packages directly below get a row of their own."""
LONGEST: Final = 40
MOST_BRANCHES: Final = 10
CEILINGS: Final = "hack/branches.txt"

_BRANCHES: Final = (
    ast.If, ast.For, ast.While, ast.ExceptHandler, ast.IfExp, ast.comprehension, ast.match_case, ast.Assert,
)  # fmt: skip
Function = ast.FunctionDef | ast.AsyncFunctionDef
_FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef)
_REASON: Final = re.compile(r"# branches: \S")
_DOCUMENTED: Final = (ast.Module, ast.ClassDef, *_FUNCTIONS)


@dataclass(frozen=True)
class Size:
    """Of a module or a package. long, branching: functions above LONGEST lines and MOST_BRANCHES branches.

    reasoned: those above MOST_BRANCHES whose line says why; they are not among the branching ones.
    """

    lines: int = 0
    code: int = 0
    modules: int = 0
    long: int = 0
    branching: int = 0
    reasoned: int = 0

    def __add__(self, other: "Size") -> "Size":
        return Size(*(mine + others for mine, others in zip(astuple(self), astuple(other), strict=True)))


def main(root: Path) -> int:
    """Print a row for each package below `root`, and one for the whole product; returns 0."""
    rows = measured(root)
    print(
        f"{'package':22}{'lines':>8}{'code':>8}{'modules':>9}{'>40 lines':>11}{'>10 branches':>14}"
        f"{'for a reason':>14}"
    )
    for package, row in rows.items():
        print(
            f"{package:22}{row.lines:8}{row.code:8}{row.modules:9}{row.long:11}{row.branching:14}"
            f"{row.reasoned:14}"
        )
    return 0


def check(root: Path) -> int:
    """Compare the code below `root` with CEILINGS; returns 0, or 1 after a sentence about each difference."""
    complaints = [*differences((root / CEILINGS).read_text(), measured(root)), *_needless(root)]
    for complaint in complaints:
        print(complaint, file=sys.stderr)
    return 1 if complaints else 0


def differences(ceilings: str, rows: Mapping[str, Size]) -> Iterator[str]:
    """A sentence for each package that has more or fewer branching functions than the ceilings say."""
    for line in ceilings.splitlines():
        package, _, most = line.partition(" ")
        if package != "#" and rows[package].branching != int(most):
            yield (
                f"{package}: {rows[package].branching} functions have more than {MOST_BRANCHES} branches, "
                f"and {CEILINGS} says {most}. If they are more, split one that you changed; "
                "if they are fewer, write their number there."
            )


def _needless(root: Path) -> Iterator[str]:
    for path in (path for top in ROOTS for path in modules(root / top)):
        for function in needless_reasons(path.read_text()):
            yield (
                f"{path.relative_to(root)}: {function} is at {MOST_BRANCHES} branches or below. "
                'Remove "# branches:" from its line.'
            )


def measured(root: Path) -> dict[str, Size]:
    """The size of each package below `root`, and of the whole product."""
    rows: dict[str, Size] = defaultdict(Size)
    for top in ROOTS:
        for path in modules(root / top):
            size = size_of(path.read_text())
            for package in packages_of(path.relative_to(root).parts):
                rows[package] += size
    return rows


def modules(folder: Path) -> list[Path]:
    """The modules below a folder, but for those that protoc generates."""
    return [path for path in sorted(folder.rglob("*.py")) if not path.name.endswith("_pb2.py")]


def packages_of(parts: tuple[str, ...]) -> Iterator[str]:
    """The rows in which a module counts, by the parts of its path."""
    if parts[0] in PRODUCT:
        yield "product"
    yield parts[0]
    if parts[0] in PRODUCT and len(parts) > 2:
        yield "/".join(parts[:2])


def size_of(text: str) -> Size:
    """The size of one module."""
    nodes: list[ast.AST] = []
    functions: list[tuple[Function, int]] = []
    _branches(ast.parse(text), nodes, functions)
    lines = text.split("\n")
    many = [_reason(each, lines) for each, branches in functions if 1 + branches > MOST_BRANCHES]
    return Size(
        lines=text.count("\n"),
        code=len(_code_lines(text, nodes)),
        modules=1,
        long=sum(_last(each) - each.lineno >= LONGEST for each, _ in functions),
        branching=many.count(False),
        reasoned=many.count(True),
    )


def needless_reasons(text: str) -> list[str]:
    """The functions of a module that give a reason for more branches than they have."""
    functions: list[tuple[Function, int]] = []
    _branches(ast.parse(text), [], functions)
    lines = text.split("\n")
    return [
        each.name for each, branches in functions if 1 + branches <= MOST_BRANCHES and _reason(each, lines)
    ]


def _reason(function: Function, lines: Sequence[str]) -> bool:
    """Whether the line of a function's `def` says why it has so many branches."""
    return _REASON.search(lines[function.lineno - 1]) is not None


def _branches(node: ast.AST, nodes: list[ast.AST], functions: list[tuple[Function, int]]) -> int:
    """The branches of a node and of all below it, which are added to `nodes`, and functions with theirs."""
    nodes.append(node)
    found = len(node.values) - 1 if isinstance(node, ast.BoolOp) else int(isinstance(node, _BRANCHES))
    for child in ast.iter_child_nodes(node):
        found += _branches(child, nodes, functions)
    if isinstance(node, _FUNCTIONS):
        functions.append((node, found))
    return found


def _code_lines(text: str, nodes: list[ast.AST]) -> set[int]:
    used = {
        number
        for number, line in enumerate(text.split("\n"), 1)
        if line.strip() and not line.lstrip().startswith("#")
    }
    for node in nodes:
        if isinstance(node, ast.Constant | ast.JoinedStr):  # blank lines and "#" within texts are code
            used.update(range(node.lineno, _last(node) + 1))
    for node in nodes:
        if isinstance(node, ast.Import | ast.ImportFrom):
            used.difference_update(range(node.lineno, _last(node) + 1))
        elif isinstance(node, _DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            used.difference_update(range(node.body[0].lineno, _last(node.body[0]) + 1))
    return used


def _last(node: ast.stmt | ast.expr) -> int:
    assert node.end_lineno is not None, "what was parsed has an end"
    return node.end_lineno


if __name__ == "__main__":
    sys.exit((check if "--check" in sys.argv else main)(Path.cwd()))
