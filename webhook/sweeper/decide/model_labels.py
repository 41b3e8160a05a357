"""What a gated pod still gets that admission did not give it, since nobody asked the webhook. Pure.

The gate may have come from the API server itself, or from the pod's author. A gated pod may be given further
nodeSelector labels, so those of its GPU model are added before it is placed. A PriorityClass may not be added
to any pod: that is told. So is it told where members of a gang went by all of it.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from labeler.contract import keys
from labeler.contract.event_reasons import EventReason
from webhook.kube.objects import Pod
from webhook.policy.values import GpuModel, NamespaceRules, Policy
from webhook.scheduling.antiaffinity import NamespaceLabels
from webhook.scheduling.gpu_requests import whole_number
from webhook.sweeper.decide.orders import Cause, GangOutcome, ModelLabelOrder, Orders, Warn
from webhook.sweeper.observe.gangs import OWN_ERROR, GangKey, PodGang
from webhook.sweeper.observe.view import View
from webhook.text import quote, sentence_list

logger = logging.getLogger(__name__)


class UnmetError(Exception):
    """A model that the pod cannot have; the message says why."""


@dataclass(frozen=True)
class ModelLabelStep:
    """What is to be done, and of which gangs, so that they are placed by what they will ask for then."""

    orders: Orders = field(default_factory=Orders)
    waiting: frozenset[GangKey] = frozenset()


def model_label_step(gangs: Iterable[PodGang], view: View, policy: Policy) -> ModelLabelStep:
    """Look at the gangs whose members wait, planned ones left aside: those have been looked at."""
    found: list[Orders] = []
    waiting: set[GangKey] = set()
    for gang in gangs:
        try:
            own = _orders_of(gang, view, policy)
        except Exception:  # one bad gang never stops the others; nor is it placed without its model
            logger.exception("steer_failed gang=%s", gang.key)
            own = Orders(outcomes=(GangOutcome(gang, OWN_ERROR, Cause.DEFECT),))
        found.append(own)
        if own.outcomes:
            waiting.add(gang.key)
    orders = Orders(
        model_label_orders=tuple(each for own in found for each in own.model_label_orders),
        warnings=tuple(each for own in found for each in own.warnings),
        outcomes=tuple(each for own in found for each in own.outcomes),
    )
    return ModelLabelStep(orders, frozenset(waiting))


def _orders_of(gang: PodGang, view: View, policy: Policy) -> Orders:
    """What one gang is given and told; one that has a verdict is not placed in this pass."""
    model_label_orders: list[ModelLabelOrder] = []
    outcomes: list[GangOutcome] = []
    for pod in gang.gated:
        if pod.metadata.uid in view.planned:
            continue
        try:
            labels = missing_labels(pod, policy, view.namespaces)
        except UnmetError as unmet:
            outcomes.append(GangOutcome(gang, f"pod {pod.metadata.name}: {unmet}", Cause.REQUEST))
            break
        if labels:
            model_label_orders.append(ModelLabelOrder(pod, labels))
            if not outcomes:
                injection = "its pods are given the labels of their GPU model"
                outcomes.append(GangOutcome(gang, injection, Cause.INCOMPLETE))
    warnings = (*_of_class(gang, policy, view.namespaces), *_of_members(gang, view, policy))
    return Orders(model_label_orders=tuple(model_label_orders), warnings=warnings, outcomes=tuple(outcomes))


def missing_labels(pod: Pod, policy: Policy, namespaces: NamespaceLabels | None = None) -> Mapping[str, str]:
    """What the pod's nodeSelector lacks of its GPU model's labels. Raises UnmetError.

    A namespace's default is followed, see _rules. It yields to what the pod asks for, as at admission.
    """
    if is_opted_out(pod):
        return {}
    wanted = pod.metadata.annotations.get(keys.GPU_MODEL_ANNOTATION)
    default = _rules(pod, policy, namespaces).default_gpu_model
    if wanted is None and not default:
        return {}
    model = policy.gpu_model(wanted if wanted is not None else default)
    if model is None:
        known = sentence_list([each.name for each in policy.gpu_models])
        raise UnmetError(f"{keys.GPU_MODEL_ANNOTATION}: no GPU model {quote(wanted or '')}; known: {known}")
    return _labels_of_model(pod, policy, model, is_wished=wanted is not None)


def _labels_of_model(pod: Pod, policy: Policy, model: GpuModel, *, is_wished: bool) -> Mapping[str, str]:
    """Those of a model that the pod's nodeSelector lacks. Raises UnmetError where it asks for the model."""
    asked = [name for name in resources_of(pod) if policy.is_gpu_resource(name)]
    there, labels = pod.spec.node_selector, model.labels_for(asked)
    conflict = _conflict(model, asked, labels, there)
    if conflict and is_wished:
        raise UnmetError(conflict)
    if conflict or not (asked or is_wished):
        return {}
    return {key: value for key, value in labels.items() if key not in there}


def _conflict(
    model: GpuModel, asked: Sequence[str], labels: Mapping[str, str], selector: Mapping[str, str]
) -> str:
    """Why a pod that asks for these GPU resources cannot have the model with its labels, "" if it can."""
    foreign = [name for name in asked if not model.serves(name)]
    if foreign:
        return f"GPU model {model.name} does not offer {sentence_list(foreign)}"
    against = [key for key, value in labels.items() if selector.get(key, value) != value]
    return f"GPU model {model.name} contradicts its nodeSelector {sentence_list(against)}" if against else ""


def _rules(pod: Pod, policy: Policy, namespaces: NamespaceLabels | None) -> NamespaceRules:
    """What holds in a pod's namespace: what the policy says of it by name, else, if it has opted in, of all.

    namespaces: their labels, None where these are not known: then none has opted in.
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
    namespace's default tier only a pod without any class is told.
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
        f"tier {tier.name} has no effect: {its_own}, not {tier.priority_class_name}, and none can be "
        "given later; delete it to have it made anew"
    )


def _of_members(gang: PodGang, view: View, policy: Policy) -> Iterator[Warn]:
    """One word a gang that waits about members that nobody held back; they count as members all the same."""
    if not gang.gated:
        return
    past = [
        pod
        for pod in gang.released
        if not view.is_ours(pod)
        and not is_opted_out(pod)
        and any(map(policy.is_gpu_resource, resources_of(pod)))
    ]
    if past:
        yield Warn(
            gang.gated[0],
            EventReason.MEMBERS_NOT_HELD,
            f"{len(past)} of {len(gang.pods)} pods of its gang were created without a gate, "
            f"{past[0].metadata.name} among them: they count, and are where kube-scheduler put them",
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
