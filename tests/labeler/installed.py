"""The labeler's real manifests on the local control plane, and tokens bound to the pods of its DaemonSet."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from hack.local import nodes
from hack.local.cluster import Cluster
from labeler.api import NodeApi, NodeApiError
from webhook.kube.client import ApiError as ServerError

ROOT: Final = Path(__file__).resolve().parents[2]
NAMESPACE: Final = "topogate-labeler"
_ACCOUNT: Final = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/labeler"


@dataclass(frozen=True)
class Installed:
    """The cluster with the labeler's manifests applied; `folder` takes token files."""

    cluster: Cluster
    folder: Path

    def token(self, node: str | None) -> str:
        """A token bound to the DaemonSet's pod on a node, as the kubelet mounts it; None: to no pod."""
        spec: dict[str, Any] = {"expirationSeconds": 3600}
        if node is not None:
            metadata = self.pod_on(node)["metadata"]
            bound = {"kind": "Pod", "apiVersion": "v1", "name": metadata["name"], "uid": metadata["uid"]}
            spec["boundObjectRef"] = bound
        answer = self.cluster.api().json("POST", f"{_ACCOUNT}/token", body={"spec": spec})
        return str(answer["status"]["token"])

    def pod_on(self, node: str) -> dict[str, Any]:
        """The labeler's pod on a node, waited for."""
        found: list[dict[str, Any]] = []

        def there() -> bool:
            pods = self.cluster.api().json("GET", f"/api/v1/namespaces/{NAMESPACE}/pods")["items"]
            found[:] = [
                pod
                for pod in pods
                if pod["spec"].get("nodeName") == node and "deletionTimestamp" not in pod["metadata"]
            ]
            return bool(found)

        self.cluster.wait_for(f"the labeler's pod on {node}", there)
        return found[0]

    def token_file(self, node: str | None) -> Path:
        """The same token in a file."""
        path = self.folder / f"token-{node}"
        path.write_text(self.token(node))
        return path

    def node_api(self, node: str, *, as_node: str | None = "itself") -> NodeApi:
        """A client for a node with the identity of the labeler's pod on it, on another node, or of no pod."""
        token_file = self.token_file(node if as_node == "itself" else as_node)
        return NodeApi(self.cluster.server, token_file, self.cluster.certificate_authority, node)

    def node(self, name: str) -> dict[str, Any]:
        """A Node as it is."""
        node: dict[str, Any] = self.cluster.api().json("GET", f"/api/v1/nodes/{name}")
        return node


def install(cluster: Cluster, folder: Path, node_count: int) -> Installed:
    """Nodes "n0", "n1", ... without topology labels, and the labeler's manifests in force."""
    wait_for_namespace(cluster)
    register(cluster, [f"n{number}" for number in range(node_count)])
    for file in ("labeler.yaml", "labeler-policy.yaml"):
        cluster.kubectl("apply", "-f", str(ROOT / "manifests" / "base" / file))
    installed = Installed(cluster, folder)
    probe = installed.node_api("n0")

    def in_force() -> bool:
        try:
            # Another value each time: a patch that changes nothing is never refused.
            probe.patch({"metadata": {"annotations": {"example.com/probe": str(time.monotonic_ns())}}})
        except NodeApiError as error:
            return error.status == 422 and "annotations" in str(error)
        return False

    cluster.wait_for("the policy to be in force", in_force)
    undo: dict[str, Any] = {"metadata": {"annotations": {"example.com/probe": None}}}
    cluster.api().request("PATCH", "/api/v1/nodes/n0", body=undo, content_type="application/merge-patch+json")
    return installed


def wait_for_namespace(cluster: Cluster) -> None:
    """Wait while the labeler's namespace of an earlier test is on its way out."""

    def is_usable() -> bool:
        try:
            found = cluster.api().json("GET", f"/api/v1/namespaces/{NAMESPACE}")
        except ServerError as error:
            return error.status == 404
        return "deletionTimestamp" not in found["metadata"]

    cluster.wait_for("the namespace of an earlier test to go", is_usable)


def register(cluster: Cluster, names: list[str]) -> None:
    """Make simulated nodes without any label of the labeler's."""
    nodes.register(
        cluster.api(), [nodes.SimulatedNode(name, ("", "", ""), False, 0) for name in names], labelled=False
    )
