"""Devices, classes and claims at random, such as the API server takes."""

import random
import uuid
from dataclasses import dataclass, field
from typing import Any, Final

Body = dict[str, Any]

GPU: Final = "gpu.example.com"
NIC: Final = "nic.example.com"
DRIVERS: Final = (GPU, GPU, GPU, NIC)
MODELS: Final = ("H100", "H200", "A100")
TAINT: Final = "example.com/unhealthy"

CLASSES: Final[dict[str, list[str]]] = {
    "gpu": [f'device.driver == "{GPU}"'],
    "nic": [f'device.driver == "{NIC}"'],
    "any": [],
    "large": [f'device.capacity["{GPU}"].?memory.orValue(quantity("0")).compareTo(quantity("80Gi")) >= 0'],
    "new": [f'device.driver == "{GPU}"', f'device.attributes["{GPU}"].driver.isGreaterThan(semver("1.2.0"))'],
    "fails": [f'device.attributes["{GPU}"].model == "H100"'],
}
"""Selectors by class. The last one fails on devices of the other driver."""

SELECTORS: Final = (
    f'has(device.attributes["{GPU}"].model) && device.attributes["{GPU}"].model in ["H100", "A100"]',
    f'"index" in device.attributes["{NIC}"] || device.attributes["{GPU}"].numa == 0',
    f'cel.bind(own, device.attributes["{GPU}"], has(own.numa) && own.numa == 1)',
    'device.attributes["dra.example.com"].fabric.startsWith("f")',
    f'device.capacity["{GPU}"].memory.isLessThan(quantity("100Gi"))',
    "true",
)


RESOURCE: Final = "example.com/gpu"
"""The extended resource that one of the classes stands for."""


def classes() -> list[Body]:
    """All of them."""
    found = [
        {"metadata": {"name": name}, "spec": {"selectors": [{"cel": {"expression": each}} for each in own]}}
        for name, own in CLASSES.items()
    ]
    found[0]["spec"] |= {"extendedResourceName": RESOURCE}  # type: ignore[operator]
    return found


def device(dice: random.Random, driver: str, number: int) -> Body:
    """A device of a driver; some say less of themselves."""
    attributes: Body = {"index": {"int": number}, "uuid": {"string": f"{driver}-{dice.random()}"}}
    if driver == GPU:
        attributes["model"] = {"string": dice.choice(MODELS)}
        attributes["driver"] = {"version": dice.choice(("1.2.0", "1.10.0", "1.3.0-beta.2", "2.0.0+build.7"))}
        attributes["healthy"] = {"bool": dice.random() < 0.9}
    attributes["numa"] = {"int": dice.randrange(2)}
    if dice.random() < 0.8:
        attributes["dra.example.com/fabric"] = {"string": dice.choice(("f0", "f1"))}
    made: Body = {"name": f"d{number}", "attributes": attributes}
    if driver == GPU:
        made["capacity"] = {"memory": {"value": dice.choice(("40Gi", "80Gi", "141Gi", "81920Mi"))}}
    if driver == GPU and dice.random() < 0.15:
        _draw_shares(dice, made)
    if dice.random() < 0.15:
        effect = dice.choice(("NoSchedule", "NoExecute", "None"))
        made["taints"] = [{"key": TAINT, "value": "yes", "effect": effect}]
    return made


POLICIES: Final[tuple[Body, ...]] = (
    {"default": "10Gi", "validRange": {"min": "5Gi", "max": "40Gi", "step": "5Gi"}},
    {"default": "20Gi", "validRange": {"min": "8Gi"}},
    {"default": "16Gi", "validValues": ["4Gi", "16Gi", "32Gi"]},
)


def _draw_shares(dice: random.Random, device: Body) -> None:
    """Let several claims have shares of a device."""
    device["allowMultipleAllocations"] = True
    if dice.random() < 0.75:
        device["capacity"]["memory"]["requestPolicy"] = dice.choice(POLICIES)
    if dice.random() < 0.3:
        device["capacity"]["lanes"] = {
            "value": "8",
            "requestPolicy": {"default": "2", "validRange": {"min": "0"}},
        }


PARTS: Final = ((80, 7), (40, 4), (40, 3), (20, 2), (10, 1), (10, 1))
"""What partitions use up of the counters of their GPU."""


def _partitions(dice: random.Random, gpus: int) -> tuple[list[Body], list[Body]]:
    """The partitions of so many GPUs, in random order, and the counters of these."""
    devices: list[Body] = []
    for gpu in range(gpus):
        for memory, engines in dice.sample(PARTS, dice.randrange(2, len(PARTS) + 1)):
            made = device(dice, GPU, len(devices))
            counters = {"memory": {"value": f"{memory}Gi"}, "engines": {"value": str(engines)}}
            made["consumesCounters"] = [{"counterSet": f"gpu-{gpu}", "counters": counters}]
            devices.append(made)
    sets = [
        {"name": f"gpu-{gpu}", "counters": {"memory": {"value": "80Gi"}, "engines": {"value": "7"}}}
        for gpu in range(gpus)
    ]
    return devices, sets


@dataclass
class Pair:
    """A node's slices, claims that hold some of its devices, and a pod's claims: of templates or by name.

    extended: how much its containers ask for of the extended resource. plugin: what the node offers of it.
    """

    slices: list[Body] = field(default_factory=list)
    taken: list[Body] = field(default_factory=list)
    specs: list[Body] = field(default_factory=list)
    is_template: bool = True
    extended: tuple[int, ...] = ()
    plugin: int = 0


