"""The device needs of waiting pods' claims, as synthetic resources that the placement core can count.

For requests with a count of devices, the resource counts devices: a node has its free ones, and a pod takes
its count. For claims with constraints, alternatives, all devices or admin access, and for devices that are
allocated in parts, the resource counts pods. A node has as many as kube-scheduler's own search fits, and a
pod takes one.

If pods with different claims could get the same devices, kube-scheduler chooses who gets them. So each takes
from the other's resource the most that it could use, until its claims are allocated. A node is never promised
twice, and sometimes a pod waits until the claims of another pod are allocated. But a pod need not find
devices for the claims of others: claims that can never be met would block all pods. It must leave enough only
for the claim classes of its own gang.

A resource backed by a DeviceClass is a claim on nodes that do not offer it themselves. They count as having
as much of it as they have devices of the class. Nodes that do offer the resource have plenty of the device
resource for its pods, and nothing for pods with claims on such devices. If such a claim cannot be modelled,
its pods are placed only on nodes that offer the resource, where they get no claim.
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final

from webhook.devices.claims import Asked, Choice, Claims, Filter, UnmodelledError
from webhook.devices.displacement import displaced
from webhook.devices.pod_claims import PodClaims, claims_of
from webhook.devices.selectors import UndecidedError
from webhook.devices.supply import NodeDevices, Supply
from webhook.extras import LACKS_CEL, has_cel
from webhook.kube.devices import MOST_DEVICES
from webhook.kube.objects import Node, Pod
from webhook.placement.eligibility import SYNTHETIC_CAPACITY
from webhook.placement.model import NodeInfo, PodClass, Usage, vector

MOST_PODS: Final = 64
"""The most pods with the same claims that are counted on one node."""


MOST_REQUESTS: Final = 64
MOST_ASKED: Final = 256
"""The most requests and devices of one pod for a search of combinations; counting has no limit."""

MOST_SHOWN: Final = 100
"""The most characters of a claim's requests in a resource name."""


_NONE: Final[frozenset[str]] = frozenset()


@dataclass(frozen=True)
class DeviceResource:
    """A synthetic resource of nodes for claims: devices of a filter, or slots for pods with these claims.

    unless: the extended resource that the node must not offer, for pods with claims on these devices.

    offered: the extended resource that the node must offer, for pods whose claim for it is not modelled.
    """

    name: str
    filter: Filter | None = None
    claims: Claims = ()
    unless: str = ""
    offered: str = ""

    def __hash__(self) -> int:
        """Hash by name, which is unique: claims hash slowly, and each node is checked for each resource."""
        return hash(self.name)


def _choices(claims: Claims) -> Iterator[tuple[Choice, ...]]:
    for asked in claims:
        yield from asked.requests


def _digest(what: object) -> str:
    """A digest that distinguishes resources with equal texts, long enough that no collision can be found."""
    return hashlib.sha256(repr(what).encode()).hexdigest()[:16]


