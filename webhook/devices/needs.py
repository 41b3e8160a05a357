"""What waiting pods' claims need of each node, as synthetic resources that the placement core can count.

For requests of so many devices each, the resource is the devices: each node has those that are free, and a
pod takes its count. For claims with constraints, alternatives, all devices or admin access, and for devices
that are given in parts, it is the pods: each node has as many as kube-scheduler's own search fits,
and a pod takes one.

Where pods with unlike claims could be given the same devices, each takes from the other's resource what it
could take at most, for as long as its claims are not allocated: which devices it gets, kube-scheduler
decides. So a node is never promised twice, and now and then a pod waits until the claims of another are
allocated. But nobody must find devices for what only others ask for: claims that never can be met would keep
everybody off. Only of its own gang's kinds of claims each pod must leave enough.

A resource that a DeviceClass stands for is a claim on nodes that do not offer it themselves. They count as
having as many of it as they have devices of the class. Where other nodes offer it, these have plenty of what
its pods need of devices, and nothing for pods that have claims on such devices.
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final

from webhook.devices.claims import Asked, Choice, Filter, UnmodelledError
from webhook.devices.displaced import displaced
from webhook.devices.pod_claims import PodClaims, Shape, claims_of
from webhook.devices.selectors import UndecidedError
from webhook.devices.supply import NodeDevices, Supply
from webhook.extras import LACKS_CEL, has_cel
from webhook.kube.devices import MOST_DEVICES
from webhook.kube.objects import Node, Pod
from webhook.placement.eligibility import SYNTHETIC_CAPACITY
from webhook.placement.model import NodeInfo, PodClass, Usage, vector

MOST_PODS: Final = 64
"""Pods of one shape that are looked for on one node."""


MOST_REQUESTS: Final = 64
MOST_ASKED: Final = 256
"""Requests, and devices, of one pod for which combinations are searched; counting alone is for any number."""

MOST_SHOWN: Final = 100
"""Characters of what claims ask for, where that is named."""


_NONE: Final[frozenset[str]] = frozenset()


@dataclass(frozen=True)
class DeviceResource:
    """Something that nodes have for claims: devices of a filter, or capacity for pods of a shape.

    unless: it is that pods with claims on these devices may be there: the node does not offer this resource.
    """

    name: str
    filter: Filter | None = None
    shape: Shape = ()
    unless: str = ""

    def __hash__(self) -> int:
        """By the name, which tells what it is: shapes hash slowly, and each node is asked about each."""
        return hash(self.name)


def _choices(shape: Shape) -> Iterator[tuple[Choice, ...]]:
    for asked in shape:
        yield from asked.requests


def _digest(what: object) -> str:
    """Tells resources of one wording apart; too long to find a claim with the digest of another's."""
    return hashlib.sha256(repr(what).encode()).hexdigest()[:16]


