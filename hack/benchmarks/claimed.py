"""A gang whose pods claim their GPUs, beside the same gang whose nodes have them in their allocatable.

Times are from the API server's objects, as they were read once, to the assignment, but for what a pass
converts of nodes and pods either way. "first" also evaluates selectors and counts each node's devices.
"""

import statistics
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import msgspec

from hack.benchmarks.placing.row import timed
from hack.local.claims import CLASS, device_class, resource_slice, template
from hack.local.nodes import SimulatedNode
from webhook.devices.needs import needs
from webhook.devices.supply import Supply
from webhook.kube.devices import DeviceClass, ResourceClaim, ResourceSlice
from webhook.kube.objects import Node, Pod
from webhook.placement import Assignment, Gang, Member, NodeInfo, PodClass, Snapshot, place, vector

GPU: Final = "nvidia.com/gpu"
CPUS: Final = PodClass(vector({"cpu": 1000, "pods": 1}))


def row(nodes: Sequence[NodeInfo], plain: Gang, repeats: int) -> str:
    """One line of the table. plain: a gang of pods of one GPU each."""
    supply, pods, there = _made(nodes, len(plain.members))
    bare = [replace(n, allocatable={k: v for k, v in n.allocatable.items() if k != GPU}) for n in nodes]

    def with_claims() -> object:
        found = needs(pods, [], there, supply, 64, lambda _: plain.name)
        kinds = [found.pod_class(pod, CPUS) for pod in pods]
        members = tuple(Member(f"g-{rank}", rank, kind) for rank, kind in enumerate(kinds))
        return place(Gang("g", members), Snapshot.build([found.node(each) for each in bare], []))

    def without() -> object:
        return place(plain, Snapshot.build(nodes, []))

    first, answer = timed(with_claims)
    claimed = statistics.median(timed(with_claims)[0] for _ in range(repeats))
    counted, same = zip(*(timed(without) for _ in range(repeats)), strict=True)
    assert isinstance(answer, Assignment)
    for each in same:
        assert isinstance(each, Assignment)
        assert each.objective.domains == answer.objective.domains
    beside = statistics.median(counted)
    return (
        f"{len(nodes):7} nodes {len(pods):6} pods with claims: "
        f"first {first * 1e3:.1f} ms, then {claimed * 1e3:.1f} ms, "
        f"{claimed / beside:.2f} of the same gang without claims ({beside * 1e3:.1f} ms); "
        f"{supply.selectors.evaluations} evaluations of a selector; the same domains"
    )


def _made(nodes: Sequence[NodeInfo], count: int) -> tuple[Supply, list[Pod], dict[str, Node]]:
    """The nodes' devices, as many as their GPUs, pods with a claim on one each, and the nodes as objects."""
    slices = []
    for node in nodes:
        played = SimulatedNode(node.name, ("", "", ""), False, 0)
        slices.append(msgspec.convert(resource_slice(played, node.allocatable[GPU]), ResourceSlice))
    spec = template("one", 1)["spec"]["spec"]
    claims, pods = {}, []
    for number in range(count):
        owner = {"kind": "Pod", "name": f"p{number}", "uid": f"u{number}", "controller": True}
        about = {"name": f"c{number}", "namespace": "demo", "ownerReferences": [owner]}
        claims[f"demo/c{number}"] = msgspec.convert({"metadata": about, "spec": spec}, ResourceClaim)
        body = {
            "metadata": {"name": f"p{number}", "namespace": "demo", "uid": f"u{number}"},
            "spec": {"resourceClaims": [{"name": "g", "resourceClaimTemplateName": "one"}]},
            "status": {"resourceClaimStatuses": [{"name": "g", "resourceClaimName": f"c{number}"}]},
        }
        pods.append(msgspec.convert(body, Pod))
    supply = Supply()
    supply.update(slices, {CLASS: msgspec.convert(device_class(), DeviceClass)}, claims, {})
    bodies = {n.name: {"metadata": {"name": n.name, "labels": dict(n.labels)}} for n in nodes}
    return supply, pods, {name: msgspec.convert(body, Node) for name, body in bodies.items()}
