"""Containers of pods as narrow structs, see objects: what they ask for, what they have, how they fared."""

from typing import Final

import msgspec
from msgspec.structs import force_setattr

from webhook.kube.struct import Quantities, Struct


class Resources(Struct, frozen=True):
    """Requests and limits of a container or of a whole pod."""

    requests: Quantities = {}
    limits: Quantities = {}


class ContainerPort(Struct, frozen=True):
    """A port of a container; host_port is 0 where the node's own ports are not touched."""

    host_port: int = 0
    host_ip: str = msgspec.field(default="", name="hostIP")
    protocol: str = ""


class Container(Struct, frozen=True):
    """A container or an init container; restartPolicy Always makes the latter a sidecar.

    Of its ports only those on the host are kept: few have any, and there are many containers.
    """

    name: str = ""
    resources: Resources = Resources()
    restart_policy: str | None = None
    ports: tuple[ContainerPort, ...] = ()

    def __post_init__(self) -> None:
        """Forget the other ports."""
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
    """Of the states of a container those in which it does not run."""

    waiting: ContainerWait | None = None
    terminated: ContainerEnd | None = None


class ActualResources(Struct, frozen=True):
    """Of the resources of a status the requests alone."""

    requests: Quantities = {}


class PodContainerStatus(Struct, frozen=True):
    """How a container is, how it ended before, and what it has of its node.

    resources: what it has now, None where the kubelet does not say. allocated_resources: what the kubelet has
    set aside for it. Both differ from the container's spec while it is resized.
    """

    name: str = ""
    state: TroubleState = TroubleState()
    last_state: TroubleState = TroubleState()
    resources: ActualResources | None = None
    allocated_resources: Quantities | None = None

    def is_resized(self, requests: Quantities) -> bool:
        """Whether what it has, or what is set aside for it, differs from what its spec requests."""
        if self.resources is None:
            return False
        return self.resources.requests != requests or self.allocated_resources not in (None, requests)

    @property
    def is_troubled(self) -> bool:
        """Whether it cannot be made or started, or has ended with a fault, now or before."""
        waiting = self.state.waiting
        if waiting is not None and waiting.reason in _TROUBLES:
            return True
        ends = (self.state.terminated, self.last_state.terminated)
        return any(end is not None and end.exit_code for end in ends)


_TROUBLES: Final = frozenset({"CreateContainerError", "RunContainerError", "CrashLoopBackOff"})
