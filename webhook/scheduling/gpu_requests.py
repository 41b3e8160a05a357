"""The rules for requests of Intel GPUs: one set, for warnings at creation and for refusals to place.

Source of the rules on fractional resources and on `gas-*` annotations: README and usage document of GPU Aware
Scheduling (intel/platform-aware-scheduling). Each sentence fits into one warning of the API server. Pure.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from labeler.contract import keys, quantities
from webhook.text import counted, quote

_BOTH: Final = f"{keys.I915} and {keys.XE}; no node offers both, ask for one"
_LONGEST_QUANTITY: Final = 40
_CARD: Final = re.compile(r"card(0|[1-9][0-9]*)")

Written = Mapping[str, str | int | float]
"""Resource name -> quantity as its author wrote it."""


class ContainerKind(StrEnum):
    """The kind of a container. A sidecar is an init container with restartPolicy Always."""

    CONTAINER = "container"
    INIT = "init container"
    SIDECAR = "sidecar"


@dataclass(frozen=True, slots=True)
class GpuRequest:
    """A container and its requests of Intel GPUs."""

    name: str
    amounts: Written
    kind: ContainerKind = ContainerKind.CONTAINER

    @property
    def plugins(self) -> list[str]:
        """The requested resources that offer cards; the first one counts."""
        return [name for name in keys.PLUGIN_RESOURCES if whole_number(self.amounts.get(name, 0))]

    @property
    def count(self) -> int:
        """The number of cards."""
        plugins = self.plugins
        return whole_number(self.amounts[plugins[0]]) or 0 if plugins else 0

    def __str__(self) -> str:
        return f"{self.kind} {quote(self.name)}"


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault in a request. refused: whether it keeps the pod from being placed."""

    text: str
    refused: bool = True


def whole_number(quantity: str | int | float) -> int | None:
    """A Kubernetes quantity as a whole number, None if it is not one ("500m", "0.5", invalid text)."""
    if isinstance(quantity, str) and len(quantity) > _LONGEST_QUANTITY:
        return None  # the API server never writes these; parsed texts are cached, so they must be short
    try:
        thousandths = quantities.parse(quantity)
    except quantities.QuantityError:
        return None
    return None if thousandths % 1000 else thousandths // 1000


def intel(amounts: Written) -> Written:
    """The amounts that concern Intel GPUs."""
    return {name: value for name, value in amounts.items() if name.startswith(keys.INTEL_PREFIX)}


def same_card_names(text: str) -> tuple[str, ...]:
    """Containers that the annotation `gas-same-gpu` names."""
    return tuple(name.strip() for name in text.split(",") if name.strip())


def faults(containers: Sequence[GpuRequest], annotations: Mapping[str, str]) -> Iterator[Fault]:
    """All faults in a pod's requests of Intel GPUs and in its `gas-*` annotations."""
    if any(each.amounts for each in containers):
        yield from _amounts(containers)
    if any(key.startswith("gas-") for key in annotations):
        yield from _card_lists(annotations)
        yield from _same_card(containers, annotations)
        yield from _links(containers, annotations)


def _amounts(containers: Iterable[GpuRequest]) -> Iterator[Fault]:
    """Checks the amounts of each container, and of all together."""
    asking = []
    for container in containers:
        yield from _fractions(container)
        if container.count:
            asking.append(container)
    plugins_used = {name for each in asking for name in each.plugins}
    if len(plugins_used) > 1 and all(len(each.plugins) == 1 for each in asking):
        yield Fault(f"containers ask for {_BOTH}", refused=False)
    beside = [each for each in asking if each.kind is ContainerKind.CONTAINER]
    yield from _tiles(beside)
    yield from _lent(asking, beside)


def _tiles(beside: Sequence[GpuRequest]) -> Iterator[Fault]:
    """Checks for tiles that only some of the containers that run at the same time request."""
    without = [each for each in beside if not whole_number(each.amounts.get(keys.TILES, 0))]
    if without and len(without) < len(beside):
        # The device plugin would assign the tiles to the wrong container.
        yield Fault(
            f"{without[0]} asks for a GPU without tiles, and others ask for tiles; ask for tiles in all or "
            "none"
        )


