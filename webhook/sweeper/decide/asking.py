"""What a gang asks of the placement core: one question, or one for each of its parts. Pure.

Parts are placed one after the other, the largest first or last, in the coarsest domains where all of the gang
would lie best if it named no levels; if that fails, anywhere. So parts lie near to one another where they
can. Those that claim domains come before the others, where the division of the gang says. It is never proven
that there is no better plan, nor, where one part has no room beside others, none. A gang of which a part is
released can be asked about as if that part were deleted and made again.

The variants of a gang are the ways to ask about it, of which the first with an answer counts. It has one, all
of it as it is, unless an extension gives it others: with parts that have topology domains to themselves, and
with nodes where the gang may not be.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from webhook.kube.objects import Pod
from webhook.placement import Assignment, Budget, Gang, NoFit, Options, Snapshot, Topology, place
from webhook.scheduling.neighbourhood import Neighbourhood
from webhook.sweeper.decide.gang_question import ClassOf, GangQuestion, broken, in_order, question, together
from webhook.sweeper.decide.orders import NewPlan
from webhook.sweeper.decide.pod_rules import ask_by_rules
from webhook.sweeper.observe.gangs import PodGang
from webhook.sweeper.observe.plans import unpinned
from webhook.sweeper.observe.pods import name_of
from webhook.sweeper.observe.view import View

QUESTIONS: Final = 4
"""What one question to the placement core may take, times this, is what a gang may take of a pass."""


def ask(
    asked: GangQuestion, snapshot: Snapshot, options: Options, budget: Budget | None = None
) -> Assignment | NoFit:
    """The best place for all that is asked about, or why there is none. Raises PlacementError.

    Of pods with rules on other pods the answer has them in the order in which they are to be released.
    """
    if asked.rules is not None and not asked.parts:
        return ask_by_rules(asked.gang, asked.rules, snapshot, options, budget)
    whole = place(asked.gang, snapshot, options, budget)
    if not asked.parts or isinstance(whole, NoFit):
        return whole
    if any(claim is not None for claim in asked.claims):
        return _checked(_apart(asked, snapshot, options, budget), asked, snapshot)
    parts = sorted(asked.parts, key=lambda part: -len(part.members))
    answer: Assignment | NoFit = whole
    for outside in (_outside(whole, snapshot), frozenset[str]()):
        for order in (parts, parts[::-1]):
            answer = _one_by_one(asked, order, outside, snapshot, options, budget)
            answer = _checked(answer, asked, snapshot)
            if not isinstance(answer, NoFit):
                return answer
    return answer


def ask_around(
    asked: GangQuestion,
    snapshot: Snapshot,
    options: Options,
    budget: Budget,
    avoided: Sequence[frozenset[str]],
    blocked: frozenset[str],
) -> Assignment | NoFit:
    """The best place without the nodes that a gang avoids, if there is room without them.

    avoided: see GangExclusions.steps. With cards, beside a pod that nobody can repair (blocked) only where
    there is no other place.

    What is best of all nodes and uses none of those is the best without them as well, and what does not fit
    at all does not fit without them: so mostly one question is enough.
    """
    if blocked and any(member.pod_class.wants_cards for member in asked.gang.members):
        answer = ask_around(asked.without(blocked), snapshot, options, budget, avoided, frozenset())
        if not isinstance(answer, NoFit):
            return answer
    answer = ask(asked, snapshot, options, budget)
    if isinstance(answer, NoFit):
        return answer
    used = set(answer.nodes.values())
    for step in avoided:
        if not used & step:
            return answer
        other = ask(asked.without(step), snapshot, options, budget)
        if not isinstance(other, NoFit):
            return other
    return answer


def _checked(answer: Assignment | NoFit, asked: GangQuestion, snapshot: Snapshot) -> Assignment | NoFit:
    """The answer, if it keeps the rules of the gang on other pods."""
    if asked.rules is None or isinstance(answer, NoFit):
        return answer
    return in_order(answer, asked.rules) or broken(asked.gang, asked.rules, snapshot)


def _apart(
    asked: GangQuestion, snapshot: Snapshot, options: Options, budget: Budget | None
) -> Assignment | NoFit:
    """Those that claim domains first, then the rest, near to these where that is possible."""
    pairs = list(zip(asked.parts, asked.claims, strict=True))
    groups = [(part, claim) for part, claim in pairs if claim is not None]
    budget_of_groups = budget or Budget(QUESTIONS * options.bound)
    layout = asked.division.place_groups(groups, snapshot, options, budget_of_groups)
    if isinstance(layout, NoFit):
        return layout
    answers = [answer for _, answer in layout.answers]
    closed = layout.closed_to_others
    rest = [
        replace(part, excluded_nodes=part.excluded_nodes | closed) for part, claim in pairs if claim is None
    ]
    if not rest:
        return together(asked.gang, answers, snapshot)
    for part, answer in layout.answers:
        snapshot = snapshot.assume(answer, part)
    near = _one_by_one(asked, rest, _outside_of(layout.nodes, snapshot), snapshot, options, budget, answers)
    if not isinstance(near, NoFit):
        return near
    return _one_by_one(asked, rest, frozenset(), snapshot, options, budget, answers)


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


def _one_by_one(
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
    return together(asked.gang, found, snapshot)


# --- a gang whose released part would be deleted and made again ---------------------------------------


def place_again(
    gang: PodGang,
    part: Collection[Pod],
    view: View,
    snapshot: Snapshot,
    avoid: frozenset[str],
    options: Options,
    budget: Budget | None = None,
    near: Neighbourhood | None = None,
    class_of: ClassOf | None = None,
) -> Assignment | None:
    """Where all of the gang goes once `part` is gone; None if nowhere, or if that was not found in time.

    budget: for all questions that this takes. near, class_of: as in a pass that has placed others; without
    them, as in the view.
    Raises PlacementError for a gang that cannot be placed as it is written.
    """
    emptied = without_part((*part, *gang.gated), view, snapshot)
    waiting = [*gang.gated, *(unpinned(pod, node) for pod in part if (node := view.occupied(pod)))]
    stay = {pod.metadata.uid for pod in (*part, *gang.gated)}
    others = [pod for pod in gang.released if pod.metadata.uid not in stay]
    near = near or view.near
    left = None if near is None else near.without(frozenset(stay))
    class_of = class_of or view.class_of
    asked = question(gang, waiting, view.placed_on(others), avoid, class_of, view.is_ours, left)
    answer = ask(asked, emptied, options, budget)
    return None if isinstance(answer, NoFit) else answer


def without_part(part: Collection[Pod], view: View, snapshot: Snapshot) -> Snapshot:
    """The cluster once these pods are gone."""
    names = {name_of(pod) for pod in part}
    nodes = {node for node in view.placed_on(part).values() if node in snapshot.nodes}
    return snapshot.without(nodes, lambda use: use.name in names)


# --- the variants of a gang ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Variant:
    """One way to ask about a gang: the gang, nodes where it may not be, and a sentence on these."""

    gang: PodGang
    closed: frozenset[str] = frozenset()
    note: str = ""


@dataclass(frozen=True)
class DivisionInput:
    """A gang that waits. plans: made in this pass."""

    gang: PodGang
    view: View
    plans: Sequence[NewPlan]
    topology: Topology


DivideGang = Callable[[DivisionInput], Iterator[Variant]]
"""Gives the variants of a gang, one at least. Raises PlacementError for what cannot be meant."""


def undivided(given: DivisionInput) -> Iterator[Variant]:
    """The gang as it is."""
    yield Variant(given.gang)


def variants_of(given: DivisionInput, divide: DivideGang) -> Iterator[Variant]:
    """The variants of a gang, each of which knows where other replicas of its owner are, see Spread.peers."""
    return divide(replace(given, gang=_beside_replicas(given)))


def _beside_replicas(given: DivisionInput) -> PodGang:
    """The gang with the nodes of the other pods of its owner.

    The pods of a Deployment that are to be spread do not wait for one another, so each is placed alone,
    beside those that have a node by then. Their owner is the ReplicaSet: in a rolling update the pods of each
    revision are spread by themselves.
    """
    gang, maker = given.gang, given.gang.maker
    if gang.spread is None or maker == gang.key:
        return gang
    own = {pod.metadata.uid for pod in gang.pods}
    there = given.view.spread_replicas.get(maker, {})
    nodes = [node for uid, node in there.items() if uid not in own]
    for plan in given.plans:
        if plan.gang.spread is not None and plan.gang.maker == maker:
            nodes += [entry.node for entry in plan.entries if entry.node]
    return replace(gang, spread=replace(gang.spread, peers=tuple(sorted(nodes))))
