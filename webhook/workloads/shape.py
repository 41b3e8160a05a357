"""What pods a controller will make: parts whose pods are alike, and the stages in which they come. Pure.

The pods of a stage are made once all pods of the stages before it run (or have a node, as the controller will
have it). So a gang can be planned by what it will be while its first pods alone are there.
"""

from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from labeler.contract import keys
from webhook.kube.objects import Pod, PodMetadata, PodSpec
from webhook.workloads.additions import PodTemplate, extended_resources, spec_as_made
from webhook.workloads.ranks import Rank, own_rank

MOST_PODS: Final = 5000
"""Pods of a gang up to which it is planned by what it will be: numbers in owners are whatever their authors
write, and each pod that is yet to be made costs time and memory in every pass."""


@dataclass(frozen=True)
class Part:
    """Pods of one template. Each group of them (a Job, a role) numbers its own.

    groups: the beginning of each group's ranks; indices: the pods within a group. follows: whether the pods
    of each group are made once its leader, which is of the same stage, has a node. numbered: the label by
    which its controller numbers the groups. ended: how many of the groups have ended, as their controller
    says; None where its pods end only with the gang.
    """

    name: str
    stage: int
    template: PodTemplate
    indices: range
    groups: tuple[Rank, ...] = ((),)
    follows: bool = False
    numbered: str = ""
    ended: int | None = None

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

    def stands(self, there: Collection[Rank]) -> bool:
        """Whether all of its pods that its controller keeps are there, if its stage is an earlier one.

        Of a group that is there in part the others may have ended one by one, and later ones have come.
        """
        if self.ended is None:
            return all(rank in there for rank in self.ranks)
        present = {rank[:-1] for rank in there}
        return not self.count or sum(group not in present for group in self.groups) <= self.ended


Shape = tuple[Part, ...]
"""All pods of a gang; () where a controller makes all of them at once, does not tell, or makes too many."""


def pod_count(shape: Shape) -> int:
    """How many pods a gang has in all."""
    return sum(part.count for part in shape)


@dataclass(frozen=True)
class MissingPods:
    """What is missing of a shape.

    is_stage_complete: whether all pods are there that the controller can have made by now. later: the pods of
    later stages as they will be, each with its rank.
    """

    is_stage_complete: bool = False
    later: tuple[tuple[Rank, Pod], ...] = ()


def missing_pods(shape: Shape, pods: Iterable[Pod]) -> MissingPods:
    """What the controller still makes when these pods of its gang are there; nothing beyond MOST_PODS.

    Of earlier stages what has not ended is awaited: it was rolled back, or lost, and is recreated. Pods that
    are opted out are no concern of ours; nor are those that ask for no extended resource, unless they alone
    are a stage.
    """
    if not shape or pod_count(shape) > MOST_PODS:
        return MissingPods()
    there = {rank: pod for pod in pods if (rank := own_rank(pod)) is not None}
    parts = [part for part in shape if not _is_opted_out(part.template)]
    begun = [part for part in parts if any(rank in there for rank in part.ranks)]
    if not begun:
        return MissingPods()
    devices = frozenset(id(part.template) for part in parts if asks_for_devices(part.template.spec))
    newest = max(begun, key=lambda part: (part.stage, id(part.template) in devices))
    progress = _StagesMade(parts, there, devices, newest)
    return MissingPods(progress.is_stage_complete(), tuple(progress.later()))


@dataclass(frozen=True)
class _StagesMade:
    """How far a controller has come with a gang.

    devices: the templates, by id, whose pods ask for devices. newest: the part of the newest stage of which
    pods are there, one with devices if any has some.
    """

    parts: Sequence[Part]
    there: Mapping[Rank, Pod]
    devices: Container[int]
    newest: Part

    def is_stage_complete(self) -> bool:
        """Whether all pods are there that the controller can have made by now."""
        now = self._counting(self.newest.stage)
        if self._leaders_have_run(now):
            now = [part for part in now if part.follows]
        if not all(rank in self.there for part in now for rank in part.ranks_of(part.begun(self.there))):
            return False
        earlier = {part.stage for part in self.parts if part.stage < self.newest.stage}
        return all(part.stands(self.there) for stage in earlier for part in self._counting(stage))

    def _leaders_have_run(self, now: Sequence[Part]) -> bool:
        """Whether leaders that are missing have ended: others have a node, and all are placed together."""
        leaders = [rank for part in now if not part.follows for rank in part.ranks if rank in self.there]
        return any(part.follows for part in now) and any(self.there[each].spec.node_name for each in leaders)

    def later(self) -> Iterator[tuple[Rank, Pod]]:
        """The pods of later stages that ask for devices, as they will be, each with its rank."""
        first = next(self.there[rank] for rank in self.newest.ranks if rank in self.there)
        made: dict[int, PodSpec] = {}
        for part, groups in self._coming():
            template = part.template
            if id(template) not in self.devices:
                continue
            if id(template) not in made:
                made[id(template)] = spec_as_made(template, self.newest.template, first)
            for rank in part.ranks_of(groups):
                yield rank, _as_made(part, rank, made[id(template)], first)

    def _coming(self) -> Iterator[tuple[Part, Sequence[Rank]]]:
        """Parts of later stages, and groups of which the leader alone is there, with their groups."""
        for part in self.parts:
            if part.stage > self.newest.stage:
                yield part, part.groups
        for part in self._counting(self.newest.stage):
            if part.follows:
                begun = frozenset(part.begun(self.there))
                yield part, [each for each in part.groups if (*each, 0) in self.there and each not in begun]

    def _counting(self, stage: int) -> list[Part]:
        """The parts of a stage that count: those with devices, or all where none has any."""
        found = [part for part in self.parts if part.stage == stage]
        return [part for part in found if id(part.template) in self.devices] or found


def asks_for_devices(spec: PodSpec) -> bool:
    """Whether any container asks for an extended resource, as a GPU, or the pod has claims on devices."""
    return bool(extended_resources(spec) or spec.resource_claims)


def any_asks_for_devices(templates: Iterable[PodTemplate]) -> bool:
    """Whether pods of any of these templates do, but for those that are opted out."""
    return any(asks_for_devices(each.spec) for each in templates if not _is_opted_out(each))


def _is_opted_out(template: PodTemplate) -> bool:
    return template.metadata.annotations.get(keys.INJECT_ANNOTATION) == keys.INJECT_NO


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
