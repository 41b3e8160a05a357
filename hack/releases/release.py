"""hack/release: everything that a release page needs, in build/release/VERSION.

The same sources give the same bytes. Files are made in a folder beside it, and moved there when all are done.
So a run that ends early leaves no half of a release.

Images are made for the architecture of the machine that runs this. Run it again on a machine of another
architecture with --images, and copy its files beside the others; then run it with --checksums.
"""

import argparse
import gzip
import hashlib
import io
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Final

from hack.images import build
from hack.images.archive import EPOCH
from hack.images.base import SBOM_PATH
from hack.images.debian import BaseError
from hack.images.lock import BuildError
from hack.images.targets import TARGETS
from hack.local.build import ROOT, NoControlPlaneError, announce
from hack.promises import table
from hack.releases.chart import CHART
from hack.releases.overlays import rendered_text

CHECKSUMS: Final = "SHA256SUMS"
_OUTPUT: Final = ROOT / "build" / "release"
_ARCHITECTURES: Final = {"x86_64": "amd64", "aarch64": "arm64"}
_HEAD: Final = """# topogate {version}. Name your registry, where you have pushed the images:
#   sed 's|"" # REGISTRY/|YOUR-REGISTRY/|' install.yaml | kubectl apply --server-side -f -
# Until then the API server refuses the programs, which have no image.
"""


class ReleaseError(Exception):
    """The release cannot be made; the message says why, and what to do."""


def main(argv: list[str] | None = None) -> int:
    """Make a release; returns the exit status."""
    arguments = parser().parse_args(argv)
    folder = arguments.output / arguments.version
    try:
        check(arguments.version)
        if not arguments.checksums:
            make(arguments.version, folder, images_only=arguments.images)
        if arguments.images:
            return 0  # the checksums follow once these files are beside the others
        write_checksums(folder, arguments.version)
    except (ReleaseError, BaseError, BuildError, NoControlPlaneError, OSError) as error:
        print(f"hack/release: {error}", file=sys.stderr)
        return 1
    except subprocess.CalledProcessError as error:
        print(f"hack/release: {error.cmd[0]} failed: {error.stderr}", file=sys.stderr)
        return 1
    print((folder / CHECKSUMS).read_text(), end="")
    return 0


def check(version: str) -> None:
    """Raises ReleaseError if a version is not the one that the sources are of."""
    wanted = f"v{build.PROJECT['version']}"
    if version != wanted:
        raise ReleaseError(
            f"{version} is to be released, and pyproject.toml is of {wanted}. "
            "Change `version` there, or release that."
        )
    notes(version)


def notes(version: str) -> str:
    """What CHANGELOG.md says of a version. Raises ReleaseError if there is no dated entry."""
    text = (ROOT / "CHANGELOG.md").read_text()
    found = re.search(
        rf"^## {re.escape(version)}, \d{{4}}-\d\d-\d\d\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL
    )
    if not found:
        raise ReleaseError(
            f"CHANGELOG.md has no entry `## {version}, YYYY-MM-DD`. "
            "Date the block `Unreleased`, and begin a new one."
        )
    return found[1].strip() + "\n"


def make(version: str, folder: Path, images_only: bool) -> None:
    """Make the files of a release, and move them into its folder. Raises as make_files and make_images do."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}-") as work:
        if not images_only:
            make_files(version, Path(work))
        make_images(version, Path(work))
        (folder / CHECKSUMS).unlink(missing_ok=True)  # they vouch for nothing while files are moved
        for path in Path(work).iterdir():
            path.replace(folder / path.name)


def make_files(version: str, folder: Path) -> None:
    """Everything but the images. Raises ReleaseError, BuildError, NoControlPlaneError, CalledProcessError."""
    with tempfile.TemporaryDirectory(prefix="topogate-release-") as work:
        wheel = build.make_wheel(Path(work))
        shutil.copyfile(wheel, folder / wheel.name)
    (folder / "install.yaml").write_text(install_file(version))
    (folder / f"topogate-chart-{version}.tgz").write_bytes(chart_archive())
    (folder / "notes.md").write_text(notes(version))
    (folder / "promises.md").write_text(table(version))


def install_file(version: str) -> str:
    """The default overlay as one file, with images that are to be named yet."""
    text = rendered_text("overlays/default")
    named = re.sub(r"(image:) (topogate\S*)$", rf'\1 "" # REGISTRY/\2:{version}', text, flags=re.MULTILINE)
    return _HEAD.format(version=version) + named


def chart_archive() -> bytes:
    """The chart as `helm package` packs it, but for times and owners: those would differ each time."""
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path in sorted(each for each in CHART.rglob("*") if each.is_file()):
            entry = tarfile.TarInfo(f"topogate/{path.relative_to(CHART)}")
            entry.size, entry.mtime, entry.mode = path.stat().st_size, EPOCH, 0o644
            with path.open("rb") as content:
                archive.addfile(entry, content)
    return gzip.compress(plain.getvalue(), mtime=0)


def make_images(version: str, folder: Path) -> None:
    """The images of this machine's architecture, with lists of contents. Raises BuildError, BaseError."""
    architecture = _ARCHITECTURES.get(platform.machine(), platform.machine())
    with tempfile.TemporaryDirectory(prefix="topogate-release-") as work:
        ours = build.unpack_wheel(Path(work))
        for name, target in TARGETS.items():
            announce(f"Building {name} for {architecture} ...")
            archive = folder / f"{name}-{version}-{architecture}.tar"
            build.build(target, archive, f"{name}:{version}", ours=ours)
            (folder / f"{name}-{version}-{architecture}.cdx.json").write_bytes(contents_of(archive))


