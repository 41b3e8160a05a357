"""The slices of a gang: which pods are of which, and which slices a question can have. Pure.

A pod is of the slice that its number says, as its controller writes it: when the gang starts, and when the
pod is replaced. Where the controller describes its pods, each number counts, whether its pod exists or not.
So pods that have finished leave gaps.

The core places whole slices, and puts a pod back into the domain of its slice's placed pods. Some gangs can
do neither: a pod fails after others of its slice have finished, or a controller creates its pods one after
the other. They must not wait for ever for pods that do not come, so the question has only those slices that
can be met.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from dataclasses import replace
from typing import Final

from webhook.kube.objects import Pod, PodMetadata
from webhook.placement import Gang, Member, PlacementError, Slice
from webhook.placement.model import Vector
from webhook.placement.question import BESIDE_SLICES
from webhook.scheduling import convert
from webhook.sweeper.observe.gang_requests import parts_of
from webhook.sweeper.observe.gangs import PodGang
from webhook.workloads.pod_sets import PodPositions, PodSet, PodSets, asks_for_devices, pod_count
from webhook.workloads.ranks import Rank, own_rank

LEADS: Final = "LeaderWorkerSet"
"""The kind of gangs whose pod of rank 0 leads the others."""


# --- the numbers of pods ------------------------------------------------------------------------------


def numbered_by_slices(gang: PodGang, *, is_new: bool) -> tuple[PodGang, int]:
    """The gang with the ranks by which its slices count, and how many pods they have in all, 0 if unknown.

    Slices are of the workers, which count from 0. Pods that request other resources, and leaders, are beside
    all slices: their ranks are below 0. is_new: whether no pod has a node.
    """
    pods = (*gang.workers, *gang.later)
    ranks, size = _described(gang, pods) or _undescribed(gang, pods, is_new=is_new)
    others = sorted(gang.ranks.keys() - ranks.keys(), key=lambda uid: gang.ranks[uid])
    first = min([0, *ranks.values()]) - len(others)
    beside = {uid: first + number for number, uid in enumerate(others)}
    return replace(gang, ranks={**ranks, **beside}), size


def _described(gang: PodGang, pods: Sequence[Pod]) -> tuple[dict[str, int], int] | None:
    """The ranks of the workers, and their number, as the controller describes them; None if it does not."""
    own = {pod.metadata.uid: own_rank(pod) for pod in pods if pod.metadata.uid in gang.ranks}
    row, ranks = PodPositions(gang.described), {uid: rank for uid, rank in own.items() if rank is not None}
    if not gang.described or None in map(row.position, ranks.values()):
        return None
    sets = _sets_of_workers(gang.described, pods[-1], ranks.values())
    workers, count = PodPositions(sets), pod_count(sets)
    leaders = _equal_leaders(gang, count) if ranks else 0
    found = {uid: workers.position(rank) for uid, rank in ranks.items()}
    return {uid: at - leaders for uid, at in found.items() if at is not None}, count - leaders


def _sets_of_workers(described: PodSets, pod: Pod, ranks: Collection[Rank]) -> PodSets:
    """The sets of the workers: the most pods that request the same resources, the same topology as this pod,
    and exist at the same time. ranks: of the pods that exist.
    """
    sets = _of_newest_phase(_of_its_part(described, pod), ranks)
    asking = [each for each in sets if asks_for_devices(each.template.spec)] or sets
    by_requests: dict[Vector, list[PodSet]] = {}
    for each in asking:
        by_requests.setdefault(convert.pod_class_of(_sample(each)).requests, []).append(each)
    return max((tuple(some) for some in by_requests.values()), key=pod_count)


def _of_its_part(described: PodSets, pod: Pod) -> PodSets:
    """The sets whose pods ask for the same topology as a pod; all where their requests cannot be read."""
    samples = [_sample(each, str(number)) for number, each in enumerate(described)]
    try:
        parts = parts_of([pod, *samples])
    except PlacementError:
        return described
    uids = next(part.uids for part in parts if pod.metadata.uid in part.uids)
    return tuple(each for number, each in enumerate(described) if str(number) in uids) or described


def _of_newest_phase(sets: PodSets, ranks: Collection[Rank]) -> PodSets:
    """Those that come last, one after the other, of which a pod exists."""
    for phase in sorted({each.phase for each in sets}, reverse=True):
        found = tuple(each for each in sets if each.phase == phase)
        row = PodPositions(found)
        if any(row.position(rank) is not None for rank in ranks):
            return found
    return sets


def _sample(of: PodSet, uid: str = "") -> Pod:
    """A pod of a set, with what its slices depend on."""
    annotations = {**of.template.metadata.annotations, **of.annotations}
    return Pod(PodMetadata(uid=uid, annotations=annotations), of.template.spec)


def _undescribed(gang: PodGang, pods: Sequence[Pod], *, is_new: bool) -> tuple[dict[str, int], int]:
    """The ranks of the workers, and their number, 0 if unknown, by the pods that exist.

    A new gang without gaps that divides into slices counts from its lowest rank.
    """
    ranked = [pod for pod in pods if pod.metadata.uid in gang.ranks]
    if not ranked:
        return {}, len(_workers(pods, {}))
    ranks = _behind_others(gang, _workers(ranked, gang.ranks))
    counted = [rank for rank in ranks.values() if rank >= 0]
    lowest, count = min(counted, default=0), len(counted)
    if max(counted, default=0) - lowest >= count:
        return ranks, 0
    if is_new and count % gang.slices[0].size == 0:
        return {uid: rank - lowest for uid, rank in ranks.items()}, count
    return ranks, 0 if lowest else count


def _workers(pods: Sequence[Pod], ranks: Mapping[str, int]) -> list[Pod]:
    """The most pods that request the same resources; of equally many, those with the highest rank."""
    by_requests: dict[Vector, list[Pod]] = {}
    for pod in sorted(pods, key=lambda pod: ranks.get(pod.metadata.uid, 0)):
        by_requests.setdefault(convert.pod_class_of(pod).requests, []).append(pod)
    return max(by_requests.values(), key=lambda some: (len(some), ranks.get(some[-1].metadata.uid, 0)))


def _behind_others(gang: PodGang, workers: Iterable[Pod]) -> dict[str, int]:
    """The ranks of the workers without those of other pods, below 0 that of a leader like the workers.

    Only an existing leader shows that there is one: a missing lowest rank may be a worker that has finished.
    """
    own = {pod.metadata.uid: gang.ranks[pod.metadata.uid] for pod in workers}
    others = sorted(rank for uid, rank in gang.ranks.items() if uid not in own)
    leaders = bisect_left(others, min(own.values()))
    first = others[leaders - 1] + 1 if leaders else _equal_leaders(gang, gang.size or 0)
    between = others[leaders:]
    return {uid: rank - first - bisect_left(between, rank) for uid, rank in own.items()}


def _equal_leaders(gang: PodGang, pods: int) -> int:
    """1 where a leader of the same class as its workers is one more than their slices, else 0.

    The first pod of a LeaderWorkerSet leads; the first pod of a Job is a worker like the others.
    """
    size = gang.slices[0].size
    return int(gang.key.kind == LEADS and size > 1 and pods % size == 1)


# --- the slices that can be met -----------------------------------------------------------------------


def with_slices(asked: Gang, gang: PodGang, size: int) -> Gang:
    """`asked` (the gang's waiting pods and its anchors, with their ranks) with the slices that can be met.

    size: see numbered_by_slices. Of nested slices the inner ones are given up first. A gang that is complete
    and does not divide into slices is left to the core, which reports it.
    """
    part = gang.slices[0]
    if size % part.size and not asked.anchors and _is_complete(gang):
        return replace(asked, slices=gang.slices)
    loose = _without_placed_mates(asked, part.size)
    if all(each.rank is not None for each in loose):
        return _with_ranked_slices(asked, gang.slices, loose)
    most = max(Counter(each.pod_class for each in loose).values())
    return asked if most % part.size else replace(asked, slices=gang.slices)


def _with_ranked_slices(asked: Gang, slices: tuple[Slice, ...], loose: Sequence[Member]) -> Gang:
    """The same where each pod has a rank. loose: those of whose slice no pod is placed.

    Of some slices other pods may have finished. What is left of a single one shares a domain. What is left of
    several is beside all slices. Where that is too much, or all that waits, nothing has slices: the core then
    keeps the pods near the placed ones of the nearest ranks.
    """
    size = slices[0].size
    left = _in_part(loose, size)
    if left and len({_slice_of(each, size) for each in asked.members}) == 1:
        return _as_one_slice(asked, slices[0].level)
    members = tuple(_beside_slices(each, left, size) for each in asked.members)
    beside = sum(_slice_of(each, size) < 0 for each in members)
    if left and (beside > BESIDE_SLICES or beside == len(members)):
        return asked
    asked = replace(asked, members=members)
    return replace(asked, slices=_dividing(asked, slices))


def _in_part(members: Sequence[Member], size: int) -> Set[int]:
    """The slices, by number, that have some of these members, but not all of their pods."""
    counts = Counter(_slice_of(each, size) for each in members)
    return {number for number, count in counts.items() if number >= 0 and count != size}


def _beside_slices(member: Member, left: Set[int], size: int) -> Member:
    """The member, with a rank below 0 if its slice is one of these."""
    return replace(member, rank=-1 - (member.rank or 0)) if _slice_of(member, size) in left else member


def _slice_of(member: Member, size: int) -> int:
    """The number of the slice of a member with a rank, below 0 for a pod beside all slices."""
    return (member.rank or 0) // size


def _is_complete(gang: PodGang) -> bool:
    return not gang.staged and len(gang.pods) >= (gang.size or 0)


def _without_placed_mates(asked: Gang, size: int) -> list[Member]:
    """The members of whose slice no pod is placed."""
    placed = {anchor.rank // size for anchor in asked.anchors if anchor.rank is not None and anchor.rank >= 0}
    return [each for each in asked.members if each.rank is None or each.rank // size not in placed]


def _as_one_slice(asked: Gang, level: str) -> Gang:
    """The same with its members in one domain of the level, wherever the placed pods are."""
    most = max(Counter(each.pod_class for each in asked.members).values())
    unranked = tuple(replace(anchor, rank=None) for anchor in asked.anchors)
    return replace(asked, slices=(Slice(level, most),), anchors=unranked)


def _dividing(counted: Gang, slices: tuple[Slice, ...]) -> tuple[Slice, ...]:
    """Of nested slices, the outermost of which can be met: those that can be met within it.

    A slice with a placed pod takes back its own pods. A slice without one must be complete if a slice around
    it has a placed pod.
    """
    for number, part in enumerate(slices[1:], 1):
        around = slices[number - 1]
        begun = {
            (each.size, anchor.rank // each.size)
            for each in (around, part)
            for anchor in counted.anchors
            if anchor.rank is not None and anchor.rank >= 0
        }
        waiting = Counter(
            member.rank // part.size
            for member in counted.members
            if member.rank is not None
            and member.rank >= 0
            and (around.size, member.rank // around.size) in begun
        )
        if any(count != part.size for at, count in waiting.items() if (part.size, at) not in begun):
            return slices[:number]
    return slices
