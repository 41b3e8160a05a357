"""The fields of the policy file: the type, default and meaning of each.

The reader takes the possible keys of a mapping from here, and `hack/reference` the table of the docs.
"""

from dataclasses import dataclass
from typing import Final

from labeler.contract import keys

DEFAULT_GPU_RESOURCES: Final = (
    "nvidia.com/gpu",
    "nvidia.com/gpu.shared",
    "amd.com/gpu",
    keys.I915,
    keys.XE,
    "nvidia.com/mig-*",
)
"""With renameByDefault NVIDIA's plugin appends `.shared` to the resource name of time-sliced GPUs."""
DEFAULT_EXCLUDED_NAMESPACES: Final = (
    "kube-system",
    "kube-public",
    "kube-node-lease",
    "topogate-system",
    "topogate-labeler",
)
DEFAULT_SCHEDULER_NAMES: Final = ("default-scheduler",)

EACH: Final = "[]."
"""After a list's name: a field of each of its items."""
EACH_NAMESPACE: Final = "namespaces.NAME."


@dataclass(frozen=True)
class PolicyField:
    """One field. name: its path in the file. what: its type, in words. default: None for none."""

    name: str
    what: str
    default: object
    meaning: str


FIELDS: Final = (
    PolicyField("apiVersion", "`topogate.io/v1alpha1`", None, "the format of the file; required"),
    PolicyField("kind", "`AdmissionPolicy`", None, "required"),
    PolicyField(
        "gatePrefix",
        "the prefix of a gate's name",
        keys.GATE_PREFIX,
        "of the gates that the sweeper serves, its `--gate`; see [another gate](gate.md)",
    ),
    PolicyField("gate", "a qualified name", keys.GATE, "the gate that pods get; begins with `gatePrefix`"),
    PolicyField(
        "gpuResources",
        "resource names or patterns",
        DEFAULT_GPU_RESOURCES,
        "a pod that asks for one of these in any container is a GPU pod",
    ),
    PolicyField("tiers", "a list", None, "what users may write in `topogate.io/priority`, lowest first"),
    PolicyField("tiers[].name", "a tier name", None, "required"),
    PolicyField("tiers[].priorityClassName", "a PriorityClass", None, "that pods of the tier get; required"),
    PolicyField("gpuModels", "a list", None, "what users may write in `topogate.io/gpu-model`"),
    PolicyField(
        "gpuModels[].name", "a text", None, "required; case, blanks and punctuation do not matter to users"
    ),
    PolicyField("gpuModels[].aliases", "texts", None, "other names of the model"),
    PolicyField(
        "gpuModels[].labels",
        "node labels",
        None,
        "what nodes with this model carry; they become the pod's nodeSelector; required",
    ),
    PolicyField(
        "gpuModels[].resources",
        "resource names or patterns",
        None,
        "the only GPU resources that a pod on this model may ask for; without it any",
    ),
    PolicyField(
        "namespaces",
        "a mapping by namespace",
        None,
        'defaults and maxima; `"*"` is for namespaces without an entry, and entries are not merged',
    ),
    PolicyField("namespaces.NAME.defaultTier", "a tier", None, "of pods that name none"),
    PolicyField(
        "namespaces.NAME.maximumTier",
        "a tier",
        None,
        "a GPU pod of a higher priority than this tier's class has is refused, whatever its class is called",
    ),
    PolicyField("namespaces.NAME.defaultGpuModel", "a model or an alias", None, "of pods that name none"),
    PolicyField(
        "excludedNamespaces",
        "namespace names",
        DEFAULT_EXCLUDED_NAMESPACES,
        "namespaces that are left alone, in addition to those of the default, which always are",
    ),
    PolicyField(
        "topologyLevels",
        "level names",
        keys.LEVEL_NAMES,
        "the names that topology annotations may use, coarsest first; those of the sweeper's `levels`",
    ),
    PolicyField(
        "schedulerNames",
        "schedulers' names",
        DEFAULT_SCHEDULER_NAMES,
        "the kube-schedulers whose pods are placed; pods of other schedulers are left alone",
    ),
    PolicyField(
        "resourceClaims",
        "true, false, or DeviceClass names or patterns",
        False,
        "whether pods with ResourceClaims are GPU pods too; a list names the DeviceClasses that count",
    ),
    PolicyField(
        "keepManagedFields",
        "true or false",
        False,
        "whether waiting pods keep their `managedFields`; the sweeper's `keep_managed_fields` must agree",
    ),
    PolicyField(
        "nativeGangs",
        "`adopt` or `leave`",
        "adopt",
        "whether pods of Kubernetes' own PodGroups are placed by topogate, or left to kube-scheduler",
    ),
    PolicyField(
        "bind",
        "`pinned`, `podgroup` or `nominated`",
        "pinned",
        "whether each pod is bound by itself, or each gang as one by a PodGroup of kube-scheduler's own; "
        "`nominated` is experimental; see [bind gangs as one](bind.md)",
    ),
    PolicyField(
        "fairOrder",
        "a mapping",
        None,
        "gangs of one priority are ordered by use instead of age; see [fair order](fair-order.md)",
    ),
    PolicyField("fairOrder.halfLife", "a time, as 90m, 6h or 2d", "6h", "after which use counts half"),
    PolicyField(
        "fairOrder.maximumWait",
        "a time",
        "12h",
        "an account's oldest gang that found no capacity for so long comes first, once in that time",
    ),
    PolicyField(
        "fairOrder.accountLabel",
        "a label key",
        None,
        "of namespaces: those with the same value are one account; without it each namespace is one",
    ),
    PolicyField(
        "fairOrder.weights", "numbers by account or pattern", None, "shares of accounts; 1 for others"
    ),
    PolicyField("fairOrder.modelCosts", "numbers by model", None, "the weight of a GPU second; 1 for others"),
)


def known_fields(below: str = "") -> tuple[str, ...]:
    """The fields that the mapping at a path may have, as `tiers[].` or "" for the whole file."""
    names = (each.name.removeprefix(below) for each in FIELDS if each.name.startswith(below))
    return tuple(name for name in names if "." not in name and "[" not in name)
