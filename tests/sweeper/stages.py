"""Gangs whose controllers make pods in stages, in memory: their controllers, and passes whose plans are done.

A pod runs as soon as it is released; the next stage comes once the test lets the controllers go on.
"""

import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import msgspec

from labeler.contract import keys
from tests.sweeper.cluster import GPU, Nodes, Placing
from tests.sweeper.pods import decode, pod_json
from tests.sweeper.sets import exclusive
from webhook.configuration.settings import Settings
from webhook.kube.objects import Metadata, Pod
from webhook.kube.placements import Placement
from webhook.sweeper.decide import plan
from webhook.sweeper.decide.orders import NewPlan, Orders
from webhook.sweeper.observe.gangs import GangKey, OwnerFacts
from webhook.sweeper.observe.membership import made_by
from webhook.sweeper.observe.owner_sizes import facts_of
from webhook.workloads import builtin, marks, sets

OLD = "2026-01-01T00:00:00Z"
NO_REQUESTS: Mapping[str, str] = MappingProxyType({})


@dataclass
class Group:
    """A gang: the pods of each of its stages, and how many stages its controller has made."""

    stages: list[list[Pod]]
    owner_facts: OwnerFacts
    made: int = 0

    @property
    def pods(self) -> list[Pod]:
        return [pod for stage in self.stages for pod in stage]


def _pod(name: str, gpus: int, labels: Mapping[str, str], annotations: Mapping[str, str], **more: Any) -> Pod:
    amounts = {GPU: str(gpus)}
    metadata = {"labels": labels, "annotations": annotations, "creationTimestamp": OLD, **more}
    container = {"name": "c", "resources": {"limits": amounts, "requests": amounts}}
    return decode(pod_json(name, containers=[container], metadata=metadata))


def _template(gpus: int, annotations: Mapping[str, str]) -> dict[str, Any]:
    amounts = {GPU: str(gpus)}
    container = {"name": "c", "resources": {"limits": amounts, "requests": amounts}}
    return {"metadata": {"annotations": annotations}, "spec": {"containers": [container]}}


def groups_of(
    replicas: int,
    size: int,
    *,
    gpus: int = 1,
    name: str = "serve",
    over: str = "",
    requests: Mapping[str, str] = NO_REQUESTS,
) -> list[Group]:
    """Groups of one LeaderWorkerSet with LeaderReady. over: the label of which each wants a domain."""
    annotations = dict(requests)
    written = {marks.LWS_EXCLUSIVE: over} if over else {}
    worker = {"size": size, "workerTemplate": _template(gpus, annotations)}
    body = {
        "metadata": {"name": name, "annotations": written},
        "spec": {"startupPolicy": "LeaderReady", "leaderWorkerTemplate": worker},
    }
    owner = msgspec.convert(body, sets.LeaderWorkerSet)
    owner_facts = facts_of([sets.leader_worker_set_pods(owner)])

    def member(group: int, index: int) -> Pod:
        labels = {
            marks.LEADER_WORKER_SET_NAME_LABEL: name,
            "leaderworkerset.sigs.k8s.io/group-index": str(group),
            "leaderworkerset.sigs.k8s.io/group-key": f"key-of-{name}-{group}",
            "leaderworkerset.sigs.k8s.io/worker-index": str(index),
        }
        size_of = {"leaderworkerset.sigs.k8s.io/size": str(size)}
        return _pod(f"{name}-{group}-{index}", gpus, labels, {**annotations, **written, **size_of})

    return [
        Group([[member(group, 0)], [member(group, index) for index in range(1, size)]], owner_facts)
        for group in range(replicas)
    ]


def ordered_sets(
    count: int, size: int, *, gpus: int = 1, requests: Mapping[str, str] = NO_REQUESTS
) -> list[Group]:
    """StatefulSets of one owner that make one pod after the other."""

    def one(number: int) -> Group:
        body = {
            "metadata": {"name": f"shard-{number}"},
            "spec": {"replicas": size, "template": _template(gpus, requests)},
        }
        owner = msgspec.convert(body, builtin.StatefulSet)
        owner_facts = facts_of([builtin.stateful_set_pods(owner)])
        of = {
            "apiVersion": "apps/v1", "kind": "StatefulSet", "name": f"shard-{number}",
            "uid": f"uid-of-{number}", "controller": True,
        }  # fmt: skip
        pods = [
            _pod(f"shard-{number}-{index}", gpus, {}, requests, ownerReferences=[of]) for index in range(size)
        ]
        return Group([[pod] for pod in pods], owner_facts)

    return [one(number) for number in range(count)]


