"""topogate's images for a real node: built once for what stands in the repository, kept in the cache."""

import contextlib
import fcntl
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from hack.images import build
from hack.images.debian import BaseError
from hack.images.lock import BuildError
from hack.images.targets import DRA, TARGETS
from hack.local.build import announce, cache_folder
from hack.local.cluster import Cluster, ClusterError

REPOSITORY: Final = "topogate.local"
TAG: Final = "local"
IN_USE: Final = "lock"
MOST_IMAGES: Final = 3
"""Builds in the cache, each of some 240 MB."""


def name_of(target: str) -> str:
    """How an image is called on the real node."""
    return f"{REPOSITORY}/{target}:{TAG}"


def load(cluster: Cluster) -> None:
    """Make the images known to the real node. Raises ClusterError, and what building them raises."""
    if cluster.real is None:
        raise ClusterError("the cluster has no real node that could take images")
    with archives() as found:
        for archive in found:
            if archive.stem == DRA.name:
                continue  # no manifest names it
            cluster.real.import_image(cluster.namespaces, archive)


@contextlib.contextmanager
def archives() -> Iterator[list[Path]]:
    """The images' archives, built if the repository has changed since; they stay there while in use."""
    with contextlib.ExitStack() as in_use:
        folder = _made(in_use)
        yield [folder / f"{name}.tar" for name in TARGETS]


def _made(in_use: contextlib.ExitStack) -> Path:
    """The folder of the archives, and that nobody removes it until `in_use` ends."""
    top = cache_folder() / "images"
    bases = cache_folder() / "image-bases"
    for each in (top, bases):
        each.mkdir(parents=True, exist_ok=True)
    with (top / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        folder = top / build.digest_of_sources()
        if not folder.exists():
            announce(f"Building topogate's images ({', '.join(TARGETS)}) ...")
            partial = top / "partial"
            shutil.rmtree(partial, ignore_errors=True)  # of a build that was killed
            partial.mkdir()
            with tempfile.TemporaryDirectory(prefix="topogate-wheel-") as work:
                ours = build.unpack_wheel(Path(work))
                for name, target in build.announced(TARGETS):
                    build.build(target, partial / f"{name}.tar", name_of(name), bases, ours)
            partial.rename(folder)
        os.utime(folder)
        fcntl.flock(in_use.enter_context((folder / IN_USE).open("w")), fcntl.LOCK_SH)
        _prune(top)
        return folder


def _prune(top: Path) -> None:
    """Remove images of earlier sources, but for those used last and those that other checkouts load now."""
    found = sorted((each for each in top.iterdir() if each.is_dir()), key=lambda each: each.stat().st_mtime)
    for folder in found[:-MOST_IMAGES]:
        with (folder / IN_USE).open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            shutil.rmtree(folder)


def main() -> int:
    """Build the images ahead of the tests that load them, without the limit of time that a test has.

    Says why if they cannot be built. That fails nothing here: those tests fail by it, or are skipped.
    """
    try:
        with archives():
            pass
    except (BaseError, BuildError) as error:
        announce(f"No images: {error}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
