"""Every key of the configuration: its type, meaning, and the value that it sets.

The reader, the table of docs and the JSON Schema are made from this table; defaults stand where the values
are defined, in `settings.Settings` and `policy.values.Policy`.
"""

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from labeler.contract import keys as labels
from webhook.configuration.catalogue import MODELS, NAMESPACE_RULES, TIERS
from webhook.configuration.document import DocumentReader, shown
from webhook.configuration.settings import Avoid
from webhook.configuration.value_kinds import (
    CLASS_PATTERN,
    CLASS_WORDS,
    DAY,
    DNS_NAME,
    GATE_PREFIX,
    NAMESPACE_NAME,
    QUALIFIED_NAME,
    RESOURCE_PATTERN,
    RESOURCE_WORDS,
    TRUTH,
    Schema,
    ValueKind,
    duration,
    mapping,
    number,
    one_of,
    sorted_list,
    text,
    text_schema,
    texts,
)
from webhook.placement import Mode, PlacementError, Topology
from webhook.workloads import marks
from webhook.workloads.owners import NAME as OWNER_NAME

API_VERSION: Final = "topogate.io/v1beta1"
KIND: Final = "Configuration"
FEWEST_FAILURES: Final = 2
"""One failure is an accident, and one gang may not speak for all."""


class NativeGangs(StrEnum):
    """What becomes of pods of Kubernetes' own PodGroups."""

    ADOPT = "adopt"
    LEAVE = "leave"


class Bind(StrEnum):
    """How kube-scheduler binds a gang."""

    PINNED = "pinned"
    PODGROUP = "podgroup"


NOMINATED: Final = "nominated"
NOMINATED_NOTE: Final = "binding.mode: nominated is dropped: gangs are bound as with podgroup; set podgroup"
"""A former value of binding.mode, which is still read, and the warning."""


@dataclass(frozen=True)
class OptionKey:
    """One key. path: in the document, as "gangs.settle".

    settings, policy: the attributes of Settings and Policy that it sets, as "bad_nodes.share"; without either
    `configuration.build` says what it sets. default: as a document writes it, where no attribute says so.
    """

    path: str
    kind: ValueKind
    meaning: str
    settings: str = ""
    policy: str = ""
    default: Any = None


# --- kinds of single keys -----------------------------------------------------------------------------


def _read_gang_labels(value: Any, path: str, reader: DocumentReader) -> tuple[str, ...]:
    found = reader.texts(value, path, QUALIFIED_NAME, "label key")
    for each in found:
        if each in marks.ALL or each.startswith("topogate.io/"):
            reader.fault(path, f"{each} is already read, with another meaning")
    return found


_OF_OTHERS: Final[Schema] = {"anyOf": [{"enum": sorted(marks.ALL)}, {"pattern": "^topogate[.]io/"}]}
_GANG_LABELS: Final = ValueKind(
    "a list of label keys, the most important first",
    _read_gang_labels,
    {
        "type": "array",
        "items": {"allOf": [text_schema(QUALIFIED_NAME), {"not": _OF_OTHERS}]},
        "uniqueItems": True,
    },
    sorted_list,
)
_OWNERS: Final = texts(OWNER_NAME, "kind of owner, Kind.group, as Workflow.argoproj.io")
_SHARE: Final = number(0, 1)
_COUNT: Final = number(1, 100_000, whole=True)
_ATTRIBUTE: Final = re.compile(
    labels.DEVICE_ATTRIBUTE + r"[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?/[A-Za-z_][A-Za-z0-9_]*"
)


def _read_levels(value: Any, path: str, reader: DocumentReader) -> Topology:
    """Level names, coarsest first, each with the label key of each family, or with a list of such keys.

    A mapping, or a list of mappings of one level each: Helm sorts the keys of mappings.
    """
    levels: dict[str, Any] = {}
    for where, item in reader.items(value, path) if isinstance(value, list) else [(path, value)]:
        given = reader.mapping(item, where, None)
        if isinstance(value, list) and len(given) != 1:
            reader.fault(where, "must map one level's name to its label keys")
        if name := next((each for each in given if each in levels), None):
            reader.fault(where, f"level {shown(name)} occurs twice")
        levels |= given
    columns: list[list[str]] = []
    for name, given in levels.items():
        listed = given if isinstance(given, list) else [given]
        columns.append([_level_key(each, f"{path}.{name}", reader) for each in listed])
    if not columns:
        reader.fault(path, "must map each level's name to its label keys, coarsest first")
        return Topology()
    if len({len(column) for column in columns}) != 1:
        reader.fault(path, "each level needs one label key for each family")
        return Topology()
    try:
        return Topology(tuple(zip(*columns, strict=True)), tuple(levels))
    except PlacementError as error:
        reader.fault(path, str(error))
        return Topology()


