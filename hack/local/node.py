"""A real node: kubelet, kube-proxy and containerd in the namespaces of one cluster.

Everything that it makes is in its own mount namespace (memory file systems over /run, /var/lib and /dev), in
its own network, or under one cgroup, so that several stand side by side and nothing is left behind.
"""

import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from hack.local import pki
from hack.local.namespaces import Namespaces

NAME: Final = "real-0"
ADDRESS: Final = "10.250.0.1"
"""The node's own, on a bridge in the cluster's network namespace."""

POD_RANGE: Final = "10.244.0.0/16"
REAL_LABEL: Final = "local.topogate.io/real"
"""On the real node alone: kwok keeps off it."""

SOCKET: Final = "/run/containerd/containerd.sock"
PAUSE_IMAGE: Final = "topogate.local/pause:1"
START_ORDER: Final = ("containerd", "kubelet", "kube-proxy")

_CNI_PLUGINS: Final = Path("/usr/lib/cni")
_CGROUPS: Final = Path("/sys/fs/cgroup")
_NEEDED: Final = {
    "containerd": "containerd",
    "runc": "runc",
    "busybox": "busybox-static",
    "ip": "iproute2",
    "iptables": "iptables",
    "nsenter": "util-linux",
    str(_CNI_PLUGINS / "ptp"): "containernetworking-plugins",
}
"""Program -> the Debian package that has it."""

# The bridge carries the node's address and is where the default route ends: what no rule of kube-proxy
# takes has no effect. Memory file systems hide the machine's own state from the node, and end with it.
_SETUP: Final = f"""
set -eu
ip link set lo up
ip link add node0 type bridge
ip address add {ADDRESS}/24 dev node0
ip link set node0 up
ip route add default dev node0
echo 1 > /proc/sys/net/ipv4/ip_forward
mount -t tmpfs -o mode=755 tmpfs /run
mount -t tmpfs -o mode=755 tmpfs /var/lib
mkdir -p /run/udev /run/lock /var/lib/kubelet /var/lib/containerd /var/lib/cni
mkdir /run/dev
mount -t tmpfs -o mode=755 tmpfs /run/dev
cp -a --one-file-system /dev/. /run/dev/
for folder in pts shm mqueue hugepages; do
    if mountpoint -q /dev/$folder; then mount --bind /dev/$folder /run/dev/$folder; fi
done
mount --move /run/dev /dev
mount --make-rshared /
"""


