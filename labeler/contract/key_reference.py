"""The writers and readers of each key of the wire contract, and what it means.

docs/design/wire-contract.md is made from this. Words in capitals behind a prefix stand for what follows it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from labeler.contract import keys

_PRERELEASE: Final = keys.PRERELEASE_TOPOLOGY
_COREWEAVE: Final = (*keys.COREWEAVE_FABRIC, *keys.COREWEAVE_INFINIBAND, keys.COREWEAVE_NVLINK)


@dataclass(frozen=True)
class KeyUse:
    """Keys of one use. on: the objects that have it. value: the only one that counts, "" for any."""

    keys: tuple[str, ...]
    on: str
    written_by: str
    read_by: str
    meaning: str
    value: str = ""


KEY_USES: Final[Mapping[str, tuple[KeyUse, ...]]] = {
    "Users, operators and the gate": (
        KeyUse(
            (keys.INJECTION_LABEL,),
            "Namespace, label",
            "operator",
            "API server",
            "the webhook is called for new pods of this namespace",
            keys.INJECTION_ENABLED,
        ),
        KeyUse(
            (keys.INJECT_ANNOTATION,),
            "pod, annotation",
            "user",
            "webhook",
            "the pod is left alone",
            keys.INJECT_NO,
        ),
        KeyUse(
            (keys.INJECTION_NOTE,),
            "pod, `metadata.uid` while it is admitted",
            "webhook; the in-process gate, empty",
            "webhook, API server",
            "what topogate has put on the pod follows; the API server replaces it by the uid",
        ),
        KeyUse(
            (keys.PRIORITY_ANNOTATION,),
            "pod, annotation",
            "user",
            "webhook",
            "a tier of the configuration, which becomes a PriorityClass",
        ),
        KeyUse(
            (keys.GPU_MODEL_ANNOTATION,),
            "pod, annotation",
            "user",
            "webhook",
            "a model of the configuration, which becomes a nodeSelector",
        ),
        KeyUse(
            (keys.GANG_ANNOTATION, keys.GANG_SIZE_ANNOTATION),
            "pod, annotation",
            "user",
            "sweeper",
            "a gang of pods without a common controller, and its size",
        ),
        KeyUse(
            (keys.GANG_MIN_SIZE_ANNOTATION,),
            "pod, annotation",
            "user",
            "sweeper",
            "how many pods of an elastic gang are enough to run",
        ),
        KeyUse(
            (keys.REQUIRED_TOPOLOGY_ANNOTATION, keys.PREFERRED_TOPOLOGY_ANNOTATION),
            "pod, annotation",
            "user",
            "sweeper",
            "a level, by name (`block`, `subblock`, `host`) or by its label's key; several preferred ones, "
            "coarsest first, with commas between",
        ),
        KeyUse(
            (keys.SLICE_TOPOLOGY_ANNOTATION, keys.SLICE_SIZE_ANNOTATION),
            "pod, annotation",
            "user",
            "sweeper",
            "each so many consecutive ranks share one domain of that level; several, coarsest first, with "
            "commas between",
        ),
        KeyUse(
            (keys.SPREAD_TOPOLOGY_ANNOTATION,),
            "pod, annotation",
            "user",
            "sweeper",
            "a level over whose domains the pods are spread evenly; with `:` and a number, at most so many "
            "pods in each",
        ),
        KeyUse(
            (keys.MOVABLE_ANNOTATION, keys.MOVABLE_AFTER_ANNOTATION),
            "pod, annotation; Namespace, label",
            "user",
            "sweeper",
            "`true`: the gang may be moved so that a larger one fits; not before it has run for so long",
        ),
        KeyUse(
            (keys.RESET_FAILURES_ANNOTATION,),
            "Node, annotation",
            "operator",
            "sweeper",
            "failures of pods before this time do not count against the node",
        ),
        KeyUse(
            (keys.RESET_FAILURES_V01,),
            "Node, annotation",
            "operator, for v0.1",
            "sweeper, until v0.3",
            "the same, on a Node that lacks the other",
        ),
        KeyUse(
            (keys.GATE,),
            "pod, scheduling gate",
            "webhook, or the pod's author",
            "sweeper",
            f"the pod waits for topogate. All gates with the prefix `{keys.GATE_PREFIX}` are served, and "
            "removed at release",
        ),
        KeyUse(
            ("topogate.io/v1alpha1 Placement",),
            "beside the gang",
            "sweeper",
            "people, the next leader, the task controller",
            "the plan of a gang, and why it waits",
        ),
        KeyUse(
            ("falldio.com/v1 GPUTask",), "namespace", "user", "task controller", "a task that becomes a Job"
        ),
    ),
    "Objects that the sweeper makes": (
        KeyUse(
            (keys.BIND_LABEL,),
            "PodGroup, label",
            "sweeper",
            "sweeper",
            "a PodGroup by which a gang is bound as one",
            keys.BIND_POD_GROUP,
        ),
        KeyUse(
            (keys.DIGEST_LABEL,),
            "PodGroup, ProvisioningRequest and PodTemplate, label",
            "sweeper",
            "sweeper",
            "a hash of the object as it was created",
        ),
    ),
    "Requests for nodes (component `scale-up`)": (
        KeyUse(
            (keys.SCALE_UP_LABEL,),
            "ProvisioningRequest and PodTemplate, label",
            "sweeper",
            "sweeper",
            "the name of the request",
        ),
        KeyUse(
            (keys.SCALE_UP_SHAPE_LABEL, keys.SCALE_UP_ATTEMPT_LABEL),
            "ProvisioningRequest and PodTemplate, label",
            "sweeper",
            "sweeper",
            "a hash of what is requested, and the attempt number",
        ),
    ),
    "Topology": (
        KeyUse(_PRERELEASE, "Node, label", "labeler", "sweeper", "block, subblock, host"),
        KeyUse(
            keys.GCE_TOPOLOGY,
            "Node, label",
            "GKE",
            "sweeper",
            "block, subblock, host. Of several families the first that a node has complete counts",
        ),
        KeyUse(
            (*keys.TOPOGRAPH_TIERS, keys.TOPOGRAPH_ACCELERATOR),
            "Node, label",
            "topograph",
            "sweeper",
            "tier 1 is the block; the accelerators' domain is the subblock, else tier 0",
        ),
        KeyUse(
            (keys.NVLINK_CLIQUE,),
            "Node, label",
            "NVIDIA's GPU feature discovery",
            "sweeper",
            "the NVLink domain: a subblock of topograph's tier 1, or of the zone",
        ),
        KeyUse(
            _COREWEAVE,
            "Node, label",
            "CoreWeave",
            "sweeper",
            "the fabric or superpod is the block; the NVLink domain or leaf group is the subblock",
        ),
        KeyUse(
            keys.TOPOGRAPH_OLDER,
            "Node, label",
            "older topograph",
            "sweeper",
            "the spine is the block; the accelerator or leaf is the subblock",
        ),
        KeyUse(
            (keys.ZONE_LABEL,),
            "Node, label",
            "cloud",
            "sweeper",
            "the block of nodes without other topology labels",
        ),
        KeyUse(
            (f"{keys.DEVICE_CLASS}NAME",),
            "pod, resource",
            "Kubernetes",
            "sweeper; webhook, where `gpus.deviceClasses` or `gpus.resources` names it",
            "devices of that DeviceClass",
        ),
        KeyUse(
            (f"{keys.DEVICE_ATTRIBUTE}DOMAIN/NAME",),
            "attribute of a node's devices, in ResourceSlices",
            "driver",
            "sweeper",
            "a level, where `topology.levels` has it in place of a label's key",
        ),
        KeyUse(
            (keys.HOSTNAME_LABEL,),
            "Node, label",
            "kubelet",
            "sweeper",
            "the lowest level of anti-affinity, and the host where a family has none",
        ),
        KeyUse(
            (keys.OWNED_LABELS_ANNOTATION, keys.ORIGINAL_VALUES_ANNOTATION),
            "Node, annotation",
            "labeler",
            "labeler",
            "the labels that it may remove, and values that are no legal label. Other keys of "
            f"`{keys.LABELER_PREFIX}` are notes on the instance",
        ),
    ),
    "GPUs of a node": (
        KeyUse(
            (keys.BROKEN_GPUS_ANNOTATION,),
            "Node, annotation",
            "labeler",
            "operators, `topogate doctor`",
            "GPUs that cannot be used, each with its address and the reason",
        ),
        KeyUse(
            (keys.NVIDIA_GPU,),
            "Node, resource",
            "NVIDIA's device plugin",
            "webhook, sweeper",
            "whole GPUs; a pod that asks for one is a GPU pod",
        ),
        KeyUse(
            (keys.I915, keys.XE),
            "Node, resource",
            "device plugin",
            "webhook, sweeper",
            f"shares of cards; `{keys.I915_MONITORING}` and `{keys.XE_MONITORING}` give out none",
        ),
        KeyUse(
            (keys.MILLICORES, keys.MEMORY_MAX, keys.TILES),
            "Node, resource and label",
            "labeler, or Intel's node tools",
            "sweeper",
            "what the cards of the node have",
        ),
        KeyUse(
            (keys.CARDS_LABEL, keys.GPU_NUMBERS_LABEL),
            "Node, label",
            "labeler",
            "sweeper",
            "the cards of the node; long values continue in labels with a number at the end",
        ),
        KeyUse(
            (keys.NUMA_MAP_LABEL, keys.PCI_GROUPS_LABEL, keys.XE_LINKS_LABEL),
            "Node, label",
            "labeler",
            "sweeper",
            "which cards are close together",
        ),
        KeyUse(
            (keys.GPU_COUNT_LABEL, keys.GPU_MODEL_LABEL),
            "Node, label",
            "labeler",
            "selectors of the configuration's models",
            "how many GPUs the node has, and their model",
        ),
        KeyUse(
            (f"{keys.GPU_HAS_MODEL_PREFIX}MODEL", f"{keys.GPU_VENDOR_COUNT_PREFIX}VENDOR"),
            "Node, label",
            "labeler",
            "selectors of the configuration's models",
            "the same, where a node has several models; `0` if all GPUs of the vendor are broken",
        ),
        KeyUse(
            (keys.GPU_BROKEN_LABEL,),
            "Node, label",
            "labeler",
            "operators, `topogate doctor`",
            "how many GPUs cannot be used",
        ),
        KeyUse(
            (keys.GPU_COMPUTE_PARTITION_LABEL, keys.GPU_MEMORY_PARTITION_LABEL),
            "Node, label",
            "labeler",
            "selectors of the configuration's models",
            "the modes of AMD's GPUs, as `SPX` and `NPS1`; `mixed` where they differ",
        ),
        KeyUse(
            (keys.GPU_MIG_LABEL, f"{keys.GPU_ACCELERATOR_PREFIX}KIND"),
            "Node, label",
            "labeler",
            "operators",
            "how many NVIDIA GPUs are split by MIG; how many accelerators do not count as GPUs (`gaudi3`)",
        ),
        KeyUse(
            (
                f"{keys.TAS_LABEL_PREFIX}POLICY/WORD",
                f"{keys.TAS_DISABLE_CARD}CARD",
                f"{keys.TAS_DESCHEDULE_CARD}CARD",
                f"{keys.TAS_DISABLE_TILE}TILE",
                f"{keys.TAS_DESCHEDULE_TILE}TILE",
                keys.TAS_PCI_GROUP,
            ),
            "Node, label",
            "Telemetry Aware Scheduling",
            "sweeper",
            "cards and tiles that are not to be used: WORD is one of the four that follow. The value "
            f"`{keys.TAS_PCI_GROUP}` means the card's whole PCI group",
        ),
    ),
    "Cards of a pod, in the formats of Intel GPU Aware Scheduling": (
        KeyUse(
            (keys.OFFERED_CARDS_ANNOTATION,),
            "Node, annotation",
            "allocator",
            "sweeper",
            "each card's resource, and for how many containers it is offered; 0 while it is out of use",
        ),
        KeyUse(
            (keys.UNPLANNED_CARDS_ANNOTATION,),
            "Node, annotation",
            "allocator",
            "sweeper",
            "the cards of pods for which no plan chose any, by the pods' uids",
        ),
        KeyUse(
            (keys.IDENTIFIES_PODS_ANNOTATION,),
            "Node, annotation",
            "allocator",
            "sweeper",
            "the allocator knows for which pod the kubelet asks, so pods are "
            "[released at once](release-queue.md)",
            keys.IDENTIFIED,
        ),
        KeyUse(
            (keys.GAS_CARDS_ANNOTATION, keys.GAS_TILES_ANNOTATION, keys.GAS_TIMESTAMP_ANNOTATION),
            "pod, annotation",
            "sweeper, at release",
            "the node's device plugin or allocator",
            "the cards and tiles of each container, and the order of release",
        ),
        KeyUse(
            keys.CARD_REQUESTS,
            "pod, annotation",
            "user",
            "sweeper",
            "which cards the pod may have, and how they are to be linked",
        ),
    ),
    "GPUTasks": (
        KeyUse(
            (keys.FALLDIO_GPU,),
            "Node, label or resource",
            "operator, labeler",
            "task controller, policy",
            "a GPU model, or the number of GPUs",
        ),
        KeyUse(
            (keys.TASK_LABEL, keys.TASK_UID_LABEL, keys.TASK_ATTEMPT_LABEL, keys.TASK_CLASS_LABEL),
            "Job and pods, label",
            "task controller",
            "task controller",
            "the GPUTask, its uid, the attempt, and the PriorityClass",
        ),
    ),
    "Kubernetes' own": (
        KeyUse(
            (keys.NAMESPACE_NAME_LABEL,),
            "Namespace, label",
            "API server",
            "sweeper, admission policies",
            "namespace selectors of anti-affinity, and of the guards",
        ),
        KeyUse(
            (keys.MIRROR_POD_ANNOTATION,),
            "pod, annotation",
            "kubelet",
            "webhook",
            "mirror pods are left alone",
        ),
        KeyUse(
            (keys.INITIAL_EVENTS_END,),
            "bookmark of a watch",
            "API server",
            "all programs that watch",
            "the list that came as a stream is complete",
        ),
    ),
}
"""By the heading of their table."""
