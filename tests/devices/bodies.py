"""Slices, classes and claims for tests in memory."""

from typing import Any

import msgspec

from tests.sweeper.pods import decode, pod_json
from webhook.devices.supply import Supply
from webhook.extensions.device_claims import CLAIMS, CLASSES, SLICES, TEMPLATES
from webhook.kube.devices import DeviceClass, ResourceClaim, ResourceClaimTemplate, ResourceSlice
from webhook.kube.objects import Node, Pod

Body = dict[str, Any]
DRIVER = "gpu.example.com"
NAMESPACE = "demo"


def gpu(name: str, *, taints: Any = (), more: Any = None, **attributes: Any) -> Body:
    """A device; attributes by their plain values."""
    kinds = {int: "int", bool: "bool", str: "string"}
    attributes_by_type = {key: {kinds[type(value)]: value} for key, value in attributes.items()}
    return {"name": name, "attributes": attributes_by_type, "taints": list(taints), **(more or {})}


def slice_of(node: str, devices: list[Body], **more: Any) -> ResourceSlice:
    """A slice that is all of its pool; more: other fields of its spec."""
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": DRIVER, "nodeName": node, "pool": pool, "devices": devices} | more
    name = more.pop("name", f"{node}-{spec['pool']['generation']}-{len(devices)}")
    return msgspec.convert({"metadata": {"name": name}, "spec": spec}, ResourceSlice)


def gpus(node: str, count: int) -> ResourceSlice:
    """A slice with so many devices that are equal but for their index and uuid."""
    return slice_of(node, [gpu(f"g{n}", index=n, uuid=f"{node}-{n}", model="H100") for n in range(count)])


def part(name: str, engines: int, node: str = "") -> Body:
    """A partition that uses up so many of the engines that counters() has; node: where it says so itself."""
    used = {"counterSet": "gpu-0", "counters": {"engines": {"value": str(engines)}}}
    return gpu(
        name, more={"consumesCounters": [used], **({"nodeName": node} if node else {})}, engines=engines
    )


def counters(slices: int, engines: int = 7, node: str = "") -> ResourceSlice:
    """The counters of one GPU, in a pool of so many slices; node: its only one."""
    where = {"nodeName": node} if node else {"allNodes": True}
    pool = {"name": node, "generation": 1, "resourceSliceCount": slices}
    sets = [{"name": "gpu-0", "counters": {"engines": {"value": str(engines)}}}]
    return slice_of(node, [], pool=pool, sharedCounters=sets, name=f"{node}-counters", **where)


def device_class(name: str, *expressions: str) -> DeviceClass:
    selectors = [{"cel": {"expression": each}} for each in expressions]
    return msgspec.convert({"metadata": {"name": name}, "spec": {"selectors": selectors}}, DeviceClass)


def exactly(count: int | None = 1, kind: str = "gpu", name: str = "r", **more: Any) -> Body:
    """A request for so many devices, None for all."""
    amount = {"allocationMode": "All"} if count is None else {"count": count}
    return {"name": name, "exactly": {"deviceClassName": kind, **amount, **more}}


def selecting(expression: str) -> list[Body]:
    return [{"cel": {"expression": expression}}]


def claim_spec(*requests: Body, constraints: tuple[Body, ...] = ()) -> Body:
    return {"devices": {"requests": list(requests), "constraints": list(constraints)}}


def template(name: str, spec: Body) -> ResourceClaimTemplate:
    metadata = {"name": name, "namespace": NAMESPACE}
    return msgspec.convert({"metadata": metadata, "spec": {"spec": spec}}, ResourceClaimTemplate)


def claim(
    name: str, spec: Body, owner: str = "", given: Body | None = None, **metadata: Any
) -> ResourceClaim:
    """A claim, of a pod or of nobody; given: its allocation."""
    owners = [{"kind": "Pod", "name": owner, "uid": f"uid-{owner}", "controller": True}] if owner else []
    about = {"name": name, "namespace": NAMESPACE, "ownerReferences": owners, **metadata}
    status = {"allocation": given} if given else {}
    return msgspec.convert({"metadata": about, "spec": spec, "status": status}, ResourceClaim)


def given(*devices: str, pool: str, **more: Any) -> Body:
    """An allocation of these devices; more: other fields of each of its results."""
    results = [{"request": "r", "driver": DRIVER, "pool": pool, "device": each, **more} for each in devices]
    return {"devices": {"results": results}}


def supply(
    *slices: ResourceSlice,
    claims: tuple[ResourceClaim, ...] = (),
    templates: tuple[ResourceClaimTemplate, ...] = (),
    classes: tuple[DeviceClass, ...] = (),
) -> Supply:
    """What there is, with a class "gpu" of all devices of the driver."""
    found, objects = Supply(), collections(*slices, claims=claims, templates=templates, classes=classes)
    found.update(objects[SLICES].values(), objects[CLASSES], objects[CLAIMS], objects[TEMPLATES])
    return found


def collections(
    *slices: ResourceSlice,
    claims: tuple[ResourceClaim, ...] = (),
    templates: tuple[ResourceClaimTemplate, ...] = (),
    classes: tuple[DeviceClass, ...] = (),
) -> dict[Any, Any]:
    """The same as the API server has it."""
    known = (device_class("gpu", f'device.driver == "{DRIVER}"'), *classes)
    return {
        SLICES: {str(number): each for number, each in enumerate(slices)},
        CLASSES: {each.metadata.name: each for each in known},
        CLAIMS: {f"{NAMESPACE}/{each.metadata.name}": each for each in claims},
        TEMPLATES: {f"{NAMESPACE}/{each.metadata.name}": each for each in templates},
    }


def pod(name: str, *claims: str, template: bool = False, node: str = "") -> Pod:
    """A pod with claims by name, or made from templates of these names as "POD-TEMPLATE"."""
    key = "resourceClaimTemplateName" if template else "resourceClaimName"
    bound = {"nodeName": node, "schedulingGates": []} if node else {}
    body = pod_json(name, resourceClaims=[{"name": each, key: each} for each in claims], **bound)
    body["metadata"] |= {"namespace": NAMESPACE, "uid": f"uid-{name}"}
    if template:
        made = [{"name": each, "resourceClaimName": f"{name}-{each}"} for each in claims]
        body["status"]["resourceClaimStatuses"] = made
    return decode(body)


def nodes(*names: str) -> dict[str, Node]:
    return {name: msgspec.convert({"metadata": {"name": name}}, Node) for name in names}
