"""Install topogate in a local cluster as its manifests say, and run its programs as local processes.

The overlay that is made here changes two things alone: the webhook configuration names a loopback
address (a Service needs a network between pods), and there is one replica of each program.
"""

import base64
import os
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from ssl import create_default_context
from typing import Any, Final

import yaml

from hack.local import kubelet, nodes
from hack.local.build import ROOT
from hack.local.cluster import Cluster, ClusterError
from hack.local.controlplane import free_port
from hack.local.kubelet import Program
from hack.local.nodes import SimulatedNode
from webhook.kube.client import Api

SYSTEM: Final = "topogate-system"
LABELER: Final = "topogate-labeler"
IMAGES: Final = ("topogate", "topogate-labeler")
WEBHOOKS: Final = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/topogate"
_PARALLEL_LABELERS: Final = 4
_Loader: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass
class Installation:
    """topogate in a local cluster. root: the working tree that its manifests and programs are taken from."""

    cluster: Cluster
    base: str = "base"
    components: tuple[str, ...] = ()
    image_tag: str = ""
    root: Path = ROOT
    webhook_port: int = field(default_factory=free_port)
    programs: dict[str, Program] = field(default_factory=dict)

    @property
    def api(self) -> Api:
        """A client with the administrator's rights."""
        return self.cluster.api()

    @property
    def folder(self) -> Path:
        """Where the overlay is that was applied."""
        return self.cluster.folder / "install"

    def set_up(self, facts: dict[str, Any] | None = None) -> None:
        """Register a node for topogate's own pods, and apply the manifests as `apply` does."""
        nodes.register(self.api, [system_node()], labelled=False)
        self.apply(facts)

    def apply(self, facts: dict[str, Any] | None = None) -> None:
        """Apply the manifests. facts: what the labelers' facts file says of each node."""
        folder = self.folder
        folder.mkdir(exist_ok=True)
        (folder / "kustomization.yaml").write_text(yaml.safe_dump(self._overlay(folder, facts or {})))
        rendered = self.cluster.kubectl("kustomize", str(folder)).stdout
        # Definitions and namespaces first: the rest refers to them.
        documents = yaml.load_all(rendered, _Loader)
        crds = [each for each in documents if each["kind"] == "CustomResourceDefinition"]
        self.cluster.kubectl("apply", "--server-side", "-f", "-", stdin=yaml.safe_dump_all(crds))
        self.cluster.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=120s")
        self.cluster.kubectl("apply", "--server-side", "-f", "-", stdin=rendered)

    def start(self, names: Sequence[str] = ("certs", "webhook", "sweeper", "tasks")) -> None:
        """Run the programs of the system namespace, each under the identity of its own pod.

        They start side by side, and the webhook answers when this returns.
        """
        for name in names:
            self.programs[name] = self.program_of(SYSTEM, {"app.kubernetes.io/component": name})
            if name == "certs":
                self._run_certs(self.programs[name])
            elif name == "webhook":
                self.programs[name].start("--bind", f"127.0.0.1:{self.webhook_port}")
            else:
                self.programs[name].start(
                    "--metrics-address", "127.0.0.1", "--metrics-port", str(free_port())
                )
        if "webhook" in names:
            self.cluster.wait_for("the webhook to be ready", self._webhook_is_ready)

    def label(
        self, simulated: Sequence[SimulatedNode], progress: Callable[[int], None] = lambda _: None
    ) -> None:
        """Run the labeler of each node once, under the token of its own DaemonSet pod."""
        wanted = {node.name for node in simulated}
        pods: dict[str, dict[str, Any]] = {}

        def all_bound() -> bool:
            for pod in self._pods(LABELER, {"app.kubernetes.io/name": "labeler"}):
                if pod["spec"].get("nodeName") in wanted and self._is_current(pod):
                    pods[pod["spec"]["nodeName"]] = pod
            return wanted <= pods.keys()

        self.cluster.wait_for("a labeler pod on every node", all_bound)
        done = iter(range(1, len(pods) + 1))

        def run(pod: dict[str, Any]) -> None:
            program = self._of_root(kubelet.prepare(self.cluster, pod, kubeconfig=False, tied=False))
            _run_to_end(self.cluster, program, "--oneshot")
            progress(next(done))

        with ThreadPoolExecutor(_PARALLEL_LABELERS) as pool:
            list(pool.map(run, pods.values()))

    def leave_to_cluster(self) -> None:
        """Count the programs that run as the cluster's: status reports them, down stops them."""
        for name, program in self.programs.items():
            if program.process is not None:
                self.cluster.adopt(f"topogate-{name}", program.process)

    def stop(self) -> None:
        """Stop the programs."""
        for program in self.programs.values():
            program.stop()

    # --- pieces ---------------------------------------------------------------------------------

    def _overlay(self, folder: Path, facts: dict[str, Any]) -> dict[str, Any]:
        url = {"url": f"https://127.0.0.1:{self.webhook_port}/mutate"}
        one = [{"op": "replace", "path": "/spec/replicas", "value": 1}]
        config = {
            "labeler.yaml": yaml.safe_dump({"sources": [{"file": {"path": "/etc/topogate/facts.yaml"}}]}),
            "facts.yaml": yaml.safe_dump(facts),
        }
        manifests = os.path.relpath(self.root / "manifests", folder.resolve())
        return {
            "resources": [f"{manifests}/{self.base}"],
            "components": [f"{manifests}/components/{name}" for name in self.components],
            "images": [{"name": name, "newTag": self.image_tag} for name in IMAGES if self.image_tag],
            "patches": [
                _patch(
                    "MutatingWebhookConfiguration",
                    "topogate",
                    [{"op": "replace", "path": "/webhooks/0/clientConfig", "value": url}],
                ),
                _patch("Deployment", "webhook", one),
                _patch("Deployment", "sweeper", one),
                _patch("Deployment", "tasks", one),
                _patch("ConfigMap", "labeler", [{"op": "replace", "path": "/data", "value": config}]),
            ],
        }

    def program_of(self, namespace: str, labels: dict[str, str]) -> Program:
        """The program of a pod with these labels, once there is one; the caller starts and stops it."""
        found: list[dict[str, Any]] = []

        def is_there() -> bool:
            pods = self._pods(namespace, labels)
            found[:] = [pod for pod in pods if pod["spec"].get("nodeName") and self._is_current(pod)]
            return bool(found)

        self.cluster.wait_for(f"a pod of {namespace} with {labels}", is_there)
        return self._of_root(kubelet.prepare(self.cluster, found[0], kubeconfig=True, tied=self.cluster.tied))

    def _of_root(self, program: Program) -> Program:
        """A program that takes its modules from the root, whatever the environment has installed."""
        program.environment["PYTHONPATH"] = str(self.root)
        return program

    def _is_current(self, pod: dict[str, Any]) -> bool:
        """Whether a pod is of the image that was applied last, and not about to go."""
        is_going = "deletionTimestamp" in pod["metadata"]
        return not is_going and pod["spec"]["containers"][0]["image"].endswith(self.image_tag)

    def _run_certs(self, program: Program) -> None:
        _run_to_end(self.cluster, program, "--host", "127.0.0.1", "--every", "0")

    def _pods(self, namespace: str, labels: dict[str, str]) -> list[dict[str, Any]]:
        selector = ",".join(f"{key}={value}" for key, value in labels.items())
        path = f"/api/v1/namespaces/{namespace}/pods"
        return list(self.api.json("GET", path, query={"labelSelector": selector})["items"])

    def _webhook_is_ready(self) -> bool:
        """Ask as the API server will: verified against the bundle of the webhook configuration."""
        bundle = self.api.json("GET", WEBHOOKS)["webhooks"][0]["clientConfig"].get("caBundle", "")
        program = self.programs["webhook"]
        if program.process is None or not program.process.alive:
            raise ClusterError(f"the webhook ended:\n{program.log.read_text()[-2000:]}")
        try:
            context = create_default_context(cadata=base64.b64decode(bundle).decode())
            with urllib.request.urlopen(
                f"https://127.0.0.1:{self.webhook_port}/readyz", timeout=2, context=context
            ) as answer:
                return bool(answer.status == 200)
        except (OSError, urllib.error.URLError):
            return False


def _run_to_end(cluster: Cluster, program: Program, *more: str) -> None:
    """Run a program that ends by itself. Raises ClusterError with its words if it fails."""
    result = subprocess.run(
        [*program.command, *more],
        env=program.environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    program.log.write_text(result.stdout + result.stderr)
    if result.returncode:
        raise ClusterError(f"{program.name} ended with {result.returncode}: {result.stderr.strip()[-1000:]}")


def _patch(kind: str, name: str, operations: list[dict[str, Any]]) -> dict[str, Any]:
    return {"target": {"kind": kind, "name": name}, "patch": yaml.safe_dump(operations)}


def facts_of(simulated: Sequence[SimulatedNode]) -> dict[str, Any]:
    """What the facts file says of simulated nodes."""
    return {
        node.name: {"topology": "/" + "/".join(node.place)}
        | ({"cards": node.gpus, "model": "Max_1550"} if node.intel else {})
        for node in simulated
    }


def system_node() -> SimulatedNode:
    """A node without GPUs for topogate's own pods."""
    return nodes.SimulatedNode("system", ("", "", ""), False, 0)
