"""Every label, annotation, gate and resource name that crosses a process boundary.

A key is spelled here and nowhere else; a module that needs one imports it.
"""

from typing import Final

# --- the operator's and the user's wishes -------------------------------------------------------

INJECTION_LABEL: Final = "topogate.io/injection"
INJECTION_ENABLED: Final = "enabled"
INJECT_ANNOTATION: Final = "topogate.io/inject"
INJECT_NO: Final = "false"
GPU_MODEL_ANNOTATION: Final = "topogate.io/gpu-model"
PRIORITY_ANNOTATION: Final = "topogate.io/priority"
GANG_ANNOTATION: Final = "topogate.io/gang"
GANG_SIZE_ANNOTATION: Final = "topogate.io/gang-size"
REQUIRED_TOPOLOGY_ANNOTATION: Final = "topogate.io/required-topology"
PREFERRED_TOPOLOGY_ANNOTATION: Final = "topogate.io/preferred-topology"
SLICE_TOPOLOGY_ANNOTATION: Final = "topogate.io/slice-topology"
SLICE_SIZE_ANNOTATION: Final = "topogate.io/slice-size"
"""Each so many consecutive ranks in one domain of the level that the annotation before names. Of topology
wishes only those under our own names count: pods that carry Kueue's are placed by Kueue."""

# --- the gate -----------------------------------------------------------------------------------

GATE_PREFIX: Final = "gke.io/topology-aware-auto-"
GATE: Final = GATE_PREFIX + "topogate"

# --- topology: label families, coarsest level first ----------------------------------------------

PRERELEASE_TOPOLOGY: Final = (
    "topology.gke.io/cluster",
    "topology.gke.io/rack",
    "topology.gke.io/host",
)
"""Written by the labeler; the family that GKE used before 1.31."""

GCE_TOPOLOGY: Final = (
    "cloud.google.com/gce-topology-block",
    "cloud.google.com/gce-topology-subblock",
    "cloud.google.com/gce-topology-host",
)
"""Written by GKE itself from 1.31 on."""

TOPOLOGY_FAMILIES: Final = (GCE_TOPOLOGY, PRERELEASE_TOPOLOGY)
"""A node belongs to the first family whose labels it has complete."""

LEVEL_NAMES: Final = ("block", "subblock", "host")
"""What people call the levels, coarsest first; the names that topology wishes use."""

# --- cards of a node (formats: Intel GPU device plugin's labeler, GPU Aware Scheduling) ----------

INTEL_PREFIX: Final = "gpu.intel.com/"
CARDS_LABEL: Final = INTEL_PREFIX + "cards"
GPU_NUMBERS_LABEL: Final = INTEL_PREFIX + "gpu-numbers"
MILLICORES: Final = INTEL_PREFIX + "millicores"
MEMORY_MAX: Final = INTEL_PREFIX + "memory.max"
TILES: Final = INTEL_PREFIX + "tiles"
NUMA_MAP_LABEL: Final = INTEL_PREFIX + "numa-gpu-map"
PCI_GROUPS_LABEL: Final = INTEL_PREFIX + "pci-groups"
XE_LINKS_LABEL: Final = INTEL_PREFIX + "xe-links"
I915: Final = INTEL_PREFIX + "i915"
XE: Final = INTEL_PREFIX + "xe"
PLUGIN_RESOURCES: Final = (XE, I915)
"""The resources that hand out cards; where a container asks for both, xe counts."""

GPU_PREFIX: Final = "gpu.topogate.io/"
GPU_COUNT_LABEL: Final = GPU_PREFIX + "count"
GPU_MODEL_LABEL: Final = GPU_PREFIX + "model"
"""A node's model of GPU; absent where it has several (integrated GPUs beside discrete ones do not count)."""
GPU_HAS_MODEL_PREFIX: Final = GPU_PREFIX + "has."
"""Followed by a model; "true" on every node with at least one such GPU, also where models are mixed."""
GPU_VENDOR_COUNT_PREFIX: Final = GPU_PREFIX + "vendor."
"""Followed by a vendor's name ("intel", "nvidia", "amd"); the number of its GPUs."""

# --- the labeler's own notes on its Node -----------------------------------------------------------

LABELER_PREFIX: Final = "labeler.topogate.io/"
OWNED_LABELS_ANNOTATION: Final = LABELER_PREFIX + "owned-labels"
"""Keys of the labels that the labeler wrote, comma-separated: what it may remove later."""
ORIGINAL_VALUES_ANNOTATION: Final = LABELER_PREFIX + "original-values"
"""JSON object: label key -> the value as found, where it was no legal label value."""

