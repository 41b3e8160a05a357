"""The images that are built here: two builds are one digest, and nothing is in them that should not be."""

import json
import tarfile
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import IO

import pytest

from hack.images import build as build_module
from hack.images.base import SITE
from hack.images.build import PROJECT, build
from hack.images.debian import BaseError
from hack.images.lock import ROOT
from hack.images.scan import scan
from hack.images.targets import LABELER, TARGETS
from hack.local import images


@pytest.fixture(scope="module")
def archives() -> Iterator[list[Path]]:
    try:
        with images.archives() as found:
            yield found
    except BaseError as error:
        pytest.skip(str(error))


@pytest.mark.promise("O1")
@pytest.mark.when_changed("hack/images", "pyproject.toml", "requirements.lock")
def test_two_builds_of_the_same_sources_are_one_digest(archives: list[Path], tmp_path: Path) -> None:
    again = build(LABELER, tmp_path / "again.tar", images.name_of(LABELER.name))
    (earlier,) = (path for path in archives if path.stem == LABELER.name)
    assert scan(earlier).digest == again.digest
    assert earlier.read_bytes() == again.archive.read_bytes()


@pytest.mark.promise("O1", "S52")
def test_no_image_has_a_fault_and_each_lists_what_it_holds(archives: list[Path]) -> None:
    for archive in archives:
        report = scan(archive)
        assert report.faults == []
        assert {kind for _, _, kind in report.parts} == {"deb", "pypi"}


def described(archive: Path) -> tuple[dict[str, str], dict[str, str]]:
    """What an image says of itself: its labels, and the files of topogate's metadata by their names there."""
    with tarfile.open(archive) as image:

        def blob(digest: str) -> IO[bytes]:
            found = image.extractfile("blobs/" + digest.replace(":", "/"))
            assert found is not None
            return found

        index = image.extractfile("index.json")
        assert index is not None
        manifest = json.load(blob(json.load(index)["manifests"][0]["digest"]))
        labels = json.load(blob(manifest["config"]["digest"]))["config"]["Labels"]
        files = {}
        with tarfile.open(fileobj=blob(manifest["layers"][0]["digest"])) as layer:
            for entry in layer:
                _, found, name = entry.name.partition(f"{SITE}/topogate-{PROJECT['version']}.dist-info/")
                if found and (content := layer.extractfile(entry)) is not None:
                    files[name] = content.read().decode()
    return labels, files


def test_each_image_has_its_licence_and_version_and_brings_the_texts(archives: list[Path]) -> None:
    for archive in archives:
        labels, files = described(archive)
        assert labels["org.opencontainers.image.licenses"] == "Apache-2.0"
        assert labels["org.opencontainers.image.version"] == PROJECT["version"]
        assert f"\nVersion: {PROJECT['version']}\n" in files["METADATA"]
        assert "\nLicense-Expression: Apache-2.0\n" in files["METADATA"]
        for name in ("LICENSE", "NOTICE"):
            assert files[f"licenses/{name}"] == (ROOT / name).read_text()


def test_images_that_another_checkout_loads_are_not_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They were: its import found no file."""
    monkeypatch.setattr(images, "cache_folder", lambda: tmp_path)
    monkeypatch.setattr(build_module, "unpack_wheel", lambda folder: folder)
    monkeypatch.setattr(build_module, "build", lambda target, archive, *_: archive.touch())

    def of(sources: str) -> AbstractContextManager[list[Path]]:
        monkeypatch.setattr(build_module, "digest_of_sources", lambda: sources)
        return images.archives()

    with of("loading") as loading:
        for number in range(images.MOST_IMAGES + 1):
            with of(f"s{number}") as later:
                assert all(path.exists() for path in later)
        assert all(path.exists() for path in loading)
        assert not (tmp_path / "images" / "s0").exists()
    with of("last"):
        assert not loading[0].exists()


def test_images_are_built_before_the_tests_or_the_reason_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(images, "cache_folder", lambda: tmp_path)
    monkeypatch.setattr(build_module, "unpack_wheel", lambda folder: folder)

    def refuse(*_: object) -> None:
        raise BaseError("apt knows no python3-minimal: run apt-get update first")

    monkeypatch.setattr(build_module, "build", refuse)
    assert images.main() == 0
    assert "No images: apt knows no python3-minimal: run apt-get update first" in capsys.readouterr().err
    monkeypatch.setattr(build_module, "build", lambda target, archive, *_: archive.touch())
    assert images.main() == 0
    assert {path.stem for path in tmp_path.rglob("*.tar")} == set(TARGETS)
    assert "No images" not in capsys.readouterr().err
