"""The ``_monitoring`` resources: one device that shows every card of another resource."""

from collections.abc import Sequence

from labeler.allocator import metrics
from labeler.allocator.devices import Inventory
from labeler.allocator.plugin import HEALTHY, UNHEALTHY, Plugin
from labeler.allocator.resolve import DEFAULT
from labeler.allocator.values import MONITORING_ID, Edits
from labeler.allocator.vendors import Vendor
from labeler.allocator.wire import deviceplugin_pb2 as wire


class MonitoringPlugin(Plugin):
    """A resource with one device, which shows every card of another resource and takes none."""

    def __init__(
        self, resource: str, shown: str, vendor: Vendor, inventory: Inventory, use_cdi: bool = False
    ) -> None:
        """shown: the resource whose cards are shown."""
        super().__init__(resource, inventory)
        self._shown = shown
        self._use_cdi = use_cdi
        self._vendor = vendor

    def devices(self) -> list[wire.Device]:
        """One, healthy while any card is."""
        cards = self._inventory.cards(self._shown)
        if not cards:
            return []
        ill = all(card.problem for card in cards)
        return [wire.Device(ID=MONITORING_ID, health=UNHEALTHY if ill else HEALTHY)]

    def allocate(self, devices: Sequence[str]) -> Edits:
        """The device files of every healthy card; no mask, since a monitor looks at all of them."""
        cards = {card: () for card in self._inventory.cards(self._shown) if not card.problem}
        edits = self._vendor.edits(cards, (), None, self._use_cdi)
        metrics.ALLOCATIONS.labels(self.resource, DEFAULT).inc()
        return edits
