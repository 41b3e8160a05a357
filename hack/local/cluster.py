"""A Kubernetes control plane on loopback, in a folder of its own, several side by side.

All state is in the folder: keys, kubeconfig, logs, and the ids of the processes. Whoever holds the
folder can look at the cluster, stop it, or replace what a killed run has left.
"""

import contextlib
import json
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

from hack.local import controlplane, processes
from hack.local.build import Programs, programs
from hack.local.controlplane import Ports
from hack.local.processes import Started
from webhook.kube.client import Api, ApiError

READY_SECONDS: Final = 60.0
_PORT_ATTEMPTS: Final = 3
_STATE: Final = "cluster.json"


class ClusterError(Exception):
    """The control plane could not be started or is not there; the message says where to look."""


class _PortTakenError(ClusterError):
    pass


@dataclass
class Cluster:
    """One control plane. Make it with `up`, or find a running one with `load`."""

    folder: Path
    ports: Ports
    programs: Programs
    running: dict[str, Started] = field(default_factory=dict)
    tied: bool = False

    # --- life -----------------------------------------------------------------------------------

    @classmethod
    def up(cls, folder: Path, *, tied: bool = False) -> "Cluster":
        """Start a new cluster in `folder`, in place of whatever an earlier run left there.

        tied: it ends with the thread that called this. Raises ClusterError, NoControlPlaneError.
        """
        found = programs()
        for attempt in range(1, _PORT_ATTEMPTS + 1):
            cls.clear(folder)
            folder.mkdir(parents=True)
            (folder / "logs").mkdir()
            cluster = cls(folder, Ports.free(), found, tied=tied)
            controlplane.write_files(folder, cluster.ports)
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

        The API server goes before etcd: without etcd it hangs in its shutdown hooks.
        """
        for name in reversed(controlplane.START_ORDER):
            self.stop(name)
        for name in list(self.running):
            self.stop(name)
        if not keep_folder:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _start_all(self) -> None:
        self._save()
        for name in controlplane.START_ORDER:
            if name not in self.programs.commands:
                continue
            self.start(name, wait=name in ("etcd", "kube-apiserver"))
        for name in controlplane.START_ORDER[2:]:
            if name in self.programs.commands:
                self.wait_ready(name)
        if "kube-controller-manager" in self.programs.commands:
            self.wait_for("the controllers to make the default ServiceAccount", self._has_default_account)

    # --- single programs ------------------------------------------------------------------------

    def start(self, name: str, *, wait: bool = True) -> None:
        """Start one program of the control plane (again)."""
        command = [*self.programs.commands[name], *controlplane.flags(name, self.folder, self.ports)]
        self.running[name] = processes.start(command, self.log(name), tied=self.tied)
        self._save()
        if wait:
            self.wait_ready(name)

    def stop(self, name: str) -> None:
        """Stop one program, and wait until it is gone."""
        process = self.running.pop(name, None)
        if process is not None:
            processes.stop(process)
            self._save()

    @contextlib.contextmanager
    def paused(self, name: str) -> Iterator[None]:
        """Hold a program still, e.g. kwok during a measurement."""
        self.running[name].send(signal.SIGSTOP)
        try:
            yield
        finally:
            self.running[name].send(signal.SIGCONT)

    def wait_ready(self, name: str) -> None:
        """Wait until a program says that it is ready. Raises ClusterError with the end of its log."""

        def is_ready() -> bool:
            if not self.running[name].alive:
                log = self.log(name).read_text(errors="replace")[-3000:]
                error = _PortTakenError if "address already in use" in log else ClusterError
                raise error(f"{name} ended while it started; the end of {self.log(name)}:\n{log}")
            return controlplane.is_ready(name, self.folder, self.ports)

        self.wait_for(f"{name} to be ready", is_ready)

    def wait_for(self, what: str, condition: Callable[[], bool], seconds: float = READY_SECONDS) -> None:
        """Wait for a condition. Raises ClusterError naming it."""
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                raise ClusterError(
                    f"waited {seconds:.0f} s in vain for {what}; logs are in {self.folder / 'logs'}"
                )
            time.sleep(0.05)

    # --- using it -------------------------------------------------------------------------------

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self.folder / "kubeconfig"

    @property
    def server(self) -> str:
        """The API server's address."""
        return f"https://127.0.0.1:{self.ports.apiserver}"

    @property
    def certificate_authority(self) -> Path:
        """The certificate that vouches for the API server."""
        return self.folder / "pki" / "ca.crt"

    def log(self, name: str) -> Path:
        """Where a program writes."""
        return self.folder / "logs" / f"{name}.log"

    def api(self, user_agent: str = "topogate-local") -> Api:
        """A client with the administrator's rights."""
        return Api.connect(self.kubeconfig, user_agent=user_agent)

    def kubectl(
        self, *arguments: str, stdin: str | None = None, check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        """Run kubectl as administrator. Raises ClusterError with its words if `check` and it fails."""
        result = subprocess.run(
            [*self.programs.commands["kubectl"], "--kubeconfig", str(self.kubeconfig), *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
        )
        if check and result.returncode:
            raise ClusterError(f"kubectl {' '.join(arguments)}: {result.stderr.strip()}")
        return result

    def write_token_kubeconfig(self, path: Path, token_file: Path) -> None:
        """A kubeconfig for whoever holds the token in `token_file`."""
        controlplane.write_kubeconfig(path, self.folder, self.ports.apiserver, {"tokenFile": str(token_file)})

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

    def _save(self) -> None:
        if not self.folder.exists():
            return
        state = {
            "ports": asdict(self.ports),
            "commands": self.programs.commands,
            "origin": self.programs.origin,
            "running": {name: asdict(process) for name, process in self.running.items()},
        }
        partial = self.folder / f"{_STATE}.partial"
        partial.write_text(json.dumps(state, indent=1))
        partial.replace(self.folder / _STATE)
