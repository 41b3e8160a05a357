"""Claims of one pod, and what they need, for tests."""

from typing import Any

from tests.devices.bodies import (
    Body,
    claim,
    gpus,
    nodes,
    pod,
    supply,
)
from webhook.devices.needs import Needs, needs
from webhook.devices.supply import Supply
from webhook.kube.devices import ResourceClaim, ResourceSlice
from webhook.kube.objects import Pod
from webhook.placement import NodeInfo, Snapshot, Usage, capacity
from webhook.scheduling import convert


def capacity_of(found: Needs, waiting: Pod, *there: Pod) -> dict[str, int]:
    """How many pods like this one each node takes beside others."""
    kind = found.pod_class(waiting, convert.pod_class_of(waiting))
    if kind.problem:
        return {}
    made = [found.node(NodeInfo(name, allocatable={"pods": 20})) for name in found.nodes]
    usage = [(each.spec.node_name, found.usage(each, Usage({"pods": 1}))) for each in there]
    snapshot = Snapshot.build(made, usage)
    return {
        name: 0 if capacity.reason_against_node(kind, state) else capacity.count_slots(kind, state).pods
        for name, state in snapshot.nodes.items()
    }


def one(spec: Body, *slices: ResourceSlice, claims: tuple[ResourceClaim, ...] = (), **more: Any) -> Any:
    """The capacity that pods with a claim of this spec find."""
    supplied = supply(*slices, claims=(claim("c", spec), *claims), **more)
    waiting = pod("p", "c")
    names = {each.spec.node_name: None for each in slices if each.spec.node_name} or {"n": None}
    return capacity_of(needs([waiting], [], nodes(*names), supplied, 16), waiting)


def problem(spec: Body, supplied: Supply | None = None, *others: Pod) -> str:
    """Why such a pod cannot be placed."""
    waiting = pod("p", "c")
    found = needs([waiting, *others], [], nodes("n"), supplied or supply(gpus("n", 8)), 16)
    return found.pod_class(waiting, convert.pod_class_of(waiting)).problem
