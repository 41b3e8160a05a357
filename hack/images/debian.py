"""The image's base: a few Debian packages unpacked, without package manager, shell or documentation.

They come from the machine's own apt sources, so their versions are what this machine would install.
Nothing of them is run but the loader's cache and the Python that compiles the modules.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

# Needed by dpkg's rules and not by a program that is only run: what configures packages, edits lines,
# keeps databases or speaks to directory services. The modules of Python that want them go as well.
_NOT_NEEDED: Final = re.compile(
    r"(perl|libperl|debconf|cdebconf|dpkg|install-info|tar|mailcap|media-types|mime-support|readline-common"
    r"|gcc-\d+-base|libtirpc-common|libreadline|libncurses|libtinfo|libdb5|libgdbm|libsqlite|libnsl|libtirpc"
    r"|libkrb5|libk5crypto|libgssapi|libcom-err|libkeyutils|libcrypt1|libacl|libselinux|libpcre|libzstd|libmd0"
    r"|libnewt|libslang|libtextwrap|libdebian-installer)"
)
_LINKS: Final = ("bin", "sbin", "lib", "lib64")

# Of what is unpacked, as far from the image's purpose as the packages above. Licences stay.
_DROPPED: Final = (
    "usr/share/man", "usr/share/locale", "usr/share/lintian", "usr/share/bug", "usr/share/binfmts",
    "usr/share/python3", "usr/share/applications", "usr/share/pixmaps", "usr/share/gdb", "usr/lib/valgrind",
    "usr/lib/*/gconv", "usr/lib/*/audit", "etc/ld.so.conf.d/fakeroot*", "var", "etc/alternatives",
    *(
        f"usr/lib/python3.*/{name}"
        for name in ("lib2to3", "pydoc_data", "ensurepip", "idlelib", "turtledemo", "distutils", "test",
                     "tkinter", "turtle.py", "sqlite3", "curses", "dbm", "LICENSE.txt", "__phello__")
    ),
)  # fmt: skip


class BaseError(Exception):
    """The base cannot be made here; the message says what is missing."""


@dataclass(frozen=True)
class Package:
    """A Debian package of the base, as apt knows it."""

    name: str
    version: str
    architecture: str
    sha256: str


def closure(more: Iterable[str] = ()) -> list[str]:
    """The packages that a base is made of: Python with libudev, `more`, and what they depend on.

    Raises BaseError.
    """
    if not all(shutil.which(tool) for tool in ("apt-get", "apt-cache", "dpkg-deb")):
        raise BaseError(
            "the image's base is made of Debian packages, so it is built on Debian or Ubuntu; "
            "elsewhere build hack/images/Containerfile"
        )
    python = _python_package()
    names = _depended_on([f"{python}-minimal", f"lib{python}-stdlib", "libudev1", *more])
    return [*names, "base-files", "libc-bin"]


def versions(names: list[str]) -> str:
    """The files of packages as apt would fetch them now, with their digests. Raises BaseError."""
    output = _apt("apt-get", "-qq", "download", "--print-uris", *names)
    return "\n".join(sorted(line.partition("' ")[2] for line in output.splitlines()))


def unpack(root: Path, scratch: Path, names: list[str]) -> list[Package]:
    """Unpack packages (see closure) as a base in `root`; returns them. Raises BaseError."""
    for link in _LINKS:
        (root / "usr" / link).mkdir(parents=True, exist_ok=True)
        (root / link).symlink_to(f"usr/{link}")
    packages = []
    for archive in _download(names, scratch):
        packages.append(_described(archive))
        wanted = {"base-files": "./usr/lib/os-release", "libc-bin": "./sbin/ldconfig"}.get(packages[-1].name)
        _extract(archive, root, wanted)
    for pattern in _DROPPED:
        for path in root.glob(pattern):
            remove(path)
    for path in (root / "usr/share/doc").glob("*/*"):
        if path.name != "copyright":
            remove(path)
    _write_identity(root, packages)
    (root / "usr/bin/python3").symlink_to(_python_package())
    return sorted(packages, key=lambda each: each.name)


def run_within(root: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Run a program of the image in it; without root, under a user namespace."""
    enter = ["chroot", str(root)]
    if os.geteuid() != 0:
        enter = ["unshare", "--user", "--map-root-user", *enter]
    return subprocess.run([*enter, *command], capture_output=True, text=True, check=False)


