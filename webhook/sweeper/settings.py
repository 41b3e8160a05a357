"""The sweeper's settings: by file and by flags; flags take precedence."""

import argparse
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from labeler.contract import keys
from webhook.placement import Mode, Options, PlacementError, Topology
from webhook.policy.document import DocumentReader, PolicyError, read_yaml
from webhook.policy.fields import (
    CLASS_PATTERN,
    CLASS_WORDS,
    DNS_NAME,
    GATE_PREFIX,
    NAMESPACE_NAME,
    QUALIFIED_NAME,
    RESOURCE_PATTERN,
    RESOURCE_WORDS,
    TRUTH,
    Setting,
    ValueKind,
    mapping,
    number,
    one_of,
    read,
    seconds,
    section,
    setting,
    settings_of,
    text,
    texts,
)
from webhook.policy.reference import DEFAULT_GPU_RESOURCES
from webhook.policy.values import Policy
from webhook.scheduling.gpus import DEFAULT_GPU_CLASSES, MODEL_LABELS, Counting
from webhook.sweeper.extension_settings import BadNodes, ScaleUp, SpareNodes
from webhook.workloads import marks
from webhook.workloads.owners import NAME as OWNER_NAME
from webhook.workloads.owners import OwnerRules


def add_mode(parser: argparse.ArgumentParser) -> None:
    """Add the flag --mode."""
    parser.add_argument(
        "--mode", choices=[*map(str, Mode)], metavar="MODE",
        help=f"how gangs are laid out: {', '.join(Mode)} ({Mode.BEST_FIT})",
    )  # fmt: skip


class SettingsError(PolicyError):
    """The file or a flag is wrong; the message has a line for each fault, with the setting's path."""


