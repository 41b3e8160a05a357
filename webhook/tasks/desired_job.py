"""The Job for a GPUTask. Pure.

The Job does not depend on the webhook: its pods have class, selector and gate, and also the annotations from
which admission would derive the same.
"""

import copy
import hashlib
from collections.abc import Mapping, Set
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from labeler.contract import keys
from labeler.contract.event_reasons import EventReason
from webhook.kube.affinity import Affinity
from webhook.kube.objects import PodSpec, PriorityClass
from webhook.placement import Term
from webhook.policy import annotations
from webhook.policy.values import GpuModel, Policy, Tier
from webhook.scheduling.convert import node_rules
from webhook.tasks import spellings
from webhook.tasks.spellings import SpellingError
from webhook.tasks.task_objects import GROUP_VERSION, KIND, NEVER, Task
from webhook.tasks.template import first_fault
from webhook.tasks.workers import Resources, equip
from webhook.text import LONGEST_LABEL_VALUE, quote, sentence_list

DEFAULT_IMAGE: Final = "busybox:stable"
DEFAULT_COMMAND: Final = ("sleep", "infinity")
CONTAINER: Final = "task"
_DIGEST: Final = 10
_NON_ROOT_UID: Final = 65532
"""The user of the default image where root is not allowed: waiting needs no rights."""

_IGNORE_DISRUPTION: Final = {
    "action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}],
}  # fmt: skip
"""A pod that was preempted or evicted has not failed."""

_PATTERN: Final = frozenset("*?[")


class RefusedError(Exception):
    """No Job can be created for a task: `reason` in one word, the text for its author."""

    def __init__(self, reason: EventReason, message: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True)
class TaskRules:
    """What applies to all tasks.

    classes: the cluster's PriorityClasses by name. default_image: for a task that names neither image nor
    template; it runs default_command. restricted: namespaces where the API server accepts no pod that may run
    as root.
    """

    policy: Policy
    classes: Mapping[str, PriorityClass]
    default_image: str = DEFAULT_IMAGE
    default_command: tuple[str, ...] = DEFAULT_COMMAND
    restricted: Set[str] = frozenset()


def job_wanted(task: Task, rules: TaskRules) -> dict[str, Any]:
    """The Job, as it is created. Raises RefusedError."""
    policy = rules.policy
    template = _written_template(task, rules)
    tier = _tier(task, template, policy)
    class_name = _class_name(tier, rules)
    model, resource = _model(task, template, policy)
    _add_annotations(template, _requested(task, tier, model))
    try:
        resources = _resources(task, resource)
    except SpellingError as error:
        raise RefusedError(EventReason.INVALID, str(error)) from None
    labels = model.labels if model is not None else {}
    template = _template(task, template, policy, class_name, labels, resources)
    _check_annotations(template["metadata"]["annotations"], task.spec.workers, policy)
    metadata = _job_metadata(task, class_name)
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": _job_spec(task, template)}


def _job_metadata(task: Task, class_name: str) -> dict[str, Any]:
    return {
        "name": task.metadata.name,
        "namespace": task.metadata.namespace,
        "labels": {
            keys.TASK_LABEL: task.metadata.name,
            keys.TASK_UID_LABEL: task.metadata.uid,
            keys.TASK_ATTEMPT_LABEL: str(task.spec.attempt),
            keys.TASK_CLASS_LABEL: as_label(class_name),
        },
        "ownerReferences": [_owner_reference(task)],
    }


def _job_spec(task: Task, template: Mapping[str, Any]) -> dict[str, Any]:
    spec = task.spec
    job = {
        "parallelism": spec.workers,
        "completions": spec.workers,
        "completionMode": "Indexed",
        "suspend": spec.suspend,
        "template": template,
    }
    if spec.backoff_limit is not None:
        job["backoffLimit"] = spec.backoff_limit
    if spec.active_deadline_seconds is not None:
        job["activeDeadlineSeconds"] = spec.active_deadline_seconds
    if template["spec"]["restartPolicy"] == NEVER:
        job["podFailurePolicy"] = {"rules": [_IGNORE_DISRUPTION]}
    return job


def _owner_reference(task: Task) -> dict[str, Any]:
    """The owner reference that makes the task the controller of its Job."""
    owner = {"apiVersion": GROUP_VERSION, "kind": KIND, "name": task.metadata.name, "uid": task.metadata.uid}
    return {**owner, "controller": True, "blockOwnerDeletion": True}


def _check_annotations(written: Mapping[str, str], workers: int, policy: Policy) -> None:
    """Refuse what admission only warns of: a task reports why it waits. Raises RefusedError."""
    found = [
        *annotations.faults(written, policy.topology_levels),
        *annotations.size_faults(written, workers),
        *annotations.slice_faults(written, workers),
    ]
    if found:
        raise RefusedError(EventReason.INVALID_REQUEST, "; ".join(found))


def as_label(name: str) -> str:
    """The name of an object as a label's value: itself, or if it is too long, its beginning and a hash."""
    if len(name) <= LONGEST_LABEL_VALUE:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:_DIGEST]
    return f"{name[: LONGEST_LABEL_VALUE - _DIGEST - 1]}_{digest}"


