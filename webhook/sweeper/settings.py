"""What an operator can set of the sweeper: by file, by flags, flags last."""

import logging
import re
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import yaml

from labeler.contract import keys
from webhook.placement import Mode, Options, PlacementError, Topology
from webhook.policy.values import DEFAULT_GPU_RESOURCES
from webhook.scheduling.gpus import DEFAULT_GPU_CLASSES, MODEL_LABELS, Counting
from webhook.sweeper.modes import mode_named
from webhook.sweeper.node_rules import BadNodes, SpareNodes, read_bad_nodes, read_spares
from webhook.sweeper.scaling import LONGEST_SECONDS, ScaleUp, read_scale_up
from webhook.workloads import marks
from webhook.workloads.owners import OwnerRules, fault_in

logger = logging.getLogger("webhook.sweeper")


class SettingsError(ValueError):
    """The configuration is wrong; the message names file, field and what would do."""


REPAIR_OWNERS: Final = frozenset(
    {
        "Job.batch",
        "StatefulSet.apps",
        "ReplicaSet.apps",
        "ReplicationController",
        "CloneSet.apps.kruise.io",
        "LeaderWorkerSet.leaderworkerset.x-k8s.io",
        "PyTorchJob.kubeflow.org",
        "TFJob.kubeflow.org",
        "MPIJob.kubeflow.org",
        "XGBoostJob.kubeflow.org",
        "PaddleJob.kubeflow.org",
        "JAXJob.kubeflow.org",
        "RayCluster.ray.io",
        "Job.batch.volcano.sh",
    }
)


@dataclass(frozen=True)
class Settings:
    """All choices, with defaults that need no thought. Times are in seconds.

    settle_seconds: a gang whose size nobody tells is complete after this long without a new pod.
    patience_seconds: a gang whose size is told, but whose pods do not all come, is placed as it is after
    this long without a new pod (controllers that make pods only after others run would wait for ever).
    go_on_with_fewer: whether that holds also for a gang whose controller says that it cannot make the others,
    as where a quota is used up. Else such a gang waits, and tells the controller's reason.
    interval_seconds: a pass happens at least this often, whatever is heard.
    bind_seconds: a released pod that kube-scheduler has not bound by then counts as failed.
    not_ready_seconds: a node may be not ready for this long before pods that never ran there are replaced.
    abandon_seconds: a released pod that kube-scheduler cannot bind and that nobody makes again is deleted
    after this long all the same, if none of its gang runs: it keeps its place from others.
    rollback_seconds: a gang that is partly released and whose rest finds no place is rolled back after this.
    reserve_seconds: a gang that does not fit holds nodes for itself once it has waited this long.
    reserve_hold_seconds: for so long at a time; then those nodes are held for nobody as long.
    reserve_share: of the nodes, from 0 to 1, that all gangs together may hold.
    pass_seconds: after this long no further gang is asked about in a pass; the others have their turn next.
    repair: whether pods that a controller makes again may be deleted, to place them anew.
    repair_owners: the kinds of controllers that do make a deleted pod again, as "Kind" or "Kind.group"; a
    workflow engine, for one, takes the deletion for a failure of the step.
    schedulers: pods are released to these alone (spec.schedulerName); another may never bind them.
    preempt: whether gangs and pods of lower priority go for a gang that else finds no place.
    evict_broken: whether the rest of a gang is evicted that others have preempted below its minimum, and that
    cannot be whole again where it is; broken_seconds: once it has been so for that long, or
    twenty times as long where an autoscaler is asked for nodes.
    keep_managed_fields: whether pods keep their managedFields. Else a release empties those of a pod that a
    controller made and nobody has applied to: the API server tracks no more who writes which of its fields.
    gpu_resources: what the metrics count as GPUs, names or shell patterns; gpu_device_classes: of devices
    that are had by claims, the DeviceClasses. model_label: the node label that
    names the model of its GPUs in the metrics, before those that are usual.
    gang_labels: keys of pod labels, the first that a pod has makes one gang of those with the same value, if
    neither their annotations nor a controller that is known says so (app.kubernetes.io/instance, name).
    gang_owners, loose_owners: kinds of owners ("Kind.group") whose pods wait for one another, and whose pods
    do not; of others than those that are known the pods are one gang.
    bad_nodes, spare_nodes: mappings of their own; see node_rules.
    topology: in a file `levels`, which map each level's name to its label keys, coarsest first. options: in
    a file `mode`, `weights`, `most_allocated` and `bound`; see placement.Options. scale_up: see ScaleUp.
    """

    gate_prefix: str = keys.GATE_PREFIX
    settle_seconds: float = 5.0
    patience_seconds: float = 60.0
    interval_seconds: float = 30.0
    bind_seconds: float = 120.0
    not_ready_seconds: float = 60.0
    abandon_seconds: float = 3600.0
    rollback_seconds: float = 300.0
    reserve_seconds: float = 300.0
    reserve_hold_seconds: float = 1800.0
    reserve_share: float = 0.5
    pass_seconds: float = 10.0
    go_on_with_fewer: bool = False
    repair: bool = True
    repair_owners: frozenset[str] = REPAIR_OWNERS
    schedulers: frozenset[str] = frozenset({"default-scheduler"})
    preempt: bool = True
    evict_broken: bool = True
    broken_seconds: float = 30.0
    keep_managed_fields: bool = False
    ignored_namespaces: frozenset[str] = frozenset()
    gpu_resources: frozenset[str] = frozenset(DEFAULT_GPU_RESOURCES)
    gpu_device_classes: frozenset[str] = frozenset(DEFAULT_GPU_CLASSES)
    model_label: str = MODEL_LABELS[0]
    gang_labels: tuple[str, ...] = ()
    gang_owners: frozenset[str] = frozenset()
    loose_owners: frozenset[str] = frozenset()
    bad_nodes: BadNodes = field(default_factory=BadNodes)
    spare_nodes: SpareNodes = field(default_factory=SpareNodes)
    topology: Topology = field(default_factory=Topology)
    options: Options = field(default_factory=Options)
    scale_up: ScaleUp = field(default_factory=ScaleUp)

    @cached_property
    def owner_rules(self) -> OwnerRules:
        """Which owners make gangs."""
        return OwnerRules(self.gang_labels, self.gang_owners, self.loose_owners)

    @property
    def counting(self) -> Counting:
        """What the metrics count as GPUs, and what names their model."""
        return Counting(
            tuple(sorted(self.gpu_resources)), tuple(dict.fromkeys((self.model_label, *MODEL_LABELS)))
        )


