"""The entry point: it takes a gang and a snapshot, and returns the best assignment or why there is none.

A member that joins placed pods with ranks, as after a repair, is placed near the pod with the nearest rank.
This never takes one more domain or more leftover. So ranks follow the topology through every repair.
"""

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import compress, islice
from typing import Final

from webhook.placement import heterogeneous, homogeneous, one_node, spread
from webhook.placement.budget import Budget, OutOfSteps
from webhook.placement.capacity import cards_key
from webhook.placement.cards.choose import choose
from webhook.placement.cards.first_cards import first_found
from webhook.placement.cards.search import DESCENT, POLISH
from webhook.placement.evaluate import Solution, cost_of
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
"""The most members that are placed near the nearest ranks: a repair, not a new gang."""

NEIGHBOURHOODS: Final = 4
"""The most domains to which ranks confine members at once; each adds a class to the search."""

RESERVE: Final = 8
"""First-fit and patterns have at least one part in so many of the steps, beyond the budget if need be."""

LOOKS: Final = 6
"""Nodes whose free slots for a class are computed in one step."""

NODE: Final = 4
"""Reading the free amounts of a node takes as long as computing its free slots for so many classes."""

HEADROOM: Final = 4
"""Steps per node to find the distribution of mode headroom."""

CONDITIONS: Final = 4
"""Resources, or conditions of rules, with which a node is compared in one step."""

FEW_CONDITIONS: Final = 16
"""So many of them, of each class and of all different rules together, are in the price of free slots."""

NAMED: Final = 50
"""Steps for a class whose rules name nodes, beside those for its nodes."""

SUMMED: Final = 64
"""Classes of very many, whose free slots on a node take together as long as those of a single other class."""

FIRST_FIT: Final = 8
"""The fewest steps per node for first-fit and patterns."""


def place(
    gang: Gang,
    snapshot: Snapshot,
    options: Options | None = None,
    budget: Budget | None = None,
    *,
    explained: bool = True,
) -> Assignment | NoFit:
    """The best assignment by the objective (see model.Objective), or why there is none.

    budget: steps that this and further questions share; if None, Options.bound. When it is spent, the answer
    is the best assignment found, or undecided (proven is False then). explained: whether to give the reason
    why a gang does not fit, which checks each node once more.
    Raises PlacementError for a contradictory gang or an unknown level.
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
    if looks > budget.left and len(question.classes) > 1:
        budget.take(max(0, budget.left + 1))  # as if it had been tried: the steps decided, not the nodes
        return too_many_classes(gang, len(question.classes), snapshot, options.bound)
    budget.take(looks + len(gang.members))
    if one_node.serves(question) and (alone := one_node.best(question, snapshot, budget)) is not None:
        solved = Solution({alone.node.name: question.counts}, True, 0)
        return _assigned(gang, question, members, snapshot, solved, alone.objective, budget)
    return _by_search(gang, question, members, snapshot, budget, explained)


def _by_search(
    gang: Gang,
    question: Question,
    members: Sequence[Sequence[Member]],
    snapshot: Snapshot,
    budget: Budget,
    explained: bool,
) -> Assignment | NoFit:
    """The best assignment of the engines that search, or why there is none."""
    tree = build(question, snapshot, budget.part(budget.left // 2))
    budget.take(tree.steps)
    solved = _solve(question, snapshot, tree, budget)
    if solved.counts is None:
        if not explained:
            return unexplained(gang, snapshot, solved.proven)
        return _reason(gang, question, snapshot, tree, solved.proven, budget)
    objective = _objective(question, snapshot, tree.root, solved)
    best = _assigned(gang, question, members, snapshot, solved, objective, budget)
    if isinstance(best, NoFit):
        return best
    return _near_neighbours(gang, question, snapshot, tree.root, best, budget)


def _assigned(
    gang: Gang,
    question: Question,
    members: Sequence[Sequence[Member]],
    snapshot: Snapshot,
    solved: Solution,
    objective: Objective,
    budget: Budget,
) -> Assignment | NoFit:
    """The assignment of a solution that places the gang; undecided if its cards are not found."""
    try:
        placed = _assign(gang, question, members, snapshot, solved, budget)
    except _CardsUndecided as what:
        return undecided(gang, snapshot, str(what))
    families = families_of(snapshot, solved.counts or ())
    return Assignment(placed, objective, solved.proven, snapshot.topology.spread(objective.domains, families))


def _reason(
    gang: Gang, question: Question, snapshot: Snapshot, tree: Tree, proven: bool, budget: Budget
) -> NoFit:
    """Why the gang cannot be placed. Of very many classes, the free slots of all are computed for it."""
    if question.others:
        question = replace(question, listed=tuple(range(len(question.classes))), others=())
        bound = question.options.bound
        if _looks(question, snapshot) > bound:
            return too_many_classes(gang, len(question.classes), snapshot, bound)
        tree = build(question, snapshot, budget.part(budget.left // 2))
        budget.take(_looks(question, snapshot) + tree.steps)
    return no_fit(gang, question, snapshot, tree, proven, budget)


def _looks(question: Question, snapshot: Snapshot) -> int:
    """Steps to compute the free slots of all nodes: one for six pairs of a node and a class.

    For pods confined to a domain only the nodes of its block count; for pods whose rules name nodes, only
    the named nodes. Many resources, or many conditions of rules, take further steps for each node.
    """
    looked = len(snapshot.nodes) * (NODE + len(question.others))
    looked += len(snapshot.nodes) * (len(question.classes) - len(question.listed)) // SUMMED
    for number in question.listed:
        domain, names = question.confinement(number), question.named[number]
        if names is not None:
            looked += LOOKS * NAMED + len(names)
        elif domain is not None:
            looked += len(snapshot.blocks[domain[:2]].states)
        else:
            looked += len(snapshot.nodes)
    return looked // LOOKS + len(snapshot.nodes) * _many_conditions(question) // CONDITIONS


def _many_conditions(question: Question) -> int:
    """The conditions of different rules on nodes, and the resources of classes, beyond a few."""
    named = zip(question.classes, question.named, strict=True)
    rules = {pod.rules for pod, names in named if names is None}
    numbers = [sum(1 + each.size for each in rules), *(len(pod.requests) for pod in question.classes)]
    return sum(max(0, number - FEW_CONDITIONS) for number in numbers)


def _near_neighbours(
    gang: Gang, question: Question, snapshot: Snapshot, root: Vertex, best: Assignment, budget: Budget
) -> Assignment:
    """An assignment with members near the pods of neighbouring ranks, at the finest level that allows one.

    It has the same domains and leftover as `best`. It is `best` itself if there is no such assignment.
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
        objective = question.costs().objective(_cost_of_nodes(question, snapshot, root, solved.counts))
        if _up_to_leftover(objective) == _up_to_leftover(best.objective):
            with contextlib.suppress(_CardsUndecided):
                placed = _assign(gang, confined, members, snapshot, solved, budget)
                return Assignment(placed, objective, best.proven, best.spread)
    return best


