"""Every key of the configuration, as structs: its type and its default.

The lines `key: meaning` of the docstrings are the meanings in the table of docs and in the JSON Schema.
"""

from typing import Annotated, Final, Literal

from msgspec import UNSET, Meta, Struct, UnsetType, field

from webhook.configuration.settings import Settings
from webhook.configuration.value_kinds import (
    ONE,
    SOME,
    UNIQUE,
    Account,
    AnyName,
    ClassName,
    ClassPattern,
    Count,
    Duration,
    GangLabel,
    GatePrefix,
    LabelKey,
    LabelValue,
    LevelKey,
    LevelName,
    ModelName,
    NamespaceName,
    Owner,
    PositiveDuration,
    ProvisioningClass,
    ResourcePattern,
    RulesName,
    SchedulerName,
    Share,
    ShortText,
    TierName,
    UpToThousand,
    Weight,
)
from webhook.durations import duration_text
from webhook.policy.fair import FairOrder
from webhook.policy.values import DEFAULT_GPU_RESOURCES, DEFAULT_SCHEDULER_NAMES

API_VERSION: Final = "topogate.io/v1beta1"
KIND: Final = "Configuration"
_USUAL: Final = Settings()
_FAIR: Final = FairOrder()
_Owners = Annotated[tuple[Owner, ...], UNIQUE]
_LevelKeys = LevelKey | Annotated[tuple[LevelKey, ...], UNIQUE, SOME]
_OneLevel = Annotated[dict[LevelName, _LevelKeys], ONE]
_Levels = Annotated[
    Annotated[dict[LevelName, _LevelKeys], SOME] | Annotated[tuple[_OneLevel, ...], SOME],
    Meta(title="a mapping of level names, coarsest first, to label keys, or a list of such mappings"),
]


class Section(Struct, rename="camel", forbid_unknown_fields=True, frozen=True, kw_only=True):
    """A mapping of the document."""


class GpuKeys(Section, frozen=True):
    """What counts as a GPU.

    resources: A pod that asks for one of these in any container is a GPU pod; metrics count them as GPUs.
    deviceClasses: Pods with ResourceClaims on these DeviceClasses, or requests of
        `deviceclass.resource.kubernetes.io/NAME`, are GPU pods too; `*` stands for every class.
    modelLabel: The node label that names the model of its GPUs in the metrics, before those that are usual.
    """

    resources: Annotated[tuple[ResourcePattern, ...], UNIQUE, SOME] = DEFAULT_GPU_RESOURCES
    device_classes: Annotated[tuple[ClassPattern, ...], UNIQUE] = ()
    model_label: LabelKey = _USUAL.model_label


class ModelItem(Section, frozen=True):
    """A GPU model.

    name: Required; case, blanks and punctuation do not matter to users.
    aliases: Other names of the model.
    labels: What nodes with this model carry; they become the pod's nodeSelector; required.
    resources: The only GPU resources (names or patterns) that a pod on this model may ask for; without it
        any.
    """

    name: ModelName
    labels: Annotated[dict[LabelKey, LabelValue], SOME]
    aliases: Annotated[tuple[ModelName, ...], UNIQUE] = ()
    resources: Annotated[tuple[ResourcePattern, ...], UNIQUE] = ()


class TierItem(Section, frozen=True):
    """A tier.

    name: What users write; required.
    priorityClassName: The PriorityClass that pods of the tier get; required.
    """

    name: TierName
    priority_class_name: ClassName


class RulesItem(Section, frozen=True):
    """What applies in a namespace.

    defaultTier: Of pods that name none.
    maximumTier: A GPU pod of a higher priority than this tier's class has is refused, whatever its class is
        called.
    defaultModel: The model or alias of pods that name none.
    """

    default_tier: AnyName = ""
    maximum_tier: AnyName = ""
    default_model: AnyName = ""


class NamespaceKeys(Section, frozen=True):
    """Which namespaces are left alone, and what applies in others.

    excluded: Namespaces that are left alone, beside kube-system, kube-public, kube-node-lease and those of
        topogate itself.
    rules: Defaults and maxima; `"*"` is for namespaces without an entry, and entries are not merged.
    """

    excluded: Annotated[tuple[NamespaceName, ...], UNIQUE] = ()
    rules: dict[RulesName, RulesItem] = {}


class TopologyKeys(Section, frozen=True):
    """The topology.

    levels: The levels of the topology, and the node labels that name their domains; a list has a key for
        each family. `device:DOMAIN/NAME` is an attribute of the node's devices.
    """

    levels: _Levels | UnsetType = UNSET


