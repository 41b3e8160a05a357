"""The command lines of the control plane: the flags of each program, and how its readiness is seen."""

import contextlib
import fcntl
import functools
import os
import random
import socket
import ssl
import tempfile
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml

from hack.local import node, pki
from hack.local.node import RealNode

SERVICE_RANGE: Final = "10.96.0.0/16"
_SERVICE_ADDRESS: Final = "10.96.0.1"

# The clients of the API server throttle themselves at 20 to 50 requests a second by default:
# then every figure measured here would be that limit.
_UNTHROTTLED: Final = ["--kube-api-qps=5000", "--kube-api-burst=5000"]

_HANDED_OUT: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")
_NODE_PORTS: Final = 30_000  # where those of Services begin
_PRIVILEGED: Final = 1024
_PORTS: Final = 12_000
_chance: Final = random.SystemRandom()  # several processes choose at once
_given: Final[set[int]] = set()

START_ORDER: Final = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok")


@dataclass(frozen=True)
class Ports:
    """Loopback ports of one cluster."""

    etcd: int
    etcd_peer: int
    apiserver: int
    manager: int
    scheduler: int
    kwok: int

    @classmethod
    def free(cls) -> "Ports":
        """Ports that nobody uses at this moment."""
        ports: set[int] = set()
        while len(ports) < 6:
            ports.add(free_port())
        return cls(*ports)


def free_port() -> int:
    """A loopback port that nobody uses at this moment, and that nobody else who asks here is given.

    It is none of those that the kernel hands out to whoever connects, or asks for any: until the program
    listens for which it is meant, a busy machine hands out hundreds. Raises OSError if all are taken.
    """
    beyond = min(int(_HANDED_OUT.read_text().split()[0]), _NODE_PORTS)
    for _ in range(_PORTS):
        port = beyond - 1 - _chance.randrange(min(_PORTS, beyond - _PRIVILEGED))
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            if _is_claimed(port):
                return port
    raise OSError(f"no port below {beyond} is free")


def _is_claimed(port: int) -> bool:
    """Whether this process has the port now, until it ends: it may be long until a program listens there."""
    if port in _given:
        return False
    try:
        fcntl.lockf(_ports_file(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
    except OSError:  # another process has it
        return False
    _given.add(port)
    return True


@functools.cache
def _ports_file() -> int:
    # A descriptor that nothing closes: a process that closes the file once loses all of its locks on it.
    path = Path(tempfile.gettempdir()) / f"topogate-ports-{os.getuid()}"
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def write_files(folder: Path, ports: Ports, real: RealNode | None = None) -> None:
    """Write keys, certificates and kubeconfigs of a new cluster into its folder.

    real: the cluster's real node, if it has one.
    """
    secrets = folder / "pki"
    secrets.mkdir(mode=0o700)
    authority = pki.FileAuthority.create("topogate-local")
    (secrets / "ca.crt").write_bytes(authority.pem)
    hosts = [
        "127.0.0.1",
        "localhost",
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc",
        _SERVICE_ADDRESS,
        node.ADDRESS,
    ]
    authority.issue(secrets, "apiserver", "kube-apiserver", hosts=hosts)
    pki.write_key_pair(secrets, "service-account")
    identities = {
        "admin": ("admin", ["system:masters"]),
        "kube-controller-manager": ("system:kube-controller-manager", []),
        "kube-scheduler": ("system:kube-scheduler", []),
        "kwok": ("kwok", ["system:masters"]),  # plays every kubelet; no part of what is tested
    }
    for file, (name, groups) in identities.items():
        authority.issue(secrets, file, name, groups=groups)
        user = {
            "client-certificate": str(secrets / f"{file}.crt"),
            "client-key": str(secrets / f"{file}.key"),
        }
        path = folder / ("kubeconfig" if file == "admin" else f"{file}.kubeconfig")
        write_kubeconfig(path, folder, ports.apiserver, user)
    if real is not None:
        authority.issue(secrets, "apiserver-kubelet", "kube-apiserver", groups=["system:masters"])
        real.write_files(authority)
        for program in ("kubelet", "kube-proxy"):
            user = {
                "client-certificate": str(real.files / f"{program}.crt"),
                "client-key": str(real.files / f"{program}.key"),
            }
            write_kubeconfig(real.files / f"{program}.kubeconfig", folder, ports.apiserver, user)


def write_kubeconfig(path: Path, folder: Path, port: int, user: dict[str, str]) -> None:
    """Write a kubeconfig for one identity of the cluster in `folder`."""
    cluster = {"server": f"https://127.0.0.1:{port}", "certificate-authority": str(folder / "pki" / "ca.crt")}
    path.touch(mode=0o600)
    path.write_text(
        yaml.safe_dump(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{"name": "local", "cluster": cluster}],
                "users": [{"name": "user", "user": user}],
                "contexts": [{"name": "local", "context": {"cluster": "local", "user": "user"}}],
                "current-context": "local",
            }
        )
    )


