"""Every overlay renders, is accepted whole by a real API server, and keeps each program to its own rights."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from hack.local.build import ROOT
from hack.local.cluster import Cluster
from hack.releases import overlays
from labeler.contract import keys
from tests.support import clean
from webhook.cli.config import differences
from webhook.cli.main import main
from webhook.configuration.cluster import identity, of_config_map
from webhook.configuration.file import parse
from webhook.policy import rendering

OVERLAYS = [
    "base",
    *sorted(
        str(path.parent.relative_to(ROOT / "manifests"))
        for path in ROOT.glob("manifests/overlays/*/kustomization.yaml")
    ),
]
WORKLOADS = ("Deployment", "DaemonSet")
NOT_SERVED_HERE = ("cert-manager.io/",)
"""API groups of other projects, which an overlay needs and a bare cluster does not have."""


Object = dict[str, Any]


def render(overlay: str, *components: str) -> list[Object]:
    """The objects of an overlay with these components in this order."""
    return list(overlays.rendered(overlay, components).values())


def named(objects: list[Object], kind: str) -> dict[str, Object]:
    """The objects of a kind by their names."""
    return {each["metadata"]["name"]: each for each in objects if each["kind"] == kind}


def listed(objects: Iterable[Object]) -> str:
    """Objects as kubectl reads them."""
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)})


@pytest.fixture(scope="module")
def served(module_cluster: Cluster) -> Iterator[Cluster]:
    """A cluster that has what the objects refer to: the namespaces and our own definitions."""
    first = [each for each in render("base") if each["kind"] in ("Namespace", "CustomResourceDefinition")]
    module_cluster.kubectl("apply", "-f", "-", stdin=listed(first))
    module_cluster.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=120s")
    yield module_cluster
    clean(module_cluster)


@pytest.mark.promise("O5")
def test_the_api_server_accepts_every_object_of_each_overlay_and_of_the_page(served: Cluster) -> None:
    """What several overlays share is asked once."""
    rendered = [render(overlay) for overlay in OVERLAYS] + [render("base", "ui")]
    objects = {
        json.dumps(each, sort_keys=True): each
        for objects in rendered
        for each in objects
        if not each["apiVersion"].startswith(NOT_SERVED_HERE)
    }
    result = served.kubectl("apply", "--dry-run=server", "-f", "-", stdin=listed(objects.values()))
    assert len(result.stdout.splitlines()) == len(objects)
    assert "Warning" not in result.stderr


KIND = "ValidatingAdmissionPolicy"


def test_the_api_server_finds_nothing_wrong_with_the_types_in_any_policy(served: Cluster) -> None:
    """It writes what it finds into the status, which nobody reads; policies that mutate are not checked."""
    policies = {
        each["metadata"]["name"]: each
        for file in (ROOT / "manifests").rglob("*.yaml")
        for each in yaml.safe_load_all(file.read_text())
        if each and each.get("kind") == KIND
    }
    served.kubectl("apply", "-f", "-", stdin=listed(policies.values()))
    path = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/"
    statuses: dict[str, dict[str, Any]] = {}

    def is_checked() -> bool:
        statuses.update({name: served.api().json("GET", path + name).get("status", {}) for name in policies})
        return all("typeChecking" in each for each in statuses.values())

    try:
        served.wait_for("the types of all policies to be checked", is_checked)
    finally:
        for name in policies:
            served.api().request("DELETE", path + name)
    found = {
        name: warnings
        for name, status in statuses.items()
        if (warnings := status["typeChecking"].get("expressionWarnings"))
    }
    assert found == {}


@pytest.mark.promise("O225")
def test_the_line_of_the_page_on_another_gate_changes_the_gates_prefix_wherever_it_stands(
    tmp_path: Path,
) -> None:
    (line,) = re.findall(r"^sed -i .*$", (ROOT / "docs/operators/configuration.md").read_text(), re.MULTILINE)
    shutil.copytree(ROOT / "manifests", tmp_path / "manifests")
    subprocess.run(["bash", "-ec", line], cwd=tmp_path, check=True, timeout=120)
    texts = {path.name: path.read_text() for path in (tmp_path / "manifests").rglob("*.yaml")}
    assert not [name for name, text in texts.items() if keys.GATE_PREFIX in text]
    changed = {name for name, text in texts.items() if "example.com/wait-" in text} - {"kustomization.yaml"}
    rendered = {"webhook-configuration.yaml", "gate-required.yaml", "gate.yaml"}  # no tier has a maximum
    assert changed == {"guards.yaml", "configuration.yaml", "values.yaml", *rendered}
    policy = parse(yaml.safe_load(texts["configuration.yaml"])["data"]["configuration.yaml"]).policy
    assert policy.gate == "example.com/wait-topogate"


@pytest.mark.promise("O83")
def test_the_overlay_of_the_page_on_configuration_replaces_the_shipped_one(
    control_plane: Cluster, tmp_path: Path
) -> None:
    page = (ROOT / "docs/operators/configuration.md").read_text()
    own, kustomization, *_ = re.findall(r"^```yaml\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    shutil.copytree(ROOT / "manifests", tmp_path / "manifests")
    overlay = tmp_path / "manifests/overlays/ours"
    overlay.mkdir()
    (overlay / "configuration.yaml").write_text(own)
    (overlay / "kustomization.yaml").write_text(kustomization)
    objects = list(yaml.safe_load_all(control_plane.kubectl("kustomize", str(overlay)).stdout))
    found = of_config_map(named(objects, "ConfigMap")["topogate-configuration"])
    assert found == parse(own)
    assert found.settings.reserve_share == 0.25


@pytest.mark.promise("S9")
@pytest.mark.usefixtures("control_plane")
def test_no_program_holds_rights_over_everything() -> None:
    faults = []
    for each in (each for overlay in OVERLAYS for each in render(overlay)):
        if each["kind"] in ("ClusterRole", "Role"):
            granted = [word for rule in each["rules"] for words in rule.values() for word in words]
            faults += [each["metadata"]["name"]] if "*" in granted else []
        if each["kind"] in ("ClusterRoleBinding", "RoleBinding"):
            is_builtin = each["roleRef"]["name"] in ("cluster-admin", "admin", "edit")
            faults += [each["metadata"]["name"]] if is_builtin else []
    assert faults == []


@pytest.mark.promise("S52")
@pytest.mark.usefixtures("control_plane")
def test_every_container_is_tied_down() -> None:
    """Those of the base, and of the components that have programs."""
    objects = [each for each in render("base", "ui", "allocator") if each["kind"] in WORKLOADS]
    assert {each["metadata"]["name"] for each in objects} >= {"webhook", "labeler", "ui", "allocator"}
    for each in objects:
        name, pod = each["metadata"]["name"], each["spec"]["template"]["spec"]
        runs_as_root = not pod["securityContext"].get("runAsNonRoot")
        assert runs_as_root is (name == "allocator"), name
        for container in pod["containers"]:
            security = container["securityContext"]
            assert security["readOnlyRootFilesystem"] is True, name
            assert security["allowPrivilegeEscalation"] is False, name
            assert security["capabilities"] == {"drop": ["ALL"]}, name
            assert "limits" in container["resources"], name


def test_every_manifest_file_belongs_to_a_kustomization() -> None:
    for folder in {path.parent for path in (ROOT / "manifests").rglob("kustomization.yaml")}:
        listed = yaml.safe_load((folder / "kustomization.yaml").read_text()).get("resources", [])
        files = {path.name for path in Path(folder).glob("*.yaml")} - {"kustomization.yaml"}
        assert files <= set(listed), f"{folder.name}: {files - set(listed)} is in no kustomization"


@pytest.mark.promise("O56")
def test_what_is_rendered_from_the_configuration_has_not_drifted(capsys: pytest.CaptureFixture[str]) -> None:
    files = [
        str(ROOT / "manifests" / "base" / name) for name in ("configuration.yaml", "priorityclasses.yaml")
    ]
    assert main(["config", "check", *files, "--against", str(ROOT / "manifests")]) == 0, capsys.readouterr()


CHANGE_THE_CONFIGURATION = [
    path.parent.name
    for path in ROOT.glob("manifests/components/*/kustomization.yaml")
    if "topogate-configuration" in path.read_text()
]


@pytest.mark.promise("O10")
@pytest.mark.usefixtures("control_plane")
def test_a_component_that_changes_the_configuration_changes_what_is_rendered_from_it() -> None:
    assert CHANGE_THE_CONFIGURATION
    for component in CHANGE_THE_CONFIGURATION:
        for base, before in (("base", ()), ("base", ("in-process-gate",)), ("overlays/strict", ())):
            objects = render(base, *before, component)
            policy = parse(
                named(objects, "ConfigMap")["topogate-configuration"]["data"]["configuration.yaml"]
            ).policy
            values = {name: each["value"] for name, each in named(objects, "PriorityClass").items()}
            found = {identity(each): each for each in objects}
            there = [each for each in rendering.objects(policy, values) if identity(each) in found]
            where = (component, base, before)
            assert len(there) == (5 if before or base != "base" else 3), where
            assert [place for each in there for place in differences(each, found[identity(each)])] == [], (
                where
            )


@pytest.mark.usefixtures("control_plane")
def test_config_check_reports_a_configuration_that_the_gate_in_process_was_not_rendered_from(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The component that changes the configuration is named before the one that it should change."""
    objects = render("base", "falldio", "in-process-gate")
    files = []
    for name, own in (
        ("configuration", [named(objects, "ConfigMap")["topogate-configuration"]]),
        ("classes", named(objects, "PriorityClass").values()),
        ("all", objects),
    ):
        files.append(str(tmp_path / f"{name}.yaml"))
        Path(files[-1]).write_text(yaml.safe_dump_all(own))
    assert main(["config", "check", *files[:2], "--against", files[2]]) == 1
    (drift,) = [line for line in capsys.readouterr().out.splitlines() if "drifted" in line]
    assert "MutatingAdmissionPolicy topogate-gate: spec.matchConditions[7].expression has drifted" in drift


