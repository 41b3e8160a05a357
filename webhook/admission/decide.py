"""The decision on one pod: pure, so that dry runs, retries and reinvocation change nothing.

The decision is made on the pod without what topogate has put there before (see injection), so deciding on
the patched pod again yields no operation. Priority is a triple (class, value, preemption policy) that changes
whole or not at all: the API server's Priority plugin has set the other two before any webhook is called, and
refuses a pod whose three do not agree.

A webhook that is called later may make the pod another case, and a warning cannot be taken back. So warnings
state rules, and do not say what becomes of this pod.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

import msgspec

from labeler.contract import keys
from webhook.admission import author_warnings, cpu_only_members, injection, kueue, managers, patch
from webhook.admission.classes import Classes, above_maximum
from webhook.admission.injection import NOTHING, Injection, Priority, RequestNote
from webhook.admission.review import NewPod, NewTerm, SchedulingGroup
from webhook.kube.objects import PriorityClass
from webhook.placement import Requirement, Term
from webhook.policy.values import GpuModel, Policy, Tier
from webhook.text import quote
from webhook.workloads import marks
from webhook.workloads.pod_group_names import bind_group_name

MUTATED: Final = "mutated"
UNCHANGED: Final = "unchanged"
LEFT_ALONE: Final = "left-alone"
DENIED: Final = "denied"
_UNCHANGED_REASONS: Final = {"wanted": "already-as-wanted"}


class LeftAlone(StrEnum):
    """Why a pod is left alone, in one word for metrics."""

    NO_GPU = "no-gpu"
    NO_POD_CREATION = "no-pod-creation"
    OPTED_OUT = "opted-out"
    NODE_NAME_SET = "node-name-set"
    """A gate beside spec.nodeName makes a valid pod invalid."""
    MIRROR_POD = "mirror-pod"
    DAEMONSET = "daemonset"
    """It is already bound to its node; a selector would make it fail for ever."""
    EXCLUDED_NAMESPACE = "excluded-namespace"
    SCHEDULING_GROUP = "scheduling-group"
    OTHER_SCHEDULER = "other-scheduler"
    KUEUE_TOPOLOGY = "kueue-topology"
    """Kueue chooses its nodes."""


LEFT_TO_OTHERS: Final = frozenset(LeftAlone) - {LeftAlone.NO_GPU, LeftAlone.NO_POD_CREATION}
"""The reasons for which another scheduler places a GPU pod."""


class Decision(msgspec.Struct, frozen=True):
    """The answer.

    outcome: one of the four words above. reason: a word of a small fixed set for metrics, a LeftAlone for
    pods that are left alone. operations: the JSON Patch. denial: the sentence for the user, None if the pod
    is allowed. warnings: short lines for the user.
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
    note = injection.note_of(pod)
    agreeing = _with_agreeing_priority(pod, note, classes)
    without = injection.without_injection(agreeing, policy, note)
    decision, wanted = _decided(without, namespace, policy, Classes(classes, classes_known))
    if decision.outcome == DENIED:
        return decision
    if wanted is NOTHING and injection.lacks_note(pod, policy):
        note = injection.not_by_others(
            pod, _assumed(without, namespace, policy, Classes(classes, classes_known)), policy
        )
        without = injection.without_injection(pod, policy, note)
    operations = injection.operations(pod, without, wanted, policy)
    if wanted.is_managed:
        operations += managers.forget(pod, policy, injection.mistakable(pod, without, wanted, policy))
    if decision.outcome == MUTATED and not operations:
        reason = _UNCHANGED_REASONS.get(decision.reason, decision.reason)
        decision = msgspec.structs.replace(decision, outcome=UNCHANGED, reason=reason)
    return msgspec.structs.replace(decision, operations=tuple(operations))


