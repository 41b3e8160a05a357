"""Converts Kubernetes pods to the input of placement.

A pod with invalid requests is no error here. It becomes a pod class that cannot be placed, with the reason as
a sentence. Cards are counted as in GPU Aware Scheduling: a container with N cards takes one N-th of its
requests from each.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Final

from labeler.contract import keys
from labeler.contract.annotations import annotated_cards, annotated_tiles, is_planned
from labeler.contract.quantities import QuantityError, in_units, parse_all
from webhook.kube import objects
from webhook.kube.affinity import NodeSelectorTerm, SelectorRequirement
from webhook.kube.containers import ActualResources, Container
from webhook.kube.struct import Quantities
from webhook.placement.eligibility import Requirement, Rules, Term, Toleration, label_values
from webhook.placement.model import CardRequest, PodClass, Preferences, Usage, Vector, vector
from webhook.scheduling import gpu_requests
from webhook.scheduling.gpu_requests import ContainerKind
from webhook.scheduling.requests import ContainerAmounts, Has, pod_requests

MOST_PREFERRED: Final = 32
"""The most terms of preferred node affinity that are read per pod."""

MOST_CONDITIONS: Final = 128
"""The most resources that a pod may request, and the most conditions on its node: users may write a megabyte
of them, and every node is compared with each."""

_CARD_KEYS: Final = "gas-"
"""The prefix of annotations that restrict the cards of a pod."""

_FINISHED: Final = ("Succeeded", "Failed")
_NO_PREFERENCES: Final = Preferences()
_NO_STATUS: Final = objects.PodStatus()


# --- waiting pods -------------------------------------------------------------------------------------


_last: tuple[object, PodClass] | None = None
"""The facts read from the last pod, and its class, since most pods of a gang are equal.

It is one value, replaced as a whole, so any thread may read it."""


def pod_class_of(pod: objects.Pod) -> PodClass:
    """The pod's requests and rules. A request that can never be met is its `problem`."""
    global _last
    read, last = _read(pod), _last
    if last is not None and last[0] == read:
        return last[1]
    found = _pod_class_of(pod)
    _last = read, found
    return found


def _read(pod: objects.Pod) -> object:
    """The facts that determine a pod's class. Decoded pods share equal parts, so comparing them is fast."""
    spec = pod.spec
    annotations = [item for item in pod.metadata.annotations.items() if item[0].startswith(_CARD_KEYS)]
    where = spec.node_selector, spec.affinity, spec.tolerations
    return where, spec.containers, spec.init_containers, spec.overhead, spec.resources, annotations


def _pod_class_of(pod: objects.Pod) -> PodClass:
    rules = node_rules(pod.spec)
    try:
        requests = vector(requests_of(pod.spec))
        card_requests = _card_requests(pod.spec)
    except QuantityError as error:
        return PodClass((), rules, problem=str(error))
    problem = _too_many(requests, rules) or _fault(pod)
    if problem:
        return PodClass((), Rules(), problem=problem)
    preferred = _preferred(pod.spec)
    if not any(request.count for request in card_requests):
        return PodClass(requests, rules, preferred=preferred)
    annotations = pod.metadata.annotations
    allowed = annotations.get(keys.GAS_ALLOW_ANNOTATION)
    return PodClass(
        requests=requests,
        rules=rules,
        cards=card_requests,
        same_card=_same_card(pod),
        allowed_cards=None if allowed is None else _names(allowed),
        denied_cards=_names(annotations.get(keys.GAS_DENY_ANNOTATION, "")),
        single_numa=keys.GAS_SINGLE_NUMA_ANNOTATION in annotations,
        linked=keys.GAS_XELINK_ANNOTATION in annotations,
        preferred=preferred,
    )


def _too_many(requests: Vector, rules: Rules) -> str:
    """Why a pod asks for more than each node is compared with, "" if it does not."""
    if len(requests) > MOST_CONDITIONS:
        return f"it requests {len(requests):,} resources; at most {MOST_CONDITIONS} are used"
    if rules.size > MOST_CONDITIONS:
        return (
            f"its nodeSelector, node affinity and tolerations have {rules.size:,} conditions in all; at most "
            f"{MOST_CONDITIONS} are used: list values in one condition"
        )
    return ""