def draw(dice: random.Random, node: str) -> Pair:
    """A node that may or may not have what the claims of a pod ask for."""
    pair = Pair(is_template=dice.random() < 0.6)
    for pool in range(dice.choice((1, 1, 2))):
        _draw_pool(dice, node, f"{node}-{pool}", pair)
    pair.specs = [claim(dice) for _ in range(dice.choice((1, 1, 1, 1, 2)))]
    if dice.random() < 0.3:
        pair.extended = tuple(dice.choice((0, 1, 1, 2, 3)) for _ in range(dice.choice((1, 1, 2))))
        pair.plugin = dice.choice((0, 0, 0, 2, 4))
        if dice.random() < 0.6:
            pair.specs, pair.is_template = [], True
    return pair


def _draw_pool(dice: random.Random, node: str, name: str, pair: Pair) -> None:
    if dice.random() < 0.2:
        _draw_partitions(dice, node, name, pair)
        return
    driver = dice.choice(DRIVERS)
    parts = dice.choice((1, 1, 2))
    slice_count = parts + (dice.random() < 0.08)  # one is missing
    number = 0
    for part in range(parts):
        devices = [device(dice, driver, number + each) for each in range(dice.randrange(1, 7))]
        number += len(devices)
        spec: Body = {
            "driver": driver,
            "pool": {"name": name, "generation": 2, "resourceSliceCount": slice_count},
            "devices": devices,
        }
        where = dice.random()
        if where < 0.8 or not devices:
            spec["nodeName"] = node
        elif where < 0.9:
            only = {"key": "metadata.name", "operator": "In", "values": [node]}
            spec["nodeSelector"] = {"nodeSelectorTerms": [{"matchFields": [only]}]}
        else:
            spec["perDeviceNodeSelection"] = True
            for each in devices:
                each["nodeName"] = dice.choice((node, node, "elsewhere"))
        pair.slices.append({"metadata": {"name": f"{name}-{part}"}, "spec": spec})
        _draw_taken(dice, driver, name, devices, pair)
    if dice.random() < 0.1:  # what is left of the generation before
        old: Body = {"driver": driver, "nodeName": node, "devices": [device(dice, driver, 9)]}
        old["pool"] = {"name": name, "generation": 1, "resourceSliceCount": 1}
        pair.slices.append({"metadata": {"name": f"{name}-old"}, "spec": old})


def _draw_partitions(dice: random.Random, node: str, name: str, pair: Pair) -> None:
    devices, sets = _partitions(dice, dice.choice((1, 2)))
    pool = {"name": name, "generation": 1, "resourceSliceCount": 2 + (dice.random() < 0.05)}
    common: Body = {"driver": GPU, "pool": pool, "nodeName": node}
    pair.slices.append({"metadata": {"name": f"{name}-0"}, "spec": {**common, "devices": devices}})
    pair.slices.append({"metadata": {"name": f"{name}-1"}, "spec": {**common, "sharedCounters": sets}})
    _draw_taken(dice, GPU, name, devices, pair)


def _draw_taken(dice: random.Random, driver: str, pool: str, devices: list[Body], pair: Pair) -> None:
    for each in devices:
        if dice.random() < 0.1:
            result: Body = {"request": "r", "driver": driver, "pool": pool, "device": each["name"]}
            if each.get("allowMultipleAllocations"):
                result["shareID"] = str(uuid.UUID(int=dice.getrandbits(128), version=4))
                result["consumedCapacity"] = {"memory": dice.choice(("16Gi", "30Gi"))}
            pair.taken.append({"devices": {"results": [result]}})


def claim(dice: random.Random) -> Body:
    """The spec of a claim."""
    requests = [request(dice, f"r{number}") for number in range(dice.choice((1, 1, 2)))]
    devices: Body = {"requests": requests}
    if dice.random() < 0.35:
        kind = dice.choice(("matchAttribute", "matchAttribute", "distinctAttribute"))
        name = dice.choice(("dra.example.com/fabric", f"{GPU}/numa", f"{GPU}/model", f"{GPU}/driver"))
        own: Body = {kind: name}
        if dice.random() < 0.3:
            own["requests"] = ["r0"]
        devices["constraints"] = [own]
    return {"devices": devices}


def request(dice: random.Random, name: str) -> Body:
    """A request, exact or with alternatives."""
    if dice.random() < 0.2:
        alternatives = [{"name": f"a{number}", **_asked(dice)} for number in range(2)]
        return {"name": name, "firstAvailable": alternatives}
    asked = _asked(dice)
    if dice.random() < 0.08:
        asked["adminAccess"] = True
    return {"name": name, "exactly": asked}


def _asked(dice: random.Random) -> Body:
    kind = dice.choice((*["gpu"] * 8, "nic", "any", "large", "new", "fails"))
    asked: Body = {"deviceClassName": kind}
    if dice.random() < 0.12:
        asked["allocationMode"] = "All"
    else:
        asked |= {"allocationMode": "ExactCount", "count": dice.choice((1, 1, 2, 3))}
    if dice.random() < 0.35:
        asked["selectors"] = [{"cel": {"expression": dice.choice(SELECTORS)}}]
    if dice.random() < 0.2:
        amounts = ("1Gi", "7Gi", "16Gi", "30Gi", "50Gi", "90Gi")
        asked["capacity"] = {"requests": {"memory": dice.choice(amounts)}}
        if dice.random() < 0.1:
            asked["capacity"]["requests"]["lanes"] = "3"
    if dice.random() < 0.25:
        toleration = {"key": TAINT, "operator": dice.choice(("Exists", "Equal"))}
        if toleration["operator"] == "Equal":
            toleration["value"] = dice.choice(("yes", "no"))
        asked["tolerations"] = [toleration]
    return asked
