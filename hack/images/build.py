"""Builds an image: Debian's Python, our wheel, the locked packages, everything that nothing imports left out.

Two builds from the same sources, lock and apt sources give the same bytes, thus one digest.
"""

import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from packaging.markers import Marker

from hack.images import debian, sbom
from hack.images.archive import EPOCH, Image, Settings, layer_of, write
from hack.images.targets import DROPPED, Target

ROOT: Final = Path(__file__).resolve().parents[2]
LOCK: Final = ROOT / "requirements.lock"
USER: Final = "65532:65532"
ENVIRONMENT: Final = {"PATH": "/usr/bin", "PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": "1"}
SBOM_PATH: Final = "usr/share/topogate/sbom.cdx.json"

_OURS: Final = ("pyproject.toml", "README.md", "labeler", "webhook")
_SCRIPT: Final = """#!/usr/bin/python3 -I
import sys
from {module} import {function}
sys.exit({function}())
"""


class BuildError(Exception):
    """The image cannot be built; the message says what to do."""


@dataclass(frozen=True)
class Locked:
    """One line of the lock: a distribution, its version, and the digests of its files."""

    name: str
    version: str
    hashes: tuple[str, ...]

    @property
    def line(self) -> str:
        """As pip reads it."""
        return " ".join([f"{self.name}=={self.version}", *(f"--hash={each}" for each in self.hashes)])


def read_lock(text: str, python: str) -> dict[str, Locked]:
    """What the lock has for a Python such as "3.11", by distribution. Raises BuildError for a bad line."""
    environment = {"python_version": python, "python_full_version": f"{python}.0"}
    found = {}
    for line in text.replace("\\\n", " ").splitlines():
        requirement, *hashes = line.partition(" #")[0].split("--hash=")
        if not requirement.strip() or requirement.startswith(("#", "-")):
            continue
        wanted, _, marker = requirement.partition(";")
        name, _, version = wanted.strip().partition("==")
        if not version or not hashes:
            raise BuildError(f"{LOCK.name}: {wanted!r} has no version or no digest; run hack/lock")
        if not marker or Marker(marker.strip()).evaluate(environment):
            found[name.lower()] = Locked(name, version, tuple(each.strip() for each in hashes))
    return found


def digest_of_sources() -> str:
    """What decides an image's contents in this repository; the machine's Debian packages are not in it."""
    digest = hashlib.sha256(platform.machine().encode())
    folders = [ROOT / name for name in _OURS] + [LOCK, Path(__file__).parent]
    for folder in folders:
        for path in sorted(folder.rglob("*")) if folder.is_dir() else [folder]:
            if path.is_file() and "__pycache__" not in path.parts:
                digest.update(str(path.relative_to(ROOT)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


def build(target: Target, archive: Path, name: str) -> Image:
    """Build the image `name` into an archive. Raises BuildError, debian.BaseError."""
    with tempfile.TemporaryDirectory(prefix="topogate-image-") as folder:
        work = Path(folder)
        root = work / "root"
        make_root(target, root, work)
        layer = work / "layer.tar"
        layer_of(root, layer)
        labels = {
            "org.opencontainers.image.title": target.name,
            "org.opencontainers.image.licenses": "see /usr/share/doc/*/copyright",
        }
        settings = Settings(USER, ENVIRONMENT, labels=labels)
        return write(archive, name, layer, settings, platform.machine())


def make_root(target: Target, root: Path, work: Path) -> None:
    """Make the image's file system in `root`. Raises BuildError, debian.BaseError."""
    root.mkdir(parents=True, exist_ok=True)
    packages = debian.unpack(root, work / "debian", target.debian)
    (interpreter,) = (path.name for path in root.glob("usr/bin/python3.*"))
    site = root / "usr/lib/python3/dist-packages"
    version = interpreter.removeprefix("python")
    lock = read_lock(LOCK.read_text(), version)
    if missing := [each for each in target.distributions if each not in lock]:
        raise BuildError(
            f"{LOCK.name} lacks {', '.join(missing)}, which hack/images/targets.py names; run hack/lock"
        )
    chosen = [lock[each] for each in target.distributions]
    _install(chosen, site, version, work)
    _install_ours(target, site, root / "usr/bin", work)
    for pattern in DROPPED:
        for path in sorted(site.glob(pattern)):
            debian.remove(path)
    _drop_what_does_not_load(root, interpreter)
    _compile(root)
    bill = root / SBOM_PATH
    bill.parent.mkdir(parents=True, exist_ok=True)
    bill.write_text(sbom.describe(target.name, packages, chosen))


def _install(chosen: list[Locked], site: Path, version: str, work: Path) -> None:
    """Install locked distributions for the image's Python, which need not be the one that runs this."""
    wanted = work / "wanted.txt"
    wanted.write_text("\n".join(each.line for each in chosen))
    machine = platform.machine()
    platforms = [f"manylinux_2_{minor}_{machine}" for minor in (36, 34, 31, 28, 27, 17)] + [
        f"manylinux2014_{machine}"
    ]
    _pip(
        "install", "--no-deps", "--no-compile", "--require-hashes", "--only-binary=:all:",
        f"--python-version={version}", "--implementation=cp", *(f"--platform={each}" for each in platforms),
        f"--target={site}", f"--requirement={wanted}",
    )  # fmt: skip


def _install_ours(target: Target, site: Path, programs: Path, work: Path) -> None:
    """Install our wheel, of it the packages and the programs of this target."""
    sources = (
        work / "sources"
    )  # a copy: a build in place would leave files, and take up those of earlier ones
    sources.mkdir()
    for name in _OURS:
        path = ROOT / name
        if path.is_dir():
            shutil.copytree(path, sources / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(path, sources / name)
    _pip("wheel", "--no-deps", f"--wheel-dir={work / 'wheel'}", str(sources))
    (wheel,) = (work / "wheel").glob("topogate-*.whl")
    ours = work / "ours"
    _pip("install", "--no-deps", "--no-compile", f"--target={ours}", str(wheel))
    for name in target.packages:
        shutil.copytree(ours / name, site / name)
    (information,) = ours.glob("topogate-*.dist-info")
    scripts = (information / "entry_points.txt").read_text()
    for name, module, function in re.findall(r"^(\S+) = ([\w.]+):(\w+)", scripts, re.MULTILINE):
        if module.partition(".")[0] in target.packages:
            (programs / name).write_text(_SCRIPT.format(module=module, function=function))
            (programs / name).chmod(0o755)


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
    said = debian.run_within(root, "/usr/bin/python3", "-I", "-B", "-c", program, *names)
    if said.returncode:
        raise BuildError(f"the image's Python does not run: {said.stderr.strip()[-500:]}")
    for name in said.stdout.split():
        names[name].unlink()


def _compile(root: Path) -> None:
    """Compile all modules: the image is read-only, so every start would compile them again."""
    folders = [
        "/usr/lib/python3/dist-packages",
        *(f"/usr/lib/{path.name}" for path in root.glob("usr/lib/python3.*")),
    ]
    said = debian.run_within(
        root,
        "/usr/bin/python3",
        "-I",
        "-m",
        "compileall",
        "-q",
        "--invalidation-mode=unchecked-hash",
        *folders,
    )
    if said.returncode:
        raise BuildError(f"modules of the image do not compile: {(said.stdout + said.stderr)[-500:]}")


def _pip(*arguments: str) -> None:
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(EPOCH), "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    command = [sys.executable, "-m", "pip", "--quiet", *arguments]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if result.returncode:
        raise BuildError(f"pip {arguments[0]} failed: {result.stderr.strip()[-1500:]}")
