"""Helm on the chart, for the tests of the chart."""

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from hack.local.cluster import Cluster
from hack.local.go_programs import HELM
from hack.local.install import SYSTEM, WEBHOOKS
from hack.releases.chart import CHART
from hack.releases.overlays import Identity, identity_of
from tests.support import delete, exists

Objects = dict[Identity, dict[str, Any]]

IMAGES = ("images.topogate=topogate", "images.labeler=topogate-labeler")
"""The names that the base has; they stand for no registry, and are not refused for that."""

TEMPLATE = ("template", "topogate", str(CHART))


def run(*arguments: str, values: Sequence[str] = IMAGES) -> "subprocess.CompletedProcess[str]":
    sets = [word for each in values for word in ("--set", each)]
    return subprocess.run([str(HELM.build()), *arguments, *sets], capture_output=True, text=True, check=False)


def templated(values: Sequence[str] = (), version: str = "1.36.0", file: Path | None = None) -> Objects:
    """The objects of the chart with these values, and with a file of values, beside the images."""
    arguments = (
        *TEMPLATE,
        "--namespace=kube-system",
        "--skip-tests",
        *([f"--values={file}"] if file else []),
    )
    result = run(*arguments, f"--kube-version={version}", values=[*IMAGES, *values])
    assert result.returncode == 0, result.stderr
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    objects = [each for each in yaml.load_all(result.stdout, loader) if each]
    found = {identity_of(each): each for each in objects}
    assert len(found) == len(objects)
    return found


def remove_definitions(cluster: Cluster) -> None:
    """Remove what tests of the manifests leave: Helm takes over no definition that another tool has made."""
    api, path = cluster.api(), "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    ours = [
        f"{path}/{each['metadata']['name']}"
        for each in api.json("GET", path)["items"]
        if each["spec"]["group"] in ("topogate.io", "falldio.com")
    ]
    for each in ours:
        delete(api, each)
    cluster.wait_for("the definitions to be gone", lambda: not any(exists(api, each) for each in ours))


def uninstall(cluster: Cluster) -> None:
    """Remove the release, whose name no other could take, and the definitions, which Helm keeps."""
    result = run("uninstall", "topogate", *of(cluster), values=())
    assert result.returncode == 0, result.stderr
    remove_definitions(cluster)


def of(cluster: Cluster) -> tuple[str, ...]:
    return (f"--kubeconfig={cluster.kubeconfig}", "--namespace=kube-system")


def revision_of(cluster: Cluster) -> int:
    listed = run("list", "--output=json", *of(cluster), values=())
    return int(json.loads(listed.stdout)[0]["revision"])


def replicas_of(cluster: Cluster, name: str) -> int:
    path = f"/apis/apps/v1/namespaces/{SYSTEM}/deployments/{name}"
    return int(cluster.api().json("GET", path)["spec"]["replicas"])


def authority_of(cluster: Cluster) -> str:
    return str(cluster.api().json("GET", WEBHOOKS)["webhooks"][0]["clientConfig"].get("caBundle", ""))
