"""hack/cluster: start, look at and stop local control planes by name."""

import argparse
import sys
import time
from pathlib import Path

from hack.images.debian import BaseError
from hack.images.lock import BuildError
from hack.local import native_gangs, node, nodes
from hack.local.build import NoControlPlaneError, announce, clusters_folder
from hack.local.cluster import Cluster, ClusterError
from hack.local.install import Installation
from hack.local.install_real import RealInstallation
from labeler.contract import keys


def main() -> int:
    """Run hack/cluster; returns the exit status."""
    arguments = _parser().parse_args()
    folder = clusters_folder() / arguments.name
    try:
        if arguments.command == "up":
            return _up(folder, arguments)
        cluster = Cluster.load(folder)
    except (ClusterError, NoControlPlaneError, BaseError, BuildError, ValueError) as error:
        print(f"hack/cluster {arguments.command}: {error}", file=sys.stderr)
        return 1
    if arguments.command == "down":
        cluster.down()
        announce(f"Stopped and removed {folder}.")
    elif arguments.command == "kubeconfig":
        print(cluster.kubeconfig)
    else:
        print(f"{cluster.server}  {cluster.programs.origin}")
        for name, alive in cluster.alive.items():
            print(f"{name:24} {'running' if alive else 'ENDED, see ' + str(cluster.log(name))}")
        return 0 if all(cluster.alive.values()) else 1
    return 0


def _up(folder: Path, arguments: argparse.Namespace) -> int:
    shape = nodes.Shape(
        arguments.nodes, arguments.blocks, arguments.subblocks, arguments.gpus, arguments.intel
    )
    if folder.exists() and any(Cluster.load(folder).alive.values()):
        raise ClusterError(
            f"{arguments.name!r} is already up; stop it with hack/cluster down --name {arguments.name}"
        )
    started = time.monotonic()
    cluster = Cluster.up(folder, real_node=arguments.real_nodes == 1, native_gangs=arguments.native_gangs)
    for name in cluster.programs.missing:
        announce(f"{cluster.programs.origin} has no {name}: what needs it cannot run here.")
    try:
        if arguments.topogate:
            _install(cluster)
        nodes.register(cluster.api(), nodes.grid(shape), tainted=cluster.real is not None)
    except BaseException:
        cluster.down()
        raise
    real = f" and a real one, {node.NAME}" if cluster.real else ""
    announce(f"Up in {time.monotonic() - started:.1f} s with {arguments.nodes} simulated nodes{real}. Now:")
    print(f"export KUBECONFIG={cluster.kubeconfig}")
    print(f"export PATH={cluster.write_tools()}:$PATH   # kubectl, kubectl topogate, and topogate")
    if arguments.topogate:
        print(f"kubectl label namespace default {keys.INJECTION_LABEL}={keys.INJECTION_ENABLED}")
    return 0


def _install(cluster: Cluster) -> None:
    if cluster.real is not None:
        announce(f"Installing topogate: its manifests, and its programs as pods on {node.NAME} ...")
        real = RealInstallation(cluster)
        real.apply()
        real.wait()
        return
    announce(
        "Installing topogate: its manifests, and each program as a local process under its pod's identity ..."
    )
    installation = Installation(cluster)
    installation.set_up()
    installation.start()
    installation.leave_to_cluster()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="hack/cluster", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, text in (
        ("up", "start a cluster with simulated nodes"),
        ("down", "stop a cluster and remove its folder"),
        ("status", "tell which of its programs run"),
        ("kubeconfig", "print the path of the administrator's kubeconfig"),
    ):
        command = commands.add_parser(name, help=text)
        command.add_argument("--name", default="default", help="which cluster; several run side by side")
        if name == "up":
            command.add_argument("--nodes", type=int, default=64)
            command.add_argument("--blocks", type=int, default=4)
            command.add_argument("--subblocks", type=int, default=2, help="subblocks of each block")
            command.add_argument("--gpus", type=int, default=8, help="GPUs of each node")
            command.add_argument(
                "--real-nodes",
                type=int,
                choices=(0, 1),
                default=0,
                help="a node with a kubelet and containers beside the simulated ones; needs root",
            )
            command.add_argument(
                "--topogate", action="store_true", help="install topogate: GPU pods are gated and placed"
            )
            command.add_argument(
                "--native-gangs",
                nargs="?",
                choices=native_gangs.MODES[1:],
                const="pods",
                default="",
                help="Kubernetes' own gang scheduling (1.36 or newer); jobs: the Job controller uses it too",
            )
            command.add_argument(
                "--intel", type=int, default=0, help="how many nodes carry two Intel cards instead"
            )
    return parser


if __name__ == "__main__":
    sys.exit(main())