class GangKeys(Section, frozen=True):
    """How pods become gangs.

    labels: Keys of pod labels. The first that a pod has makes one gang of those with the same value, if
        neither their annotations nor a known controller define a gang, as `app.kubernetes.io/instance`.
    owners: Kinds of owners whose pods wait for one another.
    looseOwners: Kinds of owners whose pods run one by one. Of owners that are unknown and not listed here,
        the pods are one gang.
    native: Whether pods of Kubernetes' own PodGroups are placed by topogate, or left to kube-scheduler.
    settle: A gang of unknown size is complete after this long without a new pod.
    patience: A gang whose size is known, but whose pods do not all come, is placed as it is after this long
        without a new pod. Otherwise controllers that create pods only after others run would wait for ever.
        The Job controller delays pods that replace failed ones. A gang of which no pod is released waits for
        these as well, at most 610 seconds.
    startWithFewer: Whether gangs.patience also applies to a gang whose controller reports that it cannot
        create the others, as where a quota is used up. Otherwise such a gang waits, with the controller's
        reason.
    """

    labels: Annotated[tuple[GangLabel, ...], UNIQUE] = ()
    owners: _Owners = ()
    loose_owners: _Owners = ()
    native: Literal["adopt", "leave"] = "adopt"
    settle: Duration = duration_text(_USUAL.settle_seconds)
    patience: Duration = duration_text(_USUAL.patience_seconds)
    start_with_fewer: bool = _USUAL.start_with_fewer


class PlacementKeys(Section, frozen=True):
    """Which nodes a gang gets.

    mode: How gangs are laid out on their nodes.
    weights: How much each resource that stays free counts, between nodes that are otherwise equally good.
    """

    mode: Literal["best-fit", "headroom"] = _USUAL.options.mode.value
    weights: dict[AnyName, UpToThousand] = field(default_factory=lambda: dict(_USUAL.options.weights))


class BindingKeys(Section, frozen=True):
    """How released pods are bound.

    mode: Whether each pod is bound by itself, or each gang as one by a PodGroup of kube-scheduler's own; see
        [bind gangs as one](bind.md).
    timeout: A released pod that kube-scheduler has failed to bind for this long counts as failed.
    """

    mode: Literal["pinned", "podgroup"] = "pinned"
    timeout: Duration = duration_text(_USUAL.bind_seconds)


class PreemptionKeys(Section, frozen=True):
    """Whether running pods make way.

    enabled: Whether gangs and pods of lower priority are evicted for a gang that otherwise finds no nodes.
    """

    enabled: bool = _USUAL.preempt


class ReservationKeys(Section, frozen=True):
    """Nodes for gangs that wait long.

    after: A gang that does not fit has nodes reserved for it once it has waited this long.
    duration: How long a reservation lasts; afterwards its nodes cannot be reserved for as long.
    share: Of the nodes, the share that may be reserved for all gangs together.
    """

    after: Duration = duration_text(_USUAL.reserve_seconds)
    duration: Duration = duration_text(_USUAL.reserve_hold_seconds)
    share: Share = _USUAL.reserve_share


class RepairKeys(Section, frozen=True):
    """What becomes of released pods that do not start.

    enabled: Whether pods that a controller recreates may be deleted, to place them again.
    owners: The kinds of controllers that do recreate a deleted pod; a workflow engine, for one, treats the
        deletion as a failure of the step.
    abandonAfter: A released pod that kube-scheduler cannot bind and that no controller recreates is deleted
        after this long, if none of its gang runs. Otherwise it would keep its place from others.
    """

    enabled: bool = _USUAL.repair
    owners: _Owners = tuple(sorted(_USUAL.repair_owners))
    abandon_after: Duration = duration_text(_USUAL.abandon_seconds)


class NodeHealthKeys(Section, frozen=True):
    """Nodes on which gangs fail.

    avoid: How failing nodes are avoided: off: not at all; soft: unless nothing else fits; hard: even then.
    failures: So many gangs must have failed on the node.
    avoidFor: How long a failing node is avoided, twice as long after each further failure. As long, a gang
        avoids a node whose kubelet refused one of its pods.
    share: Of the nodes of one GPU model, the share that is avoided at a time; one may always be of two.
    """

    avoid: Literal["off", "soft", "hard"] = _USUAL.bad_nodes.avoid.value
    failures: Annotated[int, Meta(ge=2, le=100)] = _USUAL.bad_nodes.failures  # one may be an accident
    avoid_for: PositiveDuration = duration_text(_USUAL.bad_nodes.avoid_seconds)
    share: Share = _USUAL.bad_nodes.share


