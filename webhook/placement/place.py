"""The entry: one gang and one snapshot in, the best assignment or the reason why there is none out.

Members that join placed pods with ranks (a replaced pod, growth) go as near to the pod of the nearest rank as
they can without one more domain or more leftover; so ranks stay along the topology through every repair.
"""

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import compress, islice
from typing import Final

from webhook.placement import heterogeneous, homogeneous, spread
from webhook.placement.budget import Budget, OutOfSteps
from webhook.placement.cards.choose import choose
from webhook.placement.cards.first_cards import first_found
from webhook.placement.cards.search import DESCENT, POLISH
from webhook.placement.evaluate import Solution, cost_of, evaluate
from webhook.placement.explain import no_fit, refused, too_many_classes, undecided, unexplained
from webhook.placement.model import (
    Assignment,
    Gang,
    Member,
    Mode,
    NoFit,
    Objective,
    Options,
    Placed,
    Slots,
)
from webhook.placement.names import natural
from webhook.placement.question import Impossible, Question, ask
from webhook.placement.snapshot import Path, Snapshot, families_of, key_of
from webhook.placement.special_cases import most_headroom, only_placement
from webhook.placement.tree import Tree, build
from webhook.placement.vertex import Vertex

NEIGHBOURS: Final = 64
"""Members up to which they are placed near the pods of the nearest ranks: a repair, not a new gang."""

NEIGHBOURHOODS: Final = 4
"""Domains up to which ranks choose a domain at once; each makes a class of its own for the search."""

RESERVE: Final = 8
"""The part of the steps that first-fit and patterns have at least, beside them."""

FIRST_FIT: Final = 8
"""Steps for each node that they have at least."""


