"""The pods that a controller creates: sets of one template each, and the stages of their creation. Pure.

A controller creates the pods of a stage once all pods of earlier stages run (for some controllers: have a
node). With these sets a whole gang can be planned while only its first pods exist, or none.
"""

from bisect import bisect_right
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, islice
from types import MappingProxyType
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from labeler.contract import keys
from webhook.kube.objects import Pod, PodMetadata, PodSpec
from webhook.workloads.additions import PodTemplate, extended_resources, spec_as_made
from webhook.workloads.ranks import Rank, order_of, own_rank

MOST_PODS: Final = 5000
"""The largest gang, in pods, that is planned by its sets. The numbers in an owner are up to its author, and
each pod that does not exist yet costs time and memory in every pass."""

NO_TEXTS: Final[Mapping[str, str]] = MappingProxyType({})

Path = tuple[str | int, ...]
"""Fields of an object and positions in lists, the outermost first."""


@dataclass(frozen=True)
class TemplatePath:
    """Where an owner has the metadata and the spec of a pod template.

    spec: None if its controller composes it of other fields.
    """

    metadata: Path
    spec: Path | None


def template_at(*path: str | int) -> TemplatePath:
    """The template at this path."""
    return TemplatePath((*path, "metadata"), (*path, "spec"))


_AT_SPEC: Final = template_at("spec", "template")


class PodSet(msgspec.Struct, frozen=True):
    """Pods of one template, in groups (the Jobs of a JobSet) that number their pods separately.

    name: of its pods, without their numbers. indices: the numbers of the pods of a group. at: where the owner
    has the template, None if its controller composes it of other fields. groups: the numbers of the groups,
    None for one group without a number. prefix: the beginning of all ranks, such as a role.

    labels, annotations: what the controller adds to the template. index_key, group_key: labels with the
    number of the pod and of its group, "" for none. group_name_keys: labels with the name of the group.
    is_numbered: whether names end with the number of the pod.

    stage: the pods are created once all of earlier stages run; None if others must have ended first, so that
    they never run beside them. one_by_one: whether each pod is a stage of its own. follows: whether the pods
    of a group are created once its leader, in the same stage, has a node. ended: how many groups have ended
    according to their controller; None if its pods end only with the gang. completions: how many pods of a
    group complete, if more than run at once: each has a number of its own. phase: how many other sets have to
    complete before, one after the other: pods of different phases count apart.
    """

    name: str
    template: PodTemplate
    indices: range
    at: TemplatePath | None = _AT_SPEC
    groups: range | None = None
    prefix: Rank = ()
    labels: Mapping[str, str] = NO_TEXTS
    annotations: Mapping[str, str] = NO_TEXTS
    index_key: str = ""
    group_key: str = ""
    group_name_keys: tuple[str, ...] = ()
    is_numbered: bool = True
    stage: int | None = 0
    one_by_one: bool = False
    follows: bool = False
    ended: int | None = None
    completions: int | None = None
    phase: int = 0

    @property
    def numbers(self) -> range:
        """The numbers that the pods of a group have over time."""
        return range(self.indices.start, max(self.indices.stop, self.completions or 0))

    @property
    def group_count(self) -> int:
        """The number of groups."""
        return 1 if self.groups is None else max(0, self.groups.stop - self.groups.start)

    @property
    def count(self) -> int:
        """The number of pods."""
        return max(0, self.indices.stop - self.indices.start) * self.group_count

    @property
    def is_later(self) -> bool:
        """Whether some of its pods are created only after others run, have a node, or have ended."""
        return self.stage != 0 or self.one_by_one or self.follows

    @property
    def group_numbers(self) -> Sequence[int | None]:
        """The number of each group, None for one without a number."""
        return (None,) if self.groups is None else self.groups

    @property
    def ranks(self) -> Iterator[Rank]:
        """The rank of each pod, as its controller will write it."""
        return self.ranks_of(self.group_numbers)

    def ranks_of(self, groups: Iterable[int | None]) -> Iterator[Rank]:
        """The ranks of the pods of some groups."""
        return ((*self._group_rank(group), index) for group in groups for index in self.indices)

    def leader_rank(self, group: int | None) -> Rank:
        """The rank of the first pod of a group."""
        return (*self._group_rank(group), 0)

    def _group_rank(self, group: int | None) -> Rank:
        return self.prefix if group is None else (*self.prefix, group)

    def group_name(self, group: int | None) -> str:
        """The beginning of the names of the pods of a group."""
        first = self.groups.start if self.groups is not None else 0
        return self.name if group is None else f"{self.name}-{group - first}"

    def group_labels(self, group: int | None) -> dict[str, str]:
        """The labels that the controller adds to all pods of a group."""
        numbers = {self.group_key: str(group)} if self.group_key else {}
        names = dict.fromkeys(self.group_name_keys, self.group_name(group))
        return {**self.labels, **numbers, **names}

    def index_labels(self, index: int) -> dict[str, str]:
        """The labels with the number of a pod."""
        return {self.index_key: str(index)} if self.index_key else {}

    def pod_name(self, group: int | None, index: int) -> str:
        """The name of a pod, without random letters."""
        name = self.group_name(group)
        return f"{name}-{index}" if self.is_numbered else name

    def in_gang(self, number: int) -> "PodSet":
        """The set of one of several gangs of an owner, with the names of its pods."""
        return replace(self, name=f"{self.name}-{number}")

    def metadata_of(self, group: int | None, index: int, **more: Any) -> PodMetadata:
        """The metadata of a pod. more: fields that the set does not know."""
        written = self.template.metadata
        return PodMetadata(
            name=self.pod_name(group, index),
            labels={**written.labels, **self.group_labels(group), **self.index_labels(index)},
            annotations={**written.annotations, **self.annotations},
            **more,
        )

    def begun(self, there: Container[Rank]) -> list[int | None]:
        """The groups whose pods exist once the stage has begun: all but followers that still wait."""
        if not self.follows:
            return list(self.group_numbers)
        return [each for each in self.group_numbers if any(rank in there for rank in self.ranks_of([each]))]

    def stands(self, there: Collection[Rank]) -> bool:
        """Whether all pods of an earlier stage exist, except those that have ended.

        A group with some pods counts as complete: the others may have ended one by one.
        """
        if self.ended is None:
            return all(rank in there for rank in self.ranks)
        present = {rank[:-1] for rank in there}
        missing = sum(self._group_rank(group) not in present for group in self.group_numbers)
        return not self.count or missing <= self.ended

    def stages(self) -> Iterator["PodSet"]:
        """The set itself, or one for each of its pods if these are created one by one."""
        if not self.one_by_one:
            yield self
        for index in self.indices if self.one_by_one else ():
            yield replace(self, indices=range(index, index + 1), stage=index, one_by_one=False)


