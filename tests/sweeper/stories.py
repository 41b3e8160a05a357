"""Stories of a cluster, and what a pass sees of them."""

import random
from typing import Any

import msgspec

from labeler.contract import keys
from tests.sweeper.pods import decode, pod_json
from tests.sweeper.readings import Cluster
from webhook.kube.objects import Metadata, Node, Pod
from webhook.kube.placements import Placement, PlacementSpec
from webhook.kube.plan_pods import PlannedPod
from webhook.placement.snapshot import NodeState
from webhook.sweeper.observe.pods import Journal
from webhook.sweeper.observe.snapshotter import Snapshotter
from webhook.sweeper.observe.view import View

NODES = ("n1", "n2", "n3")


LEVELS = ("topology.gke.io/cluster", "topology.gke.io/rack", "topology.gke.io/host")


class Story:
    """A cluster in which something happens at each step."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.cluster = Cluster()
        self.cluster.nodes = {name: self.node(name) for name in NODES}

    def node(self, name: str) -> Node:
        labels = {keys.GPU_NUMBERS_LABEL: "0.1", keys.CARDS_LABEL: "card0.card1"}
        labels |= {level: self.dice.choice("ab") for level in LEVELS} if self.dice.random() < 0.8 else {}
        body = {
            "metadata": {"name": name, "uid": name, "labels": labels},
            "spec": {"unschedulable": self.dice.random() < 0.1},
            "status": {"allocatable": {"cpu": self.dice.choice("48"), "pods": "9", keys.I915: "2"}},
        }
        return msgspec.convert(body, Node)

    def cards(self) -> dict[str, str]:
        stamp = str(1764 * 10**15 + self.dice.randrange(9))
        cards = {"gas-container-cards": self.dice.choice(("card0", "card1", "card1", "?")), "gas-ts": stamp}
        return cards if self.dice.random() < 0.7 else {}

    def pod(self, name: str) -> Pod:
        metadata: dict[str, Any] = {"labels": {"app": "x"}, "annotations": self.cards()}
        spec: dict[str, Any] = {"schedulingGates": []}
        state = self.dice.choice(("gated", "gated", "bound", "bound", "bound", "sent"))
        if state == "gated":
            spec = {}
        elif state == "bound":
            spec |= {"nodeName": self.dice.choice(NODES)}
        elif state == "sent":
            fields = [
                {"key": "metadata.name", "operator": "In", "values": [self.dice.choice(NODES)]},
            ]
            required = {"nodeSelectorTerms": [{"matchFields": fields}]}
            spec["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
        if self.dice.random() < 0.1:
            metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        if self.dice.random() < 0.2:
            metadata["annotations"] = {**metadata["annotations"], keys.GANG_ANNOTATION: "g"}
        port = [{"containerPort": 80, "hostPort": 80}] if self.dice.random() < 0.2 else []
        amount = self.dice.choice(("1", "2", "3")) if self.dice.random() < 0.95 else "not a number"
        limits = {"cpu": amount, **({keys.I915: "1"} if self.dice.random() < 0.5 else {})}
        spec["containers"] = [
            {"name": "c", "ports": port, "resources": {"limits": limits, "requests": limits}}
        ]
        return decode(pod_json(name, metadata=metadata, **spec))

    def placement(self, name: str) -> Placement:
        there = self.dice.sample(self.cluster.pods, self.dice.randint(0, min(3, len(self.cluster.pods))))
        entries = [
            PlannedPod(
                each.metadata.name, each.metadata.uid, self.dice.choice(NODES), annotations=self.cards()
            )
            for each in there
        ]
        namespace = self.dice.choice(("ns", "ns", "another"))
        return Placement(Metadata(name=name, namespace=namespace), PlacementSpec(pods=entries))

    def step_noted_in(self, journal: Journal) -> None:
        """One thing happens, and the journal records what becomes of which pod."""
        before = {pod.metadata.name: pod for pod in self.cluster.pods}
        self.step()
        after = {pod.metadata.name: pod for pod in self.cluster.pods}
        for name in before.keys() | after.keys():
            if before.get(name) is not after.get(name):
                journal.note(before.get(name), after.get(name))

    def step(self) -> None:
        """One thing happens, to pods mostly."""
        cluster, dice = self.cluster, self.dice
        thing = dice.choice(
            (*["pod"] * 6, "gone", "placement", "placement", "no placement", "node", "no node")
        )
        names = {each.metadata.name: number for number, each in enumerate(cluster.pods)}
        if thing == "pod":
            made = self.pod(f"p{dice.randrange(12)}")
            if (number := names.get(made.metadata.name)) is not None:
                cluster.pods[number] = made
            else:
                cluster.pods.append(made)
        elif thing == "gone" and cluster.pods:
            del cluster.pods[dice.randrange(len(cluster.pods))]
        elif thing == "placement":
            made_plan = self.placement(f"plan{dice.randrange(3)}")
            cluster.placements[made_plan.key] = made_plan
        elif thing == "no placement" and cluster.placements:
            del cluster.placements[dice.choice(sorted(cluster.placements))]
        elif thing == "node":
            name = dice.choice(NODES)
            cluster.nodes[name] = self.node(name)
        elif thing == "no node":
            cluster.nodes = {name: cluster.nodes.get(name) or self.node(name) for name in NODES}
            del cluster.nodes[dice.choice(NODES)]


def seen(snapshotter: Snapshotter) -> tuple[dict[str, NodeState], list[object]]:
    """The nodes of a pass, and all the rest that it works on, comparable."""
    view: View = snapshotter.view()
    snapshot = snapshotter.snapshot(view)
    gangs = {pod.metadata.uid: view.gang_of(pod) for pod in view.by_uid.values()}
    ours = sorted(pod.metadata.uid for pod in (*view.under_way, *view.stamped))
    blocks = {key: sorted(state.name for state in block.states) for key, block in snapshot.blocks.items()}
    rest = [blocks, gangs, ours, view.planned, set(view.named), dict(view.cards), view.usable_count]
    return dict(snapshot.nodes), rest
