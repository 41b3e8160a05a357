"""The component `ui` is accepted by the API server; its account reads and asks, and writes nothing."""

from pathlib import Path

import yaml

from hack.local.build import ROOT
from hack.local.cluster import Cluster
from tests.support import install_definitions

COMPONENT = ROOT / "manifests" / "components" / "ui" / "ui.yaml"
READING = {"get", "list", "watch"}
ASKING = {"tokenreviews", "subjectaccessreviews"}


def test_the_api_server_accepts_every_object_of_the_component(cluster: Cluster, tmp_path: Path) -> None:
    install_definitions(cluster)
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "topogate-system"}}
    cluster.kubectl("apply", "-f", "-", stdin=yaml.safe_dump(namespace))
    result = cluster.kubectl("apply", "--dry-run=server", "-f", str(COMPONENT))
    assert len(result.stdout.splitlines()) == len(list(yaml.safe_load_all(COMPONENT.read_text())))
    assert "Warning" not in result.stderr


def test_the_pages_account_reads_and_asks_and_writes_nothing() -> None:
    (role,) = (each for each in yaml.safe_load_all(COMPONENT.read_text()) if each["kind"] == "ClusterRole")
    for rule in role["rules"]:
        if set(rule["resources"]) <= ASKING:
            assert rule["verbs"] == ["create"]
        else:
            assert set(rule["verbs"]) <= READING
            assert "secrets" not in rule["resources"]
