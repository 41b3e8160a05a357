"""Builds an image: a base with Debian's Python and the locked packages (see base), and our wheel on it.

Two builds from the same sources, lock and apt sources give the same bytes, thus one digest.
"""

import hashlib
import platform
import re
import shutil
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from hack.images.archive import Image, ImageSettings, layer_of, write
from hack.images.base import SITE, compile_modules, drop_unused, make_base, pip
from hack.images.lock import LOCK, ROOT, BuildError
from hack.images.progress import time_left
from hack.images.targets import Target

USER: Final = "65532:65532"
ENVIRONMENT: Final = {"PATH": "/usr/bin", "PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": "1"}

PROJECT: Final = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
"""What pyproject.toml says of topogate."""

_OURS: Final = ("pyproject.toml", "README.md", "LICENSE", "NOTICE", "labeler", "webhook")
_SCRIPT: Final = """#!/usr/bin/python3 -I
import sys
from {module} import {function}
sys.exit({function}())
"""


def sources() -> list[Path]:
    """What our wheel is made of."""
    return [ROOT / name for name in _OURS]


def digest_of_sources() -> str:
    """What decides an image's contents in this repository; the machine's Debian packages are not in it."""
    digest = hashlib.sha256(platform.machine().encode())
    ours = [ROOT / name for name in _OURS if name != "README.md"]  # which is in no image, but in the wheel
    folders = [*ours, LOCK, Path(__file__).parent]
    for folder in folders:
        for path in sorted(folder.rglob("*")) if folder.is_dir() else [folder]:
            if path.is_file() and "__pycache__" not in path.parts:
                digest.update(str(path.relative_to(ROOT)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


def build(
    target: Target, archive: Path, name: str, bases: Path | None = None, ours: Path | None = None
) -> Image:
    """Build the image `name` into an archive. Raises BuildError, debian.BaseError.

    bases: a folder that keeps what our sources do not decide; ours: where our wheel was unpacked. They save
    time, and change no byte.
    """
    with tempfile.TemporaryDirectory(prefix="topogate-image-") as folder:
        work = Path(folder)
        root = work / "root"
        make_root(target, root, work, bases, ours)
        layer = work / "layer.tar"
        layer_of(root, layer)
        settings = ImageSettings(USER, ENVIRONMENT, labels=labels_of(target))
        return write(archive, name, layer, settings, platform.machine())


def labels_of(target: Target) -> dict[str, str]:
    """What an image says of itself; the Containerfile says the same."""
    return {
        "org.opencontainers.image.title": target.name,
        "org.opencontainers.image.version": PROJECT["version"],
        "org.opencontainers.image.licenses": PROJECT["license"],
    }


def announced(targets: Mapping[str, Target]) -> Iterator[tuple[str, Target]]:
    """The targets one by one; before each, standard error says which it is and how long is left."""
    began = time.monotonic()
    for number, (name, target) in enumerate(targets.items()):
        left = time_left(number, len(targets), time.monotonic() - began)
        print(f"  ... image {name}, {number + 1} of {len(targets)}{left}", file=sys.stderr, flush=True)
        yield name, target


def check_version(version: str) -> None:
    """Raises BuildError if an image that is labelled with `version` would be of another one."""
    if version != PROJECT["version"]:
        raise BuildError(
            f"the image's version is to be {version!r}, and pyproject.toml's is {PROJECT['version']}: "
            f"build with --build-arg VERSION={PROJECT['version']}"
        )


def make_root(
    target: Target, root: Path, work: Path, bases: Path | None = None, ours: Path | None = None
) -> None:
    """Make the image's file system in `root`. Raises BuildError, debian.BaseError. See build."""
    make_base(target, root, work, bases)
    ours = ours or unpack_wheel(work)
    site = root / SITE
    for name in target.packages:
        shutil.copytree(ours / name, site / name)
    compile_modules(root, [site / name for name in target.packages])
    (information,) = ours.glob("topogate-*.dist-info")
    _copy_metadata(information, site / information.name)
    scripts = (information / "entry_points.txt").read_text()
    for name, module, function in re.findall(r"^(\S+) = ([\w.]+):(\w+)", scripts, re.MULTILINE):
        if module.partition(".")[0] in target.packages:
            program = root / "usr/bin" / name
            program.write_text(_SCRIPT.format(module=module, function=function))
            program.chmod(0o755)


def _copy_metadata(information: Path, there: Path) -> None:
    """Name, version and licences, as Python finds them; the README that is in them stays away."""
    there.mkdir()
    fields = (information / "METADATA").read_text().partition("\n\n")[0]
    (there / "METADATA").write_text(f"{fields}\n")
    shutil.copytree(information / "licenses", there / "licenses")


def make_wheel(work: Path) -> Path:
    """Build our wheel in a folder below `work`. Raises BuildError."""
    # A copy: a build in place would leave files, and take up those of earlier ones.
    sources = work / "sources"
    sources.mkdir()
    for name in _OURS:
        path = ROOT / name
        if path.is_dir():
            shutil.copytree(path, sources / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(path, sources / name)
    pip("wheel", "--no-deps", f"--wheel-dir={work / 'wheel'}", str(sources))
    (wheel,) = (work / "wheel").glob("topogate-*.whl")
    return wheel


def unpack_wheel(work: Path) -> Path:
    """Build our wheel and unpack it below `work`, without what is not needed. Raises BuildError."""
    ours = work / "ours"
    pip("install", "--no-deps", "--no-compile", f"--target={ours}", str(make_wheel(work)))
    drop_unused(ours)
    return ours
