"""hack/demo --ui: the page over the demo's cluster, until the person who looks has seen enough."""

import sys

from hack.local.cluster import Cluster
from hack.local.controlplane import free_port
from hack.local.processes import open_tied


def serve_page(cluster: Cluster) -> None:
    """Serve `topogate ui` and print its address; returns when it ends or is interrupted."""
    command = [sys.executable, "-m", "webhook.cli.main", "ui", "--port", str(free_port())]
    with open_tied([*command, "--kubeconfig", str(cluster.kubeconfig)]) as page:
        try:
            page.wait()
        except KeyboardInterrupt:
            page.terminate()
