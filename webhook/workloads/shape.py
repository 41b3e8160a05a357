"""What pods a controller will make: parts whose pods are alike, and the stages in which they come. Pure.

The pods of a stage are made once all pods of the stages before it run (or have a node, as the controller will
have it). So a gang can be planned by what it will be while its first pods alone are there.
"""

from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from msgspec.structs import replace

from labeler.contract import keys
from webhook.kube.objects import Metadata, Pod, PodMetadata, PodSpec, PodToleration
from webhook.kube.struct import Struct
from webhook.workloads.ranks import Rank, own_rank

MOST_PODS: Final = 5000
"""Pods of a gang up to which it is planned by what it will be: numbers in owners are whatever their authors
write, and each pod that is yet to be made costs time and memory in every pass."""


class PodTemplate(Struct, frozen=True):
    """A pod as its owner's author wrote it: before admission, and without a name."""

    metadata: Metadata = Metadata()
    spec: PodSpec = PodSpec()


@dataclass(frozen=True)
class Part:
    """Pods of one template. Each group of them (a Job, a role) numbers its own.

    groups: the beginning of each group's ranks; indices: the pods within a group. follows: whether the pods
    of each group are made once its leader, which is of the same stage, has a node. numbered: the label by
    which its controller numbers the groups.
    """

    name: str
    stage: int
    template: PodTemplate
    indices: range
    groups: tuple[Rank, ...] = ((),)
    follows: bool = False
    numbered: str = ""

    @property
    def count(self) -> int:
        """How many pods."""
        return max(0, self.indices.stop - self.indices.start) * len(self.groups)

    @property
    def ranks(self) -> Iterator[Rank]:
        """The rank of each pod, as its controller will write it."""
        return self.ranks_of(self.groups)

    def ranks_of(self, groups: Iterable[Rank]) -> Iterator[Rank]:
        """Those of some groups."""
        return ((*group, index) for group in groups for index in self.indices)

    def begun(self, there: Container[Rank]) -> list[Rank]:
        """The groups whose pods are made by now, if its stage is: all, but for followers that still wait."""
        if not self.follows:
            return list(self.groups)
        return [group for group in self.groups if any(rank in there for rank in self.ranks_of([group]))]


Shape = tuple[Part, ...]
"""All pods of a gang; () where a controller makes all of them at once, does not tell, or makes too many."""


def pod_count(shape: Shape) -> int:
    """How many pods a gang has in all."""
    return sum(part.count for part in shape)


@dataclass(frozen=True)
class Awaited:
    """What is missing of a shape.

    stage_is_whole: whether all pods are there that the controller can have made by now. later: the pods of
    later stages as they will be, each with its rank.
    """

    stage_is_whole: bool = False
    later: tuple[tuple[Rank, Pod], ...] = ()


def awaited(shape: Shape, pods: Iterable[Pod]) -> Awaited:
    """What the controller still makes when these pods of its gang are there; nothing beyond MOST_PODS.

    Of earlier stages nothing is awaited: those pods have run, and may have ended. Pods that are opted out are
    no concern of ours; nor are those that ask for no extended resource, unless they alone are a stage.
    """
    if not shape or pod_count(shape) > MOST_PODS:
        return Awaited()
    there = {rank: pod for pod in pods if (rank := own_rank(pod)) is not None}
    templates = {id(part.template): part.template for part in shape}
    served = {number for number, template in templates.items() if not _is_opted_out(template)}
    devices = {number for number, template in templates.items() if asks_for_devices(template.spec)}
    ours = [part for part in shape if id(part.template) in served]
    begun = [part for part in ours if any(rank in there for rank in part.ranks)]
    if not begun:
        return Awaited()
    newest = max(begun, key=lambda part: (part.stage, id(part.template) in devices))
    now = [part for part in ours if part.stage == newest.stage]
    now = [part for part in now if id(part.template) in devices] or now
    # Leaders that are missing while others have a node have run, as all are placed together: they have ended.
    leaders = [rank for part in now if not part.follows for rank in part.ranks if rank in there]
    led = any(part.follows for part in now) and any(there[rank].spec.node_name for rank in leaders)
    whole = all(
        rank in there for part in now if part.follows or not led for rank in part.ranks_of(part.begun(there))
    )
    first = next(there[rank] for rank in newest.ranks if rank in there)
    coming = [(part, part.groups) for part in ours if part.stage > newest.stage]
    coming += [
        (part, tuple(group for group in part.groups if (*group, 0) in there and group not in begun_groups))
        for part in now
        if part.follows
        for begun_groups in [frozenset(part.begun(there))]
    ]
    coming = [(part, groups) for part, groups in coming if id(part.template) in devices]
    made = {
        id(template): _spec_as_made(template, newest.template, first)
        for template in {id(part.template): part.template for part, _ in coming}.values()
    }
    later = tuple(
        (rank, _as_made(part, rank, made[id(part.template)], first))
        for part, groups in coming
        for rank in part.ranks_of(groups)
    )
    return Awaited(whole, later)


