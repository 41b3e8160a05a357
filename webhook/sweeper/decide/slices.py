"""What of a gang's wish for slices is asked of the placement core while only some of its pods are there.

The core lays whole slices, and brings a pod back to the domain of its slice's placed pods. Some gangs hold
neither: a pod fails whose mates have finished, a controller makes its pods one after the other. They must
not wait for ever for mates that do not come. Pure.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from webhook.placement import Gang, Member, Slice
from webhook.scheduling import convert
from webhook.sweeper.observe.gangs import PodGang

LEADS: Final = "LeaderWorkerSet"
"""The kind of gangs whose pod of rank 0 leads the others."""


def asked_for(asked: Gang, gang: PodGang) -> Gang:
    """`asked` (the gang's waiting pods and its anchors, with their ranks) with the slices that can be kept.

    Of slices in slices the inner ones are given up first. What is left of one slice alone still shares a
    domain. Otherwise a rest that makes no whole slices goes without: the core then keeps it near the placed
    pods of the nearest ranks. A gang that is all there and does not divide is left to the core, which
    says so.
    """
    if not gang.slices or not asked.members:
        return asked
    slice_ = gang.slices[0]
    counted = _counted_from(asked, _first_worker(gang) or _equal_leaders(gang, slice_.size))
    loose = _without_placed_mates(counted, slice_.size)
    if _makes_whole_slices(loose, slice_.size, is_new=not asked.anchors):
        return replace(counted, slices=_dividing(counted, gang.slices))
    if len(loose) == len(counted.members) and _are_of_one_slice(loose, slice_.size):
        return _as_one_slice(counted, slice_.level)
    return replace(counted, slices=gang.slices) if _is_complete(gang) and not asked.anchors else asked


def _is_complete(gang: PodGang) -> bool:
    return not gang.staged and len(gang.pods) >= (gang.size or 0)


def _without_placed_mates(asked: Gang, size: int) -> list[Member]:
    """The members of whose slice no pod is placed."""
    placed = {anchor.rank // size for anchor in asked.anchors if anchor.rank is not None}
    return [each for each in asked.members if _slice_of(each, size) not in placed]


def _as_one_slice(asked: Gang, level: str) -> Gang:
    """The same with its members in one domain of the level, wherever the placed pods are."""
    most = max(Counter(each.pod_class for each in asked.members).values())
    unranked = tuple(replace(anchor, rank=None) for anchor in asked.anchors)
    return replace(asked, slices=(Slice(level, most),), anchors=unranked)


def _are_of_one_slice(members: Sequence[Member], size: int) -> bool:
    numbers = {_slice_of(each, size) for each in members}
    return len(numbers) == 1 and None not in numbers


def _dividing(counted: Gang, slices: tuple[Slice, ...]) -> tuple[Slice, ...]:
    """Of slices in slices, of which the outermost can be kept, those that can be: each with all around it.

    A slice with a placed pod takes back its own; of one that has none all must be there, if a slice around it
    has some.
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


def _first_worker(gang: PodGang) -> int:
    """The rank from which slices count: a leader that is unlike the workers stands beside all slices.

    Only a leader that is there tells so: a lowest rank that is missing may be a worker that has finished.
    """
    requests_of = {
        pod.metadata.uid: convert.pod_class_of(pod).requests for pod in (*gang.workers, *gang.later)
    }
    sizes = Counter(requests_of.values())
    workers = requests_of[max(requests_of, key=lambda uid: (sizes[requests_of[uid]], gang.ranks.get(uid, 0)))]
    lowest = min((rank for uid, rank in gang.ranks.items() if requests_of[uid] == workers), default=0)
    return max((rank + 1 for rank in gang.ranks.values() if rank < lowest), default=0)


def _equal_leaders(gang: PodGang, size: int) -> int:
    """1 where a leader that asks for what its workers ask is one more than their slices, else 0.

    A LeaderWorkerSet says that its first pod leads; a Job's first pod is a worker like the others.
    """
    leads = gang.key.kind == LEADS and gang.size is not None and size > 1 and gang.size % size == 1
    return int(leads and bool(gang.ranks))


def _counted_from(asked: Gang, first: int) -> Gang:
    """The same with rank `first` as rank 0."""
    if not first:
        return asked
    members = (each if each.rank is None else replace(each, rank=each.rank - first) for each in asked.members)
    anchors = (each if each.rank is None else replace(each, rank=each.rank - first) for each in asked.anchors)
    return replace(asked, members=tuple(members), anchors=tuple(anchors))


def _slice_of(member: Member, size: int) -> int | None:
    """The number of a member's slice, below 0 for a leader."""
    return None if member.rank is None else member.rank // size


def _makes_whole_slices(loose: Sequence[Member], size: int, *, is_new: bool) -> bool:
    """Whether the members whose slice has no placed pod divide into slices.

    In a new gang slices are counted along the ranks that are there, else by the ranks themselves.
    """
    if not loose:
        return True
    numbered = [(each.pod_class, _slice_of(each, size)) for each in loose]
    workers = [(kind, number) for kind, number in numbered if number is None or number >= 0]
    counts = Counter(number for _, number in workers)
    if is_new or None in counts:
        return max(Counter(kind for kind, _ in workers).values(), default=0) % size == 0
    return set(counts.values()) == {size}