# --- chosen cards of a pod ------------------------------------------------------------------------

GAS_TIMESTAMP_ANNOTATION: Final = "gas-ts"
GAS_CARDS_ANNOTATION: Final = "gas-container-cards"
GAS_TILES_ANNOTATION: Final = "gas-container-tiles"
GAS_ANNOTATIONS: Final = (GAS_TIMESTAMP_ANNOTATION, GAS_CARDS_ANNOTATION, GAS_TILES_ANNOTATION)
"""All that the sweeper writes on a pod."""

# --- a pod's wishes about its cards, and a policy's word on a node's cards (GPU Aware Scheduling) ---

GAS_ALLOW_ANNOTATION: Final = "gas-allow"
GAS_DENY_ANNOTATION: Final = "gas-deny"
GAS_SAME_GPU_ANNOTATION: Final = "gas-same-gpu"
GAS_XELINK_ANNOTATION: Final = "gas-allocate-xelink"
GAS_SINGLE_NUMA_ANNOTATION: Final = "gas-allocate-single-numa"
TAS_LABEL_PREFIX: Final = "telemetry.aware.scheduling."
"""Labels of Telemetry Aware Scheduling: this, a policy's name, "/", and one of the words below."""
TAS_DISABLE_CARD: Final = "gas-disable-"
TAS_DISABLE_TILE: Final = "gas-tile-disable-"
TAS_DESCHEDULE_TILE: Final = "gas-tile-deschedule-"
TAS_PCI_GROUP: Final = "PCI_GROUP"
"""Value of a disable label that means the card's whole PCI group."""

# --- well-known keys of Kubernetes and of workload controllers -----------------------------------

HOSTNAME_LABEL: Final = "kubernetes.io/hostname"
NAMESPACE_NAME_LABEL: Final = "kubernetes.io/metadata.name"
MIRROR_POD_ANNOTATION: Final = "kubernetes.io/config.mirror"
JOB_NAME_LABEL: Final = "batch.kubernetes.io/job-name"
LEGACY_JOB_NAME_LABEL: Final = "job-name"
JOBSET_NAME_LABEL: Final = "jobset.sigs.k8s.io/jobset-name"
REPLICATED_JOB_LABEL: Final = "jobset.sigs.k8s.io/replicatedjob-name"
JOB_INDEX_KEY: Final = "batch.kubernetes.io/job-completion-index"
"""Rank of an indexed Job's pod; both an annotation and, since Kubernetes 1.28, a label."""

# --- how workload controllers mark the pods of one gang -------------------------------------------

JOB_INDEX_FAILURES_ANNOTATION: Final = "batch.kubernetes.io/job-index-failure-count"
"""Written by the Job controller where each index has a limit of its own."""

GANG_LABELS: Final = (
    # (kind for people, key of the name, key of what tells two of that name apart)
    ("JobSet", JOBSET_NAME_LABEL, "jobset.sigs.k8s.io/jobset-uid"),
    ("LeaderWorkerSet", "leaderworkerset.sigs.k8s.io/name", "leaderworkerset.sigs.k8s.io/group-key"),
    ("PodGroup", "kueue.x-k8s.io/pod-group-name", "kueue.x-k8s.io/pod-group-name"),
    ("PodGroup", "scheduling.x-k8s.io/pod-group", "scheduling.x-k8s.io/pod-group"),
    ("PodGroup", "scheduling.volcano.sh/group-name", "scheduling.volcano.sh/group-name"),
    ("PodGroup", "scheduling.k8s.io/group-name", "scheduling.k8s.io/group-name"),
    ("TrainingJob", "training.kubeflow.org/job-name", "training.kubeflow.org/job-name"),
    ("RayCluster", "ray.io/cluster", "ray.io/cluster"),
    ("Job", JOB_NAME_LABEL, "batch.kubernetes.io/controller-uid"),
    ("Job", "job-name", "controller-uid"),
)
"""Labels or annotations, outermost owner first: a JobSet's pods carry their child Job's labels as well."""

LOOSE_OWNERS: Final = ("ReplicaSet", "DaemonSet", "Node")
"""Controllers whose pods do not wait for one another: each of their pods is a gang of its own."""

GANG_SIZE_KEYS: Final = (
    GANG_SIZE_ANNOTATION,
    "leaderworkerset.sigs.k8s.io/size",
    "kueue.x-k8s.io/pod-group-total-count",
)
"""Annotations that say how many pods a gang has; the first that is there counts."""

