"""The labeler's kustomize components: each builds on the base, both too, and the server takes the result."""

import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from hack.local.cluster import Cluster
from labeler.config import parse_config
from labeler.contract.keys import CARD_AMOUNTS
from labeler.facts import Gpu
from labeler.labels import intel_labels
from labeler.sources import Context, create_source
from tests.labeler.installed import ROOT, wait_for_namespace

COMPONENTS = ("labeler-gce", "labeler-extended-resources")
FALLDIO = ("falldio",)
EKS = ("labeler-eks",)
NFD = ("labeler-nfd",)


def build(cluster: Cluster, folder: Path, components: tuple[str, ...]) -> list[dict[str, Any]]:
    """The labeler's objects with these components."""
    manifests = os.path.relpath(ROOT / "manifests", folder)
    base = [f"{manifests}/base/labeler.yaml", f"{manifests}/base/labeler-policy.yaml"]
    plan = {"resources": base, "components": [f"{manifests}/components/{name}" for name in components]}
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(plan))
    built = cluster.kubectl("kustomize", "--load-restrictor=LoadRestrictionsNone", str(folder)).stdout
    return list(yaml.safe_load_all(built))


def one(objects: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    (found,) = (item for item in objects if item["kind"] == kind)
    return found


@pytest.mark.promise("O10")
@pytest.mark.parametrize(
    "components", [(), *((name,) for name in COMPONENTS), COMPONENTS, FALLDIO, EKS], ids="+".join
)
def test_every_choice_of_components_is_taken_by_the_server(
    module_cluster: Cluster, tmp_path: Path, components: tuple[str, ...]
) -> None:
    objects = build(module_cluster, tmp_path, components)
    cluster = module_cluster
    wait_for_namespace(cluster)
    answer = cluster.kubectl("apply", "--validate=strict", "-f", "-", stdin=yaml.safe_dump_all(objects))
    assert "warning" not in (answer.stdout + answer.stderr).lower()


@pytest.mark.promise("O12", "O33")
def test_components_add_up(module_cluster: Cluster, tmp_path: Path) -> None:
    objects = build(module_cluster, tmp_path, COMPONENTS)
    pod = one(objects, "DaemonSet")["spec"]["template"]["spec"]
    assert pod["hostNetwork"] is True
    assert "--extended-resources" in pod["containers"][0]["args"]
    config = parse_config(yaml.safe_load(one(objects, "ConfigMap")["data"]["labeler.yaml"]), "built")
    assert [name for name, _ in config.sources] == ["gce", "udev"]


@pytest.mark.promise("O307")
def test_the_component_for_eks_counts_layers_from_below_and_ends_with_the_node(
    module_cluster: Cluster, tmp_path: Path
) -> None:
    config_map = one(build(module_cluster, tmp_path, EKS), "ConfigMap")
    config = parse_config(yaml.safe_load(config_map["data"]["labeler.yaml"]), "built")
    labels = {f"topology.k8s.aws/network-node-layer-{number}": f"nn-{number}" for number in (1, 2, 3, 4)}
    labels["kubernetes.io/hostname"] = "node-1"
    name, options = config.sources[0]
    source = create_source(name, options, Context("node", lambda: {"labels": labels}))
    assert source.discover().topology == ("nn-3", "nn-4", "node-1")
    assert len(config.levels) == 3


def test_the_component_for_nfd_is_taken_by_a_server_that_knows_node_feature_rules(
    module_cluster: Cluster, tmp_path: Path
) -> None:
    cluster = module_cluster
    definition = str(Path(__file__).with_name("nfd_definition.yaml"))
    objects = build(cluster, tmp_path, NFD)
    wait_for_namespace(cluster)
    cluster.kubectl("apply", "-f", definition)
    try:
        cluster.kubectl("wait", "--for=condition=Established", "-f", definition, "--timeout=120s")
        answer = cluster.kubectl("apply", "--validate=strict", "-f", "-", stdin=yaml.safe_dump_all(objects))
    finally:
        cluster.kubectl("delete", "-f", definition)
    assert "warning" not in (answer.stdout + answer.stderr).lower()


@pytest.mark.promise("O308")
def test_the_rule_for_nfd_makes_resources_of_just_the_labels_of_the_feature_file(
    module_cluster: Cluster, tmp_path: Path
) -> None:
    """A value that begins with "@" is a feature's, by domain, feature and element; all three or none."""
    objects = build(module_cluster, tmp_path, NFD)
    (rule,) = one(objects, "NodeFeatureRule")["spec"]["rules"]
    assert rule["extendedResources"] == {key: f"@local.label.{key}" for key in CARD_AMOUNTS}
    (match,) = rule["matchFeatures"]
    assert match == {
        "feature": "local.label",
        "matchExpressions": {key: {"op": "Exists"} for key in CARD_AMOUNTS},
    }
    labels = intel_labels([Gpu(0, "intel", memory_bytes=16 << 30)], pci_group_level=0)
    assert all(int(labels[key]) > 0 for key in CARD_AMOUNTS)


def test_with_nfd_the_labeler_writes_the_feature_file_into_a_folder_that_it_may_write(
    module_cluster: Cluster, tmp_path: Path
) -> None:
    objects = build(module_cluster, tmp_path, NFD)
    config = parse_config(yaml.safe_load(one(objects, "ConfigMap")["data"]["labeler.yaml"]), "built")
    pod = one(objects, "DaemonSet")["spec"]["template"]["spec"]
    mounts = {mount["mountPath"]: mount for mount in pod["containers"][0]["volumeMounts"]}
    assert config.feature_file is not None
    assert not mounts[str(config.feature_file.parent)].get("readOnly", False)
    assert one(objects, "ClusterRole")["rules"] == [
        {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]}
    ]
    assert pod["securityContext"]["runAsUser"] == 0
    assert pod["containers"][0]["securityContext"]["capabilities"] == {"drop": ["ALL"]}


def test_the_pod_may_do_nothing_but_read(module_cluster: Cluster, tmp_path: Path) -> None:
    pod = one(build(module_cluster, tmp_path, ()), "DaemonSet")["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert all(mount["readOnly"] for mount in container["volumeMounts"])
    folders = {volume["hostPath"]["path"] for volume in pod["volumes"] if "hostPath" in volume}
    assert folders == {"/sys", "/run/udev"}
    assert not {"hostNetwork", "hostPID", "hostIPC"} & pod.keys()


@pytest.mark.promise("O311")
def test_the_pod_starts_on_a_node_without_udevs_folder(module_cluster: Cluster, tmp_path: Path) -> None:
    pod = one(build(module_cluster, tmp_path, ()), "DaemonSet")["spec"]["template"]["spec"]
    types = {v["hostPath"]["path"]: v["hostPath"]["type"] for v in pod["volumes"] if "hostPath" in v}
    assert types == {"/sys": "Directory", "/run/udev": "DirectoryOrCreate"}
