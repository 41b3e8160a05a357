"""An upgrade of the chart from an earlier version, and the way back."""

import base64
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
import yaml

from hack.local import nodes
from hack.local.build import ROOT
from hack.local.cluster import Cluster
from hack.local.install import SYSTEM, system_node
from hack.local.pki import FileAuthority
from hack.releases.chart import CHART
from hack.releases.overlays import identity_of
from tests.releases.helm import (
    IMAGES,
    authority_of,
    of,
    remove_definitions,
    replicas_of,
    run,
    uninstall,
)
from tests.support import clean
from webhook.configuration.cluster import path_of

EARLIER: Final = "b387e82525a0833d8378b51de191986df0a58c8f"
"""The revision from whose chart the upgrade is tried."""


@pytest.fixture
def earlier(tmp_path: Path) -> Path:
    """The chart of that revision."""
    archive = tmp_path / "earlier.tar"
    command = ["git", "-C", str(ROOT), "archive", f"--output={archive}", EARLIER, "manifests/chart"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"the earlier version, {EARLIER}, is not in this repository: {done.stderr.strip()}")
    subprocess.run(["tar", "-xf", archive, "-C", tmp_path], check=True)
    return tmp_path / "manifests/chart"


@pytest.fixture
def cluster(module_cluster: Cluster) -> Iterator[Cluster]:
    nodes.register(module_cluster.api(), [system_node()])
    remove_definitions(module_cluster)
    yield module_cluster
    uninstall(module_cluster)
    clean(module_cluster)
    remove_definitions(module_cluster)  # of the earlier version, which others could not apply over


@pytest.mark.promise("O343")
def test_an_upgrade_from_the_chart_before_the_configuration_and_back_keeps_authority_and_plans(
    cluster: Cluster, earlier: Path
) -> None:
    installed = run("install", "topogate", str(earlier), *of(cluster), values=[*IMAGES, "webhook.replicas=3"])
    assert installed.returncode == 0, installed.stderr
    bundle = base64.b64encode(FileAuthority.create("test").pem).decode()
    issued = f'[{{"op": "add", "path": "/webhooks/0/clientConfig/caBundle", "value": "{bundle}"}}]'
    cluster.kubectl("patch", "mutatingwebhookconfiguration", "topogate", "--type=json", "-p", issued)
    plan = {"apiVersion": "topogate.io/v1alpha1", "kind": "Placement", "metadata": {"name": "of-a-gang"}}
    cluster.kubectl("create", "-n", "default", "-f", "-", stdin=yaml.safe_dump({**plan, "spec": {}}))

    def check(folder: Path, *more: str) -> None:
        result = run(
            "upgrade", "topogate", str(folder), "--reset-then-reuse-values", *of(cluster), values=more
        )
        assert result.returncode == 0, result.stderr
        assert authority_of(cluster) == bundle
        assert replicas_of(cluster, "webhook") == 3
        cluster.kubectl("get", "placement", "of-a-gang", "-n", "default")

    check(CHART, "config.gangs.settle=1m")
    text = cluster.api().json("GET", path_of())["data"]["configuration.yaml"]
    assert yaml.safe_load(text)["gangs"] == {"settle": "1m"}
    there = run("get", "manifest", "topogate", *of(cluster), values=())
    assert ("ConfigMap", SYSTEM, "topogate-policy") not in {
        identity_of(each) for each in yaml.safe_load_all(there.stdout) if each
    }
    check(earlier, "config=null")
    cluster.kubectl("get", "configmap", "topogate-policy", "-n", SYSTEM)
