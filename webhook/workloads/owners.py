"""Which owners create gangs, and which create pods that do not wait for one another. Pure.

kinds.WORKLOADS lists the owners of gangs. This module adds the other owners, and the operator's own rules.
The pods of an owner that no rule names are a gang: users notice a gang that waits for too many pods, but not
one that runs with too few.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Final

from webhook.kube.objects import OwnerReference
from webhook.workloads.kinds import WORKLOADS
from webhook.workloads.loose import ReplicaOwner, Workflow, replica_pods, workflow_pods
from webhook.workloads.pod_sets import OwnedPods

NAME: Final = re.compile(r"[A-Z][A-Za-z0-9]{0,62}(?:\.[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?)?")
"""A kind of owner as operators write it: Kind for the core group, else Kind.group."""


@dataclass(frozen=True)
class LooseOwner:
    """A kind of owner whose pods do not wait for one another.

    group: None for the kind in any group. struct, pods: the pods that such an owner creates, for simulate and
    lint; None if only the pods themselves can be simulated.
    """

    kind: str
    group: str | None = None
    struct: Any = None
    pods: Callable[[Any], OwnedPods] | None = None

    @property
    def name(self) -> str:
        """The name in docs and settings."""
        return f"{self.kind}.{self.group}" if self.group else self.kind

    def is_of(self, owner: OwnerReference) -> bool:
        """Whether an owner is of this kind; Flyte writes its kind in lower case."""
        return owner.kind.lower() == self.kind.lower() and self.group in (None, owner.group)


def _replicas(kind: str, group: str | None = None) -> LooseOwner:
    return LooseOwner(kind, group, ReplicaOwner, replica_pods)


LOOSE_OWNERS: Final = (
    _replicas("ReplicaSet"),
    LooseOwner("DaemonSet"),
    LooseOwner("Node"),
    _replicas("ReplicationController", ""),
    _replicas("CloneSet", "apps.kruise.io"),
    LooseOwner("BroadcastJob", "apps.kruise.io"),
    LooseOwner("Workflow", "argoproj.io", Workflow, workflow_pods),
    LooseOwner("TaskRun", "tekton.dev"),
    LooseOwner("FlyteWorkflow", "flyte.lyft.com"),
    _replicas("NodeSet", "slinky.slurm.net"),
    LooseOwner("Model", "kubeai.org"),
    LooseOwner("DaskWorkerGroup", "kubernetes.dask.org"),
    LooseOwner("Vertex", "numaflow.numaproj.io"),
    LooseOwner("MonoVertex", "numaflow.numaproj.io"),
    LooseOwner("SparkApplication"),
    LooseOwner("EphemeralRunner", "actions.github.com"),
    LooseOwner("Sandbox", "agents.x-k8s.io"),
    LooseOwner("VirtualMachineInstance", "kubevirt.io"),
    LooseOwner("Pod", ""),
)
"""The owner Pod is the driver of a Spark application, which creates the executors. Owners of Deployments are
not listed: their pods are of ReplicaSets."""

_GANG_KINDS: Final = frozenset(each.kind for each in WORKLOADS)


class Makes(Enum):
    """The pods that an owner creates: a gang, or pods that do not wait for one another."""

    GANG = auto()
    LOOSE = auto()
    UNKNOWN = auto()


@dataclass(frozen=True)
class OwnerRules:
    """The operator's rules about owners, in addition to the built-in ones.

    gang_labels: keys of pod labels. Pods with the same value of the first one that they have are one gang,
    unless an annotation or a known owner names their gang. gang_owners, loose_owners: further kinds, in the
    form of NAME; they override the built-in rules.
    """

    gang_labels: tuple[str, ...] = ()
    gang_owners: frozenset[str] = frozenset()
    loose_owners: frozenset[str] = frozenset()

    def makes(self, owner: OwnerReference) -> Makes:
        """The kind of pods that an owner creates."""
        if self.is_named_loose(owner):
            return Makes.LOOSE
        if owner.kind_and_group in self.gang_owners:
            return Makes.GANG
        if any(each.is_of(owner) for each in LOOSE_OWNERS):
            return Makes.LOOSE
        return Makes.GANG if owner.kind in _GANG_KINDS else Makes.UNKNOWN

    def is_named_loose(self, owner: OwnerReference | None) -> bool:
        """Whether the operator lists this owner in gangs.looseOwners, whatever the labels of its pods."""
        return owner is not None and owner.kind_and_group in self.loose_owners


KNOWN_RULES: Final = OwnerRules()
"""The built-in rules alone."""
