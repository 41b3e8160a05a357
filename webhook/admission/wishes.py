"""Requests that can never be placed, told to the user while the pod is created.

None of these refuses a pod: a warning costs nothing if we are wrong. The rules on Intel's fractional
resources and on `gas-*` annotations are those of GPU Aware Scheduling (README and usage document of
intel/platform-aware-scheduling, gpu-aware-scheduling).
"""

import re
from collections.abc import Iterator, Mapping
from typing import Final

from labeler.contract import keys, quantities
from webhook.admission.review import Container, Pod
from webhook.kube.objects import Quantities
from webhook.policy.text import one_line, quote, sentence_list
from webhook.policy.values import Policy

LONGEST_WARNING: Final = 120
"""What the API documentation recommends as the length of one warning."""
MOST_WARNINGS: Final = 16

_OURS: Final = "topogate.io/"
_MONITORING: Final = (f"{keys.I915}_monitoring", f"{keys.XE}_monitoring")
_LONGEST_QUANTITY: Final = 40
_CARD: Final = re.compile(r"card(0|[1-9][0-9]*)")
_POSITIVE: Final = re.compile(r"[1-9][0-9]{0,8}")
_LEVEL_KEYS: Final = frozenset(
    ("node", keys.HOSTNAME_LABEL, *(key for x in keys.TOPOLOGY_FAMILIES for key in x))
)
"""What the sweeper takes for a level beside the levels' names."""


def amount(quantity: str | int | float) -> int | None:
    """A Kubernetes quantity as a whole number, None where it is none ("500m", "0.5", nonsense)."""
    if isinstance(quantity, str) and len(quantity) > _LONGEST_QUANTITY:
        return None  # the API server never writes such; parsed texts are remembered, so they stay short
    try:
        thousandths = quantities.parse(quantity)
    except quantities.QuantityError:
        return None
    return None if thousandths % 1000 else thousandths // 1000


def asked_of(container: Container) -> Quantities:
    """What a container asks for: its requests, and limits for what it requests nothing of."""
    resources = container.resources
    if resources is None:
        return {}
    limits, requests = resources.limits, resources.requests
    return {**limits, **requests} if limits and requests else limits or requests or {}


def gpu_resources(pod: Pod, policy: Policy) -> tuple[str, ...]:
    """Names of the GPU resources that any container or init container asks some of, in order."""
    found: dict[str, None] = {}
    for container in pod.all_containers:
        for resource, quantity in asked_of(container).items():
            if policy.is_gpu_resource(resource) and amount(quantity) != 0:
                found[resource] = None
    return tuple(found)


def warnings(pod: Pod, policy: Policy) -> list[str]:
    """Everything about a pod's wishes that its author should hear."""
    found: list[str] = []
    if any(key.startswith(_OURS) for key in pod.annotations):
        found += [*_inject(pod.annotations), *_gang(pod.annotations)]
        found += [*_topology(pod.annotations, policy), *_slices(pod.annotations, policy)]
    if any(name.startswith(keys.INTEL_PREFIX) for each in pod.all_containers for name in asked_of(each)):
        found += _intel(pod)
    if any(key.startswith("gas-") for key in pod.annotations):
        found += [*_cards(pod.annotations), *_same_gpu(pod), *_xelink(pod)]
    return found


def shown(found: list[str]) -> tuple[str, ...]:
    """Warnings as the API server passes them on: one line each, not too long, not too many."""
    if not found:
        return ()
    if len(found) > MOST_WARNINGS:
        rest = len(found) - MOST_WARNINGS + 1
        found = [*found[: MOST_WARNINGS - 1], f"topogate: and {rest} more warnings"]
    lines = (one_line(line) for line in found)
    return tuple(x if len(x) <= LONGEST_WARNING else x[: LONGEST_WARNING - 3] + "..." for x in lines)


