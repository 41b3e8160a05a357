"""The pods of owners whose pods do not wait for one another: replicas, and Argo's Workflows. Pure."""

import msgspec
from msgspec.structs import asdict

from webhook.kube.containers import Container
from webhook.kube.objects import Metadata
from webhook.kube.struct import Struct
from webhook.workloads.additions import PodTemplate, PodTemplateSpec
from webhook.workloads.builtin import Owner
from webhook.workloads.pod_sets import OwnedPods, PodSet, TemplatePath, one_if_unset


class _ReplicasSpec(Struct, frozen=True):
    replicas: int | None = None
    template: PodTemplate = PodTemplate()


class ReplicaOwner(Owner, frozen=True):
    """A ReplicaSet, or another owner of interchangeable pods."""

    spec: _ReplicasSpec = _ReplicasSpec()


def replica_pods(owner: ReplicaOwner) -> OwnedPods:
    """spec.replicas pods, 1 by default."""
    size = one_if_unset(owner.spec.replicas)
    return OwnedPods(size, (PodSet(owner.metadata.name, owner.spec.template, range(size)),))


class _WorkflowTemplate(PodTemplateSpec, frozen=True):
    name: str = "main"
    metadata: Metadata = Metadata()
    container: Container | None = None
    script: Container | None = None


class _WorkflowSpec(Struct, frozen=True):
    templates: list[_WorkflowTemplate] = msgspec.field(default_factory=list)


class Workflow(Owner, frozen=True):
    """argoproj.io/v1alpha1."""

    spec: _WorkflowSpec = _WorkflowSpec()


def workflow_pods(owner: Workflow) -> OwnedPods:
    """One pod of each template that creates some: how often and when depends on its steps."""
    sets = []
    for number, each in enumerate(owner.spec.templates):
        if (container := each.container or each.script) is not None:
            fields = asdict(each) | {"containers": [msgspec.structs.replace(container, name="main")]}
            spec = PodTemplateSpec(**{name: fields[name] for name in PodTemplateSpec.__struct_fields__})
            at = TemplatePath(("spec", "templates", number, "metadata"), None)
            template = PodTemplate(each.metadata, spec)
            name = f"{owner.metadata.name}-{each.name}"
            sets.append(PodSet(name, template, range(1), at, is_numbered=False))
    return OwnedPods(None, tuple(sets))
