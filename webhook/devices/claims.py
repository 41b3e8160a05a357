"""The requests of claims in a comparable form; cases that are not modelled are refused with a sentence. Pure.

Source of the rules: k8s.io/dynamic-resource-allocation/structured, and kube-scheduler's plugin
DynamicResources.
"""

from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction

from labeler.contract.quantities import exact
from webhook.devices.extended_resources import DeviceAmount
from webhook.devices.shares import Wanted
from webhook.kube import devices
from webhook.kube.devices import DeviceClaim, DeviceClass, DeviceToleration, SubRequest


class UnmodelledError(Exception):
    """A claim that is not modelled. The text says why, and continues a sentence that names the claim."""


@dataclass(frozen=True)
class Filter:
    """The devices that a request may get: all selectors match them, and it tolerates their taints.

    class_name: the DeviceClass that has the first selectors.
    """

    expressions: tuple[str, ...]
    tolerations: tuple[DeviceToleration, ...] = ()
    class_name: str = ""


@dataclass(frozen=True)
class Choice:
    """A request for devices of a filter: their count, or None for all. name: "request" or
    "request/alternative".

    wanted: the requested capacities of each device. A device that is not shared must have them.
    """

    name: str
    filter: Filter
    count: int | None
    admin: bool = False
    wanted: Wanted = ()


@dataclass(frozen=True)
class AttributeRule:
    """A constraint on an attribute: equal (is_same) or distinct. names: the bound requests, () for all."""

    attribute: tuple[str, str]
    is_same: bool
    names: frozenset[str] = frozenset()

    def binds(self, choice: Choice) -> bool:
        """Whether the constraint binds devices of the choice."""
        return not self.names or choice.name in self.names or choice.name.partition("/")[0] in self.names


@dataclass(frozen=True)
class Asked:
    """The requests of one claim: for each request its choices; the first available one is allocated.

    resources: for kube-scheduler's claim for extended resources, the resource behind each request.

    problem: why the requests of that claim are unknown; then there are none, but the resources.
    """

    requests: tuple[tuple[Choice, ...], ...]
    conditions: tuple[AttributeRule, ...] = ()
    resources: tuple[str, ...] = ()
    problem: str = ""

    def on_node_with(self, offered: Container[str]) -> "Asked":
        """The requests that remain on a node whose device plugins offer some of the resources."""
        left = [pair for pair in zip(self.requests, self.resources, strict=True) if pair[1] not in offered]
        return replace(
            self, requests=tuple(each for each, _ in left), resources=tuple(each for _, each in left)
        )

    def __str__(self) -> str:
        """As "2 gpu.example.com" or "1 a or 2 b"."""
        return " + ".join(" or ".join(map(_shown, each)) for each in self.requests)


Claims = tuple[Asked, ...]
"""The requests of several claims of one pod."""


def _shown(choice: Choice) -> str:
    count = "all" if choice.count is None else str(choice.count)
    share = " with " + ", ".join(f"{name} {_plain(amount)}" for name, amount in choice.wanted)
    return f"{count} {choice.filter.class_name}{share if choice.wanted else ''}{' (admin)' * choice.admin}"


def _plain(amount: Fraction) -> str:
    return str(amount) if amount.denominator == 1 else f"{float(amount):g}"


def read(claim: DeviceClaim, classes: Mapping[str, DeviceClass]) -> Asked:
    """The requests of a claim. Raises UnmodelledError."""
    requests = tuple(tuple(_choices(each, classes)) for each in claim.asked)
    fewest = sum(min(choice.count or 0 for choice in each) for each in requests)
    if fewest > devices.MOST_DEVICES:
        raise UnmodelledError(f"asks for {fewest} devices; a claim gets at most {devices.MOST_DEVICES}")
    return Asked(requests, tuple(map(_condition, claim.constraints)))


def read_amounts(amounts: Iterable[DeviceAmount], classes: Mapping[str, DeviceClass]) -> Asked:
    """The requests of the claim for extended resources. Raises UnmodelledError."""
    found = [
        (_choice(each.name, SubRequest(device_class_name=each.class_name, count=each.count), classes), each)
        for each in amounts
    ]
    total = sum(each.count for _, each in found)
    if total > devices.MOST_DEVICES:
        raise UnmodelledError(f"asks for {total} devices; a pod gets at most {devices.MOST_DEVICES}")
    return Asked(tuple((choice,) for choice, _ in found), resources=tuple(each.resource for _, each in found))


def _choices(request: devices.DeviceRequest, classes: Mapping[str, DeviceClass]) -> Iterator[Choice]:
    if request.exactly is not None:
        yield _choice(request.name, request.exactly, classes)
    elif request.first_available:
        for each in request.first_available:
            yield _choice(f"{request.name}/{each.name}", each, classes)
    else:
        raise UnmodelledError(f"has a request, {request.name}, of a kind that topogate does not model")


def _choice(name: str, asked: SubRequest, classes: Mapping[str, DeviceClass]) -> Choice:
    what = f"its request {name}"
    found = classes.get(asked.device_class_name)
    if found is None:
        raise UnmodelledError(
            f'names in {what} the DeviceClass "{asked.device_class_name}", which does not exist'
        )
    expressions = (*_expressions(found.spec.selectors, what), *_expressions(asked.selectors, what))
    tolerations = tuple(sorted(asked.tolerations, key=str))
    filter_ = Filter(expressions, tolerations, asked.device_class_name)
    wanted = _wanted(asked, what)
    if asked.allocation_mode == devices.ALL:
        return Choice(name, filter_, None, asked.admin_access, wanted)
    if asked.allocation_mode != devices.EXACT_COUNT:
        raise UnmodelledError(f"has in {what} the unknown allocationMode {asked.allocation_mode!r}")
    return Choice(name, filter_, asked.count, asked.admin_access, wanted)


def _wanted(asked: SubRequest, what: str) -> Wanted:
    requests = asked.capacity.requests if asked.capacity is not None else {}
    try:
        return tuple(sorted((name, exact(str(amount))) for name, amount in requests.items()))
    except ValueError as error:
        raise UnmodelledError(f"asks in {what} for a capacity that cannot be read: {error}") from None


def _expressions(selectors: tuple[devices.Selector, ...], what: str) -> Iterator[str]:
    for each in selectors:
        if each.cel is None:
            raise UnmodelledError(f"has in {what} a selector that is not CEL, which topogate does not model")
        yield each.cel.expression


def _condition(constraint: devices.Constraint) -> AttributeRule:
    attribute = constraint.match_attribute or constraint.distinct_attribute
    if attribute is None:
        raise UnmodelledError("has a constraint of a kind that topogate does not model")
    domain, _, name = attribute.partition("/")
    return AttributeRule(
        (domain, name), constraint.match_attribute is not None, frozenset(constraint.requests)
    )
