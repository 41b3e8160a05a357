"""The entry: one gang and one snapshot in, the best assignment or the reason why there is none out.

Members that join placed pods with ranks (a replaced pod, growth) go as near to the pod of the nearest rank as
they can without one more domain or more leftover; so ranks stay along the topology through every repair.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from webhook.placement import cards, fallback, leastfree
from webhook.placement.explain import no_fit, refused
from webhook.placement.knapsack import Knapsack
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
from webhook.placement.search import OutOfSteps, Search, State
from webhook.placement.snapshot import Snapshot, place_of
from webhook.placement.tree import (
    Costs,
    Question,
    Vertex,
    build,
    class_room,
    cost_of,
    evaluate,
    usable_states,
)

SMALL: Final = 2000
"""Rooms times pods up to which identical pods go to the general search, which weighs headroom everywhere."""

NEIGHBOURS: Final = 64
"""Members up to which they are steered to the placed pods of the nearest ranks: a repair, not a new gang."""

NEIGHBOURHOODS: Final = 4
"""Domains up to which members are steered at once; each makes a class of its own for the search."""

STEERING: Final = 20_000
"""Search steps for one attempt at steering."""


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
        return Assignment((), nothing, True, spread(nothing, snapshot))
    root = build(question, snapshot)
    counts, proven = _decided(question, root, snapshot)
    if counts is None:
        return no_fit(gang, question, snapshot, root, proven)
    objective = _objective(question, root, counts)
    placed = _assign(question, members, snapshot, counts)
    best = Assignment(placed, objective, proven, spread(objective, snapshot))
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
        counts, _ = _solve(tied, build(tied, snapshot))
        if counts is None:
            continue
        taken = {name: sum(pods) for name, pods in counts.items()}
        objective = evaluate(question, snapshot, taken, Costs(question.levels))
        if replace(objective, discord=0) == replace(best.objective, discord=0):
            placed = _assign(tied, members, snapshot, counts)
            return Assignment(placed, objective, best.proven, best.spread)
    return None


def _objective(question: Question, root: Vertex, counts: Mapping[str, State]) -> Objective:
    costs = Costs(question.levels)
    total = cost_of(root, counts)
    if question.options.mode is Mode.BALANCED:
        total += sum(sum(taken) ** 2 for taken in counts.values()) << costs.square
    return costs.objective(total)


def _decided(question: Question, root: Vertex, snapshot: Snapshot) -> tuple[dict[str, State] | None, bool]:
    """As _solve, but nothing is proven where room on cards was not decided, see cards.doubts."""
    hard = [number for number, pod_class in enumerate(question.classes) if cards.is_hard(pod_class)]
    with cards.doubts() as doubts:
        counts, proven = _solve(question, root)
        # The rooms of single classes may come from an earlier decision: ask for them again.
        for state in usable_states(question, snapshot.nodes.values()) if hard else ():
            for number in hard:
                class_room(question, number, state)
    return counts, proven and not doubts


def _solve(question: Question, root: Vertex) -> tuple[dict[str, State] | None, bool]:
    """Pods of each class by node, and whether nothing better (or nothing at all) exists."""
    alike = len(question.counts) == 1
    plain = alike and not question.slices and question.options.mode is Mode.BEST_FIT
    if plain and root.room * question.counts[0] > SMALL:
        knapsack = Knapsack(question)
        picks = knapsack.solve(root)
        return (None if picks is None else _filled(question, picks)), knapsack.proven
    if alike and not question.slices and question.options.mode is Mode.LEAST_FREE:
        return leastfree.distribute(question, root), True
    balanced = question.options.mode is Mode.BALANCED
    search = Search(question, question.options.budget if balanced or not alike else None)
    try:
        return search.solve(root, Knapsack(question).bound), True
    except OutOfSteps:
        if alike and not question.slices:
            picks = Knapsack(question).solve(root)
            return (None if picks is None else _evened(question, picks)), picks is None
        return fallback.first_found(question, root), False


def _filled(question: Question, picks: Sequence[Vertex]) -> dict[str, State]:
    """The chosen nodes filled in the order of the topology; the last one may stay partly free."""
    counts: dict[str, State] = {}
    left = question.counts[0]
    for node in sorted(picks, key=lambda vertex: [cards.natural(part) for part in vertex.key]):
        assert node.state is not None
        if left:
            counts[node.state.name] = (min(left, node.room),)
            left -= min(left, node.room)
    return counts


def _evened(question: Question, picks: Sequence[Vertex]) -> dict[str, State]:
    """The chosen nodes filled as evenly as their rooms allow, the first ones taking what does not divide."""
    counts: dict[str, State] = {}
    left = question.counts[0]
    for number, node in enumerate(sorted(picks, key=lambda vertex: vertex.room)):
        assert node.state is not None
        share = min(node.room, left // (len(picks) - number))
        counts[node.state.name] = (share,)
        left -= share
    return {name: taken for name, taken in counts.items() if taken[0]}


def _assign(
    question: Question, members: Sequence[Sequence[Member]], snapshot: Snapshot, counts: Mapping[str, State]
) -> tuple[Placed, ...]:
    """Members onto nodes: each class in rank order along the topology."""
    order = sorted(counts, key=lambda name: _along(question, snapshot, name))
    on_node: dict[str, list[Member]] = {name: [] for name in order}
    for number, group in enumerate(members):
        waiting = iter(group)
        for name in order:
            on_node[name] += [next(waiting) for _ in range(counts[name][number])]
    placed = {}
    for name, residents in on_node.items():
        for member, slots in zip(residents, _cards(snapshot, name, residents), strict=True):
            placed[member.name] = Placed(member.name, name, slots)
    return tuple(placed[member.name] for group in members for member in group)


def _along(question: Question, snapshot: Snapshot, name: str) -> tuple[object, ...]:
    key = (*place_of(snapshot.nodes[name], question.levels), name)
    return tuple(cards.natural(part) for part in key)


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


def spread(objective: Objective, snapshot: Snapshot) -> str:
    """How far the gang is spread, such as "1 block, 2 subblocks, 3 nodes"; anchors' domains not counted."""
    names = (*snapshot.topology.level_names, "node")
    return ", ".join(
        f"{count} {name}{'' if count == 1 else 's'}"
        for name, count in zip(names, objective.domains, strict=True)
    )
