"""Containers of pods as narrow structs, see objects: requests, actual resources, and status."""

from typing import Final

import msgspec
from msgspec.structs import force_setattr

from webhook.kube.struct import Quantities, Struct


class Resources(Struct, frozen=True):
    """Requests and limits of a container or of a whole pod."""

    requests: Quantities = {}
    limits: Quantities = {}


class ContainerPort(Struct, frozen=True):
    """A port of a container; host_port is 0 if it uses no port of the node."""

    host_port: int = 0
    host_ip: str = msgspec.field(default="", name="hostIP")
    protocol: str = ""


class Container(Struct, frozen=True):
    """A container or an init container; restartPolicy Always makes the latter a sidecar.

    Only host ports are kept, to save memory.
    """

    name: str = ""
    resources: Resources = Resources()
    restart_policy: str | None = None
    ports: tuple[ContainerPort, ...] = ()

    def __post_init__(self) -> None:
        """Drop the other ports."""
        if self.ports and not all(port.host_port for port in self.ports):
            force_setattr(self, "ports", tuple(port for port in self.ports if port.host_port))


class ContainerWait(Struct, frozen=True):
    """Why a container does not run yet."""

    reason: str = ""


class ContainerEnd(Struct, frozen=True):
    """How a container ended."""

    exit_code: int = 0
    reason: str = ""
    started_at: str | None = None
    finished_at: str | None = None


class TroubleState(Struct, frozen=True):
    """The states of a container that is not running."""

    waiting: ContainerWait | None = None
    terminated: ContainerEnd | None = None


class ActualResources(Struct, frozen=True):
    """The resources of a status, without limits."""

    requests: Quantities = {}


class PodContainerStatus(Struct, frozen=True):
    """The state of a container, its last state, and its resources.

    resources: the actual ones, None if the kubelet does not report them. allocated_resources: allocated by
    the kubelet. Both differ from the container's spec during a resize.
    """

    name: str = ""
    state: TroubleState = TroubleState()
    last_state: TroubleState = TroubleState()
    resources: ActualResources | None = None
    allocated_resources: Quantities | None = None

    def is_resized(self, requests: Quantities) -> bool:
        """Whether its actual or allocated resources differ from the requests of its spec."""
        if self.resources is None:
            return False
        return self.resources.requests != requests or self.allocated_resources not in (None, requests)

    @property
    def is_troubled(self) -> bool:
        """Whether it cannot be created or started, or has failed, now or in its last state."""
        waiting = self.state.waiting
        if waiting is not None and waiting.reason in _TROUBLES:
            return True
        ends = (self.state.terminated, self.last_state.terminated)
        return any(end is not None and end.exit_code for end in ends)


_TROUBLES: Final = frozenset({"CreateContainerError", "RunContainerError", "CrashLoopBackOff"})
