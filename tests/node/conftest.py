"""A cluster with a real node: kubelet, containerd and containers, in namespaces that the run makes."""

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from hack.local import node
from hack.local.cluster import Cluster
from tests.support import clean

LOST_SECONDS = 30.0
"""A container without a pod that runs for so long is ended by hand. Seen once, after kubelets were killed:
the next kubelet took it for ended, and could not remove it ("cannot delete running task")."""

LOOK = """
import json, os
status = dict(line.split(":", 1) for line in open("/proc/1/status").read().splitlines())
try:
    open("/written", "w").close()
    written = True
except OSError:
    written = False
print(json.dumps({
    "user": int(status["Uid"].split()[0]),
    "capabilities": int(status["CapEff"], 16),
    "no_new_privileges": int(status["NoNewPrivs"]),
    "seccomp": int(status["Seccomp"]),
    "megabytes": int(status["VmRSS"].split()[0]) / 1024,
    "written": written,
    "cards": sorted(os.listdir("/sys/class/drm")) if os.path.exists("/sys/class/drm") else [],
}))
"""


@pytest.fixture(scope="session")
def real_control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One for the whole run; all of it ends with the test process, however that ends."""
    if reason := node.lacking():
        pytest.skip(reason)
    cluster = Cluster.up(tmp_path_factory.mktemp("real-node") / "cluster", tied=True, real_node=True)
    try:
        yield cluster
    finally:
        cluster.down()


@pytest.fixture
def real_cluster(real_control_plane: Cluster) -> Iterator[Cluster]:
    """The same without what other tests have left: no pods, no containers, no labels on the real node."""
    clean_real(real_control_plane)
    yield real_control_plane
    clean_real(real_control_plane)


def clean_real(cluster: Cluster) -> None:
    """Remove what tests have left, on the real node too."""
    clean(cluster)
    found = cluster.api().json("GET", f"/api/v1/nodes/{node.NAME}")["metadata"]
    prefixes = ("kubernetes.io/", "beta.kubernetes.io/", "node.alpha.kubernetes.io/", "local.topogate.io/")
    for kind in ("label", "annotate"):
        keys = found.get("labels" if kind == "label" else "annotations", {})
        removed = [f"{key}-" for key in keys if not key.startswith(prefixes) and ".kubernetes.io/" not in key]
        if removed:
            cluster.kubectl(kind, "node", node.NAME, *removed)
    began = time.monotonic()

    def is_empty() -> bool:
        left = containers(cluster)
        if left and time.monotonic() - began > LOST_SECONDS:
            for container in left:
                ctr(cluster, "tasks", "delete", "--force", container, check=False)
        return not left

    cluster.wait_for("no container on the real node", is_empty)


def ctr(cluster: Cluster, *command: str, check: bool = True) -> str:
    """What containerd's own client says."""
    every = ("ctr", "--address", node.SOCKET, "--namespace", "k8s.io", *command)
    return cluster.namespaces.run(*every, check=check).stdout


def containers(cluster: Cluster) -> list[str]:
    """The ids of all containers that run on the real node."""
    return ctr(cluster, "tasks", "list", "--quiet").split()


def pod(name: str, *, containers: int = 1, **container: object) -> str:
    """A pod of the small image that is bound to the real node and sleeps, as JSON."""
    each = {"image": "topogate.local/busybox:1", "imagePullPolicy": "Never"} | container
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name},
            "spec": {
                "nodeSelector": {node.REAL_LABEL: ""},
                "terminationGracePeriodSeconds": 0,
                "containers": [{"name": f"c{number}", **each} for number in range(containers)],
            },
        }
    )


def pods_of(cluster: Cluster, namespace: str) -> list[dict[str, Any]]:
    """The pods of a namespace."""
    return list(cluster.api().json("GET", f"/api/v1/namespaces/{namespace}/pods")["items"])


def look_inside(cluster: Cluster, pod: dict[str, Any]) -> dict[str, Any]:
    """What one of our programs finds of itself in its container; there is no shell, but there is Python."""
    metadata = pod["metadata"]
    output = cluster.kubectl(
        "exec", "-n", metadata["namespace"], metadata["name"], "--", "python3", "-c", LOOK
    )
    return dict(json.loads(output.stdout))
