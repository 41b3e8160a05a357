"""Random clusters and gangs of every oddity, and what happens between two passes."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, Final

import msgspec
from hypothesis import strategies as st

from labeler.contract import keys
from tests.cli.explained_worlds import BEGIN, GPU, LEVELS, SETTINGS, Step, World, created
from tests.sweeper.cluster import gpu_pod
from tests.sweeper.pods import decode, pod_json
from webhook.configuration.settings import ScaleUp
from webhook.kube.decoding import key_of
from webhook.kube.disruption_budgets import PodDisruptionBudget
from webhook.kube.objects import Node, Pod
from webhook.policy.fair import FairOrder
from webhook.policy.values import Policy
from webhook.sweeper.decide.attempt import RETRY_SECONDS
from webhook.sweeper.observe.gangs import OwnerFacts
from webhook.sweeper.observe.owner_sizes import facts_of
from webhook.workloads import marks
from webhook.workloads.builtin import StatefulSet, stateful_set_pods


def node(number: int, gpus: int, is_cordoned: bool, block: str) -> Node:
    name = f"n{number}"
    labels = dict(zip(LEVELS, (block, "s", name), strict=True))
    return msgspec.convert(
        {
            "metadata": {"name": name, "uid": name, "labels": labels},
            "spec": {"unschedulable": is_cordoned},
            "status": {"allocatable": {GPU: str(gpus), "cpu": "8", "pods": "110"}},
        },
        Node,
    )


OWNERS: Final = {"Job": ("batch/v1", "jobs"), "StatefulSet": ("apps/v1", "statefulsets")}


def serve_owner(world: World, kind: str, name: str, namespace: str, state: str) -> None:
    """state: "deleted" for an owner that does not exist, "deleting" for one that is being deleted."""
    version, resource = OWNERS[kind]
    served = {"name": resource, "kind": kind, "namespaced": True, "verbs": ["get", "list", "watch"]}
    world.api.owners[f"/apis/{version}"] = {"resources": [served]}
    path = f"/apis/{version}/namespaces/{namespace}/{resource}/{name}"
    metadata = {"name": name, "namespace": namespace, "uid": f"{namespace}-{name}"}
    if state == "deleting":
        metadata["deletionTimestamp"] = "2026-11-29T12:00:00Z"
    if state == "deleted":
        world.api.owners.pop(path, None)
    else:
        world.api.owners[path] = {"metadata": metadata}


def owner_of(kind: str, name: str, namespace: str, number: int) -> dict[str, Any]:
    """The metadata of a pod of this controller."""
    uid, version = f"{namespace}-{name}", OWNERS[kind][0]
    owner = {"apiVersion": version, "kind": kind, "name": name, "uid": uid, "controller": True}
    labels = {
        "Job": {
            marks.JOB_NAME_LABEL: name, "batch.kubernetes.io/controller-uid": uid,
            marks.JOB_INDEX_KEY: str(number),
        },
        "StatefulSet": {
            marks.STATEFUL_SET_POD_LABEL: f"{name}-{number}", marks.STATEFUL_SET_INDEX: str(number)
        },
    }  # fmt: skip
    return {"ownerReferences": [owner], "labels": labels[kind]}


@dataclass(frozen=True)
class DrawnGang:
    """Pods, of which some may come later. kind: of their controller, "" for a gang by annotation."""

    name: str
    namespace: str
    kind: str
    pods: tuple[Pod, ...]
    later: tuple[Pod, ...] = ()
    facts: OwnerFacts = field(default_factory=OwnerFacts)
    owner: str = ""


def budget(allowed: int) -> PodDisruptionBudget:
    """Of all Jobs in the namespace ns."""
    selector = {"matchExpressions": [{"key": marks.JOB_NAME_LABEL, "operator": "Exists"}]}
    body = {
        "metadata": {"name": "few", "namespace": "ns", "uid": "few"},
        "spec": {"selector": selector},
        "status": {"disruptionsAllowed": allowed},
    }
    return msgspec.convert(body, PodDisruptionBudget)


REQUESTS: Final[tuple[dict[str, str], ...]] = (
    {}, {}, {},
    {keys.REQUIRED_TOPOLOGY_ANNOTATION: "block"},
    {keys.REQUIRED_TOPOLOGY_ANNOTATION: "rack"},
    {keys.SLICE_TOPOLOGY_ANNOTATION: "block", keys.SLICE_SIZE_ANNOTATION: "2"},
    {keys.GANG_MIN_SIZE_ANNOTATION: "1"},
    {keys.SPREAD_TOPOLOGY_ANNOTATION: "block:1"},
    {keys.MOVABLE_ANNOTATION: "true"},
)  # fmt: skip


@st.composite
def gangs(draw: st.DrawFn, name: str) -> DrawnGang:
    """A gang of which anything may be unusual."""
    kind = draw(st.sampled_from(["", "", "Job", "Job", "StatefulSet"]))
    namespace = draw(st.sampled_from(["ns", "ns", "other"]))
    count, gpus = draw(st.integers(1, 4)), draw(st.integers(1, 2))
    annotations = draw(st.sampled_from(REQUESTS))
    size = count + draw(st.sampled_from([0, 0, 0, 1]))
    if not kind:
        annotations = {
            **annotations, keys.GANG_ANNOTATION: name, keys.GANG_SIZE_ANNOTATION: str(size)
        }  # fmt: skip
    oddity = draw(st.sampled_from(["", "", "", "gate", "scheduler", "deleted", "opted out", "bound"]))
    age = draw(st.sampled_from([0, 0, 3600]))
    resources = {"limits": {GPU: str(gpus)}, "requests": {GPU: str(gpus)}}
    spec: dict[str, Any] = {
        "containers": [{"name": "c", "resources": resources}],
        "priority": draw(st.sampled_from([0, 0, 100])),
        "schedulerName": "volcano" if oddity == "scheduler" else "default-scheduler",
    }
    if oddity == "gate":
        spec["schedulingGates"] = [{"name": keys.GATE}, {"name": "quota.example.com/wait"}]
    pods = []
    for number in range(count):
        own, more = dict(spec), {}
        if number == 0 and oddity == "deleted":
            more = {"deletionTimestamp": "2026-11-29T12:00:00Z"}
        if number == 0 and oddity in ("opted out", "bound"):
            own["schedulingGates"] = []
            own["nodeName"] = "n0" if oddity == "bound" else ""
        metadata = {
            "namespace": namespace, "uid": f"{namespace}-{name}-{number}", "annotations": annotations,
            **created(BEGIN - timedelta(seconds=age)), **more,
            **(owner_of(kind, name, namespace, number) if kind else {}),
        }  # fmt: skip
        pods.append(decode(pod_json(f"{name}-{number}", metadata=metadata, **own)))
    there = 1 if kind == "StatefulSet" else draw(st.integers(1, count))
    return DrawnGang(
        name, namespace, kind, tuple(pods[:there]), tuple(pods[there:]), _facts(kind, name, spec, size),
        draw(st.sampled_from(["", "", "", "deleted", "deleting"])) if kind else "",
    )  # fmt: skip


def _facts(kind: str, name: str, spec: Mapping[str, Any], size: int) -> OwnerFacts:
    """What its controller says of its pods."""
    written = {key: each for key, each in spec.items() if key != "schedulingGates"}
    template = {"template": {"spec": written}}
    metadata = {"metadata": {"name": name, "uid": name}}
    if kind == "StatefulSet":
        owner = msgspec.convert({**metadata, "spec": {"replicas": size, **template}}, StatefulSet)
        return facts_of([stateful_set_pods(owner)])
    return OwnerFacts(size) if kind else OwnerFacts()


@dataclass(frozen=True)
class Between:
    """What happens before a pass that is so many seconds after the last one.

    added: gangs. grows: whether the missing pods come. unbound: whether pods are released and not bound yet.
    refused: whether a kubelet refuses a pod. node: that is cordoned, uncordoned or deleted. lost: whether
    owners are deleted. leads: whether another leader begins. answer: of an autoscaler, "" for none.
    """

    seconds: float
    added: tuple[DrawnGang, ...] = ()
    grows: bool = False
    unbound: bool = False
    refused: bool = False
    node: str = ""
    lost: bool = False
    leads: bool = False
    answer: str = ""


@dataclass
class Story:
    """A world and what happens in it."""

    world: World
    gangs: list[DrawnGang]
    events: list[Between]
    _came: set[str] = field(default_factory=set)

    def begin(self) -> Step:
        for each in self.gangs:
            self._add(each)
        return self.world.step(0)

    def _add(self, gang: DrawnGang) -> None:
        self.world.facts[gang.name] = gang.facts
        if gang.kind:
            serve_owner(self.world, gang.kind, gang.name, gang.namespace, gang.owner)
        for pod in gang.pods:
            self.world.pods[f"{gang.namespace}/{pod.metadata.name}"] = pod

    def play(self, event: Between) -> Step:
        """The next pass after this."""
        world = self.world
        released = set(sorted(world.api.released)[:1]) if event.unbound else set()
        world.carry_out(released)
        ours = sorted(
            key for key, pod in world.pods.items() if key in world.api.released and pod.spec.node_name
        )
        if event.refused and ours:
            world.refuse(ours[0], event.seconds)
        self._change_node(event.node)
        if event.answer:
            world.answer(event.answer, event.seconds)
        if event.lost:
            for each in self.gangs:
                if each.kind:
                    serve_owner(world, each.kind, each.name, each.namespace, "deleted")
        if event.leads:
            world.close()
            world.lead()
        for each in self.gangs if event.grows else ():
            if each.kind != "StatefulSet":
                world.add([pod for pod in each.later if key_of(pod) not in self._came], event.seconds)
                self._came |= {key_of(pod) for pod in each.later}
        for each in event.added:
            self._add(each)
            world.add(each.pods, event.seconds)
        return world.step(event.seconds)

    def _change_node(self, change: str) -> None:
        name, _, verb = change.partition(" ")
        if name not in self.world.nodes:
            return
        if verb == "deleted":
            del self.world.nodes[name]
            return
        node = self.world.nodes[name]
        spec = msgspec.structs.replace(node.spec, unschedulable=verb == "cordoned")
        self.world.nodes[name] = msgspec.structs.replace(node, spec=spec)


SCALE_UPS: Final = (
    ScaleUp(),
    ScaleUp("autoscaler.example.com", after_seconds=0.0, requests=1),
    ScaleUp("autoscaler.example.com", retry_seconds=300.0, pods=4),
)
BUDGETS: Final = (None, (), (budget(0),), (budget(2),))
"""None where they have not been read."""


@st.composite
def stories(draw: st.DrawFn) -> Story:
    nodes = [
        node(number, draw(st.integers(1, 4)), draw(st.integers(0, 5)) == 0, draw(st.sampled_from("ab")))
        for number in range(draw(st.integers(1, 4)))
    ]
    pods = []
    for number in range(draw(st.integers(0, 2))):
        pods.append(gpu_pod(f"busy-{number}", node="n0", priority=draw(st.sampled_from([0, 50]))))
    world = World(
        {each.metadata.name: each for each in nodes},
        {f"{pod.metadata.namespace}/{pod.metadata.name}": pod for pod in pods},
        settings=replace(SETTINGS, scale_up=draw(st.sampled_from(SCALE_UPS))),
        policy=draw(st.sampled_from([None, Policy(fair_order=FairOrder())])),
        budgets=draw(st.sampled_from(BUDGETS)),
    )
    if draw(st.integers(0, 2)) == 0:
        world.fail(draw(st.sampled_from(sorted(world.nodes))))
    first = [draw(gangs(name)) for name in "pqrs"[: draw(st.integers(1, 4))]]
    return Story(world, first, draw(events()))


def story_of_a_request_for_nodes(after_seconds: float) -> Story:
    """Nodes are requested for a gang, the autoscaler refuses them, and another leader begins.

    after_seconds: see ScaleUp.
    """
    choices = ScaleUp("autoscaler.example.com", after_seconds=after_seconds, retry_seconds=3600.0)
    world = World(
        {"n0": node(0, 1, is_cordoned=False, block="a")},
        {"ns/big": gpu_pod("big", gpus=2)},
        settings=replace(SETTINGS, scale_up=choices),
    )
    return Story(world, [], [Between(60), Between(60), Between(60, answer="Failed"), Between(60, leads=True)])


@st.composite
def events(draw: st.DrawFn) -> list[Between]:
    """Before RETRY_SECONDS, the sweeper may leave a reason as it is, and not ask again."""
    seconds = st.sampled_from([RETRY_SECONDS, 100, 400, 2000])
    rarely = st.integers(0, 4).map(lambda number: number == 0)
    changes = st.sampled_from(["", "", "", "n0 cordoned", "n1 cordoned", "n0 back", "n1 deleted"])
    return [
        Between(
            draw(seconds), tuple(draw(gangs(each)) for each in name[: draw(st.integers(0, 1))]),
            draw(st.booleans()), draw(rarely), draw(rarely), draw(changes), draw(rarely), draw(rarely),
            draw(st.sampled_from(["", "", "Provisioned", "Failed", "BookingExpired"])),
        )
        for name in "xyz"[: draw(st.integers(0, 3))]
    ]  # fmt: skip