def flags(program: str, folder: Path, ports: Ports, real: RealNode | None = None) -> list[str]:
    """The flags of one program of the cluster in `folder`. real: its real node, if it has one."""
    secrets = folder / "pki"
    kubeconfig = f"--kubeconfig={folder / program}.kubeconfig"
    if program == "etcd":
        return [
            f"--data-dir={folder / 'etcd'}",
            f"--listen-client-urls=http://127.0.0.1:{ports.etcd}",
            f"--advertise-client-urls=http://127.0.0.1:{ports.etcd}",
            f"--listen-peer-urls=http://127.0.0.1:{ports.etcd_peer}",
            f"--initial-advertise-peer-urls=http://127.0.0.1:{ports.etcd_peer}",
            f"--initial-cluster=default=http://127.0.0.1:{ports.etcd_peer}",
            "--unsafe-no-fsync",  # a test's data may be lost with the machine
            "--quota-backend-bytes=4294967296",
            "--log-level=warn",
        ]
    if program == "kube-apiserver":
        return [
            f"--etcd-servers=http://127.0.0.1:{ports.etcd}",
            *(_reached_by_pods(secrets) if real else _ALONE),
            f"--secure-port={ports.apiserver}",
            f"--service-cluster-ip-range={SERVICE_RANGE}",
            f"--tls-cert-file={secrets / 'apiserver.crt'}",
            f"--tls-private-key-file={secrets / 'apiserver.key'}",
            f"--client-ca-file={secrets / 'ca.crt'}",
            "--authorization-mode=Node,RBAC",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={secrets / 'service-account.pub'}",
            f"--service-account-signing-key-file={secrets / 'service-account.key'}",
            f"--audit-policy-file={Path(__file__).parent / 'audit-policy.yaml'}",
            f"--audit-log-path={folder / 'logs' / 'audit.log'}",
            "--audit-log-mode=batch",
            "--shutdown-delay-duration=0s",
            "--profiling=false",
        ]
    if program == "kube-controller-manager":
        return [
            kubeconfig,
            f"--authentication-kubeconfig={folder / program}.kubeconfig",
            f"--authorization-kubeconfig={folder / program}.kubeconfig",
            "--bind-address=127.0.0.1",
            f"--secure-port={ports.manager}",
            f"--cert-dir={folder / 'manager-certificates'}",
            "--leader-elect=false",
            "--use-service-account-credentials=true",
            f"--service-account-private-key-file={secrets / 'service-account.key'}",
            f"--root-ca-file={secrets / 'ca.crt'}",
            *_UNTHROTTLED,
        ]
    if program == "kube-scheduler":
        return [
            kubeconfig,
            f"--authentication-kubeconfig={folder / program}.kubeconfig",
            f"--authorization-kubeconfig={folder / program}.kubeconfig",
            "--bind-address=127.0.0.1",
            f"--secure-port={ports.scheduler}",
            f"--cert-dir={folder / 'scheduler-certificates'}",
            "--leader-elect=false",
            *_UNTHROTTLED,
        ]
    if program == "kwok":
        return [
            kubeconfig,
            f"--config={Path(__file__).parent / 'stages.yaml'}",
            *(
                ["--manage-all-nodes=false", f"--manage-nodes-with-label-selector=!{node.REAL_LABEL}"]
                if real
                else ["--manage-all-nodes=true"]
            ),
            "--node-lease-duration-seconds=40",
            "--cidr=10.128.0.0/9",
            "--node-ip=10.0.0.1",
            f"--server-address=127.0.0.1:{ports.kwok}",
        ]
    raise ValueError(f"no program {program!r}")


_ALONE: Final = [
    "--bind-address=127.0.0.1",
    "--advertise-address=127.0.0.1",
    # The default reconciler would publish 127.0.0.1 as an endpoint, which validation refuses.
    "--endpoint-reconciler-type=none",
]


def _reached_by_pods(secrets: Path) -> list[str]:
    """Where a real node is: its pods reach the API server, which reaches its kubelet."""
    return [
        "--bind-address=0.0.0.0",
        f"--advertise-address={node.ADDRESS}",
        "--kubelet-preferred-address-types=InternalIP",
        f"--kubelet-certificate-authority={secrets / 'ca.crt'}",
        f"--kubelet-client-certificate={secrets / 'apiserver-kubelet.crt'}",
        f"--kubelet-client-key={secrets / 'apiserver-kubelet.key'}",
        # GPU nodes are tainted with their resource's name, and pods that ask for it tolerate that.
        "--enable-admission-plugins=NodeRestriction,ExtendedResourceToleration",
    ]


def is_ready(program: str, folder: Path, ports: Ports) -> bool:
    """Whether a program answers its own readiness address."""
    addresses = {
        "etcd": f"http://127.0.0.1:{ports.etcd}/health",
        "kube-apiserver": f"https://127.0.0.1:{ports.apiserver}/readyz",
        "kube-controller-manager": f"https://127.0.0.1:{ports.manager}/healthz",
        "kube-scheduler": f"https://127.0.0.1:{ports.scheduler}/readyz",
        "kwok": f"http://127.0.0.1:{ports.kwok}/healthz",
    }
    # Controller-manager and scheduler serve certificates of their own making: only whether they answer
    # is asked, nothing is sent to them. The API server's is checked.
    context = ssl.create_default_context(cafile=str(folder / "pki" / "ca.crt"))
    if program in ("kube-controller-manager", "kube-scheduler"):
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    try:
        opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
        )
        with opener.open(addresses[program], timeout=2) as response:
            return bool(response.status == 200)
    except (OSError, urllib.error.URLError):
        return False