def _with_agreeing_priority(pod: NewPod, note: RequestNote, classes: Mapping[str, PriorityClass]) -> NewPod:
    """The pod with the value of its own class, where another webhook has replaced topogate's class alone.

    The API server would store it with the value of topogate's class: it compares both before the last call
    of a webhook, and not after it.
    """
    name, given = pod.spec.priority_class_name or "", classes.get(note.priority_class)
    if given is None or name == note.priority_class or pod.spec.priority not in (given.value, None):
        return pod
    chosen = classes.get(name)
    if chosen is not None:
        own = Priority(name, chosen.value, chosen.preemption_policy)
    elif not name:
        own = note.replaced
    else:
        return pod
    return injection.with_spec(pod, msgspec.structs.asdict(own))


def _decided(pod: NewPod, namespace: str, policy: Policy, classes: Classes) -> tuple[Decision, Injection]:
    """The answer without operations, and what is wanted on the pod. pod: without what topogate put there."""
    if reason := _reason_to_leave_alone(pod, namespace, policy):
        return Decision(LEFT_ALONE, reason), NOTHING
    asked = author_warnings.gpu_resources(pod, policy)
    # The devices of claims are in other objects, which a decision does not read.
    has_gpus = bool(asked) or (policy.resource_claims and bool(pod.spec.resource_claims))
    is_ours = has_gpus or _has_own_marks(pod, policy)
    if others := _left_to_others(pod, policy):
        reason, warning = others
        found = author_warnings.shown([warning]) if is_ours else ()
        return Decision(LEFT_ALONE, reason, warnings=found), NOTHING
    warnings = author_warnings.warnings(pod, policy)
    if not has_gpus and cpu_only_members.is_cpu_only_member(pod, policy):
        wanted = _of_cpu_only_member(pod, namespace, policy, classes)
        return Decision(MUTATED, "cpu-only-member", warnings=author_warnings.shown(warnings)), wanted
    if not is_ours:
        # A share of a GPU without the GPU makes no GPU pod, although its author believes so.
        return Decision(LEFT_ALONE, LeftAlone.NO_GPU, warnings=author_warnings.shown(warnings)), NOTHING
    return _placed(pod, namespace, policy, classes, asked, [*warnings, *author_warnings.of_others(pod)])


def _placed(
    pod: NewPod,
    namespace: str,
    policy: Policy,
    classes: Classes,
    asked: tuple[str, ...],
    warnings: list[str],
) -> tuple[Decision, Injection]:
    """The same for a pod that topogate places, or that is denied. asked: its GPU resources."""
    try:
        wanted = _of_gpu_pod(pod, namespace, policy, classes, asked, warnings)
    except DeniedError as denied:
        return Decision(DENIED, denied.reason, denial=str(denied)), NOTHING
    return Decision(MUTATED, "wanted", warnings=author_warnings.shown(warnings)), wanted


def _reason_to_leave_alone(pod: NewPod, namespace: str, policy: Policy) -> LeftAlone | None:
    """Why a pod is left alone whatever it asks for, None if it is not."""
    spec, annotations = pod.spec, pod.annotations
    if annotations.get(keys.INJECT_ANNOTATION) == keys.INJECT_NO:
        return LeftAlone.OPTED_OUT
    if spec.node_name:
        return LeftAlone.NODE_NAME_SET
    if keys.MIRROR_POD_ANNOTATION in annotations:
        return LeftAlone.MIRROR_POD
    if any(owner.controller and owner.kind == "DaemonSet" for owner in pod.metadata.owner_references or ()):
        return LeftAlone.DAEMONSET
    return LeftAlone.EXCLUDED_NAMESPACE if namespace in policy.excluded_namespaces else None


def _of_cpu_only_member(pod: NewPod, namespace: str, policy: Policy, classes: Classes) -> Injection:
    """Gate a CPU-only pod of a gang. One above the maximum would be refused for its gate, see tiers.yaml."""
    highest = policy.maximum_class(namespace)
    if highest and (not classes.has(highest) or above_maximum(pod, namespace, policy, classes)):
        return NOTHING
    return Injection(gate=policy.gate, is_managed=True)


