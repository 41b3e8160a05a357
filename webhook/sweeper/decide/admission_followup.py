"""Labels and messages that pods and users did not get at admission. Pure.

The webhook may not have been called for a gated pod: the API server itself or the pod's author may have added
the gate. Such a pod may be given further nodeSelector labels, so those of its GPU model are added before it
is placed. A PriorityClass cannot be added to an existing pod: that is reported. It is also reported where
members of a gang passed without the gate.

A webhook that is called after the webhook's last call may give a gated pod to another scheduler. Its gate is
removed, as admission would have done it. It gets no Placement, so that no deadline of ours deletes it while
it waits for that scheduler. The same is done for pods that an extension leaves to kube-scheduler. Other
changes need no such step: what is gated is placed by its present requests.

Admission warnings become Events for the owner of a gang: the author of a Job never sees its pods' warnings.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final, NamedTuple

from labeler.contract import keys
from labeler.contract.event_reasons import EventReason
from webhook.kube.objects import Pod
from webhook.kube.plan_pods import PlannedPod
from webhook.policy import annotations
from webhook.policy.values import GpuModel, NamespaceRules, Policy
from webhook.scheduling.antiaffinity import NamespaceLabels
from webhook.scheduling.convert import node_rules
from webhook.scheduling.gpu_requests import whole_number
from webhook.sweeper.decide.orders import Cause, GangOutcome, ModelLabelOrder, Orders, Warn
from webhook.sweeper.observe.gangs import OWN_ERROR, GangKey, PodGang
from webhook.sweeper.observe.plans import scheduler_of
from webhook.sweeper.observe.view import PROTECTED, View
from webhook.text import joined, quote
from webhook.workloads import marks
from webhook.workloads.foreign_requests import foreign_requests
from webhook.workloads.native_gangs import group_name
from webhook.workloads.pod_group_names import bind_group_of

logger = logging.getLogger(__name__)


class UnmetError(Exception):
    """A model that the pod cannot have; the message says why."""


def model_label_step(
    gangs: Iterable[PodGang],
    view: View,
    policy: Policy,
    paused: Callable[[GangKey], bool] = lambda _: False,
) -> Orders:
    """Labels and warnings of gangs whose members wait. A gang with an outcome is not placed in this pass.

    Planned members are left out: they were handled in an earlier pass. paused: whether the API server has
    just refused something for a gang.
    """
    return Orders.together(_guarded_orders(gang, view, policy, paused) for gang in gangs)


def _guarded_orders(gang: PodGang, view: View, policy: Policy, paused: Callable[[GangKey], bool]) -> Orders:
    """The same for one gang."""
    try:
        left = None if paused(gang.key) else _left_to_schedulers(gang, view, policy)
        return left if left is not None else _orders_of(gang, view, policy)
    except Exception:  # one bad gang never stops the others; nor is it placed without its model
        logger.exception("model_labels_failed gang=%s", gang.key)
        return Orders(outcomes=(GangOutcome(gang, OWN_ERROR, Cause.INTERNAL_ERROR),))


def _left_to_schedulers(gang: PodGang, view: View, policy: Policy) -> Orders | None:
    """The release of pods that an extension leaves to kube-scheduler, or of another scheduler, if any."""
    waiting = [pod for pod in gang.gated if pod.metadata.uid not in view.planned]
    if gang.left:
        return _release(gang, waiting, EventReason.LEFT_TO_KUBE_SCHEDULER, gang.left)
    pods = [pod for pod in waiting if scheduler_of(pod) not in policy.scheduler_names]
    if not pods:
        return None
    name = quote(scheduler_of(pods[0]))
    rule = f"topogate neither gates nor places pods with schedulerName {name}"
    return _release(gang, pods, EventReason.MANIFEST_WARNING, rule)


def _release(gang: PodGang, pods: Sequence[Pod], reason: EventReason, rule: str) -> Orders | None:
    """Remove the gates of these pods and no more: what is released so is no pod of ours."""
    if not pods:
        return None
    pairs = ((pod, PlannedPod(name=pod.metadata.name, uid=pod.metadata.uid, node="")) for pod in pods)
    outcome = GangOutcome(gang, f"{rule}: their gates are being removed", Cause.INCOMPLETE)
    warning = Warn(pods[0], reason, f"{rule}: its gate is removed")
    return Orders(releases=tuple(pairs), warnings=(warning,), outcomes=(outcome,))


def _orders_of(gang: PodGang, view: View, policy: Policy) -> Orders:
    """Labels and warnings of one gang; one with an outcome is not placed in this pass."""
    model_label_orders: list[ModelLabelOrder] = []
    outcomes: list[GangOutcome] = []
    for pod in gang.gated:
        if pod.metadata.uid in view.planned:
            continue
        try:
            labels = missing_labels(pod, policy, view.namespaces)
        except UnmetError as unmet:
            outcomes.append(GangOutcome(gang, f"pod {pod.metadata.name}: {unmet}", Cause.INVALID_REQUEST))
            break
        if labels:
            model_label_orders.append(ModelLabelOrder(pod, labels))
            if not outcomes:
                injection = "its pods are getting the labels of their GPU model"
                outcomes.append(GangOutcome(gang, injection, Cause.INCOMPLETE))
    warnings = (*_of_class(gang, policy, view.namespaces), *_of_members(gang, view, policy))
    return Orders(model_label_orders=tuple(model_label_orders), warnings=warnings, outcomes=tuple(outcomes))


def missing_labels(pod: Pod, policy: Policy, namespaces: NamespaceLabels | None = None) -> Mapping[str, str]:
    """The labels of its GPU model that the pod's nodeSelector lacks. Raises UnmetError.

    A namespace's default is used, see _rules, unless the pod asks for something else, as at admission.
    """
    if is_opted_out(pod):
        return {}
    wanted = pod.metadata.annotations.get(keys.GPU_MODEL_ANNOTATION)
    default = _rules(pod, policy, namespaces).default_gpu_model
    if wanted is None and not default:
        return {}
    model = policy.gpu_model(wanted if wanted is not None else default)
    if model is None:
        raise UnmetError(f"{keys.GPU_MODEL_ANNOTATION}: {policy.no_model(wanted or '')}")
    return _labels_of_model(pod, policy, model, is_requested=wanted is not None)


def _labels_of_model(pod: Pod, policy: Policy, model: GpuModel, *, is_requested: bool) -> Mapping[str, str]:
    """Those of a model that the pod's nodeSelector lacks. Raises UnmetError where it asks for the model."""
    asked = [name for name in resources_of(pod) if policy.is_gpu_resource(name)]
    there = pod.spec.node_selector
    _, obstacle = model.obstacle(asked, there)
    if obstacle and is_requested:
        raise UnmetError(obstacle)
    is_usable = is_requested or model.can_serve(asked, there, node_rules(pod.spec).affinity or ())
    if not is_usable or not (asked or is_requested):
        return {}
    return {key: value for key, value in model.labels.items() if key not in there}


