"""In which order the pods of a gang stand, by what their controller writes on them. Pure.

Controllers number their pods in different ways: by one number, by several from the outside in, or within
each role (master, workers) from 0 on. The placement core knows single numbers.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Final

from webhook.kube.objects import Pod
from webhook.workloads import marks

COUNT: Final = re.compile(r"[0-9]{1,9}")
"""Numbers that users and controllers write; longer ones are mistakes, or meant to hurt."""

_TRAILING_NUMBER: Final = re.compile(r"-([0-9]{1,9})$")

Rank = tuple[int | str, ...]
"""As a controller writes it: roles, then numbers."""


def ranks_by_uid(
    gated: list[Pod], released: list[Pod], problems: list[str], later: Iterable[tuple[Rank, Pod]] = ()
) -> dict[str, int]:
    """Ranks by uid if every pod has one and no two have the same; else none, and why.

    A pod that we do not hold may lack one (an MPI launcher, a Ray head): it takes nobody's place. later: pods
    that are yet to be made, with the ranks that they will have.
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
        problems.append("two pods have the same rank; placed without ranks")
        return {}
    return _in_one_row(known)


def _in_one_row(ranks: Mapping[str, Rank]) -> dict[str, int]:
    """The same order in single numbers. Where pods have one number each (within a role), gaps stay as they
    are: they belong to pods that are yet to come, or that have finished.
    """
    if any(isinstance(part, int) for rank in ranks.values() for part in rank[:-1]):
        position = {rank: index for index, rank in enumerate(sorted(ranks.values(), key=_order))}
        return {uid: position[rank] for uid, rank in ranks.items()}
    highest: dict[Rank, int] = {}
    for *role, number in ranks.values():
        highest[tuple(role)] = max(int(number), highest.get(tuple(role), 0))
    first, beginning = dict[Rank, int](), 0
    for each in sorted(highest, key=lambda role: _order((*role, 0))):
        first[each] = beginning
        beginning += highest[each] + 1
    return {uid: first[rank[:-1]] + int(rank[-1]) for uid, rank in ranks.items()}


def _order(rank: Rank) -> list[tuple[int, int, str]]:
    """Sorts ranks; a leader stands before pods that have nothing but a number, other roles behind them."""
    return [_order_of_part(part) for part in rank]


def _order_of_part(part: int | str) -> tuple[int, int, str]:
    if isinstance(part, int):
        return 0, part, ""
    place = marks.ROLES.index(part) if part in marks.ROLES else len(marks.ROLES)
    return (-1 if part in marks.LEADER_ROLES else 1), place, part


def rank_of(pod: Pod) -> Rank | None:
    """A pod's place in its gang as its controller numbers it, None where it does not.

    One number, or several from the outside in; roles that are numbered each for itself stand before those.
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
    """A pod's rank, also that of a leader that its controller does not number."""
    return rank_of(pod) or _rank_of_leader(pod)


def _rank_of_leader(pod: Pod) -> Rank | None:
    """The rank of a leader that its controller does not number, as there is only one."""
    roles = (mark(pod, key).lower() for key in marks.LEADER_KEYS)
    return next(((role, 0) for role in roles if role in marks.LEADER_ROLES), None)


def mark(pod: Pod, key: str) -> str:
    """The value of a label, or else of the annotation of that name, "" without either."""
    return pod.metadata.labels.get(key) or pod.metadata.annotations.get(key) or ""