def _preferred(spec: objects.PodSpec) -> Preferences:
    """The pod's preferred node affinity. A pod may have a megabyte of it, so only the first terms count.

    They have at most MOST_CONDITIONS conditions in all.
    """
    affinity = spec.affinity.node_affinity if spec.affinity else None
    if affinity is None:
        return _NO_PREFERENCES
    preferences = affinity.preferred_during_scheduling_ignored_during_execution[:MOST_PREFERRED]
    terms = [(each.weight, node_term(each.preference)) for each in preferences]
    sizes = accumulate(len(term.expressions) + len(term.fields) for _, term in terms)
    return Preferences(tuple(terms[: sum(size <= MOST_CONDITIONS for size in sizes)]))


def requests_of(spec: objects.PodSpec, status: objects.PodStatus = _NO_STATUS) -> dict[str, int]:
    """The requests of a pod, or its usage if the status reports it, even of a faulty pod. Raises
    QuantityError.
    """
    pod_level = ContainerAmounts(
        parse_all(spec.resources.requests), parse_all(spec.resources.limits), has=_pod_has(status)
    )
    has = _containers_have(status)
    return pod_requests(
        [_amounts(container, has.get(container.name)) for container in spec.containers],
        [_amounts(container, has.get(container.name)) for container in spec.init_containers],
        parse_all(spec.overhead),
        pod_level,
    )


def _amounts(container: Container, has: Has | None = None) -> ContainerAmounts:
    resources = container.resources
    requests, limits = parse_all(resources.requests), parse_all(resources.limits)
    return ContainerAmounts(requests, limits, _is_sidecar(container), has)


def _containers_have(status: objects.PodStatus) -> dict[str, Has]:
    """By name the resources of containers whose usage differs from their requests, see objects.Pod."""
    infeasible = status.resize_is_infeasible
    return {
        each.name: _has(each.resources, each.allocated_resources, infeasible)
        for each in (*status.init_container_statuses, *status.container_statuses)
        if each.resources is not None
    }


def _pod_has(status: objects.PodStatus) -> Has | None:
    """The same for the pod as a whole."""
    if status.resources is None:
        return None
    return _has(status.resources, status.allocated_resources, status.resize_is_infeasible)


def _has(actual: ActualResources, allocated: Quantities | None, infeasible: bool) -> Has:
    return Has(parse_all(actual.requests), parse_all(allocated or {}), infeasible)


def _fault(pod: objects.Pod) -> str:
    """The reason why no cards can be assigned, "" if there is none."""
    spec = pod.spec
    asking = [_asking(each, ContainerKind.CONTAINER) for each in spec.containers]
    for each in spec.init_containers:
        asking.append(_asking(each, ContainerKind.SIDECAR if _is_sidecar(each) else ContainerKind.INIT))
    found = gpu_requests.faults(asking, pod.metadata.annotations)
    return next((fault.text for fault in found if fault.refused), "")


def _asking(container: Container, kind: ContainerKind) -> gpu_requests.GpuRequest:
    resources = container.resources
    amounts = gpu_requests.intel({**resources.limits, **resources.requests})
    return gpu_requests.GpuRequest(container.name, amounts, kind)


def _is_sidecar(container: Container) -> bool:
    """Whether an init container is a sidecar."""
    return container.restart_policy == "Always"


def _intel(container: Container) -> dict[str, int]:
    """The card requests of a container. Monitoring shows all cards of a node and takes none."""
    return {
        resource: amount
        for resource, amount in in_units(_amounts(container).effective).items()
        if resource.startswith(keys.INTEL_PREFIX) and resource not in keys.MONITORING_RESOURCES
    }