def _lent(asking: Iterable[GpuRequest], chosen_for: Sequence[GpuRequest]) -> Iterator[Fault]:
    """Checks init containers and sidecars, which use the cards of the first container that requests some."""
    for each in asking:
        if each.kind is ContainerKind.CONTAINER:
            continue
        plugin = each.plugins[0]
        host = next((other for other in chosen_for if other.plugins[0] == plugin), None)
        if host is None:
            # A finished init container no longer matters, but a sidecar's card would not be counted.
            yield Fault(
                f"{each}: no container asks for {plugin}, so no card is chosen for it",
                refused=each.kind is ContainerKind.SIDECAR,
            )
        elif each.count > host.count:
            yield Fault(f"{each}: asks for {each.count} GPUs of the {host.count} of {host}; ask for no more")
        if each.kind is ContainerKind.SIDECAR and whole_number(each.amounts.get(keys.TILES, 0)):
            yield Fault(f"{each}: asks for {keys.TILES}; it uses a container's tiles, ask for none")


def _fractions(container: GpuRequest) -> Iterator[Fault]:  # branches: a list of rules
    """Checks shares of GPUs: a container's amounts are divided evenly among its cards."""
    count, plugins = container.count, container.plugins
    if len(plugins) > 1:
        yield Fault(
            f"{container}: asks for {keys.I915} and {keys.XE}; no node offers both, ask for one",
            refused=False,
        )
    for name, quantity in container.amounts.items():
        if (plugins and name == plugins[0]) or name in keys.MONITORING_RESOURCES:
            continue  # monitoring shows all GPUs and takes none, so it is not divided
        amount = whole_number(quantity)
        if amount is None:
            yield Fault(f"{container}: {name} {quote(str(quantity))} is not a whole number", refused=False)
        elif amount and not count:
            if name not in keys.MONITORING_RESOURCES:  # requested alone, it shows all GPUs and takes none
                yield Fault(
                    f"{container}: {name} without {keys.I915} or {keys.XE} gets no GPU", refused=False
                )
        elif name == keys.TILES and 0 < amount < count:
            yield Fault(
                f"{container}: {counted(amount, 'tile')} for {counted(count, 'GPU')}; "
                "ask for at least one tile a GPU",
                refused=container.kind is not ContainerKind.INIT,
            )
        elif count and amount % count:
            yield Fault(
                f"{container}: {name} {amount} does not divide by {counted(count, 'GPU')}",
                refused=container.kind is not ContainerKind.INIT,
            )


def _card_lists(annotations: Mapping[str, str]) -> Iterator[Fault]:
    for key in (keys.GAS_ALLOW_ANNOTATION, keys.GAS_DENY_ANNOTATION):
        value = annotations.get(key)
        if value is None:
            continue
        wrong = [name for name in value.split(",") if not _CARD.fullmatch(name)]
        if wrong:
            yield Fault(
                f"{key}: {quote(wrong[0])} is not a card; write card0,card1 without blanks", refused=False
            )


def _same_card(  # branches: a list of rules
    containers: Sequence[GpuRequest], annotations: Mapping[str, str]
) -> Iterator[Fault]:
    """Checks containers that share a card: each requests exactly one GPU, and no tiles or monitoring."""
    key = keys.GAS_SAME_GPU_ANNOTATION
    value = annotations.get(key)
    if value is None:
        return
    names = same_card_names(value)
    regular = {each.name: each for each in containers if each.kind is ContainerKind.CONTAINER}
    unknown = [name for name in names if name not in regular]
    if len(set(names)) != len(names) or len(names) < 2:
        yield Fault(f"{key}: {quote(value)} must name two or more different containers")
    elif ",".join(names) != value:
        yield Fault(f"{key}: {quote(value)} is read differently by others; write no blanks", refused=False)
    if unknown:
        yield Fault(f"{key}: the pod has no container {quote(unknown[0])}")
    if keys.GAS_XELINK_ANNOTATION in annotations:
        yield Fault(f"{key} and {keys.GAS_XELINK_ANNOTATION} exclude each other")
    for container in (regular[name] for name in dict.fromkeys(names) if name in regular):
        asked = container.amounts
        if sum(whole_number(asked.get(resource, 0)) or 0 for resource in keys.PLUGIN_RESOURCES) != 1:
            yield Fault(f"{key}: {container} must ask for exactly 1 GPU")
        clash = [resource for resource in (keys.TILES, *keys.MONITORING_RESOURCES) if resource in asked]
        if clash:
            refused = bool(whole_number(asked.get(keys.TILES, 0)))
            yield Fault(f"{key}: {container} must not ask for {clash[0]}", refused)


def _links(containers: Sequence[GpuRequest], annotations: Mapping[str, str]) -> Iterator[Fault]:
    key = keys.GAS_XELINK_ANNOTATION
    if key not in annotations:
        return
    for container in containers:
        if container.kind is ContainerKind.CONTAINER and container.count % 2:
            yield Fault(f"{key}: {container} asks for {container.count} GPUs; links join pairs")
