"""Gangs that admission held for claims on no GPU: what is wrong with one stops no other."""

from typing import Any

from tests.sweeper.cluster import Nodes, Placing
from tests.sweeper.pods import decode, pod_json
from webhook.configuration.settings import Settings
from webhook.extensions.device_claims import release_without_placement
from webhook.kube.objects import Pod


class Supply:
    """Knows the DeviceClass of each claim, but for those of the pod that is bad."""

    def class_names(self, pod: Pod) -> frozenset[str]:
        if pod.metadata.name == "bad":
            raise KeyError("not foreseen")
        return frozenset({"nic.example.com"})


class ForGpus:
    """A policy by which no class but gpu.example.com is a GPU."""

    takes_every_class = False
    gate = "gke.io/topology-aware-auto-topogate"

    def serves_gate(self, name: str) -> bool:
        return True

    def is_gpu_class(self, name: str) -> bool:
        return name == "gpu.example.com"


def test_a_gang_that_cannot_be_checked_stays_gated_and_the_others_are_released() -> None:
    claims = [{"name": "c", "resourceClaimName": "c"}]
    pods = [decode(pod_json(name, resourceClaims=claims)) for name in ("bad", "good")]
    gangs = Placing(Nodes(1, *pods), Settings()).gangs()
    supply: Any = Supply()
    policy: Any = ForGpus()
    found = release_without_placement(gangs, supply, policy)
    assert {gang.key.name: gang.alone for gang in found} == {"bad": False, "good": True}