@dataclass(frozen=True)
class RealNode:
    """The node of the cluster in `folder`."""

    folder: Path

    @property
    def files(self) -> Path:
        """Its configuration."""
        return self.folder / "node"

    @property
    def cgroup(self) -> str:
        """The cgroup of all of its containers."""
        return "/topogate-" + str(self.folder.resolve()).strip("/").replace("/", "-")[-80:]

    def write_files(self, authority: pki.FileAuthority) -> None:
        """Write its configuration, keys and certificates."""
        self.files.mkdir()
        (self.files / "cni").mkdir()
        authority.issue(self.files, "serving", NAME, hosts=[ADDRESS, NAME])
        for program, name, groups in (
            ("kubelet", f"system:node:{NAME}", ["system:nodes"]),
            ("kube-proxy", "system:kube-proxy", []),
        ):
            authority.issue(self.files, program, name, groups=groups)
        (self.files / "resolv.conf").write_text("")  # no name server: the node speaks to addresses alone
        (self.files / "cni" / "10-pods.conflist").write_text(json.dumps(_cni()))
        (self.files / "containerd.toml").write_text(_CONTAINERD.format(cni=self.files / "cni"))
        (self.files / "kubelet.yaml").write_text(yaml.safe_dump(self._kubelet()))

    def command(self, program: str, programs: dict[str, list[str]]) -> list[str]:
        """The command line of one of its programs. programs: the first words of the built ones."""
        if program == "containerd":
            return ["containerd", "--config", str(self.files / "containerd.toml")]
        kubeconfig = f"--kubeconfig={self.files / program}.kubeconfig"
        if program == "kubelet":
            return [
                *programs["kubelet"],
                kubeconfig,
                f"--config={self.files / 'kubelet.yaml'}",
                "--root-dir=/var/lib/kubelet",
                f"--cert-dir={self.files}",
                f"--hostname-override={NAME}",
                f"--node-ip={ADDRESS}",
                f"--node-labels={REAL_LABEL}=",
            ]
        return [
            *programs["kube-proxy"],
            kubeconfig,
            "--proxy-mode=iptables",
            f"--cluster-cidr={POD_RANGE}",
            f"--hostname-override={NAME}",
            # Limits of the whole machine, which are not this node's to set.
            "--conntrack-max-per-core=0",
            "--conntrack-tcp-timeout-established=0s",
            "--conntrack-tcp-timeout-close-wait=0s",
        ]

    def prepare(self, namespaces: Namespaces) -> None:
        """Make its network and its file systems."""
        namespaces.run("sh", "-c", _SETUP)

    def is_ready(self, program: str, namespaces: Namespaces) -> bool:
        """Whether a program answers."""
        if program == "containerd":
            command = ["ctr", "--address", SOCKET, "version"]
        else:
            port = 10248 if program == "kubelet" else 10256
            command = ["busybox", "wget", "-q", "-O", "/dev/null", f"http://127.0.0.1:{port}/healthz"]
        return namespaces.run(*command, check=False).returncode == 0

    def import_image(self, namespaces: Namespaces, archive: Path) -> None:
        """Make an image known to the node. archive: as `docker save` or `hack/image build` write it."""
        namespaces.run(
            "ctr", "--address", SOCKET, "--namespace", "k8s.io", "images", "import",
            "--all-platforms", str(archive), seconds=300,
        )  # fmt: skip

    def remove_cgroups(self) -> None:
        """Remove the empty cgroups that are left when all processes have ended: they alone outlive them."""
        hierarchies = [_CGROUPS] if (_CGROUPS / "cgroup.controllers").exists() else list(_CGROUPS.iterdir())
        for hierarchy in hierarchies:
            top = hierarchy / self.cgroup.lstrip("/")
            for folder, _, _ in os.walk(top, topdown=False):
                Path(folder).rmdir()

    def _kubelet(self) -> dict[str, Any]:
        never = dict.fromkeys(("memory.available", "nodefs.available", "imagefs.available"), "0%")
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": ADDRESS,
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": True},
                "x509": {"clientCAFile": str(self.folder / "pki" / "ca.crt")},
            },
            "authorization": {"mode": "Webhook"},
            "tlsCertFile": str(self.files / "serving.crt"),
            "tlsPrivateKeyFile": str(self.files / "serving.key"),
            "containerRuntimeEndpoint": f"unix://{SOCKET}",
            "imageServiceEndpoint": f"unix://{SOCKET}",
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": self.cgroup,
            # The machine's own processes are in cgroups that are not this node's to arrange.
            "cgroupsPerQOS": False,
            "enforceNodeAllocatable": [],
            "failCgroupV1": False,
            "failSwapOn": False,
            "localStorageCapacityIsolation": False,
            "makeIPTablesUtilChains": False,
            "evictionHard": {**never, "nodefs.inodesFree": "0%"},
            "podLogsDir": str(self.folder / "logs" / "pods"),
            "resolvConf": str(self.files / "resolv.conf"),
            "registerWithTaints": [],
            "serializeImagePulls": False,
            "nodeStatusUpdateFrequency": "2s",
        }


def lacking() -> str | None:
    """What keeps a real node from running on this machine, as a sentence; None if nothing does."""
    if os.geteuid() != 0:
        return "a real node needs root, for its namespaces and for containerd: run the same with sudo"
    missing = sorted({package for program, package in _NEEDED.items() if shutil.which(program) is None})
    if missing:
        return (
            "a real node needs Debian packages that are not installed here: "
            f"apt-get install --no-install-recommends {' '.join(missing)}"
        )
    return None


def _cni() -> dict[str, Any]:
    # ptp routes between pods through the node, so that kube-proxy's rules see every packet.
    ipam = {"type": "host-local", "subnet": POD_RANGE, "routes": [{"dst": "0.0.0.0/0"}]}
    return {
        "cniVersion": "1.0.0",
        "name": "pods",
        "plugins": [
            {"type": "ptp", "ipam": ipam},
            {"type": "portmap", "capabilities": {"portMappings": True}},
        ],
    }


_CONTAINERD: Final = f"""\
version = 2
root = "/var/lib/containerd"
state = "/run/containerd"

[grpc]
  address = "{SOCKET}"

[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE_IMAGE}"
  disable_apparmor = true
  restrict_oom_score_adj = true

  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{_CNI_PLUGINS}"
    conf_dir = "{{cni}}"

  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"

  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"

    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      SystemdCgroup = false
"""
