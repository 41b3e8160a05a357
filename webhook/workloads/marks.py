"""Keys of workload controllers on their pods: the gang of a pod, its size, and the order of its pods.

These are the keys of other projects that topogate reads. Keys that topogate or its programs on nodes write
are in labeler.contract. This module imports nothing of the webhook, so that the decoder of objects can import
it.
"""

from typing import Final

from labeler.contract import keys

# --- gangs --------------------------------------------------------------------------------------------

JOB_NAME_LABEL: Final = "batch.kubernetes.io/job-name"
LEGACY_JOB_NAME_LABEL: Final = "job-name"
JOBSET_NAME_LABEL: Final = "jobset.sigs.k8s.io/jobset-name"
LEADER_WORKER_SET_NAME_LABEL: Final = "leaderworkerset.sigs.k8s.io/name"
LEADER_WORKER_SET_GROUP_LABEL: Final = "leaderworkerset.sigs.k8s.io/group-key"
TRAINING_JOB_NAME_LABEL: Final = "training.kubeflow.org/job-name"
KUEUE_GROUP_LABEL: Final = "kueue.x-k8s.io/pod-group-name"
COSCHEDULING_GROUP_LABEL: Final = "scheduling.x-k8s.io/pod-group"
VOLCANO_GROUP_LABEL: Final = "scheduling.volcano.sh/group-name"
RAY_CLUSTER_LABEL: Final = "ray.io/cluster"
REPLICATED_JOB_LABEL: Final = "jobset.sigs.k8s.io/replicatedjob-name"

GANG_LABELS: Final[tuple[tuple[str, str, str], ...]] = (
    # (displayed kind, key of the name, key of an id that is unique among gangs of this name)
    ("JobSet", JOBSET_NAME_LABEL, "jobset.sigs.k8s.io/jobset-uid"),
    ("LeaderWorkerSet", LEADER_WORKER_SET_NAME_LABEL, LEADER_WORKER_SET_GROUP_LABEL),
    ("PodGroup", KUEUE_GROUP_LABEL, KUEUE_GROUP_LABEL),
    ("PodGroup", COSCHEDULING_GROUP_LABEL, COSCHEDULING_GROUP_LABEL),
    ("PodGroup", VOLCANO_GROUP_LABEL, VOLCANO_GROUP_LABEL),
    ("PodGroup", "scheduling.k8s.io/group-name", "scheduling.k8s.io/group-name"),
    ("TrainingJob", TRAINING_JOB_NAME_LABEL, TRAINING_JOB_NAME_LABEL),
    ("RayCluster", RAY_CLUSTER_LABEL, RAY_CLUSTER_LABEL),
    ("Job", JOB_NAME_LABEL, "batch.kubernetes.io/controller-uid"),
    ("Job", LEGACY_JOB_NAME_LABEL, "controller-uid"),
)
"""Labels or annotations, outermost owner first: a JobSet's pods also have their Job's labels."""

CONTROLLER_LABELS: Final = tuple(each for each in GANG_LABELS if each[0] != "PodGroup")
"""Those that the controller of a pod writes itself; others, such as Kueue, put pods into PodGroups."""

JOB_LABELS: Final = tuple(each for each in GANG_LABELS if each[0] == "Job")
"""Those of the Job controller, which writes the uid of the Job beside its name."""

SURVIVES_LOST_PODS: Final = frozenset({"RayCluster"})
"""Kinds of gangs that run on with fewer pods; their controller recreates each lost pod by itself."""

GANG_KEYS: Final = frozenset(key for _, *two in GANG_LABELS for key in two)
"""All keys of a gang's name or id."""

CPU_POD_LABELS: Final = (
    JOBSET_NAME_LABEL,
    LEADER_WORKER_SET_NAME_LABEL,
    TRAINING_JOB_NAME_LABEL,
    KUEUE_GROUP_LABEL,
    COSCHEDULING_GROUP_LABEL,
    VOLCANO_GROUP_LABEL,
)
"""Labels of gangs with several templates, where a pod without GPUs may accompany pods with GPUs. A Job has
only one template. The head of a RayCluster may have to request its workers first."""

GANG_SIZE_KEYS: Final = (
    keys.GANG_SIZE_ANNOTATION,
    "leaderworkerset.sigs.k8s.io/size",
    "kueue.x-k8s.io/pod-group-total-count",
)
"""Annotations with the number of pods of a gang; the first one present counts."""