# --- priority and model -------------------------------------------------------------------------------


def _asked(field: str, value: str, template: Mapping[str, Any], key: str) -> tuple[str, str | None]:
    """The field of the task, else the annotation of its template, and what it asks for, None for nothing."""
    written = None if value else _annotations_of(template).get(key)
    return (field, value or None) if written is None else (key, written)


def _tier(task: Task, template: Mapping[str, Any], policy: Policy) -> Tier | None:
    """That of the task, else that of its template, else the namespace's default. Raises RefusedError."""
    namespace = task.metadata.namespace
    field, name = _asked("priority", task.spec.priority, template, keys.PRIORITY_ANNOTATION)
    if name is None:
        name = policy.rules(namespace).default_tier if _is_gated(task, template, policy) else ""
    if field == "priority" and not name:
        return None
    tier = policy.tier(name) or (policy.tier_of_class(name) if field == "priority" else None)
    if tier is None:
        raise RefusedError(EventReason.UNKNOWN_PRIORITY, f"{field}: {policy.no_tier(name, namespace)}")
    if tier.name not in policy.allowed_tiers(namespace):
        above = policy.above_maximum(f"{field}: tier {tier.name}", namespace)
        raise RefusedError(EventReason.PRIORITY_ABOVE_MAXIMUM, above)
    return tier


def _class_name(tier: Tier | None, rules: TaskRules) -> str:
    """The PriorityClass of a task's pods, "" for the cluster's default. Raises RefusedError."""
    if tier is None:
        return ""
    if tier.priority_class_name not in rules.classes:
        raise RefusedError(
            EventReason.NO_PRIORITY_CLASS,
            f"priority {tier.name} needs the PriorityClass {tier.priority_class_name}, which does not "
            "exist; ask the operator to install it, or choose another priority",
        )
    return tier.priority_class_name


def _model(task: Task, template: Mapping[str, Any], policy: Policy) -> tuple[GpuModel | None, str]:
    """The model, by the same order as the tier, and the GPU resource to ask for. Raises RefusedError."""
    field, name = _asked("gpu", task.spec.gpu, template, keys.GPU_MODEL_ANNOTATION)
    selector = template["spec"].get("nodeSelector") or {}
    if name is None:
        default = policy.gpu_model(policy.rules(task.metadata.namespace).default_gpu_model)
        resource = _gpu_resource(default, policy)
        if default is None or not default.can_serve([resource], selector, _required_terms(template)):
            return None, _gpu_resource(None, policy)
        return default if _is_gated(task, template, policy) else None, resource
    model = policy.gpu_model(name)
    if model is None:
        raise RefusedError(EventReason.UNKNOWN_MODEL, f"{field}: {policy.no_model(name)}")
    written = _annotations_of(template).get(keys.GPU_MODEL_ANNOTATION, name)
    if policy.gpu_model(written) is not model:
        raise _contradiction(field, name, keys.GPU_MODEL_ANNOTATION, written)
    resource = _gpu_resource(model, policy)
    _, sentence = model.obstacle([resource], selector)
    if sentence:
        raise RefusedError(EventReason.MODEL_CONTRADICTED, sentence)
    return model, resource


def _required_terms(template: Mapping[str, Any]) -> tuple[Term, ...]:
    """Of its required node affinity; none if it cannot be read, as the API server refuses the Job then."""
    try:
        affinity = msgspec.convert(template["spec"].get("affinity"), Affinity | None)
    except msgspec.ValidationError:
        return ()
    return node_rules(PodSpec(affinity=affinity)).affinity or ()


def _gpu_resource(model: GpuModel | None, policy: Policy) -> str:
    """The first GPU resource with a name that a task may ask for. Raises RefusedError."""
    offered = model.resources if model is not None and model.resources else policy.gpu_resources
    plain = [name for name in offered if _PATTERN.isdisjoint(name)]
    if not plain:
        raise RefusedError(
            EventReason.NO_RESOURCE,
            f"the GPU resource is unknown: the configuration has only patterns ({sentence_list(offered)}); "
            "ask the operator to name one",
        )
    return plain[0]


def _resources(task: Task, gpu_resource: str) -> Resources:
    """Requests and limits of the first container. Raises SpellingError."""
    requests, limits = {}, {}
    if task.spec.cpu is not None:
        requests["cpu"] = spellings.cpu(task.spec.cpu)
    if task.spec.memory is not None:
        requests["memory"] = limits["memory"] = spellings.memory(task.spec.memory)
    limits[gpu_resource] = requests[gpu_resource] = str(spellings.gpus(task.spec.gpu_amount))
    return requests, limits


# --- annotations --------------------------------------------------------------------------------------


def _annotations_of(template: Mapping[str, Any]) -> dict[str, str]:
    return (template.get("metadata") or {}).get("annotations") or {}


