"""hack/image: build topogate's images without a container engine, and look through them."""

import argparse
import sys
import tarfile
import tempfile
import time
from pathlib import Path
from typing import Final

from hack.images import build
from hack.images.debian import BaseError
from hack.images.lock import ROOT, BuildError
from hack.images.scan import Report, scan
from hack.images.targets import TARGETS

_OUTPUT: Final = ROOT / "build" / "images"
_MIB: Final = 1024 * 1024


def main() -> int:
    """Run hack/image; returns the exit status."""
    arguments = parser().parse_args()
    try:
        if arguments.command == "build":
            return _build(arguments)
        if arguments.command == "root":
            build.check_version(arguments.version)
            with tempfile.TemporaryDirectory() as work:
                build.make_root(TARGETS[arguments.target], arguments.output, Path(work))
            return 0
        return max(_scan(archive) for archive in arguments.archives or sorted(_OUTPUT.glob("*.tar")))
    except (BaseError, BuildError, OSError, tarfile.TarError, ValueError) as error:
        print(f"hack/image {arguments.command}: {error}", file=sys.stderr)
        return 1


def _build(arguments: argparse.Namespace) -> int:
    arguments.output.mkdir(parents=True, exist_ok=True)
    wanted = {arguments.target: TARGETS[arguments.target]} if arguments.target else TARGETS
    for name, target in build.announced(wanted):
        started = time.monotonic()
        full = f"{arguments.repository}/{name}:{arguments.tag}"
        image = build.build(target, arguments.output / f"{name}.tar", full)
        took = time.monotonic() - started
        print(f"{full}  {image.digest}  {image.size / _MIB:.0f} MiB  {image.archive}  ({took:.0f} s)")
    return 0


def _scan(archive: Path) -> int:
    report: Report = scan(archive)
    print(f"{report.name}  {report.digest}  {report.size / _MIB:.0f} MiB in {report.files} files")
    for size, folder in report.largest:
        print(f"  {size / _MIB:7.1f} MiB  /{folder}")
    for name, version, kind in report.parts:
        print(f"  {kind:5} {name} {version}")
    for fault in report.faults:
        print(f"FAULT: {fault}")
    if not report.faults:
        print("No file that its user can write to, none that gives another identity, no shell or compiler.")
    return 1 if report.faults else 0


def parser() -> argparse.ArgumentParser:
    """The command line of hack/image."""
    parser = argparse.ArgumentParser(prog="hack/image", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    make = commands.add_parser("build", help="build images into archives (OCI, and for docker load)")
    make.add_argument("--target", choices=TARGETS, help="one of them; all by default")
    make.add_argument("--output", type=Path, default=_OUTPUT, metavar="FOLDER")
    make.add_argument("--repository", default="topogate.local", help="what stands before the image's name")
    make.add_argument("--tag", default="dev")
    root = commands.add_parser("root", help="make an image's file system in a folder (for the Containerfile)")
    root.add_argument("--target", choices=TARGETS, required=True)
    root.add_argument("--version", required=True, help="that of the image's label; must be pyproject.toml's")
    root.add_argument("--output", type=Path, required=True, metavar="FOLDER")
    look = commands.add_parser("scan", help="look through images for what must not be there")
    look.add_argument("archives", nargs="*", type=Path, help=f"all in {_OUTPUT.relative_to(ROOT)} by default")
    return parser


if __name__ == "__main__":
    sys.exit(main())
