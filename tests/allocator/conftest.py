"""A played kubelet for the gRPC shells: real sockets and messages, and no decisions of its own."""

import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest

from labeler.allocator.wire import deviceplugin_pb2 as plugin_wire
from labeler.allocator.wire import podresources_pb2 as resources_wire


class Kubelet:
    """Takes registrations, listens to the plugin's devices, and lists what a test puts into it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.registered: list[plugin_wire.RegisterRequest] = []
        self.lists: list[dict[str, str]] = []
        self.changed = threading.Condition()
        self.pods = resources_wire.ListPodResourcesResponse()
        self.allocatable: resources_wire.AllocatableResourcesResponse | None = None
        """The devices it reports; None for those of the last registration."""
        self.offers: dict[str, tuple[str, frozenset[str]]] = {}
        """Resource -> the endpoint that registered last, and its healthy devices."""
        self.get_error = 'pod "-" in namespace "-" not found'
        self.refuses = False
        self.is_deaf = False
        """Whether it does not ask for the devices of who registers."""
        self.streams: list[Any] = []
        self._servers: list[grpc.Server] = []
        for name in ("device-plugins", "pod-resources"):
            (folder / name).mkdir()

    @property
    def plugins(self) -> Path:
        return self.folder / "device-plugins"

    def start(self, *, lists_pods: bool = True) -> None:
        """As it starts: it removes all sockets of its folder first. lists_pods: whether it can be asked."""
        for path in (*self.plugins.glob("*.sock"), *self.folder.glob("pod-resources/*.sock")):
            path.unlink()
        registration: dict[str, Any] = {
            "Register": grpc.unary_unary_rpc_method_handler(
                self._register,
                request_deserializer=plugin_wire.RegisterRequest.FromString,
                response_serializer=plugin_wire.Empty.SerializeToString,
            )
        }
        resources: dict[str, Any] = {
            "List": grpc.unary_unary_rpc_method_handler(
                lambda *_: self.pods,
                request_deserializer=resources_wire.ListPodResourcesRequest.FromString,
                response_serializer=resources_wire.ListPodResourcesResponse.SerializeToString,
            ),
            "GetAllocatableResources": grpc.unary_unary_rpc_method_handler(
                lambda *_: self._allocatable(),
                request_deserializer=resources_wire.AllocatableResourcesRequest.FromString,
                response_serializer=resources_wire.AllocatableResourcesResponse.SerializeToString,
            ),
            "Get": grpc.unary_unary_rpc_method_handler(
                lambda _, context: context.abort(grpc.StatusCode.UNKNOWN, self.get_error),
                request_deserializer=resources_wire.GetPodResourcesRequest.FromString,
                response_serializer=resources_wire.GetPodResourcesResponse.SerializeToString,
            ),
        }
        for name, handlers, socket in (
            ("v1beta1.Registration", registration, self.plugins / "kubelet.sock"),
            ("v1.PodResourcesLister", resources, self.folder / "pod-resources" / "kubelet.sock"),
        )[: 1 + lists_pods]:
            server = grpc.server(ThreadPoolExecutor(2))
            server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(name, handlers),))
            server.add_insecure_port(f"unix:{socket}")
            server.start()
            self._servers.append(server)

    def stop(self) -> None:
        """As it dies: its sockets stay, nobody answers on them, and its streams break off."""
        for stream in self.streams:
            stream.close()
        for server in self._servers:
            server.stop(0).wait()
        self.streams, self._servers = [], []

    def wait_for_devices(self, count: int) -> dict[str, str]:
        """Until so many lists of devices have come in all; returns the last, id -> health."""
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.lists) >= count, 90), f"{self.lists}"
            return self.lists[-1]

    def call(self, method: str, request: Any, answer: Any) -> Any:
        """Call the plugin that registered last."""
        with grpc.insecure_channel(f"unix:{self.plugins / self.registered[-1].endpoint}") as channel:
            return channel.unary_unary(
                f"/v1beta1.DevicePlugin/{method}",
                request_serializer=type(request).SerializeToString,
                response_deserializer=answer.FromString,
            )(request, timeout=60)

    def _register(self, request: plugin_wire.RegisterRequest, context: Any) -> plugin_wire.Empty:
        if self.refuses:
            context.abort(grpc.StatusCode.UNKNOWN, "no")
        self.registered.append(request)
        self.offers[request.resource_name] = (request.endpoint, frozenset())
        channel = grpc.insecure_channel(f"unix:{self.plugins / request.endpoint}")
        self.streams.append(channel)
        if self.is_deaf:
            return plugin_wire.Empty()
        threading.Thread(target=self._listen, args=(channel, request), daemon=True).start()
        return plugin_wire.Empty()

    def _allocatable(self) -> resources_wire.AllocatableResourcesResponse:
        listed = [
            resources_wire.ContainerDevices(resource_name=resource, device_ids=sorted(devices))
            for resource, (_, devices) in self.offers.items()
        ]
        return self.allocatable or resources_wire.AllocatableResourcesResponse(devices=listed)

    def _offer(self, request: plugin_wire.RegisterRequest, devices: frozenset[str]) -> None:
        """Of two plugins of a resource the last counts; the other's stream stays, and changes nothing."""
        if self.offers[request.resource_name][0] == request.endpoint:
            self.offers[request.resource_name] = (request.endpoint, devices)

    def _listen(self, channel: grpc.Channel, request: plugin_wire.RegisterRequest) -> None:
        stream = channel.unary_stream(
            "/v1beta1.DevicePlugin/ListAndWatch",
            request_serializer=plugin_wire.Empty.SerializeToString,
            response_deserializer=plugin_wire.ListAndWatchResponse.FromString,
        )(plugin_wire.Empty())
        try:
            for answer in stream:
                healthy = frozenset(each.ID for each in answer.devices if each.health == "Healthy")
                with self.changed:
                    self._offer(request, healthy)
                    self.lists.append({device.ID: device.health for device in answer.devices})
                    self.changed.notify_all()
        except (grpc.RpcError, ValueError):  # ValueError: the channel was closed here
            self._offer(request, frozenset())


@pytest.fixture
def kubelet() -> Iterator[Kubelet]:
    with tempfile.TemporaryDirectory(prefix="k") as folder:  # a socket's path has 107 characters at most
        played = Kubelet(Path(folder))
        played.start()
        yield played
        played.stop()