def asks_for_devices(spec: PodSpec) -> bool:
    """Whether any container asks for an extended resource, as a GPU, or the pod has claims on devices."""
    return bool(_extended(spec) or spec.resource_claims)


def any_asks_for_devices(templates: Iterable[PodTemplate]) -> bool:
    """Whether pods of any of these templates do, but for those that are opted out."""
    return any(asks_for_devices(each.spec) for each in templates if not _is_opted_out(each))


def is_extended(resource: str) -> bool:
    """Whether a resource has a domain of its own, as nvidia.com/gpu, or stands for a DeviceClass."""
    return "/" in resource and ("kubernetes.io/" not in resource or resource.startswith(keys.DEVICE_CLASS))


def _is_opted_out(template: PodTemplate) -> bool:
    return template.metadata.annotations.get(keys.INJECT_ANNOTATION) == keys.INJECT_NO


def _extended(spec: PodSpec) -> frozenset[str]:
    asked = (each.resources for each in (*spec.containers, *spec.init_containers))
    return frozenset(
        name
        for each in asked
        for name, amount in {**each.limits, **each.requests}.items()
        if is_extended(name) and str(amount) != "0"
    )


def _spec_as_made(template: PodTemplate, like: PodTemplate, first: Pod) -> PodSpec:
    """Of a pod of this template as it will stand in the API server; like, first: another, and a pod of that.

    What admission has added to that pod it will add to one that asks for the same resources and model. A pod
    without such resources does not tell: then a toleration is believed to be added for each resource, as the
    API server's ExtendedResourceToleration does.
    """
    spec = replace(template.spec, priority=first.spec.priority)
    if _extended(spec) == _extended(like.spec) and _model(template) == _model(like):
        selector = {k: v for k, v in first.spec.node_selector.items() if k not in like.spec.node_selector}
        added = [each for each in first.spec.tolerations if each not in like.spec.tolerations]
        spec = replace(
            spec,
            node_selector={**selector, **spec.node_selector},
            tolerations=[*spec.tolerations, *added],
        )
    elif not _extended(like.spec):
        added = [PodToleration(key=name, operator="Exists") for name in sorted(_extended(template.spec))]
        spec = replace(spec, tolerations=[*spec.tolerations, *added])
    return spec


def _as_made(part: Part, rank: Rank, spec: PodSpec, first: Pod) -> Pod:
    name = "-".join(map(str, (part.name, *rank)))
    number = {part.numbered: str(rank[0])} if part.numbered else {}
    metadata = PodMetadata(
        name=name,
        namespace=first.metadata.namespace,
        # Groups of one set have pods of the same names until their controller has named these.
        uid=f"later/{first.metadata.uid}/{name}",
        labels={**part.template.metadata.labels, **number},
        annotations=part.template.metadata.annotations,
    )
    return Pod(metadata=metadata, spec=spec)


def _model(template: PodTemplate) -> str | None:
    return template.metadata.annotations.get(keys.GPU_MODEL_ANNOTATION)
