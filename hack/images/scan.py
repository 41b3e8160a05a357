"""Looks through an image's files for what must not be there. It knows no list of vulnerabilities."""

import json
import re
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

from hack.images.base import SBOM_PATH
from hack.images.build import USER

_UID, _GID = (int(part) for part in USER.split(":"))
_TOOLS: Final = re.compile(
    r"(|.*/)(gcc|g\+\+|cc|clang|ld|as|make|go|pip[\d.]*|apt(-get)?|dpkg|sh|bash|dash|busybox|perl)"
)


@dataclass(frozen=True)
class Report:
    """What was found: faults as sentences, sizes in bytes, and the parts as (name, version, kind)."""

    name: str
    digest: str
    size: int
    files: int
    largest: list[tuple[int, str]]
    parts: list[tuple[str, str, str]]
    faults: list[str]


def scan(archive: Path) -> Report:
    """Look through an image's archive. Raises OSError or tarfile.TarError if it is none."""
    with tarfile.open(archive) as image:
        index = json.load(_member(image, "index.json"))["manifests"][0]
        manifest = json.load(_blob(image, index["digest"]))
        config = json.load(_blob(image, manifest["config"]["digest"]))
        faults = []
        if config["config"].get("User") != USER:
            faults.append(f"it runs as {config['config'].get('User') or 'root'} instead of {USER}")
        folders: dict[str, int] = {}
        bill: dict[str, Any] = {"components": []}
        files = size = 0
        for layer in manifest["layers"]:
            with tarfile.open(fileobj=_blob(image, layer["digest"])) as content:
                for entry in content:
                    files += 1
                    size += entry.size
                    faults += _faults(entry)
                    folder = "/".join(entry.name.split("/")[:5])
                    folders[folder] = folders.get(folder, 0) + entry.size
                    if entry.name == SBOM_PATH:
                        bill = json.load(_content(content, entry))
    if not bill["components"]:
        faults.append(f"it has no list of its contents in /{SBOM_PATH}")
    largest = sorted(((size, name) for name, size in folders.items()), reverse=True)[:8]
    parts = [
        (each["name"], each["version"], each["purl"].partition("/")[0].removeprefix("pkg:"))
        for each in bill["components"]
    ]
    name = index["annotations"]["io.containerd.image.name"]
    return Report(name, index["digest"], size, files, largest, parts, faults)


def _faults(entry: tarfile.TarInfo) -> Iterator[str]:
    kind = "folder" if entry.isdir() else "file"
    writable = entry.mode & 0o002 or (entry.uid == _UID and entry.mode & 0o200)
    if not entry.issym() and (writable or (entry.gid == _GID and entry.mode & 0o020)):
        yield f"the {kind} /{entry.name} can be written to by its user (mode {entry.mode:o})"
    if entry.mode & 0o6000:
        yield f"the {kind} /{entry.name} gives its caller another identity (mode {entry.mode:o})"
    if any(key.startswith("SCHILY.xattr.security.capability") for key in entry.pax_headers):
        yield f"the file /{entry.name} gives capabilities to its caller"
    if entry.ischr() or entry.isblk():
        yield f"/{entry.name} is a device"
    if entry.isfile() and entry.mode & 0o111 and _TOOLS.fullmatch(entry.name):
        yield f"/{entry.name} is a shell, a compiler or a package manager"


def _member(image: tarfile.TarFile, name: str) -> IO[bytes]:
    return _content(image, image.getmember(name))


def _blob(image: tarfile.TarFile, digest: str) -> IO[bytes]:
    return _member(image, "blobs/" + digest.replace(":", "/"))


def _content(image: tarfile.TarFile, entry: tarfile.TarInfo) -> IO[bytes]:
    found = image.extractfile(entry)
    if found is None:
        raise tarfile.TarError(f"{entry.name} is no file")
    return found
