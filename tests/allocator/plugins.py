"""A device plugin served beside a played kubelet."""

from collections.abc import Callable
from typing import Any

from labeler.allocator.devices import Inventory
from labeler.allocator.plugin import CardsPlugin
from labeler.allocator.register import Registration
from labeler.allocator.resolve import Resolver
from labeler.allocator.values import Listing, LocalCard, LocalContainer, LocalPod
from labeler.allocator.vendors import Places
from labeler.allocator.vendors.intel import Intel
from labeler.allocator.wire import deviceplugin_pb2 as wire
from tests.allocator.conftest import Kubelet

I915 = "gpu.intel.com/i915"


XE = "gpu.intel.com/xe"


MONITORING = f"{I915}_monitoring"


LINK = "/dev/dri/by-path/pci-0000:04:00.0-render"


def card(number: int, **more: Any) -> LocalCard:
    nodes = (f"/dev/dri/card{number}", f"/dev/dri/renderD{128 + number}")
    return LocalCard(number, I915, nodes, pci_address=f"0000:{3 + number:02x}:00.0", tiles=2, **more)


class Site:
    """One pod that asks for cards, and a plugin that the played kubelet has registered."""

    def __init__(self, kubelet: Kubelet, pod: LocalPod, use_cdi: bool = False) -> None:
        self.kubelet = kubelet
        self.allocated: dict[str, dict[str, tuple[str, ...]]] = {}
        self.cards = [card(0), card(1, links=(LINK,)), card(2)]
        self.asked = 0
        self.pod = pod
        self.others: Listing = {}
        self.on_asked: Callable[[], None] = lambda: None
        site = self

        class World:
            def now(self) -> Any:
                site.asked += 1
                site.on_asked()
                return (site.pod,)

            def warn(self, *_: object) -> None:
                pass

        class Listed:
            def now(self) -> Listing:
                return {site.pod.key: site.allocated, **site.others}

            def lists_the_living_alone(self) -> bool:
                return True

        self.inventory = Inventory(lambda: tuple(self.cards))
        self.inventory.look()
        resolver = Resolver(Listed(), World(), World(), sleep=lambda _: None)
        self.plugin = CardsPlugin(I915, Intel(Places()), self.inventory, resolver, 2, use_cdi)

    def register(self) -> None:
        class Resources:
            def healthy(self, _: str) -> frozenset[str]:
                return frozenset()

        self.registration = Registration(self.plugin, self.kubelet.plugins, Resources())  # type: ignore[arg-type]
        self.registration.poll(0)
        self.kubelet.wait_for_devices(1)

    def prefer(self, *available: str, size: int = 1) -> list[str]:
        ask = wire.ContainerPreferredAllocationRequest(available_deviceIDs=available, allocation_size=size)
        request = wire.PreferredAllocationRequest(container_requests=[ask])
        answer = self.kubelet.call("GetPreferredAllocation", request, wire.PreferredAllocationResponse)
        return list(answer.container_responses[0].deviceIDs)

    def allocate(self, *devices: str) -> wire.ContainerAllocateResponse:
        asks = [wire.ContainerAllocateRequest(devices_ids=devices)]
        request = wire.AllocateRequest(container_requests=asks)
        answer: wire.AllocateResponse = self.kubelet.call("Allocate", request, wire.AllocateResponse)
        return answer.container_responses[0]


def asking(count: int) -> LocalContainer:
    return LocalContainer("c", {I915: count})


def planned(cards: str, tiles: str = "", monitoring: int = 0, xe: int = 0) -> LocalPod:
    annotations = {"gas-container-cards": cards, "gas-ts": "1700000000000000000"}
    annotations |= {"gas-container-tiles": tiles} if tiles else {}
    asks = {I915: cards.count(",") + 1, MONITORING: monitoring, XE: xe}
    return LocalPod("ns", "p", "uid", annotations, (LocalContainer("c", asks),))
