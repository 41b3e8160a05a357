"""A configuration's text in, a Configuration out, or every fault at once, each named by its path."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Final

import msgspec

from webhook.configuration import keys
from webhook.configuration.document import ConfigurationError, read_yaml
from webhook.configuration.keys import Document
from webhook.configuration.reader import ABSENT, FaultList
from webhook.configuration.schema import SCHEMA
from webhook.configuration.settings import Settings
from webhook.durations import seconds_of
from webhook.placement import Topology
from webhook.policy.fair import FairOrder
from webhook.policy.values import (
    DEFAULT_EXCLUDED_NAMESPACES,
    EVERY_CLASS,
    CommonFacts,
    GpuModel,
    NamespaceRules,
    Policy,
    Tier,
    normal_model_name,
)
from webhook.scheduling.gpus import DEFAULT_GPU_CLASSES, Counting


@dataclass(frozen=True)
class Configuration:
    """What the operator wants: of admission and the task controller, and of the sweeper."""

    policy: Policy = field(default_factory=Policy)
    settings: Settings = field(default_factory=Settings)

    @property
    def counting(self) -> Counting:
        """The resources that count as GPUs, and the labels with their model, those of the catalogue too."""
        of_sweeper = self.settings.counting
        catalogue = (key for model in self.policy.gpu_models for key in model.labels)
        return replace(of_sweeper, model_labels=(*of_sweeper.model_labels, *catalogue))


def parse(content: str | bytes, source: str = "configuration") -> Configuration:
    """Read a file's content. Raises ConfigurationError, each line of which begins with the source."""
    return from_document(read_yaml(content, source), source)


def from_document(document: Any, source: str) -> Configuration:
    """Read a document. Raises ConfigurationError."""
    faults = FaultList()
    checked = faults.checked({} if document is None else document, SCHEMA)
    if checked is ABSENT:
        raise ConfigurationError(source, faults.faults)
    given = msgspec.convert(checked, Document)
    settings = _settings(given, faults)
    configuration = Configuration(_policy(given, settings, faults), settings)
    if faults.faults:
        raise ConfigurationError(source, faults.faults)
    return configuration


# --- the sweeper's part -------------------------------------------------------------------------------

SETTINGS: Final = {
    "gate_prefix": "gatePrefix",
    "scheduler_names": "schedulerNames",
    "gpu_resources": "gpus.resources",
    "keep_managed_fields": "admission.keepManagedFields",
    "settle_seconds": "gangs.settle",
    "patience_seconds": "gangs.patience",
    "bind_seconds": "binding.timeout",
    "abandon_seconds": "repair.abandonAfter",
    "reserve_seconds": "reservations.after",
    "reserve_hold_seconds": "reservations.duration",
    "reserve_share": "reservations.share",
    "start_with_fewer": "gangs.startWithFewer",
    "repair": "repair.enabled",
    "repair_owners": "repair.owners",
    "preempt": "preemption.enabled",
    "gpu_device_classes": "gpus.deviceClasses",
    "model_label": "gpus.modelLabel",
    "gang_labels": "gangs.labels",
    "gang_owners": "gangs.owners",
    "loose_owners": "gangs.looseOwners",
    "bad_nodes.avoid": "nodeHealth.avoid",
    "bad_nodes.failures": "nodeHealth.failures",
    "bad_nodes.avoid_seconds": "nodeHealth.avoidFor",
    "bad_nodes.share": "nodeHealth.share",
    "spare_nodes.per_block": "spareNodes.perBlock",
    "spare_nodes.if_nothing_else_fits": "spareNodes.lastResort",
    "options.mode": "placement.mode",
    "options.weights": "placement.weights",
    "scale_up.provisioning_class": "scaleUp.provisioningClass",
    "scale_up.parameters": "scaleUp.parameters",
    "scale_up.requests": "scaleUp.requests",
    "scale_up.pods": "scaleUp.pods",
    "moves.after_seconds": "makeRoom.after",
    "moves.per_hour": "makeRoom.movesPerHour",
    "moves.per_gang_and_day": "makeRoom.movesPerGangAndDay",
}
"""The key of each of the Settings; those of version 0.1 had the same names."""


def _settings(given: Document, faults: FaultList) -> Settings:
    for each in sorted({*given.gangs.owners} & {*given.gangs.loose_owners}):
        faults.add("gangs.looseOwners", f"{each} is in gangs.owners too")
    document, values = msgspec.to_builtins(given), dict[str, Any]()
    for name, path in SETTINGS.items():
        section, _, key = path.partition(".")
        value = document.get(section, {}).get(key, ABSENT) if key else document[section]
        if value is not ABSENT:
            above, _, field_name = name.rpartition(".")
            into = values.setdefault(above, {}) if above else values
            into[field_name] = seconds_of(value) if name.endswith("_seconds") else value
    found = msgspec.convert(values, Settings)
    return replace(
        found,
        excluded_namespaces=frozenset((*DEFAULT_EXCLUDED_NAMESPACES, *given.namespaces.excluded)),
        gpu_device_classes=found.gpu_device_classes - {"*"} or frozenset(DEFAULT_GPU_CLASSES),
        topology=_topology(given.topology.levels, faults),
        moves=replace(found.moves, is_on=bool(given.moves)),
    )


