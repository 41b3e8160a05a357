"""Stranded GPUs of whole GPUs, replicas, shares of cards and claims, as page, map and metric show them."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from tests.devices.bodies import NAMESPACE, claim, claim_spec, device_class, exactly, given, gpus
from tests.sweeper.pods import decode, pod_json
from tests.ui.scenes import SETTINGS
from webhook.cli.map import model_lines
from webhook.extensions.device_claims import CLAIMS, CLASSES, SLICES, TEMPLATES
from webhook.inquiry.cluster_state import ClusterReading
from webhook.kube.devices import ResourceClaim
from webhook.kube.objects import Node, Pod
from webhook.kube.placements import Placement
from webhook.placement.stranded_gpus import SHARES
from webhook.scheduling.gpus import Counting
from webhook.scheduling.pod_mix import PARTS
from webhook.sweeper.observe.gangs import OwnerFacts
from webhook.sweeper.observe.watches import WatchedCollection
from webhook.sweeper.pass_measurements import take_stock
from webhook.ui.live import Artist, Scene

COUNTING = Counting(("nvidia.com/gpu", "gpu.intel.com/i915"))
GPU = {"nvidia.com/gpu": "1"}
SHARE = {"gpu.intel.com/i915": "1", "gpu.intel.com/millicores": "600"}
CARDS = {"gpu.intel.com/i915": "20", "gpu.intel.com/millicores": "2000"}


@dataclass(frozen=True)
class Devices(ClusterReading):
    """A reading with the collections of device claims."""

    claims: tuple[ResourceClaim, ...] = ()

    def read_collections(
        self, collections: Sequence[WatchedCollection[Any]]
    ) -> Mapping[Hashable, Mapping[str, Any]]:
        known: dict[Hashable, Mapping[str, Any]] = {
            SLICES: {"d0": gpus("d0", 4)},
            CLASSES: {"gpu": device_class("gpu")},
            CLAIMS: {f"{NAMESPACE}/{each.metadata.name}": each for each in self.claims},
            TEMPLATES: {},
        }
        return {each: known[each] for each in collections if each in known}


def node(
    name: str, model: str, amounts: Mapping[str, str], cpu: int = 12, ready: bool = True, **more: Any
) -> Node:
    labels = {"falldio.com/gpu": model, **more.pop("labels", {})}
    status = {
        "allocatable": {"cpu": str(cpu), "memory": "512Gi", "pods": "110", **amounts},
        "conditions": [{"type": "Ready", "status": str(ready)}],
    }
    return msgspec.convert(
        {"metadata": {"name": name, "labels": labels}, "spec": more, "status": status}, Node
    )


def pod(name: str, on: str, cpu: int, amounts: Mapping[str, str], claimed: str = "") -> Pod:
    requests = {"cpu": str(cpu), **amounts}
    resources: dict[str, Any] = {"requests": requests, "limits": requests}
    spec: dict[str, Any] = {"nodeName": on, "schedulingGates": []} if on else {}
    if claimed:
        spec["resourceClaims"] = [{"name": "g", "resourceClaimName": claimed}]
        resources["claims"] = [{"name": "g"}]
    container = {"name": "c", "resources": resources}
    metadata = {"namespace": NAMESPACE, "uid": f"uid-{name}"}
    return decode(pod_json(name, containers=[container], metadata=metadata, **spec))


def claim_of(pod_name: str, count: int, *devices: str, kind: str = "gpu") -> ResourceClaim:
    """A claim for so many devices, and its allocation."""
    made = claim(
        pod_name, claim_spec(exactly(count, kind)), given=given(*devices, pool="d0") if devices else None
    )
    body = msgspec.to_builtins(made)
    body["status"]["reservedFor"] = [{"uid": f"uid-{pod_name}"}] if devices else []
    return msgspec.convert(body, ResourceClaim)


def scene() -> Scene:
    eight = {"nvidia.com/gpu": "8"}
    nodes = [
        node("h0", "H100", eight),
        node("h1", "H100", eight, cpu=4, ready=False),
        node("h2", "H100", eight, cpu=4, unschedulable=True),
        node("h3", "H100", eight, cpu=4),
        node("l0", "L4", {"nvidia.com/gpu": "20"}, labels={"nvidia.com/gpu.replicas": "10"}),
        node("m0", "Max", CARDS, cpu=64, labels={"gpu.intel.com/cards": "card0.card1"}),
        node("m1", "Max", CARDS, cpu=64, labels={"gpu.intel.com/cards": "card0.card1"}),
        node("d0", "B200", {}),
    ]
    pods = [
        pod("of-h", "h0", 8, GPU),
        pod("of-l", "l0", 8, GPU),
        pod("of-m0", "m0", 1, SHARE),
        pod("of-m1", "m1", 1, SHARE),
        pod("of-d", "d0", 8, {}, "of-d"),
        pod("waits", "", 1, {}, "waits"),
    ]
    reserved = msgspec.convert(
        {"metadata": {"namespace": "ns", "name": "p"}, "status": {"reservedNodes": ["h3"]}}, Placement
    )
    claims = claim_of("of-d", 1, "g0"), claim_of("waits", 2)
    by_name = {each.metadata.name: each for each in nodes}
    reading = Devices(tuple(pods), by_name, {"ns/p": reserved}, lambda _: OwnerFacts(), claims=claims)
    return Artist(reading, SETTINGS, COUNTING).scene()


def test_page_and_metric_equal_a_count_by_hand() -> None:
    """Of H100, h0 alone counts: h1 is not ready, h2 cordoned, and h3 reserved.

    The GPUs of L4 have ten replicas each, of which 19 are free. Each Max node has 400 thousandths left on a
    card. Half of the pods with claims, the bound ones, request more CPU than d0 has left.
    """
    found = scene()
    shown = {each.model: (each.free, each.gpus, each.stranded) for each in found.capacity}
    assert shown == {
        "H100": (7, 16, "7 stranded: 7 lack cpu"),
        "L4": (1, 2, "2 stranded: 2 lack cpu"),
        "Max": (2, 4, "1 stranded: 1 are shares of cards"),
        "B200": (3, 4, "2 stranded: 2 lack cpu"),
    }
    measured = take_stock(found.snapshot, COUNTING, {"h3"}).stranded
    assert measured == {
        ("H100", "cpu"): 7.0, ("L4", "cpu"): 1.9, ("Max", SHARES): 0.8, ("B200", "cpu"): 1.5,
    }  # fmt: skip
    assert "L4: 1 free of 2; 2 stranded: 2 lack cpu" in model_lines(found.capacity)


def test_a_waiting_pod_is_in_the_mix_once_whatever_it_claims_beside_its_gpus() -> None:
    nodes = {"h0": node("h0", "H100", {"nvidia.com/gpu": "8"})}
    pods = pod("claims", "", 1, GPU, "claims"), pod("claims-no-device", "", 1, {"nvidia.com/gpu": "2"})
    claims = (claim_of("claims", 1, kind="network"),)
    reading = Devices(pods, nodes, {}, lambda _: OwnerFacts(), claims=claims)
    mix = Artist(reading, SETTINGS, COUNTING).scene().snapshot.mix
    assert {each.thousandths: each.count for each in mix.classes} == {1000: PARTS // 2, 2000: PARTS // 2}