def _python_package() -> str:
    found = re.search(r"Depends: (python3\.\d+)-minimal", _apt("apt-cache", "depends", "python3-minimal"))
    if not found:
        raise BaseError("apt knows no python3-minimal: run apt-get update first")
    return found[1]


def _depended_on(names: list[str]) -> list[str]:
    no = ("recommends", "suggests", "conflicts", "breaks", "replaces", "enhances")
    flags = [f"--no-{each}" for each in no]
    output = _apt("apt-cache", "depends", "--recurse", *flags, *names)
    found = set(re.findall(r"^[a-z0-9][a-z0-9.+-]*$", output, re.MULTILINE))
    return sorted(name for name in found if not _NOT_NEEDED.match(name))


def _download(names: list[str], scratch: Path) -> list[Path]:
    scratch.mkdir(parents=True, exist_ok=True)
    # apt's own downloader may not enter folders of others.
    _apt("apt-get", "-o", "APT::Sandbox::User=root", "-qq", "download", *names, folder=scratch)
    return sorted(scratch.glob("*.deb"))


def _described(archive: Path) -> Package:
    fields = _apt("dpkg-deb", "--show", "--showformat=${Package} ${Version} ${Architecture}", str(archive))
    digest = _apt("sha256sum", str(archive)).split()[0]
    name, version, architecture = fields.split()
    return Package(name, version, architecture, digest)


def _extract(archive: Path, root: Path, only: str | None) -> None:
    """Unpack a package, through the links that join /lib and /usr/lib, or one file of it."""
    unpacked = subprocess.Popen(["dpkg-deb", "--fsys-tarfile", str(archive)], stdout=subprocess.PIPE)
    command = [
        "tar",
        "-x",
        "--keep-directory-symlink",
        "--no-same-owner",
        "-C",
        str(root),
        *([only] if only else []),
    ]
    status = subprocess.run(command, stdin=unpacked.stdout, check=False).returncode
    unpacked.communicate()
    if status:
        raise BaseError(f"{archive.name} could not be unpacked")


def _write_identity(root: Path, packages: list[Package]) -> None:
    """What names users, and what names the packages to scanners."""
    etc = root / "etc"
    etc.mkdir(exist_ok=True)
    (etc / "passwd").write_text("root:x:0:0::/:/none\ntopogate:x:65532:65532::/:/none\n")
    (etc / "group").write_text("root:x:0:\ntopogate:x:65532:\n")
    (etc / "nsswitch.conf").write_text("hosts: files dns\n")
    if not (etc / "os-release").exists():
        (etc / "os-release").symlink_to("../usr/lib/os-release")
    status = root / "var/lib/dpkg/status.d"
    status.mkdir(parents=True)
    for each in packages:
        (status / each.name).write_text(
            f"Package: {each.name}\nStatus: install ok installed\nArchitecture: {each.architecture}\n"
            f"Version: {each.version}\n"
        )
    for folder in ("dev", "proc", "sys", "run", "tmp"):
        (root / folder).mkdir(exist_ok=True)


def remove(path: Path) -> None:
    """Remove a file, a link or a whole folder; one that is gone with its parent is fine."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _apt(*command: str, folder: Path | None = None) -> str:
    result = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
    if result.returncode:
        raise BaseError(f"{' '.join(command)[:120]} failed: {result.stderr.strip()[-500:]}")
    return result.stdout
