"""The decision on one pod: pure, so that dry runs, retries and reinvocation change nothing.

Every step adds only what is missing, so deciding on the patched pod again yields no operation. Priority is a
triple (class, value, preemption policy) that changes whole or not at all: the API server's Priority plugin
has set the other two before any webhook is called, and refuses a pod whose three do not agree.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from labeler.contract import keys
from webhook.admission import author_warnings, cpu_only_members, kueue, managers, patch
from webhook.admission.classes import Classes, above_maximum
from webhook.admission.review import NewPod, SchedulingGroup
from webhook.kube.objects import PriorityClass
from webhook.policy.values import GpuModel, Policy, Tier
from webhook.text import quote
from webhook.workloads import marks
from webhook.workloads.pod_group_names import NOMINATED_PREFIX, PREFIX, bind_group_name

MUTATED: Final = "mutated"
UNCHANGED: Final = "unchanged"
LEFT_ALONE: Final = "left-alone"
DENIED: Final = "denied"
_CLASS_PATH: Final = patch.pointer("spec", "priorityClassName")


class Decision(msgspec.Struct, frozen=True):
    """The answer.

    outcome: one of the four words above. reason: a word of a small fixed set, for metrics. operations: the
    JSON Patch. denial: the sentence for the user, None if the pod is allowed. warnings: short lines for the
    user.
    """

    outcome: str
    reason: str
    operations: tuple[patch.Operation, ...] = ()
    denial: str | None = None
    warnings: tuple[str, ...] = ()


class DeniedError(Exception):
    """A request that cannot be met: `reason` for metrics, the text for the user."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


def decide(
    pod: NewPod,
    namespace: str,
    policy: Policy,
    classes: Mapping[str, PriorityClass],
    *,
    classes_known: bool = True,
) -> Decision:
    """Decide on a pod that is about to be created in `namespace`.

    classes: the cluster's PriorityClasses by name. classes_known: whether these are still current; if not,
    none is injected.
    """
    if reason := _reason_to_leave_alone(pod, namespace, policy):
        return Decision(LEFT_ALONE, reason)
    asked = author_warnings.gpu_resources(pod, policy)
    # The devices of claims are in other objects, which a decision does not read.
    has_claims = policy.resource_claims and bool(pod.spec.resource_claims)
    is_ours = bool(asked) or has_claims or _has_own_marks(pod, policy)
    if others := _left_to_others(pod, policy):
        reason, warning = others
        return Decision(LEFT_ALONE, reason, warnings=author_warnings.shown([warning]) if is_ours else ())
    warnings = author_warnings.warnings(pod, policy)
    known = Classes(classes, classes_known)
    if not asked and not has_claims and cpu_only_members.is_cpu_only_member(pod, policy):
        operations = _of_cpu_only_member(pod, namespace, policy, known)
        outcome = MUTATED if operations else UNCHANGED
        return Decision(outcome, "companion", tuple(operations), warnings=author_warnings.shown(warnings))
    if not is_ours:
        # A share of a GPU without the GPU makes no GPU pod, although its author believes so.
        return Decision(LEFT_ALONE, "no-gpu", warnings=author_warnings.shown(warnings))
    warnings += author_warnings.of_others(pod)
    try:
        operations = _of_gpu_pod(pod, namespace, policy, known, asked, warnings)
    except DeniedError as denied:
        return Decision(DENIED, denied.reason, denial=str(denied))
    outcome, reason = (MUTATED, "wanted") if operations else (UNCHANGED, "already-as-wanted")
    return Decision(outcome, reason, tuple(operations), warnings=author_warnings.shown(warnings))


def _reason_to_leave_alone(pod: NewPod, namespace: str, policy: Policy) -> str:
    """Why a pod is left alone whatever it asks for, "" if it is not."""
    spec, annotations = pod.spec, pod.annotations
    if annotations.get(keys.INJECT_ANNOTATION) == keys.INJECT_NO:
        return "opted-out"
    if spec.node_name:
        return "node-name-set"  # a gate beside spec.nodeName makes a valid pod invalid
    if keys.MIRROR_POD_ANNOTATION in annotations:
        return "mirror-pod"
    if any(owner.controller and owner.kind == "DaemonSet" for owner in pod.metadata.owner_references or ()):
        return "daemonset"  # already bound to its node; a selector would make it fail for ever
    return "excluded-namespace" if namespace in policy.excluded_namespaces else ""