@dataclass
class Needs:
    """The device resources of one pass. nodes: all nodes, by name."""

    supply: Supply
    nodes: Mapping[str, Node]
    shared: frozenset[str] = frozenset()
    resources: tuple[DeviceResource, ...] = ()
    problems: dict[Claims, str] = field(default_factory=dict)
    gang_of: Callable[[Pod], Hashable] = field(default=lambda pod: pod.metadata.uid)
    delegated: dict[str, Filter] = field(default_factory=dict)
    """The extended resources of waiting pods that a DeviceClass backs."""
    _without_extended: dict[Claims, Claims] = field(default_factory=dict)
    """The other claims of pods whose claim for extended resources is not modelled."""
    _takes: dict[Claims, dict[str, int]] = field(default_factory=dict)
    _made: dict[Claims, frozenset[str]] = field(default_factory=dict)
    _of_gang: dict[Hashable, set[Claims]] = field(default_factory=dict)
    _read: dict[int, tuple[Pod, PodClaims]] = field(default_factory=dict)
    """The claims of a pod, by the id of the pod, which the entry keeps alive."""
    _classes: dict[object, tuple[PodClass, PodClaims, PodClass]] = field(default_factory=dict)
    """The class with device requests, by the ids of the class and of the claims, and by the gang."""

    @cached_property
    def _there(self) -> Mapping[str, NodeDevices]:
        return {name: self.supply.on(name, node.metadata.labels) for name, node in self.nodes.items()}

    def read(self, pod: Pod) -> PodClaims:
        """The claims of a pod, cached."""
        known = self._read.get(id(pod))
        if known is None:
            known = self._read[id(pod)] = pod, claims_of(pod, self.supply, self.shared)
        return known[1]

    def pod_class(self, pod: Pod, pod_class: PodClass) -> PodClass:
        """The pod's class with its device requests, or with the problem of its claims."""
        if pod_class.problem:
            return pod_class
        found = self.read(pod) if self.supply.asks(pod) else PodClaims()
        key = id(pod_class), tuple(map(id, found.unallocated)), found.terms, found.problem, self.gang_of(pod)
        known = self._classes.get(key)
        if known is None:
            known = self._classes[key] = pod_class, found, self._class_of(pod, found, pod_class)
        return known[2]

    def _class_of(self, pod: Pod, found: PodClaims, pod_class: PodClass) -> PodClass:
        problem = found.problem or self.problems.get(found.unallocated, "")
        if problem:
            return PodClass((), pod_class.rules, problem=problem)
        taken = self.takes(found.unallocated)
        if not taken and not found.terms:
            return pod_class
        own = self._own(pod, found.unallocated)
        rules = replace(pod_class.rules, claims=found.terms)
        needed = {name: amount for name, amount in taken.items() if name in own}
        others = {name: amount for name, amount in taken.items() if name not in own}
        beside = vector({**dict(pod_class.beside), **others})
        requests = vector({**dict(pod_class.requests), **needed})
        return replace(pod_class, rules=rules, requests=requests, beside=beside)

    def _own(self, pod: Pod, claims: Claims) -> frozenset[str]:
        """The names of the resources that the pods of its gang request."""
        of_gang = (claims, *self._of_gang.get(self.gang_of(pod), ()))
        always = (each.name for each in self.resources if each.unless)
        return frozenset(always).union(*(self._made.get(each, ()) for each in of_gang))

    def concerns(self, pod: Pod) -> bool:
        """Whether a pod may get devices that waiting pods request."""
        return bool(pod.spec.resource_claims) or (bool(self.delegated) and self.supply.asks(pod))

    def usage(self, pod: Pod, usage: Usage) -> Usage:
        """The pod's usage with the devices that its claims may get there, while they are not allocated."""
        if not self.resources or not self.concerns(pod):
            return usage
        taken = self.takes(claims_of(pod, self.supply).unallocated)
        return replace(usage, requests={**usage.requests, **taken}) if taken else usage

    def node(self, node: NodeInfo) -> NodeInfo:
        """The node with its amounts for claims; the same object while nothing changes."""
        there = self._there.get(node.name)
        if not self.resources or there is None:
            return node
        offered = _NONE
        if self.delegated:
            offered = frozenset(name for name in self.delegated if node.allocatable.get(name, 0) > 0)
        amounts = {each.name: self._has(each, node, there, offered) for each in self.resources}
        for name, filter_ in self.delegated.items():
            if name not in offered:
                amounts[name] = self._total(filter_, there)
        return self.supply.completed(node, amounts)

    def _total(self, filter_: Filter, there: NodeDevices) -> int:
        try:
            return self.supply.total(there, filter_)
        except UndecidedError:
            return 0

    def _has(
        self, resource: DeviceResource, node: NodeInfo, there: NodeDevices, offered: frozenset[str]
    ) -> int:
        if resource.offered:
            return _plenty_if(node.allocatable.get(resource.offered, 0) > 0)
        if resource.unless:
            return _plenty_if(resource.unless not in offered)
        try:
            if offered:
                return self._beside(resource, there, offered)
            return self.supply.amount_of(resource, there, self._amount)
        except UndecidedError:
            return 0

    def _beside(self, resource: DeviceResource, there: NodeDevices, offered: frozenset[str]) -> int:
        """The amount of a resource on a node that offers some extended resources itself."""
        left = tuple(each.on_node_with(offered) if each.resources else each for each in resource.claims)
        if left != resource.claims:
            left = tuple(each for each in left if each.requests)
            return self.supply.pods(there, left, MOST_PODS) if left else SYNTHETIC_CAPACITY
        filters = [each.filter for each in _of(resource)]
        if any(self.overlap(self.delegated[name], each) for name in offered for each in filters):
            return SYNTHETIC_CAPACITY
        return self.supply.amount_of(resource, there, self._amount)

    def _amount(self, resource: DeviceResource, there: NodeDevices) -> int:
        if resource.filter is not None:
            return self.supply.free(there, resource.filter)
        return self.supply.pods(there, resource.claims, MOST_PODS)

    def takes(self, claims: Claims) -> dict[str, int]:
        """The amounts that a pod with these claims takes."""
        known = self._takes.get(claims)
        if known is None:
            amounts = ((each.name, self._taken(claims, each)) for each in self.resources)
            known = self._takes[claims] = (
                {name: amount for name, amount in amounts if amount} if claims else {}
            )
        return known

    def _taken(self, claims: Claims, resource: DeviceResource) -> int:
        if resource.offered:
            return int(claims in self._without_extended and resource.offered in _extended(claims))
        claims = self._without_extended.get(claims, claims)
        if resource.unless:
            own = _written(claims)
            return int(any(self.overlap(self.delegated[resource.unless], each) for each in _filters(own)))
        if resource.filter is None and resource.claims == claims:
            return 1
        most = 0
        for choices in _choices(claims):
            most += max(self._most(choice, resource) for choice in choices)
        return min(MOST_PODS, most)

    def _most(self, choice: Choice, resource: DeviceResource) -> int:
        """The most that a choice may take of a resource; an upper bound while that is unknown."""
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
        """The most units of a resource with these choices that one device of another choice displaces."""
        if not any(map(self.supply.divides, (choice.filter, *(each.filter for each in own)))):
            return 1
        return self.supply.number_of((choice, own), lambda: displaced(choice, own, self.supply.reached))

    def overlap(self, one: Filter, other: Filter) -> bool:
        """Whether both filters may select a device, or devices that consume the same counters."""
        if one == other:
            return True
        return not self.supply.touched(one).isdisjoint(self.supply.touched(other))

    def asks(self, pod: Pod, claims: Claims) -> None:
        """Record the requests of a pod of a gang."""
        self._of_gang.setdefault(self.gang_of(pod), set()).add(claims)

    def add(self, claims: Claims) -> None:
        """Add the resources that pods with these claims need."""
        try:
            self._check_known(claims)
            new = [*self._needed(claims), *self._delegated(claims)]
        except UndecidedError as error:
            self.problems[claims] = f"of its claims, {error}"
        except UnmodelledError as error:
            if (own := _written(claims)) != claims:
                self.add(own)
            self.refuse(claims, str(error))
        else:
            self._need(claims, new)

    def _need(self, claims: Claims, new: Iterable[DeviceResource]) -> None:
        found = dict.fromkeys(new)
        self.resources = tuple(dict.fromkeys((*self.resources, *found)))
        self._made[claims] = frozenset(each.name for each in found)

    def refuse(self, claims: Claims, problem: str) -> None:
        """Record a problem, or place only where device plugins offer the extended resources."""
        own, extended = _written(claims), sorted(_extended(claims))
        is_offered = any(all(_offers(node, name) for name in extended) for node in self.nodes.values())
        if not extended or not is_offered or (own and own not in self._made):
            self.problems[claims] = self.problems.get(own, problem)
            return
        self._without_extended[claims] = own
        self._need(claims, (DeviceResource(f"{name} of a device plugin", offered=name) for name in extended))
        self._made[claims] |= self._made.get(own, _NONE)

    def _check_known(self, claims: Claims) -> None:
        """Raises UnmodelledError for claims whose devices cannot be known, and UndecidedError."""
        for each in claims:
            if each.problem:
                raise UnmodelledError(each.problem)
        if not has_cel() and any(each.expressions for each in _filters(claims)):
            raise UnmodelledError(f"its claims cannot be evaluated: {LACKS_CEL}")
        for filter_ in _filters(claims):
            found = self.supply.reached(filter_)
            if found and all(each.unmodelled for each in found):
                why = next(iter(found))
                raise UnmodelledError(
                    f'its claim could only get devices of the DeviceClass "{filter_.class_name}" '
                    f"that topogate does not model: of {why.id[2]}, {why.unmodelled}"
                )

    def _delegated(self, claims: Claims) -> Iterator[DeviceResource]:
        """Record the resources that a class backs; yields one more for each that some node offers itself."""
        for asked in claims:
            for name, (choice,) in zip(asked.resources, asked.requests, strict=False):
                self.delegated[name] = choice.filter
                if any(_offers(node, name) for node in self.nodes.values()):
                    yield DeviceResource(f"{name} by claims alone", unless=name)

    def _needed(self, claims: Claims) -> Iterator[DeviceResource]:
        filters = list(_filters(claims))
        divided = any(map(self.supply.divides, filters))
        overlapping = (
            self.overlap(one, other) for number, one in enumerate(filters) for other in filters[:number]
        )
        if all(map(_is_plain, claims)) and not divided and not any(overlapping):
            for filter_ in filters:
                found = self.supply.classes.get(filter_.class_name)
                whole = found is not None and len(found.spec.selectors) == len(filter_.expressions)
                more = "" if whole and not filter_.tolerations else f" ({_digest(filter_)})"
                yield DeviceResource(f"devices of {filter_.class_name}{more}", filter=filter_)
        elif not _is_bounded(claims):
            raise UnmodelledError(
                f"its claims make more than {MOST_REQUESTS} requests, or ask for more than {MOST_ASKED} "
                "devices together, which topogate does not model"
            )
        else:
            yield DeviceResource(f"claims on {_shown(claims)} ({_digest(claims)})", claims=claims)