def _inject(annotations: Mapping[str, str]) -> Iterator[str]:
    value = annotations.get(keys.INJECT_ANNOTATION)
    if value is not None and value != "true":
        yield f'{keys.INJECT_ANNOTATION}: {quote(value)} has no effect; to opt out write "{keys.INJECT_NO}"'


def _gang(annotations: Mapping[str, str]) -> Iterator[str]:
    size = annotations.get(keys.GANG_SIZE_ANNOTATION)
    if size is not None and not _POSITIVE.fullmatch(size):
        yield f"{keys.GANG_SIZE_ANNOTATION}: {quote(size)} is no positive whole number"
    if annotations.get(keys.GANG_ANNOTATION) == "":
        yield f"{keys.GANG_ANNOTATION} is empty: name the gang"


def _topology(annotations: Mapping[str, str], policy: Policy) -> Iterator[str]:
    for key in (
        keys.REQUIRED_TOPOLOGY_ANNOTATION,
        keys.PREFERRED_TOPOLOGY_ANNOTATION,
        keys.SLICE_TOPOLOGY_ANNOTATION,
    ):
        level = annotations.get(key)
        if level is not None and level not in policy.topology_levels and level not in _LEVEL_KEYS:
            yield f"{key}: no level {quote(level)}; known: {sentence_list(policy.topology_levels)}"


def _slices(annotations: Mapping[str, str], policy: Policy) -> Iterator[str]:
    """Runs of consecutive ranks, each in one domain of a level: level and size come together."""
    level = annotations.get(keys.SLICE_TOPOLOGY_ANNOTATION)
    size = annotations.get(keys.SLICE_SIZE_ANNOTATION)
    if level is not None and size is None:
        yield f"{keys.SLICE_TOPOLOGY_ANNOTATION} needs {keys.SLICE_SIZE_ANNOTATION}: the pods of a slice"
    if size is None:
        return
    if level is None:
        yield f"{keys.SLICE_SIZE_ANNOTATION} needs {keys.SLICE_TOPOLOGY_ANNOTATION}: the level of a slice"
    if not _POSITIVE.fullmatch(size):
        yield f"{keys.SLICE_SIZE_ANNOTATION}: {quote(size)} is no positive whole number"
        return
    gang = annotations.get(keys.GANG_SIZE_ANNOTATION, "")
    if _POSITIVE.fullmatch(gang) and int(gang) % int(size):
        yield f"{keys.GANG_SIZE_ANNOTATION} {gang} is no multiple of {keys.SLICE_SIZE_ANNOTATION} {size}"
    top, levels = annotations.get(keys.REQUIRED_TOPOLOGY_ANNOTATION), policy.topology_levels
    if level in levels and top in levels and levels.index(level) < levels.index(top):
        yield f"{keys.SLICE_TOPOLOGY_ANNOTATION} {level} lies above {keys.REQUIRED_TOPOLOGY_ANNOTATION} {top}"


def _intel(pod: Pod) -> Iterator[str]:
    """Amounts of Intel GPUs, each container for itself and all together."""
    cards: dict[str, Quantities] = {}
    for word, containers in (
        ("init container", pod.spec.init_containers),
        ("container", pod.spec.containers),
    ):
        for container in containers or ():
            asked = _intel_amounts(container)
            if not asked:
                continue
            where = f"{word} {quote(container.name)}"
            yield from _fractions(where, asked)
            if any(amount(asked.get(name, 0)) for name in keys.PLUGIN_RESOURCES):
                cards[where] = asked
    kinds = {name for asked in cards.values() for name in _plugins(asked)}
    if len(kinds) > 1 and all(len(_plugins(asked)) == 1 for asked in cards.values()):
        yield f"containers ask for {keys.I915} and {keys.XE}; no node offers both, ask for one"
    beside = {where: asked for where, asked in cards.items() if where.startswith("container")}
    without = [where for where, asked in beside.items() if not amount(asked.get(keys.TILES, 0))]
    if without and len(without) < len(beside):
        yield f"{without[0]} asks for a GPU without tiles beside others with; ask for tiles in all or none"