def _of_cpu_only_member(
    pod: NewPod, namespace: str, policy: Policy, classes: Classes
) -> list[patch.Operation]:
    """Gate a CPU-only pod of a gang. One above the maximum would be refused for its gate, see tiers.yaml."""
    highest = policy.maximum_class(namespace)
    if highest and (not classes.has(highest) or above_maximum(pod, namespace, policy, classes)):
        return []
    return [*cpu_only_members.gate(pod, policy), *managers.forget(pod, policy)]


def _of_gpu_pod(
    pod: NewPod,
    namespace: str,
    policy: Policy,
    classes: Classes,
    asked: tuple[str, ...],
    warnings: list[str],
) -> list[patch.Operation]:
    """Everything that a pod placed by us gets. Raises DeniedError; adds to `warnings`."""
    priority = _priority(pod, namespace, policy, classes, warnings)
    return [
        *_gate(pod, policy),
        *priority,
        *_scheduling_group(pod, policy, priority),
        *_model(pod, namespace, policy, asked, warnings),
        *managers.forget(pod, policy),
    ]


_LEFT_ALONE: Final = "neither gated nor placed by topogate"


def _left_to_others(pod: NewPod, policy: Policy) -> tuple[str, str] | None:
    """Why another scheduler places this pod, as a word and as a sentence; None if we place it."""
    spec = pod.spec
    group = spec.scheduling_group
    if group is not None and not _is_own_group(group, policy) and (why := _why_not_adopted(group, policy)):
        return "scheduling-group", f"schedulingGroup: left to kube-scheduler's own gangs{why}, {_LEFT_ALONE}"
    if spec.scheduler_name and spec.scheduler_name not in policy.scheduler_names:
        # No scheduler would bind it to the node of its release.
        name = quote(spec.scheduler_name)
        return "other-scheduler", f"schedulerName {name}: left to that scheduler, {_LEFT_ALONE}"
    if kueue.chooses_nodes(pod) and not _has_gate(pod, policy):
        return "kueue-topology", f"gate {marks.KUEUE_TOPOLOGY_GATE}: Kueue chooses the nodes, {_LEFT_ALONE}"
    return None


def _why_not_adopted(group: SchedulingGroup, policy: Policy) -> str:
    """Why we do not place the pods of a group of kube-scheduler's own, "" if we do."""
    if not policy.adopts_native_gangs:
        return " (policy nativeGangs: leave)"
    return "" if group.pod_group_name else ", as it names no PodGroup"


def _is_own_group(group: SchedulingGroup, policy: Policy) -> bool:
    """Whether a pod names a PodGroup that only admission gives to pods."""
    return policy.binds_by_pod_group and (group.pod_group_name or "").startswith(PREFIX)


def _has_own_marks(pod: NewPod, policy: Policy) -> bool:
    """Whether a pod without GPUs nevertheless asks for placement."""
    return not keys.WISH_ANNOTATIONS.isdisjoint(pod.annotations) or _has_gate(pod, policy)


def _has_gate(pod: NewPod, policy: Policy) -> bool:
    return any(policy.serves_gate(gate.name) for gate in pod.spec.scheduling_gates or ())


def _gate(pod: NewPod, policy: Policy) -> list[patch.Operation]:
    """Add our gate, unless the author's manifest has one that we serve."""
    if _has_gate(pod, policy):
        return []
    return [patch.append(("spec", "schedulingGates"), pod.spec.scheduling_gates, {"name": policy.gate})]


def _scheduling_group(pod: NewPod, policy: Policy, priority: list[patch.Operation]) -> list[patch.Operation]:
    """Have the pod bound together with its gang, unless its author names a PodGroup.

    An API server without that feature drops the field, and the pod is bound by itself. priority: the
    operations on its priority.
    """
    there = pod.spec.scheduling_group
    if not policy.binds_by_pod_group or (there is not None and not _is_own_group(there, policy)):
        return []
    name = _group_name(pod, policy, priority)
    if name in ("", there.pod_group_name if there is not None else ""):
        return []
    return [patch.put_member(("spec",), "schedulingGroup", {"podGroupName": name})]


def _group_name(pod: NewPod, policy: Policy, priority: list[patch.Operation]) -> str:
    own = pod.spec.priority_class_name or ""
    priority_class = next((each.value for each in priority if each.path == _CLASS_PATH), own)
    labels, scheduler = pod.metadata.labels or {}, pod.spec.scheduler_name or ""
    prefix = NOMINATED_PREFIX if policy.nominates_nodes else PREFIX
    return bind_group_name(labels, pod.annotations, priority_class, scheduler, prefix)


