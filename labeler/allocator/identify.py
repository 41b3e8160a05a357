"""Which pod, and which of its containers, is the kubelet asking devices for? Pure.

The device plugin API does not say. But the kubelet admits one pod after the other, and its pod-resources
service lists the pods that it has with the devices of each; from Kubernetes 1.34 on only the living ones. So
the pod being served is the one that asks for the resource and has a container without devices of it. Where
more than one pod fits, the answer is that it is ambiguous: never a guess.

Containers are served in order, init containers first. Ordinary init containers are not listed, and the
kubelet hands their devices on to the containers after them, so they are distinguished by what is asked for. A
pod that the kubelet has started is past them.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from labeler.allocator.values import Listing, LocalContainer, LocalPod, PodName
from labeler.contract import annotations, keys


class Kind(Enum):
    """What a container is to its pod."""

    REGULAR = "container"
    INIT = "init container"
    SIDECAR = "sidecar"


@dataclass(frozen=True)
class Served:
    """One pod with the containers that may be the one being served; they are of one size and get the same."""

    pod: LocalPod
    containers: tuple[tuple[Kind, LocalContainer], ...]


@dataclass(frozen=True)
class Ambiguous:
    """Several pods fit; unknown: pods that the kubelet has and the API server no longer lists."""

    candidates: tuple[Served, ...]
    unknown: tuple[PodName, ...] = ()

    @property
    def is_unmanaged(self) -> bool:
        """Whether all of them are known and none was given cards: then any devices will do."""
        return not self.unknown and not any(is_planned(each.pod) for each in self.candidates)


@dataclass(frozen=True)
class Nobody:
    """No pod fits (yet)."""


def is_planned(pod: LocalPod) -> bool:
    """Whether somebody chose cards for the pod."""
    return annotations.is_planned(pod.annotations)


def identify(
    resource: str, size: int, listing: Listing, pods: Mapping[PodName, LocalPod]
) -> Served | Ambiguous | Nobody:
    """The pod that is served when the kubelet asks for ``size`` devices of a resource."""
    candidates, unknown = [], []
    for key, devices in listing.items():
        pod = pods.get(key)
        if pod is None:
            if not any(resource in of_container for of_container in devices.values()):
                unknown.append(key)
        elif not pod.over and (containers := open_containers(pod, resource, size, devices)):
            candidates.append(Served(pod, containers))
    if len(candidates) == 1 and not unknown:
        return candidates[0]
    return Ambiguous(tuple(candidates), tuple(unknown)) if candidates or unknown else Nobody()


def open_containers(
    pod: LocalPod, resource: str, size: int, devices: Mapping[str, Mapping[str, tuple[str, ...]]]
) -> tuple[tuple[Kind, LocalContainer], ...]:
    """The containers of a pod that may be served now and ask for just so many devices."""

    def without(containers: Iterable[LocalContainer]) -> list[LocalContainer]:
        return [
            each
            for each in containers
            if each.wants(resource) and not devices.get(each.name, {}).get(resource)
        ]

    waiting = without(pod.containers)
    asking = [each for each in pod.containers if each.wants(resource)]
    if len(waiting) < len(asking):  # containers are served: init containers are past
        return _of_size(resource, size, ((Kind.REGULAR, each) for each in waiting[:1]))
    init = [(Kind.INIT, each) for each in pod.init if each.wants(resource) and not pod.started]
    sidecars = [(Kind.SIDECAR, each) for each in without(pod.sidecars)]
    # A sidecar without devices stands before every container, and is itself listed once it has them.
    regular = [(Kind.REGULAR, each) for each in waiting[:1]] if not sidecars else []
    return _of_size(resource, size, [*regular, *init, *sidecars[:1]])


def _of_size(
    resource: str, size: int, containers: Iterable[tuple[Kind, LocalContainer]]
) -> tuple[tuple[Kind, LocalContainer], ...]:
    return tuple((kind, each) for kind, each in containers if each.wants(resource) == size)


def oldest_plan(found: Ambiguous) -> Served | None:
    """The candidate whose cards were chosen first (gas-ts, compared as text); None without any.

    This is the guess of Intel's device plugin 0.24 to 0.32. It is for kubelets before 1.34 alone, whose list
    also holds pods that have ended: two pods admitted in another order than planned would be swapped.
    """
    planned = [each for each in found.candidates if is_planned(each.pod)]
    stamped = [each for each in planned if each.pod.annotations.get(keys.GAS_TIMESTAMP_ANNOTATION)]
    return min(stamped, key=lambda each: each.pod.annotations[keys.GAS_TIMESTAMP_ANNOTATION], default=None)