_LABEL_KEY: Final = re.compile(
    r"(?:(?=[^/]{1,253}/)[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?/)?[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"
)

_ATTRIBUTE: Final = re.compile(
    keys.DEVICE_ATTRIBUTE + r"[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?/[A-Za-z_][A-Za-z0-9_]*"
)

_NESTED = ("topology", "options", "scale_up")


def load(path: Path) -> dict[str, Any]:
    """The choices of a file, by the names of Settings' fields. Raises SettingsError."""
    document = _document(path)
    kinds = {each.name: each.type for each in fields(Settings) if each.name not in _NESTED}
    found: dict[str, Any] = {}
    options: dict[str, Any] = {}
    for name, value in document.items():
        if name == "levels":
            found["topology"] = _topology(path, value)
        elif name == "gang_labels":
            found[name] = _gang_labels(path, value)
        elif name in _MAPPINGS:
            found[name] = _mapping(path, name, value)
        elif name in _OPTIONS:
            options[name] = _OPTIONS[name](path, value)
        elif name in kinds:
            found[name] = _value(path, name, value)
        else:
            known = ", ".join(sorted([*kinds, *_OPTIONS, "levels", "scale_up"]))
            raise SettingsError(f"{path}: {name} is no setting; there are {known}")
    if fault := fault_in(*(found.get(name, frozenset()) for name in ("gang_owners", "loose_owners"))):
        raise SettingsError(f"{path}: {fault}")
    return found | ({"options": Options(**options)} if options else {})


def _document(path: Path) -> dict[str, Any]:
    """The file's mapping, empty for an empty file."""
    try:
        document = yaml.safe_load(path.read_text())
    except (OSError, yaml.YAMLError) as error:
        raise SettingsError(f"{path}: cannot be read: {error}") from error
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise SettingsError(f"{path}: must be a mapping of settings")
    return document


