"""How workload controllers mark their pods: which pods are one gang, how many they are, and their order.

The keys of other projects that topogate reads. A key that topogate itself, or the node's side, writes belongs
to labeler.contract. This module knows nothing of the webhook's side, so that the decoder of objects can ask
it which annotations to keep.
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
REPLICATED_JOB_LABEL: Final = "jobset.sigs.k8s.io/replicatedjob-name"

GANG_LABELS: Final = (
    # (kind for people, key of the name, key of what tells two of that name apart)
    ("JobSet", JOBSET_NAME_LABEL, "jobset.sigs.k8s.io/jobset-uid"),
    ("LeaderWorkerSet", LEADER_WORKER_SET_NAME_LABEL, LEADER_WORKER_SET_GROUP_LABEL),
    ("PodGroup", KUEUE_GROUP_LABEL, KUEUE_GROUP_LABEL),
    ("PodGroup", COSCHEDULING_GROUP_LABEL, COSCHEDULING_GROUP_LABEL),
    ("PodGroup", VOLCANO_GROUP_LABEL, VOLCANO_GROUP_LABEL),
    ("PodGroup", "scheduling.k8s.io/group-name", "scheduling.k8s.io/group-name"),
    ("TrainingJob", TRAINING_JOB_NAME_LABEL, TRAINING_JOB_NAME_LABEL),
    ("RayCluster", "ray.io/cluster", "ray.io/cluster"),
    ("Job", JOB_NAME_LABEL, "batch.kubernetes.io/controller-uid"),
    ("Job", LEGACY_JOB_NAME_LABEL, "controller-uid"),
)
"""Labels or annotations, outermost owner first: a JobSet's pods carry their child Job's labels as well."""

SURVIVES_LOST_PODS: Final = frozenset({"RayCluster"})
"""Kinds of gangs that go on with fewer pods, while their controller makes each lost one again by itself."""

GANG_KEYS: Final = frozenset(key for _, *two in GANG_LABELS for key in two)
"""All that tell a gang's name or which of that name it is."""

CPU_POD_LABELS: Final = (
    JOBSET_NAME_LABEL,
    LEADER_WORKER_SET_NAME_LABEL,
    TRAINING_JOB_NAME_LABEL,
    KUEUE_GROUP_LABEL,
    COSCHEDULING_GROUP_LABEL,
    VOLCANO_GROUP_LABEL,
)
"""Labels of gangs whose pods may be of several templates: one without GPUs may stand beside others with some.
Not those of a Job, whose pods are alike, nor of a RayCluster, whose head may have to ask for its workers."""

GANG_SIZE_KEYS: Final = (
    keys.GANG_SIZE_ANNOTATION,
    "leaderworkerset.sigs.k8s.io/size",
    "kueue.x-k8s.io/pod-group-total-count",
)
"""Annotations that say how many pods a gang has; the first that is there counts."""

# --- ranks and roles ----------------------------------------------------------------------------------

JOB_INDEX_KEY: Final = "batch.kubernetes.io/job-completion-index"
"""Rank of an indexed Job's pod; both an annotation and, since Kubernetes 1.28, a label."""

JOB_GLOBAL_INDEX: Final = "jobset.sigs.k8s.io/job-global-index"
"""The number of a Job among all Jobs of its JobSet."""

JOBS_OF_JOBSET: Final = "jobset.sigs.k8s.io/global-replicas"
"""How many Jobs its JobSet has in all."""

SUBGROUP_INDEX: Final = "leaderworkerset.sigs.k8s.io/subgroup-index"
"""The number of a LeaderWorkerSet's subgroup within its group."""

RAY_NODE_TYPE: Final = "ray.io/node-type"
RAY_HEAD: Final = "head"
"""The node type of the pod that leads a RayCluster."""
RAY_GROUP: Final = "ray.io/group"
REPLICA_TYPE: Final = "training.kubeflow.org/replica-type"
JOB_ROLE: Final = "training.kubeflow.org/job-role"
TASK_SPEC: Final = "volcano.sh/task-spec"
WORKER_INDEX: Final = "leaderworkerset.sigs.k8s.io/worker-index"
"""The number of a pod within its LeaderWorkerSet's group; the leader has 0."""