def _has_neighbours(gang: Gang, question: Question) -> bool:
    """Whether a few ranked members join placed pods with ranks, without slices, spread or another mode."""
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
    """The best distribution found, and whether it is proven that none is better, or that none exists."""
    is_plain = question.is_identical
    if is_plain and question.spread is not None:
        found = spread.solve(question, tree.root, budget.part(budget.left * 7 // 8))
    elif is_plain and question.options.mode is Mode.HEADROOM and not question.anchored:
        budget.take(HEADROOM * len(snapshot.nodes))
        found = most_headroom(question, tree.root)
    else:
        found = _searched(question, snapshot, tree.root, budget)
    return replace(found, proven=found.proven and tree.exact)


def _searched(question: Question, snapshot: Snapshot, root: Vertex, budget: Budget) -> Solution:
    """The result of the covering knapsack if it is proven, else the best of all solvers.

    These are joint bounds, first-fit and the pattern program.
    """
    reserve = budget.left // RESERVE
    if not question.others and (only := only_placement(question, root, budget)) is not None:
        return only
    found = []
    if homogeneous.serves(question):
        first = _mostly_identical(question, root, budget)
        if first.proven:
            return first
        found.append(first)
    steps = max(budget.left, reserve, min(FIRST_FIT * len(snapshot.nodes), question.options.bound))
    part = Budget(steps)
    # For identical pods, patterns find no more than the knapsack, which had all steps.
    nodes, fills_only = len(snapshot.nodes), question.is_identical
    filled = heterogeneous.solve(question, root, nodes, part, fills_only=fills_only)
    # Their bounds leave out the headroom, which the knapsack decides.
    found.append(replace(filled, proven=filled.proven and not (fills_only and filled.counts)))
    budget.take(part.spent)
    return _better(question, snapshot, root, found)


def _mostly_identical(question: Question, root: Vertex, budget: Budget) -> Solution:
    """The result of the search for homogeneous gangs within its share of the steps."""
    left = 0
    if len(question.classes) > 1:  # exact card searches may take all steps
        left = budget.left // (2 if any(pod.wants_cards for pod in question.classes) else 4)
    try:
        return homogeneous.solve(question, root, budget.part(budget.left - left))
    except OutOfSteps:
        return Solution(None, False)


def _better(question: Question, snapshot: Snapshot, root: Vertex, found: Sequence[Solution]) -> Solution:
    """The cheapest solution, the last one of equal cost; proven if any solution is proven."""
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
    return _cost_of_nodes(question, snapshot, root, solved.counts)


def _cost_of_nodes(question: Question, snapshot: Snapshot, root: Vertex, names: Iterable[str]) -> int:
    return cost_of(root, [key_of(snapshot.nodes[name], question.levels) for name in names])


def _assign(
    gang: Gang,
    question: Question,
    members: Sequence[Sequence[Member]],
    snapshot: Snapshot,
    solved: Solution,
    budget: Budget,
) -> tuple[Placed, ...]:
    """Assign members to nodes: each class in rank order along the topology, continuing from placed pods.

    budget: steps for the best cards. Finding any cards takes at most as many steps again. Raises
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
    """The members for each node, with nodes in topology order."""
    counts = solved.counts or {}
    order = list(counts)
    beside = _beside_ranks(gang, question, snapshot)
    if solved.cost is None or beside:  # otherwise the order is right already
        order.sort(key=lambda name: _along(question, snapshot, name, beside))
    on_node: dict[str, list[Member]] = {name: [] for name in order}
    waiting = [iter(group) for group in members]
    for name in order:
        taken = counts[name]
        for number in compress(range(len(taken)), taken):  # few of possibly many classes
            on_node[name] += islice(waiting[number], taken[number])
    return on_node


def _cards_of_members(
    on_node: Mapping[str, Sequence[Member]], question: Question, snapshot: Snapshot, budget: Budget
) -> dict[str, Slots]:
    """The cards of each member by name. Each node has a share of the steps. Raises _CardsUndecided.

    Nodes with equal cards and equal members get equal ones.
    """
    slots: dict[str, Slots] = {}
    known: dict[object, list[Slots]] = {}
    reserve = Budget(question.options.bound)
    for number, (name, residents) in enumerate(on_node.items()):
        key = cards_key(snapshot.nodes[name]), tuple(id(member.pod_class) for member in residents)
        if key not in known:
            share = budget.part(budget.left // (len(on_node) - number))
            known[key] = _cards(snapshot, name, residents, share, reserve)
        slots |= {member.name: each for member, each in zip(residents, known[key], strict=True)}
    return slots


def _along(
    question: Question, snapshot: Snapshot, name: str, beside: Mapping[Path, tuple[int, int]]
) -> tuple[object, ...]:
    key = key_of(snapshot.nodes[name], question.levels)
    return tuple((beside.get(key[: end + 1], _BESIDE_NONE), natural(part)) for end, part in enumerate(key))


_BESIDE_NONE: Final = (1, 0)


def _beside_ranks(gang: Gang, question: Question, snapshot: Snapshot) -> dict[Path, tuple[int, int]]:
    """Domain -> its sort key, for domains that have placed pods with ranks; see _BESIDE_NONE for others.

    Domains with ranks before the first member's come first, the nearest rank first, so that runs of ranks
    continue. Domains with later ranks come last, likewise.
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
    """The budget ended before cards were found for pods that fit on a node; the text names the node."""


def _cards(
    snapshot: Snapshot, name: str, residents: Sequence[Member], budget: Budget, reserve: Budget
) -> list[Slots]:
    pods = [member.pod_class for member in residents]
    if not any(pod.wants_cards for pod in pods):
        return [()] * len(pods)
    cards = snapshot.nodes[name].cards
    if not cards:
        return [()] * len(pods)  # it counts devices, and names none
    polish = min(POLISH, budget.left // (DESCENT * len(cards)))
    before = reserve.spent
    chosen = choose(cards, pods, polish, reserve).slots
    budget.take(reserve.spent - before)
    chosen = chosen or first_found(cards, pods)
    if chosen is None:  # the search may not decide fewer pods than fit
        raise _CardsUndecided(f"cards of node {name} for {len(pods)} of its pods")
    return [slots if pod.wants_cards else () for slots, pod in zip(chosen, pods, strict=True)]