# --- ranks and roles ----------------------------------------------------------------------------------

JOB_INDEX_KEY: Final = "batch.kubernetes.io/job-completion-index"
"""Rank of an indexed Job's pod: an annotation and, since Kubernetes 1.28, also a label."""

JOB_GLOBAL_INDEX: Final = "jobset.sigs.k8s.io/job-global-index"
"""The number of a Job among all Jobs of its JobSet."""

JOBS_OF_JOBSET: Final = "jobset.sigs.k8s.io/global-replicas"
"""How many Jobs the JobSet of a pod has."""

SUBGROUP_INDEX: Final = "leaderworkerset.sigs.k8s.io/subgroup-index"
"""The number of a LeaderWorkerSet's subgroup within its group."""

RAY_NODE_TYPE: Final = "ray.io/node-type"
RAY_HEAD: Final = "head"
"""The node type of the pod that leads a RayCluster."""
RAY_GROUP: Final = "ray.io/group"
REPLICA_TYPE: Final = "training.kubeflow.org/replica-type"
REPLICA_INDEX: Final = "training.kubeflow.org/replica-index"
JOB_ROLE: Final = "training.kubeflow.org/job-role"
TASK_SPEC: Final = "volcano.sh/task-spec"
WORKER_INDEX: Final = "leaderworkerset.sigs.k8s.io/worker-index"
"""The number of a pod within its LeaderWorkerSet's group; the leader has 0."""
STATEFUL_SET_INDEX: Final = "apps.kubernetes.io/pod-index"
PODCLIQUE_INDEX: Final = "grove.io/podclique-pod-index"

RANK_KEYS: Final[tuple[tuple[tuple[str, ...], tuple[str, ...]], ...]] = (
    # (keys of the role, if each role or group numbers its own pods; keys of the numbers)
    ((), (JOB_GLOBAL_INDEX, JOB_INDEX_KEY)),
    ((), (JOB_INDEX_KEY,)),
    ((), (WORKER_INDEX,)),
    ((), ("kueue.x-k8s.io/pod-group-pod-index",)),
    ((REPLICA_TYPE,), (REPLICA_INDEX,)),
    (
        (RAY_NODE_TYPE, RAY_GROUP),
        ("ray.io/worker-group-replica-index", "ray.io/replica-host-index"),
    ),
    ((RAY_NODE_TYPE, RAY_GROUP), ("ray.io/replica-host-index",)),
    ((TASK_SPEC,), ("volcano.sh/task-index",)),
    ((), (PODCLIQUE_INDEX,)),
    ((), (STATEFUL_SET_INDEX,)),
)
"""Labels or annotations that number the pods of a gang, the outermost number first. The first entry whose
numbers are all present counts."""

ROLE_KEYS: Final = (REPLICATED_JOB_LABEL, REPLICA_TYPE, JOB_ROLE, TASK_SPEC)
"""Labels or annotations whose value is the role of a pod, as users name it."""

LEADER_KEYS: Final = (REPLICA_TYPE, JOB_ROLE, RAY_NODE_TYPE, TASK_SPEC)
"""Labels or annotations that mark a leader: a gang has one, and some controllers do not number it."""

LEADER_ROLES: Final = ("master", "chief", "launcher", "head")
ROLES: Final = (*LEADER_ROLES, "ps", "evaluator", "worker")
"""Roles in the order of rank: master, chief and launcher have rank 0 in their frameworks. Letter case does
not matter; unlisted roles come last, by name."""

# --- behaviour of controllers -------------------------------------------------------------------------

JOB_INDEX_FAILURES_ANNOTATION: Final = "batch.kubernetes.io/job-index-failure-count"
"""Written by the Job controller if each index has its own backoff limit."""

OPERATED: Final[tuple[tuple[str, str, str], ...]] = (
    # (shown kind, key of the owner's name, key that only the operator writes on the pods that it creates)
    ("TrainingJob", TRAINING_JOB_NAME_LABEL, "training.kubeflow.org/operator-name"),
    ("RayCluster", RAY_CLUSTER_LABEL, "ray.io/is-ray-node"),
)
"""Operators that create each of their pods with an owner. Pods of other programs may have the name alone."""

STATEFUL_SET_POD_LABEL: Final = "statefulset.kubernetes.io/pod-name"
"""The name of a pod of a StatefulSet."""

REVISION_LABEL: Final = "controller-revision-hash"
"""The revision of the StatefulSet's template that a pod was created from."""

