"""What a driver of GPUs would have published of simulated nodes, for Dynamic Resource Allocation."""

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from hack.local.nodes import SimulatedNode
from webhook.kube.client import Api
from webhook.kube.devices import CLASSES, GROUP, SLICES

DRIVER: Final = "gpu.example.com"
CLASS: Final = "gpu.example.com"
CLIENTS: Final = 8


def device_class(name: str = CLASS, *more: str) -> dict[str, Any]:
    """The class of the driver's devices; more: selectors beside that of the driver."""
    selectors = [f'device.driver == "{DRIVER}"', *more]
    return {
        "metadata": {"name": name},
        "spec": {"selectors": [{"cel": {"expression": e}} for e in selectors]},
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
        },
        "capacity": {"memory": {"value": "80Gi"}},
    }


def publish(api: Api, nodes: Iterable[SimulatedNode], devices: int = 8) -> None:
    """Create the class, and a slice for each node."""
    api.request("POST", CLASSES, body=device_class())
    with ThreadPoolExecutor(CLIENTS) as pool:
        list(pool.map(lambda n: api.request("POST", SLICES, body=resource_slice(n, devices)), nodes))


def withdraw(api: Api) -> None:
    """Remove all classes and slices."""
    for path in (CLASSES, SLICES):
        api.request("DELETE", path)


def template(name: str, count: int, **more: Any) -> dict[str, Any]:
    """A ResourceClaimTemplate for so many devices; more: fields of the request."""
    request = {"name": "gpus", "exactly": {"deviceClassName": CLASS, "count": count, **more}}
    return {"metadata": {"name": name}, "spec": {"spec": {"devices": {"requests": [request]}}}}


def create_template(api: Api, namespace: str, body: dict[str, Any]) -> None:
    """Create it."""
    api.request("POST", f"{GROUP}/namespaces/{namespace}/resourceclaimtemplates", body=body)
