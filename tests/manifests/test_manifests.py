"""Every overlay renders, is accepted whole by a real API server, and keeps each program to its own rights."""

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from hack.local.build import ROOT
from hack.local.cluster import Cluster
from labeler.contract import keys
from tests.support import clean
from webhook.policy.file import parse_policy

OVERLAYS = [
    "base",
    *sorted(
        str(path.parent.relative_to(ROOT / "manifests"))
        for path in ROOT.glob("manifests/overlays/*/kustomization.yaml")
    ),
]
NOT_SERVED_HERE = ("cert-manager.io/",)
"""API groups of other projects, which an overlay needs and a bare cluster does not have."""


def render(cluster: Cluster, overlay: str) -> list[dict[str, Any]]:
    """The objects of an overlay."""
    text = cluster.kubectl("kustomize", str(ROOT / "manifests" / overlay)).stdout
    return [dict(each) for each in yaml.safe_load_all(text)]


@pytest.fixture(scope="module")
def served(module_cluster: Cluster) -> Iterator[Cluster]:
    """A cluster that has what the objects refer to: the namespaces and our own definitions."""
    first = [
        each
        for each in render(module_cluster, "base")
        if each["kind"] in ("Namespace", "CustomResourceDefinition")
    ]
    module_cluster.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(first))
    module_cluster.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=30s")
    yield module_cluster
    clean(module_cluster)


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_the_api_server_accepts_every_object_of_the_overlay(served: Cluster, overlay: str) -> None:
    objects = [each for each in render(served, overlay) if not each["apiVersion"].startswith(NOT_SERVED_HERE)]
    result = served.kubectl("apply", "--dry-run=server", "-f", "-", stdin=yaml.safe_dump_all(objects))
    assert len(result.stdout.splitlines()) == len(objects)
    assert "Warning" not in result.stderr


def test_the_line_of_the_readme_changes_the_gates_prefix_wherever_it_stands(tmp_path: Path) -> None:
    (line,) = re.findall(r"^sed -i .*$", (ROOT / "README.md").read_text(), re.MULTILINE)
    shutil.copytree(ROOT / "manifests", tmp_path / "manifests")
    subprocess.run(["bash", "-ec", line], cwd=tmp_path, check=True, timeout=30)
    texts = {path.name: path.read_text() for path in (tmp_path / "manifests").rglob("*.yaml")}
    assert not [name for name, text in texts.items() if keys.GATE_PREFIX in text]
    changed = {name for name, text in texts.items() if "example.com/wait-" in text}
    assert changed == {"guards.yaml", "gate-required.yaml", "sweeper.yaml", "policy.yaml"}
    policy = parse_policy(yaml.safe_load(texts["policy.yaml"])["data"]["policy.yaml"])
    assert policy.gate == "example.com/wait-topogate"


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_no_program_holds_rights_over_everything(control_plane: Cluster, overlay: str) -> None:
    for each in render(control_plane, overlay):
        if each["kind"] in ("ClusterRole", "Role"):
            for rule in each["rules"]:
                assert "*" not in [*rule["verbs"], *rule["resources"], *rule["apiGroups"]], each["metadata"][
                    "name"
                ]
        if each["kind"] in ("ClusterRoleBinding", "RoleBinding"):
            assert each["roleRef"]["name"] not in ("cluster-admin", "admin", "edit")


@pytest.mark.parametrize("kind", ["Deployment", "DaemonSet"])
def test_every_container_is_tied_down(control_plane: Cluster, kind: str) -> None:
    found = [each for each in render(control_plane, "base") if each["kind"] == kind]
    assert found
    for each in found:
        pod = each["spec"]["template"]["spec"]
        assert pod["securityContext"]["runAsNonRoot"] is True
        for container in pod["containers"]:
            security = container["securityContext"]
            assert security["readOnlyRootFilesystem"] is True
            assert security["allowPrivilegeEscalation"] is False
            assert security["capabilities"] == {"drop": ["ALL"]}
            assert "limits" in container["resources"]


def test_every_manifest_file_belongs_to_a_kustomization() -> None:
    for folder in {path.parent for path in (ROOT / "manifests").rglob("kustomization.yaml")}:
        listed = yaml.safe_load((folder / "kustomization.yaml").read_text()).get("resources", [])
        files = {path.name for path in Path(folder).glob("*.yaml")} - {"kustomization.yaml"}
        assert files <= set(listed), f"{folder.name}: {files - set(listed)} is in no kustomization"
