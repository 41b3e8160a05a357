"""A cluster that benchmarks load: webhook and sweeper as installed, many nodes, pods by the thousand."""

import argparse
import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, Self

from hack.local import nodes
from hack.local.build import announce
from hack.local.cluster import Cluster
from hack.local.install import Installation
from hack.observing.observer import WAIT_SECONDS, cpu_seconds
from labeler.contract import keys
from tests.support import create_namespace
from webhook.kube.client import JSON_PATCH, ApiError

GPUS: Final = "nvidia.com/gpu"
CLIENTS: Final = 8
JOB: Final = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {"name": "train"},
    "spec": {
        "template": {
            "spec": {
                "restartPolicy": "Never",
                "containers": [{"name": "main", "image": "registry.example.com/train:1"}],
            }
        }
    },
}
"""What owns the pods, as most are created by a controller: pods whose owner is deleted are no gang."""


class Loaded:
    """A cluster with topogate's webhook and sweeper, simulated nodes, and pods that it is loaded with."""

    def __init__(self, cluster: Cluster, options: argparse.Namespace) -> None:
        """The cluster is fresh; set_up() makes the rest."""
        self.cluster = cluster
        self.options = options
        self.api = cluster.api()
        self.installation = Installation(cluster)
        self.namespace = self.unserved = ""
        self.owner: dict[str, Any] = {}
        self.total = options.gangs * options.pods

    @classmethod
    @contextlib.contextmanager
    def fresh(cls, options: argparse.Namespace, native_gangs: str = "") -> Iterator[Self]:
        """On a control plane of its own, set up; nothing of it is there afterwards."""
        with Cluster.fresh(native_gangs) as cluster:
            bench = cls(cluster, options)
            with bench.set_up():
                yield bench

    @contextlib.contextmanager
    def set_up(self) -> Iterator[None]:
        """Install topogate, hold kwok and the controllers still, register the nodes."""
        options = self.options
        self.installation.set_up()
        self.installation.start(("certs", "webhook", "sweeper"))
        # Gated pods come through the webhook, which leaves their gate and empties their managedFields.
        self.namespace = create_namespace(self.cluster, {keys.INJECTION_LABEL: keys.INJECTION_ENABLED})
        # The webhook is asked about no pod of the other one.
        self.unserved = create_namespace(self.cluster, {})
        with contextlib.ExitStack() as stack:
            # Held still before there are nodes: kwok would renew a Lease for each of them, and the
            # controllers would call nodes without a Lease dead.
            for program in ("kwok", "kube-controller-manager"):
                stack.enter_context(self.cluster.paused(program))
            self.owner = self._create_owner()
            stack.callback(self.installation.stop)
            shape = nodes.Shape(options.nodes, options.blocks, options.subblocks)
            began = time.perf_counter()
            grid = nodes.grid(shape)
            nodes.register(self.api, grid)
            self._untaint([node.name for node in grid])
            announce(f"Registered {len(grid)} nodes in {time.perf_counter() - began:.0f} s.")
            yield

    def _create_owner(self) -> dict[str, Any]:
        """Create the Job, whose controller is paused; returns a reference to it."""
        created = self.api.json("POST", f"/apis/batch/v1/namespaces/{self.namespace}/jobs", body=JOB)
        metadata = created["metadata"]
        return {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "name": metadata["name"],
            "uid": metadata["uid"],
            "controller": True,
        }

    def _untaint(self, names: Sequence[str]) -> None:
        """The API server taints every new node as not ready, which the controllers would undo."""

        def untaint(name: str) -> None:
            body = [{"op": "remove", "path": "/spec/taints"}]
            self.api.request("PATCH", f"/api/v1/nodes/{name}", body=body, content_type=JSON_PATCH)

        with ThreadPoolExecutor(CLIENTS) as pool:
            list(pool.map(untaint, names))

    def cpu(self) -> dict[str, float]:
        """CPU seconds that each program has used so far, user and system."""
        programs = dict(self.cluster.running)
        sweeper = self.installation.programs["sweeper"].process
        if sweeper is not None:
            programs["sweeper"] = sweeper
        names = ("etcd", "kube-apiserver", "kube-scheduler", "sweeper")
        there = [name for name in names if name in programs and programs[name].alive]
        return {name: cpu_seconds(programs[name].pid) for name in there}

    def since(self, before: Mapping[str, float]) -> dict[str, float]:
        """CPU seconds that each program has used since."""
        return {name: seconds - before[name] for name, seconds in self.cpu().items() if name in before}

    # --- pods -----------------------------------------------------------------------------------

    def pod(self, gang: int, index: int, *, gated: bool) -> dict[str, Any]:
        """A worker of a gang, with about as much beside the point as real ones have."""
        environment = [{"name": f"VARIABLE_{number}", "value": "x" * 24} for number in range(16)]
        spec: dict[str, Any] = {
            "terminationGracePeriodSeconds": 0,
            "containers": [
                {
                    "name": "main",
                    "image": "registry.example.com/train:1",
                    "command": ["torchrun", "train.py"],
                    "env": environment,
                    "resources": {"limits": {GPUS: 8}},
                }
            ],
        }
        annotations = {keys.INJECT_ANNOTATION: keys.INJECT_NO}
        if gated:
            spec["schedulingGates"] = [{"name": keys.GATE}]
            annotations = {
                keys.GANG_ANNOTATION: f"gang-{gang}",
                keys.GANG_SIZE_ANNOTATION: str(self.options.pods),
            }
        return {
            "metadata": {
                "name": f"{'gated' if gated else 'plain'}-{gang}-{index}",
                "annotations": annotations,
                "labels": {"app": "train", "example.com/worker": str(index)},
                "ownerReferences": [self.owner],
            },
            "spec": spec,
        }

    def create(self, pods: Sequence[dict[str, Any]], namespace: str = "") -> None:
        """Create pods from several clients. namespace: self.namespace without any."""
        path = f"/api/v1/namespaces/{namespace or self.namespace}/pods"

        def post(pod: dict[str, Any]) -> None:
            self.api.request("POST", path, body=pod, timeout_seconds=60)

        with ThreadPoolExecutor(CLIENTS) as pool:
            list(pool.map(post, pods))

    def members(self, *, gated: bool) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """All pods but the last of each gang, and those last ones, which make the gangs complete."""
        early, last = [], []
        for gang in range(self.options.gangs):
            pods = [self.pod(gang, index, gated=gated) for index in range(self.options.pods)]
            early += pods[:-1]
            last += pods[-1:]
        return early, last

    def clear(self) -> None:
        """Remove all pods and wait until the sweeper has removed the plans."""
        deadline = time.monotonic() + WAIT_SECONDS
        for path in (f"/api/v1/namespaces/{each}/pods" for each in (self.namespace, self.unserved)):
            while self.api.json("GET", path, query={"limit": "1"})["items"]:
                with contextlib.suppress(ApiError):  # it may take longer than one request may
                    self.api.request("DELETE", path, query={"gracePeriodSeconds": "0"}, timeout_seconds=120)
                if time.monotonic() > deadline:
                    raise TimeoutError("pods do not go away")
        self.cluster.wait_for("the plans to be gone", self._has_no_plan, 120)
        time.sleep(2)

    def _has_no_plan(self) -> bool:
        path = f"/apis/topogate.io/v1alpha1/namespaces/{self.namespace}/placements"
        try:
            return not self.api.json("GET", path)["items"]
        except ApiError as error:
            if error.is_transient:  # its storage of a custom resource starts again now and then
                return False
            raise