def place(
    gang: Gang,
    snapshot: Snapshot,
    options: Options | None = None,
    budget: Budget | None = None,
    *,
    explained: bool = True,
) -> Assignment | NoFit:
    """The best place for every member by the objective (see model.Objective), or why there is none.

    budget: of the steps that this and further questions may take; Options.bound of its own if None. Beyond it
    the answer is the best that was found, or that nothing was decided (proven is False then). explained:
    whether a gang that fits nowhere gets the reason, for which each node is looked at once more.
    Raises PlacementError for a gang that contradicts itself or names an unknown level.
    """
    options = options or Options()
    budget = (budget or Budget(options.bound)).part(options.bound)
    try:
        question, members = ask(gang, snapshot, options)
    except Impossible as reason:
        return refused(gang, snapshot, str(reason))
    if not gang.members:
        nothing = question.costs().objective(0)
        return Assignment((), nothing, True, snapshot.topology.spread(nothing.domains))
    looks = _looks(question, snapshot)
    if looks > options.bound and len(question.classes) > 1:
        return too_many_classes(gang, len(question.classes), snapshot, options.bound)
    budget.take(looks + len(gang.members))
    tree = build(question, snapshot, budget.part(budget.left // 2))
    budget.take(tree.steps)
    solved = _solve(question, snapshot, tree, budget)
    if solved.counts is None:
        if not explained:
            return unexplained(gang, snapshot, solved.proven)
        return no_fit(gang, question, snapshot, tree, solved.proven, budget)
    objective = _objective(question, snapshot, tree.root, solved)
    try:
        placed = _assign(gang, question, members, snapshot, solved, budget)
    except _CardsUndecided as what:
        return undecided(gang, snapshot, str(what))
    spread_over = snapshot.topology.spread(objective.domains, families_of(snapshot, solved.counts))
    best = Assignment(placed, objective, solved.proven, spread_over)
    return _near_neighbours(gang, question, snapshot, best, budget)


def _looks(question: Question, snapshot: Snapshot) -> int:
    """Steps to work out what capacity each node has: for each kind of pods a third of a microsecond a node.

    Pods that must stay in one domain look at the nodes of its block alone, pods whose rules name nodes at
    these.
    """
    looked = len(snapshot.nodes)
    for number in range(len(question.classes)):
        domain, names = question.confinement(number), question.named[number]
        if names is not None:
            looked += 1 + len(names)
        elif domain is not None:
            looked += len(snapshot.blocks[domain[:2]].states)
        else:
            looked += len(snapshot.nodes)
    return looked // 3


def _near_neighbours(
    gang: Gang, question: Question, snapshot: Snapshot, best: Assignment, budget: Budget
) -> Assignment:
    """An assignment as good up to leftover with each member near its rank's neighbours: the nearest level
    at which there is one; `best` itself where there is none.
    """
    if not _has_neighbours(gang, question):
        return best
    for level in range(question.levels, -1, -1):
        confined, members = ask(gang, snapshot, question.options, near=level)
        if not confined.confined or len(set(confined.confined)) > NEIGHBOURHOODS:
            continue
        part = budget.part(budget.left // 4)
        tree = build(confined, snapshot, part)
        part.take(tree.steps)
        solved = _solve(confined, snapshot, tree, part)
        if solved.counts is None:
            continue
        taken = {name: sum(pods) for name, pods in solved.counts.items()}
        objective = evaluate(question, snapshot, taken, question.costs())
        if _up_to_leftover(objective) == _up_to_leftover(best.objective):
            with contextlib.suppress(_CardsUndecided):
                placed = _assign(gang, confined, members, snapshot, solved, budget)
                return Assignment(placed, objective, best.proven, best.spread)
    return best


def _has_neighbours(gang: Gang, question: Question) -> bool:
    """Whether a few members with ranks join placed pods with ranks, and no other rule orders them."""
    if gang.slices or gang.spread or question.options.mode is not Mode.BEST_FIT:
        return False
    is_ranked = any(member.rank is not None for member in gang.members)
    return (
        is_ranked
        and len(gang.members) <= NEIGHBOURS
        and any(anchor.rank is not None for anchor in gang.anchors)
    )


def _up_to_leftover(objective: Objective) -> Objective:
    return replace(objective, headroom_penalty=0, preference_penalty=0)


def _solve(question: Question, snapshot: Snapshot, tree: Tree, budget: Budget) -> Solution:
    """The best distribution that the solvers find, and whether nothing better (or nothing at all) exists."""
    is_plain = question.is_identical and question.machine is None
    if is_plain and question.spread is not None:
        found = spread.solve(question, tree.root, budget.part(budget.left * 7 // 8))
    elif is_plain and question.options.mode is Mode.HEADROOM and not question.anchored:  # else near to these
        found = most_headroom(question, tree.root)
    else:
        found = _searched(question, snapshot, tree.root, budget)
    return replace(found, proven=found.proven and tree.exact)


def _searched(question: Question, snapshot: Snapshot, root: Vertex, budget: Budget) -> Solution:
    """By the covering knapsack where that is proven, else by joint bounds, first-fit and the pattern program
    too.
    """
    reserve = budget.left // RESERVE
    if (only := only_placement(question, root, budget)) is not None:
        return only
    found = []
    if homogeneous.serves(question):
        first = _mostly_identical(question, root, budget)
        if first.proven:
            return first
        found.append(first)
    steps = max(budget.left, reserve, min(FIRST_FIT * len(snapshot.nodes), question.options.bound))
    part = Budget(steps)
    # Patterns of identical pods tell no more than the knapsack, which had all steps.
    nodes, fills_only = len(snapshot.nodes), question.is_identical
    found.append(heterogeneous.solve(question, root, nodes, part, fills_only=fills_only))
    budget.take(part.spent)
    return _better(question, snapshot, root, found)


def _mostly_identical(question: Question, root: Vertex, budget: Budget) -> Solution:
    """By the search for workers, as far as its share of the steps reaches."""
    left = 0
    if len(question.classes) > 1:  # exact questions to cards may take all
        left = budget.left // (2 if any(pod.wants_cards for pod in question.classes) else 4)
    try:
        return homogeneous.solve(question, root, budget.part(budget.left - left))
    except OutOfSteps:
        return Solution(None, False)


def _better(question: Question, snapshot: Snapshot, root: Vertex, found: Sequence[Solution]) -> Solution:
    """The best place, the one of those that cost the same that comes last; proven if one of these is."""
    placed = [each for each in reversed(found) if each.counts is not None]
    if not placed:
        return Solution(None, any(each.proven for each in found))
    best = min(placed, key=lambda each: _cost(question, snapshot, root, each))
    return replace(best, proven=any(each.proven for each in found))


def _objective(question: Question, snapshot: Snapshot, root: Vertex, solved: Solution) -> Objective:
    return question.costs().objective(_cost(question, snapshot, root, solved))


def _cost(question: Question, snapshot: Snapshot, root: Vertex, solved: Solution) -> int:
    if solved.cost is not None:
        return solved.cost
    assert solved.counts is not None
    places = [key_of(snapshot.nodes[name], question.levels) for name in solved.counts]
    return cost_of(root, places)


def _assign(
    gang: Gang,
    question: Question,
    members: Sequence[Sequence[Member]],
    snapshot: Snapshot,
    solved: Solution,
    budget: Budget,
) -> tuple[Placed, ...]:
    """Members onto nodes: each class in rank order along the topology, going on from placed ones.

    budget: of the steps for the best cards; what it takes to find any is as much again at most. Raises
    _CardsUndecided.
    """
    on_node = _members_on_nodes(gang, question, members, snapshot, solved)
    slots: Mapping[str, Slots] = {}
    if any(pod_class.wants_cards for pod_class in question.classes):
        slots = _cards_of_members(on_node, question, snapshot, budget)
    places = {member.name: name for name, residents in on_node.items() for member in residents}
    return tuple(
        Placed(member.name, places[member.name], slots.get(member.name, ()))
        for group in members
        for member in group
    )


def _members_on_nodes(
    gang: Gang,
    question: Question,
    members: Sequence[Sequence[Member]],
    snapshot: Snapshot,
    solved: Solution,
) -> dict[str, list[Member]]:
    """Which members go onto each node; nodes are in topology order."""
    counts = solved.counts or {}
    order = list(counts)
    beside = _beside_ranks(gang, question, snapshot)
    if solved.cost is None or beside:  # else they are in topology order already
        order.sort(key=lambda name: _along(question, snapshot, name, beside))
    on_node: dict[str, list[Member]] = {name: [] for name in order}
    waiting = [iter(group) for group in members]
    for name in order:
        taken = counts[name]
        for number in compress(range(len(taken)), taken):  # few, of as many as there may be
            on_node[name] += islice(waiting[number], taken[number])
    return on_node


def _cards_of_members(
    on_node: Mapping[str, Sequence[Member]], question: Question, snapshot: Snapshot, budget: Budget
) -> dict[str, Slots]:
    """The cards of each member by its name, each node with a share of the steps. Raises _CardsUndecided."""
    slots: dict[str, Slots] = {}
    reserve = Budget(question.options.bound)
    for number, (name, residents) in enumerate(on_node.items()):
        share = budget.part(budget.left // (len(on_node) - number))
        chosen = _cards(snapshot, name, residents, share, reserve)
        slots |= {member.name: each for member, each in zip(residents, chosen, strict=True)}
    return slots


def _along(
    question: Question, snapshot: Snapshot, name: str, beside: Mapping[Path, tuple[int, int]]
) -> tuple[object, ...]:
    key = key_of(snapshot.nodes[name], question.levels)
    return tuple((beside.get(key[: end + 1], _BESIDE_NONE), natural(part)) for end, part in enumerate(key))


_BESIDE_NONE: Final = (1, 0)


def _beside_ranks(gang: Gang, question: Question, snapshot: Snapshot) -> dict[Path, tuple[int, int]]:
    """Domain -> where it stands among its like, for those that have placed pods with ranks; see _BESIDE_NONE.

    First come those whose ranks precede the first member's, the nearest of them first, so that runs of ranks
    go on where they are; last, likewise, those whose ranks follow.
    """
    ranks = [member.rank for member in gang.members if member.rank is not None]
    there: dict[Path, list[int]] = {}
    for anchor in gang.anchors if ranks else ():
        if anchor.rank is not None and (state := snapshot.nodes.get(anchor.node)) is not None:
            key = key_of(state, question.levels)
            for end in range(len(key)):
                there.setdefault(key[: end + 1], []).append(anchor.rank)
    first = min(ranks, default=0)
    found = {}
    for domain, placed in there.items():
        before = [first - rank for rank in placed if rank < first]
        found[domain] = (0, min(before)) if before else (2, -min(placed))
    return found


class _CardsUndecided(Exception):
    """Cards for pods that fit on a node were not found in the steps there are; its text names the node."""


def _cards(
    snapshot: Snapshot, name: str, residents: Sequence[Member], budget: Budget, reserve: Budget
) -> list[Slots]:
    pods = [member.pod_class for member in residents]
    if not any(pod.wants_cards for pod in pods):
        return [()] * len(pods)
    cards = snapshot.nodes[name].cards
    polish = min(POLISH, budget.left // (DESCENT * len(cards)))
    before = reserve.spent
    chosen = choose(cards, pods, polish, reserve).slots
    budget.take(reserve.spent - before)
    chosen = chosen or first_found(cards, pods)
    if chosen is None:  # fewer pods than were found to fit may be what the search does not decide
        raise _CardsUndecided(f"cards of node {name} for {len(pods)} of its pods")
    return [slots if pod.wants_cards else () for slots, pod in zip(chosen, pods, strict=True)]