def _priority(
    pod: NewPod, namespace: str, policy: Policy, classes: Classes, warnings: list[str]
) -> list[patch.Operation]:
    """Set the PriorityClass of the requested tier, if the author chose none."""
    current = pod.spec.priority_class_name or ""
    is_chosen = current != "" and current != classes.default
    above = above_maximum(pod, namespace, policy, classes)
    if is_chosen:
        _check_class(current, namespace, policy, above)
    tier = _tier(pod, namespace, policy)
    if tier is None and current and not is_chosen:
        tier = _lowered(current, namespace, policy, above, warnings)
    if tier is None or tier.priority_class_name == current:
        return []
    if is_chosen:
        if keys.PRIORITY_ANNOTATION in pod.annotations:
            warnings.append(f"{keys.PRIORITY_ANNOTATION} is ignored: the pod has priorityClassName {current}")
        return []
    return _class_of(tier, classes, warnings)


def _lowered(current: str, namespace: str, policy: Policy, above: str, warnings: list[str]) -> Tier | None:
    """The namespace's maximum, if the cluster's default class is above it."""
    given = policy.tier_of_class(current)
    allowed = policy.allowed_tiers(namespace)
    if not above and (given is None or given.name in allowed):
        return None
    what = f"tier {given.name}" if given else f"class {current}"
    warnings.append(f"{what}, the cluster's default, is above this namespace's; given {allowed[-1]}")
    return policy.tier(allowed[-1])


def _class_of(tier: Tier, classes: Classes, warnings: list[str]) -> list[patch.Operation]:
    """The triple of a tier's class, if the cluster has it."""
    name = tier.priority_class_name
    wanted = classes.by_name.get(name)
    if not classes.known:
        warnings.append(f"tier {tier.name} has no effect: PriorityClasses cannot be read now")
        return []
    if wanted is None:
        warnings.append(f"tier {tier.name} has no effect: no PriorityClass {name} here")
        return []
    spec = ("spec",)
    return [
        patch.put_member(spec, "priorityClassName", name),
        patch.put_member(spec, "priority", wanted.value),
        patch.put_member(spec, "preemptionPolicy", wanted.preemption_policy),
    ]


def _tier(pod: NewPod, namespace: str, policy: Policy) -> Tier | None:
    """The tier from the annotation, else the namespace's default. Raises DeniedError."""
    name = pod.annotations.get(keys.PRIORITY_ANNOTATION)
    if name is None:
        return policy.tier(policy.rules(namespace).default_tier)
    tier = policy.tier(name)
    if tier is None:
        raise DeniedError("unknown-tier", f"{keys.PRIORITY_ANNOTATION}: {policy.no_tier(name, namespace)}")
    _check_tier(tier, f"{keys.PRIORITY_ANNOTATION}: tier {tier.name}", namespace, policy)
    return tier


def _check_class(name: str, namespace: str, policy: Policy, above: str) -> None:
    """Apply the tiers' maximum to a class that is named directly. Raises DeniedError.

    above: its excess, as `above_maximum` describes it.
    """
    tier = policy.tier_of_class(name)
    what = f"priorityClassName {name}"
    if above:
        raise _above(f"{what} ({above})", namespace, policy)
    if tier is not None:
        _check_tier(tier, f"{what} (tier {tier.name})", namespace, policy)


def _check_tier(tier: Tier, what: str, namespace: str, policy: Policy) -> None:
    if tier.name not in policy.allowed_tiers(namespace):
        raise _above(what, namespace, policy)


def _above(what: str, namespace: str, policy: Policy) -> DeniedError:
    return DeniedError("tier-above-maximum", policy.above_maximum(what, namespace))


def _model(
    pod: NewPod, namespace: str, policy: Policy, asked: tuple[str, ...], warnings: list[str]
) -> list[patch.Operation]:
    """Add the node selector of the requested GPU model. Raises DeniedError."""
    name = pod.annotations.get(keys.GPU_MODEL_ANNOTATION)
    if name is not None:
        model = policy.gpu_model(name) or _deny_unknown_model(name, policy)
        reason, sentence = model.obstacle(asked, pod.spec.node_selector or {})
        if reason:
            raise DeniedError(reason, sentence)
    else:
        default = policy.gpu_model(policy.rules(namespace).default_gpu_model) if asked else None
        if default is None:
            return []
        model = default
        if any(model.obstacle(asked, pod.spec.node_selector or {})):
            # What the author wrote overrides a default; only an explicit request can contradict it.
            warnings.append(f"namespace default GPU model {model.name} not applied: the pod asks for another")
            return []
    labels = model.labels_for(asked)
    return patch.put_members(("spec", "nodeSelector"), pod.spec.node_selector, labels)


def _deny_unknown_model(name: str, policy: Policy) -> GpuModel:
    raise DeniedError("unknown-model", f"{keys.GPU_MODEL_ANNOTATION}: {policy.no_model(name)}")