RANK_KEYS: Final[tuple[tuple[tuple[str, ...], tuple[str, ...]], ...]] = (
    # (keys of what the pod is for, where each role or group has a numbering of its own; keys of its numbers)
    ((), ("jobset.sigs.k8s.io/job-global-index", JOB_INDEX_KEY)),
    ((), (JOB_INDEX_KEY,)),
    ((), ("leaderworkerset.sigs.k8s.io/worker-index",)),
    ((), ("kueue.x-k8s.io/pod-group-pod-index",)),
    (("training.kubeflow.org/replica-type",), ("training.kubeflow.org/replica-index",)),
    (
        ("ray.io/node-type", "ray.io/group"),
        ("ray.io/worker-group-replica-index", "ray.io/replica-host-index"),
    ),
    (("ray.io/node-type", "ray.io/group"), ("ray.io/replica-host-index",)),
    (("volcano.sh/task-spec",), ("volcano.sh/task-index",)),
    ((), ("apps.kubernetes.io/pod-index",)),
)
"""Labels or annotations that number the pods of a gang; several together count from the outside in. The
first entry counts of which all numbers are there."""

LEADER_KEYS: Final = (
    "training.kubeflow.org/replica-type",
    "training.kubeflow.org/job-role",
    "ray.io/node-type",
    "volcano.sh/task-spec",
)
"""Labels or annotations that tell a leader: there is one, and some controllers do not number it."""

LEADER_ROLES: Final = ("master", "chief", "launcher", "head")
ROLES: Final = (*LEADER_ROLES, "ps", "evaluator", "worker")
"""Roles in the order of rank: master, chief and launcher have rank 0 of their framework. Letter case does not
matter; roles that are not listed come last, by name."""

JOBSET_EXCLUSIVE: Final = "alpha.jobset.sigs.k8s.io/exclusive-topology"
JOBSET_NODE_SELECTOR: Final = "alpha.jobset.sigs.k8s.io/node-selector"
LWS_EXCLUSIVE: Final = "leaderworkerset.sigs.k8s.io/exclusive-topology"
LWS_SUBGROUP_EXCLUSIVE: Final = "leaderworkerset.sigs.k8s.io/subgroup-exclusive-topology"
"""Annotations by which those controllers make some pods only after their leader has a node."""

# --- of all annotations of an object, those that the sweeper reads ---------------------------------

INITIAL_EVENTS_END: Final = "k8s.io/initial-events-end"
"""On the bookmark that ends a list which came as a stream (KEP-3157)."""

SHORT_ANNOTATIONS: Final = frozenset(
    {
        INJECT_ANNOTATION,
        GPU_MODEL_ANNOTATION,
        PRIORITY_ANNOTATION,
        GANG_ANNOTATION,
        REQUIRED_TOPOLOGY_ANNOTATION,
        PREFERRED_TOPOLOGY_ANNOTATION,
        SLICE_TOPOLOGY_ANNOTATION,
        SLICE_SIZE_ANNOTATION,
        GAS_TIMESTAMP_ANNOTATION,
        GAS_ALLOW_ANNOTATION,
        GAS_DENY_ANNOTATION,
        GAS_SAME_GPU_ANNOTATION,
        GAS_XELINK_ANNOTATION,
        GAS_SINGLE_NUMA_ANNOTATION,
        JOB_INDEX_FAILURES_ANNOTATION,
        JOBSET_EXCLUSIVE,
        JOBSET_NODE_SELECTOR,
        LWS_EXCLUSIVE,
        LWS_SUBGROUP_EXCLUSIVE,
        INITIAL_EVENTS_END,
        *GANG_SIZE_KEYS,
        *LEADER_KEYS,
        *(key for _, *two in GANG_LABELS for key in two),
        *(key for roles, numbers in RANK_KEYS for key in (*roles, *numbers)),
    }
)
"""Those of a name, a number or a short list. What is in neither of these sets is not kept in memory."""

LONG_ANNOTATIONS: Final = frozenset({GAS_CARDS_ANNOTATION, GAS_TILES_ANNOTATION})
"""Those that grow with the containers of a pod and the cards of a node."""

WISH_ANNOTATIONS: Final = frozenset(
    {
        GANG_ANNOTATION,
        REQUIRED_TOPOLOGY_ANNOTATION,
        PREFERRED_TOPOLOGY_ANNOTATION,
        SLICE_TOPOLOGY_ANNOTATION,
        SLICE_SIZE_ANNOTATION,
        GAS_ALLOW_ANNOTATION,
        GAS_DENY_ANNOTATION,
        GAS_SAME_GPU_ANNOTATION,
        *(key for _, *two in GANG_LABELS for key in two),
    }
)
"""Those without whose value a pod cannot be placed as its author meant it."""