class SpareNodeKeys(Section, frozen=True):
    """Nodes that stay free for repairs.

    perBlock: Nodes of each GPU model that new gangs leave free in each block, for repairs.
    lastResort: Whether new gangs may take those as well rather than wait.
    """

    per_block: UpToThousand = _USUAL.spare_nodes.per_block
    last_resort: bool = _USUAL.spare_nodes.if_nothing_else_fits


class ScaleUpKeys(Section, frozen=True):
    """Requests for nodes to an autoscaler.

    provisioningClass: spec.provisioningClassName of every request for nodes; the autoscaler's documentation
        says which there are. Without one, no nodes are asked for.
    parameters: spec.parameters of every request, as the class reads them.
    requests: Requests that a namespace may have at a time.
    pods: Pods in all requests of a namespace.
    """

    provisioning_class: ProvisioningClass = _USUAL.scale_up.provisioning_class
    parameters: dict[AnyName, ShortText] = {}
    requests: Count = _USUAL.scale_up.requests
    pods: Count = _USUAL.scale_up.pods


class MoveKeys(Section, frozen=True):
    """Whether willing gangs are moved so that a larger one fits, where the section is written.

    after: A gang that waits for place, and not for quantity, has gangs moved for it once it has waited this
        long. Without `makeRoom` no gang is moved; `makeRoom: {}` switches it on.
    movesPerHour: Gangs that are moved within an hour, in the whole cluster.
    movesPerGangAndDay: How often one gang is moved within a day.
    """

    after: PositiveDuration = duration_text(_USUAL.moves.after_seconds)
    moves_per_hour: Annotated[int, Meta(ge=1, le=1000)] = _USUAL.moves.per_hour
    moves_per_gang_and_day: Annotated[int, Meta(ge=1, le=100)] = _USUAL.moves.per_gang_and_day


class FairOrderKeys(Section, frozen=True):
    """The order among gangs of one priority.

    halfLife: Use counts half after this.
    maximumWait: An account's oldest gang that found no capacity for so long comes first, once in that time.
    accountLabel: The label of namespaces of which those with the same value are one account; without it each
        namespace is one.
    weights: Shares of accounts; 1 for others.
    modelCosts: The weight of a GPU second; 1 for others.
    """

    half_life: PositiveDuration = duration_text(_FAIR.half_life_seconds)
    maximum_wait: PositiveDuration = duration_text(_FAIR.maximum_wait_seconds)
    account_label: LabelKey = ""
    weights: dict[Account, Weight] = {}
    model_costs: dict[AnyName, Weight] = {}


class AdmissionKeys(Section, frozen=True):
    """What admission does besides gating.

    keepManagedFields: Whether pods keep their managedFields. Otherwise admission and release empty those of a
        pod that a controller created and that no client applied.
    """

    keep_managed_fields: bool = _USUAL.keep_managed_fields


class Document(Section, frozen=True):
    """Configuration of topogate.

    apiVersion: The format; required.
    kind: Required.
    gatePrefix: Pods with a scheduling gate of this prefix are served; the webhook's own gate is this
        prefix and `topogate`. After a change, render the admission policies again.
    schedulerNames: The kube-schedulers whose pods (spec.schedulerName) are gated and released; pods of others
        are left alone.
    models: What users may write in `topogate.io/gpu-model`.
    tiers: What users may write in `topogate.io/priority`, lowest first.
    """

    api_version: Literal["topogate.io/v1beta1"]
    kind: Literal["Configuration"]
    gate_prefix: GatePrefix = _USUAL.gate_prefix
    scheduler_names: Annotated[tuple[SchedulerName, ...], UNIQUE, SOME] = DEFAULT_SCHEDULER_NAMES
    gpus: GpuKeys = GpuKeys()
    models: tuple[ModelItem, ...] = ()
    tiers: tuple[TierItem, ...] = ()
    namespaces: NamespaceKeys = NamespaceKeys()
    topology: TopologyKeys = TopologyKeys()
    gangs: GangKeys = GangKeys()
    placement: PlacementKeys = PlacementKeys()
    binding: BindingKeys = BindingKeys()
    preemption: PreemptionKeys = PreemptionKeys()
    reservations: ReservationKeys = ReservationKeys()
    repair: RepairKeys = RepairKeys()
    node_health: NodeHealthKeys = NodeHealthKeys()
    spare_nodes: SpareNodeKeys = SpareNodeKeys()
    scale_up: ScaleUpKeys = ScaleUpKeys()
    moves: MoveKeys | UnsetType = field(default=UNSET, name="makeRoom")
    fair_order: FairOrderKeys | UnsetType = UNSET
    admission: AdmissionKeys = AdmissionKeys()
