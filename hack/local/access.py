"""How a cluster is used whose folder is known: its addresses, clients and logs."""

import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from hack.local import controlplane
from hack.local.build import Programs
from hack.local.controlplane import Ports
from webhook.kube.client import Api

READY_SECONDS: Final = 120.0
"""The longest that one waits for what is usually there in a moment: it bounds failing alone."""


class ClusterError(Exception):
    """The control plane could not be started or is not there; the message says where to look."""


class WaitedInVainError(ClusterError):
    """What was waited for did not come in time."""


class PatientApi(Api):
    """A client that waits longer for an answer than a program should: a busy machine is no fault."""

    def request(self, method: str, path: str, **options: Any) -> bytes:
        """As Api.request, with a minute to answer by default."""
        return super().request(method, path, **{"timeout_seconds": 60.0, **options})


@dataclass
class ClusterFolder:
    """What the folder of a cluster and its ports say."""

    folder: Path
    ports: Ports
    programs: Programs
    _clients: dict[str, Api] = field(init=False, repr=False, compare=False, default_factory=dict)

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self.folder / "kubeconfig"

    def write_tools(self) -> Path:
        """A folder for PATH, with kubectl, its plugin `kubectl topogate`, and `topogate` itself."""
        folder = self.folder / "bin"
        folder.mkdir(exist_ok=True)
        tools = {name: str(Path(sys.executable).parent / name) for name in ("kubectl-topogate", "topogate")}
        tools["kubectl"] = self.programs.commands["kubectl"][0]
        for name, target in tools.items():
            (folder / name).unlink(missing_ok=True)
            (folder / name).symlink_to(target)
        return folder

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
        """The client with the administrator's rights, one for all who ask: a connection costs more than most
        calls.
        """
        if user_agent not in self._clients:
            self._clients[user_agent] = PatientApi.connect(self.kubeconfig, user_agent=user_agent)
        return self._clients[user_agent]

    def kubectl(
        self, *arguments: str, stdin: str | None = None, check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        """Run kubectl as administrator. Raises ClusterError with its words if `check` and it fails."""
        own = ["--kubeconfig", str(self.kubeconfig), "--cache-dir", str(self.folder / "kubectl-cache")]
        result = subprocess.run(
            [*self.programs.commands["kubectl"], *own, *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
        )
        if check and result.returncode:
            raise ClusterError(f"kubectl {' '.join(arguments)}: {result.stderr.strip()}")
        return result

    def write_token_kubeconfig(self, path: Path, token_file: Path) -> None:
        """A kubeconfig for the holder of the token in `token_file`."""
        controlplane.write_kubeconfig(path, self.folder, self.ports.apiserver, {"tokenFile": str(token_file)})

    def make_namespace(self, name: str, labels: Mapping[str, str] | None = None) -> None:
        """Make a namespace, and wait until pods can be made in it."""
        api = self.api()
        api.request("POST", "/api/v1/namespaces", body={"metadata": {"name": name, "labels": labels or {}}})
        path = f"/api/v1/namespaces/{name}/serviceaccounts"
        self.wait_for(f"the ServiceAccount of {name}", lambda: bool(api.json("GET", path)["items"]))

    def wait_for(self, what: str, condition: Callable[[], bool], seconds: float = READY_SECONDS) -> None:
        """Wait for a condition. Raises WaitedInVainError naming it."""
        started = time.monotonic()
        while not condition():
            waited = time.monotonic() - started
            if waited > seconds:
                raise WaitedInVainError(
                    f"waited {seconds:.0f} s in vain for {what}; logs are in {self.folder / 'logs'}"
                )
            # Often at first, then a tenth late at most: each question costs CPU of those who are waited for.
            time.sleep(min(max(waited / 10, 0.02), 0.25))