def _level_key(value: Any, path: str, reader: DocumentReader) -> str:
    if not isinstance(value, str) or not value.startswith(labels.DEVICE_ATTRIBUTE):
        return reader.text(value, path, QUALIFIED_NAME, "label key")
    what = (
        f"attribute of devices; write {labels.DEVICE_ATTRIBUTE}DOMAIN/NAME, as device:gpu.nvidia.com/cliqueID"
    )
    return reader.text(value, path, _ATTRIBUTE, what)


def _levels_document(topology: Topology) -> dict[str, list[str]]:
    if topology == Topology():
        return {}  # too many families for a table; docs/operators/topology.md lists them
    return {
        name: [family[number] for family in topology.families]
        for number, name in enumerate(topology.level_names)
    }


_LEVEL_KEY: Final[Schema] = {"type": "string", "minLength": 1}
_LEVEL: Final[Schema] = {
    "type": "object",
    "minProperties": 1,
    "additionalProperties": {
        "anyOf": [_LEVEL_KEY, {"type": "array", "items": _LEVEL_KEY, "uniqueItems": True}]
    },
}
LEVEL_LIST: Final[Schema] = {"type": "array", "minItems": 1, "items": _LEVEL | {"maxProperties": 1}}
_LEVELS: Final = ValueKind(
    "a mapping of level names, coarsest first, to label keys, or a list of such mappings",
    _read_levels,
    {"anyOf": [_LEVEL, LEVEL_LIST]},
    _levels_document,
)
_CLASS: Final = text(
    re.compile(f"({DNS_NAME.pattern})?"),
    'ProvisioningRequest class such as best-effort-atomic-scale-up.autoscaling.x-k8s.io, or ""',
)
_PARAMETERS: Final = mapping(
    text(re.compile(r"[\s\S]{0,255}"), "text of at most 255 characters"), "parameters"
)
_WEIGHT: Final = number(0.001, 1000)
_ACCOUNT: Final = text(
    re.compile(r"[-a-z0-9*?\[\]!]{1,100}|.+=[-A-Za-z0-9_.*?\[\]!]{1,100}"),
    "namespace name, a pattern of such, or accountLabel=value",
)

# --- the table ----------------------------------------------------------------------------------------

