"""Plays the kubelet for topogate's own pods: runs their containers as local processes.

The simulated nodes run nothing. For a pod of topogate this takes the container exactly as the manifests
have it (command, arguments, environment, volumes), writes its ConfigMaps and Secrets to files, gets the
token that a kubelet would get, bound to that pod, and starts the program under that identity. Only what
a loopback cluster cannot have differs: paths lie in a folder, and addresses are this machine's.
"""

import base64
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from hack.local import processes
from hack.local.cluster import Cluster, ClusterError
from hack.local.processes import Started
from webhook.kube.client import Api

TOKEN_SECONDS: Final = 24 * 3600


@dataclass
class Program:
    """A container of ours: its command line here, its files and its log."""

    name: str
    command: list[str]
    environment: dict[str, str]
    log: Path
    tied: bool
    process: Started | None = None
    more: tuple[str, ...] = ()

    def start(self, *more: str) -> Started:
        """Start it (again); further arguments go to the end and stay for later starts."""
        self.stop()
        self.more = more or self.more
        self.process = processes.start(
            [*self.command, *self.more], self.log, environment=self.environment, tied=self.tied
        )
        return self.process

    def stop(self) -> None:
        """Stop it as a kubelet would."""
        if self.process is not None:
            processes.stop(self.process)


def prepare(cluster: Cluster, pod: dict[str, Any], *, kubeconfig: bool, tied: bool) -> Program:
    """Make the files of a bound pod's only container. Raises ClusterError for what is not known here.

    kubeconfig: the program gets the API server's address by --kubeconfig, else by the labeler's flags.
    """
    metadata, spec = pod["metadata"], pod["spec"]
    api = cluster.api()
    folder = cluster.folder / "pods" / metadata["uid"]
    folder.mkdir(parents=True)
    mounts = _write_volumes(api, metadata["namespace"], spec, folder)
    token = folder / "token"
    token.touch(mode=0o600)
    token.write_text(_bound_token(api, pod))
    container = spec["containers"][0]
    words = [_moved(word, mounts) for word in [*container["command"], *container.get("args", [])]]
    if kubeconfig:
        cluster.write_token_kubeconfig(folder / "kubeconfig", token)
        words += ["--kubeconfig", str(folder / "kubeconfig")]
    else:
        words += ["--server", cluster.server, "--token-file", str(token)]
        words += ["--ca-file", str(cluster.certificate_authority)]
    words[0] = str(Path(sys.executable).parent / words[0])
    environment = {"PATH": "/usr/bin:/bin", "TMPDIR": str(folder)} | {
        each["name"]: _value(each, pod) for each in container.get("env", [])
    }
    name = f"{metadata['namespace']}-{metadata['name']}"
    return Program(name, words, environment, cluster.log(name), tied)


def _bound_token(api: Api, pod: dict[str, Any]) -> str:
    metadata = pod["metadata"]
    request = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {
            "expirationSeconds": TOKEN_SECONDS,
            "boundObjectRef": {
                "apiVersion": "v1",
                "kind": "Pod",
                "name": metadata["name"],
                "uid": metadata["uid"],
            },
        },
    }
    account = pod["spec"]["serviceAccountName"]
    path = f"/api/v1/namespaces/{metadata['namespace']}/serviceaccounts/{account}/token"
    return str(api.json("POST", path, body=request)["status"]["token"])


def _write_volumes(api: Api, namespace: str, spec: dict[str, Any], folder: Path) -> dict[str, Path]:
    """Mount path -> folder here, for what the pod mounts from the API server or as scratch space."""
    volumes = {volume["name"]: volume for volume in spec.get("volumes", [])}
    mounts: dict[str, Path] = {}
    for mount in spec["containers"][0].get("volumeMounts", []):
        volume = volumes[mount["name"]]
        target = folder / "volumes" / mount["name"]
        if "hostPath" in volume or "projected" in volume:
            continue  # this machine's own path; the token is written apart
        target.mkdir(parents=True, exist_ok=True)
        if "configMap" in volume:
            name = volume["configMap"]["name"]
            data = api.json("GET", f"/api/v1/namespaces/{namespace}/configmaps/{name}").get("data", {})
            # Paths inside a configuration file lie in the folder as well.
            moved = {mount["mountPath"]: target}
            files = {key: _moved(text, moved).encode() for key, text in data.items()}
        elif "secret" in volume:
            name = volume["secret"]["secretName"]
            data = api.json("GET", f"/api/v1/namespaces/{namespace}/secrets/{name}").get("data", {})
            files = {key: base64.b64decode(text) for key, text in data.items()}
        elif "emptyDir" in volume:
            files = {}
        else:
            raise ClusterError(f"volume {mount['name']} of {folder.name} is of a kind not played here")
        for key, content in files.items():
            (target / key).touch(mode=0o600)
            (target / key).write_bytes(content)
        mounts[mount["mountPath"]] = target
    return mounts


def _moved(word: str, mounts: dict[str, Path]) -> str:
    """A word of the command line with the paths of mounted volumes replaced by where they are here."""
    if not mounts:
        return word
    # One pass, whole paths only: what was put in may look like a mount path again.
    longest_first = "|".join(re.escape(path) for path in sorted(mounts, key=len, reverse=True))
    return re.sub(rf"(?<![\w./-])({longest_first})(?=/|$|\W)", lambda found: str(mounts[found[1]]), word)


def _value(variable: dict[str, Any], pod: dict[str, Any]) -> str:
    if "valueFrom" not in variable:
        return str(variable.get("value", ""))
    path = variable["valueFrom"]["fieldRef"]["fieldPath"]
    found: Any = pod
    for part in path.split("."):
        found = found[part]
    return str(found)
