"""Every label, annotation, gate and resource name that crosses a process boundary.

A key is spelled here and nowhere else; webhook.workloads.marks has those that controllers put on their pods.
"""

from typing import Final

# --- requests of operators and users ------------------------------------------------------------

INJECTION_LABEL: Final = "topogate.io/injection"
INJECTION_ENABLED: Final = "enabled"
INJECT_ANNOTATION: Final = "topogate.io/inject"
INJECT_NO: Final = "false"
INJECTION_NOTE: Final = "topogate.io/injected"
"""metadata.uid between two calls of the webhook: this, a colon, and what it has put on the pod."""
RESET_FAILURES_ANNOTATION: Final = "topogate.io/reset-failures"
"""Of a Node: the time, as 2026-01-31T12:00:00Z, before which no failure of pods speaks against it."""
RESET_FAILURES_V01: Final = "topogate.io/forgive-failures"
"""What v0.1 calls that annotation. It is read as the other one until v0.3."""
GPU_MODEL_ANNOTATION: Final = "topogate.io/gpu-model"
PRIORITY_ANNOTATION: Final = "topogate.io/priority"
GANG_ANNOTATION: Final = "topogate.io/gang"
GANG_SIZE_ANNOTATION: Final = "topogate.io/gang-size"
GANG_MIN_SIZE_ANNOTATION: Final = "topogate.io/gang-min-size"
"""How many pods of an elastic gang are enough to run; the others join as capacity comes."""
REQUIRED_TOPOLOGY_ANNOTATION: Final = "topogate.io/required-topology"
PREFERRED_TOPOLOGY_ANNOTATION: Final = "topogate.io/preferred-topology"
SLICE_TOPOLOGY_ANNOTATION: Final = "topogate.io/slice-topology"
SLICE_SIZE_ANNOTATION: Final = "topogate.io/slice-size"
"""Each so many consecutive ranks in one domain of the level that the annotation before names. Of topology
requests only those under our own names count: pods that carry Kueue's are placed by Kueue."""

SPREAD_TOPOLOGY_ANNOTATION: Final = "topogate.io/spread-topology"
"""The level over whose domains pods are spread: evenly, or at most so many in each (":" and a number)."""

MOVABLE_ANNOTATION: Final = "topogate.io/movable"
"""\"true\": its gang may be evicted as a whole and placed again, so that a larger one fits.

Also a label of namespaces, for pods without it.
"""
MOVABLE_AFTER_ANNOTATION: Final = "topogate.io/movable-after"
"""Not before it has run for so long since its last start, a duration such as 30m."""

REQUEST_ANNOTATIONS: Final = frozenset(
    {
        GPU_MODEL_ANNOTATION,
        PRIORITY_ANNOTATION,
        GANG_ANNOTATION,
        GANG_SIZE_ANNOTATION,
        GANG_MIN_SIZE_ANNOTATION,
        REQUIRED_TOPOLOGY_ANNOTATION,
        PREFERRED_TOPOLOGY_ANNOTATION,
        SLICE_TOPOLOGY_ANNOTATION,
        SLICE_SIZE_ANNOTATION,
        SPREAD_TOPOLOGY_ANNOTATION,
    }
)
"""What a user may ask of topogate; a pod with one of them is served, with or without GPUs."""

TOPOGATE_PREFIX: Final = "topogate.io/"

# --- the gate -----------------------------------------------------------------------------------

GATE_PREFIX: Final = "gke.io/topology-aware-auto-"
GATE_NAME: Final = "topogate"
GATE: Final = GATE_PREFIX + GATE_NAME

# --- objects that the sweeper makes ---------------------------------------------------------------

DIGEST_LABEL: Final = "topogate.io/digest"
"""On an object that an extension makes: of what it was made as."""
BIND_LABEL: Final = "topogate.io/bind"
BIND_POD_GROUP: Final = "podgroup"
"""On the PodGroups that the sweeper makes for gangs, as the policy's setting is called."""

# --- requests for nodes ---------------------------------------------------------------------------

