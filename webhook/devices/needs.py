"""What waiting pods' claims need of each node, as synthetic resources that the placement core can count.

For requests of so many devices each, the resource is the devices: each node has those that are free, and a
pod takes its count. For claims with constraints, alternatives, all devices or admin access it is the pods:
each node has as many as kube-scheduler's own search finds room for, and a pod takes one. Where pods with
unlike claims could be given the same devices, each takes from the other's resource what it could take at
most, for as long as its claims are not allocated: which devices it gets, kube-scheduler decides. So a node is
never promised twice, and now and then a pod waits until the claims of another are allocated.
"""

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final

from webhook.devices.claims import Asked, Choice, Filter, UnmodelledError
from webhook.devices.pod_claims import PodClaims, Shape, claims_of
from webhook.devices.pools import OneDevice
from webhook.devices.selectors import UndecidedError
from webhook.devices.supply import NodeDevices, Supply
from webhook.kube.objects import Node, Pod
from webhook.placement.model import NodeInfo, PodClass, Usage, vector

MOST_PODS: Final = 64
"""Pods of one shape that are looked for on one node."""


@dataclass(frozen=True)
class DeviceResource:
    """Something that nodes have for claims: devices of a filter, or room for pods of a shape."""

    name: str
    filter: Filter | None = None
    shape: Shape = ()


def _choices(shape: Shape) -> Iterator[tuple[Choice, ...]]:
    for asked in shape:
        yield from asked.requests


def _digest(what: object) -> str:
    return hashlib.sha256(repr(what).encode()).hexdigest()[:6]


@dataclass
class Needs:
    """The resources of one moment. nodes: all of them, by name."""

    supply: Supply
    nodes: Mapping[str, Node]
    shared: frozenset[str] = frozenset()
    resources: tuple[DeviceResource, ...] = ()
    problems: dict[Shape, str] = field(default_factory=dict)
    _takes: dict[Shape, dict[str, int]] = field(default_factory=dict)

    @cached_property
    def _there(self) -> Mapping[str, NodeDevices]:
        return {name: self.supply.on(name, node.metadata.labels) for name, node in self.nodes.items()}

    def read(self, pod: Pod) -> PodClaims:
        """What a pod's claims ask for."""
        return claims_of(pod, self.supply, self.shared)

    def pod_class(self, pod: Pod, pod_class: PodClass) -> PodClass:
        """The pod's class with what its claims ask for, or with the problem that they are."""
        if pod_class.problem:
            return pod_class
        found = self.read(pod) if pod.spec.resource_claims else PodClaims()
        problem = found.problem or self.problems.get(found.shape, "")
        if problem:
            return PodClass((), pod_class.rules, problem=problem)
        taken = self.takes(found.shape)
        if not taken and not found.terms:
            return pod_class
        rules = replace(pod_class.rules, claims=found.terms)
        return replace(pod_class, rules=rules, requests=vector({**dict(pod_class.requests), **taken}))

    def usage(self, pod: Pod, usage: Usage) -> Usage:
        """The pod's use of its node with what its claims may be given there, while they are not allocated."""
        if not self.resources or not pod.spec.resource_claims:
            return usage
        taken = self.takes(claims_of(pod, self.supply).shape)
        return replace(usage, requests={**usage.requests, **taken}) if taken else usage

    def node(self, node: NodeInfo) -> NodeInfo:
        """The node with what it has for claims; the very same value while nothing has changed."""
        there = self._there.get(node.name)
        if not self.resources or there is None:
            return node
        return self.supply.completed(node, {each.name: self._has(each, there) for each in self.resources})

    def _has(self, resource: DeviceResource, there: NodeDevices) -> int:
        try:
            return self.supply.kept(resource, there, self._amount)
        except UndecidedError:
            return 0

    def _amount(self, resource: DeviceResource, there: NodeDevices) -> int:
        if resource.filter is not None:
            return self.supply.free(there, resource.filter)
        return self.supply.pods(there, resource.shape, MOST_PODS)

    def takes(self, shape: Shape) -> dict[str, int]:
        """What a pod of a shape takes of the resources."""
        known = self._takes.get(shape)
        if known is None:
            amounts = ((each.name, self._taken(shape, each)) for each in self.resources)
            known = self._takes[shape] = {name: amount for name, amount in amounts if amount} if shape else {}
        return known

    def _taken(self, shape: Shape, resource: DeviceResource) -> int:
        if resource.filter is None and resource.shape == shape:
            return 1
        filters = [resource.filter] if resource.filter is not None else list(_filters(resource.shape))
        most = 0
        for choices in _choices(shape):
            most += max(self._most(choice, filters) for choice in choices)
        return most

    def _most(self, choice: Choice, filters: Sequence[Filter]) -> int:
        """The devices that a choice may take of those of some filters; of all devices as many as can be."""
        if choice.admin or not any(self.overlap(choice.filter, each) for each in filters):
            return 0
        return MOST_PODS if choice.count is None else choice.count

    def overlap(self, one: Filter, other: Filter) -> bool:
        """Whether some device may be given by either."""
        if one == other:
            return True
        return not self._reached(one).isdisjoint(self._reached(other))

    def _reached(self, filter_: Filter) -> frozenset[OneDevice]:
        return self.supply.reached(filter_)

    def add(self, shape: Shape) -> None:
        """Make the resources that pods of a shape need."""
        try:
            for filter_ in _filters(shape):
                found = self._reached(filter_)
                if found and all(each.unmodelled for each in found):
                    why = next(iter(found))
                    raise UnmodelledError(
                        f'its claim could only be given devices of the DeviceClass "{filter_.class_name}" '
                        f"that topogate does not model: of {why.id[2]}, {why.unmodelled}"
                    )
            new = list(self._needed(shape))
        except UndecidedError as error:
            self.problems[shape] = f"of its claims, {error}"
            return
        except UnmodelledError as error:
            self.problems[shape] = str(error)
            return
        self.resources = tuple(dict.fromkeys((*self.resources, *new)))

    def _needed(self, shape: Shape) -> Iterator[DeviceResource]:
        filters = list(_filters(shape))
        if all(map(_is_plain, shape)) and not any(
            self.overlap(one, other) for number, one in enumerate(filters) for other in filters[:number]
        ):
            for filter_ in filters:
                found = self.supply.classes.get(filter_.class_name)
                whole = found is not None and len(found.spec.selectors) == len(filter_.expressions)
                more = "" if whole and not filter_.tolerations else f" ({_digest(filter_)})"
                yield DeviceResource(f"devices of {filter_.class_name}{more}", filter=filter_)
        else:
            yield DeviceResource(f"claims on {', '.join(map(str, shape))} ({_digest(shape)})", shape=shape)