def _rules(pod: Pod, policy: Policy, namespaces: NamespaceLabels | None) -> NamespaceRules:
    """The policy's rules for a pod's namespace: its own, else, if it has opted in, those for all.

    namespaces: their labels, None where unknown: then none counts as opted in.
    """
    name = pod.metadata.namespace
    injection = (namespaces or {}).get(name, {}).get(keys.INJECTION_LABEL)
    if name in policy.namespaces or (
        injection == keys.INJECTION_ENABLED and name not in policy.excluded_namespaces
    ):
        return policy.rules(name)
    return NamespaceRules()


def _of_class(gang: PodGang, policy: Policy, namespaces: NamespaceLabels | None) -> Iterator[Warn]:
    """One word a gang about the class that its pods should have and do not.

    A class that was not asked for may be the cluster's default, which says nothing of who gave it; so of a
    namespace's default tier only a pod without any class is reported.
    """
    pods = (pod for pod in gang.gated if not is_opted_out(pod) and pod.metadata.uid not in gang.cpu_pods)
    for pod in pods:
        if without_effect := _tier_without_effect(pod, policy, namespaces):
            yield Warn(pod, EventReason.PRIORITY_NOT_SET, without_effect)
            return


def _tier_without_effect(pod: Pod, policy: Policy, namespaces: NamespaceLabels | None) -> str:
    """Says so of the tier that a pod should have and does not, "" where there is none."""
    wanted = pod.metadata.annotations.get(keys.PRIORITY_ANNOTATION)
    tier = policy.tier(wanted if wanted is not None else _rules(pod, policy, namespaces).default_tier)
    its_class = pod.spec.priority_class_name or ""
    if tier is None or its_class == tier.priority_class_name or (its_class and wanted is None):
        return ""
    its_own = f"it has PriorityClass {its_class}" if its_class else "it has no PriorityClass"
    return (
        f"tier {tier.name} has no effect: {its_own}, not {tier.priority_class_name}, and a pod's class "
        "cannot change; delete the pod to have it recreated"
    )


def _of_members(gang: PodGang, view: View, policy: Policy) -> Iterator[Warn]:
    """A warning for each waiting gang with members that were not gated; these count as members too."""
    if not gang.gated:
        return
    past = [
        pod
        for pod in gang.released
        if not view.is_ours(pod)
        and not is_opted_out(pod)
        and not is_left_to_others(pod, policy)
        and any(map(policy.is_gpu_resource, resources_of(pod)))
    ]
    if past:
        yield Warn(
            gang.gated[0],
            EventReason.GANG_PODS_NOT_GATED,
            f"{len(past)} of {len(gang.pods)} pods of its gang were created without a gate, "
            f"{past[0].metadata.name} among them: they count, on the nodes that kube-scheduler chose",
        )


