"""hack/demo --real-node: GPU pods on a real kubelet, looked at inside their containers.

topogate runs as the pods of its manifests, from images that are built here. The cards are played, since few
machines have four of them: sysfs entries, and device nodes that are those of /dev/null.
"""

import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from hack.demos.command import topogate
from hack.images.debian import BaseError
from hack.images.lock import BuildError
from hack.images.small import BUSYBOX
from hack.local import devices, node, nodes
from hack.local.build import NoControlPlaneError, announce, clusters_folder
from hack.local.cluster import Cluster, ClusterError
from hack.local.devices import PlayedCard
from hack.local.install_real import RealInstallation
from labeler.contract import keys
from labeler.contract.annotations import SlotCard, decode_allocation
from webhook.cli.terminal import table
from webhook.kube.client import MERGE_PATCH

NAMESPACE: Final = "demo"
CARDS: Final = [PlayedCard(number, tiles=2) for number in range(4)]
SHAPE: Final = nodes.Shape(nodes=8, blocks=2, subblocks=2)
_SECONDS: Final = 120.0
_LOOK: Final = ["sh", "-c", "cd /dev/dri && echo *; echo ${ZE_AFFINITY_MASK:--}"]

WORKLOAD: Final[dict[str, tuple[int, dict[str, int]]]] = {
    "share": (4, {keys.I915: 1, keys.MILLICORES: 500}),
    "tiles": (2, {keys.I915: 1, keys.TILES: 1}),
    "pair": (1, {keys.I915: 2, keys.TILES: 2}),
}
"""Gang -> how many pods, and what each asks for."""


@dataclass(frozen=True)
class SeenInside:
    """What one pod's container sees, beside what its annotations promise it."""

    name: str
    node: str
    promised: tuple[SlotCard, ...]
    files: frozenset[str]
    mask: str

    @property
    def fault(self) -> str | None:
        """What is not as promised, as a sentence."""
        cards = [card for card in CARDS if card.number in {share.card for share in self.promised}]
        wanted = frozenset(path.rpartition("/")[2] for card in cards for path in card.nodes)
        if not self.promised:
            return f"{self.name} has no cards in its annotations"
        if self.files != wanted:
            return f"{self.name} sees {sorted(self.files)} instead of {sorted(wanted)}"
        if self.mask != self._wanted_mask(cards):
            return f"{self.name} has the mask {self.mask} instead of {self._wanted_mask(cards)}"
        return None

    def _wanted_mask(self, cards: Sequence[PlayedCard]) -> str:
        """The positions of the promised tiles, counted as Level Zero does: over the cards that are there."""
        every = [(card.number, tile) for card in cards for tile in range(card.tiles)]
        wanted = [(share.card, tile) for share in self.promised for tile in share.tiles]
        return ",".join(str(every.index(each)) for each in wanted) or "-"


def run(*, keep: bool) -> int:
    """Run the demo; returns the exit status. keep: leave the cluster up and print its KUBECONFIG."""
    started = time.monotonic()
    folder = clusters_folder() / "demo-real"
    try:
        announce("Starting a control plane, containerd and a kubelet in namespaces of their own ...")
        cluster = Cluster.up(folder, tied=not keep, real_node=True)
    except (ClusterError, NoControlPlaneError) as error:
        print(f"hack/demo --real-node: {error}", file=sys.stderr)
        return 1
    try:
        _install(cluster)
        found = _play(cluster) + _follow_task(cluster)
        for sentence in found:
            print(f"NOT AS IT SHOULD BE: {sentence}")
        print(f"{'FAILED' if found else 'As it should be'}, after {time.monotonic() - started:.0f} s.")
        return 1 if found else 0
    except (ClusterError, BaseError, BuildError) as error:
        print(f"hack/demo --real-node: {error}", file=sys.stderr)
        return 1
    finally:
        if keep:
            print(f"export KUBECONFIG={cluster.kubeconfig}   # and later: hack/cluster down --name demo-real")
            print(f"export PATH={cluster.write_tools()}:$PATH")
        else:
            cluster.down()


