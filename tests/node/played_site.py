"""topogate as the pods of its manifests, on a real node with four played cards."""

import contextlib
import json
import signal
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from hack.local import devices, node
from hack.local.cluster import Cluster
from hack.local.devices import PlayedCard
from hack.local.install import SYSTEM
from hack.local.install_real import ALLOCATOR, RealInstallation
from labeler.contract import keys
from webhook.kube.client import MERGE_PATCH

CARDS: Final = [PlayedCard(number) for number in range(4)]
SHARES: Final = 10
"""As the manifest has it."""
LOOKED: Final = "looked"
"""The last line that a container of `job` says before it sleeps: without it, a log is not whole."""


@dataclass
class Site:
    """A cluster with topogate and four cards on its real node."""

    cluster: Cluster
    kills: Counter[str] = field(default_factory=Counter)
    shares: int = SHARES

    def kill(self, name: str) -> None:
        """SIGKILL, and a new start: of the kubelet here, of a pod by its controller."""
        self.kills[name] += 1
        if name == "kubelet":
            self.cluster.running["kubelet"].send(signal.SIGKILL)
            self.cluster.start("kubelet")
            return
        namespace = ALLOCATOR if name == "allocator" else SYSTEM
        pod = next((pod for pod in self.pods(namespace) if pod.startswith(f"{name}-")), None)
        if pod is not None:
            self.cluster.kubectl("delete", "pod", pod, "-n", namespace, "--force", "--grace-period=0")

    def reset_failures(self) -> None:
        """What the node has refused until now no longer counts, as an operator has it after a repair."""
        annotations = {keys.RESET_FAILURES_ANNOTATION: f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"}
        body, path = {"metadata": {"annotations": annotations}}, f"/api/v1/nodes/{node.NAME}"
        self.cluster.api().request("PATCH", path, body=body, content_type=MERGE_PATCH)

    def pods(self, namespace: str) -> list[str]:
        """The names of the pods of a namespace."""
        items = self.cluster.api().json("GET", f"/api/v1/namespaces/{namespace}/pods")["items"]
        return [item["metadata"]["name"] for item in items]

    def wait_for_devices(self) -> None:
        """Until the kubelet has all of the cards' devices for kube-scheduler, from this allocator."""
        allocated = len(CARDS) * self.shares
        self.cluster.wait_for("the cards' devices", lambda: self.allocatable(keys.I915) == allocated)
        self.cluster.kubectl("rollout", "status", "daemonset/allocator", "-n", ALLOCATOR, "--timeout=120s")

    def share(self, shares: int) -> None:
        """Let so many containers share a card from now on."""
        self.shares = shares
        argument = {"op": "replace", "path": "/spec/template/spec/containers/0/args/0"}
        patch = json.dumps([argument | {"value": f"--shares={shares}"}])
        self.cluster.kubectl("patch", "daemonset/allocator", "-n", ALLOCATOR, "--type=json", "-p", patch)
        self.wait_for_devices()

    def annotations(self) -> dict[str, str]:
        """The annotations of the node."""
        return dict(self.cluster.api().json("GET", f"/api/v1/nodes/{node.NAME}")["metadata"]["annotations"])

    def allocatable(self, resource: str) -> int:
        """How much of a resource the node has for kube-scheduler."""
        found = self.cluster.api().json("GET", f"/api/v1/nodes/{node.NAME}")
        return int(found["status"]["allocatable"].get(resource, 0))


@contextlib.contextmanager
def played(real_control_plane: Cluster) -> Iterator[Site]:
    """topogate at work on the real node with all of CARDS."""
    cluster = real_control_plane
    devices.plug(cluster.namespaces, CARDS)
    place = dict(zip(keys.PRERELEASE_TOPOLOGY, ("b0", "s0", "h0"), strict=True))
    path = f"/api/v1/nodes/{node.NAME}"
    body: dict[str, Any] = {"metadata": {"labels": place}}
    cluster.api().request("PATCH", path, body=body, content_type=MERGE_PATCH)
    installation = RealInstallation(cluster, components=("labeler-extended-resources", "allocator"))
    installation.apply()
    installation.wait()
    site = Site(cluster)
    site.wait_for_devices()
    cluster.wait_for("the cards' tiles", lambda: site.allocatable(keys.TILES) == 2 * len(CARDS))
    yield site
    devices.unplug(cluster.namespaces, CARDS)


def job(name: str, containers: list[dict[str, int]], seconds: int) -> dict[str, Any]:
    """A Job of one pod, whose containers report what they see, then LOOKED. containers: their limits.

    They report it in their termination messages: a kubelet that is killed may lose the logs of ended pods.
    """
    look = f"(ls /dev/dri 2>/dev/null; env | grep ^ZE_; echo {LOOKED}) >/dev/termination-log; sleep {seconds}"
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {
            "backoffLimit": 30,
            "template": {
                "spec": {
                    "restartPolicy": "Never",
                    "terminationGracePeriodSeconds": 0,
                    "containers": [
                        {
                            "name": f"c{number}",
                            "image": "topogate.local/busybox:1",
                            "imagePullPolicy": "Never",
                            "command": ["sh", "-c", look],
                            "resources": {"limits": {key: str(value) for key, value in limits.items()}},
                        }
                        for number, limits in enumerate(containers)
                    ],
                }
            },
        },
    }


def reports_of(pod: dict[str, Any]) -> dict[str, str] | None:
    """What each container of a finished pod reported, or None if the kubelet has not read all of it yet."""
    states = {each["name"]: each["state"] for each in pod["status"].get("containerStatuses", ())}
    reports = {name: state.get("terminated", {}).get("message", "") for name, state in states.items()}
    is_whole = all(report.splitlines()[-1:] == [LOOKED] for report in reports.values())
    return reports if is_whole and len(reports) == len(pod["spec"]["containers"]) else None