def _shown(claims: Claims) -> str:
    text = ", ".join(map(str, claims))
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}..."


def _plenty_if(is_usable: bool) -> int:
    return SYNTHETIC_CAPACITY if is_usable else 0


def _written(claims: Claims) -> Claims:
    """The claims without kube-scheduler's own for extended resources."""
    return tuple(each for each in claims if not each.resources)


def _extended(claims: Claims) -> frozenset[str]:
    """The extended resources that claims are made for."""
    return frozenset(name for each in claims for name in each.resources)


def _offers(node: Node, resource: str) -> bool:
    return str(node.status.allocatable.get(resource, "0")) != "0"


def _of(resource: DeviceResource) -> tuple[Choice, ...]:
    """The alternative choices for a unit of a resource."""
    if resource.filter is not None:
        return (Choice("", resource.filter, 1),)
    return tuple(dict.fromkeys(choice for choices in _choices(resource.claims) for choice in choices))


def _filters(claims: Claims) -> Iterable[Filter]:
    return dict.fromkeys(choice.filter for choices in _choices(claims) for choice in choices)


def _is_plain(asked: Asked) -> bool:
    """Whether counting devices suffices."""
    return not asked.conditions and all(
        len(each) == 1 and each[0].count is not None and not each[0].admin and not each[0].wanted
        for each in asked.requests
    )