@dataclass
class Needs:
    """The resources of one moment. nodes: all of them, by name."""

    supply: Supply
    nodes: Mapping[str, Node]
    shared: frozenset[str] = frozenset()
    resources: tuple[DeviceResource, ...] = ()
    problems: dict[Shape, str] = field(default_factory=dict)
    gang_of: Callable[[Pod], Hashable] = field(default=lambda pod: pod.metadata.uid)
    delegated: dict[str, Filter] = field(default_factory=dict)
    """Of the resources that pods wait for, those that a DeviceClass stands for."""
    _takes: dict[Shape, dict[str, int]] = field(default_factory=dict)
    _made: dict[Shape, frozenset[str]] = field(default_factory=dict)
    _shapes: dict[Hashable, set[Shape]] = field(default_factory=dict)
    _read: dict[int, tuple[Pod, PodClaims]] = field(default_factory=dict)
    """By the id of a pod, which is kept with it, what its claims ask for."""
    _classes: dict[object, tuple[PodClass, PodClaims, PodClass]] = field(default_factory=dict)
    """By the ids of a class and of what claims ask for, and by the gang, the class with that."""

    @cached_property
    def _there(self) -> Mapping[str, NodeDevices]:
        return {name: self.supply.on(name, node.metadata.labels) for name, node in self.nodes.items()}

    def read(self, pod: Pod) -> PodClaims:
        """What a pod's claims ask for."""
        known = self._read.get(id(pod))
        if known is None:
            known = self._read[id(pod)] = pod, claims_of(pod, self.supply, self.shared)
        return known[1]

    def pod_class(self, pod: Pod, pod_class: PodClass) -> PodClass:
        """The pod's class with what its claims ask for, or with the problem that they are."""
        if pod_class.problem:
            return pod_class
        found = self.read(pod) if self.supply.asks(pod) else PodClaims()
        key = id(pod_class), tuple(map(id, found.shape)), found.terms, found.problem, self.gang_of(pod)
        known = self._classes.get(key)
        if known is None:
            known = self._classes[key] = pod_class, found, self._class_of(pod, found, pod_class)
        return known[2]

    def _class_of(self, pod: Pod, found: PodClaims, pod_class: PodClass) -> PodClass:
        problem = found.problem or self.problems.get(found.shape, "")
        if problem:
            return PodClass((), pod_class.rules, problem=problem)
        taken = self.takes(found.shape)
        if not taken and not found.terms:
            return pod_class
        own = self._own(pod, found.shape)
        rules = replace(pod_class.rules, claims=found.terms)
        needed = {name: amount for name, amount in taken.items() if name in own}
        others = {name: amount for name, amount in taken.items() if name not in own}
        beside = vector({**dict(pod_class.beside), **others})
        requests = vector({**dict(pod_class.requests), **needed})
        return replace(pod_class, rules=rules, requests=requests, beside=beside)

    def _own(self, pod: Pod, shape: Shape) -> frozenset[str]:
        """The names of what the pods of its gang ask for."""
        shapes = (shape, *self._shapes.get(self.gang_of(pod), ()))
        always = (each.name for each in self.resources if each.unless)
        return frozenset(always).union(*(self._made.get(each, ()) for each in shapes))

    def concerns(self, pod: Pod) -> bool:
        """Whether a pod may be given devices that waiting pods ask for."""
        return bool(pod.spec.resource_claims) or (bool(self.delegated) and self.supply.asks(pod))

    def usage(self, pod: Pod, usage: Usage) -> Usage:
        """The pod's use of its node with what its claims may be given there, while they are not allocated."""
        if not self.resources or not self.concerns(pod):
            return usage
        taken = self.takes(claims_of(pod, self.supply).shape)
        return replace(usage, requests={**usage.requests, **taken}) if taken else usage

    def node(self, node: NodeInfo) -> NodeInfo:
        """The node with what it has for claims; the very same value while nothing has changed."""
        there = self._there.get(node.name)
        if not self.resources or there is None:
            return node
        offered = _NONE
        if self.delegated:
            offered = frozenset(name for name in self.delegated if node.allocatable.get(name, 0) > 0)
        amounts = {each.name: self._has(each, there, offered) for each in self.resources}
        for name, filter_ in self.delegated.items():
            if name not in offered:
                amounts[name] = self._total(filter_, there)
        return self.supply.completed(node, amounts)

    def _total(self, filter_: Filter, there: NodeDevices) -> int:
        try:
            return self.supply.total(there, filter_)
        except UndecidedError:
            return 0

    def _has(self, resource: DeviceResource, there: NodeDevices, offered: frozenset[str]) -> int:
        if resource.unless:
            return 0 if resource.unless in offered else SYNTHETIC_CAPACITY
        try:
            if offered:
                return self._beside(resource, there, offered)
            return self.supply.amount_of(resource, there, self._amount)
        except UndecidedError:
            return 0

    def _beside(self, resource: DeviceResource, there: NodeDevices, offered: frozenset[str]) -> int:
        """What a node has that offers some resources itself."""
        left = tuple(each.on_node_with(offered) if each.resources else each for each in resource.shape)
        if left != resource.shape:
            left = tuple(each for each in left if each.requests)
            return self.supply.pods(there, left, MOST_PODS) if left else SYNTHETIC_CAPACITY
        filters = [each.filter for each in _of(resource)]
        if any(self.overlap(self.delegated[name], each) for name in offered for each in filters):
            return SYNTHETIC_CAPACITY
        return self.supply.amount_of(resource, there, self._amount)

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
        if resource.unless:
            claims = [each for each in shape if not each.resources]
            return int(
                any(self.overlap(self.delegated[resource.unless], each) for each in _filters(tuple(claims)))
            )
        if resource.filter is None and resource.shape == shape:
            return 1
        most = 0
        for choices in _choices(shape):
            most += max(self._most(choice, resource) for choice in choices)
        return min(MOST_PODS, most)

    def _most(self, choice: Choice, resource: DeviceResource) -> int:
        """What a choice may take of a resource at most; all it can be where that is not known yet."""
        if choice.admin:
            return 0
        own = _of(resource)
        try:
            if not any(self.overlap(choice.filter, each.filter) for each in own):
                return 0
            most = self._displaced(choice, own)
        except UndecidedError:
            return MOST_PODS
        return MOST_PODS if choice.count is None else min(MOST_PODS, choice.count * most)

    def _displaced(self, choice: Choice, own: tuple[Choice, ...]) -> int:
        """How many units of a resource of these choices one device of another choice takes away at most."""
        if not any(map(self.supply.divides, (choice.filter, *(each.filter for each in own)))):
            return 1
        return self.supply.number_of((choice, own), lambda: displaced(choice, own, self.supply.reached))

    def overlap(self, one: Filter, other: Filter) -> bool:
        """Whether some device may be given by either, or one that uses up the same counters."""
        if one == other:
            return True
        return not self.supply.touched(one).isdisjoint(self.supply.touched(other))

    def asks(self, pod: Pod, shape: Shape) -> None:
        """Note what a pod of a gang asks for."""
        self._shapes.setdefault(self.gang_of(pod), set()).add(shape)

    def add(self, shape: Shape) -> None:
        """Make the resources that pods of a shape need."""
        try:
            self._check_known(shape)
            new = [*self._needed(shape), *self._delegated(shape)]
        except UndecidedError as error:
            self.problems[shape] = f"of its claims, {error}"
            return
        except UnmodelledError as error:
            self.problems[shape] = str(error)
            return
        self.resources = tuple(dict.fromkeys((*self.resources, *new)))
        self._made[shape] = frozenset(each.name for each in new)

    def _check_known(self, shape: Shape) -> None:
        """Raises UnmodelledError for claims whose devices cannot be known at all, UndecidedError."""
        if not has_cel() and any(each.expressions for each in _filters(shape)):
            raise UnmodelledError(f"its claims cannot be evaluated: {LACKS_CEL}")
        for filter_ in _filters(shape):
            found = self.supply.reached(filter_)
            if found and all(each.unmodelled for each in found):
                why = next(iter(found))
                raise UnmodelledError(
                    f'its claim could only get devices of the DeviceClass "{filter_.class_name}" '
                    f"that topogate does not model: of {why.id[2]}, {why.unmodelled}"
                )

    def _delegated(self, shape: Shape) -> Iterator[DeviceResource]:
        """Note the resources that a class stands for; one more of each that some node offers itself."""
        for asked in shape:
            for name, (choice,) in zip(asked.resources, asked.requests, strict=False):
                self.delegated[name] = choice.filter
                if any(_offers(node, name) for node in self.nodes.values()):
                    yield DeviceResource(f"{name} by claims alone", unless=name)

    def _needed(self, shape: Shape) -> Iterator[DeviceResource]:
        filters = list(_filters(shape))
        divided = any(map(self.supply.divides, filters))
        overlapping = (
            self.overlap(one, other) for number, one in enumerate(filters) for other in filters[:number]
        )
        if all(map(_is_plain, shape)) and not divided and not any(overlapping):
            for filter_ in filters:
                found = self.supply.classes.get(filter_.class_name)
                whole = found is not None and len(found.spec.selectors) == len(filter_.expressions)
                more = "" if whole and not filter_.tolerations else f" ({_digest(filter_)})"
                yield DeviceResource(f"devices of {filter_.class_name}{more}", filter=filter_)
        elif not _is_bounded(shape):
            raise UnmodelledError(
                f"its claims make more than {MOST_REQUESTS} requests, or ask for more than {MOST_ASKED} "
                "devices together, which topogate does not model"
            )
        else:
            yield DeviceResource(f"claims on {_shown(shape)} ({_digest(shape)})", shape=shape)


