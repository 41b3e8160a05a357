"""Devices, classes and claims at random, such as the API server takes."""

import random
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


def classes() -> list[Body]:
    """All of them."""
    return [
        {"metadata": {"name": name}, "spec": {"selectors": [{"cel": {"expression": each}} for each in own]}}
        for name, own in CLASSES.items()
    ]


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
    if dice.random() < 0.15:
        effect = dice.choice(("NoSchedule", "NoExecute", "None"))
        made["taints"] = [{"key": TAINT, "value": "yes", "effect": effect}]
    return made


@dataclass
class Pair:
    """A node's slices, claims that hold some of its devices, and a pod's claims: of templates or by name."""

    slices: list[Body] = field(default_factory=list)
    taken: list[Body] = field(default_factory=list)
    specs: list[Body] = field(default_factory=list)
    is_template: bool = True


def draw(dice: random.Random, node: str) -> Pair:
    """A node that may or may not have what the claims of a pod ask for."""
    pair = Pair(is_template=dice.random() < 0.6)
    for pool in range(dice.choice((1, 1, 2))):
        _draw_pool(dice, node, f"{node}-{pool}", pair)
    pair.specs = [claim(dice) for _ in range(dice.choice((1, 1, 1, 1, 2)))]
    return pair


def _draw_pool(dice: random.Random, node: str, name: str, pair: Pair) -> None:
    driver = dice.choice(DRIVERS)
    parts = dice.choice((1, 1, 2))
    said = parts + (dice.random() < 0.08)  # one is missing
    number = 0
    for part in range(parts):
        devices = [device(dice, driver, number + each) for each in range(dice.randrange(1, 7))]
        number += len(devices)
        spec: Body = {
            "driver": driver,
            "pool": {"name": name, "generation": 2, "resourceSliceCount": said},
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
        for each in devices:
            if dice.random() < 0.1:
                results = [{"request": "r", "driver": driver, "pool": name, "device": each["name"]}]
                pair.taken.append({"devices": {"results": results}})
    if dice.random() < 0.1:  # what is left of the generation before
        old: Body = {"driver": driver, "nodeName": node, "devices": [device(dice, driver, 9)]}
        old["pool"] = {"name": name, "generation": 1, "resourceSliceCount": 1}
        pair.slices.append({"metadata": {"name": f"{name}-old"}, "spec": old})


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
    if dice.random() < 0.25:
        toleration = {"key": TAINT, "operator": dice.choice(("Exists", "Equal"))}
        if toleration["operator"] == "Equal":
            toleration["value"] = dice.choice(("yes", "no"))
        asked["tolerations"] = [toleration]
    return asked
