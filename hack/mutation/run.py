"""hack/mutate: draw mutants, run the tests that call their functions, and list the mutants that survive.

Only tests without a cluster of the mutant's own package run, the quickest first, until one fails, in a copy
of the tree. A mutant may be as right as the original (equivalent): whoever reads the list judges.
"""

import argparse
import itertools
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from hack.local.build import ROOT
from hack.mutation import recorder
from hack.mutation.mutants import Mutant, mutants_of

TESTS: Final = {
    "webhook/sweeper/decide": "tests/sweeper",
    "webhook/sweeper/apply": "tests/sweeper",
    "webhook/admission": "tests/admission",
    "webhook/placement/cards": "tests/placement",
    "labeler/labels.py": "tests/labeler",
    "labeler/publisher.py": "tests/labeler",
}
"""What is mutated by default, and the tests that must notice."""
COPIED: Final = ("webhook", "labeler", "hack", "tests", "manifests", "docs", "pyproject.toml", "README.md")
MOST_SECONDS: Final = 40.0
"""Of the tests that are chosen for a mutant, as they took when they were recorded."""
SECONDS: Final = 120
SURVIVED: Final = "survived"

Calls = Mapping[str, Mapping[str, float]]
"""The tests of each function ("path:line"), with the seconds of each."""


def main(arguments: Sequence[str]) -> int:
    """Run; prints a line for each mutant that survives, and the sums. Returns 0."""
    options = _options(arguments)
    packages = {path: TESTS.get(path) or f"tests/{Path(path).parts[1]}" for path in options.paths or TESTS}
    drawn = _draw(list(packages), options.number, options.seed)
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(options.jobs) as pool:
        trees = [_copy(Path(folder) / str(number)) for number in range(options.jobs)]
        found = pool.map(lambda tests: _calls(trees[0], tests), sorted(set(packages.values())))
        calls = dict(zip(sorted(set(packages.values())), found, strict=True))
        results: list[str] = []

        def run(number: int) -> None:
            for mutant in drawn[number :: options.jobs]:
                tests = next(tests for path, tests in packages.items() if mutant.path.startswith(path))
                result = _try(trees[number], mutant, calls[tests])
                results.append(result)
                if result != "caught":
                    print(f"{result}: {mutant.path}:{mutant.line}: {mutant.change}", flush=True)

        list(pool.map(run, range(options.jobs)))
    counts = Counter(results)
    print(
        f"{len(results)} mutants: " + ", ".join(f"{number} {name}" for name, number in sorted(counts.items()))
    )
    return 0


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="hack/mutate", description=__doc__.partition("\n")[0])
    parser.add_argument("paths", nargs="*", help="packages or modules; default: " + ", ".join(TESTS))
    parser.add_argument("--number", type=int, default=200, help="of mutants (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="which of them (default: %(default)s)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="side by side")
    return parser.parse_args(arguments)


def _draw(paths: Sequence[str], number: int, seed: int) -> list[Mutant]:
    """An equal share of mutants of each path, in an order of chance."""
    chance, drawn = random.Random(seed), list[Mutant]()
    shares = [list[Mutant]() for _ in paths]
    for share, path in zip(shares, paths, strict=True):
        place = ROOT / path
        for module in sorted(place.rglob("*.py")) if place.is_dir() else [place]:
            share.extend(mutants_of(module, ROOT))
        chance.shuffle(share)
    while len(drawn) < number and any(shares):
        drawn.extend(share.pop() for share in shares if share)
    return drawn[:number]


def _copy(folder: Path) -> Path:
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("node_modules"))
        else:
            shutil.copy(source, folder / name)
    return folder


def _pytest(tree: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    options = ["--no-cluster", "--all", "-q", "-p", "no:cacheprovider"]
    command = [sys.executable, "-m", "pytest", *options, *arguments]
    environment = {**os.environ, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1", **variables}
    return subprocess.run(
        command,
        cwd=tree,
        env=environment,
        capture_output=True,
        text=True,
        timeout=None if variables else SECONDS,
    )


def _calls(tree: Path, tests: str) -> Calls:
    """Run the tests of a package as they are, and note what they call. Ends this program if one fails."""
    output = tree / f"{tests.replace('/', '-')}.json"
    done = _pytest(tree, "-p", "hack.mutation.recorder", tests, **{recorder.OUTPUT: str(output)})
    if done.returncode:
        sys.exit(f"{tests} fails without any change:\n{done.stdout[-3000:]}")
    found: Calls = json.loads(output.read_text())
    return found


def _try(tree: Path, mutant: Mutant, calls: Calls) -> str:
    """What became of a mutant: caught, survived, endless (its tests had not ended), or "no test calls it"."""
    tests = calls.get(f"{mutant.path}:{mutant.function}", {})
    if not tests:
        return "no test calls it"
    module = tree / mutant.path
    original = module.read_text()
    module.write_text(mutant.source)
    try:
        return "caught" if _pytest(tree, "-x", *_quickest(tests)).returncode else SURVIVED
    except subprocess.TimeoutExpired:
        return "endless"
    finally:
        module.write_text(original)


def _quickest(tests: Mapping[str, float]) -> list[str]:
    """As many tests as take MOST_SECONDS, the quickest first."""
    ordered = sorted(tests, key=tests.__getitem__)
    ends = itertools.accumulate(tests[name] for name in ordered)
    return [name for name, end in zip(ordered, ends, strict=True) if end <= MOST_SECONDS] or ordered[:1]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
