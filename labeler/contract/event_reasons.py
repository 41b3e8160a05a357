"""Every reason of an Event that a program of topogate writes: its type and its meaning.

docs/operators/events.md and task-events.md are made from this.
"""

from enum import StrEnum


class EventSource(StrEnum):
    """Whose Events they are, and what they are about: a section of the page."""

    SWEEPER = "On pods and their owners, by the sweeper"
    NODE = "On nodes, by the sweeper and the labeler"
    ALLOCATOR = "On pods, by the allocator"
    TASKS = "On GPUTasks, by the task controller"


class EventReason(StrEnum):
    """A reason, with its source, whether it is a warning, and its meaning in a sentence."""

    source: EventSource
    is_warning: bool
    meaning: str

    def __new__(cls, value: str, source: EventSource, is_warning: bool, meaning: str) -> "EventReason":
        """A member is equal to its text, which is what an Event carries."""
        made = str.__new__(cls, value)
        made._value_ = value
        made.source, made.is_warning, made.meaning = source, is_warning, meaning
        return made

    @classmethod
    def named(cls, text: str) -> "EventReason":
        """The reason with that text. Raises KeyError."""
        return {each.value: each for each in cls}[text]

    GANG_PLACED = "GangPlaced", EventSource.SWEEPER, False, "The gang has a plan; its pods are released."
    GANG_WAITS = (
        "GangWaits",
        EventSource.SWEEPER,
        True,
        "The gang finds no place; the note names what is missing.",
    )
    MANIFEST_WARNING = (
        "ManifestWarning",
        EventSource.SWEEPER,
        True,
        "An annotation or a request of the gang contradicts itself or has no effect as it is written.",
    )
    LEFT_TO_KUBE_SCHEDULER = (
        "LeftToKubeScheduler",
        EventSource.SWEEPER,
        True,
        "A native gang is left to kube-scheduler: by the configuration, or as it is in a tree of groups.",
    )
    POD_GROUP_MISSING = (
        "PodGroupMissing",
        EventSource.SWEEPER,
        True,
        "The gang has a plan, and the PodGroup by which it is bound as one could not be created.",
    )
    GANG_PODS_NOT_GATED = (
        "GangPodsNotGated",
        EventSource.SWEEPER,
        True,
        "Pods of the gang were created without the gate; they stay on the nodes that kube-scheduler chose.",
    )
    PODS_NOT_GATED = (
        "PodsNotGated",
        EventSource.SWEEPER,
        True,
        "GPU pods were created without a gate in a namespace that has opted in.",
    )
    PRIORITY_NOT_SET = (
        "PriorityNotSet",
        EventSource.SWEEPER,
        True,
        "The tier of the pod has no effect, since the webhook did not see the pod.",
    )
    WAITING_FOR_RELEASE = (
        "WaitingForRelease",
        EventSource.SWEEPER,
        True,
        "The pod waits in the release queue of its node.",
    )
    RELEASE_DEFERRED = (
        "ReleaseDeferred",
        EventSource.SWEEPER,
        True,
        "The API server does not take the release now; it is tried again.",
    )
    RELEASE_REFUSED = "ReleaseRefused", EventSource.SWEEPER, True, "The API server refused the release."
    LABELS_DEFERRED = (
        "LabelsDeferred",
        EventSource.SWEEPER,
        True,
        "The API server does not take the model's labels of a pod that the webhook did not see; it is tried "
        "again.",
    )
    LABELS_REFUSED = (
        "LabelsRefused",
        EventSource.SWEEPER,
        True,
        "The API server refused the model's labels of a pod that the webhook did not see.",
    )
    EVICTION_DEFERRED = (
        "EvictionDeferred",
        EventSource.SWEEPER,
        True,
        "The API server refuses an eviction now, such as for a PodDisruptionBudget; it is tried again.",
    )
    EVICTION_REFUSED = "EvictionRefused", EventSource.SWEEPER, True, "The API server refused an eviction."
    PREEMPTED = (
        "Preempted",
        EventSource.SWEEPER,
        True,
        "The pod is evicted for a gang of higher priority.",
    )
    GANG_MOVED = (
        "GangMoved",
        EventSource.SWEEPER,
        False,
        "The gang is evicted as a whole, to be placed elsewhere, so that a larger one fits. Both have this.",
    )
    EVICTED = (
        "Evicted",
        EventSource.SWEEPER,
        True,
        "The pod is evicted, since others of its gang have lost their nodes.",
    )
    NOT_EVICTED = (
        "NotEvicted",
        EventSource.SWEEPER,
        True,
        "A gang of which only a part runs keeps its nodes; the note says why.",
    )
    NOT_SCHEDULED = (
        "NotScheduled",
        EventSource.SWEEPER,
        True,
        "A released pod did not start; the note says what happens to it.",
    )
    NOT_REPAIRED = (
        "NotRepaired",
        EventSource.SWEEPER,
        True,
        "A released pod did not start, and cannot be deleted to be placed again.",
    )
    NOT_ROLLED_BACK = (
        "NotRolledBack",
        EventSource.SWEEPER,
        True,
        "Only a part of the gang is released, and it cannot be taken back.",
    )
    NODES_REQUESTED = "NodesRequested", EventSource.SWEEPER, False, "An autoscaler was asked for nodes."
    NODES_PROVIDED = "NodesProvided", EventSource.SWEEPER, False, "The autoscaler has created the nodes."
    NODES_DELAYED = "NodesDelayed", EventSource.SWEEPER, True, "The autoscaler tries again later."
    NODES_REFUSED = "NodesRefused", EventSource.SWEEPER, True, "The request for nodes failed."
    NODES_EXPIRED = "NodesExpired", EventSource.SWEEPER, True, "The request for nodes expired."
    NODES_REVOKED = "NodesRevoked", EventSource.SWEEPER, True, "The request for nodes was revoked."

    NODE_AVOIDED = (
        "NodeAvoided",
        EventSource.NODE,
        True,
        "Pods of several gangs failed there, so gangs avoid the node.",
    )
    NODE_RECOVERED = "NodeRecovered", EventSource.NODE, False, "Gangs use the node again."
    LABEL_CONTESTED = (
        "LabelContested",
        EventSource.NODE,
        True,
        "Another writer keeps changing a label of the labeler.",
    )

    CARDS_REFUSED = (
        "CardsRefused",
        EventSource.ALLOCATOR,
        True,
        "A container gets no cards; the note says why.",
    )
    CARDS_BY_DEFAULT = (
        "CardsByDefault",
        EventSource.ALLOCATOR,
        True,
        "No plan names cards for the container, so it gets any.",
    )
    CARDS_GUESSED = (
        "CardsGuessed",
        EventSource.ALLOCATOR,
        True,
        "The kubelet may ask for one of several pods; the oldest gets the cards.",
    )

    STARTED = "Started", EventSource.TASKS, False, "The Job was created."
    PENDING = "Pending", EventSource.TASKS, False, "The task waits again."
    WAITING = "Waiting", EventSource.TASKS, False, "The pods of the task wait for a place."
    RUNNING = "Running", EventSource.TASKS, False, "All workers of the task run."
    SUSPENDED = "Suspended", EventSource.TASKS, False, "The task is suspended."
    SUCCEEDED = "Succeeded", EventSource.TASKS, False, "The task has succeeded."
    FAILED = "Failed", EventSource.TASKS, True, "The task failed; the note says why."
    INVALID = "Invalid", EventSource.TASKS, True, "The specification cannot be read."
    INVALID_REQUEST = "InvalidRequest", EventSource.TASKS, True, "The specification contradicts itself."
    UNKNOWN_MODEL = "UnknownModel", EventSource.TASKS, True, "The policy has no such GPU model."
    MODEL_CONTRADICTED = (
        "ModelContradicted",
        EventSource.TASKS,
        True,
        "The GPU model contradicts the pod template.",
    )
    NO_RESOURCE = (
        "NoResource",
        EventSource.TASKS,
        True,
        "The policy has no resource by which a pod could ask for this GPU model.",
    )
    UNKNOWN_PRIORITY = "UnknownPriority", EventSource.TASKS, True, "The policy has no such tier."
    PRIORITY_ABOVE_MAXIMUM = (
        "PriorityAboveMaximum",
        EventSource.TASKS,
        True,
        "The tier is above the maximum of the namespace.",
    )
    NO_PRIORITY_CLASS = (
        "NoPriorityClass",
        EventSource.TASKS,
        True,
        "The tier's PriorityClass is missing.",
    )
    TEMPLATE_REFUSED = (
        "TemplateRefused",
        EventSource.TASKS,
        True,
        "The template asks for something outside its pod, such as a host path.",
    )
    JOB_REFUSED = "JobRefused", EventSource.TASKS, True, "The API server refuses the Job."
    JOB_NAME_TAKEN = (
        "JobNameTaken",
        EventSource.TASKS,
        True,
        "A Job of that name exists and is not the task's.",
    )
    JOB_UNLABELLED = (
        "JobUnlabelled",
        EventSource.TASKS,
        True,
        "The task's Job exists without the labels of the task.",
    )
