"""One resource as the kubelet's device plugin interface v1beta1 wants it, served on a socket.

https://kubernetes.io/docs/concepts/extend-kubernetes/compute-storage-net/device-plugins/
A refusal is a gRPC error whose text the kubelet puts into the pod's status (UnexpectedAdmissionError): the
pod fails and its controller recreates it, which is better than to run on a card that belongs to another.
"""

import contextlib
import logging
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import grpc

from labeler.allocator import metrics
from labeler.allocator.card_report import CardReporter
from labeler.allocator.choose import by_number
from labeler.allocator.devices import Inventory
from labeler.allocator.resolve import DEFAULT, Grant, Resolver
from labeler.allocator.values import Edits, LocalCard, Refusal, card_of, device_id
from labeler.allocator.vendors import Vendor
from labeler.allocator.wire import deviceplugin_pb2 as wire

log: Final = logging.getLogger(__name__)

HEALTHY: Final = "Healthy"
UNHEALTHY: Final = "Unhealthy"
_HEARTBEAT_SECONDS: Final = 3600.0


@dataclass(frozen=True)
class _Answered:
    devices: frozenset[str]
    grant: Grant


class Plugin:
    """What is the same of every resource: options, the list of devices, and refusals with their names."""

    prefers = False

    def __init__(self, resource: str, inventory: Inventory) -> None:
        self.resource = resource
        self._inventory = inventory
        self._streams = 0
        self.opened = 0
        """How often the kubelet has begun to listen."""
        self._calls = 0
        self._last_call_at = float("-inf")
        self._lock = threading.Lock()

    @property
    def is_listened_to(self) -> bool:
        """Whether the kubelet holds a stream of the devices: then it has this plugin registered."""
        return self._streams > 0

    def is_asked(self, seconds: float) -> bool:
        """Whether the kubelet waits for an answer, or had one so many seconds ago: one more may follow."""
        with self._lock:
            return self._calls > 0 or time.monotonic() - self._last_call_at < seconds

    def forget(self) -> None:
        """Another kubelet may be listening than before."""

    def devices(self) -> list[wire.Device]:
        """Every device with its health."""
        raise NotImplementedError

    def allocate(self, devices: Sequence[str]) -> Edits:
        """What the container gets. Raises Refusal."""
        raise NotImplementedError

    def prefer(self, available: Sequence[str], must_include: Sequence[str], size: int) -> list[str]:
        """What it should get. Raises Refusal."""
        raise NotImplementedError

    def options(self) -> wire.DevicePluginOptions:
        """What the kubelet may ask."""
        return wire.DevicePluginOptions(get_preferred_allocation_available=self.prefers)

    def list_and_watch(self, _: wire.Empty, context: Any) -> Iterator[wire.ListAndWatchResponse]:
        """The devices now and after every change, for as long as the kubelet listens."""
        with self._lock:
            self._streams += 1
            self.opened += 1
        self.forget()
        context.add_callback(self._inventory.wake)
        sent: list[wire.Device] | None = None
        try:
            while True:
                version = self._inventory.version  # read first: the end of the stream changes it as well
                if not context.is_active():
                    return
                now = self.devices()
                if now != sent:
                    sent = now
                    yield wire.ListAndWatchResponse(devices=now)
                self._inventory.wait(version, _HEARTBEAT_SECONDS)
        finally:
            with self._lock:
                self._streams -= 1

    def on_prefer(
        self, request: wire.PreferredAllocationRequest, context: Any
    ) -> wire.PreferredAllocationResponse:
        """GetPreferredAllocation."""
        with self._refusals("prefer", context):
            ask = _only(request.container_requests)
            devices = self.prefer(ask.available_deviceIDs, ask.must_include_deviceIDs, ask.allocation_size)
            answer = wire.ContainerPreferredAllocationResponse(deviceIDs=devices)
            return wire.PreferredAllocationResponse(container_responses=[answer])

    def on_allocate(self, request: wire.AllocateRequest, context: Any) -> wire.AllocateResponse:
        """Allocate."""
        with self._refusals("allocate", context):
            edits = self.allocate(_only(request.container_requests).devices_ids)
            return wire.AllocateResponse(container_responses=[_response(edits)])

    @contextlib.contextmanager
    def _refusals(self, call: str, context: Any) -> Iterator[None]:
        with self._lock:
            self._calls += 1
        try:
            with metrics.DECISION_SECONDS.labels(call).time():
                yield
        except Refusal as refusal:
            metrics.ALLOCATIONS.labels(self.resource, "refused").inc()
            log.warning("%s refused (%s): %s", self.resource, call, refusal)
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, f"topogate: {refusal}")
        finally:
            with self._lock:
                self._calls -= 1
                self._last_call_at = time.monotonic()


