"""What a gang asks of the placement core: one question, or one for each of its parts. Pure.

Parts are placed one after the other, the largest first or last, in the coarsest domains where all of the gang
would lie best if it named no levels; if that fails, anywhere. So parts lie near to one another where they
can. Those that want domains of their own come before the others, see apart. It is never proven that there is
no better plan, nor, where one part has no room beside others, none.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from webhook.placement import Assignment, Budget, Gang, NoFit, Options, Snapshot, place
from webhook.placement.model import Objective
from webhook.sweeper.decide import apart
from webhook.sweeper.decide.question import GangQuestion

QUESTIONS: Final = 4
"""What one question to the placement core may take, times this, is what a gang may take of a pass."""


def ask(
    asked: GangQuestion, snapshot: Snapshot, options: Options, budget: Budget | None = None
) -> Assignment | NoFit:
    """The best place for all that is asked about, or why there is none. Raises PlacementError."""
    whole = place(asked.gang, snapshot, options, budget)
    if not asked.parts or isinstance(whole, NoFit):
        return whole
    if any(claim is not None for claim in asked.claims):
        return _apart(asked, snapshot, options, budget)
    parts = sorted(asked.parts, key=lambda part: -len(part.members))
    answer: Assignment | NoFit = whole
    for outside in (_outside(whole, snapshot), frozenset[str]()):
        for order in (parts, parts[::-1]):
            answer = _in_turn(asked, order, outside, snapshot, options, budget)
            if not isinstance(answer, NoFit):
                return answer
    return answer


def _apart(
    asked: GangQuestion, snapshot: Snapshot, options: Options, budget: Budget | None
) -> Assignment | NoFit:
    """Those that want domains of their own first, then the rest, near to these where that is possible."""
    pairs = list(zip(asked.parts, asked.claims, strict=True))
    groups = [apart.Group(part, claim) for part, claim in pairs if claim is not None]
    rest = [part for part, claim in pairs if claim is None]
    laid = apart.lay(groups, snapshot, options, budget or Budget(QUESTIONS * options.bound))
    if isinstance(laid, NoFit) or not rest:
        return laid if isinstance(laid, NoFit) else _together(asked, list(laid.answers), snapshot)
    closed = laid.closed_to_others
    for group, answer in zip(laid.groups, laid.answers, strict=True):
        snapshot = snapshot.assume(answer, group.gang)
    rest = [replace(part, excluded_nodes=part.excluded_nodes | closed) for part in rest]
    near = _in_turn(asked, rest, _outside_of(laid.nodes, snapshot), snapshot, options, budget, laid.answers)
    if not isinstance(near, NoFit):
        return near
    return _in_turn(asked, rest, frozenset(), snapshot, options, budget, laid.answers)


def _outside(whole: Assignment, snapshot: Snapshot) -> frozenset[str]:
    """The nodes that lie in none of the coarsest domains of an answer."""
    return _outside_of(whole.nodes.values(), snapshot)


def _outside_of(nodes: Iterable[str], snapshot: Snapshot) -> frozenset[str]:
    """The nodes that lie in none of the coarsest domains of these."""

    def domain(name: str) -> object:
        path = snapshot.nodes[name].path
        return path[:2] if path is not None else name

    used = {domain(name) for name in nodes}
    return frozenset(name for name in snapshot.nodes if domain(name) not in used)


def _in_turn(
    asked: GangQuestion,
    parts: list[Gang],
    outside: frozenset[str],
    snapshot: Snapshot,
    options: Options,
    budget: Budget | None,
    before: Sequence[Assignment] = (),
) -> Assignment | NoFit:
    """Each part on what those before it leave. before: answers that the snapshot knows already."""
    found = list(before)
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