PodSets = tuple[PodSet, ...]


@dataclass(frozen=True)
class _NumberedGroups:
    """Groups of pods that are numbered by the same spans.

    before: how many numbers the spans before each one have, and all of them. first: the position of the first
    pod of the first group.
    """

    numbers: range
    spans: Sequence[range]
    before: Sequence[int]
    first: int

    def position(self, group: int, index: int) -> int | None:
        """The position of a pod; None if the groups have no such pod."""
        at = bisect_right(self.spans, index, key=lambda span: span.start) - 1
        if group not in self.numbers or at < 0 or index not in self.spans[at]:
            return None
        within = self.before[at] + index - self.spans[at].start
        return self.first + (group - self.numbers.start) * self.before[-1] + within


def _beginning(of: tuple[Rank, range | None]) -> list[tuple[int, int, str]]:
    """The sort key of the first rank of a prefix and of numbers of groups."""
    prefix, groups = of
    return order_of((*prefix, 0 if groups is None else groups.start))


class PodPositions:
    """The positions from 0 of the pods of some sets, in the order of their ranks.

    Each number that the controller gives over time has a position, whether its pod exists or not. So a pod
    and its replacement have the same position, also once other pods have finished.
    """

    def __init__(self, sets: Iterable[PodSet]) -> None:
        """Count the pods of these sets."""
        spans: dict[tuple[Rank, range | None], list[range]] = {}
        for each in sets:
            spans.setdefault((each.prefix, each.groups), []).append(each.numbers)
        self._groups: dict[tuple[Rank, bool], list[_NumberedGroups]] = {}
        first = 0
        for prefix, groups in sorted(spans, key=_beginning):
            own = sorted(spans[prefix, groups], key=lambda span: span.start)
            numbers = range(1) if groups is None else groups
            found = _NumberedGroups(numbers, own, [0, *accumulate(map(len, own))], first)
            self._groups.setdefault((prefix, groups is None), []).append(found)
            first += len(numbers) * found.before[-1]

    def position(self, rank: Rank) -> int | None:
        """The position of the pod with this rank; None if it is of none of the sets."""
        *outer, index = rank
        if not isinstance(index, int):
            return None
        for groups in self._groups.get((tuple(outer), True), ()):
            return groups.position(0, index)
        group = outer.pop() if outer else None
        if not isinstance(group, int):
            return None
        there = self._groups.get((tuple(outer), False), [])
        at = bisect_right(there, group, key=lambda each: each.numbers.start) - 1
        return there[at].position(group, index) if at >= 0 else None