REPAIR_OWNERS: Final = frozenset(
    {
        "Job.batch",
        "StatefulSet.apps",
        "ReplicaSet.apps",
        "ReplicationController",
        "CloneSet.apps.kruise.io",
        "LeaderWorkerSet.leaderworkerset.x-k8s.io",
        "PodClique.grove.io",
        "NodeSet.slinky.slurm.net",
        "Model.kubeai.org",
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


def _read_gang_labels(value: Any, path: str, reader: DocumentReader) -> tuple[str, ...]:
    found = reader.texts(value, path, QUALIFIED_NAME, "label key")
    for each in found:
        if each in marks.ALL or each.startswith("topogate.io/"):
            reader.fault(path, f"{each} is already read, with another meaning")
    return found


_SHARE: Final = number(0, 1)
_KINDS_OF_OWNERS: Final = texts(OWNER_NAME, "kind of owner, Kind.group, as Workflow.argoproj.io")
_GANG_LABELS: Final = ValueKind("a list of label keys, the most important first", _read_gang_labels)


@dataclass(frozen=True)
class Settings:
    """All choices, with defaults that need no thought.

    topology: in a file `levels`. options: in a file `mode`, `weights`, `most_allocated` and `bound`.
    """

    gate_prefix: str = setting(
        keys.GATE_PREFIX,
        text(GATE_PREFIX, "prefix of a gate's name"),
        "Pods with a scheduling gate of this prefix are served.",
    )
    settle_seconds: float = setting(
        5.0,
        seconds(),
        "A gang of unknown size is complete after this long without a new pod.",
    )
    patience_seconds: float = setting(
        60.0,
        seconds(),
        "A gang whose size is known, but whose pods do not all come, is placed as it is after this long "
        "without a new pod. Otherwise controllers that create pods only after others run would wait for "
        "ever. The Job controller delays pods that replace failed ones. A gang of which no pod is released "
        "waits for these as well, at most 610 seconds.",
    )
    interval_seconds: float = setting(
        30.0, seconds(), "A pass happens at least this often, whatever changes."
    )
    bind_seconds: float = setting(
        120.0,
        seconds(),
        "A released pod that kube-scheduler has tried to bind, in vain for this long, counts as failed.",
    )
    not_ready_seconds: float = setting(
        60.0,
        seconds(),
        "A node may be not ready for this long before pods that never ran there are replaced.",
    )
    abandon_seconds: float = setting(
        3600.0,
        seconds(),
        "A released pod that kube-scheduler cannot bind and that no controller recreates is deleted after "
        "this long, if none of its gang runs. Otherwise it would keep its place from others.",
    )
    rollback_seconds: float = setting(
        300.0,
        seconds(),
        "A gang that is partly released and whose other pods find no nodes is rolled back after this.",
    )
    reserve_seconds: float = setting(
        300.0,
        seconds(),
        "A gang that does not fit has nodes reserved for it once it has waited this long.",
    )
    reserve_hold_seconds: float = setting(
        1800.0,
        seconds(),
        "How long a reservation lasts; afterwards its nodes cannot be reserved for as long.",
    )
    reserve_share: float = setting(
        0.5, _SHARE, "Of the nodes, the share that may be reserved for all gangs together."
    )
    pass_seconds: float = setting(
        10.0,
        seconds(),
        "After this long no further gang is placed in a pass; the others come first in the next.",
    )
    go_on_with_fewer: bool = setting(
        False,
        TRUTH,
        "Whether patience_seconds also applies to a gang whose controller reports that it cannot create the "
        "others, as where a quota is used up. Otherwise such a gang waits, with the controller's reason.",
    )
    repair: bool = setting(
        True,
        TRUTH,
        "Whether pods that a controller recreates may be deleted, to place them again.",
    )
    repair_owners: frozenset[str] = setting(
        REPAIR_OWNERS,
        _KINDS_OF_OWNERS,
        "The kinds of controllers that do recreate a deleted pod; a workflow engine, for one, treats the "
        "deletion as a failure of the step.",
    )
    schedulers: frozenset[str] = setting(
        frozenset({"default-scheduler"}),
        texts(DNS_NAME, "scheduler's name", some=True),
        "Only pods of these schedulers (spec.schedulerName) are released; another may never bind them.",
    )
    preempt: bool = setting(
        True,
        TRUTH,
        "Whether gangs and pods of lower priority are evicted for a gang that otherwise finds no nodes.",
    )
    evict_broken: bool = setting(
        True,
        TRUTH,
        "Whether what is left of a gang is evicted that preemption has reduced below its minimum, and that "
        "cannot be completed where it is.",
    )
    broken_seconds: float = setting(
        30.0,
        seconds(),
        "It is evicted after this long, or twenty times as long where an autoscaler is asked for nodes.",
    )
    keep_managed_fields: bool = setting(
        False,
        TRUTH,
        "Whether pods keep their managedFields. Otherwise a release empties those of a pod that a "
        "controller created and that no client applied: the API server then no longer tracks who writes "
        "which of its fields.",
    )
    ignored_namespaces: frozenset[str] = setting(
        frozenset(),
        texts(NAMESPACE_NAME, "namespace name"),
        "Namespaces whose pods are left alone.",
    )
    gpu_resources: frozenset[str] = setting(
        frozenset(DEFAULT_GPU_RESOURCES),
        texts(RESOURCE_PATTERN, RESOURCE_WORDS, some=True),
        "What the metrics count as GPUs.",
    )
    gpu_device_classes: frozenset[str] = setting(
        frozenset(DEFAULT_GPU_CLASSES),
        texts(CLASS_PATTERN, CLASS_WORDS),
        "Of devices that pods have by claims, the DeviceClasses that the metrics count as GPUs.",
    )
    model_label: str = setting(
        MODEL_LABELS[0],
        text(QUALIFIED_NAME, "label key"),
        "The node label that names the model of its GPUs in the metrics, before those that are usual.",
    )
    gang_labels: tuple[str, ...] = setting(
        (),
        _GANG_LABELS,
        "Keys of pod labels. The first that a pod has makes one gang of those with the same value, if "
        "neither their annotations nor a known controller define a gang (app.kubernetes.io/instance, name).",
    )
    gang_owners: frozenset[str] = setting(
        frozenset(), _KINDS_OF_OWNERS, "Kinds of owners whose pods wait for one another."
    )
    loose_owners: frozenset[str] = setting(
        frozenset(),
        _KINDS_OF_OWNERS,
        "Kinds of owners whose pods run one by one. Of owners that are unknown and not listed here, the "
        "pods are one gang.",
    )
    bad_nodes: BadNodes = section(BadNodes, "Nodes on which pods fail.")
    spare_nodes: SpareNodes = section(SpareNodes, "Nodes that are left free for repairs.")
    topology: Topology = field(default_factory=Topology)
    options: Options = field(default_factory=Options)
    scale_up: ScaleUp = section(ScaleUp, "Asking an autoscaler for nodes.")

    @cached_property
    def owner_rules(self) -> OwnerRules:
        """Which owners make gangs."""
        return OwnerRules(self.gang_labels, self.gang_owners, self.loose_owners)

    @property
    def counting(self) -> Counting:
        """The resources that metrics count as GPUs, and the label of their model."""
        return Counting(
            tuple(sorted(self.gpu_resources)), tuple(dict.fromkeys((self.model_label, *MODEL_LABELS)))
        )


def _read_levels(value: Any, path: str, reader: DocumentReader) -> Topology:
    """A mapping of level names, coarsest first, to the label key of each family, or a list of such keys.

    In the place of a key, device:DOMAIN/NAME is an attribute of the node's devices.
    """
    columns: list[list[str]] = []
    for name, given in reader.mapping(value, path, None).items():
        listed = given if isinstance(given, list) else [given]
        columns.append([_level_key(each, f"{path}.{name}", reader) for each in listed])
    if not columns:
        reader.fault(path, "must map each level's name to its label keys, coarsest first")
        return Topology()
    if len({len(column) for column in columns}) != 1:
        reader.fault(path, "each level needs one label key for each family")
        return Topology()
    try:
        return Topology(tuple(zip(*columns, strict=True)), tuple(value))
    except PlacementError as error:
        reader.fault(path, str(error))
        return Topology()


def _level_key(value: Any, path: str, reader: DocumentReader) -> str:
    if not isinstance(value, str) or not value.startswith(keys.DEVICE_ATTRIBUTE):
        return reader.text(value, path, QUALIFIED_NAME, "label key")
    return reader.text(
        value,
        path,
        _ATTRIBUTE,
        f"attribute of devices; write {keys.DEVICE_ATTRIBUTE}DOMAIN/NAME, as device:gpu.nvidia.com/cliqueID",
    )


_ATTRIBUTE: Final = re.compile(
    keys.DEVICE_ATTRIBUTE + r"[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?/[A-Za-z_][A-Za-z0-9_]*"
)
_DEFAULTS: Final = Options()
_OPTIONS: Final = (
    Setting(
        "mode",
        _DEFAULTS.mode,
        one_of(Mode),
        "How gangs are laid out on their nodes.",
    ),
    Setting(
        "weights",
        _DEFAULTS.weights,
        mapping(number(0, 1000, whole=True), "resource names"),
        "How much each resource that stays free counts, between nodes that are otherwise equally good.",
    ),
    Setting(
        "most_allocated",
        _DEFAULTS.most_allocated,
        TRUTH,
        "Prefer the fullest node that will do, not the emptiest.",
    ),
    Setting(
        "bound",
        _DEFAULTS.bound,
        number(10_000, 60_000_000, whole=True, of=" of steps"),
        "Work that one question to the placement core may take, in steps of about a microsecond.",
    ),
)
_LEVELS: Final = Setting(
    "levels",
    None,
    ValueKind("a mapping of level names, coarsest first, to label keys", _read_levels),
    "The levels of the topology and the node labels that name their domains; a list has a key for each "
    "family.",
)
FILE: Final = (*settings_of(Settings), _LEVELS, *_OPTIONS)
"""All settings that a file may have."""

FLAGS: Final[Mapping[str, str]] = {
    "gate": "gate_prefix",
    "settle": "settle_seconds",
    "patience": "patience_seconds",
    "interval": "interval_seconds",
    "ignored_namespace": "ignored_namespaces",
    "mode": "mode",
    "scale_up": "scale_up.provisioning_class",
    "scale_up_requests": "scale_up.requests",
    "scale_up_pods": "scale_up.pods",
}
"""The sweeper's flags, as argparse names them, and the setting of each."""


def load(path: Path) -> Settings:
    """The settings of a file. Raises SettingsError."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise SettingsError(str(path), [f"cannot be read: {error.strerror}"]) from None
    return parse(content, str(path))


def parse(content: str | bytes, source: str) -> Settings:
    """The settings of a file's content. Raises SettingsError, each line of which begins with the source."""
    reader = DocumentReader()
    try:
        document = read_yaml(content, source)
    except PolicyError as error:
        raise SettingsError(source, error.faults) from None
    found = read(FILE, {} if document is None else document, "", reader)
    for each in sorted(found.get("gang_owners", frozenset()) & found.get("loose_owners", frozenset())):
        reader.fault("loose_owners", f"{each} is in gang_owners too")
    if reader.faults:
        raise SettingsError(source, reader.faults)
    return _with(Settings(), found)


def with_flags(settings: Settings, flags: Mapping[str, Any]) -> Settings:
    """These settings with flags over them. flags: by argparse's name; None, or an empty list, is not given.

    Raises SettingsError, with a line for each flag that is wrong.
    """
    reader = DocumentReader()
    found: dict[str, Any] = {}
    scale_up: dict[str, Any] = {}
    for flag, value in flags.items():
        if value is None or value == []:
            continue
        section, _, name = FLAGS[flag].rpartition(".")
        taken = _KINDS[FLAGS[flag]].read(value, f"--{flag.replace('_', '-')}", reader)
        (scale_up if section else found)[name] = taken
    if reader.faults:
        raise SettingsError("topogate-sweeper", reader.faults)
    return _with(settings, found | {"scale_up": replace(settings.scale_up, **scale_up)})


_KINDS: Final = {each.name: each.kind for each in FILE if isinstance(each.kind, ValueKind)} | {
    f"scale_up.{each.name}": each.kind for each in settings_of(ScaleUp) if isinstance(each.kind, ValueKind)
}


def _with(settings: Settings, found: dict[str, Any]) -> Settings:
    """These settings with others, by their names in a file, over them."""
    options = {each.name: found.pop(each.name) for each in _OPTIONS if each.name in found}
    if "levels" in found:
        found["topology"] = found.pop("levels")
    return replace(settings, options=replace(settings.options, **options), **found)


def levels_fault(settings: Settings, policy: Policy) -> str:
    """In what the levels of the settings differ from those that admission accepts, "" if in nothing."""
    ours, accepted = settings.topology.level_names, policy.topology_levels
    if ours == accepted:
        return ""
    return (
        f"levels: the names ({', '.join(ours)}) differ from topologyLevels of admission's policy "
        f"({', '.join(accepted)}): write topologyLevels: [{', '.join(ours)}] into the policy, or its "
        "webhook warns of requests that are right, and GPUTasks with them are refused"
    )