def _shown(shape: Shape) -> str:
    text = ", ".join(map(str, shape))
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}..."


def _offers(node: Node, resource: str) -> bool:
    return str(node.status.allocatable.get(resource, "0")) != "0"


def _of(resource: DeviceResource) -> tuple[Choice, ...]:
    """The choices of which one is made for each unit of a resource."""
    if resource.filter is not None:
        return (Choice("", resource.filter, 1),)
    return tuple(dict.fromkeys(choice for choices in _choices(resource.shape) for choice in choices))


def _filters(shape: Shape) -> Iterable[Filter]:
    return dict.fromkeys(choice.filter for choices in _choices(shape) for choice in choices)


def _is_plain(asked: Asked) -> bool:
    """Whether counting devices answers it."""
    return not asked.conditions and all(
        len(each) == 1 and each[0].count is not None and not each[0].admin and not each[0].wanted
        for each in asked.requests
    )


def _is_bounded(shape: Shape) -> bool:
    """Whether a search for it is of a depth that can be gone through."""
    requests = list(_choices(shape))
    devices = (max(MOST_DEVICES if each.count is None else each.count for each in of) for of in requests)
    return len(requests) <= MOST_REQUESTS and sum(devices) <= MOST_ASKED


def _shared_claims(waiting: Iterable[Pod], others: Iterable[Pod]) -> frozenset[str]:
    """The claims that several pods name of those that have no node yet, by "namespace/name"."""
    users = Counter(
        f"{pod.metadata.namespace}/{each.resource_claim_name}"
        for pod in (*waiting, *(each for each in others if not each.spec.node_name))
        for each in pod.spec.resource_claims
        if each.resource_claim_name
    )
    return frozenset(name for name, count in users.items() if count > 1)