def _topology(given: Any, faults: FaultList) -> Topology:
    """The levels, coarsest first, each with the label key of each family, or with a list of such keys.

    given: a mapping, or a tuple of mappings of one level each, since Helm sorts the keys of mappings.
    """
    if given is msgspec.UNSET:
        return Topology()
    levels = [level for each in (given if isinstance(given, tuple) else [given]) for level in each.items()]
    names = tuple(name for name, _ in levels)
    faults.once(names, "topology.levels")
    try:
        families = zip(*([keys] if isinstance(keys, str) else keys for _, keys in levels), strict=True)
        return Topology(tuple(families), names)
    except ValueError:
        faults.add("topology.levels", "each level needs one label key for each family")
        return Topology()


# --- the part of admission and the task controller ----------------------------------------------------


def _policy(given: Document, settings: Settings, faults: FaultList) -> Policy:
    faults.once([each.name for each in given.tiers], "tiers", ".name")
    faults.once([each.priority_class_name for each in given.tiers], "tiers", ".priorityClassName")
    models = _models(given.models, faults)
    find = {normal_model_name(name): each.name for each in models for name in (each.name, *each.aliases)}

    def model(name: str, path: str) -> str:
        """The catalogue's name of a model, by name or alias in any spelling."""
        found = find.get(normal_model_name(name), name)
        return _known(found, path, [each.name for each in models], "GPU model", faults)

    classes = given.gpus.device_classes
    return Policy(
        **vars(msgspec.convert(settings, CommonFacts, from_attributes=True)),
        gpu_models=models,
        tiers=tuple(Tier(each.name, each.priority_class_name) for each in given.tiers),
        namespaces=dict(_rules(given, model, faults)),
        topology_levels=settings.topology.level_names,
        resource_claims=bool(classes),
        fair_order=_fair_order(given.fair_order, model, faults) if given.fair_order else None,
        device_classes=EVERY_CLASS if "*" in classes or not classes else classes,
        adopts_native_gangs=given.gangs.native == "adopt",
        binds_by_pod_group=given.binding.mode == "podgroup",
    )


def _models(given: tuple[keys.ModelItem, ...], faults: FaultList) -> tuple[GpuModel, ...]:
    taken: dict[str, str] = {}
    for number, each in enumerate(given):
        for name in (each.name, *each.aliases):
            there = taken.setdefault(normal_model_name(name), name)
            if there is not name:
                faults.add(f"models[{number}]", f"{name!r} is the same name as {there!r}")
    return tuple(GpuModel(each.name, each.labels, each.aliases, each.resources) for each in given)


def _rules(
    given: Document, model: Callable[[str, str], str], faults: FaultList
) -> Iterator[tuple[str, NamespaceRules]]:
    """The rules of each namespace, with the catalogue's names of models."""
    tiers = [each.name for each in given.tiers]
    for namespace, each in given.namespaces.rules.items():
        path = f"namespaces.rules.{namespace}"
        default = _known(each.default_tier, f"{path}.defaultTier", tiers, "tier", faults)
        maximum = _known(each.maximum_tier, f"{path}.maximumTier", tiers, "tier", faults)
        if default and maximum and tiers.index(default) > tiers.index(maximum):
            faults.add(f"{path}.defaultTier", f"{default!r} is above maximumTier {maximum!r}")
        yield namespace, NamespaceRules(default, maximum, model(each.default_model, f"{path}.defaultModel"))


def _known(name: str, path: str, known: list[str], what: str, faults: FaultList) -> str:
    """A name that is defined elsewhere in the document, "" for none."""
    if not name or name in known:
        return name
    faults.add(path, f"no {what} {name!r}; known are {', '.join(known) or 'none'}")
    return ""


def _fair_order(given: keys.FairOrderKeys, model: Callable[[str, str], str], faults: FaultList) -> FairOrder:
    own = given.account_label or "absent"
    for key in given.weights:
        if "=" in key and key.rpartition("=")[0] != given.account_label:
            faults.add("fairOrder.weights", f"{key!r} names another label than accountLabel, which is {own}")
    costs: dict[str, float] = {}
    for name, cost in given.model_costs.items():
        if (found := model(name, "fairOrder.modelCosts")) in costs:
            faults.add("fairOrder.modelCosts", f"{name!r} is the same model as another entry")
        costs[found] = cost
    return FairOrder(
        seconds_of(given.half_life), seconds_of(given.maximum_wait), given.account_label, given.weights, costs
    )
