"""A Kubernetes control plane on loopback, in a folder of its own, several side by side.

All state is in the folder: keys, kubeconfig, logs, and the ids of the processes. A process that holds the
folder can look at the cluster, stop it, or replace what a killed run has left.
"""

import contextlib
import json
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

from hack.images import small
from hack.local import controlplane, native_gangs, node, processes
from hack.local.access import READY_SECONDS, ClusterError, ClusterFolder, WaitedInVainError
from hack.local.build import NODE_PROGRAMS, ROOT, Programs, programs
from hack.local.controlplane import Ports
from hack.local.namespaces import HOLD, Namespaces
from hack.local.node import RealNode
from hack.local.processes import Started
from webhook.kube.client import ApiError

__all__ = ["READY_SECONDS", "Cluster", "ClusterError"]

_PORT_ATTEMPTS: Final = 3
_STATE: Final = "cluster.json"
_HOLDER: Final = "namespaces"
_RELAY: Final = "relay"


class _PortTakenError(ClusterError):
    pass


@dataclass
class Cluster(ClusterFolder):
    """One control plane. Make it with `up`, or find a running one with `load`."""

    running: dict[str, Started] = field(default_factory=dict)
    tied: bool = False
    real: RealNode | None = None
    """The real node, if there is one. All programs are in its namespaces then."""
    native_gangs: str = ""
    """One of native_gangs.MODES: whether Kubernetes' own gang scheduling is on."""

    # --- life -----------------------------------------------------------------------------------

    @classmethod
    def up(
        cls, folder: Path, *, tied: bool = False, real_node: bool = False, native_gangs: str = ""
    ) -> "Cluster":
        """Start a new cluster in `folder`, in place of whatever an earlier run left there.

        tied: it ends with the thread that called this. real_node: it has a node with a kubelet and
        containers (root is needed). native_gangs: one of native_gangs.MODES. Raises ClusterError,
        NoControlPlaneError, ValueError for a release of Kubernetes without native gangs.
        """
        if real_node and (reason := node.lacking()):
            raise ClusterError(reason)
        found = programs()
        if real_node and (missing := [name for name in NODE_PROGRAMS if name not in found.commands]):
            raise ClusterError(f"a real node needs {', '.join(missing)}, which {found.origin} has not")
        for attempt in range(1, _PORT_ATTEMPTS + 1):
            cls.clear(folder)
            folder.mkdir(parents=True)
            (folder / "logs").mkdir()
            real = RealNode(folder.resolve()) if real_node else None
            cluster = cls(folder, Ports.free(), found, tied=tied, real=real, native_gangs=native_gangs)
            controlplane.write_files(folder, cluster.ports, real)
            try:
                cluster._start_all()
            except BaseException as error:
                cluster.down(keep_folder=True)
                if isinstance(error, _PortTakenError) and attempt < _PORT_ATTEMPTS:
                    continue
                raise
            return cluster
        raise AssertionError("unreachable")

    @classmethod
    @contextlib.contextmanager
    def fresh(cls, native_gangs: str = "") -> Iterator["Cluster"]:
        """A new cluster in a folder that is made for it; neither is there afterwards. As `up` else."""
        with tempfile.TemporaryDirectory() as folder:
            is_main = threading.current_thread() is threading.main_thread()
            cluster = cls.up(Path(folder) / "cluster", tied=is_main, native_gangs=native_gangs)
            try:
                yield cluster
            finally:
                cluster.down()

    @classmethod
    def load(cls, folder: Path) -> "Cluster":
        """The cluster that was started in `folder`. Raises ClusterError if there is none."""
        try:
            state = json.loads((folder / _STATE).read_text())
        except OSError as error:
            raise ClusterError(f"no cluster in {folder}: start one with hack/cluster up") from error
        return cls(
            folder,
            Ports(**state["ports"]),
            Programs(state["commands"], state["origin"]),
            {name: Started(**each) for name, each in state["running"].items()},
            real=RealNode(folder.resolve()) if state["real"] else None,
            native_gangs=state.get("native_gangs", ""),
        )

    @classmethod
    def clear(cls, folder: Path) -> None:
        """Stop what still runs from an earlier cluster in `folder` and remove it."""
        if not folder.exists():
            return
        if not (folder / _STATE).exists() and any(folder.iterdir()):
            raise ClusterError(
                f"{folder} is not empty and holds no cluster; it is left alone. Name another folder."
            )
        with contextlib.suppress(ClusterError):
            cls.load(folder).down(keep_folder=True)
        shutil.rmtree(folder)

    def down(self, *, keep_folder: bool = False) -> None:
        """Stop every program in the one order that ends cleanly, then remove the folder.

        The API server ends before etcd: without etcd it hangs in its shutdown hooks. With a real node
        there is nothing to do in order: all of it ends at once with its namespaces.
        """
        while self._clients:
            self._clients.popitem()[1].close()
        if self.real is not None:
            self._end_namespaces(self.real)
        others = [name for name in self.running if name not in controlplane.START_ORDER]
        for name in [*others, *reversed(controlplane.START_ORDER)]:
            self.stop(name)
        if not keep_folder:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _start_all(self) -> None:
        self._save()
        if self.real is not None:
            self._make_namespaces(self.real)
        for name in controlplane.START_ORDER:
            if name not in self.programs.commands:
                continue
            self.start(name, wait=name in ("etcd", "kube-apiserver"))
        for name in controlplane.START_ORDER[2:]:
            if name in self.programs.commands:
                self.wait_ready(name)
        if "kube-controller-manager" in self.programs.commands:
            self.wait_for("the controllers to make the default ServiceAccount", self._has_default_account)
        if self.real is not None:
            self.start("containerd")
            archive = self.real.files / "image.tar"
            for image in (node.PAUSE_IMAGE, small.BUSYBOX):
                small.busybox(archive, image)
                self.real.import_image(self.namespaces, archive)
            archive.unlink()
            for name in ("kubelet", "kube-proxy"):
                self.start(name)
            self.wait_for(f"node {node.NAME} to be ready", self._real_node_is_ready)

    def _make_namespaces(self, real: RealNode) -> None:
        self.running[_HOLDER] = processes.start(HOLD, self.log(_HOLDER), tied=self.tied)
        self._save()
        self.wait_for("the node's namespaces", lambda: "ready" in self.log(_HOLDER).read_text())
        real.prepare(self.namespaces)
        # Started outside of their network, it moves in when it has its ports here.
        ports = [str(port) for port in asdict(self.ports).values()]
        relay = [sys.executable, "-m", "hack.local.relay", str(self.namespaces.holder), *ports]
        environment = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"}
        self.running[_RELAY] = processes.start(
            relay,
            self.log(_RELAY),
            environment=environment,
            tied=self.tied,
            within=self.namespaces,
            network=False,
        )
        self._save()
        self.wait_for("the relay", lambda: self._runs(_RELAY) and "ready" in self.log(_RELAY).read_text())

    def _end_namespaces(self, real: RealNode) -> None:
        holder = self.running.pop(_HOLDER, None)
        if holder is not None:
            holder.send(signal.SIGKILL)  # it holds SIGTERM back until its child has ended
            processes.wait_ended(holder, 10)
        for process in self.running.values():
            processes.wait_ended(process, 10)
        real.remove_cgroups()

    # --- single programs ------------------------------------------------------------------------

    def start(self, name: str, *, wait: bool = True) -> None:
        """Start one program of the control plane or of the real node (again)."""
        self.stop(name)
        of_node = self.real is not None and name in node.START_ORDER
        if self.real is not None and of_node:
            command = self.real.command(name, self.programs.commands)
        else:
            flags = controlplane.flags(name, self.folder, self.ports, self.real)
            command = [*self.programs.commands[name], *flags, *native_gangs.flags(name, self.native_gangs)]
        within = self.namespaces if self.real is not None else None
        self.running[name] = processes.start(
            command, self.log(name), tied=self.tied, within=within, mounts=of_node
        )
        self._save()
        if wait:
            self.wait_ready(name)

    def stop(self, name: str) -> None:
        """Stop one program, and wait until it is gone."""
        process = self.running.pop(name, None)
        if process is not None:
            processes.stop(process)
            self._save()

    def adopt(self, name: str, process: Started) -> None:
        """Count a process that others have started as the cluster's: status reports it, down stops it."""
        self.running[name] = process
        self._save()

    @contextlib.contextmanager
    def paused(self, name: str) -> Iterator[None]:
        """Hold a program still, e.g. kwok during a measurement."""
        try:
            processes.pause(self.running[name])
            yield
        finally:
            self.running[name].send(signal.SIGCONT)

    def wait_ready(self, name: str) -> None:
        """Wait until a program says that it is ready. Raises ClusterError with the end of its log."""

        def is_ready() -> bool:
            self._runs(name)
            if self.real is not None:
                self._runs(_RELAY)  # without it nothing inside is heard
            if self.real is not None and name in node.START_ORDER:
                return self.real.is_ready(name, self.namespaces)
            return controlplane.is_ready(name, self.folder, self.ports)

        try:
            self.wait_for(f"{name} to be ready", is_ready)
        except WaitedInVainError as error:
            raise ClusterError(f"{error}; {self._last_lines(name)}") from error

    def _runs(self, name: str) -> bool:
        """True. Raises ClusterError with the end of its log if a program has ended."""
        if not self.running[name].alive:
            lines = self._last_lines(name)
            error = _PortTakenError if "address already in use" in lines.lower() else ClusterError
            raise error(f"{name} ended while the cluster started; {lines}")
        return True

    def _last_lines(self, name: str) -> str:
        return f"the end of {self.log(name)}:\n{self.log(name).read_text(errors='replace')[-3000:]}"

    @property
    def namespaces(self) -> Namespaces:
        """Where the real node is. Raises ClusterError if the cluster has none, or has ended."""
        if _HOLDER not in self.running:
            raise ClusterError(f"the cluster in {self.folder} has no real node, or has ended")
        return Namespaces(self.running[_HOLDER].pid)

    @property
    def alive(self) -> dict[str, bool]:
        """Which of its programs run."""
        return {name: process.alive for name, process in self.running.items()}

    def _has_default_account(self) -> bool:
        try:
            self.api().request("GET", "/api/v1/namespaces/default/serviceaccounts/default")
        except ApiError:
            return False
        return True

    def _real_node_is_ready(self) -> bool:
        try:
            found = self.api().json("GET", f"/api/v1/nodes/{node.NAME}")
        except ApiError:
            return False
        conditions = found.get("status", {}).get("conditions", [])
        return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)

    def _save(self) -> None:
        if not self.folder.exists():
            return
        state = {
            "ports": asdict(self.ports),
            "commands": self.programs.commands,
            "origin": self.programs.origin,
            "real": self.real is not None,
            "native_gangs": self.native_gangs,
            "running": {name: asdict(process) for name, process in self.running.items()},
        }
        partial = self.folder / f"{_STATE}.partial"
        partial.write_text(json.dumps(state, indent=1))
        partial.replace(self.folder / _STATE)
