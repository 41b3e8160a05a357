"""A release is complete and the same each time; what is not ready is refused with a sentence."""

import gzip
import io
import json
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
import yaml

from hack.images import build
from hack.images.archive import ImageSettings, layer_of, write
from hack.images.base import SBOM_PATH
from hack.local.build import ROOT
from hack.local.cluster import Cluster
from hack.releases import release
from tests.support import clean

VERSION = f"v{build.PROJECT['version']}"


@pytest.fixture(scope="module")
def files(control_plane: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of a release but for its images."""
    folder = tmp_path_factory.mktemp("release")
    release.make_files(VERSION, folder)
    release.write_checksums(folder)
    return folder


def test_a_release_has_a_wheel_an_install_file_a_chart_notes_and_checksums(files: Path) -> None:
    assert {path.name for path in files.iterdir()} == {
        f"topogate-{VERSION.removeprefix('v')}-py3-none-any.whl",
        "install.yaml",
        f"topogate-chart-{VERSION}.tgz",
        "notes.md",
        "SHA256SUMS",
    }
    subprocess.run(["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=files, check=True)


def test_two_runs_give_the_same_checksums(files: Path, tmp_path: Path) -> None:
    """Of the images tests/images/test_build.py shows it."""
    release.make_files(VERSION, tmp_path)
    release.write_checksums(tmp_path)
    assert (tmp_path / "SHA256SUMS").read_text() == (files / "SHA256SUMS").read_text()


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
    chart = ROOT / "manifests/chart"
    assert names == {f"topogate/{path.relative_to(chart)}" for path in chart.rglob("*") if path.is_file()}


def test_the_wheel_has_the_commands(files: Path) -> None:
    (wheel,) = files.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        (entries,) = (name for name in archive.namelist() if name.endswith("entry_points.txt"))
        assert "topogate = webhook.cli.main:main" in archive.read(entries).decode()


def test_the_list_of_contents_is_taken_out_of_an_image(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / SBOM_PATH).parent.mkdir(parents=True)
    (root / SBOM_PATH).write_text(json.dumps({"bomFormat": "CycloneDX"}))
    (root / "padding").write_bytes(b"x" * 10_000)
    layer_of(root, tmp_path / "layer.tar")
    image = write(tmp_path / "image.tar", "x:1", tmp_path / "layer.tar", ImageSettings(), "x86_64")
    assert json.loads(release.contents_of(image.archive)) == {"bomFormat": "CycloneDX"}


def test_an_image_without_a_list_of_contents_is_named(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "padding").write_bytes(b"x" * 10_000)
    layer_of(tmp_path / "root", tmp_path / "layer.tar")
    image = write(tmp_path / "image.tar", "x:1", tmp_path / "layer.tar", ImageSettings(), "x86_64")
    with pytest.raises(release.ReleaseError, match=r"image\.tar has no .*; build the image again"):
        release.contents_of(image.archive)


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
    said = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert said.stdout.strip() == ""