class OwnedPods(msgspec.Struct, frozen=True):
    """The pods of each gang that an owner creates, whether they exist yet or not.

    size: how many of them are still to run or to be created, None if the owner leaves it open. sets: () if
    the owner does not describe its pods. minimum: how many are enough to run, None if all are needed. gangs:
    the number of such gangs; gang_key: the label with the number of the gang, "" for none. not_described: why
    the owner does not describe its pods, if it should.
    """

    size: int | None
    sets: PodSets = ()
    minimum: int | None = None
    gangs: int = 1
    gang_key: str = ""
    not_described: str = ""

    @property
    def is_staged(self) -> bool:
        """Whether some pods are created only after others run, have a node, or have ended."""
        return any(each.is_later for each in self.sets)

    @property
    def beside(self) -> PodSets:
        """The sets whose pods run at the same time."""
        return tuple(each for each in self.sets if each.stage is not None)

    def creators(self, most: int) -> Iterator[str]:
        """The names of the objects that create its pods, such as the Jobs of a JobSet; no more than most.

        While a set of several gangs is updated, it may have twice as many.
        """
        names = chain.from_iterable(
            (each.in_gang(number).name for number in range(2 * self.gangs))
            if self.gang_key
            else map(each.group_name, each.group_numbers)
            for each in self.sets
        )
        return islice(names, most)

    @property
    def ask_for_devices(self) -> bool | None:
        """Whether pods that run at the same time ask for devices; None if they are not described."""
        return any_asks_for_devices(each.template for each in self.beside) if self.sets else None


def one_if_unset(count: int | None) -> int:
    """A number of pods, groups or replicas that is 1 by default."""
    return 1 if count is None else count


def pod_count(sets: PodSets) -> int:
    """The number of pods of a gang."""
    return sum(each.count for each in sets)


@dataclass(frozen=True)
class MissingPods:
    """The pods of a gang that do not exist yet.

    is_stage_complete: whether all pods exist that the controller can have created by now. later: the pods of
    later stages as they will be, each with its rank.
    """

    is_stage_complete: bool = False
    later: tuple[tuple[Rank, Pod], ...] = ()


def missing_pods(sets: PodSets, pods: Iterable[Pod]) -> MissingPods:
    """The pods that the controller still has to create, given the existing ones; none beyond MOST_PODS.

    Missing pods of earlier stages that have not ended are expected: they were rolled back or lost, and are
    recreated. Opted-out pods do not count. Pods without extended resources count only if no other pods are in
    their stage.
    """
    if not sets or pod_count(sets) > MOST_PODS:
        return MissingPods()
    there = {rank: pod for pod in pods if (rank := own_rank(pod)) is not None}
    ours = _stages(sets)
    begun = [each for each in ours if any(rank in there for rank in each.ranks)]
    if not begun:
        return MissingPods()
    devices = frozenset(id(each.template) for each in ours if asks_for_devices(each.template.spec))
    newest = max(begun, key=lambda each: (each.stage or 0, id(each.template) in devices))
    progress = _StagesMade(ours, there, devices, newest)
    return MissingPods(progress.is_stage_complete(), tuple(progress.later()))