def _requested(task: Task, tier: Tier | None, model: GpuModel | None) -> dict[str, tuple[str, str]]:
    """The task's requests as annotations, "" for none, each with the field of the task."""
    topology = task.spec.topology
    return {
        keys.GPU_MODEL_ANNOTATION: ("gpu", model.name if model is not None else ""),
        keys.PRIORITY_ANNOTATION: ("priority", tier.name if tier is not None else ""),
        keys.REQUIRED_TOPOLOGY_ANNOTATION: ("topology.required", topology.required),
        keys.PREFERRED_TOPOLOGY_ANNOTATION: ("topology.preferred", topology.preferred),
        keys.SLICE_TOPOLOGY_ANNOTATION: ("topology.slice", topology.slice),
        keys.SLICE_SIZE_ANNOTATION: ("topology.sliceSize", str(topology.slice_size or "")),
    }


def _add_annotations(template: dict[str, Any], requested: Mapping[str, tuple[str, str]]) -> None:
    """Add them to the author's, which must not contradict them. Raises RefusedError."""
    written = _annotations_of(template)
    for key, (field, value) in requested.items():
        # A model has several spellings, which _model has compared.
        if value and key != keys.GPU_MODEL_ANNOTATION and written.get(key, value) != value:
            raise _contradiction(field, value, key, written[key])
    added = {key: value for key, (_, value) in requested.items() if value}
    template["metadata"] = {**(template.get("metadata") or {}), "annotations": {**written, **added}}


def _contradiction(field: str, value: str, key: str, written: str) -> RefusedError:
    there = f"the template has {key}: {quote(written)}"
    sentence = f"{field} is {quote(value)}, but {there}; remove one of the two"
    return RefusedError(EventReason.INVALID_REQUEST, sentence)


# --- the pods -----------------------------------------------------------------------------------------


def _template(
    task: Task,
    template: Mapping[str, Any],
    policy: Policy,
    class_name: str,
    labels: Mapping[str, str],
    resources: Resources,
) -> dict[str, Any]:
    """The template of the Job. template: with all annotations; its spec is changed. labels: of the nodes."""
    written, spec = template["metadata"], template["spec"]
    own = {keys.TASK_LABEL: task.metadata.name, keys.TASK_UID_LABEL: task.metadata.uid}
    metadata = {"labels": {**(written.get("labels") or {}), **own}, "annotations": written["annotations"]}
    spec["restartPolicy"] = spec.get("restartPolicy") or task.spec.restart_policy
    if class_name:
        spec["priorityClassName"] = class_name
    if labels:
        spec["nodeSelector"] = {**(spec.get("nodeSelector") or {}), **labels}
    if _is_gated(task, template, policy):
        spec["schedulingGates"] = [{"name": policy.gate}]
    equip(spec, resources, task.metadata.name, task.spec.workers)
    return {"metadata": metadata, "spec": spec}


def _written_template(task: Task, rules: TaskRules) -> dict[str, Any]:
    """A copy of the author's template, or one built from the task's few fields. Raises RefusedError."""
    if task.spec.template is None:
        return {"spec": _plain_pod(task, rules)}
    fault = first_fault(task.spec.template)
    if fault:
        raise RefusedError(EventReason.TEMPLATE_REFUSED, fault)
    template = copy.deepcopy(task.spec.template)
    _refuse_own_gpus(template, rules.policy)
    return template


def _plain_pod(task: Task, rules: TaskRules) -> dict[str, Any]:
    spec = task.spec
    container: dict[str, Any] = {
        "name": CONTAINER,
        "image": spec.image or rules.default_image,
        "securityContext": _security_context(task, rules),
    }
    command = spec.command or (() if spec.image or spec.args else rules.default_command)
    if command:
        container["command"] = list(command)
    if spec.args:
        container["args"] = list(spec.args)
    if spec.env:
        container["env"] = [{"name": each.name, "value": each.value} for each in spec.env]
    return {
        "restartPolicy": spec.restart_policy,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "containers": [container],
    }


def _security_context(task: Task, rules: TaskRules) -> dict[str, Any]:
    security: dict[str, Any] = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    if task.metadata.namespace in rules.restricted:
        # Many images run as root, so this is set only where a pod is not accepted without it.
        security["runAsNonRoot"] = True
        if not task.spec.image:
            security["runAsUser"] = _NON_ROOT_UID
    return security


def _is_gated(task: Task, template: Mapping[str, Any], policy: Policy) -> bool:
    """Not where the sweeper serves no pods, nor against an explicit choice of the author.

    Other pods get no default of their namespace either, since admission leaves them alone.
    """
    return (
        task.metadata.namespace not in policy.excluded_namespaces
        and _annotations_of(template).get(keys.INJECT_ANNOTATION) != keys.INJECT_NO
    )


def _refuse_own_gpus(template: Mapping[str, Any], policy: Policy) -> None:
    spec = template["spec"]
    for container in [*(spec.get("initContainers") or ()), *spec["containers"]]:
        resources = container.get("resources") or {}
        for name in [*(resources.get("requests") or ()), *(resources.get("limits") or ())]:
            if policy.is_gpu_resource(name):
                raise RefusedError(
                    EventReason.TEMPLATE_REFUSED,
                    f"the template asks for {name} itself; remove it: gpu-amount is the number of GPUs",
                )