SCALE_UP_LABEL: Final = "topogate.io/scale-up"
"""On a ProvisioningRequest and its PodTemplates: the name of the request."""
SCALE_UP_SHAPE_LABEL: Final = "topogate.io/scale-up-shape"
"""A digest of what is asked for: of another, the gang asks for something else."""
SCALE_UP_ATTEMPT_LABEL: Final = "topogate.io/scale-up-attempt"
"""The attempt number of a request, by which the pause before the next one grows."""

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

HOSTNAME_LABEL: Final = "kubernetes.io/hostname"
ZONE_LABEL: Final = "topology.kubernetes.io/zone"
NVLINK_CLIQUE: Final = "nvidia.com/gpu.clique"
"""Written by NVIDIA's GPU feature discovery: the NVLink domain of a node."""

TOPOGRAPH_TIERS: Final = ("fabric.topograph.run/tier-1", "fabric.topograph.run/tier-0")
"""Written by topograph: switches, tier 0 is nearest the node."""
TOPOGRAPH_ACCELERATOR: Final = "accelerator.topograph.run/domain"
TOPOGRAPH_OLDER: Final = (
    "network.topology.nvidia.com/spine",
    "network.topology.nvidia.com/leaf",
    "network.topology.nvidia.com/accelerator",
)

COREWEAVE_FABRIC: Final = ("backend.coreweave.cloud/fabric", "backend.coreweave.cloud/leafgroup")
COREWEAVE_INFINIBAND: Final = ("ib.coreweave.cloud/superpod", "ib.coreweave.cloud/leafgroup")
COREWEAVE_NVLINK: Final = "ds.coreweave.com/nvlink.domain"

TOPOLOGY_FAMILIES: Final = (
    GCE_TOPOLOGY,
    PRERELEASE_TOPOLOGY,
    (TOPOGRAPH_TIERS[0], NVLINK_CLIQUE, HOSTNAME_LABEL),
    (TOPOGRAPH_TIERS[0], TOPOGRAPH_ACCELERATOR, HOSTNAME_LABEL),
    (*TOPOGRAPH_TIERS, HOSTNAME_LABEL),
    (COREWEAVE_FABRIC[0], COREWEAVE_NVLINK, HOSTNAME_LABEL),
    (*COREWEAVE_FABRIC, HOSTNAME_LABEL),
    (*COREWEAVE_INFINIBAND, HOSTNAME_LABEL),
    (TOPOGRAPH_OLDER[0], TOPOGRAPH_OLDER[2], HOSTNAME_LABEL),
    (*TOPOGRAPH_OLDER[:2], HOSTNAME_LABEL),
    (ZONE_LABEL, NVLINK_CLIQUE, HOSTNAME_LABEL),
    (ZONE_LABEL, HOSTNAME_LABEL, HOSTNAME_LABEL),
)
"""A node belongs to the first family whose labels it has complete. A level that a family lacks repeats the
key of its next finer one, so that each domain of that one stands alone at it.
"""

LEVEL_NAMES: Final = ("block", "subblock", "host")
"""Names of the levels, coarsest first; topology requests use them."""

LEVEL_WORDS: Final = {
    TOPOGRAPH_TIERS[0]: "tier-1 domain",
    TOPOGRAPH_TIERS[1]: "tier-0 domain",
    TOPOGRAPH_ACCELERATOR: "accelerator domain",
    TOPOGRAPH_OLDER[0]: "spine",
    TOPOGRAPH_OLDER[1]: "leaf group",
    TOPOGRAPH_OLDER[2]: "accelerator domain",
    COREWEAVE_FABRIC[0]: "fabric",
    COREWEAVE_FABRIC[1]: "leaf group",
    COREWEAVE_INFINIBAND[0]: "superpod",
    COREWEAVE_INFINIBAND[1]: "leaf group",
    COREWEAVE_NVLINK: "NVLink domain",
    NVLINK_CLIQUE: "NVLink domain",
    ZONE_LABEL: "zone",
}
"""What the users of a family call the domains of a label; where it is missing, the level's name."""

# --- cards of a node (formats: Intel GPU device plugin's labeler, GPU Aware Scheduling) ----------