def _of_gpu_pod(
    pod: NewPod,
    namespace: str,
    policy: Policy,
    classes: Classes,
    asked: tuple[str, ...],
    warnings: list[str],
) -> Injection:
    """Everything that a pod placed by us gets. Raises DeniedError; adds to `warnings`."""
    priority = _priority(pod, namespace, policy, classes, warnings)
    return Injection(
        gate="" if _has_gate(pod, policy) else policy.gate,
        pod_group=_pod_group(pod, policy, priority),
        node_selector=_model_labels(pod, namespace, policy, asked, warnings),
        priority=priority,
        is_managed=True,
        assumed=_assumed(pod, namespace, policy, classes),
    )


def _assumed(pod: NewPod, namespace: str, policy: Policy, classes: Classes) -> RequestNote:
    """What topogate puts on such a pod whatever it has already, for when nobody knows what that was.

    A CPU-only pod gets the gate alone, so its class and selector are its author's.
    """
    asked = author_warnings.gpu_resources(pod, policy)
    if not asked and not (policy.resource_claims and pod.spec.resource_claims):
        return RequestNote()
    rules, annotations = policy.rules(namespace), pod.annotations
    model = policy.gpu_model(annotations.get(keys.GPU_MODEL_ANNOTATION) or rules.default_gpu_model)
    tier = policy.tier(annotations.get(keys.PRIORITY_ANNOTATION) or rules.default_tier)
    labels = model.labels if model is not None else {}
    if tier is None or not classes.has(tier.priority_class_name):
        return RequestNote(labels)
    default = classes.by_name.get(classes.default)
    if default is None:
        return RequestNote(labels, tier.priority_class_name, _NO_CLASS)
    replaced = Priority(classes.default, default.value, default.preemption_policy)
    return RequestNote(labels, tier.priority_class_name, replaced)


_NO_CLASS: Final = Priority(priority=0, preemption_policy="PreemptLowerPriority")
"""What the API server gives to a pod without class in a cluster without a default."""


def _left_to_others(pod: NewPod, policy: Policy) -> tuple[LeftAlone, str] | None:
    """Why another scheduler places this pod, and the rule as a sentence; None if we place it."""
    spec = pod.spec
    group = spec.scheduling_group
    if group is not None and (why := _why_not_adopted(group, policy)):
        sentence = f"topogate leaves pods with a schedulingGroup{why} to kube-scheduler"
        return LeftAlone.SCHEDULING_GROUP, sentence
    if spec.scheduler_name and spec.scheduler_name not in policy.scheduler_names:
        # No scheduler would bind it to the node of its release.
        name = quote(spec.scheduler_name)
        return LeftAlone.OTHER_SCHEDULER, f"topogate neither gates nor places pods with schedulerName {name}"
    if kueue.chooses_nodes(pod) and not _has_gate(pod, policy):
        gate = marks.KUEUE_TOPOLOGY_GATE
        sentence = f"topogate leaves pods that Kueue has admitted with the gate {gate} to Kueue"
        return LeftAlone.KUEUE_TOPOLOGY, sentence
    return None


def _why_not_adopted(group: SchedulingGroup, policy: Policy) -> str:
    """Why we do not place the pods of a group of kube-scheduler's own, "" if we do."""
    if not policy.adopts_native_gangs:
        return " (gangs.native: leave)"
    return "" if group.pod_group_name else " that names no PodGroup"


def _has_own_marks(pod: NewPod, policy: Policy) -> bool:
    """Whether a pod without GPUs nevertheless asks for placement."""
    return not keys.REQUEST_ANNOTATIONS.isdisjoint(pod.annotations) or _has_gate(pod, policy)


def _has_gate(pod: NewPod, policy: Policy) -> bool:
    """Whether the author's manifest has a gate that we serve; our own one is not there, see _decided."""
    return any(policy.serves_gate(gate.name) for gate in pod.spec.scheduling_gates or ())