class CardsPlugin(Plugin):
    """A resource that hands out cards, or shares of them."""

    prefers = True

    def __init__(
        self,
        resource: str,
        vendor: Vendor,
        inventory: Inventory,
        resolver: Resolver | None,
        shares: int,
        use_cdi: bool = False,
        reporter: CardReporter | None = None,
    ) -> None:
        """shares: devices of each card. resolver: None where no annotation names this vendor's cards.

        reporter: is called whenever a container was given devices, and whenever a kubelet begins to listen.
        """
        super().__init__(resource, inventory)
        self._vendor = vendor
        self._resolver = resolver
        self._shares = shares
        self._use_cdi = use_cdi
        self._reporter = reporter
        self._answered: _Answered | None = None

    def forget(self) -> None:
        """Answers to a kubelet that has ended no longer count."""
        self._answered = None
        if (
            self._resolver is not None and self.opened > 1
        ):  # the first is the one that was listed at the start
            self._resolver.restarted()
        if self._reporter is not None:
            self._reporter.kubelet_began()

    def devices(self) -> list[wire.Device]:
        """So many of each card."""
        return [
            wire.Device(ID=device_id(card, share), health=UNHEALTHY if card.problem else HEALTHY)
            for card in self._cards()
            for share in range(self._shares)
        ]

    def prefer(self, available: Sequence[str], must_include: Sequence[str], size: int) -> list[str]:
        """Devices of the cards that the annotations name; for pods without any, the vendor's default."""
        cards = self._cards()

        def default(taken: Mapping[str, int]) -> list[str]:
            return self._vendor.default(cards, available, must_include, size, taken)

        if self._resolver is None:
            devices, grant = default({}), Grant(DEFAULT)
        else:
            every = by_number(self._inventory.cards())  # a plan may name cards of other resources beside
            devices, grant = self._resolver.prefer(
                self.resource, size, available, must_include, every, default
            )
        self._answered = _Answered(frozenset(devices), grant)
        return devices

    def allocate(self, devices: Sequence[str]) -> Edits:
        """Device files and environment of just these devices, once it is certain that they are right."""
        grant = self._grant(devices)
        given = self._given(grant, devices)
        visible = self._also_visible(grant)
        edits = self._vendor.edits(given, visible, grant.container, self._use_cdi)
        self._check_alone(grant, edits)
        metrics.ALLOCATIONS.labels(self.resource, grant.how).inc()
        if self._reporter is not None:
            self._reporter.changed()
        log.info(
            "%s: %s to %s, container %s (%s) %s",
            self.resource,
            ", ".join(sorted(devices)),
            grant.pod or "a pod",
            grant.container.name if grant.container else "unknown",
            grant.how,
            dict(edits.environment),
        )
        return edits

    def _cards(self) -> tuple[LocalCard, ...]:
        return self._inventory.cards(self.resource)

    def _grant(self, devices: Sequence[str]) -> Grant:
        """What was answered a moment ago if the kubelet took it, else what is found out again.

        A pod may be refused or deleted before its Allocate, and another one may have got the same devices.
        """
        if self._resolver is None:
            return Grant(DEFAULT)
        answered, self._answered = self._answered, None
        is_taken = answered is not None and answered.devices == frozenset(devices)
        if answered is not None and is_taken and self._resolver.still_asks(answered.grant):
            return answered.grant
        return self._resolver.confirm(self.resource, devices, by_number(self._inventory.cards()))

    def _given(self, grant: Grant, devices: Sequence[str]) -> dict[LocalCard, tuple[int, ...]]:
        by_label = {card.label: card for card in self._cards()}
        unknown = sorted({card_of(device) for device in devices} - by_label.keys())
        if unknown:
            raise Refusal(f"the kubelet asks for devices of {', '.join(unknown)}, which this node has not")
        ill = [card for device in devices if (card := by_label[card_of(device)]).problem]
        if ill:
            raise Refusal(f"{ill[0].label} cannot be handed out: {ill[0].problem}")
        if grant.how == DEFAULT:
            return {by_label[card_of(device)]: () for device in sorted(devices)}
        tiles = {share.card: share.tiles for share in grant.shares}
        given = {by_label[card_of(device)] for device in devices}
        if {card.number for card in given} != tiles.keys():
            raise Refusal("its cards have changed since they were chosen; recreate the pod")
        return {card: tiles[card.number] for card in sorted(given, key=lambda card: card.number)}

    def _also_visible(self, grant: Grant) -> list[LocalCard]:
        """All cards that the container monitors beside, as MonitoringPlugin shows them."""
        if grant.container is None:
            return []
        return [
            card
            for monitor, resource in self._vendor.monitoring.items()
            if grant.container.wants(monitor)
            for card in self._inventory.cards(resource)
            if not card.problem
        ]

    def _check_alone(self, grant: Grant, edits: Edits) -> None:
        """A mask counts what a container sees, and the cards of another resource come by another call."""
        if grant.container is None or not edits.environment:
            return
        others = [
            other
            for other in self._vendor.resources
            if other != self.resource and grant.container.wants(other)
        ]
        if others:
            raise Refusal(
                f"container {grant.container.name} asks for {self.resource} and {', '.join(others)}, so a "
                "mask of tiles could mean others than were chosen; let it ask for one of them"
            )


def _only(requests: Sequence[Any]) -> Any:
    """The one container of a request: the kubelet asks for one at a time, and only then is it known which."""
    if len(requests) != 1:
        raise Refusal(f"a request for {len(requests)} containers at once cannot be told apart")
    return requests[0]


def _response(edits: Edits) -> wire.ContainerAllocateResponse:
    return wire.ContainerAllocateResponse(
        envs=dict(edits.environment),
        devices=[
            wire.DeviceSpec(container_path=node, host_path=node, permissions="rw") for node in edits.nodes
        ],
        mounts=[wire.Mount(container_path=link, host_path=link, read_only=True) for link in edits.links],
        cdi_devices=[wire.CDIDevice(name=name) for name in edits.cdi],
    )