@pytest.mark.promise("O253")
@pytest.mark.usefixtures("control_plane")
def test_the_programs_that_others_wait_for_are_not_preempted() -> None:
    deployments = named(render("base"), "Deployment")
    for name in ("webhook", "sweeper", "certs"):
        pod = deployments[name]["spec"]["template"]["spec"]
        assert pod["priorityClassName"] == "system-cluster-critical", name


@pytest.mark.promise("O254")
@pytest.mark.usefixtures("control_plane")
def test_a_drain_of_nodes_leaves_one_replica() -> None:
    objects = render("base")
    for name in ("webhook", "sweeper"):
        budget = named(objects, "PodDisruptionBudget")[name]["spec"]
        deployment = named(objects, "Deployment")[name]["spec"]
        assert budget["selector"] == deployment["selector"], name
        assert deployment["replicas"] - budget["maxUnavailable"] >= 1, name


@pytest.mark.promise("O253")
@pytest.mark.usefixtures("control_plane")
def test_the_system_namespace_may_hold_critical_pods_where_that_takes_a_quota() -> None:
    """As on clusters whose API server lets only namespaces with such a quota use the class."""
    objects = render("base")
    (quota,) = named(objects, "ResourceQuota").values()
    (term,) = quota["spec"]["scopeSelector"]["matchExpressions"]
    assert term == {"scopeName": "PriorityClass", "operator": "In", "values": ["system-cluster-critical"]}
    replicas = sum(
        each["spec"]["replicas"]
        for each in named(objects, "Deployment").values()
        if each["metadata"]["namespace"] == "topogate-system"
    )
    assert int(quota["spec"]["hard"]["pods"]) >= 2 * replicas  # while one is replaced by the other


