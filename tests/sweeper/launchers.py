"""GPU nodes with a taint, CPU nodes, and a launcher with its workers."""

from typing import Any

import msgspec

from labeler.contract import keys
from tests.sweeper.cluster import GPU, Nodes, Placing
from webhook.configuration.settings import Settings
from webhook.kube.objects import Node, Pod
from webhook.sweeper.observe.gangs import OwnerFacts

TOLERATION = {"key": GPU, "operator": "Exists"}


SETTINGS = Settings(settle_seconds=5, patience_seconds=60)


def some_devices() -> bool:
    """What an owner says whose pods ask for some."""
    return True


def node(name: str, place: str, gpus: int = 0, cpu: str = "64", **spec: Any) -> Node:
    """place: "block/subblock/host", "" for a node without topology labels."""
    labels = dict(zip(keys.PRERELEASE_TOPOLOGY, place.split("/"), strict=True)) if place else {}
    amounts = {"cpu": cpu, "pods": "110", **({GPU: str(gpus)} if gpus else {})}
    taints = {"taints": [{"key": GPU, "effect": "NoSchedule"}]} if gpus else {}
    body = {
        "metadata": {"name": name, "uid": name, "labels": {keys.HOSTNAME_LABEL: name, **labels}},
        "spec": {**taints, **spec},
        "status": {"allocatable": amounts},
    }
    return msgspec.convert(body, Node)


def placing(nodes: list[Node], *pods: Pod, owner_facts: OwnerFacts | None = None) -> Placing:
    cluster = Nodes(0, *pods)
    cluster.nodes = {each.metadata.name: each for each in nodes}
    made = Placing(cluster, SETTINGS)
    facts = owner_facts or OwnerFacts(len(pods), devices=some_devices)
    made.owner_facts = lambda _: facts
    return made