INTEL_PREFIX: Final = "gpu.intel.com/"
CARDS_LABEL: Final = INTEL_PREFIX + "cards"
GPU_NUMBERS_LABEL: Final = INTEL_PREFIX + "gpu-numbers"
MILLICORES: Final = INTEL_PREFIX + "millicores"
MEMORY_MAX: Final = INTEL_PREFIX + "memory.max"
TILES: Final = INTEL_PREFIX + "tiles"
CARD_AMOUNTS: Final = (MILLICORES, MEMORY_MAX, TILES)
"""What a node's usable cards have together: labels, and resources of the same names."""
NUMA_MAP_LABEL: Final = INTEL_PREFIX + "numa-gpu-map"
PCI_GROUPS_LABEL: Final = INTEL_PREFIX + "pci-groups"
XE_LINKS_LABEL: Final = INTEL_PREFIX + "xe-links"
I915: Final = INTEL_PREFIX + "i915"
XE: Final = INTEL_PREFIX + "xe"
PLUGIN_RESOURCES: Final = (XE, I915)
"""The resources that hand out cards; where a container asks for both, xe counts."""
I915_MONITORING: Final = I915 + "_monitoring"
XE_MONITORING: Final = XE + "_monitoring"
MONITORING_RESOURCES: Final = (I915_MONITORING, XE_MONITORING)
"""Each shows a container all cards of the node, and takes none: one or two a node, never divided by cards."""
NVIDIA_GPU: Final = "nvidia.com/gpu"
"""NVIDIA's whole cards."""

GPU_PREFIX: Final = "gpu.topogate.io/"
GPU_COUNT_LABEL: Final = GPU_PREFIX + "count"
GPU_MODEL_LABEL: Final = GPU_PREFIX + "model"
"""A node's model of GPU; absent where it has several (integrated GPUs beside discrete ones do not count)."""
GPU_HAS_MODEL_PREFIX: Final = GPU_PREFIX + "has."
"""Followed by a model; "true" on every node with at least one such GPU, also where models are mixed."""
GPU_VENDOR_COUNT_PREFIX: Final = GPU_PREFIX + "vendor."
"""Followed by a vendor's name ("intel", "nvidia", "amd"); the number of its GPUs, 0 if all are broken."""
GPU_BROKEN_LABEL: Final = GPU_PREFIX + "broken"
"""How many GPUs are there and cannot be used; absent where none is known to be broken."""
GPU_COMPUTE_PARTITION_LABEL: Final = GPU_PREFIX + "compute-partition"
GPU_MEMORY_PARTITION_LABEL: Final = GPU_PREFIX + "memory-partition"
"""The modes of a node's AMD GPUs as amdgpu spells them ("SPX", "NPS1"); "mixed" where they differ."""
GPU_MIG_LABEL: Final = GPU_PREFIX + "mig"
"""How many NVIDIA GPUs are split into MIG instances, which NVIDIA's own plugin hands out."""
GPU_ACCELERATOR_PREFIX: Final = GPU_PREFIX + "accelerator."
"""Followed by a kind ("gaudi3"); the number of such accelerators, which are not counted as GPUs."""

# --- the labeler's own notes on its Node -----------------------------------------------------------

LABELER_PREFIX: Final = "labeler.topogate.io/"
OWNED_LABELS_ANNOTATION: Final = LABELER_PREFIX + "owned-labels"
"""Keys of the labels that the labeler wrote, comma-separated: what it may remove later."""
ORIGINAL_VALUES_ANNOTATION: Final = LABELER_PREFIX + "original-values"
"""JSON object: label key -> the value as found, where it was no legal label value."""
BROKEN_GPUS_ANNOTATION: Final = LABELER_PREFIX + "broken-gpus"
"""Which GPUs are there and cannot be used, and why; a sentence for each, joined by "; "."""

# --- what the allocator writes on its Node ------------------------------------------------------------

