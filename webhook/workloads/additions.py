"""Fields that the API server's admission adds to pods and that their template does not have.

LimitRanges add requests and limits, RuntimeClasses overhead, PodNodeSelector and policies node selectors,
several plugins tolerations, Priority a priority, and webhooks whole containers. This module finds these
additions in an existing pod and applies them to the template of a pod that does not exist yet. Pure.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from labeler.contract import keys
from webhook.kube.containers import Container, Resources
from webhook.kube.objects import Metadata, Pod, PodSpec, PodToleration
from webhook.kube.struct import Quantities, Struct


class PodTemplateSpec(PodSpec, frozen=True):
    """A pod's spec in a template; the RuntimeClass determines the overhead of its pods."""

    runtime_class_name: str = ""


class PodTemplate(Struct, frozen=True):
    """A pod before admission, as the author of its owner wrote it, without a name."""

    metadata: Metadata = Metadata()
    spec: PodTemplateSpec = PodTemplateSpec()


def spec_as_made(template: PodTemplate, sample: PodTemplate, pod: Pod) -> PodSpec:
    """The spec that a pod of this template will have in the API server.

    sample, pod: another template, and an existing pod of it. An addition that depends on resources, GPU model
    or RuntimeClass is applied only if these are the same in both templates. A pod without extended resources
    does not show whether tolerations are added for them. They are assumed to be, as by the API server's
    ExtendedResourceToleration. Changes to the containers of the existing pod apply to all pods of its
    template.
    """
    spec = PodSpec(**{name: getattr(template.spec, name) for name in PodSpec.__struct_fields__})
    same_runtime = template.spec.runtime_class_name == sample.spec.runtime_class_name
    spec = replace(
        spec,
        priority=pod.spec.priority,
        node_selector={**_added_selector(template, sample, pod), **spec.node_selector},
        tolerations=[*spec.tolerations, *_added_tolerations(template, sample, pod)],
        overhead=pod.spec.overhead if same_runtime else spec.overhead,
    )
    if template.spec == sample.spec:
        made = pod.spec
        return replace(
            spec, containers=made.containers, init_containers=made.init_containers, resources=made.resources
        )
    defaults = _defaults(sample.spec, pod.spec)
    return replace(
        spec,
        containers=_completed(spec.containers, defaults, sample.spec.containers, pod.spec.containers),
        init_containers=_completed(
            spec.init_containers, defaults, sample.spec.init_containers, pod.spec.init_containers
        ),
    )


def extended_resources(spec: PodSpec) -> frozenset[str]:
    """The extended resources that the containers request."""
    asked = (each.resources for each in (*spec.containers, *spec.init_containers))
    return frozenset(
        name
        for each in asked
        for name, amount in {**each.limits, **each.requests}.items()
        if is_extended(name) and str(amount) != "0"
    )


def is_extended(resource: str) -> bool:
    """Whether a resource has a domain of its own, such as nvidia.com/gpu, or represents a DeviceClass."""
    return "/" in resource and ("kubernetes.io/" not in resource or resource.startswith(keys.DEVICE_CLASS))


# --- node selectors and tolerations -------------------------------------------------------------------


def _added_selector(template: PodTemplate, sample: PodTemplate, pod: Pod) -> dict[str, str]:
    """The added node selector; none for a template with other extended resources or another GPU model."""
    asked, model = extended_resources(sample.spec), _model(sample)
    same = extended_resources(template.spec) == asked and _model(template) == model
    if not (same or (not asked and model is None)):
        return {}
    if sample.spec.runtime_class_name not in ("", template.spec.runtime_class_name):
        return {}  # a RuntimeClass may add a node selector
    there = sample.spec.node_selector
    return {key: value for key, value in pod.spec.node_selector.items() if key not in there}


def _added_tolerations(template: PodTemplate, sample: PodTemplate, pod: Pod) -> Iterable[PodToleration]:
    """The added tolerations; for extended resources only those that the template requests."""
    added = [each for each in pod.spec.tolerations if each not in sample.spec.tolerations]
    own, asked = extended_resources(template.spec), extended_resources(sample.spec)
    if own == asked:
        return added
    believed = not asked or any(each.key in asked for each in added)
    others = [each for each in added if each.key not in asked]
    return [*others, *(PodToleration(key=name, operator="Exists") for name in sorted(own) if believed)]


def _model(template: PodTemplate) -> str | None:
    return template.metadata.annotations.get(keys.GPU_MODEL_ANNOTATION)


# --- requests and limits ------------------------------------------------------------------------------


@dataclass
class _Defaults:
    """Requests and limits for containers that have none of a resource, such as those of a LimitRange."""

    requests: Quantities = field(default_factory=dict)
    limits: Quantities = field(default_factory=dict)


def _defaults(sample: PodSpec, made: PodSpec) -> _Defaults:
    found = _Defaults()
    written = {each.name: each.resources for each in (*sample.containers, *sample.init_containers)}
    for each in (*made.containers, *made.init_containers):
        own = written.get(each.name)
        if own is None:
            continue
        named = {**own.limits, **own.requests}  # the API server itself copies limits to requests
        found.requests |= {k: v for k, v in each.resources.requests.items() if k not in named}
        found.limits |= {k: v for k, v in each.resources.limits.items() if k not in own.limits}
    return found


def _completed(
    containers: Sequence[Container],
    defaults: _Defaults,
    sample: Sequence[Container],
    made: Sequence[Container],
) -> list[Container]:
    """The containers of a template with defaults, plus those that were added to the existing pod."""
    known = {each.name for each in (*containers, *sample)}
    return [
        *(_with(each, defaults) for each in containers),
        *(each for each in made if each.name not in known),
    ]


def _with(container: Container, defaults: _Defaults) -> Container:
    own = container.resources
    requests = {k: v for k, v in defaults.requests.items() if k not in own.limits}
    limits = {**defaults.limits, **own.limits}
    return replace(container, resources=Resources(requests={**requests, **own.requests}, limits=limits))
