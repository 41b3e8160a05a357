"""One gang beside those that are placed after it: of places that are as good for it, one that spares theirs.

The first gang loses nothing but the tightest fit: another place is taken only if it uses as few domains of
each level, and its pods like it no less. So the proof that no place uses fewer holds for it as well. It is
taken only if, of the gangs that are looked at, none is then placed worse in its turn, and one better, or at
all. What gangs beyond them get is not looked at.
"""

from collections.abc import Sequence
from dataclasses import replace

from webhook.placement.budget import Budget
from webhook.placement.model import Assignment, Gang, NoFit, Objective, Options
from webhook.placement.place import place
from webhook.placement.snapshot import Snapshot
from webhook.placement.topology import PlacementError

_Value = tuple[bool, tuple[int, ...]]
"""Of a later gang: whether it has no place, and the domains that it uses; less is better."""


def sparing(
    gang: Gang,
    answer: Assignment,
    later: Sequence[Gang],
    snapshot: Snapshot,
    options: Options,
    budget: Budget,
) -> Assignment:
    """The answer, or one as good for the gang that leaves better places to the later ones.

    snapshot: what the answer was found on. budget: of the steps for that; beyond them the answer stays. A
    later gang that contradicts itself finds no place.
    """
    if not later:
        return answer
    without = _in_turn(later, snapshot, options, budget)
    taken = set(answer.nodes.values())
    wished = [set(place.nodes.values()) for place in without if place is not None]
    if not any(taken & nodes for nodes in wished):
        return answer  # each of them finds the place that it would have without the gang
    before = _values(_in_turn(later, snapshot.assume(answer, gang), options, budget))
    harmed = [
        set(other.nodes.values())
        for other, free, value in zip(without, _values(without), before, strict=True)
        if other is not None and free < value
    ]
    for kept_free in (set[str]().union(*harmed), harmed[0]) if harmed else ():
        elsewhere = replace(gang, excluded_nodes=gang.excluded_nodes | kept_free)
        other = place(elsewhere, snapshot, options, budget, explained=False)
        if budget.exhausted:
            return answer
        if isinstance(other, NoFit) or not _is_as_good(other.objective, answer.objective):
            continue
        after = _values(_in_turn(later, snapshot.assume(other, gang), options, budget))
        if after != before and all(map(tuple.__le__, after, before)) and not budget.exhausted:
            return replace(other, proven=answer.proven)
    return answer


def _is_as_good(one: Objective, other: Objective) -> bool:
    same = (one.unevenness, one.domains, one.holes) == (other.unevenness, other.domains, other.holes)
    return same and one.preference_penalty <= other.preference_penalty


def _in_turn(
    gangs: Sequence[Gang], snapshot: Snapshot, options: Options, budget: Budget
) -> list[Assignment | None]:
    """Each gang on what those before it leave."""
    found: list[Assignment | None] = []
    for gang in gangs:
        try:
            answer = place(gang, snapshot, options, budget, explained=False)
        except PlacementError:
            answer = None
        if answer is None or isinstance(answer, NoFit):
            found.append(None)
            continue
        found.append(answer)
        snapshot = snapshot.assume(answer, gang)
    return found


def _values(answers: Sequence[Assignment | None]) -> list[_Value]:
    return [(True, ()) if each is None else (False, each.objective.domains) for each in answers]