ALLOCATOR_PREFIX: Final = "allocator.topogate.io/"
OFFERED_CARDS_ANNOTATION: Final = ALLOCATOR_PREFIX + "cards"
"""Each card with its resource and how many shares of it are handed out, 0 while it is out of use."""
UNPLANNED_CARDS_ANNOTATION: Final = ALLOCATOR_PREFIX + "unplanned"
"""Cards of the pods for which nobody has chosen any, by the pods' uids."""
IDENTIFIES_PODS_ANNOTATION: Final = ALLOCATOR_PREFIX + "identifies-pods"
"""IDENTIFIED while the allocator serves the node and knows for which pod the kubelet asks for devices."""
IDENTIFIED: Final = "true"

# --- GPUTasks -----------------------------------------------------------------------------------------

FALLDIO_PREFIX: Final = "falldio.com/"
FALLDIO_GPU: Final = FALLDIO_PREFIX + "gpu"
"""As a node's label its GPU model ("rtx4090"); as a resource its number of GPUs."""
TASK_LABEL: Final = FALLDIO_PREFIX + "task"
"""On the Job and the pods of a GPUTask: its name."""
TASK_UID_LABEL: Final = FALLDIO_PREFIX + "task-uid"
TASK_ATTEMPT_LABEL: Final = FALLDIO_PREFIX + "attempt"
"""On the Job of a GPUTask: of which attempt it is."""
TASK_CLASS_LABEL: Final = FALLDIO_PREFIX + "priority-class"
"""On the Job of a GPUTask: the PriorityClass of its pods, "" for none."""

# --- chosen cards of a pod ------------------------------------------------------------------------

GAS_TIMESTAMP_ANNOTATION: Final = "gas-ts"
GAS_CARDS_ANNOTATION: Final = "gas-container-cards"
GAS_TILES_ANNOTATION: Final = "gas-container-tiles"
GAS_ANNOTATIONS: Final = (GAS_TIMESTAMP_ANNOTATION, GAS_CARDS_ANNOTATION, GAS_TILES_ANNOTATION)
"""How the sweeper names a pod's cards to the device plugin."""

# --- a pod's requests for cards, and a policy's rules for a node's cards (GPU Aware Scheduling) -----

GAS_ALLOW_ANNOTATION: Final = "gas-allow"
GAS_DENY_ANNOTATION: Final = "gas-deny"
GAS_SAME_GPU_ANNOTATION: Final = "gas-same-gpu"
GAS_XELINK_ANNOTATION: Final = "gas-allocate-xelink"
GAS_SINGLE_NUMA_ANNOTATION: Final = "gas-allocate-single-numa"
CARD_REQUESTS: Final = (
    GAS_ALLOW_ANNOTATION,
    GAS_DENY_ANNOTATION,
    GAS_SAME_GPU_ANNOTATION,
    GAS_XELINK_ANNOTATION,
    GAS_SINGLE_NUMA_ANNOTATION,
)
"""What a user may ask of a pod's cards."""
TAS_LABEL_PREFIX: Final = "telemetry.aware.scheduling."
"""Labels of Telemetry Aware Scheduling: this, a policy's name, "/", and one of the words below."""
TAS_DISABLE_CARD: Final = "gas-disable-"
TAS_DESCHEDULE_CARD: Final = "gas-deschedule-pods-"
TAS_DISABLE_TILE: Final = "gas-tile-disable-"
TAS_DESCHEDULE_TILE: Final = "gas-tile-deschedule-"
TAS_PCI_GROUP: Final = "PCI_GROUP"
"""Value of a disable label that means the card's whole PCI group."""

# --- well-known keys of Kubernetes ----------------------------------------------------------------

NAMESPACE_NAME_LABEL: Final = "kubernetes.io/metadata.name"
DEVICE_CLASS: Final = "deviceclass.resource.kubernetes.io/"
"""With the name of a DeviceClass behind it, the extended resource that every class stands for (KEP-5004)."""
DEVICE_ATTRIBUTE: Final = "device:"
"""Begins what stands for the key of a label in a list of levels, but is an attribute of a node's devices."""
MIRROR_POD_ANNOTATION: Final = "kubernetes.io/config.mirror"
INITIAL_EVENTS_END: Final = "k8s.io/initial-events-end"
"""On the bookmark that ends a list which came as a stream (KEP-3157)."""
