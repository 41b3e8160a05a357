"""The pods that a controller will create: parts of one template each, and the stages of their creation. Pure.

A controller creates the pods of a stage once all pods of earlier stages run (for some controllers: have a
node). With this shape a whole gang can be planned while only its first pods exist.
"""

from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from labeler.contract import keys
from webhook.kube.objects import Pod, PodMetadata, PodSpec
from webhook.workloads.additions import PodTemplate, extended_resources, spec_as_made
from webhook.workloads.ranks import Rank, own_rank

MOST_PODS: Final = 5000
"""The largest gang, in pods, that is planned by its shape. The numbers in an owner are up to its author, and
each pod that does not exist yet costs time and memory in every pass."""


@dataclass(frozen=True)
class Part:
    """Pods of one template, in groups (a Job, a role) that number their pods separately.

    groups: the prefix of each group's ranks; indices: the pods within a group. follows: whether the pods
    of a group are created once its leader, in the same stage, has a node. numbered: the label with the
    number of the group. ended: how many groups have ended according to their controller; None if its pods
    end only with the gang.
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
        """The number of pods."""
        return max(0, self.indices.stop - self.indices.start) * len(self.groups)

    @property
    def ranks(self) -> Iterator[Rank]:
        """The rank of each pod, as its controller will write it."""
        return self.ranks_of(self.groups)

    def ranks_of(self, groups: Iterable[Rank]) -> Iterator[Rank]:
        """The ranks of the pods of some groups."""
        return ((*group, index) for group in groups for index in self.indices)

    def begun(self, there: Container[Rank]) -> list[Rank]:
        """The groups whose pods exist once the stage has begun: all but followers that still wait."""
        if not self.follows:
            return list(self.groups)
        return [group for group in self.groups if any(rank in there for rank in self.ranks_of([group]))]

    def stands(self, there: Collection[Rank]) -> bool:
        """Whether all pods of an earlier stage exist, except those that have ended.

        A group with some pods counts as complete: the others may have ended one by one.
        """
        if self.ended is None:
            return all(rank in there for rank in self.ranks)
        present = {rank[:-1] for rank in there}
        return not self.count or sum(group not in present for group in self.groups) <= self.ended


Shape = tuple[Part, ...]
"""All pods of a gang. () if the controller creates them at once, creates too many, or gives no numbers."""


def pod_count(shape: Shape) -> int:
    """The number of pods of a gang."""
    return sum(part.count for part in shape)


@dataclass(frozen=True)
class MissingPods:
    """The pods of a shape that do not exist yet.

    is_stage_complete: whether all pods exist that the controller can have created by now. later: the pods of
    later stages as they will be, each with its rank.
    """

    is_stage_complete: bool = False
    later: tuple[tuple[Rank, Pod], ...] = ()


def missing_pods(shape: Shape, pods: Iterable[Pod]) -> MissingPods:
    """The pods that the controller still has to create, given the existing ones; none beyond MOST_PODS.

    Missing pods of earlier stages that have not ended are expected: they were rolled back or lost, and are
    recreated. Opted-out pods do not count. Pods without extended resources count only if no other pods are in
    their stage.
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
    """How many stages of a gang its controller has created.

    devices: ids of the templates whose pods ask for devices. newest: a part of the newest stage with existing
    pods, preferably one with devices.
    """

    parts: Sequence[Part]
    there: Mapping[Rank, Pod]
    devices: Container[int]
    newest: Part

    def is_stage_complete(self) -> bool:
        """Whether all pods exist that the controller can have created by now."""
        now = self._counting(self.newest.stage)
        if self._leaders_have_run(now):
            now = [part for part in now if part.follows]
        if not all(rank in self.there for part in now for rank in part.ranks_of(part.begun(self.there))):
            return False
        earlier = {part.stage for part in self.parts if part.stage < self.newest.stage}
        return all(part.stands(self.there) for stage in earlier for part in self._counting(stage))

    def _leaders_have_run(self, now: Sequence[Part]) -> bool:
        """Whether missing leaders have ended: all are placed together, and others have a node."""
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
        """Parts to be created, each with its groups: later stages, and groups that only have a leader."""
        for part in self.parts:
            if part.stage > self.newest.stage:
                yield part, part.groups
        for part in self._counting(self.newest.stage):
            if part.follows:
                begun = frozenset(part.begun(self.there))
                yield part, [each for each in part.groups if (*each, 0) in self.there and each not in begun]

    def _counting(self, stage: int) -> list[Part]:
        """The parts of a stage that count: those with devices, or all if none has devices."""
        found = [part for part in self.parts if part.stage == stage]
        return [part for part in found if id(part.template) in self.devices] or found


def asks_for_devices(spec: PodSpec) -> bool:
    """Whether a container requests an extended resource, such as a GPU, or the pod has device claims."""
    return bool(extended_resources(spec) or spec.resource_claims)


def any_asks_for_devices(templates: Iterable[PodTemplate]) -> bool:
    """Whether pods of any of these templates ask for devices; opted-out templates do not count."""
    return any(asks_for_devices(each.spec) for each in templates if not _is_opted_out(each))


def _is_opted_out(template: PodTemplate) -> bool:
    return template.metadata.annotations.get(keys.INJECT_ANNOTATION) == keys.INJECT_NO


def _as_made(part: Part, rank: Rank, spec: PodSpec, first: Pod) -> Pod:
    name = "-".join(map(str, (part.name, *rank)))
    number = {part.numbered: str(rank[0])} if part.numbered else {}
    metadata = PodMetadata(
        name=name,
        namespace=first.metadata.namespace,
        # The pods of several groups of a set have the same name here; the first pod's uid makes uids unique.
        uid=f"later/{first.metadata.uid}/{name}",
        labels={**part.template.metadata.labels, **number},
        annotations=part.template.metadata.annotations,
    )
    return Pod(metadata=metadata, spec=spec)
