"""What a driver of GPUs would have published of simulated nodes, for Dynamic Resource Allocation."""

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from hack.local.nodes import SimulatedNode
from webhook.kube.client import Api
from webhook.kube.devices import CLASSES, GROUP, SLICES

DRIVER: Final = "gpu.example.com"
CLASS: Final = "gpu.example.com"
RESOURCE: Final = "example.com/gpu"
"""The extended resource that the class stands for."""
OTHER_CLASS: Final = "nic.example.com"
"""A class of no GPUs. (It takes the same devices.)"""
CLIENTS: Final = 8


def device_class(name: str = CLASS, *more: str) -> dict[str, Any]:
    """The class of the driver's devices; more: selectors beside that of the driver."""
    selectors = [f'device.driver == "{DRIVER}"', *more]
    return {
        "metadata": {"name": name},
        "spec": {
            "selectors": [{"cel": {"expression": e}} for e in selectors],
            **({"extendedResourceName": RESOURCE} if name == CLASS else {}),
        },
    }


def resource_slice(node: SimulatedNode, devices: int) -> dict[str, Any]:
    """The slice of a node, with devices as a driver describes them."""
    return {
        "metadata": {"name": node.name},
        "spec": {
            "driver": DRIVER,
            "nodeName": node.name,
            "pool": {"name": node.name, "generation": 1, "resourceSliceCount": 1},
            "devices": [_device(node, number) for number in range(devices)],
        },
    }


def _device(node: SimulatedNode, number: int) -> dict[str, Any]:
    return {
        "name": f"gpu-{number}",
        "attributes": {
            "uuid": {"string": f"GPU-{node.name}-{number}"},
            "productName": {"string": "NVIDIA-H100-80GB-HBM3"},
            "index": {"int": number},
            "numa": {"int": number // 4},
            "driverVersion": {"version": "570.86.15"},
            "cliqueID": {"string": "-".join(node.place[:2])},
        },
        "capacity": {"memory": {"value": "80Gi"}},
    }


def publish(api: Api, nodes: Iterable[SimulatedNode], devices: int = 8) -> None:
    """Create the classes, and a slice for each node."""
    for name in (CLASS, OTHER_CLASS):
        api.request("POST", CLASSES, body=device_class(name))
    with ThreadPoolExecutor(CLIENTS) as pool:
        list(pool.map(lambda n: api.request("POST", SLICES, body=resource_slice(n, devices)), nodes))


def withdraw(api: Api) -> None:
    """Remove all classes and slices."""
    for path in (CLASSES, SLICES):
        api.request("DELETE", path)


def template(name: str, count: int, device_class: str = CLASS, **more: Any) -> dict[str, Any]:
    """A ResourceClaimTemplate for so many devices; more: fields of the request."""
    request = {"name": "gpus", "exactly": {"deviceClassName": device_class, "count": count, **more}}
    return {"metadata": {"name": name}, "spec": {"spec": {"devices": {"requests": [request]}}}}


def create_template(api: Api, namespace: str, body: dict[str, Any]) -> None:
    """Create it."""
    api.request("POST", f"{GROUP}/namespaces/{namespace}/resourceclaimtemplates", body=body)