def _filters(shape: Shape) -> Iterable[Filter]:
    return dict.fromkeys(choice.filter for choices in _choices(shape) for choice in choices)


def _is_plain(asked: Asked) -> bool:
    """Whether counting devices answers it."""
    return not asked.conditions and all(
        len(each) == 1 and each[0].count is not None and not each[0].admin for each in asked.requests
    )


def needs(
    waiting: Sequence[Pod], others: Iterable[Pod], nodes: Mapping[str, Node], supply: Supply, most: int
) -> Needs:
    """What waiting pods need. others: pods that have a node, or are sent to one.

    most: how many resources there may be, as every node has its amount of each and anybody may write as many
    claims as he likes. Each namespace has its share; what exceeds it waits, and says so.
    """
    users: Counter[str] = Counter()
    for pod in (*waiting, *(each for each in others if not each.spec.node_name)):
        for each in pod.spec.resource_claims:
            if each.resource_claim_name:
                users[f"{pod.metadata.namespace}/{each.resource_claim_name}"] += 1
    shared = frozenset(name for name, count in users.items() if count > 1)
    found = Needs(supply, nodes, shared)
    by_namespace: dict[str, dict[Shape, None]] = {}
    for pod in waiting:
        if pod.spec.resource_claims and (shape := found.read(pod).shape):
            by_namespace.setdefault(pod.metadata.namespace, {})[shape] = None
    share = max(1, most // max(1, len(by_namespace)))
    for shapes in by_namespace.values():
        for number, shape in enumerate(shapes):
            if number < share:
                found.add(shape)
            elif shape not in found.problems:
                found.problems[shape] = (
                    f"more than {share} kinds of claims wait at once in its namespace; it waits for its turn"
                )
    supply.keep(found.resources)
    return found
