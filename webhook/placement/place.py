"""The entry: one gang and one snapshot in, the best assignment or the reason why there is none out.

Members that join placed pods with ranks (a replaced pod, growth) go as near to the pod of the nearest rank as
they can without one more domain or more leftover; so ranks stay along the topology through every repair.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from webhook.placement.alike import least_free as leastfree
from webhook.placement.alike.items import Pick
from webhook.placement.alike.knapsack import Knapsack
from webhook.placement.cards import choose as cards
from webhook.placement.cards.state import natural
from webhook.placement.costs import Costs
from webhook.placement.evaluate import class_room, cost_of, evaluate
from webhook.placement.explain import no_fit, refused
from webhook.placement.model import (
    Assignment,
    Gang,
    Member,
    Mode,
    NoFit,
    Objective,
    Options,
    Placed,
    PlacementError,
    Slots,
)
from webhook.placement.question import Impossible, ask
from webhook.placement.snapshot import Snapshot, place_of
from webhook.placement.tree import Question, Vertex, build, is_usable
from webhook.placement.unlike import fallback
from webhook.placement.unlike.frontier import OutOfSteps, Search
from webhook.placement.unlike.node_options import State

NEIGHBOURS: Final = 64
"""Members up to which they are steered to the placed pods of the nearest ranks: a repair, not a new gang."""

NEIGHBOURHOODS: Final = 4
"""Domains up to which members are steered at once; each makes a class of its own for the search."""

STEERING: Final = 20_000
"""Search steps for one attempt at steering."""


@dataclass(frozen=True, slots=True)
class _Solved:
    """Pods of each class by node (None: no place found), and whether that is proven to be the best.

    cost: that of the nodes used, where the solver knows it; counts are in topology order then.
    """

    counts: dict[str, State] | None
    proven: bool
    cost: int | None = None


def place(gang: Gang, snapshot: Snapshot, options: Options | None = None) -> Assignment | NoFit:
    """The best place for every member by the objective (see model.Objective), or why there is none.

    Raises PlacementError for a gang that contradicts itself or names an unknown level.
    """
    options = options or Options()
    try:
        question, members = ask(gang, snapshot, options)
    except Impossible as reason:
        return refused(gang, snapshot, str(reason))
    if not gang.members:
        nothing = Costs(question.levels).objective(0)
        return Assignment((), nothing, True, snapshot.topology.spread(nothing.domains))
    root = build(question, snapshot)
    solved = _decided(question, root, snapshot)
    if solved.counts is None:
        return no_fit(gang, question, snapshot, root, solved.proven)
    objective = _objective(question, snapshot, root, solved)
    placed = _assign(question, members, snapshot, solved)
    best = Assignment(placed, objective, solved.proven, snapshot.topology.spread(objective.domains))
    return _near_neighbours(gang, question, snapshot, best) or best


def _near_neighbours(
    gang: Gang, question: Question, snapshot: Snapshot, best: Assignment
) -> Assignment | None:
    """An assignment as good up to leftover with each member near its rank's neighbours: the nearest level
    at which there is one; None where there is none.
    """
    ranked = any(member.rank is not None for member in gang.members)
    if not ranked or gang.slices or len(gang.members) > NEIGHBOURS:
        return None
    if question.options.mode is not Mode.BEST_FIT or all(anchor.rank is None for anchor in gang.anchors):
        return None
    options = replace(question.options, budget=min(question.options.budget, STEERING))
    for level in range(question.levels, -1, -1):
        tied, members = ask(gang, snapshot, options, near=level)
        if not tied.tied or len(set(tied.tied)) > NEIGHBOURHOODS:
            continue
        solved = _solve(tied, build(tied, snapshot))
        if solved.counts is None:
            continue
        taken = {name: sum(pods) for name, pods in solved.counts.items()}
        objective = evaluate(question, snapshot, taken, Costs(question.levels))
        if replace(objective, discord=0) == replace(best.objective, discord=0):
            placed = _assign(tied, members, snapshot, solved)
            return Assignment(placed, objective, best.proven, best.spread)
    return None


def _decided(question: Question, root: Vertex, snapshot: Snapshot) -> _Solved:
    """As _solve, but nothing is proven where room on cards was not decided, see cards.doubts."""
    hard = [number for number, pod_class in enumerate(question.classes) if cards.is_hard(pod_class)]
    with cards.doubts() as doubts:
        solved = _solve(question, root)
        # The rooms of single classes may come from an earlier decision: ask for them again.
        for state in snapshot.nodes.values() if hard else ():
            for number in hard if is_usable(question, state) else ():
                class_room(question, number, state)
    return replace(solved, proven=solved.proven and not doubts)


def _solve(question: Question, root: Vertex) -> _Solved:
    """The best distribution that the solvers find, and whether nothing better (or nothing at all) exists."""
    alike = len(question.counts) == 1 and not question.slices
    if alike and question.options.mode is not Mode.LEAST_FREE:
        solution = Knapsack(question).solve(root)
        if solution is None:
            return _Solved(None, True)
        return _Solved(_filled(question, solution.picks), True, solution.cost)
    if alike:
        return _Solved(leastfree.distribute(question, root), True)
    balanced = question.options.mode is Mode.BALANCED
    search = Search(question, question.options.budget if balanced or len(question.counts) > 1 else None)
    try:
        return _Solved(search.solve(root, Knapsack(question).bound), True)
    except OutOfSteps:
        return _Solved(*fallback.first_found(question, root))


def _filled(question: Question, picks: Sequence[Pick]) -> dict[str, State]:
    """The chosen nodes filled in the order of the topology; the last one may stay partly free."""
    counts: dict[str, State] = {}
    left = question.counts[0]
    for state, room, _ in picks:
        if left:
            counts[state.node.name] = (min(left, room),)
            left -= min(left, room)
    return counts


def _objective(question: Question, snapshot: Snapshot, root: Vertex, solved: _Solved) -> Objective:
    costs = Costs(question.levels)
    if solved.cost is not None:
        return costs.objective(solved.cost)
    assert solved.counts is not None
    places = [(*place_of(snapshot.nodes[name], question.levels), name) for name in solved.counts]
    total = cost_of(root, places)
    if question.options.mode is Mode.BALANCED:
        total += sum(sum(taken) ** 2 for taken in solved.counts.values()) << costs.square
    return costs.objective(total)


def _assign(
    question: Question, members: Sequence[Sequence[Member]], snapshot: Snapshot, solved: _Solved
) -> tuple[Placed, ...]:
    """Members onto nodes: each class in rank order along the topology."""
    counts = solved.counts or {}
    order = list(counts)
    if solved.cost is None:
        order.sort(key=lambda name: _along(question, snapshot, name))
    on_node: dict[str, list[Member]] = {name: [] for name in order}
    for number, group in enumerate(members):
        waiting = iter(group)
        for name in order:
            on_node[name] += [next(waiting) for _ in range(counts[name][number])]
    if not any(pod_class.wants_cards for pod_class in question.classes):
        places = {member.name: name for name, residents in on_node.items() for member in residents}
        return tuple(Placed(member.name, places[member.name]) for group in members for member in group)
    placed = {}
    for name, residents in on_node.items():
        for member, slots in zip(residents, _cards(snapshot, name, residents), strict=True):
            placed[member.name] = Placed(member.name, name, slots)
    return tuple(placed[member.name] for group in members for member in group)


def _along(question: Question, snapshot: Snapshot, name: str) -> tuple[object, ...]:
    key = (*place_of(snapshot.nodes[name], question.levels), name)
    return tuple(natural(part) for part in key)


def _cards(snapshot: Snapshot, name: str, residents: Sequence[Member]) -> list[Slots]:
    pods = [member.pod_class for member in residents]
    if not any(pod.wants_cards for pod in pods):
        return [()] * len(pods)
    chosen = cards.choose(snapshot.nodes[name].cards, pods)
    if chosen is None:  # fewer pods than were found to fit may be what the search does not decide
        raise PlacementError(
            f"cards of {name} for {len(pods)} of its pods were not found in the steps there are"
        )
    return [slots if pod.wants_cards else () for slots, pod in zip(chosen, pods, strict=True)]
