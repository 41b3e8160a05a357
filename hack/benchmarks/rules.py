"""What host ports and anti-affinity cost a pass of the sweeper, beside a pass in which nobody has any.

CPU time of looking at the cluster and of making the snapshot that gangs are placed on, without an API server.
"steady" is a pass in which nothing has changed, "new" one that sees another gang, with a rule of its own.
The garbage collector is held still, as its full rounds would fall on any of them.
"""

import argparse
import gc
import statistics
import sys
import time
from typing import Any, Final

import msgspec

from hack.local import nodes
from labeler.contract import keys
from webhook.kube.devices import DeviceClass
from webhook.kube.objects import Node, Pod
from webhook.kube.placements import Placement
from webhook.sweeper.observe.snapshotter import Snapshotter
from webhook.sweeper.settings import Settings

GANG: Final = 64
NAMESPACES: Final = 50
APPS: Final = 2000
PORT: Final = 9100


class CachedObjects:
    """Objects as the cache would hold them."""

    def __init__(self, standing: list[Pod], count: int) -> None:
        """count: of nodes."""
        grid = nodes.grid(nodes.Shape(count, max(1, count // 500), 10))
        bodies = {each.name: each.manifest(each.topology_labels) for each in grid}
        for name, body in bodies.items():
            body["metadata"]["uid"] = name
        self.nodes = {name: msgspec.convert(body, Node) for name, body in bodies.items()}
        self.pods = standing

    def pod_items(self) -> list[Pod]:
        """All pods."""
        return self.pods

    def node_items(self) -> dict[str, Node]:
        """Nodes by name."""
        return self.nodes

    def current_placements(self) -> dict[str, Placement]:
        """None."""
        return {}

    def namespace_labels(self) -> None:
        """None."""

    def storage(self, is_wanted: bool) -> None:
        """None."""

    def supply(self, is_wanted: bool) -> None:
        """None."""

    def device_classes(self) -> dict[str, DeviceClass]:
        """None."""
        return {}


def pod(number: int, namespace: str, app: str, *, repels: bool, port: int = 0, node: str = "") -> Pod:
    """A pod, of an app whose pods may repel each other; without a node it waits."""
    container: dict[str, Any] = {"name": "c", "resources": {"requests": {"cpu": "100m", "memory": "1Gi"}}}
    container["ports"] = [{"containerPort": port or 8080, **({"hostPort": port} if port else {})}]
    spec: dict[str, Any] = {"containers": [container]}
    spec |= {"nodeName": node} if node else {"schedulingGates": [{"name": keys.GATE}]}
    if repels:
        term = {"topologyKey": keys.HOSTNAME_LABEL, "labelSelector": {"matchLabels": {"app": app}}}
        spec["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    metadata = {"name": f"p{number}", "namespace": namespace, "uid": f"u{number}", "labels": {"app": app}}
    return msgspec.convert({"metadata": metadata, "spec": spec}, Pod)


def standing(pods: int, names: list[str], *, with_rules: bool) -> list[Pod]:
    """Pods that have nodes. with_rules: a tenth with anti-affinity of their own, a tenth with a host port."""
    return [
        pod(
            number,
            f"ns{number % NAMESPACES}",
            f"app{number % APPS}",
            repels=with_rules and number % 10 == 0,
            port=PORT if with_rules and number % 10 == 1 else 0,
            node=names[number % len(names)],
        )
        for number in range(pods)
    ]


def gang(number: int, *, repels: bool = False, port: int = 0) -> list[Pod]:
    """Waiting pods in a namespace of their own."""
    first = 10**7 + number * GANG
    return [pod(first + n, f"team{number}", f"gang{number}", repels=repels, port=port) for n in range(GANG)]


def passes(cluster: CachedObjects, newcomer: list[Pod], repeats: int) -> tuple[float, float]:
    """Milliseconds of CPU time of a steady pass, and of the one in which the newcomer is seen first."""
    snapshotter = Snapshotter(cluster, Settings())
    once(snapshotter)
    steady = statistics.median(once(snapshotter) for _ in range(repeats))
    cluster.pods = [*cluster.pods, *newcomer]
    return steady, once(snapshotter)


def once(snapshotter: Snapshotter) -> float:
    """Milliseconds of CPU time of one pass."""
    gc.disable()
    try:
        began = time.process_time()
        snapshotter.snapshot(snapshotter.view())
        return (time.process_time() - began) * 1000
    finally:
        gc.enable()


def main(argv: list[str] | None = None) -> int:
    """Print the measurements."""
    parser = argparse.ArgumentParser(prog="hack/bench rules", description=__doc__)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--pods", type=int, default=50_000)
    parser.add_argument("--gangs", type=int, default=200, help="waiting ones in the last case")
    parser.add_argument("--repeats", type=int, default=7)
    args = parser.parse_args(argv)
    plain = CachedObjects([], args.nodes)
    names = list(plain.nodes)
    without = standing(args.pods, names, with_rules=False)
    ruled = standing(args.pods, names, with_rules=True)
    free = [each for number in range(args.gangs) for each in gang(number)]
    bound = [each for number in range(args.gangs) for each in gang(number, repels=True)]
    cases = (
        ("nobody has rules", without, gang(0), gang(1)),
        ("others have rules", ruled, gang(0), gang(1)),
        ("a gang with a host port", ruled, gang(0, port=PORT), gang(1, port=PORT + 1)),
        ("a gang with anti-affinity", ruled, gang(0, repels=True), gang(1, repels=True)),
        (f"{args.gangs} gangs without rules", without, free, gang(args.gangs)),
        (f"{args.gangs} gangs with anti-affinity", ruled, bound, gang(args.gangs, repels=True)),
    )
    base: tuple[float, float] | None = None
    print(f"{args.nodes} nodes, {args.pods} pods, gangs of {GANG}; CPU time of a pass before placing:")
    for name, there, waiting, newcomer in cases:
        plain.pods = [*there, *waiting]
        steady, new = passes(plain, newcomer, args.repeats)
        base = base or (steady, new)
        print(
            f"  {name:<32} steady {steady:5.0f} ms ({steady / base[0]:4.2f}x)   "
            f"new {new:5.0f} ms ({new / base[1]:4.2f}x)"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