def contents_of(archive: Path) -> bytes:
    """The list of an image's contents, which is in its layer. Raises ReleaseError if it has none."""
    with tarfile.open(archive) as image:
        layer = max(image.getmembers(), key=lambda each: each.size)
        found = image.extractfile(layer)
        with tarfile.open(fileobj=found) as files:
            listed = files.extractfile(SBOM_PATH) if SBOM_PATH in files.getnames() else None
            if listed is None:
                raise ReleaseError(
                    f"{archive.name} has no {SBOM_PATH}; build the image again by hack/image build"
                )
            return listed.read()


def faults(folder: Path, version: str) -> list[str]:
    """What keeps a folder from being a release: files that are missing, torn, or of something else."""
    there = {path.name for path in folder.iterdir()} - {CHECKSUMS}
    images = {
        f"{name}-{version}-{architecture}"
        for architecture in _ARCHITECTURES.values()
        if any(each.endswith(f"-{version}-{architecture}.tar") for each in there)
        for name in TARGETS
    }
    if not images:
        architecture = _ARCHITECTURES.get(platform.machine(), platform.machine())
        images = {f"{name}-{version}-{architecture}" for name in TARGETS}
    chart, wheel = f"topogate-chart-{version}.tgz", f"topogate-{version.removeprefix('v')}-py3-none-any.whl"
    wanted = {chart, wheel, "install.yaml", "notes.md", "promises.md"}
    wanted |= {f"{image}{end}" for image in images for end in (".tar", ".cdx.json")}
    found = [f"{name} is missing" for name in sorted(wanted - there)]
    found += [f"{name} is no file of {version}" for name in sorted(there - wanted)]
    found += [f"{name} is empty" for name in sorted(wanted & there) if not (folder / name).stat().st_size]
    found += [f"{name} is not the file that {CHECKSUMS} is of" for name in sorted(_changed(folder))]
    return found or [f"{image}.tar is torn" for image in sorted(images) if not _is_whole(folder, image)]


def _changed(folder: Path) -> set[str]:
    """The files that are not what the checksums of the run that made them say."""
    sums = folder / CHECKSUMS
    lines = (line.partition("  ") for line in sums.read_text().splitlines()) if sums.exists() else ()
    there = ((folder / name, digest) for digest, _, name in lines if (folder / name).exists())
    return {path.name for path, digest in there if _digest(path) != digest}


def _digest(path: Path) -> str:
    with path.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def _is_whole(folder: Path, image: str) -> bool:
    """Whether an image can be read, and lists what the file beside it lists."""
    try:
        return contents_of(folder / f"{image}.tar") == (folder / f"{image}.cdx.json").read_bytes()
    except (tarfile.TarError, EOFError, ReleaseError):
        return False


def write_checksums(folder: Path, version: str) -> None:
    """SHA256SUMS of a release, as `sha256sum --check` reads it. Raises ReleaseError if that is not whole."""
    found = faults(folder, version) if folder.is_dir() else ["there is no such folder"]
    if found:
        raise ReleaseError(
            f"{folder} gets no checksums: {'; '.join(found)}. Make the release again, without --checksums."
        )
    lines = []
    for path in sorted(each for each in folder.iterdir() if each.name != CHECKSUMS):
        lines.append(f"{_digest(path)}  {path.name}\n")
    (folder / CHECKSUMS).write_text("".join(lines))


def parser() -> argparse.ArgumentParser:
    """The command line of hack/release."""
    parser = argparse.ArgumentParser(prog="hack/release", description=__doc__)
    parser.add_argument("version", metavar="vX.Y.Z")
    parser.add_argument("--output", type=Path, default=_OUTPUT, metavar="FOLDER")
    only = parser.add_mutually_exclusive_group()
    only.add_argument("--images", action="store_true", help="only the images, of this machine's architecture")
    only.add_argument("--checksums", action="store_true", help="only the checksums, of what is there")
    return parser


if __name__ == "__main__":
    sys.exit(main())