def _card_requests(spec: objects.PodSpec) -> tuple[CardRequest, ...]:
    """The card request of each container, with the amounts that sidecars take of its cards."""
    card_requests = [_card_request(container) for container in spec.containers]
    for sidecar in filter(_is_sidecar, spec.init_containers):
        amounts = _intel(sidecar)
        plugin = _plugin(amounts)
        host = next((n for n, each in enumerate(spec.containers) if _plugin(_intel(each)) == plugin), None)
        if plugin is None or host is None:
            continue
        # If it gets fewer cards than there are, it counts on all of them here, which never allows too much.
        count, per_card = amounts[plugin], dict(card_requests[host].per_card)
        for resource, amount in amounts.items():
            per_card[resource] = per_card.get(resource, 0) + amount // count
        card_requests[host] = replace(card_requests[host], per_card=vector(per_card))
    return tuple(card_requests)


def _card_request(container: Container) -> CardRequest:
    """The card request of a container."""
    return _card_request_of(_intel(container))


def _card_request_of(asked: Mapping[str, int]) -> CardRequest:
    """The same from amounts: all but the number of cards are divided evenly among the cards."""
    amounts = {resource: amount for resource, amount in asked.items() if amount > 0}
    plugin = _plugin(amounts)
    if plugin is None:
        return CardRequest()
    count = amounts[plugin]
    shares = {resource: amount // count for resource, amount in amounts.items()}
    return CardRequest(count, vector(shares), shares.get(keys.TILES, 0))


def _plugin(amounts: Mapping[str, int]) -> str | None:
    """The resource for card requests: xe if any is requested, else i915."""
    return next((resource for resource in keys.PLUGIN_RESOURCES if amounts.get(resource, 0) > 0), None)


def _same_card(pod: objects.Pod) -> tuple[int, ...]:
    """Positions of the containers that share a card."""
    names = gpu_requests.same_card_names(pod.metadata.annotations.get(keys.GAS_SAME_GPU_ANNOTATION, ""))
    return tuple(number for number, each in enumerate(pod.spec.containers) if each.name in names)


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def node_rules(spec: objects.PodSpec) -> Rules:
    """The node rules of a pod: its selector, affinity and tolerations."""
    affinity = spec.affinity.node_affinity if spec.affinity else None
    required = affinity.required_during_scheduling_ignored_during_execution if affinity else None
    return Rules(
        selector=tuple(sorted(spec.node_selector.items())),
        affinity=None if required is None else tuple(map(node_term, required.node_selector_terms)),
        tolerations=tuple(
            Toleration(item.key, item.operator, item.value, item.effect) for item in spec.tolerations
        ),
    )


def node_term(term: NodeSelectorTerm) -> Term:
    """A term of a node selector, of a pod or of a volume."""
    return Term(_conditions(term.match_expressions), _conditions(term.match_fields))


def _conditions(requirements: Sequence[SelectorRequirement]) -> tuple[Requirement, ...]:
    return tuple(Requirement(item.key, item.operator, tuple(item.values)) for item in requirements)


# --- pods on nodes ------------------------------------------------------------------------------------


def occupies(pod: objects.Pod) -> bool:
    """Whether a pod uses capacity of its node: it is bound and not finished. Terminating pods still do."""
    return bool(pod.spec.node_name) and pod.status.phase not in _FINISHED


def usage_of(pod: objects.Pod, gang: str = "", *, annotations: Mapping[str, str] | None = None) -> Usage:
    """The pod's usage of its node, with cards and tiles from its annotations.

    annotations: replace the pod's own, for a pod whose release is not written yet. Cards and tiles count as
    in GPU Aware Scheduling, each separately. Only requested cards count, so annotations without such a
    request take nothing from others. If no card is named, the pod still uses some of its node's cards. Raises
    QuantityError.
    """
    texts = pod.metadata.annotations if annotations is None else annotations
    asked = [_intel(container) for container in pod.spec.containers]
    slots = _slots(asked, annotated_cards(texts))
    cards = _allocated_cards(slots, filter(_is_sidecar, pod.spec.init_containers))
    with_tiles = any(amounts.get(keys.TILES) for amounts in asked)
    tiles = {f"card{card}": own for card, own in annotated_tiles(texts).items()} if with_tiles else {}
    metadata = pod.metadata
    name = f"{metadata.namespace}/{metadata.name}"
    unmanaged = _without_name(slots) if is_planned(texts) else _unmanaged(pod.spec)
    priority = pod.spec.priority or 0
    requests = requests_of(pod.spec, pod.status)
    labels = label_values(node_rules(pod.spec))
    return Usage(requests, cards, tiles, name, gang, priority, metadata.uid, unmanaged, labels)


_Slot = tuple[Mapping[str, int], Sequence[int | None]]
"""The card request of a container, and the cards that annotations name for it."""


def _slots(asked: Sequence[Mapping[str, int]], slots: Sequence[Sequence[int | None]]) -> list[_Slot]:
    """The cards of each container that requests some.

    If the numbers of slots and containers differ, Intel's plugin reads the n-th non-empty slot for the n-th
    container with a request. Surplus slots count for the last container too, since they may be in use.
    """
    if len(slots) == len(asked):
        return [each for each in zip(asked, slots, strict=True) if _plugin(each[0])]
    asking = [amounts for amounts in asked if _plugin(amounts)]
    named = [slot for slot in slots if slot] if asking else []
    missing = [()] * (len(asking) - len(named))
    found: list[_Slot] = list(zip(asking, [*named, *missing], strict=False))
    return [*found, *((asking[-1], slot) for slot in named[len(asking) :])]


def _allocated_cards(slots: Sequence[_Slot], sidecars: Iterable[Container]) -> dict[str, dict[str, int]]:
    """The usage by card. A sidecar uses cards of the containers beside it."""
    cards: dict[str, dict[str, int]] = {}
    for amounts, slot in slots:
        _book(amounts, slot, cards)
    for sidecar in sidecars:
        lent = _intel(sidecar)
        plugin = _plugin(lent)
        if plugin:
            own = [slot for amounts, slot in slots if _plugin(amounts) == plugin]
            _book(lent, _lent(own, lent[plugin]), cards)
    return cards


def _without_name(slots: Iterable[_Slot]) -> tuple[CardRequest, ...]:
    """Requests whose cards the node chooses, of a planned pod: containers without named cards."""
    return tuple(replace(_card_request_of(amounts), tiles=0) for amounts, slot in slots if not slot)


def _unmanaged(spec: objects.PodSpec) -> tuple[CardRequest, ...]:
    """Requests whose cards the node chooses, in the order in which it reports them.

    The last is the surplus request of an init container beyond all others. The kubelet reserves it for the
    pod and does not report it.
    """
    going_on = [
        _card_request(each) for each in (*spec.containers, *filter(_is_sidecar, spec.init_containers))
    ]
    found = [replace(request, tiles=0) for request in going_on if request.count]
    largest = max(
        map(_card_request, spec.init_containers), key=lambda request: request.count, default=CardRequest()
    )
    beyond = largest.count - sum(request.count for request in found)
    return (*found, replace(largest, count=beyond, tiles=0)) if beyond > 0 else tuple(found)


def _lent(slots: Sequence[Sequence[int | None]], count: int) -> Sequence[int | None]:
    """The cards of a sidecar: the first cards of its pod (see labeler.allocator.choose)."""
    own = tuple(dict.fromkeys(card for slot in slots for card in slot))
    if count <= len(own):
        return own[:count]
    return own if len(own) == 1 else ()


def _book(amounts: Mapping[str, int], slot: Sequence[int | None], cards: dict[str, dict[str, int]]) -> None:
    """Divide a container's amounts by the number of its cards, rounded down, and add them to each card."""
    for card in slot:
        if card is not None:
            amounts_of_card = cards.setdefault(f"card{card}", {})
            for resource, amount in amounts.items():
                amounts_of_card[resource] = amounts_of_card.get(resource, 0) + amount // len(slot)
