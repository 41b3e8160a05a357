"""The component `monitoring` builds, and its monitors reach the ports that the programs have."""

import os
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from hack.local.build import ROOT
from hack.local.cluster import Cluster, ClusterError
from tests.monitoring.scrapes import COMPONENT, alerts

MONITORS = list(yaml.safe_load_all((COMPONENT / "podmonitors.yaml").read_text()))


@pytest.fixture(scope="module")
def workloads() -> list[dict[str, Any]]:
    """What the manifests run."""
    paths = [*ROOT.glob("manifests/base/*.yaml"), *ROOT.glob("manifests/components/*/*.yaml")]
    documents = (each for path in paths for each in yaml.safe_load_all(path.read_text()) if each)
    return [each for each in documents if each.get("kind") in ("Deployment", "DaemonSet")]


def ports(workload: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Name of each port -> its container."""
    containers = workload["spec"]["template"]["spec"]["containers"]
    return {port["name"]: container for container in containers for port in container.get("ports", ())}


@pytest.mark.promise("O208")
@pytest.mark.parametrize("monitor", MONITORS, ids=lambda each: each["metadata"]["name"])
def test_a_monitor_selects_one_program_and_a_port_that_it_has(
    monitor: dict[str, Any], workloads: list[dict[str, Any]]
) -> None:
    wanted = monitor["spec"]["selector"]["matchLabels"].items()
    namespaces = monitor["spec"].get("namespaceSelector", {}).get("matchNames", ["topogate-system"])
    (workload,) = (
        each
        for each in workloads
        if wanted <= each["spec"]["template"]["metadata"]["labels"].items()
        and each["metadata"]["namespace"] in namespaces
    )
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    assert endpoint["port"] in ports(workload)
    job = next(each for each in endpoint["relabelings"] if each["targetLabel"] == "job")
    assert job["replacement"] == monitor["metadata"]["name"]


@pytest.fixture
def operator(cluster: Cluster, defined: list[str]) -> Cluster:
    """An API server that knows the documented fields of the Prometheus operator's objects."""
    text = (Path(__file__).parent / "definitions.yaml").read_text()
    for each in yaml.safe_load_all(text):
        defined.append(f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{each['metadata']['name']}")
    cluster.kubectl("apply", "--server-side", "-f", "-", stdin=text)
    cluster.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=120s")
    return cluster


@pytest.mark.promise("O208")
def test_the_api_server_takes_the_monitors_and_rules_under_strict_validation(operator: Cluster) -> None:
    namespace = {"metadata": {"name": "topogate-system"}}
    operator.api().request("POST", "/api/v1/namespaces", body=namespace)
    for file in ("podmonitors.yaml", "rules.yaml"):
        operator.kubectl("apply", "--validate=strict", "--dry-run=server", "-f", str(COMPONENT / file))
        wrong = re.sub(r"\bspec:\n", "spec:\n  specs: {}\n", (COMPONENT / file).read_text(), count=1)
        with pytest.raises(ClusterError, match="specs"):
            operator.kubectl("apply", "--validate=strict", "--dry-run=server", "-f", "-", stdin=wrong)


def built_with(cluster: Cluster, folder: Path, **more: Any) -> list[dict[str, Any]]:
    """What kustomize builds of the overlay and the component. more: of the operator's kustomization."""
    overlay = ROOT / "manifests" / "overlays" / "default"
    own = {
        "resources": [os.path.relpath(overlay, folder)],
        "components": [os.path.relpath(COMPONENT, folder)],
        **more,
    }
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(own))
    return list(yaml.safe_load_all(cluster.kubectl("kustomize", str(folder)).stdout))


@pytest.mark.promise("O208")
def test_the_component_builds_on_the_overlay(control_plane: Cluster, tmp_path: Path) -> None:
    built = built_with(control_plane, tmp_path)
    kinds = [each["kind"] for each in built]
    assert kinds.count("PodMonitor") == len(MONITORS)
    assert kinds.count("PrometheusRule") == 1
    (dashboard,) = (each for each in built if each["metadata"]["name"] == "topogate-dashboard")
    assert dashboard["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert list(dashboard["data"]) == ["topogate.json"]


@pytest.mark.promise("R303")
def test_runbooks_open_at_the_address_that_an_operator_gives_with_kustomize(
    control_plane: Cluster, tmp_path: Path
) -> None:
    page = (ROOT / "docs" / "operators" / "alerts.md").read_text()
    (written,) = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    built = built_with(control_plane, tmp_path, **yaml.safe_load(written))
    assert "topogate-runbooks" not in str(built), "the address alone is taken, and no object made of it"
    (rules,) = (each for each in built if each["kind"] == "PrometheusRule")
    found = [rule["annotations"] for group in rules["spec"]["groups"] for rule in group["rules"]]
    base = "https://git.example.com/topogate/blob/v0.2.0/"
    assert [each["runbook_url"] for each in found] == [
        base + each["annotations"]["runbook_url"] for each in alerts()
    ]
