"""Installs topogate on a cluster with a real node, as its manifests say: its programs run as pods there.

The overlay that is made here names the images that were built, and where the node's played cards are.
Nothing else is changed, so that what works here is what `kubectl apply -k manifests/overlays/default` does.
"""

import os
from dataclasses import dataclass
from typing import Any, Final

import yaml

from hack.images.targets import TARGETS
from hack.local import devices, images
from hack.local.build import ROOT
from hack.local.cluster import Cluster
from hack.local.install import LABELER, SYSTEM

ALLOCATOR: Final = "topogate-allocator"
_SYSFS_VOLUME: Final = "sys"
_ROLLOUT_SECONDS: Final = 120


@dataclass(frozen=True)
class RealInstallation:
    """topogate as pods of a cluster with a real node.

    overlay: which of the manifests' overlays; components: which of manifests/components are added to it.
    """

    cluster: Cluster
    overlay: str = "overlays/default"
    components: tuple[str, ...] = ()

    def apply(self) -> None:
        """Load the images and apply the manifests. Raises ClusterError, and what building raises."""
        images.load(self.cluster)
        devices.plug(self.cluster.namespaces, [])  # the folder is there even without a card
        folder = self.cluster.folder / "install"
        folder.mkdir(exist_ok=True)
        (folder / "kustomization.yaml").write_text(yaml.safe_dump(self._overlay()))
        self.cluster.kubectl("apply", "--server-side", "-k", str(folder))

    def wait(self) -> None:
        """Wait until every pod of the manifests is ready. Raises ClusterError with what is wrong."""
        for namespace, kind in ((SYSTEM, "deployment"), (LABELER, "daemonset"), (ALLOCATOR, "daemonset")):
            found = self.cluster.kubectl("get", kind, "-n", namespace, "-o", "name").stdout.split()
            for name in found:
                self.cluster.kubectl(
                    "rollout", "status", name, "-n", namespace, f"--timeout={_ROLLOUT_SECONDS}s"
                )

    def _overlay(self) -> dict[str, Any]:
        folder = (self.cluster.folder / "install").resolve()
        readers = [("labeler", LABELER)]
        if "allocator" in self.components:
            readers.append(("allocator", ALLOCATOR))
        return {
            "resources": [os.path.relpath(ROOT / "manifests" / self.overlay, folder)],
            "components": [
                os.path.relpath(ROOT / "manifests" / "components" / name, folder) for name in self.components
            ],
            "images": [
                {"name": target, "newName": images.name_of(target).rpartition(":")[0], "newTag": images.TAG}
                for target in TARGETS
            ],
            "patches": [{"patch": yaml.safe_dump(_played(*reader))} for reader in readers],
        }


def _played(name: str, namespace: str) -> dict[str, Any]:
    """Where a DaemonSet finds the played cards; by name, so that it stays right when an order changes."""
    environment = [{"name": variable, "value": value} for variable, value in devices.VERIFY.items()]
    volume = {"name": _SYSFS_VOLUME, "hostPath": {"path": devices.SYSFS, "type": "Directory"}}
    spec = {"containers": [{"name": name, "env": environment}], "volumes": [volume]}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"template": {"spec": spec}},
    }
