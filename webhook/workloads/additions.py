"""What a pod has that the template of its owner has not: what is added on its way through the API server.

LimitRanges add requests and limits, RuntimeClasses overhead, PodNodeSelector and policies node selectors,
several plugins tolerations, Priority a priority, and webhooks whole containers. All of it is read off one
pod, and is added to the template of a pod that is yet to be made. Pure.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from labeler.contract import keys
from webhook.kube.containers import Container, Resources
from webhook.kube.objects import Metadata, Pod, PodSpec, PodToleration
from webhook.kube.struct import Quantities, Struct


class PodTemplateSpec(PodSpec, frozen=True):
    """A pod's spec as in a template; the RuntimeClass says what overhead its pods get."""

    runtime_class_name: str = ""


class PodTemplate(Struct, frozen=True):
    """A pod as its owner's author wrote it: before admission, and without a name."""

    metadata: Metadata = Metadata()
    spec: PodTemplateSpec = PodTemplateSpec()


def spec_as_made(template: PodTemplate, sample: PodTemplate, pod: Pod) -> PodSpec:
    """Of a pod of this template as it will stand in the API server; like, pod: another, and a pod of that.

    What is added by a pod's resources, model or RuntimeClass is added where these are the same. A pod without
    extended resources does not tell whether tolerations of them are added: they are believed to be, as by the
    API server's ExtendedResourceToleration. What an author or a webhook wrote into the containers of that pod
    after its template, its successors of the same template get too.
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
    """The extended resources that the containers ask for."""
    asked = (each.resources for each in (*spec.containers, *spec.init_containers))
    return frozenset(
        name
        for each in asked
        for name, amount in {**each.limits, **each.requests}.items()
        if is_extended(name) and str(amount) != "0"
    )


def is_extended(resource: str) -> bool:
    """Whether a resource has a domain of its own, as nvidia.com/gpu, or stands for a DeviceClass."""
    return "/" in resource and ("kubernetes.io/" not in resource or resource.startswith(keys.DEVICE_CLASS))


# --- where it may run ---------------------------------------------------------------------------------


def _added_selector(template: PodTemplate, sample: PodTemplate, pod: Pod) -> dict[str, str]:
    """That of the pod's model only for pods of the same; a pod that wants no model has none."""
    asked, model = extended_resources(sample.spec), _model(sample)
    same = extended_resources(template.spec) == asked and _model(template) == model
    if not (same or (not asked and model is None)):
        return {}
    if sample.spec.runtime_class_name not in ("", template.spec.runtime_class_name):
        return {}  # a RuntimeClass may name nodes
    there = sample.spec.node_selector
    return {key: value for key, value in pod.spec.node_selector.items() if key not in there}


def _added_tolerations(template: PodTemplate, sample: PodTemplate, pod: Pod) -> Iterable[PodToleration]:
    """Those of extended resources only as far as the template asks for them."""
    added = [each for each in pod.spec.tolerations if each not in sample.spec.tolerations]
    own, asked = extended_resources(template.spec), extended_resources(sample.spec)
    if own == asked:
        return added
    believed = not asked or any(each.key in asked for each in added)
    others = [each for each in added if each.key not in asked]
    return [*others, *(PodToleration(key=name, operator="Exists") for name in sorted(own) if believed)]


def _model(template: PodTemplate) -> str | None:
    return template.metadata.annotations.get(keys.GPU_MODEL_ANNOTATION)


# --- what it asks for ---------------------------------------------------------------------------------


@dataclass
class _Defaults:
    """What a container gets that says nothing of a resource, as by a LimitRange."""

    requests: Quantities = field(default_factory=dict)
    limits: Quantities = field(default_factory=dict)


def _defaults(sample: PodSpec, made: PodSpec) -> _Defaults:
    found = _Defaults()
    written = {each.name: each.resources for each in (*sample.containers, *sample.init_containers)}
    for each in (*made.containers, *made.init_containers):
        own = written.get(each.name)
        if own is None:
            continue
        named = {**own.limits, **own.requests}  # the API server itself makes requests of limits
        found.requests |= {k: v for k, v in each.resources.requests.items() if k not in named}
        found.limits |= {k: v for k, v in each.resources.limits.items() if k not in own.limits}
    return found


def _completed(
    containers: Sequence[Container],
    defaults: _Defaults,
    sample: Sequence[Container],
    made: Sequence[Container],
) -> list[Container]:
    """Containers of a template with defaults, and those that were added to another pod."""
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
