"""The ranks of the pods of a gang, from the labels and annotations of their controller. Pure.

Controllers number pods differently: by one number, by several from the outermost to the innermost, or from 0
within each role (master, workers). The placement core uses single numbers.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from webhook.kube.objects import Pod
from webhook.workloads import marks

COUNT: Final = re.compile(r"[0-9]{1,9}")
"""Numbers from users and controllers; longer ones are mistakes or attacks."""

_TRAILING_NUMBER: Final = re.compile(r"-([0-9]{1,9})$")

EQUAL_RANKS: Final = "two pods have the same rank; placed without ranks"
"""The problem of a gang of several Jobs, for example, as each of them numbers its pods from 0."""

Rank = tuple[int | str, ...]
"""Roles, then numbers, as a controller writes them."""


def ranks_by_uid(
    gated: list[Pod],
    released: list[Pod],
    problems: list[str],
    later: Iterable[tuple[Rank, Pod]] = (),
    position: Callable[[Rank], int | None] = lambda _: None,
) -> dict[str, int]:
    """Ranks by uid if every gated pod has one and no two are equal; else none, with the reason in `problems`.

    A pod without our gate may lack a rank (an MPI launcher, a Ray head): it takes no other pod's position.
    later: pods that do not exist yet, with their ranks. position: of a rank among all that the controller of
    the pods writes, None where it does not describe such a pod.
    """
    found = {pod.metadata.uid: rank_of(pod) for pod in (*gated, *released)}
    if all(rank is None for rank in found.values()):
        return {}
    for pod in (*gated, *released):
        found[pod.metadata.uid] = found[pod.metadata.uid] or _rank_of_leader(pod)
    missing = sum(found[pod.metadata.uid] is None for pod in gated)
    if missing:
        problems.append(f"{missing} of {len(found)} pods have no rank; placed without ranks")
        return {}
    known = {uid: rank for uid, rank in found.items() if rank is not None}
    known |= {pod.metadata.uid: rank for rank, pod in later}
    if len(set(known.values())) < len(known):
        problems.append(EQUAL_RANKS)
        return {}
    return _described(known, position) or _in_one_row(known)


def _described(ranks: Mapping[str, Rank], position: Callable[[Rank], int | None]) -> dict[str, int]:
    """The positions that a controller describes; none where some pod has none of its own."""
    found = {uid: at for uid, rank in ranks.items() if (at := position(rank)) is not None}
    return found if len(set(found.values())) == len(ranks) else {}


def _in_one_row(ranks: Mapping[str, Rank]) -> dict[str, int]:
    """The same order in single numbers, where no controller describes the pods.

    If pods have one number each (within a role), gaps stay: they belong to pods that do not exist yet, or
    that have finished.
    """
    if any(isinstance(part, int) for rank in ranks.values() for part in rank[:-1]):
        position = {rank: index for index, rank in enumerate(sorted(ranks.values(), key=order_of))}
        return {uid: position[rank] for uid, rank in ranks.items()}
    highest: dict[Rank, int] = {}
    for *role, number in ranks.values():
        highest[tuple(role)] = max(int(number), highest.get(tuple(role), 0))
    first, beginning = dict[Rank, int](), 0
    for each in sorted(highest, key=lambda role: order_of((*role, 0))):
        first[each] = beginning
        beginning += highest[each] + 1
    return {uid: first[rank[:-1]] + int(rank[-1]) for uid, rank in ranks.items()}


def order_of(rank: Rank) -> list[tuple[int, int, str]]:
    """The sort key of a rank: leaders first, then pods with only a number, then other roles."""
    return [_order_of_part(part) for part in rank]


def _order_of_part(part: int | str) -> tuple[int, int, str]:
    if isinstance(part, int):
        return 0, part, ""
    place = marks.ROLES.index(part) if part in marks.ROLES else len(marks.ROLES)
    return (-1 if part in marks.LEADER_ROLES else 1), place, part


def rank_of(pod: Pod) -> Rank | None:
    """A pod's rank in its gang by its controller's numbers, None if it has none.

    The outermost number comes first; roles with their own numbering come before the numbers.
    """
    for roles, parts in marks.RANK_KEYS:
        values = [mark(pod, key) for key in parts]
        if all(COUNT.fullmatch(value) for value in values):
            named = (mark(pod, key).lower() for key in roles)
            return (*(role for role in named if role), *(int(value) for value in values))
    owner = pod.metadata.controller
    if owner is not None and owner.kind == "StatefulSet":
        match = _TRAILING_NUMBER.search(pod.metadata.name)
        return (int(match[1]),) if match else None
    return None


def own_rank(pod: Pod) -> Rank | None:
    """A pod's rank; also for a leader without a number."""
    return rank_of(pod) or _rank_of_leader(pod)


def _rank_of_leader(pod: Pod) -> Rank | None:
    """The rank of a leader without a number; a gang has only one."""
    roles = (mark(pod, key).lower() for key in marks.LEADER_KEYS)
    return next(((role, 0) for role in roles if role in marks.LEADER_ROLES), None)


def mark(pod: Pod, key: str) -> str:
    """The value of a label, else of the annotation with the same key, "" without either."""
    return pod.metadata.labels.get(key) or pod.metadata.annotations.get(key) or ""