def _intel_amounts(container: Container) -> Quantities:
    return {name: value for name, value in asked_of(container).items() if name.startswith(keys.INTEL_PREFIX)}


def _plugins(asked: Quantities) -> list[str]:
    return [name for name in keys.PLUGIN_RESOURCES if amount(asked.get(name, 0))]


def _fractions(where: str, asked: Quantities) -> Iterator[str]:
    """Shares of Intel GPUs: the container's amounts are spread evenly over its cards."""
    plugins = _plugins(asked)
    if len(plugins) > 1:
        yield f"{where}: asks for {keys.I915} and {keys.XE}; no node offers both, ask for one"
    count = amount(asked[plugins[0]]) or 0 if plugins else 0
    for name, quantity in asked.items():
        if name in keys.PLUGIN_RESOURCES:
            continue
        whole = amount(quantity)
        if whole is None:
            yield f"{where}: {name} {quote(str(quantity))} is no whole number"
        elif whole and not count:
            if name not in _MONITORING:  # asked for alone, it shows all GPUs and takes none
                yield f"{where}: {name} without {keys.I915} or {keys.XE} gets no GPU"
        elif name == keys.TILES and 0 < whole < count:
            yield f"{where}: {whole} tiles for {count} GPUs; ask for at least one tile a GPU"
        elif count and whole % count:
            yield f"{where}: {name} {whole} does not divide by {count} GPUs"


def _cards(annotations: Mapping[str, str]) -> Iterator[str]:
    for key in (keys.GAS_ALLOW_ANNOTATION, keys.GAS_DENY_ANNOTATION):
        value = annotations.get(key)
        if value is None:
            continue
        wrong = [name for name in value.split(",") if not _CARD.fullmatch(name)]
        if wrong:
            yield f"{key}: {quote(wrong[0])} is no card; write card0,card1 without blanks"


def _same_gpu(pod: Pod) -> Iterator[str]:
    """Containers that share one card: each asks for exactly one GPU, and for no tiles or monitoring."""
    value = pod.annotations.get(keys.GAS_SAME_GPU_ANNOTATION)
    if value is None:
        return
    names = value.split(",")
    containers = {container.name: container for container in pod.spec.containers or ()}
    unknown = [name for name in names if name not in containers]
    if len(set(names)) != len(names) or len(names) < 2:
        yield f"{keys.GAS_SAME_GPU_ANNOTATION}: {quote(value)} must name two or more different containers"
    if unknown:
        yield f"{keys.GAS_SAME_GPU_ANNOTATION}: the pod has no container {quote(unknown[0])}"
    if keys.GAS_XELINK_ANNOTATION in pod.annotations:
        yield f"{keys.GAS_SAME_GPU_ANNOTATION} and {keys.GAS_XELINK_ANNOTATION} exclude each other"
    for name in dict.fromkeys(names):
        asked = asked_of(containers[name]) if name in containers else None
        if asked is None:
            continue
        if sum(amount(asked.get(resource, 0)) or 0 for resource in keys.PLUGIN_RESOURCES) != 1:
            yield f"{keys.GAS_SAME_GPU_ANNOTATION}: container {quote(name)} must ask for exactly 1 GPU"
        clash = [resource for resource in (keys.TILES, *_MONITORING) if resource in asked]
        if clash:
            yield f"{keys.GAS_SAME_GPU_ANNOTATION}: container {quote(name)} must not ask for {clash[0]}"


def _xelink(pod: Pod) -> Iterator[str]:
    if keys.GAS_XELINK_ANNOTATION not in pod.annotations:
        return
    for container in pod.spec.containers or ():
        asked = asked_of(container)
        count = next((amount(asked[name]) or 0 for name in _plugins(asked)), 0)
        if count % 2:
            where = f"{keys.GAS_XELINK_ANNOTATION}: container {quote(container.name)}"
            yield f"{where} asks for {count} GPUs; links join pairs"