KEYS: Final = (
    OptionKey(
        "gatePrefix",
        text(GATE_PREFIX, "prefix of a gate's name"),
        "Pods with a scheduling gate of this prefix are served; admission's own gate is it with `topogate` "
        "after it. After a change, render the admission policies again.",
        settings="gate_prefix",
        policy="gate_prefix",
    ),
    OptionKey(
        "schedulerNames",
        texts(DNS_NAME, "scheduler's name", some=True),
        "The kube-schedulers whose pods (spec.schedulerName) are gated and released; pods of others are left "
        "alone.",
        settings="schedulers",
        policy="scheduler_names",
    ),
    OptionKey(
        "gpus.resources",
        texts(RESOURCE_PATTERN, RESOURCE_WORDS, some=True),
        "A pod that asks for one of these in any container is a GPU pod; metrics count them as GPUs.",
        settings="gpu_resources",
        policy="gpu_resources",
    ),
    OptionKey(
        "gpus.deviceClasses",
        texts(CLASS_PATTERN, CLASS_WORDS),
        "Pods with ResourceClaims on these DeviceClasses are GPU pods too; `*` stands for every claim.",
        default=[],
    ),
    OptionKey(
        "gpus.modelLabel",
        text(QUALIFIED_NAME, "label key"),
        "The node label that names the model of its GPUs in the metrics, before those that are usual.",
        settings="model_label",
    ),
    OptionKey("models", MODELS, "What users may write in `topogate.io/gpu-model`.", policy="gpu_models"),
    OptionKey(
        "tiers", TIERS, "What users may write in `topogate.io/priority`, lowest first.", policy="tiers"
    ),
    OptionKey(
        "namespaces.excluded",
        texts(NAMESPACE_NAME, "namespace name"),
        "Namespaces that are left alone, beside kube-system, kube-public, kube-node-lease and those of "
        "topogate itself.",
        default=[],
    ),
    OptionKey(
        "namespaces.rules",
        NAMESPACE_RULES,
        'Defaults and maxima; `"*"` is for namespaces without an entry, and entries are not merged.',
        policy="namespaces",
    ),
    OptionKey(
        "topology.levels",
        _LEVELS,
        "The levels of the topology, and the node labels that name their domains; a list has a key for each "
        "family. `device:DOMAIN/NAME` is an attribute of the node's devices.",
        settings="topology",
    ),
    OptionKey(
        "gangs.labels",
        _GANG_LABELS,
        "Keys of pod labels. The first that a pod has makes one gang of those with the same value, if "
        "neither their annotations nor a known controller define a gang (app.kubernetes.io/instance, name).",
        settings="gang_labels",
    ),
    OptionKey(
        "gangs.owners",
        _OWNERS,
        "Kinds of owners whose pods wait for one another.",
        settings="gang_owners",
    ),
    OptionKey(
        "gangs.looseOwners",
        _OWNERS,
        "Kinds of owners whose pods run one by one. Of owners that are unknown and not listed here, the pods "
        "are one gang.",
        settings="loose_owners",
    ),
    OptionKey(
        "gangs.native",
        one_of(NativeGangs),
        "Whether pods of Kubernetes' own PodGroups are placed by topogate, or left to kube-scheduler.",
        default=NativeGangs.ADOPT,
    ),
    OptionKey(
        "gangs.settle",
        duration(),
        "A gang of unknown size is complete after this long without a new pod.",
        settings="settle_seconds",
    ),
    OptionKey(
        "gangs.patience",
        duration(),
        "A gang whose size is known, but whose pods do not all come, is placed as it is after this long "
        "without a new pod. Otherwise controllers that create pods only after others run would wait for "
        "ever. The Job controller delays pods that replace failed ones. A gang of which no pod is released "
        "waits for these as well, at most 610 seconds.",
        settings="patience_seconds",
    ),
    OptionKey(
        "gangs.startWithFewer",
        TRUTH,
        "Whether gangs.patience also applies to a gang whose controller reports that it cannot create the "
        "others, as where a quota is used up. Otherwise such a gang waits, with the controller's reason.",
        settings="start_with_fewer",
    ),
    OptionKey(
        "placement.mode",
        one_of(Mode),
        "How gangs are laid out on their nodes.",
        settings="options.mode",
    ),
    OptionKey(
        "placement.weights",
        mapping(number(0, 1000, whole=True), "resource names"),
        "How much each resource that stays free counts, between nodes that are otherwise equally good.",
        settings="options.weights",
    ),
    OptionKey(
        "placement.mostAllocated",
        TRUTH,
        "Prefer the fullest node that will do, not the emptiest.",
        settings="options.most_allocated",
    ),
    OptionKey(
        "binding.mode",
        one_of(Bind),
        "Whether each pod is bound by itself, or each gang as one by a PodGroup of kube-scheduler's own; "
        "see [bind gangs as one](bind.md).",
        default=Bind.PINNED,
    ),
    OptionKey(
        "binding.timeout",
        duration(),
        "A released pod that kube-scheduler has tried to bind, in vain for this long, counts as failed.",
        settings="bind_seconds",
    ),
    OptionKey(
        "preemption.enabled",
        TRUTH,
        "Whether gangs and pods of lower priority are evicted for a gang that otherwise finds no nodes.",
        settings="preempt",
    ),
    OptionKey(
        "reservations.after",
        duration(),
        "A gang that does not fit has nodes reserved for it once it has waited this long.",
        settings="reserve_seconds",
    ),
    OptionKey(
        "reservations.duration",
        duration(),
        "How long a reservation lasts; afterwards its nodes cannot be reserved for as long.",
        settings="reserve_hold_seconds",
    ),
    OptionKey(
        "reservations.share",
        _SHARE,
        "Of the nodes, the share that may be reserved for all gangs together.",
        settings="reserve_share",
    ),
    OptionKey(
        "repair.enabled",
        TRUTH,
        "Whether pods that a controller recreates may be deleted, to place them again.",
        settings="repair",
    ),
    OptionKey(
        "repair.owners",
        _OWNERS,
        "The kinds of controllers that do recreate a deleted pod; a workflow engine, for one, treats the "
        "deletion as a failure of the step.",
        settings="repair_owners",
    ),
    OptionKey(
        "repair.abandonAfter",
        duration(),
        "A released pod that kube-scheduler cannot bind and that no controller recreates is deleted after "
        "this long, if none of its gang runs. Otherwise it would keep its place from others.",
        settings="abandon_seconds",
    ),
    OptionKey(
        "nodeHealth.avoid",
        one_of(Avoid),
        "How failing nodes are avoided: off: not at all; soft: unless nothing else fits; hard: even then.",
        settings="bad_nodes.avoid",
    ),
    OptionKey(
        "nodeHealth.failures",
        number(FEWEST_FAILURES, 100, whole=True),
        "So many gangs must have failed on the node.",
        settings="bad_nodes.failures",
    ),
    OptionKey(
        "nodeHealth.avoidFor",
        duration(1, 7 * DAY),
        "How long a failing node is avoided, twice as long after each further failure.",
        settings="bad_nodes.avoid_seconds",
    ),
    OptionKey(
        "nodeHealth.share",
        _SHARE,
        "Of the nodes of one GPU model, the share that is avoided at a time; one may always be of two.",
        settings="bad_nodes.share",
    ),
    OptionKey(
        "spareNodes.perBlock",
        number(0, 1000, whole=True),
        "Nodes of each GPU model that new gangs leave free in each block, for repairs.",
        settings="spare_nodes.per_block",
    ),
    OptionKey(
        "spareNodes.lastResort",
        TRUTH,
        "Whether new gangs may take those as well rather than wait.",
        settings="spare_nodes.if_nothing_else_fits",
    ),
    OptionKey(
        "scaleUp.provisioningClass",
        _CLASS,
        "spec.provisioningClassName of every request for nodes; the autoscaler's documentation says which "
        "there are. Without one, no nodes are asked for.",
        settings="scale_up.provisioning_class",
    ),
    OptionKey(
        "scaleUp.parameters",
        _PARAMETERS,
        "spec.parameters of every request, as the class reads them.",
        settings="scale_up.parameters",
    ),
    OptionKey(
        "scaleUp.requests", _COUNT, "Requests that a namespace may have at a time.",
        settings="scale_up.requests",
    ),
    OptionKey("scaleUp.pods", _COUNT, "Pods in all requests of a namespace.", settings="scale_up.pods"),
    OptionKey(
        "fairOrder.halfLife", duration(1), "Use counts half after this.",
        policy="fair_order.half_life_seconds",
    ),
    OptionKey(
        "fairOrder.maximumWait",
        duration(1),
        "An account's oldest gang that found no capacity for so long comes first, once in that time.",
        policy="fair_order.maximum_wait_seconds",
    ),
    OptionKey(
        "fairOrder.accountLabel",
        text(QUALIFIED_NAME, "label key"),
        "The label of namespaces of which those with the same value are one account; without it each "
        "namespace is one.",
        policy="fair_order.account_label",
    ),
    OptionKey(
        "fairOrder.weights",
        mapping(_WEIGHT, "accounts or patterns", _ACCOUNT),
        "Shares of accounts; 1 for others.",
        policy="fair_order.weights",
    ),
    OptionKey(
        "fairOrder.modelCosts",
        mapping(_WEIGHT, "models"),
        "The weight of a GPU second; 1 for others.",
        policy="fair_order.model_costs",
    ),
    OptionKey(
        "admission.keepManagedFields",
        TRUTH,
        "Whether pods keep their managedFields. Otherwise admission and release empty those of a pod that a "
        "controller created and that no client applied.",
        settings="keep_managed_fields",
        policy="keep_managed_fields",
    ),
)  # fmt: skip