def _pod_group(pod: NewPod, policy: Policy, priority: Priority | None) -> str:
    """The PodGroup by which the pod is bound together with its gang, "" for none, or its author's.

    An API server without that feature drops the field, and the pod is bound by itself. priority: what the pod
    gets, None where it keeps its own.
    """
    if not policy.binds_by_pod_group or pod.spec.scheduling_group is not None:
        return ""
    own = pod.spec.priority_class_name if priority is None else priority.priority_class_name
    labels, scheduler = pod.metadata.labels or {}, pod.spec.scheduler_name or ""
    return bind_group_name(labels, pod.annotations, own or "", scheduler)


def _priority(
    pod: NewPod, namespace: str, policy: Policy, classes: Classes, warnings: list[str]
) -> Priority | None:
    """The priority of the requested tier, if the author chose no class; None if the pod keeps its own."""
    current = pod.spec.priority_class_name or ""
    is_chosen = current != "" and current != classes.default
    above = above_maximum(pod, namespace, policy, classes)
    if is_chosen:
        _check_class(current, namespace, policy, above)
    tier = _tier(pod, namespace, policy)
    if tier is None and current and not is_chosen:
        tier = _lowered(current, namespace, policy, above, warnings)
    if tier is None or tier.priority_class_name == current:
        return None
    if is_chosen:
        if keys.PRIORITY_ANNOTATION in pod.annotations:
            warnings.append(
                f"{keys.PRIORITY_ANNOTATION} is ignored for pods with priorityClassName {current}"
            )
        return None
    return _class_of(tier, classes, warnings)


def _lowered(current: str, namespace: str, policy: Policy, above: str, warnings: list[str]) -> Tier | None:
    """The namespace's maximum, if the cluster's default class is above it."""
    given = policy.tier_of_class(current)
    allowed = policy.allowed_tiers(namespace)
    if not above and (given is None or given.name in allowed):
        return None
    what = f"tier {given.name}" if given else f"class {current}"
    warnings.append(f"{what}, the cluster's default, is above this namespace's: its pods get {allowed[-1]}")
    return policy.tier(allowed[-1])


def _class_of(tier: Tier, classes: Classes, warnings: list[str]) -> Priority | None:
    """The triple of a tier's class, if the cluster has it."""
    name = tier.priority_class_name
    wanted = classes.by_name.get(name)
    if not classes.known:
        warnings.append(f"tier {tier.name} has no effect: PriorityClasses cannot be read now")
        return None
    if wanted is None:
        warnings.append(f"tier {tier.name} has no effect: no PriorityClass {name} here")
        return None
    return Priority(
        priority_class_name=name, priority=wanted.value, preemption_policy=wanted.preemption_policy
    )


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


def _model_labels(
    pod: NewPod, namespace: str, policy: Policy, asked: tuple[str, ...], warnings: list[str]
) -> dict[str, str]:
    """The node selector of the requested GPU model. Raises DeniedError."""
    name = pod.annotations.get(keys.GPU_MODEL_ANNOTATION)
    if name is not None:
        model = policy.gpu_model(name) or _deny_unknown_model(name, policy)
        reason, sentence = model.obstacle(asked, pod.spec.node_selector or {})
        if reason:
            raise DeniedError(reason, sentence)
    else:
        default = policy.gpu_model(policy.rules(namespace).default_gpu_model) if asked else None
        if default is None:
            return {}
        model = default
        if not model.can_serve(asked, pod.spec.node_selector or {}, list(map(_term, pod.required_terms))):
            warnings.append(f"namespace default GPU model {model.name} is not for pods that ask for another")
            return {}
    return model.labels


def _term(term: NewTerm) -> Term:
    """A term of required node affinity as the core has it."""
    both = term.match_expressions or (), term.match_fields or ()
    return Term(
        *(tuple(Requirement(x.key, x.operator, tuple(x.values or ())) for x in each) for each in both)
    )


def _deny_unknown_model(name: str, policy: Policy) -> GpuModel:
    raise DeniedError("unknown-model", f"{keys.GPU_MODEL_ANNOTATION}: {policy.no_model(name)}")
