"""Our verdicts of CEL selectors against those of the API server's own library, at random.

kube-scheduler is made to say them: each pod has a claim, for admin access, on all devices of a node that its
selector selects, and what it is given are the devices of which the selector is true.
"""

import os
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import msgspec
import pytest

from hack.local.cluster import Cluster
from hack.local.nodes import SimulatedNode
from tests.devices.drawn_selectors import DEVICES, DRIVER, Body, devices, selector
from tests.scheduling.agreement import CLIENTS, register
from webhook.devices.selectors import SelectorError, Selectors, described
from webhook.kube.client import ApiError
from webhook.kube.devices import CLASSES, GROUP, SLICES, Device

SELECTORS: Final = int(os.environ.get("TOPOGATE_SELECTORS", "80"))
"""More of them take minutes. Each is evaluated on all devices."""
PODS_PER_NODE: Final = 100


@pytest.fixture
def one_class(cluster: Cluster) -> Iterator[None]:
    """A class of all devices."""
    cluster.api().request("POST", CLASSES, body={"metadata": {"name": "any"}, "spec": {}})
    yield
    for path in (CLASSES, SLICES):
        cluster.api().request("DELETE", path)


def made(cluster: Cluster, namespace: str, number: int, node: str, expression: str) -> bool:
    """Create a claim with a selector and a pod that has it; False if the API server refuses the selector."""
    asked = {
        "deviceClassName": "any",
        "allocationMode": "All",
        "adminAccess": True,
        "selectors": [{"cel": {"expression": expression}}],
    }
    name, api = f"s{number}", cluster.api()
    spec = {"devices": {"requests": [{"name": "r", "exactly": asked}]}}
    try:
        path = f"{GROUP}/namespaces/{namespace}/resourceclaims"
        api.request("POST", path, body={"metadata": {"name": name}, "spec": spec})
    except ApiError as error:
        if error.status != 422:
            raise
        return False
    body = {
        "metadata": {"name": name},
        "spec": {
            "nodeSelector": {"kubernetes.io/hostname": node},
            "containers": [{"name": "c", "image": "x"}],
            "resourceClaims": [{"name": "c", "resourceClaimName": name}],
        },
    }
    api.request("POST", f"/api/v1/namespaces/{namespace}/pods", body=body)
    return True


def matches(cluster: Cluster, namespace: str, wanted: int) -> dict[str, set[str] | None]:
    """By pod the devices that its selector selects, None where the selector fails on one."""
    found: dict[str, set[str] | None] = {}

    def is_decided() -> bool:
        for pod in cluster.api().json("GET", f"/api/v1/namespaces/{namespace}/pods")["items"]:
            conditions = {each["type"]: each for each in pod["status"].get("conditions", [])}
            reason = conditions.get("PodScheduled", {}).get("reason")
            if reason == "SchedulerError":
                assert "CEL runtime error" in conditions["PodScheduled"]["message"], conditions
                found[pod["metadata"]["name"]] = None
            elif reason == "Unschedulable":
                found[pod["metadata"]["name"]] = set()
            elif pod["spec"].get("nodeName"):
                found.setdefault(pod["metadata"]["name"], set())
        return len(found) == wanted

    cluster.wait_for("a verdict on each selector", is_decided, 240)
    for claim in cluster.api().json("GET", f"{GROUP}/namespaces/{namespace}/resourceclaims")["items"]:
        allocation: Any = claim.get("status", {}).get("allocation")
        if allocation:
            found[claim["metadata"]["name"]] = {each["device"] for each in allocation["devices"]["results"]}
    return found


def ours(selectors: Selectors, expression: str, there: list[Device]) -> set[str] | None:
    """The devices that it selects, None where it fails on one."""
    try:
        return {each.name for each in there if selectors.matches(expression, described(DRIVER, each))}
    except SelectorError as error:
        if "cannot be evaluated here" in str(error):
            raise
        return None


@pytest.mark.promise("R133")
@pytest.mark.usefixtures("one_class")
def test_we_evaluate_selectors_as_the_api_server_s_own_library_does(cluster: Cluster, namespace: str) -> None:
    dice = random.Random(23)
    api = cluster.api()
    label = {"metadata": {"labels": {"resource.kubernetes.io/admin-access": "true"}}}
    merge = "application/merge-patch+json"
    api.request("PATCH", f"/api/v1/namespaces/{namespace}", body=label, content_type=merge)
    names = [f"n{number}" for number in range(-(-SELECTORS // PODS_PER_NODE))]
    register(cluster, [SimulatedNode(name, ("b", "s", name), False, 0).manifest() for name in names])
    there: dict[str, list[Body]] = {name: devices(dice) for name in names}
    for name, own in there.items():
        pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
        spec = {"driver": DRIVER, "nodeName": name, "pool": pool, "devices": own}
        api.request("POST", SLICES, body={"metadata": {"name": name}, "spec": spec})
    asked: dict[str, tuple[str, str]] = {}
    with ThreadPoolExecutor(CLIENTS) as pool_of_clients:
        while len(asked) < SELECTORS:
            first = len(asked)
            new = [(n, names[n // PODS_PER_NODE], selector(dice)) for n in range(first, SELECTORS)]
            results = pool_of_clients.map(lambda each: made(cluster, namespace, *each), new)
            taken = [each for each, is_made in zip(new, results, strict=True) if is_made]
            refused = [n for n, *_ in new if n not in {each[0] for each in taken}]
            asked |= {f"s{n}": (node, text) for n, node, text in taken}
            for n in refused:
                for _ in range(50):
                    text = selector(dice, 1)
                    if made(cluster, namespace, n, names[n // PODS_PER_NODE], text):
                        asked[f"s{n}"] = (names[n // PODS_PER_NODE], text)
                        break
    theirs = matches(cluster, namespace, SELECTORS)
    selectors = Selectors()
    wrong, refused_here = [], []
    for name, (node, expression) in asked.items():
        found = ours(selectors, expression, [msgspec.convert(each, Device) for each in there[node]])
        if found is None and theirs[name] is not None:
            refused_here.append(expression)  # a fault of the library: such a pod waits, with a reason
        elif found != theirs[name]:
            wrong.append((expression, found, theirs[name]))
    assert not wrong, f"{len(wrong)} of {SELECTORS}: {wrong[:5]}"
    assert len(refused_here) <= SELECTORS // 200, refused_here
    selective = sum(bool(found) and len(found) < DEVICES for found in theirs.values() if found)
    assert selective > SELECTORS // 8, f"only {selective} of {SELECTORS} tell devices apart"