def _install(cluster: Cluster) -> None:
    devices.plug(cluster.namespaces, CARDS)
    nodes.register(cluster.api(), nodes.grid(SHAPE), tainted=True)
    labels = dict(zip(keys.PRERELEASE_TOPOLOGY, ("b0", "s0", "real"), strict=True))
    labels |= {"gpu.intel.com/product": "Max_1550"}  # as Intel's node tools name the model of these cards
    path = f"/api/v1/nodes/{node.NAME}"
    cluster.api().request("PATCH", path, body={"metadata": {"labels": labels}}, content_type=MERGE_PATCH)
    announce(
        "Installing topogate with its allocator (kubectl apply -k), its programs as pods of that node ..."
    )
    installation = RealInstallation(cluster, components=("labeler-extended-resources", "allocator"))
    installation.apply()
    installation.wait()

    def offered() -> bool:
        allocatable = cluster.api().json("GET", path)["status"]["allocatable"]
        return all(allocatable.get(key, "0") != "0" for key in (keys.I915, keys.TILES, keys.MILLICORES))

    cluster.wait_for("the node to offer its cards", offered)


def _play(cluster: Cluster) -> list[str]:
    """Create the gangs and look into their containers; returns the faults as sentences."""
    api = cluster.api()
    labels = {keys.INJECTION_LABEL: keys.INJECTION_ENABLED}
    api.request("POST", "/api/v1/namespaces", body={"metadata": {"name": NAMESPACE, "labels": labels}})
    wanted = sum(count for count, _ in WORKLOAD.values())
    announce(f"Creating {len(WORKLOAD)} gangs of {wanted} pods in all ...")
    for name, (count, limits) in WORKLOAD.items():
        api.request("POST", f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs", body=_job(name, count, limits))
    path = f"/api/v1/namespaces/{NAMESPACE}/pods"

    def running() -> list[dict[str, Any]]:
        return [pod for pod in api.json("GET", path)["items"] if pod["status"].get("phase") == "Running"]

    cluster.wait_for(f"all {wanted} pods to run", lambda: len(running()) == wanted, _SECONDS)
    seen = [_look_inside(cluster, pod) for pod in sorted(running(), key=lambda pod: pod["metadata"]["name"])]
    rows = [("POD", "NODE", "PROMISED", "DEVICES INSIDE", "ZE_AFFINITY_MASK INSIDE")]
    rows += [
        (each.name, each.node, _text(each.promised), " ".join(sorted(each.files)), each.mask) for each in seen
    ]
    print(table(rows, is_full_width=True))
    return [each.fault for each in seen if each.fault]


def _follow_task(cluster: Cluster) -> list[str]:
    """Start a GPUTask as a user does and follow it to its end; returns the faults as sentences."""
    words = ["run", "--follow", "--name", "hello", "--model", "max-1550", "--image", BUSYBOX]
    words += ["--", "sh", "-c", "echo I have $(ls /dev/dri)"]
    announce(f"\n$ topogate {' '.join(words[:-1])} '{words[-1]}'")
    try:
        output = topogate(cluster, NAMESPACE, *words, seconds=_SECONDS)
    except subprocess.TimeoutExpired:
        output = topogate(cluster, NAMESPACE, "explain", "task/hello")
        return [f"the task hello has not ended after {_SECONDS:.0f} s: {output.stdout}{output.stderr}"]
    print(output.stderr + output.stdout, end="")
    ended = topogate(cluster, NAMESPACE, "ps", "--all", "hello").stdout
    print(ended, end="")
    as_it_should = output.returncode == 0 and "I have card" in output.stdout and "Succeeded" in ended
    return [] if as_it_should else [f"the task hello ended with status {output.returncode}, without its card"]


def _look_inside(cluster: Cluster, pod: dict[str, Any]) -> SeenInside:
    name = pod["metadata"]["name"]
    files, mask = cluster.kubectl("exec", "-n", NAMESPACE, name, "--", *_LOOK).stdout.splitlines()
    plan = decode_allocation(pod["metadata"].get("annotations") or {}, 1)
    promised = tuple(plan.slots[0]) if plan else ()
    return SeenInside(name, pod["spec"]["nodeName"], promised, frozenset(files.split()), mask)


def _text(promised: Sequence[SlotCard]) -> str:
    parts = [
        f"card{share.card}" + (f" tile {'+'.join(map(str, share.tiles))}" if share.tiles else "")
        for share in promised
    ]
    return ", ".join(parts) or "-"


def _job(name: str, count: int, limits: dict[str, int]) -> dict[str, Any]:
    container = {
        "name": "main",
        "image": BUSYBOX,
        "imagePullPolicy": "Never",
        "command": ["sleep", "infinity"],
        "resources": {"limits": {key: str(value) for key, value in limits.items()}},
    }
    spec = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 0, "containers": [container]}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {
            "completionMode": "Indexed",
            "completions": count,
            "parallelism": count,
            "template": {"spec": spec},
        },
    }