def _stages(sets: PodSets) -> list[PodSet]:
    """The sets that are placed, each of one stage."""
    return [stage for each in sets if not _is_opted_out(each.template) for stage in each.stages()]


@dataclass(frozen=True)
class _StagesMade:
    """How many stages of a gang its controller has created.

    devices: ids of the templates whose pods ask for devices. newest: a set of the newest stage with existing
    pods, preferably one with devices.
    """

    sets: Sequence[PodSet]
    there: Mapping[Rank, Pod]
    devices: Container[int]
    newest: PodSet

    @property
    def _stage(self) -> int:
        return self.newest.stage or 0

    def is_stage_complete(self) -> bool:
        """Whether all pods exist that the controller can have created by now."""
        now = self._counting(self._stage)
        if self._leaders_have_run(now):
            now = [each for each in now if each.follows]
        if not all(rank in self.there for each in now for rank in each.ranks_of(each.begun(self.there))):
            return False
        earlier = {each.stage for each in self.sets if each.stage is not None and each.stage < self._stage}
        return all(each.stands(self.there) for stage in earlier for each in self._counting(stage))

    def _leaders_have_run(self, now: Sequence[PodSet]) -> bool:
        """Whether missing leaders have ended: all are placed together, and others have a node."""
        leaders = [rank for each in now if not each.follows for rank in each.ranks if rank in self.there]
        return any(each.follows for each in now) and any(self.there[each].spec.node_name for each in leaders)

    def later(self) -> Iterator[tuple[Rank, Pod]]:
        """The pods of later stages that ask for devices, as they will be, each with its rank."""
        first = next(self.there[rank] for rank in self.newest.ranks if rank in self.there)
        made: dict[int, PodSpec] = {}
        for each, groups in self._coming():
            template = each.template
            if id(template) not in self.devices:
                continue
            if id(template) not in made:
                made[id(template)] = spec_as_made(template, self.newest.template, first)
            for group in groups:
                for index, rank in zip(each.indices, each.ranks_of([group]), strict=True):
                    yield rank, _as_made(each, group, index, made[id(template)], first)

    def _coming(self) -> Iterator[tuple[PodSet, Sequence[int | None]]]:
        """Sets to be created, each with its groups: later stages, and groups that only have a leader."""
        for each in self.sets:
            if each.stage is not None and each.stage > self._stage:
                yield each, each.group_numbers
        for each in self._counting(self._stage):
            if each.follows:
                begun = frozenset(each.begun(self.there))
                led = (group for group in each.group_numbers if each.leader_rank(group) in self.there)
                yield each, [group for group in led if group not in begun]

    def _counting(self, stage: int) -> list[PodSet]:
        """The sets of a stage that count: those with devices, or all if none has devices."""
        found = [each for each in self.sets if each.stage == stage]
        return [each for each in found if id(each.template) in self.devices] or found


def asks_for_devices(spec: PodSpec) -> bool:
    """Whether a container requests an extended resource, such as a GPU, or the pod has device claims."""
    return bool(extended_resources(spec) or spec.resource_claims)


def any_asks_for_devices(templates: Iterable[PodTemplate]) -> bool:
    """Whether pods of any of these templates ask for devices; opted-out templates do not count."""
    return any(asks_for_devices(each.spec) for each in templates if not _is_opted_out(each))


def _is_opted_out(template: PodTemplate) -> bool:
    return template.metadata.annotations.get(keys.INJECT_ANNOTATION) == keys.INJECT_NO


def _as_made(pod_set: PodSet, group: int | None, index: int, spec: PodSpec, first: Pod) -> Pod:
    # The pods of several gangs of an owner have the same name here; the first pod's uid makes uids unique.
    uid = f"later/{first.metadata.uid}/{pod_set.pod_name(group, index)}"
    return Pod(pod_set.metadata_of(group, index, namespace=first.metadata.namespace, uid=uid), spec)
