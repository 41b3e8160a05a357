"""The part of an image that our sources do not decide: Debian's Python and the locked packages, ready to run.

Kept in a folder, it saves most of the time of the next build. A build without that makes the same bytes.
"""

import hashlib
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from hack.images import debian, sbom
from hack.images.archive import EPOCH
from hack.images.lock import LOCK, BuildError, Locked, read_lock
from hack.images.targets import DROPPED, Target

SBOM_PATH: Final = "usr/share/topogate/sbom.cdx.json"
SITE: Final = "usr/lib/python3/dist-packages"
"""Where Python finds distributions."""

MOST_BASES: Final = 6
"""Bases in a cache: those of each target, for two states of the lock."""


def make_base(target: Target, root: Path, work: Path, cache: Path | None = None) -> None:
    """Make the base of a target's image in `root`. Raises BuildError, debian.BaseError.

    kept: a folder of bases that were made before, which takes this one as well.
    """
    names = debian.closure(target.debian)
    digest = _digest(target, debian.versions(names))
    found = None if cache is None else cache / f"{target.name}-{digest}"
    if found is None or not found.exists():
        _make(target, names, root, work)
        if cache is not None and found is not None:
            partial = cache / f"partial-{os.getpid()}"
            _copy(root, partial)
            partial.rename(found)
    else:
        _copy(found, root)
    if cache is not None and found is not None:
        os.utime(found)
        _prune(cache)


def _digest(target: Target, versions: str) -> str:
    digest = hashlib.sha256(f"{platform.machine()} {target} {versions}".encode() + LOCK.read_bytes())
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


def _copy(source: Path, root: Path) -> None:
    shutil.copytree(source, root, symlinks=True, dirs_exist_ok=True)


def _prune(cache: Path) -> None:
    """Remove all but those used last."""
    found = sorted(cache.iterdir(), key=lambda each: each.stat().st_mtime)
    for folder in found[:-MOST_BASES]:
        shutil.rmtree(folder)


def _make(target: Target, names: list[str], root: Path, work: Path) -> None:
    root.mkdir(parents=True, exist_ok=True)
    packages = debian.unpack(root, work / "debian", names)
    (interpreter,) = (path.name for path in root.glob("usr/bin/python3.*"))
    site = root / SITE
    version = interpreter.removeprefix("python")
    lock = read_lock(LOCK.read_text(), version)
    if missing := [each for each in target.distributions if each not in lock]:
        raise BuildError(
            f"{LOCK.name} lacks {', '.join(missing)}, which hack/images/targets.py names; run hack/lock"
        )
    chosen = [lock[each] for each in target.distributions]
    _install(chosen, site, version, work)
    drop_unused(site)
    _drop_what_does_not_load(root, interpreter)
    compile_modules(root, [site, *root.glob("usr/lib/python3.*")])
    bill = root / SBOM_PATH
    bill.parent.mkdir(parents=True, exist_ok=True)
    bill.write_text(sbom.describe(target.name, packages, chosen))


def drop_unused(folder: Path) -> None:
    """Remove the parts of distributions that nothing imports."""
    for pattern in DROPPED:
        for path in sorted(folder.glob(pattern)):
            debian.remove(path)


def _install(chosen: list[Locked], site: Path, version: str, work: Path) -> None:
    """Install locked distributions for the image's Python, which need not be the one that runs this."""
    wanted = work / "wanted.txt"
    wanted.write_text("\n".join(each.line for each in chosen))
    machine = platform.machine()
    platforms = [f"manylinux_2_{minor}_{machine}" for minor in (36, 34, 31, 28, 27, 17)] + [
        f"manylinux2014_{machine}"
    ]
    pip(
        "install", "--no-deps", "--no-compile", "--require-hashes", "--only-binary=:all:",
        f"--python-version={version}", "--implementation=cp", *(f"--platform={each}" for each in platforms),
        f"--target={site}", f"--requirement={wanted}",
    )  # fmt: skip


def _drop_what_does_not_load(root: Path, interpreter: str) -> None:
    """Make the loader's cache, and remove the standard library's modules whose C libraries are not here."""
    made = debian.run_within(root, "/sbin/ldconfig")
    if made.returncode:
        raise BuildError(f"ldconfig failed in the image: {made.stderr.strip()[-300:]}")
    shutil.rmtree(root / "var/cache", ignore_errors=True)
    modules = sorted((root / "usr/lib" / interpreter / "lib-dynload").glob("*.so"))
    program = (
        "import importlib, sys\n"
        "for name in sys.argv[1:]:\n"
        "    try: importlib.import_module(name)\n"
        "    except ImportError: print(name)\n"
    )
    names = {path.name.partition(".")[0]: path for path in modules}
    output = debian.run_within(root, "/usr/bin/python3", "-I", "-B", "-c", program, *names)
    if output.returncode:
        raise BuildError(f"the image's Python does not run: {output.stderr.strip()[-500:]}")
    for name in output.stdout.split():
        names[name].unlink()


def compile_modules(root: Path, folders: Iterable[Path]) -> None:
    """Compile the modules of folders in `root`: an image is read-only, so every start would do it again."""
    output = debian.run_within(
        root,
        "/usr/bin/python3",
        "-I",
        "-m",
        "compileall",
        "-q",
        "--invalidation-mode=unchecked-hash",
        *(f"/{path.relative_to(root)}" for path in folders),
    )
    if output.returncode:
        raise BuildError(f"modules of the image do not compile: {(output.stdout + output.stderr)[-500:]}")


def pip(*arguments: str) -> None:
    """Run pip, to results that do not depend on the time. Raises BuildError."""
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(EPOCH), "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    command = [sys.executable, "-m", "pip", "--quiet", *arguments]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if result.returncode:
        raise BuildError(f"pip {arguments[0]} failed: {result.stderr.strip()[-1500:]}")