def is_opted_out(pod: Pod) -> bool:
    """Whether its author wants nothing of admission; it may be gated all the same, by the author."""
    return pod.metadata.annotations.get(keys.INJECT_ANNOTATION) == keys.INJECT_NO


def resources_of(pod: Pod) -> Iterator[str]:
    """Names of the resources of which any container asks for some."""
    for container in (*pod.spec.init_containers, *pod.spec.containers):
        for name, quantity in container.resources.requests.items():
            if whole_number(quantity) != 0:
                yield name


# --- pods that admission leaves alone -----------------------------------------------------------------


def is_served(namespace: str, policy: Policy, labels: NamespaceLabels) -> bool:
    """Whether admission holds pods of a namespace. labels: of namespaces, by name."""
    if namespace in PROTECTED or namespace in policy.excluded_namespaces:
        return False
    return labels.get(namespace, {}).get(keys.INJECTION_LABEL) == keys.INJECTION_ENABLED


def is_left_to_others(pod: Pod, policy: Policy) -> bool:
    """Whether admission leaves it alone for what it is or who places it; for opt-outs see is_opted_out."""
    owner = pod.metadata.controller
    return (
        keys.MIRROR_POD_ANNOTATION in pod.metadata.annotations
        or (owner is not None and owner.kind == "DaemonSet")
        or (pod.spec.scheduling_group is not None and not _is_adopted(pod, policy))
        or (bool(pod.spec.scheduler_name) and pod.spec.scheduler_name not in policy.scheduler_names)
    )


def _is_adopted(pod: Pod, policy: Policy) -> bool:
    """Whether admission holds the pods of its PodGroup as it holds others."""
    return bool(bind_group_of(pod)) or (policy.adopts_native_gangs and bool(group_name(pod.spec)))


# --- admission warnings -------------------------------------------------------------------------------


MOST_WARNINGS: Final = 32
"""At most this many sentences for one gang: its author chooses their text and how fast pods come and go."""


class GangWarnings(NamedTuple):
    """The sentences that a gang has got. read: how many gated pods it had then."""

    read: int = 0
    sentences: frozenset[str] = frozenset()


WarningsOf = Mapping[GangKey, GangWarnings]
"""By gang; losing it warns once more."""


def warn_of_manifests(
    gangs: Iterable[PodGang], policy: Policy | None, before: WarningsOf
) -> tuple[tuple[Warn, ...], WarningsOf]:
    """One Event for each gang, and another one for sentences of pods that come later.

    before: the sentences that gangs have got; pods that were read already cost nothing.
    """
    if policy is None:
        return (), before
    found: list[Warn] = []
    known: dict[GangKey, GangWarnings] = {}
    for gang in gangs:
        own = before.get(gang.key, GangWarnings())
        if own.read != len(gang.gated):
            new = list(_new_warnings(gang, policy, own.sentences))
            found += (Warn(pod, EventReason.MANIFEST_WARNING, joined(*sentences)) for pod, sentences in new)
            own = GangWarnings(len(gang.gated), own.sentences.union(*(sentences for _, sentences in new)))
        known[gang.key] = own
    return tuple(found), known


def _new_warnings(
    gang: PodGang, policy: Policy, before: frozenset[str]
) -> Iterator[tuple[Pod, Sequence[str]]]:
    """Pods of a gang, each with sentences that were not reported before for it or another pod."""
    known = set(before)
    for pod in _distinct(gang.gated):
        found = (each for each in _sentences(pod, policy.topology_levels) if each not in known)
        if new := list(islice(found, MOST_WARNINGS - len(known))):
            known.update(new)
            yield pod, new
    if gang.wrongly_shared and gang.wrongly_shared not in known:
        newest = max(gang.gated, key=lambda pod: pod.metadata.creation_timestamp or "")
        yield newest, [gang.wrongly_shared]


def _distinct(pods: Sequence[Pod]) -> Iterator[Pod]:
    """Of the pods that a controller created, one for each set of requests."""
    seen: set[frozenset[tuple[str, str]]] = set()
    for pod in pods:
        if pod.metadata.controller is None:
            continue  # its author was warned as it was created
        there = pod.metadata.annotations
        requests = frozenset(
            (key, there[key])
            for key in there
            if key.startswith(keys.TOPOGATE_PREFIX) or key in marks.TOPOLOGY_REQUESTS
        )
        if requests not in seen:
            seen.add(requests)
            yield pod


def _sentences(pod: Pod, levels: Sequence[str]) -> Iterator[str]:
    metadata = pod.metadata
    yield from annotations.faults(metadata.annotations, levels)
    yield from annotations.misplaced(metadata.labels)
    if marks.KUEUE_LABELS.isdisjoint(metadata.labels):
        yield from foreign_requests(metadata.annotations)