def _is_bounded(claims: Claims) -> bool:
    """Whether the depth of a search for it is within the limit."""
    requests = list(_choices(claims))
    devices = (max(MOST_DEVICES if each.count is None else each.count for each in of) for of in requests)
    return len(requests) <= MOST_REQUESTS and sum(devices) <= MOST_ASKED


def _shared_claims(waiting: Iterable[Pod], others: Iterable[Pod]) -> frozenset[str]:
    """The claims that several pods without a node name, by "namespace/name"."""
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
    """The device needs of waiting pods. others: released pods; bound ones do not matter here.

    gang_of: the gang of a pod.

    most: the most resources. Users may write any number of claims, and every node has an amount of each. So
    each namespace has a share. Pods with claims beyond it wait, with the reason.
    """
    found = Needs(supply, nodes, _shared_claims(waiting, others), gang_of=gang_of)
    by_namespace: dict[str, dict[Claims, None]] = {}
    asked: set[object] = set()
    for pod in waiting:
        if supply.asks(pod) and (claims := found.read(pod).unallocated):
            key = pod.metadata.namespace, gang_of(pod), tuple(map(id, claims))  # claims hash slowly
            if key not in asked:
                asked.add(key)
                by_namespace.setdefault(pod.metadata.namespace, {})[claims] = None
                found.asks(pod, claims)
    share = max(1, most // max(1, len(by_namespace)))
    # The first of each namespace, then the second of each: there may be no time to evaluate all selectors.
    ranked = {name: list(each) for name, each in by_namespace.items()}
    rounds = min(share, max(map(len, ranked.values()), default=0))  # a share may be very large
    taken = dict.fromkeys(
        asked_for[number]
        for number in range(rounds)
        for asked_for in ranked.values()
        if number < len(asked_for)
    )
    for claims in taken:
        found.add(claims)
    for asked_for in ranked.values():
        for claims in asked_for[share:]:
            if claims not in taken:
                found.refuse(
                    claims,
                    f"more than {share} kinds of claims wait at once in its namespace; it waits until others "
                    "are placed",
                )
    supply.keep(found.resources, nodes)
    return found
