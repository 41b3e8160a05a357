"""The kubelet's pod-resources service: which pods it has, and which devices it gave them."""

from pathlib import Path
from typing import Final

import grpc

from labeler.allocator.values import Listing, PodName
from labeler.allocator.wire import podresources_pb2 as wire

_SERVICE: Final = "/v1.PodResourcesLister/"
CALL_SECONDS: Final = 2.0
_LARGEST_ANSWER: Final = 16 * 1024 * 1024
"""The kubelet allows itself so much; 250 pods with 8 devices each are 100 KB."""


class ListingError(Exception):
    """The kubelet does not answer; the message has the error."""


class PodResources:
    """One kubelet's service. Connects by itself, and again after the kubelet's restart."""

    def __init__(self, socket: Path) -> None:
        self._socket = socket
        self._channel = grpc.insecure_channel(
            f"unix:{socket}",
            options=[
                ("grpc.max_receive_message_length", _LARGEST_ANSWER),
                ("grpc.default_authority", "localhost"),
                ("grpc.initial_reconnect_backoff_ms", 100),
                ("grpc.max_reconnect_backoff_ms", 300),
                ("grpc.enable_http_proxy", 0),
            ],
        )
        self._list = self._channel.unary_unary(
            _SERVICE + "List",
            request_serializer=wire.ListPodResourcesRequest.SerializeToString,
            response_deserializer=wire.ListPodResourcesResponse.FromString,
        )
        self._allocatable = self._channel.unary_unary(
            _SERVICE + "GetAllocatableResources",
            request_serializer=wire.AllocatableResourcesRequest.SerializeToString,
            response_deserializer=wire.AllocatableResourcesResponse.FromString,
        )
        self._get = self._channel.unary_unary(
            _SERVICE + "Get",
            request_serializer=wire.GetPodResourcesRequest.SerializeToString,
            response_deserializer=wire.GetPodResourcesResponse.FromString,
        )

    def close(self) -> None:
        """No more questions."""
        self._channel.close()

    def now(self) -> Listing:
        """The kubelet's pods and their devices, in order: it lists them in any. Raises ListingError."""
        found: dict[PodName, dict[str, dict[str, tuple[str, ...]]]] = {}
        try:
            answer = self._list(wire.ListPodResourcesRequest(), timeout=CALL_SECONDS)
        except grpc.RpcError as error:
            raise self._error(error) from error
        for pod in answer.pod_resources:
            containers = found.setdefault((pod.namespace, pod.name), {})
            for container in pod.containers:
                resources = containers.setdefault(container.name, {})
                for each in container.devices:  # the kubelet may list each device of a resource by itself
                    had = resources.get(each.resource_name, ())
                    resources[each.resource_name] = tuple(sorted((*had, *each.device_ids)))
        return found

    def healthy(self, resource: str) -> frozenset[str]:
        """Healthy devices of a resource as the kubelet counts them, of any plugin. Raises ListingError."""
        try:
            answer = self._allocatable(wire.AllocatableResourcesRequest(), timeout=CALL_SECONDS)
        except grpc.RpcError as error:
            raise self._error(error) from error
        return frozenset(
            device for each in answer.devices if each.resource_name == resource for device in each.device_ids
        )

    def lists_the_living_alone(self) -> bool:
        """Whether List leaves out pods that have ended: from Kubernetes 1.34 on. Raises ListingError.

        Learned by Get, which came into use with the same release; before it answers that it is disabled.
        """
        try:
            self._get(wire.GetPodResourcesRequest(pod_name="-", pod_namespace="-"), timeout=CALL_SECONDS)
        except grpc.RpcError as error:
            if error.code() is grpc.StatusCode.UNKNOWN:
                return "disabled" not in (error.details() or "")
            if error.code() is grpc.StatusCode.UNIMPLEMENTED:
                return False
            raise self._error(error) from error
        return True

    def _error(self, error: grpc.RpcError) -> ListingError:
        return ListingError(
            f"the kubelet's pod-resources socket {self._socket} does not answer: "
            f"{error.code().name}: {error.details()}"
        )