@dataclass
class Stages:
    """Nodes in subblocks of one block, groups, and a sweeper that works on them."""

    groups: list[Group]
    subblocks: Iterable[int]
    gpus: int = 1
    settings: Settings = field(default_factory=lambda: Settings(settle_seconds=0, reserve_seconds=1e12))
    pods: Iterable[Pod] = ()

    def __post_init__(self) -> None:
        sizes = list(self.subblocks)
        self.cluster = Nodes(sum(sizes), *self.pods, gpus=self.gpus)
        numbers = [number for number, size in enumerate(sizes) for _ in range(size)]
        for node, number in enumerate(numbers):
            labels = dict(zip(keys.GCE_TOPOLOGY, ("b", f"s{number}", f"h{node}"), strict=True))
            self.cluster.label(f"n{node}", labels)
        self.lead()

    def lead(self) -> None:
        """Another process leads: what the one before remembered is gone."""
        self.placing = exclusive(Placing(self.cluster, self.settings))
        self.placing.owner_facts = self._facts

    def _facts(self, key: GangKey) -> OwnerFacts:
        return next((each.owner_facts for each in self.groups if made_by(each.pods[0]) == key), OwnerFacts())

    def sweep(self) -> Orders:
        """One pass, whose plans are written and carried out."""
        orders = self.placing.one()
        for made in orders.plans:
            self._carry_out(made)
        return orders

    def _carry_out(self, made: NewPlan) -> None:
        key = made.gang.key
        before = self.cluster.placements.get(key.placement_key)
        spec = plan.plan_spec(
            made.gang,
            before,
            list(made.entries),
            made.later_pod_nodes,
            domains=made.domains,
            usable_nodes=self.placing.view().usable_count,
        )
        metadata = Metadata(name=key.placement_name, namespace="ns", uid=f"plan-{key.placement_name}")
        self.cluster.placements[key.placement_key] = Placement(metadata, spec)
        nodes = {entry.uid: entry.node for entry in made.entries}
        self.cluster.pods = [_running(pod, nodes.get(pod.metadata.uid, "")) for pod in self.cluster.pods]

    def finish(self, chooses: Callable[[Group], bool] = lambda _: True) -> None:
        """The controllers of these groups make the next stage, where all pods that are there run."""
        there = {pod.metadata.uid: pod for pod in self.cluster.pods}
        for group in self.groups:
            made = [there[pod.metadata.uid] for stage in group.stages[: group.made] for pod in stage]
            runs = all(pod.spec.node_name for pod in made)
            if group.made < len(group.stages) and runs and chooses(group):
                self.cluster.pods += group.stages[group.made]
                group.made += 1

    def play(self, seed: int = 0, passes: int = 200) -> None:
        """Let controllers and sweeper go on in a random order until nothing changes any more."""
        dice = random.Random(seed)
        idle = 0
        for _ in range(passes):
            self.finish(lambda _: dice.random() < 0.5)
            idle = idle + 1 if not self.sweep().plans else 0
            self.check()
            if idle > 10:
                return
        raise AssertionError("it goes on without end")

    def placed(self, group: Group) -> int:
        """How many pods of a group have a node."""
        own = {pod.metadata.uid for pod in group.pods}
        return sum(bool(pod.spec.node_name) for pod in self.cluster.pods if pod.metadata.uid in own)

    def node_of(self, name: str) -> str:
        """The node of a pod, "" while it has none."""
        return next(pod.spec.node_name for pod in self.cluster.pods if pod.metadata.name == name)

    def sizes(self) -> list[int]:
        """How many pods of each group run, the groups with most first."""
        return sorted(map(self.placed, self.groups), reverse=True)

    def check(self) -> None:
        """No group has begun without capacity for the rest of it on the nodes that its plan keeps."""
        used: dict[str, int] = {}
        for pod in self.cluster.pods:
            if pod.spec.node_name:
                amount = int(pod.spec.containers[0].resources.requests[GPU])
                used[pod.spec.node_name] = used.get(pod.spec.node_name, 0) + amount
        for group in self.groups:
            missing = len(group.pods) - self.placed(group)
            if missing in (0, len(group.pods)):
                continue
            key = self.placing.view().gang_of(group.pods[0])
            nodes_of_plan = self.cluster.placements[key.placement_key].spec.later_pod_nodes
            each = int(group.pods[0].spec.containers[0].resources.requests[GPU])
            slots = sum((self.gpus - used.get(name, 0)) // each for name in nodes_of_plan)
            assert slots >= missing, f"{key} has begun, and others have taken what its {missing} pods need"


def _running(pod: Pod, node: str) -> Pod:
    if not node:
        return pod
    spec = msgspec.structs.replace(pod.spec, node_name=node, scheduling_gates=[])
    return msgspec.structs.replace(
        pod, spec=spec, status=msgspec.structs.replace(pod.status, phase="Running")
    )