JOBSET_EXCLUSIVE: Final = "alpha.jobset.sigs.k8s.io/exclusive-topology"
JOBSET_NODE_SELECTOR: Final = "alpha.jobset.sigs.k8s.io/node-selector"
LWS_EXCLUSIVE: Final = "leaderworkerset.sigs.k8s.io/exclusive-topology"
LWS_SUBGROUP_EXCLUSIVE: Final = "leaderworkerset.sigs.k8s.io/subgroup-exclusive-topology"
"""Annotations for exclusive topology. Their value is a node label: each Job, group or subgroup gets a domain
of it to itself. With JOBSET_EXCLUSIVE or LWS_EXCLUSIVE, controllers create followers once their leader has a
node. With JOBSET_NODE_SELECTOR, the nodes are labelled beforehand and followers do not wait."""

EXCLUSIVE_LABELS: Final = (
    "jobset.sigs.k8s.io/job-key",
    "leaderworkerset.sigs.k8s.io/group-key",
    "leaderworkerset.sigs.k8s.io/subgroup-key",
)
"""Labels in the anti-affinity that these controllers' webhooks write. It excludes all other pods with them
from such a domain, also pods of Jobs and groups without exclusive topology."""

# --- topology of other schedulers ---------------------------------------------------------------------

KUEUE_TOPOLOGY_GATE: Final = "kueue.x-k8s.io/topology"
KUEUE_ADMISSION_GATE: Final = "kueue.x-k8s.io/admission"
"""Gates of Kueue: until it has written its choice of nodes, and until it has admitted a plain pod."""

KUEUE_LABELS: Final = frozenset({"kueue.x-k8s.io/managed", "kueue.x-k8s.io/podset"})
"""Labels of pods that Kueue admits: of plain pods, and of pods of workloads that it has started."""
VOLCANO_TOPOLOGY: Final = "volcano.sh/network-topology-"
VOLCANO_TOPOLOGY_MODE: Final = VOLCANO_TOPOLOGY + "mode"
"""hard, or soft, which corresponds to our preferred topology."""
TOPOLOGY_REQUESTS: Final = {
    "kueue.x-k8s.io/podset-required-topology": keys.REQUIRED_TOPOLOGY_ANNOTATION,
    "kueue.x-k8s.io/podset-preferred-topology": keys.PREFERRED_TOPOLOGY_ANNOTATION,
    "kueue.x-k8s.io/podset-slice-required-topology": keys.SLICE_TOPOLOGY_ANNOTATION,
    "kueue.x-k8s.io/podset-slice-required-topology-constraints": keys.SLICE_TOPOLOGY_ANNOTATION,
    "kueue.x-k8s.io/podset-slice-size": keys.SLICE_SIZE_ANNOTATION,
    "kai.scheduler/topology-required-placement": keys.REQUIRED_TOPOLOGY_ANNOTATION,
    "kai.scheduler/topology-preferred-placement": keys.PREFERRED_TOPOLOGY_ANNOTATION,
    VOLCANO_TOPOLOGY_MODE: keys.REQUIRED_TOPOLOGY_ANNOTATION,
    VOLCANO_TOPOLOGY + "highest-tier": keys.REQUIRED_TOPOLOGY_ANNOTATION,
}
"""Annotations of Kueue, KAI and Volcano, each with topogate's equivalent. The values of Kueue and KAI are
node labels, as for topogate; Volcano's are numbers of its own tiers."""

# --- requests for nodes -------------------------------------------------------------------------------

CONSUMED_REQUEST: Final = "autoscaling.x-k8s.io/consume-provisioning-request"
PROVISIONING_CLASS: Final = "autoscaling.x-k8s.io/provisioning-class-name"
"""On a pod, for autoscalers: the ProvisioningRequest that requested its node, and the class of the
request."""

ALL: Final = frozenset(
    {
        JOB_INDEX_FAILURES_ANNOTATION,
        JOBSET_EXCLUSIVE,
        JOBSET_NODE_SELECTOR,
        JOBS_OF_JOBSET,
        LWS_EXCLUSIVE,
        LWS_SUBGROUP_EXCLUSIVE,
        *GANG_SIZE_KEYS,
        *LEADER_KEYS,
        *GANG_KEYS,
        *(key for roles, numbers in RANK_KEYS for key in (*roles, *numbers)),
    }
)
"""All of these that may be annotations."""
