"""An image's archive: the same files are the same bytes, and nothing in it that should not be."""

import os
import stat
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from hack.images.archive import Image, ImageSettings, layer_of, write
from hack.images.base import SBOM_PATH
from hack.images.build import USER
from hack.images.scan import scan

BILL = '{"components": [{"name": "libudev1", "version": "252", "purl": "pkg:deb/debian/libudev1@252"}]}'


def fill(root: Path) -> Path:
    (root / "usr/bin").mkdir(parents=True)
    (root / "usr/bin/program").write_text("#!/usr/bin/python3\n")
    (root / "usr/bin/program").chmod(0o755)
    (root / "usr/bin/link").symlink_to("program")
    bill = root / SBOM_PATH
    bill.parent.mkdir(parents=True)
    bill.write_text(BILL)
    return root


def image_of(root: Path, folder: Path, user: str = USER) -> Image:
    layer = folder / "layer.tar"
    layer_of(root, layer)
    return write(folder / "image.tar", "example.com/program:1", layer, ImageSettings(user), "x86_64")


def test_the_same_files_are_the_same_bytes_whenever_and_by_whomever_they_were_made(tmp_path: Path) -> None:
    made = []
    for name in ("first", "second"):
        folder = tmp_path / name
        root = fill(folder / "root")
        if name == "second":
            os.utime(root / "usr/bin/program", (1, 1))
            (root / "usr/bin").chmod(0o777)
        made.append(image_of(root, folder))
    first, second = made
    assert first.digest == second.digest
    assert first.archive.read_bytes() == second.archive.read_bytes()


def test_another_byte_is_another_digest(tmp_path: Path) -> None:
    root = fill(tmp_path / "root")
    before = image_of(root, tmp_path).digest
    (root / "usr/bin/program").write_text("#!/usr/bin/python3 -I\n")
    assert image_of(root, tmp_path).digest != before


def test_a_sound_image_has_no_fault_and_lists_its_parts(tmp_path: Path) -> None:
    image = image_of(fill(tmp_path / "root"), tmp_path)
    report = scan(image.archive)
    assert report.faults == []
    assert (report.name, report.digest) == ("example.com/program:1", image.digest)
    assert report.parts == [("libudev1", "252", "deb")]


def make_shell(root: Path) -> None:
    (root / "usr/bin/bash").write_text("")
    (root / "usr/bin/bash").chmod(0o755)


def make_bill_vanish(root: Path) -> None:
    (root / SBOM_PATH).unlink()


@pytest.mark.promise("S52")
@pytest.mark.parametrize(
    ("spoil", "fault"),
    [
        (make_shell, "/usr/bin/bash is a shell, a compiler or a package manager"),
        (make_bill_vanish, "it has no list of its contents"),
    ],
)
def test_what_must_not_be_there_is_named(tmp_path: Path, spoil: Callable[[Path], None], fault: str) -> None:
    root = fill(tmp_path / "root")
    spoil(root)
    (found,) = scan(image_of(root, tmp_path).archive).faults
    assert fault in found


@pytest.mark.parametrize(
    ("mode", "owner", "fault"),
    [
        (0o666, 0, "can be written to by its user"),
        (0o644, 65532, "can be written to by its user"),
        (stat.S_ISUID | 0o755, 0, "gives its caller another identity"),
        (stat.S_ISGID | 0o755, 0, "gives its caller another identity"),
    ],
)
def test_a_layer_made_elsewhere_is_judged_by_its_modes_and_owners(
    tmp_path: Path, mode: int, owner: int, fault: str
) -> None:
    root = fill(tmp_path / "root")
    (found,) = scan(with_entry(root, tmp_path, mode, owner)).faults
    assert fault in found


def with_entry(root: Path, folder: Path, mode: int, owner: int) -> Path:
    """An image whose layer has one more file, with a mode and an owner that ours never have."""
    layer = folder / "layer.tar"
    layer_of(root, layer)
    with tarfile.open(layer, "a") as content:
        entry = tarfile.TarInfo("usr/bin/odd")
        entry.mode, entry.uid = mode, owner
        content.addfile(entry)
    return write(folder / "image.tar", "x:1", layer, ImageSettings(USER), "x86_64").archive


@pytest.mark.promise("S52")
def test_an_image_that_runs_as_root_is_a_fault(tmp_path: Path) -> None:
    (found,) = scan(image_of(fill(tmp_path / "root"), tmp_path, user="").archive).faults
    assert "it runs as root instead of" in found