RANK_KEYS: Final[tuple[tuple[tuple[str, ...], tuple[str, ...]], ...]] = (
    # (keys of what the pod is for, where each role or group has a numbering of its own; keys of its numbers)
    ((), (JOB_GLOBAL_INDEX, JOB_INDEX_KEY)),
    ((), (JOB_INDEX_KEY,)),
    ((), (WORKER_INDEX,)),
    ((), ("kueue.x-k8s.io/pod-group-pod-index",)),
    ((REPLICA_TYPE,), ("training.kubeflow.org/replica-index",)),
    (
        (RAY_NODE_TYPE, RAY_GROUP),
        ("ray.io/worker-group-replica-index", "ray.io/replica-host-index"),
    ),
    ((RAY_NODE_TYPE, RAY_GROUP), ("ray.io/replica-host-index",)),
    ((TASK_SPEC,), ("volcano.sh/task-index",)),
    ((), ("apps.kubernetes.io/pod-index",)),
)
"""Labels or annotations that number the pods of a gang; several together count from the outside in. The
first entry counts of which all numbers are there."""

ROLE_KEYS: Final = (REPLICATED_JOB_LABEL, REPLICA_TYPE, JOB_ROLE, TASK_SPEC)
"""Labels or annotations whose value is what the users of a gang call pods that do the same."""

LEADER_KEYS: Final = (REPLICA_TYPE, JOB_ROLE, RAY_NODE_TYPE, TASK_SPEC)
"""Labels or annotations that tell a leader: there is one, and some controllers do not number it."""

LEADER_ROLES: Final = ("master", "chief", "launcher", "head")
ROLES: Final = (*LEADER_ROLES, "ps", "evaluator", "worker")
"""Roles in the order of rank: master, chief and launcher have rank 0 of their framework. Letter case does not
matter; roles that are not listed come last, by name."""

# --- what decides how a controller goes on ------------------------------------------------------------

JOB_INDEX_FAILURES_ANNOTATION: Final = "batch.kubernetes.io/job-index-failure-count"
"""Written by the Job controller where each index has a limit of its own."""

REVISION_LABEL: Final = "controller-revision-hash"
"""By which revision of its template a StatefulSet has made a pod."""

JOBSET_EXCLUSIVE: Final = "alpha.jobset.sigs.k8s.io/exclusive-topology"
JOBSET_NODE_SELECTOR: Final = "alpha.jobset.sigs.k8s.io/node-selector"
LWS_EXCLUSIVE: Final = "leaderworkerset.sigs.k8s.io/exclusive-topology"
LWS_SUBGROUP_EXCLUSIVE: Final = "leaderworkerset.sigs.k8s.io/subgroup-exclusive-topology"
"""Annotations that name a node label: each Job, group or subgroup wants a domain of it to itself. By the
first and the third, controllers make some pods only after a leader has a node, unless (the second) the nodes
are labelled beforehand."""

EXCLUSIVE_LABELS: Final = (
    "jobset.sigs.k8s.io/job-key",
    "leaderworkerset.sigs.k8s.io/group-key",
    "leaderworkerset.sigs.k8s.io/subgroup-key",
)
"""By which the affinity that those controllers' webhooks write finds whom to keep out of such a domain: also
pods of Jobs and groups that want none themselves."""

# --- topology of other schedulers ---------------------------------------------------------------------

KUEUE_TOPOLOGY_GATE: Final = "kueue.x-k8s.io/topology"
KUEUE_ADMISSION_GATE: Final = "kueue.x-k8s.io/admission"
"""Gates of Kueue: until it has said the nodes that it chose, and until it has admitted a plain pod."""

KUEUE_LABELS: Final = frozenset({"kueue.x-k8s.io/managed", "kueue.x-k8s.io/podset"})
"""On pods that Kueue admits: on plain ones, and on those of workloads that it has started."""
VOLCANO_TOPOLOGY: Final = "volcano.sh/network-topology-"
VOLCANO_TOPOLOGY_MODE: Final = VOLCANO_TOPOLOGY + "mode"
"""hard, or soft: then it says what our preferred topology says."""
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
"""Annotations of Kueue, KAI and Volcano, each with ours that says the same. The values of Kueue's and KAI's
are node labels, which ours take too; Volcano's are numbers of its own tiers."""

# --- requests for nodes -------------------------------------------------------------------------------

CONSUMED_REQUEST: Final = "autoscaling.x-k8s.io/consume-provisioning-request"
PROVISIONING_CLASS: Final = "autoscaling.x-k8s.io/provisioning-class-name"
"""On a pod, for autoscalers: by which ProvisioningRequest its node was asked for, and the class of that."""

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
