"""A cluster that a test changes and the sweeper reads."""

import msgspec

from webhook.kube.objects import Node, Pod
from webhook.kube.placements import Placement

HOSTNAME = "kubernetes.io/hostname"


class Cluster:
    """One reading of a cluster that a test may change."""

    def __init__(self, *pods: Pod) -> None:
        self.pods = list(pods)
        self.placements: dict[str, Placement] = {}
        body = {"status": {"allocatable": {"cpu": "8", "pods": "110"}}}
        self.nodes = {
            name: msgspec.convert({"metadata": {"name": name, "uid": name}, **body}, Node)
            for name in ("n1", "n2")
        }

    def pod_items(self) -> list[Pod]:
        return self.pods

    def node_items(self) -> dict[str, Node]:
        return dict(self.nodes)

    def current_placements(self) -> dict[str, Placement]:
        return self.placements

    def namespace_labels(self) -> None:
        return None

    def storage(self, is_wanted: bool) -> None:
        return None
