"""Extended resources backed by a DeviceClass: they become a claim on nodes that do not offer them. Pure.

kube-scheduler makes one claim for all such resources of a pod, after the claims that its author wrote. On a
node where a device plugin offers the resource, it counts as usual.

Source of the rules: kube-scheduler's plugin DynamicResources, extendeddynamicresources.go (KEP-5004), and
k8s.io/dynamic-resource-allocation/deviceclass/extendedresourcecache.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from labeler.contract import keys
from labeler.contract.quantities import QuantityError, exact
from webhook.kube.containers import Container
from webhook.kube.devices import DeviceClass
from webhook.kube.objects import Pod, PodSpec


@dataclass(frozen=True)
class DeviceAmount:
    """A number of devices of a class for a resource. name: the request in kube-scheduler's claim."""

    name: str
    resource: str
    class_name: str
    count: int


def backing(classes: Iterable[DeviceClass]) -> dict[str, str]:
    """Resource -> name of the DeviceClass that backs it: of several the newest, then the first by name."""
    found: dict[str, str] = {}
    by_age = sorted(classes, key=lambda each: each.metadata.name)
    by_age.sort(key=lambda each: each.metadata.creation_timestamp or "", reverse=True)
    for each in by_age:
        found[keys.DEVICE_CLASS + each.metadata.name] = each.metadata.name
        if each.spec.extended_resource_name:
            found.setdefault(each.spec.extended_resource_name, each.metadata.name)
    return found


def resources_of(spec: PodSpec) -> Iterator[str]:
    """The domain-qualified resources that a pod's containers name."""
    for each in (*spec.containers, *spec.init_containers):
        for name in (*each.resources.requests, *each.resources.limits):
            if "/" in name:
                yield name


def amounts_of(pod: Pod, classes: Mapping[str, str]) -> tuple[DeviceAmount, ...]:
    """The requests of kube-scheduler's claim for a pod, in its order. classes: the result of `backing`.

    Unreadable amounts count as no request; the pod's class reports the fault.
    """
    if not any(name in classes for name in resources_of(pod.spec)):
        return ()
    containers = (*pod.spec.init_containers, *pod.spec.containers)
    first = len(pod.spec.init_containers)
    short = [number for number in range(first) if containers[number].restart_policy != "Always"]
    found: list[DeviceAmount] = []
    for resource in sorted({*resources_of(pod.spec)} & classes.keys()):
        amounts = [_amount(each, resource) for each in containers]
        lasting = [0 if number in short else amount for number, amount in enumerate(amounts)]
        missing = {number: amounts[number] - sum(lasting[number:]) for number in short}
        most = max(missing, key=lambda number: missing[number], default=None)
        asked = dict(enumerate(lasting))
        if most is not None:
            asked[most] = missing[most]
        for number, count in asked.items():
            if count > 0:
                at = sorted(_names(containers[number])).index(resource)
                name = f"container-{number}-request-{at}"
                found.append(DeviceAmount(name, resource, classes[resource], count))
    return tuple(sorted(found, key=lambda each: each.name))


def _names(container: Container) -> Iterable[str]:
    """The resource names of a container. The API server copies limits to missing requests."""
    return {*container.resources.requests, *container.resources.limits}


def _amount(container: Container, resource: str) -> int:
    asked = container.resources.requests.get(resource, container.resources.limits.get(resource, 0))
    try:
        amount = exact(str(asked))
    except QuantityError:
        return 0
    return int(amount) if amount.denominator == 1 else 0
