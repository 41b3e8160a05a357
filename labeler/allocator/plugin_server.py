"""A plugin on a socket: the methods of the kubelet's interface, and whose they are."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import grpc

from labeler.allocator.plugin import Plugin
from labeler.allocator.wire import deviceplugin_pb2 as wire

SERVICE: Final = "v1beta1.DevicePlugin"
_WORKERS: Final = 8
"""A stream of devices holds one for as long as the kubelet listens."""
_STOP_SECONDS: Final = 2.0


class Serving:
    """A plugin that is served, until it is stopped."""

    def __init__(self, server: grpc.Server, threads: ThreadPoolExecutor) -> None:
        self._server = server
        self._threads = threads

    def stop(self) -> None:
        """End all calls, and the threads that answered them: gRPC leaves them to the garbage collector."""
        self._server.stop(0).wait(_STOP_SECONDS)
        self._threads.shutdown(wait=False, cancel_futures=True)


def serve(plugin: Plugin, socket: Path) -> Serving:
    """Serve a plugin on a unix socket. Raises OSError if that cannot be."""
    threads = ThreadPoolExecutor(_WORKERS, thread_name_prefix=plugin.resource)
    server = grpc.server(threads, options=[("grpc.so_reuseport", 0)])
    server.add_generic_rpc_handlers((_handlers(plugin),))
    try:
        server.add_insecure_port(f"unix:{socket}")
    except RuntimeError as error:
        raise OSError(f"no socket can be made at {socket}: {error}") from error
    server.start()
    return Serving(server, threads)


def _handlers(plugin: Plugin) -> grpc.GenericRpcHandler:
    unary = grpc.unary_unary_rpc_method_handler
    return grpc.method_handlers_generic_handler(
        SERVICE,
        {
            "GetDevicePluginOptions": unary(
                lambda request, context: plugin.options(),
                request_deserializer=wire.Empty.FromString,
                response_serializer=wire.DevicePluginOptions.SerializeToString,
            ),
            "ListAndWatch": grpc.unary_stream_rpc_method_handler(
                plugin.list_and_watch,
                request_deserializer=wire.Empty.FromString,
                response_serializer=wire.ListAndWatchResponse.SerializeToString,
            ),
            "GetPreferredAllocation": unary(
                plugin.on_prefer,
                request_deserializer=wire.PreferredAllocationRequest.FromString,
                response_serializer=wire.PreferredAllocationResponse.SerializeToString,
            ),
            "Allocate": unary(
                plugin.on_allocate,
                request_deserializer=wire.AllocateRequest.FromString,
                response_serializer=wire.AllocateResponse.SerializeToString,
            ),
            "PreStartContainer": unary(
                lambda request, context: wire.PreStartContainerResponse(),
                request_deserializer=wire.PreStartContainerRequest.FromString,
                response_serializer=wire.PreStartContainerResponse.SerializeToString,
            ),
        },
    )
