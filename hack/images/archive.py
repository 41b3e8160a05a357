"""Writes an image as one archive: an OCI layout that is also what `docker load` reads.

The same files give the same bytes: names are sorted, owners and times are fixed, nothing is compressed
(the tool that pushes the image compresses its layers).
"""

import hashlib
import io
import json
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

EPOCH: Final = 1_700_000_000
"""The time of every file, in seconds: any fixed one will do, but for 0, which some tools take for absent."""

_LAYER: Final = "application/vnd.oci.image.layer.v1.tar"
_CONFIG: Final = "application/vnd.oci.image.config.v1+json"
_MANIFEST: Final = "application/vnd.oci.image.manifest.v1+json"
_INDEX: Final = "application/vnd.oci.image.index.v1+json"
_ARCHITECTURES: Final = {"x86_64": "amd64", "aarch64": "arm64"}


@dataclass(frozen=True)
class Image:
    """An image on disk. digest: of its manifest, which names it everywhere."""

    archive: Path
    name: str
    digest: str
    size: int
    """Bytes of its layers, uncompressed."""


@dataclass(frozen=True)
class ImageSettings:
    """What a container of the image starts with."""

    user: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    command: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)


def layer_of(root: Path, file: Path) -> None:
    """Write a folder as a layer: sorted, owned by root, not writable by others, all of one time."""
    with tarfile.open(file, "w", format=tarfile.PAX_FORMAT) as layer:
        for path in _walk(root):
            layer.add(path, arcname=str(path.relative_to(root)), recursive=False, filter=_plain)


def write(archive: Path, name: str, layer: Path, settings: ImageSettings, machine: str) -> Image:
    """Write the image `name` of one layer. machine: as `uname -m` says it."""
    layer_digest, layer_size = _digest(layer), layer.stat().st_size
    architecture = _ARCHITECTURES.get(machine, machine)
    config = _json(
        {
            "architecture": architecture,
            "os": "linux",
            "created": "2023-11-14T22:13:20Z",
            "config": {
                "User": settings.user,
                "Env": [f"{key}={value}" for key, value in settings.environment.items()],
                "Cmd": list(settings.command) or None,
                "Labels": dict(settings.labels),
                "WorkingDir": "/",
            },
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{layer_digest}"]},
        }
    )
    manifest = _json(
        {
            "schemaVersion": 2,
            "mediaType": _MANIFEST,
            "config": _descriptor(_CONFIG, config),
            "layers": [{"mediaType": _LAYER, "digest": f"sha256:{layer_digest}", "size": layer_size}],
        }
    )
    named = {"io.containerd.image.name": name, "org.opencontainers.image.ref.name": name.rpartition(":")[2]}
    index = {
        "schemaVersion": 2,
        "mediaType": _INDEX,
        "manifests": [_descriptor(_MANIFEST, manifest) | {"annotations": named}],
    }
    # Of docker, before it learned the layout.
    save = [
        {
            "Config": f"blobs/sha256/{_sha(config)}",
            "RepoTags": [name],
            "Layers": [f"blobs/sha256/{layer_digest}"],
        }
    ]
    with tarfile.open(archive, "w", format=tarfile.PAX_FORMAT) as out:
        for path, content in sorted(
            {
                "oci-layout": _json({"imageLayoutVersion": "1.0.0"}),
                "index.json": _json(index),
                "manifest.json": _json(save),
                f"blobs/sha256/{_sha(config)}": config,
                f"blobs/sha256/{_sha(manifest)}": manifest,
            }.items()
        ):
            entry = _entry(path, len(content))
            out.addfile(entry, io.BytesIO(content))
        with layer.open("rb") as content_of_layer:
            out.addfile(_entry(f"blobs/sha256/{layer_digest}", layer_size), content_of_layer)
    return Image(archive, name, f"sha256:{_sha(manifest)}", layer_size)


def _walk(root: Path) -> Iterator[Path]:
    for path in sorted(root.iterdir()):
        yield path
        if path.is_dir() and not path.is_symlink():
            yield from _walk(path)


def _plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    entry.mtime = EPOCH
    if not entry.issym():
        entry.mode &= 0o1777 if entry.isdir() and entry.mode & 0o1000 else 0o755
    return entry


def _entry(path: str, size: int) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(path)
    entry.size, entry.mtime, entry.mode = size, EPOCH, 0o644
    return entry


def _descriptor(kind: str, content: bytes) -> dict[str, Any]:
    return {"mediaType": kind, "digest": f"sha256:{_sha(content)}", "size": len(content)}


def _json(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def _sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _digest(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()