def _value(path: Path, name: str, value: Any) -> Any:
    default = getattr(Settings(), name)
    if isinstance(default, bool) and isinstance(value, bool):
        return value
    if (
        isinstance(default, float)
        and isinstance(value, int | float)
        and not isinstance(value, bool)
        and 0 <= value <= LONGEST_SECONDS
    ):
        return float(value)
    if isinstance(default, str) and isinstance(value, str) and value:
        return value
    if (
        isinstance(default, frozenset)
        and isinstance(value, list)
        and all(isinstance(each, str) for each in value)
    ):
        return frozenset(value)
    wanted = {
        bool: "true or false",
        float: f"a number of seconds up to {LONGEST_SECONDS:g}",
        str: "a text",
        frozenset: "a list of names",
    }
    raise SettingsError(f"{path}: {name}: {value!r} is not {wanted[type(default)]}")


def _gang_labels(path: Path, value: Any) -> tuple[str, ...]:
    """gang_labels: a list of label keys, the most important first."""
    if not isinstance(value, list):
        raise SettingsError(f"{path}: gang_labels: {value!r} is not a list of label keys")
    for each in value:
        if not isinstance(each, str) or not _LABEL_KEY.fullmatch(each):
            raise SettingsError(f"{path}: gang_labels: {each!r} is no key of a label")
        if each in marks.ALL or each.startswith("topogate.io/"):
            raise SettingsError(f"{path}: gang_labels: {each} is read already, with a meaning of its own")
    return tuple(dict.fromkeys(value))


_MAPPINGS: Final[dict[str, Callable[[Any], Any]]] = {
    "bad_nodes": read_bad_nodes,
    "spare_nodes": read_spares,
    "scale_up": read_scale_up,
}
"""Settings that are mappings of settings of their own, and how each is read."""


def _mapping(path: Path, name: str, value: Any) -> Any:
    try:
        return _MAPPINGS[name](value)
    except ValueError as error:
        raise SettingsError(f"{path}: {name}: {error}") from error


def _mode(path: Path, value: Any) -> Mode:
    try:
        return mode_named(value, lambda what: logger.warning("mode_removed file=%s reason=%r", path, what))
    except ValueError as error:
        raise SettingsError(f"{path}: {error}") from error


def _weights(path: Path, value: Any) -> dict[str, int]:
    """weights: how much each resource that stays free counts, between nodes that are equally good else."""
    if (
        not isinstance(value, dict)
        or not all(isinstance(name, str) and name for name in value)
        or not all(type(weight) is int and 0 <= weight <= 1000 for weight in value.values())
    ):
        raise SettingsError(f"{path}: weights: must map resource names to whole numbers from 0 to 1000")
    return dict(value)


def _most_allocated(path: Path, value: Any) -> bool:
    """most_allocated: prefer the fullest node that will do, not the emptiest."""
    if not isinstance(value, bool):
        raise SettingsError(f"{path}: most_allocated: {value!r} is not true or false")
    return value


def _bound(path: Path, value: Any) -> int:
    """bound: steps, about a microsecond each, that one question to the placement core may take."""
    if type(value) is not int or not 10_000 <= value <= 60_000_000:
        raise SettingsError(f"{path}: bound: {value!r} is not a whole number of steps from 10000 to 60000000")
    return value


_OPTIONS: Final[dict[str, Callable[[Path, Any], Any]]] = {
    "mode": _mode,
    "weights": _weights,
    "most_allocated": _most_allocated,
    "bound": _bound,
}
"""What the placement core can be told, and how each is read."""


def _topology(path: Path, value: Any) -> Topology:
    """levels: a mapping of level names, coarsest first, to the label key of each family.

    In the place of a key, device:DOMAIN/NAME stands for an attribute of the node's devices.
    """
    if not isinstance(value, dict) or not value:
        raise SettingsError(f"{path}: levels: must map each level's name to its label keys, coarsest first")
    for each in (
        text for keys_ in value.values() for text in (keys_ if isinstance(keys_, list) else [keys_])
    ):
        if str(each).startswith(keys.DEVICE_ATTRIBUTE) and not _ATTRIBUTE.fullmatch(str(each)):
            raise SettingsError(
                f"{path}: levels: {each!r} names no attribute of devices; write {keys.DEVICE_ATTRIBUTE}"
                "DOMAIN/NAME, as device:gpu.nvidia.com/cliqueID"
            )
    columns = [keys_ if isinstance(keys_, list) else [keys_] for keys_ in value.values()]
    if len({len(column) for column in columns}) != 1:
        raise SettingsError(f"{path}: levels: each level needs one label key for each family")
    try:
        return Topology(tuple(zip(*columns, strict=True)), tuple(map(str, value)))
    except PlacementError as error:
        raise SettingsError(f"{path}: levels: {error}") from error
