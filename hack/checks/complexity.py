"""hack/check complexity: no function has more than 10 branches, but for those that a list names.

Ruff counts (rule C901, McCabe's complexity). The list, hack/complexity.txt, may only shrink: a function that
is listed and no longer too complex must leave it. A line is a path and a function's name within its module.

Ruff leaves out `and`, `or`, comprehensions and assertions. With those, as hack/check sizes counts, more
functions are above 10. How many each package may have, beside those that give a reason, stands in
hack/branches.txt; it may only shrink.
"""

import ast
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hack.checks.sizes import ROOTS, measured, modules, needless_reasons

LIST: Final = "hack/complexity.txt"
CEILINGS: Final = "hack/branches.txt"
MOST: Final = 10
"""McCabe's complexity that every function may have."""

Name = tuple[str, str]
"""A file's path below the root, and a function's name in it, such as "Cache.items"."""


class ListError(Exception):
    """The list or the code cannot be read; the message says where."""


@dataclass(frozen=True)
class ComplexFunction:
    """A function that is too complex, and how much it is, in ruff's words."""

    name: Name
    line: int
    message: str


def main(root: Path) -> int:
    """Compare the code below `root` with its list; returns 0, or 1 after a sentence about each difference."""
    try:
        listed = read_list(root / LIST)
        complaints = list(differences(root, listed, too_complex(root)))
        complaints += above_or_below(read_ceilings(root / CEILINGS), branching(root))
        complaints += without_need(root)
    except ListError as error:
        complaints = [str(error)]
    for complaint in complaints:
        print(complaint, file=sys.stderr)
    if not complaints:
        print(f"{len(listed)} functions are still listed in {LIST}.")
    return 1 if complaints else 0


def read_list(path: Path) -> list[Name]:
    """The functions that a list names. Raises ListError for a line that is none."""
    listed: list[Name] = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        words = line.split()
        if not words or line.startswith("#"):
            continue
        if len(words) != 2:
            raise ListError(f"{LIST}:{number}: {line!r} is not a path and a function, such as a/b.py Class.f")
        if (words[0], words[1]) in listed:
            raise ListError(f"{LIST}:{number}: {line!r} is listed twice; remove one of the lines")
        listed.append((words[0], words[1]))
    return listed


def read_ceilings(path: Path) -> dict[str, int]:
    """How many functions with many branches each package may have. Raises ListError for an odd line."""
    found: dict[str, int] = {}
    for number, line in enumerate(path.read_text().splitlines(), 1):
        words = line.split()
        if not words or line.startswith("#"):
            continue
        if len(words) != 2 or not words[1].isdecimal() or words[0] in found:
            raise ListError(f"{CEILINGS}:{number}: {line!r} is not a package, named once, and a number")
        found[words[0]] = int(words[1])
    return found


def branching(root: Path) -> dict[str, int]:
    """How many functions with many branches each package has."""
    return {package: size.branching for package, size in measured(root).items()}


def above_or_below(ceilings: Mapping[str, int], found: Mapping[str, int]) -> Iterator[str]:
    """A sentence for each package that has more such functions than it may, or fewer."""
    for package, most in ceilings.items():
        there = found.get(package, 0)
        if there > most:
            yield (
                f"{package}: {there} functions have more than {MOST} branches, {most} may. Split a function "
                f"that you changed into functions that each do one thing; {CEILINGS} may only shrink."
            )
        elif there < most:
            yield (
                f"{package}: only {there} functions have more than {MOST} branches. "
                f"Write {there} into {CEILINGS}."
            )


def without_need(root: Path) -> Iterator[str]:
    """A sentence for each function that gives a reason for branches that it does not have."""
    for path in (path for top in ROOTS for path in modules(root / top)):
        for function in needless_reasons(path.read_text()):
            yield (
                f"{path.relative_to(root)}: {function} is at {MOST} branches or below. "
                'Remove "# branches:" from its line.'
            )


def too_complex(root: Path) -> list[ComplexFunction]:
    """The functions below `root` that are too complex, whatever comments in the code say of it.

    Raises ListError if ruff cannot read the code.
    """
    command = [sys.executable, "-m", "ruff", "check", "--select=C901", "--ignore-noqa", "--no-cache"]
    command += [f"--config=lint.mccabe.max-complexity={MOST}", "--output-format=json", "."]
    result = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    if result.returncode not in (0, 1):
        raise ListError(f"ruff failed: {result.stderr.strip()}")
    found = []
    for each in json.loads(result.stdout):
        path, line = Path(each["filename"]).relative_to(root.resolve()), each["location"]["row"]
        if each["code"] != "C901":
            raise ListError(f"{path}:{line}: {each['message']}")
        found.append(ComplexFunction((str(path), functions(root / path)[line]), line, each["message"]))
    return found


def functions(path: Path) -> dict[int, str]:
    """The functions of a module, also those inside of others, by the line of their `def`."""

    def within(node: ast.AST, prefix: str) -> Iterator[tuple[int, str]]:
        for child in ast.iter_child_nodes(node):
            inner = prefix
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                inner = f"{prefix}{child.name}."
                if not isinstance(child, ast.ClassDef):
                    yield child.lineno, prefix + child.name
            yield from within(child, inner)

    return dict(within(ast.parse(path.read_text()), ""))


def differences(root: Path, listed: Sequence[Name], found: Sequence[ComplexFunction]) -> Iterator[str]:
    """A sentence for each function that is too complex or listed, but not both."""
    complex_names = {each.name for each in found}
    stale = [name for name in listed if name not in complex_names]
    for each in found:
        path, function = each.name
        if each.name in listed:
            continue
        moved = next((name for name in stale if name[1] == function and not _has(root, name)), None)
        if moved is None:
            yield (
                f"{path}:{each.line}: {each.message}. Split it into functions that each do one thing; "
                f"{LIST} takes no new lines."
            )
        else:
            stale.remove(moved)
            yield (
                f"{path}:{each.line}: {function} has moved. In {LIST} change the line "
                f'"{" ".join(moved)}" to "{path} {function}".'
            )
    for name in stale:
        reason = f"is at {MOST} or below now" if _has(root, name) else "is not there any more"
        yield f'{name[0]}: {name[1]} {reason}. Remove the line "{" ".join(name)}" from {LIST}.'


def _has(root: Path, name: Name) -> bool:
    path = root / name[0]
    return path.is_file() and name[1] in functions(path).values()


if __name__ == "__main__":
    sys.exit(main(Path.cwd()))