def needs(
    waiting: Sequence[Pod],
    others: Iterable[Pod],
    nodes: Mapping[str, Node],
    supply: Supply,
    most: int,
    gang_of: Callable[[Pod], Hashable] = lambda pod: pod.metadata.uid,
) -> Needs:
    """What waiting pods need. others: pods that are sent to a node; bound ones count for nothing here.

    gang_of: a pod's gang.

    most: how many resources there may be, as every node has its amount of each and anybody may write as many
    claims as he likes. Each namespace has its share; what exceeds it waits, and says so.
    """
    found = Needs(supply, nodes, _shared_claims(waiting, others), gang_of=gang_of)
    by_namespace: dict[str, dict[Shape, None]] = {}
    asked: set[object] = set()
    for pod in waiting:
        if supply.asks(pod) and (shape := found.read(pod).shape):
            key = pod.metadata.namespace, gang_of(pod), tuple(map(id, shape))  # shapes hash slowly
            if key not in asked:
                asked.add(key)
                by_namespace.setdefault(pod.metadata.namespace, {})[shape] = None
                found.asks(pod, shape)
    share = max(1, most // max(1, len(by_namespace)))
    # The first of each namespace, then the second of each: there may be no time to judge all selectors.
    ranked = {name: list(shapes) for name, shapes in by_namespace.items()}
    rounds = min(share, max(map(len, ranked.values()), default=0))  # a share may be of very many
    taken = dict.fromkeys(
        shapes[number] for number in range(rounds) for shapes in ranked.values() if number < len(shapes)
    )
    for shape in taken:
        found.add(shape)
    for shapes in ranked.values():
        for shape in shapes[share:]:
            if shape not in taken:
                found.problems[shape] = (
                    f"more than {share} kinds of claims wait at once in its namespace; it waits until others "
                    "are placed"
                )
    supply.keep(found.resources, nodes)
    return found