@pytest.mark.promise("W31")
def test_the_shipped_priority_classes_are_1_10_and_100_and_none_is_the_default() -> None:
    shipped = list(yaml.safe_load_all((ROOT / "manifests" / "base" / "priorityclasses.yaml").read_text()))
    values = {each["metadata"]["name"]: each["value"] for each in shipped}
    assert values == {"gpu-low-priority": 1, "gpu-medium-priority": 10, "gpu-high-priority": 100}
    assert not any(each["globalDefault"] for each in shipped)
    (policy,) = yaml.safe_load_all((ROOT / "manifests" / "base" / "configuration.yaml").read_text())
    tiers = parse(policy["data"]["configuration.yaml"]).policy.tiers
    assert {tier.priority_class_name for tier in tiers} == values.keys()


@pytest.mark.promise("S27")
def test_no_manifest_makes_a_token_that_outlives_its_pod() -> None:
    for path in (ROOT / "manifests").rglob("*.yaml"):
        for each in yaml.safe_load_all(path.read_text()):
            if isinstance(each, dict):
                assert each.get("type") != "kubernetes.io/service-account-token", path
                assert not each.get("secrets"), f"{path}: a ServiceAccount with a Secret of its own"


SINCE = {
    "admissionregistration.k8s.io/v1 MutatingWebhookConfiguration": 16,
    "admissionregistration.k8s.io/v1 ValidatingAdmissionPolicy": 30,
    "admissionregistration.k8s.io/v1 ValidatingAdmissionPolicyBinding": 30,
    "apiextensions.k8s.io/v1 CustomResourceDefinition": 16,
    "apps/v1 DaemonSet": 9,
    "apps/v1 Deployment": 9,
    "batch/v1 CronJob": 21,
    "batch/v1 Job": 2,
    "flowcontrol.apiserver.k8s.io/v1 FlowSchema": 29,
    "policy/v1 PodDisruptionBudget": 21,
    "rbac.authorization.k8s.io/v1 ClusterRole": 8,
    "rbac.authorization.k8s.io/v1 ClusterRoleBinding": 8,
    "rbac.authorization.k8s.io/v1 Role": 8,
    "rbac.authorization.k8s.io/v1 RoleBinding": 8,
    "scheduling.k8s.io/v1 PriorityClass": 14,
    "v1 ConfigMap": 2,
    "v1 Namespace": 0,
    "v1 ResourceQuota": 0,
    "v1 Service": 0,
    "v1 ServiceAccount": 0,
}
"""The minor version of Kubernetes 1 that first served each kind as it is written here and not in beta."""


@pytest.mark.usefixtures("control_plane")
def test_the_default_overlay_uses_no_kind_that_kubernetes_1_32_lacks() -> None:
    kinds = {
        f"{each['apiVersion']} {each['kind']}"
        for overlay in ("base", "overlays/default")
        for each in render(overlay)
    }
    assert [kind for kind in sorted(kinds) if SINCE.get(kind, 99) > 32] == []
