"""A release is complete and the same each time; what is not ready is refused with a sentence."""

import gzip
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from hack.images import build
from hack.images.archive import ImageSettings, layer_of, write
from hack.images.base import SBOM_PATH
from hack.images.targets import TARGETS
from hack.local.build import ROOT
from hack.local.cluster import Cluster
from hack.releases import overlays, release
from hack.releases.chart import CHART
from tests.support import clean

VERSION = f"v{build.PROJECT['version']}"


@pytest.fixture(scope="module")
def files(control_plane: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A release, with small images."""
    folder = tmp_path_factory.mktemp("release")
    release.make_files(VERSION, folder)
    for name in TARGETS:
        small_image(folder / f"{name}-{VERSION}-amd64.tar")
    release.write_checksums(folder, VERSION)
    return folder


def small_image(path: Path) -> None:
    """An image with a list of its contents, and that list beside it."""
    image_of(path, {SBOM_PATH: json.dumps({"bomFormat": "CycloneDX"})})
    path.with_suffix(".cdx.json").write_bytes(release.contents_of(path))


def image_of(path: Path, files: dict[str, str]) -> None:
    """An image with these files, and with one that is longer than what describes the image."""
    with tempfile.TemporaryDirectory() as work:
        root, layer = Path(work) / "root", Path(work) / "layer.tar"
        for name, text in {**files, "padding": "x" * 10_000}.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)
        layer_of(root, layer)
        write(path, "x:1", layer, ImageSettings(), "x86_64")


def test_a_release_has_a_wheel_an_install_file_a_chart_notes_images_and_checksums(files: Path) -> None:
    images = {f"{name}-{VERSION}-amd64{end}" for name in TARGETS for end in (".tar", ".cdx.json")}
    assert {path.name for path in files.iterdir()} - images == {
        f"topogate-{VERSION.removeprefix('v')}-py3-none-any.whl",
        "install.yaml",
        f"topogate-chart-{VERSION}.tgz",
        "notes.md",
        "promises.md",
        "SHA256SUMS",
    }
    subprocess.run(["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=files, check=True)


@pytest.mark.promise("O1")
def test_two_runs_give_the_same_files(files: Path, tmp_path: Path) -> None:
    """Of the images tests/images/test_build.py shows it."""
    overlays.rendered_text.cache_clear()
    release.make_files(VERSION, tmp_path)
    for path in tmp_path.iterdir():
        assert path.read_bytes() == (files / path.name).read_bytes()


Change = Callable[[Path], object]


def without(name: str) -> Change:
    return lambda folder: (folder / name).unlink()


def torn(name: str) -> Change:
    """Leave the first half of a file."""
    return lambda folder: os.truncate(folder / name, (folder / name).stat().st_size // 2)


def empty(name: str) -> Change:
    return lambda folder: os.truncate(folder / name, 0)


def another(name: str) -> Change:
    return lambda folder: (folder / name).write_text("x")


IMAGE = f"topogate-{VERSION}-amd64.tar"


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (without("install.yaml"), "install.yaml is missing"),
        (without(f"topogate-labeler-{VERSION}-amd64.tar"), "topogate-labeler-v"),
        (without(IMAGE.replace(".tar", ".cdx.json")), f"topogate-{VERSION}-amd64.cdx.json is missing"),
        (another(IMAGE.replace("amd64", "arm64")), f"topogate-labeler-{VERSION}-arm64.tar is missing"),
        (torn(IMAGE), f"{IMAGE} is not the file that SHA256SUMS is of"),
        (torn("install.yaml"), "install.yaml is not the file that SHA256SUMS is of"),
        (empty("notes.md"), "notes.md is empty"),
        (another("topogate-v0.0.1-amd64.tar"), f"topogate-v0.0.1-amd64.tar is no file of {VERSION}"),
    ],
)  # fmt: skip
def test_a_folder_that_is_no_whole_release_gets_no_checksums(
    files: Path, tmp_path: Path, change: Change, expected: str
) -> None:
    folder = tmp_path / VERSION
    shutil.copytree(files, folder)
    change(folder)
    with pytest.raises(release.ReleaseError, match=re.escape(expected)):
        release.write_checksums(folder, VERSION)


def test_a_torn_image_without_checksums_gets_none(files: Path, tmp_path: Path) -> None:
    folder = tmp_path / VERSION
    shutil.copytree(files, folder)
    (folder / "SHA256SUMS").unlink()
    torn(IMAGE)(folder)
    with pytest.raises(release.ReleaseError, match=re.escape(f"{IMAGE} is torn")):
        release.write_checksums(folder, VERSION)


def test_an_empty_or_missing_folder_gets_no_checksums(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [VERSION, "--checksums", "--output", str(tmp_path)]
    assert release.main(arguments) == 1
    assert "there is no such folder" in capsys.readouterr().err
    (tmp_path / VERSION).mkdir()
    assert release.main(arguments) == 1
    assert "install.yaml is missing" in capsys.readouterr().err


def test_a_run_that_ends_early_leaves_nothing_of_a_release(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full_disk(*_: object) -> None:
        raise OSError("no space left on device")

    def one_file(_: str, folder: Path) -> None:
        (folder / "notes.md").write_text("x")

    monkeypatch.setattr(release, "make_files", one_file)
    monkeypatch.setattr(release, "make_images", full_disk)
    assert release.main([VERSION, "--output", str(tmp_path)]) == 1
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


@pytest.mark.promise("O341")
def test_the_api_server_refuses_the_install_file_until_its_own_command_has_named_the_registry(
    files: Path, module_cluster: Cluster
) -> None:
    text = (files / "install.yaml").read_text()
    workloads = [each for each in yaml.safe_load_all(text) if each["kind"] in ("Deployment", "DaemonSet")]
    namespaces = [each for each in yaml.safe_load_all(text) if each["kind"] == "Namespace"]
    module_cluster.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(namespaces))
    for each in workloads:
        refused = module_cluster.kubectl(
            "apply", "--server-side", "--dry-run=server", "-f", "-", stdin=yaml.safe_dump(each), check=False
        )
        assert refused.returncode != 0
        assert "image: Required value" in refused.stderr
    (command,) = re.findall(r"^#   sed '(.*)' install.yaml", text, re.MULTILINE)
    named = subprocess.run(
        ["sed", command, "install.yaml"], cwd=files, check=True, capture_output=True, text=True
    )
    module_cluster.kubectl("apply", "--server-side", "-f", "-", stdin=named.stdout)
    assert f"image: YOUR-REGISTRY/topogate:{VERSION}\n" in named.stdout
    clean(module_cluster)


def test_the_chart_of_a_release_is_the_one_of_the_repository(files: Path) -> None:
    plain = gzip.decompress((files / f"topogate-chart-{VERSION}.tgz").read_bytes())
    with tarfile.open(fileobj=io.BytesIO(plain)) as archive:
        names = {each.name for each in archive}
    assert names == {f"topogate/{path.relative_to(CHART)}" for path in CHART.rglob("*") if path.is_file()}


def test_the_wheel_has_the_commands(files: Path) -> None:
    (wheel,) = files.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        (entries,) = (name for name in archive.namelist() if name.endswith("entry_points.txt"))
        assert "topogate = webhook.cli.main:main" in archive.read(entries).decode()


def test_the_list_of_contents_is_taken_out_of_an_image(tmp_path: Path) -> None:
    small_image(tmp_path / "image.tar")
    assert json.loads((tmp_path / "image.cdx.json").read_bytes()) == {"bomFormat": "CycloneDX"}


def test_an_image_without_a_list_of_contents_is_named(tmp_path: Path) -> None:
    image_of(tmp_path / "image.tar", {})
    with pytest.raises(release.ReleaseError, match=r"image\.tar has no .*; build the image again"):
        release.contents_of(tmp_path / "image.tar")


def test_another_version_than_that_of_the_sources_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert release.main(["v99.0.0"]) == 1
    assert f"pyproject.toml is of {VERSION}" in capsys.readouterr().err


def test_the_notes_are_the_dated_entry_of_the_changelog() -> None:
    assert "admission webhook" in release.notes(VERSION)
    with pytest.raises(release.ReleaseError, match="no entry `## v99"):
        release.notes("v99.0.0")


def test_the_command_line_needs_nothing_that_only_linux_has() -> None:
    """What it imports is read in a new process: no source of devices, no gRPC, no server of ours."""
    names = "{'pyudev', 'pynvml', 'grpc', 'gunicorn'}"
    program = f"import sys, webhook.cli.main; print(*sorted({names} & sys.modules.keys()))"
    completed = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert completed.stdout.strip() == ""
