"""The sweeper's part of the configuration, as values with defaults that need no thought."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property

from webhook.placement import Options, Topology
from webhook.policy.values import CommonFacts
from webhook.scheduling.gpus import DEFAULT_GPU_CLASSES, MODEL_LABELS, Counting
from webhook.workloads.owners import RECREATING, OwnerRules


class Avoid(StrEnum):
    """How failing nodes are avoided: not at all, unless nothing else fits, or even then."""

    OFF = "off"
    SOFT = "soft"
    HARD = "hard"


@dataclass(frozen=True)
class BadNodes:
    """When a node counts as failing, and for how long; see webhook.extensions.node_health.failing_nodes.

    failures: so many gangs must have failed on it. soon_seconds: a pod that fails within this time of its
    start may have failed because of its node; one that runs as long clears a failure. outlive_seconds: a pod
    of the same gang with the same requests must run elsewhere for so much longer, or the program may be at
    fault. avoid_seconds: how long the node is avoided, twice as long after each further failure.
    keep_seconds: a failure is forgotten after this. share: of the nodes of one GPU model, the share that is
    avoided at a time.
    """

    avoid: Avoid = Avoid.SOFT
    failures: int = 3
    soon_seconds: float = 600.0
    outlive_seconds: float = 10.0
    avoid_seconds: float = 3600.0
    keep_seconds: float = 86400.0
    share: float = 0.1


@dataclass(frozen=True)
class SpareNodes:
    """How many nodes of each GPU model new gangs leave free in each block, and whether they may take them."""

    per_block: int = 0
    if_nothing_else_fits: bool = False


@dataclass(frozen=True)
class ScaleUp:
    """How an autoscaler is asked for nodes.

    provisioning_class: spec.provisioningClassName of every request, "" for none. parameters: its
    spec.parameters. requests, pods: what a namespace may have at a time. after_seconds: a gang asks once it
    has found no nodes for this long. retry_seconds: a refused gang asks again after this long, then after
    twice as long, up to an hour. label_seconds: a younger node without topology labels is not used.
    """

    provisioning_class: str = ""
    parameters: Mapping[str, str] = field(default_factory=dict)
    requests: int = 10
    pods: int = 1000
    after_seconds: float = 5.0
    retry_seconds: float = 60.0
    label_seconds: float = 120.0

    @property
    def is_on(self) -> bool:
        """Whether nodes are asked for at all."""
        return bool(self.provisioning_class)


@dataclass(frozen=True)
class MoveLimits:
    """Whether willing gangs are moved so that a larger one fits; `keys.MoveKeys` says what each means."""

    is_on: bool = False
    after_seconds: float = 600.0
    per_hour: int = 10
    per_gang_and_day: int = 2


@dataclass(frozen=True)
class Settings(CommonFacts):
    """What the sweeper is to do; the sections of `keys` say what each means that an operator can set.

    The others have one right value, which tests alone change: interval_seconds: a pass happens at least this
    often. not_ready_seconds: a node may be not ready for this long before pods that never ran there are
    replaced. rollback_seconds: a gang that is partly released, and whose other pods find no nodes, is rolled
    back after this. pass_seconds: after this long no further gang is placed in a pass.
    broken_seconds: what is left of a gang that preemption has reduced below its minimum is evicted after
    this; after twenty times as long where an autoscaler is asked for nodes.
    """

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
    start_with_fewer: bool = False
    repair: bool = True
    repair_owners: frozenset[str] = RECREATING
    preempt: bool = True
    broken_seconds: float = 30.0
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
    moves: MoveLimits = field(default_factory=MoveLimits)

    @cached_property
    def owner_rules(self) -> OwnerRules:
        """Which owners make gangs."""
        return OwnerRules(self.gang_labels, self.gang_owners, self.loose_owners)

    @property
    def counting(self) -> Counting:
        """The resources that metrics count as GPUs, and the label of their model."""
        return Counting(self.gpu_resources, (self.model_label, *MODEL_LABELS))
