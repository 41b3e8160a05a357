"""What a gang asks of the placement core: one question, or one for each of its parts. Pure.

Parts are placed one after the other, the largest first or last, in the coarsest domains where all of the gang
would lie best if it named no levels; if that fails, anywhere. So parts lie near to one another where they
can. It is never proven that there is no better plan, nor, where one part has no room beside others, none.
"""

from dataclasses import replace

from webhook.placement import Assignment, Budget, Gang, NoFit, Options, Snapshot, place
from webhook.placement.model import Objective
from webhook.sweeper.decide.question import GangQuestion


def ask(
    asked: GangQuestion, snapshot: Snapshot, options: Options, budget: Budget | None = None
) -> Assignment | NoFit:
    """The best place for all that is asked about, or why there is none. Raises PlacementError."""
    whole = place(asked.gang, snapshot, options, budget)
    if not asked.parts or isinstance(whole, NoFit):
        return whole
    parts = sorted(asked.parts, key=lambda part: -len(part.members))
    answer: Assignment | NoFit = whole
    for outside in (_outside(whole, snapshot), frozenset[str]()):
        for order in (parts, parts[::-1]):
            answer = _in_turn(asked, order, outside, snapshot, options, budget)
            if not isinstance(answer, NoFit):
                return answer
    return answer


def _outside(whole: Assignment, snapshot: Snapshot) -> frozenset[str]:
    """The nodes that lie in none of the coarsest domains of an answer."""

    def domain(name: str) -> object:
        path = snapshot.nodes[name].path
        return path[:2] if path is not None else name

    used = {domain(name) for name in whole.nodes.values()}
    return frozenset(name for name in snapshot.nodes if domain(name) not in used)


def _in_turn(
    asked: GangQuestion,
    parts: list[Gang],
    outside: frozenset[str],
    snapshot: Snapshot,
    options: Options,
    budget: Budget | None,
) -> Assignment | NoFit:
    """Each part on what those before it leave."""
    found: list[Assignment] = []
    for part in parts:
        within = replace(part, excluded_nodes=part.excluded_nodes | outside)
        answer = place(within, snapshot, options, budget)
        if isinstance(answer, NoFit):
            return replace(answer, proven=False)
        found.append(answer)
        snapshot = snapshot.assume(answer, part)
    return _together(asked, found, snapshot)


def _together(asked: GangQuestion, found: list[Assignment], snapshot: Snapshot) -> Assignment:
    """One answer of those of all parts. Of its objective only the domains are told: each part has its own."""
    placed = {each.member: each for answer in found for each in answer.placed}
    topology = snapshot.topology
    names = {each.node for each in placed.values()}
    paths = {name: snapshot.nodes[name].path or (name,) * (len(topology.level_names) + 1) for name in names}
    levels = range(len(topology.level_names))
    domains = (*(len({path[: level + 2] for path in paths.values()}) for level in levels), len(names))
    objective = Objective(domains, 0, (0,) * len(domains), 0)
    order = tuple(placed[member.name] for member in asked.gang.members)
    return Assignment(order, objective, False, topology.spread(domains))
